"""The few calls of systemctl that turn units off and on again, each over many units at once.

It runs commands, through a function that the module hands in.
"""

from __future__ import annotations

import json
import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from .units import Change, Session, Unit, parse_active, parse_sessions, parse_units, user_managers

# systemd reads every unit of the disk for one of these answers; a busy node needs longer than the 25 s of sd-bus.
PATIENCE = {"SYSTEMD_BUS_TIMEOUT": "120s"}

SYSTEM, GLOBAL = "--system", "--global"

# Where an administrator's units and all masks lie.
UNIT_FOLDER = Path("/etc/systemd/system")
MASK = Path("/dev/null")
# Made by set-default; where it is missing, the default target is the distribution's.
DEFAULT_TARGET = UNIT_FOLDER / "default.target"

# A command line and what is added to the environment, to exit code, output and errors.
Runner = Callable[[Sequence[str], Mapping[str, str]], tuple[int, str, str]]


class SystemdError(RuntimeError):
    """A command failed; the text names it and says why, in one line."""


class Systemctl:
    """Asks and tells systemd: the system's (SYSTEM), for all users (GLOBAL), or one user's by the user's id."""

    def __init__(self, run: Runner) -> None:
        """Remember what runs the commands."""
        self._run = run

    def __call__(self, scope: str | int, *arguments: str) -> str:
        """What the command prints. Raises SystemdError when it fails."""
        return self.command([*_prefix(scope), *arguments], _environment(scope))

    def command(self, argv: Sequence[str], environment: Mapping[str, str] = PATIENCE) -> str:
        """What any command prints. Raises SystemdError when it fails."""
        code, out, errors = self._run(argv, environment)
        if code:
            raise SystemdError(f"{' '.join(argv)} failed: {' '.join((errors or out).split()) or f'exit code {code}'}")
        return out

    def units(self, scope: str) -> dict[str, Unit]:
        """All units of the system, or those for all users, which are never active here."""
        files = json.loads(self(scope, "list-unit-files", "--output=json"))
        loaded = json.loads(self(scope, "list-units", "--all", "--output=json")) if scope == SYSTEM else []
        return parse_units(files, loaded)

    def sessions(self) -> dict[int, list[str]]:
        """What runs in the session of each user who has one, by the user's id; a manager that is silent has nothing."""
        managers = json.loads(self(SYSTEM, "list-units", "user@*.service", "--output=json"))
        return {user: self._active(user) for user in user_managers(parse_active(managers))}

    def _active(self, user: int) -> list[str]:
        try:
            return parse_active(json.loads(self(user, "list-units", "--output=json")))
        except (SystemdError, ValueError):
            return []

    def at_the_desktop(self) -> list[Session]:
        """Those who sit before a desktop; nobody where logind does not answer."""
        try:
            rows = self.command(["loginctl", "list-sessions", "--no-legend"]).splitlines()
            names = [row.split()[0] for row in rows if row.split()]
            return parse_sessions(self.command(["loginctl", "show-session", *names])) if names else []
        except SystemdError:
            return []

    def default_target(self) -> str:
        """The target that the node boots into."""
        return self(SYSTEM, "get-default").strip()

    def turn_off(self, scope: str, changes: Iterable[Change], options: Sequence[str] = ()) -> None:
        """Mask and disable first, so that nothing starts a unit again; then stop, all in one call, sockets too."""
        todo = list(changes)
        for verb in ("mask", "disable"):
            self.each(scope, [verb, *options], [change.unit for change in todo if change.verb == verb])
        self.each(scope, ["stop"], [change.unit for change in todo if change.before.active])

    def each(self, scope: str | int, arguments: Sequence[str], names: Sequence[str]) -> None:
        """One call for all names; none for no name."""
        if names:
            self(scope, *arguments, *names)


def _prefix(scope: str | int) -> list[str]:
    """A user's manager is asked as that user: it listens to nobody else, and a login would start more of a session."""
    if isinstance(scope, str):
        return ["systemctl", scope]
    return ["setpriv", f"--reuid={scope}", f"--regid={_group(scope)}", "--clear-groups", "systemctl", "--user"]


def _environment(scope: str | int) -> Mapping[str, str]:
    if isinstance(scope, str):
        return PATIENCE
    runtime = f"/run/user/{scope}"
    return {**PATIENCE, "XDG_RUNTIME_DIR": runtime, "DBUS_SESSION_BUS_ADDRESS": f"unix:path={runtime}/bus"}


def _group(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


def links_of(name: str, folder: Path = UNIT_FOLDER) -> dict[str, str]:
    """What makes a unit start with others, and its other names: {link: where it leads}, as `disable` removes them."""
    links = [(path, path.readlink()) for path in sorted(folder.rglob("*")) if path.is_symlink()]
    return {str(path): str(target) for path, target in links if name in (path.name, target.name)}


def put_links(links: Mapping[str, str]) -> None:
    """Make links again that are gone; `enable` would make them as today's package wants them."""
    for name, target in links.items():
        path = Path(name)
        if not path.is_symlink():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.symlink_to(target)


def is_own_file(name: str, folder: Path = UNIT_FOLDER) -> bool:
    """True when the unit's file, or a link to it, lies where a mask of it would have to lie."""
    path = folder / name
    return path.exists() and path.resolve() != MASK
