"""Bringing links up to see their cables, with a stand-in for `ip` that remembers what it did."""

from __future__ import annotations

import os

import pytest
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.modules import links_up

# Prints the links that a file lists as `name up|down`; a link that is up has a carrier if `cabled` names it, and its
# IPv6 address is tentative as long as the file `tentative` names it.
IP = """\
#!/bin/bash
cd "$(dirname "$0")"
links() {
    while read -r name state; do
        flags='"BROADCAST"'
        [ "$state" = up ] && flags="$flags,\\"UP\\""
        [ "$state" = up ] && grep -qx "$name" cabled && flags="$flags,\\"LOWER_UP\\""
        echo "{\\"ifname\\":\\"$name\\",\\"flags\\":[$flags]}"
    done <links | paste -sd,
}
case "$*" in
"-j link show") echo "[$(links)]" ;;
"-j -6 address show tentative")
    echo "[{},$(sed 's/.*/{"ifname":"&","addr_info":[{"local":"fe80::1"}]}/' tentative | paste -sd,)]" | sed 's/,]/]/'
    : >tentative ;;
"link set dev "*" up") sed -i "s/^$4 .*/$4 up/" links; echo "$4" >>raised ;;
*) echo "ip $* is not known here" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def ip(tmp_path, monkeypatch):
    """Puts the stand-in where commands are looked for first, and tells it about the links."""

    def install(links, cabled=(), tentative=()):
        (tmp_path / "ip").write_text(IP)
        (tmp_path / "ip").chmod(0o755)
        (tmp_path / "links").write_text("".join(f"{name} {state}\n" for name, state in links.items()))
        for name, content in (("cabled", cabled), ("tentative", tentative), ("raised", ())):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in content))
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return lambda: (tmp_path / "raised").read_text().split()

    monkeypatch.setattr(links_up, "PAUSE", 0.01)
    return install


def test_links_that_are_down_are_brought_up_and_the_others_left_alone(ip):
    raised = ip({"eth0": "up", "eth1": "down", "eth2": "down", "lo": "up"}, cabled=["eth1", "eth0"])
    assert run_module(links_up.main, netdevs=["eth0", "eth1", "eth2"], carriers=2) == {
        "changed": True,
        "raised": ["eth1", "eth2"],
        "carriers": ["eth0", "eth1"],
        "invocation": {"module_args": {"netdevs": ["eth0", "eth1", "eth2"], "carriers": 2, "seconds": 15}},
    }
    assert raised() == ["eth1", "eth2"]


def test_a_second_time_nothing_is_changed(ip):
    raised = ip({"eth1": "up"}, cabled=["eth1"])
    assert run_module(links_up.main, netdevs=["eth1"], carriers=1)["changed"] is False
    assert raised() == []


def test_in_check_mode_nothing_is_brought_up(ip):
    raised = ip({"eth1": "down"}, cabled=["eth1"])
    found = run_module(links_up.main, check_mode=True, netdevs=["eth1"], carriers=1)
    assert (found["changed"], found["raised"], found["carriers"]) == (True, ["eth1"], [])
    assert raised() == []


def test_without_enough_carriers_the_wait_ends_and_is_no_failure(ip):
    ip({"eth1": "down", "eth2": "down"}, cabled=["eth2"])
    found = run_module(links_up.main, netdevs=["eth1", "eth2"], carriers=2, seconds=0)
    assert (found.get("failed"), found["carriers"]) == (None, ["eth2"])


def test_it_waits_until_the_address_of_a_link_can_be_used(ip, tmp_path):
    ip({"eth1": "up"}, cabled=["eth1"], tentative=["eth1"])
    assert run_module(links_up.main, netdevs=["eth1"], carriers=1)["carriers"] == ["eth1"]
    assert (tmp_path / "tentative").read_text() == ""


def test_an_interface_that_is_not_there_is_named(ip):
    ip({"eth1": "down"})
    found = run_module(links_up.main, netdevs=["eth9"], carriers=1)
    assert (found["failed"], found["msg"]) == (True, "there is no interface eth9, only eth1")
