"""The NCCL environment of a node, from its own devices."""

from __future__ import annotations

import pytest
from builders import DEVICE0, DEVICE1, GONE, NETDEV0, NETDEV1, cluster, rails

from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import (
    FORBIDDEN,
    NcclEnvError,
    env_file,
    nccl_env,
)

RAILS = rails(1)


def fabric(**changes):
    """The fabric of spark2; a change names a RDMA device and its netdev, or GONE."""
    paths = {("spark2", "fabric", "rdma", d, "netdev"): n for d, n in changes.items() if n is not GONE}
    gone = {("spark2", "fabric", "rdma", device): GONE for device, value in changes.items() if value is GONE}
    return cluster(facts={**paths, **gone}).facts["spark2"]["fabric"]


def test_two_rails():
    assert nccl_env(RAILS, fabric(), {}) == {
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": f"={DEVICE0},{DEVICE1}",
        "NCCL_IB_ROCE_VERSION_NUM": "2",
        "NCCL_IB_ADDR_FAMILY": "AF_INET",
        "NCCL_SOCKET_IFNAME": f"{NETDEV0},{NETDEV1}",
        "GLOO_SOCKET_IFNAME": NETDEV0,
        "TP_SOCKET_IFNAME": NETDEV0,
        "UCX_NET_DEVICES": f"{DEVICE0}:1,{DEVICE1}:1",
        "OMPI_MCA_btl_tcp_if_include": f"{NETDEV0},{NETDEV1}",
        "VLLM_HOST_IP": "192.168.100.11",
    }


def test_one_rail_names_one_device():
    found = nccl_env(RAILS[1:], fabric(), {})
    assert (found["NCCL_IB_HCA"], found["VLLM_HOST_IP"]) == (f"={DEVICE1}", "192.168.101.11")


def test_devices_are_taken_by_their_interface_and_in_the_order_of_the_rails():
    renamed = fabric(**{DEVICE0: NETDEV1, DEVICE1: NETDEV0})
    assert nccl_env(RAILS, renamed, {})["NCCL_IB_HCA"] == f"={DEVICE1},{DEVICE0}"


def test_no_gid_index_is_ever_written():
    assert not any("GID_INDEX" in name for name in nccl_env(RAILS, fabric(), {}))


def test_tunables_come_last():
    found = nccl_env(RAILS, fabric(), {"NCCL_CROSS_NIC": "1", "NCCL_NET": "Socket"})
    assert list(found)[-1] == "NCCL_CROSS_NIC"
    assert found["NCCL_NET"] == "Socket"


def test_a_rail_without_a_device_is_refused():
    with pytest.raises(NcclEnvError) as error:
        nccl_env(RAILS, fabric(**{DEVICE1: GONE}), {})
    remedy = "limit: one for each rail; remedy: check `rdma link show`"
    assert str(error.value) == f"{NETDEV1} has no RDMA device; {remedy}"


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (
            "NCCL_IB_DISABLE",
            "1",
            "NCCL_IB_DISABLE=1 is set; limit: unset, RoCE runs through NCCL's IB code, and without it the fabric drops"
            " to TCP; remedy: remove NCCL_IB_DISABLE",
        ),
        (
            "NCCL_IB_GID_INDEX",
            "3",
            "NCCL_IB_GID_INDEX=3 is set; limit: unset, the index moves after link and netplan events, and a pinned one"
            " hangs after the load; remedy: remove NCCL_IB_GID_INDEX",
        ),
    ],
)
def test_a_harmful_variable_is_refused(name, value, line):
    with pytest.raises(NcclEnvError) as error:
        nccl_env(RAILS, fabric(), {name: value})
    assert str(error.value) == line


def test_every_forbidden_variable_has_a_case():
    assert set(FORBIDDEN) == {"NCCL_IB_DISABLE", "NCCL_IB_GID_INDEX"}


def test_both_equal_signs_survive_the_file():
    text = env_file(nccl_env(RAILS, fabric(), {}))
    assert f"NCCL_IB_HCA=={DEVICE0},{DEVICE1}\n" in text


def test_the_file_is_literal():
    assert env_file({"A": '{"x": "$HOME"}', "B": ""}) == 'A={"x": "$HOME"}\nB=\n'


@pytest.mark.parametrize(("name", "value"), [("A", "two\nlines"), ("A=B", "1")])
def test_what_a_file_cannot_carry_is_refused(name, value):
    with pytest.raises(ValueError, match="cannot be written to an environment file"):
        env_file({name: value})
