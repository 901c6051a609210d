"""How systemd is asked and told: which command, as whom, and what its failure says."""

from __future__ import annotations

import os
import pwd

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.systemd import (
    GLOBAL,
    SYSTEM,
    Systemctl,
    SystemdError,
    is_own_file,
    links_of,
    put_links,
)


class Commands:
    """Records what is run, and answers with one result."""

    def __init__(self, code=0, out="", errors=""):
        self.result = (code, out, errors)
        self.ran = []

    def __call__(self, argv, environment):
        self.ran.append((list(argv), dict(environment)))
        return self.result


@pytest.mark.parametrize("scope", [SYSTEM, GLOBAL])
def test_a_slow_systemd_is_waited_for(scope):
    commands = Commands(out="x\n")
    assert Systemctl(commands)(scope, "get-default") == "x\n"
    assert commands.ran == [(["systemctl", scope, "get-default"], {"SYSTEMD_BUS_TIMEOUT": "120s"})]


@pytest.mark.parametrize(("user", "group"), [(os.geteuid(), pwd.getpwuid(os.geteuid()).pw_gid), (987654, 987654)])
def test_a_user_s_manager_is_asked_as_that_user(user, group):
    commands = Commands()
    Systemctl(commands)(user, "stop", "pipewire.socket")
    ((argv, environment),) = commands.ran
    assert argv == [
        *("setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups"),
        *("systemctl", "--user", "stop", "pipewire.socket"),
    ]
    assert environment["XDG_RUNTIME_DIR"] == f"/run/user/{user}"
    assert environment["DBUS_SESSION_BUS_ADDRESS"] == f"unix:path=/run/user/{user}/bus"


@pytest.mark.parametrize(
    ("errors", "out", "reason"),
    [("Failed to mask:\n  no space\n", "", "Failed to mask: no space"), ("", "odd\n", "odd"), ("", "", "exit code 4")],
)
def test_a_failure_is_one_line(errors, out, reason):
    with pytest.raises(SystemdError) as error:
        Systemctl(Commands(4, out, errors))(SYSTEM, "mask", "a.service")
    assert str(error.value) == f"systemctl --system mask a.service failed: {reason}"


def test_no_name_is_no_call():
    commands = Commands()
    Systemctl(commands).each(SYSTEM, ["stop"], [])
    assert commands.ran == []


def test_where_logind_does_not_answer_nobody_is_at_the_desktop():
    assert Systemctl(Commands(1, "", "no such file")).at_the_desktop() == []


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (lambda path: None, False),
        (lambda path: path.write_text("[Service]\n"), True),
        (lambda path: path.symlink_to("/dev/null"), False),
        # As `systemctl link` makes it.
        (lambda path: path.symlink_to("/etc/hostname"), True),
    ],
)
def test_a_unit_whose_file_lies_where_a_mask_would(tmp_path, make, own):
    make(tmp_path / "a.service")
    assert is_own_file("a.service", tmp_path) is own


def test_the_links_of_a_unit_are_found_and_made_again(tmp_path):
    """A link to start with others, another name, and those of another unit."""
    links = {
        str(tmp_path / "a.target.wants/x.service"): "/lib/systemd/system/x.service",
        str(tmp_path / "other-name.service"): "/usr/lib/systemd/system/x.service",
    }
    strange = {str(tmp_path / "a.target.wants/y.service"): "/lib/systemd/system/y.service"}
    put_links({**links, **strange})
    assert links_of("x.service", tmp_path) == links
    for path in links:
        (tmp_path / path).unlink()
    assert links_of("x.service", tmp_path) == {}
    put_links(links)
    put_links(links)
    assert links_of("x.service", tmp_path) == links
