"""What the plan of a node says about its fabric: the files, what is due, and what must be known first."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleActionFail
from builders import NETDEV0, node_facts, rails
from wiring import NETDEVS, joined, planned, spark

from ansible_collections.sparkwright.cluster.plugins.action.node_plan import fabric_data
from ansible_collections.sparkwright.cluster.plugins.module_utils.netplan import render_netplan
from ansible_collections.sparkwright.cluster.plugins.module_utils.rails import resolve


def plan_of(intents, facts, host="spark1"):
    found = resolve(intents, facts)
    return fabric_data(found.intents[host], facts[host], found.doubts.get(host, ()))


def test_a_configured_node():
    found = plan_of(planned(4), {"spark1": node_facts(0)})
    assert (found["rails_current"], found["strict"], found["wake"]) == (True, [], [])
    assert [(file["path"], file.get("mode")) for file in found["files"]] == [
        ("/etc/netplan/60-sparkwright.yaml", "0600"),
        ("/etc/sysctl.d/60-sparkwright-fabric.conf", None),
        ("/etc/sparkwright/nccl.env", None),
    ]
    assert found["files"][0]["content"] == render_netplan(rails(0))
    assert found["files"][2]["content"] == node_facts(0)["fabric"]["nccl_env"]


@pytest.mark.parametrize(
    ("place", "value", "due"),
    [
        ("mtu", 1500, {"rails_current": False}),
        ("addresses", [], {"rails_current": False}),
        ("rp_filter", 1, {"strict": [NETDEV0]}),
    ],
)
def test_what_differs_is_due(place, value, due):
    facts = {"spark1": node_facts(0)}
    facts["spark1"]["fabric"]["netdevs"][NETDEV0][place] = value
    found = plan_of(planned(4), facts)
    assert {key: found[key] for key in due} == due
    assert found["wake"] == []


def test_a_new_node_with_its_cable_in_the_other_cage():
    found = plan_of(planned(2), {"spark1": spark(1, p0="asleep", p1="cabled")})
    assert f"    {NETDEVS['p1'][0]}:\n" in found["files"][0]["content"]
    assert found["wake"] == []


def test_links_that_are_down_are_woken_before_a_guess_is_acted_on():
    found = plan_of(planned(2), {"spark1": spark(1, p0="asleep", p1="asleep")})
    assert found["wake"] == [*NETDEVS["p0"], *NETDEVS["p1"]]
    # In check mode nothing is woken, and the guess is what can be shown.
    assert f"    {NETDEVS['p0'][0]}:\n" in found["files"][0]["content"]


@pytest.mark.parametrize("host", ["spark1", "spark2", "spark3"])
def test_in_a_ring_both_ends_of_a_cable_look_again(host):
    """spark1 is the one that sleeps; the others are awake, and have no files yet either."""
    facts = joined(3, ((2, "p0"), (3, "p1")))
    facts["spark1"] = spark(1, p0="asleep", p1="asleep")
    found = plan_of(planned(3, "ring"), facts, host)
    assert found["files"] == []
    assert set(found["wake"]) == {*NETDEVS["p0"], *NETDEVS["p1"]}


def test_rails_that_cannot_be_found_are_a_failure_in_one_line_each():
    with pytest.raises(AnsibleActionFail) as error:
        plan_of(planned(2), {"spark1": spark(1, p0=None, p1=None)})
    assert str(error.value) == (
        "spark1: there is no RDMA device at all; limit: two for each cable; remedy: plug in the cable, without which"
        " some Sparks show none; then check `lspci` and `rdma link show`"
    )


def test_a_fabric_that_was_not_read_has_no_plan():
    assert fabric_data(planned(2)["spark1"], {"reachable": True}, ()) is None
