"""A systemd that only remembers: unit files and activity by scope, and the verbs that were called."""

from __future__ import annotations

import json

# `systemctl VERB` leaves the unit file in this state; `unmask` goes back to what was below the mask.
LEAVES = {"mask": "masked", "disable": "disabled", "enable": "enabled"}
SESSION = ("setpriv", "systemctl", "--user")


class FakeSystemd:
    """Takes the place of what runs commands; a scope is --system, --global or the id of a user."""

    def __init__(self):
        self.states = {
            "--system": {
                "cups.socket": "enabled",
                "cups.service": "enabled",
                "fwupd-refresh.timer": "enabled",
                "ssh.service": "enabled",
            },
            "--global": {"pipewire.socket": "enabled", "pipewire.service": "disabled"},
        }
        self.active = {"--system": {"cups.socket", "cups.service", "ssh.service", "user@1000.service"}}
        self.active["1000"] = {"pipewire.socket", "pipewire.service"}
        self.below = {"--system": {}, "--global": {}}
        # Where set-default makes its link, if anywhere; without one the distribution's target is the default.
        self.link = None
        self.set_target = "graphical.target"
        self.desktop = ""
        # Command lines that fail, by how they begin.
        self.broken = ()
        # The number of verbs after which the machine dies.
        self.life = None
        self.calls = []
        # What other commands print, by command line.
        self.prints = {}

    @property
    def target(self):
        """The target that the node boots into."""
        return self.set_target if self.link is None or self.link.is_symlink() else "graphical.target"

    def run(self, argv, environment):
        """As AnsibleModule.run_command: exit code, output, errors."""
        if argv[0] == "loginctl":
            return (
                0,
                {"list-sessions": "2 1000 ann seat0\n"[: len(self.desktop)], "show-session": self.desktop}[argv[1]],
                "",
            )
        if argv[0] not in ("systemctl", "setpriv"):
            return self.command(" ".join(argv))
        scope, words = self.parse(argv)
        call = " ".join([scope, *words])
        if self.broken and call.startswith(self.broken):
            return 1, "", "it\nis broken"
        if "--now" in words:
            self.act(scope, "stop", words[2:])
        return 0, self.answer(scope, [word for word in words if not word.startswith("--")]), ""

    def command(self, line):
        """Another command: one that is known prints, another one is called and does nothing."""
        if line in self.prints:
            return 0, self.prints[line], ""
        if self.broken and line.startswith(self.broken):
            return 1, "", "it\nis broken"
        self.count(line)
        return 0, "", ""

    def count(self, call):
        if self.life is not None and len(self.calls) >= self.life:
            raise KeyboardInterrupt
        self.calls.append(call)

    @staticmethod
    def parse(argv):
        if argv[0] != "setpriv":
            assert argv[0] == "systemctl"
            return argv[1], list(argv[2:])
        assert [argv[0], *argv[4:6]] == list(SESSION)
        return argv[1].removeprefix("--reuid="), list(argv[6:])

    def answer(self, scope, words):
        verb, *names = words
        if verb == "list-unit-files":
            return json.dumps([{"unit_file": name, "state": state} for name, state in self.states[scope].items()])
        if verb == "list-units":
            return json.dumps([{"unit": name, "active": "active"} for name in sorted(self.active[scope])])
        if verb == "get-default":
            return f"{self.target}\n"
        self.count(" ".join([scope, *words]))
        self.act(scope, verb, names)
        return ""

    def set_default(self, name):
        self.set_target = name
        if self.link:
            self.link.unlink(missing_ok=True)
            self.link.symlink_to(name)

    def act(self, scope, verb, names):
        if verb in ("stop", "start"):
            change = self.active[scope].difference_update if verb == "stop" else self.active[scope].update
            change(names)
        elif verb == "set-default":
            self.set_default(*names)
        elif verb == "unmask":
            self.states[scope].update({name: self.below[scope].pop(name, "disabled") for name in names})
        elif verb in LEAVES:
            if verb == "mask":
                self.below[scope].update({name: self.states[scope][name] for name in names})
            self.states[scope].update(dict.fromkeys(names, LEAVES[verb]))
