"""The ports on which the ranks meet, and the rules that keep strangers from them."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from builders import intent

from ansible_collections.sparkwright.cluster.plugins.module_utils.own_ports import (
    CHAIN,
    RAY_PORTS,
    filter_rules,
    filter_rules_v6,
    own_ports,
    parse_rules,
    restore_text,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.ray_plan import CLIENT_PORT, PORTS


@pytest.mark.parametrize(
    ("executor", "rank", "ports"),
    [
        ("mp", 0, [29400, 29501]),
        ("mp", 2, []),
        ("llamacpp", 0, [29400]),
        ("llamacpp", 2, [29501]),
        ("ray", 0, [29400, *range(29501, 29621)]),
        ("ray", 2, list(range(29501, 29621))),
    ],
)
def test_where_a_rank_is_met(executor, rank, ports):
    assert [port for ports in own_ports(intent(rank, executor=executor)) for port in ports] == ports


def test_the_ports_of_ray_are_in_its_span():
    assert max(*PORTS.values(), CLIENT_PORT) < RAY_PORTS
    assert len({0, CLIENT_PORT, *PORTS.values()}) == len(PORTS) + 2


def test_only_the_other_ranks_come_in_and_only_by_the_rail():
    assert filter_rules(intent(1, executor="ray", master_port=26479)) == [
        "-A SPARKWRIGHT -i lo -j RETURN",
        "-A SPARKWRIGHT -s 192.168.100.10/32 -i enp1s0f0np0 -p tcp -m tcp --dport 26479:26598 -j RETURN",
        "-A SPARKWRIGHT -s 192.168.100.12/32 -i enp1s0f0np0 -p tcp -m tcp --dport 26479:26598 -j RETURN",
        "-A SPARKWRIGHT -s 192.168.100.13/32 -i enp1s0f0np0 -p tcp -m tcp --dport 26479:26598 -j RETURN",
        "-A SPARKWRIGHT -p tcp -m tcp --dport 26479:26598 -j DROP",
    ]


def test_the_head_hears_the_roll_call_of_the_other_ranks_alone():
    rules = filter_rules(intent(0, count=2))
    assert rules == [
        "-A SPARKWRIGHT -i lo -j RETURN",
        "-A SPARKWRIGHT -s 192.168.100.11/32 -i enp1s0f0np0 -p tcp -m tcp --dport 29400 -j RETURN",
        "-A SPARKWRIGHT -s 192.168.100.11/32 -i enp1s0f0np0 -p tcp -m tcp --dport 29501 -j RETURN",
        "-A SPARKWRIGHT -p tcp -m tcp --dport 29400 -j DROP",
        "-A SPARKWRIGHT -p tcp -m tcp --dport 29501 -j DROP",
    ]


def test_nobody_comes_by_ipv6():
    assert filter_rules_v6(intent(0)) == [
        "-A SPARKWRIGHT -i lo -j RETURN",
        "-A SPARKWRIGHT -p tcp -m tcp --dport 29400 -j DROP",
        "-A SPARKWRIGHT -p tcp -m tcp --dport 29501 -j DROP",
    ]


def test_a_rank_that_is_not_met_needs_no_rules():
    assert filter_rules(intent(1)) == filter_rules_v6(intent(1)) == []


@pytest.mark.parametrize("tool", ["iptables", "ip6tables"])
def test_the_kernel_says_the_rules_as_they_were_written(tool):
    """In a network namespace of its own: what is read on a node is compared with these words."""
    if shutil.which(tool) is None or shutil.which("unshare") is None:
        pytest.skip(f"no {tool} or no unshare here")
    rules = {"iptables": filter_rules, "ip6tables": filter_rules_v6}[tool](intent(1, executor="ray"))
    write = ["unshare", "--net", "sh", "-c", f"{tool}-restore --noflush && {tool} --list-rules {CHAIN}"]
    done = subprocess.run(write, input=restore_text(rules), capture_output=True, text=True, check=False)
    if done.returncode and ("ermission" in done.stderr or "permitted" in done.stderr):
        pytest.skip(f"no namespace here: {done.stderr.strip()}")
    assert (done.returncode, parse_rules(done.stdout)) == (0, rules), done.stderr


def test_no_chain_means_no_rules():
    assert parse_rules("") == []
