"""Checks of what lies below the rails: one thing is wrong, and the whole report is the lines about it."""

from __future__ import annotations

import pytest
from builders import DEVICE0, DEVICE1, GONE, NETDEV0, NETDEV1, cluster, findings

SPARK2 = "spark2"
FABRIC = (SPARK2, "fabric")
OTHER_MAC = "4c:bb:47:2c:66:0a"
CABLE = "check the cable or transceiver of {} at both ends, and the speed of its port on the switch"
PCIE = "update the NIC's firmware and switch the node off without power for a minute; look at `lspci -vv`"
FIRMWARE = "bring all nodes to one firmware (fwupdmgr) and one system, then switch them off and on"
PROFILE = "/etc/NetworkManager/system-connections/fast.nmconnection"
NCCL_LIMIT = "nothing that this project sets or forbids; processes of the host obey that file, the engine does not"


def link(key, value, netdev=NETDEV1, host=SPARK2):
    return {(host, "fabric", "netdevs", netdev, key): value}


def everywhere(key, value, netdev=NETDEV1):
    return {path: v for n in range(1, 5) for path, v in link(key, value, netdev, f"spark{n}").items()}


def pci(address="0002:01:00.0", speed=32.0, width=4, max_width=4):
    return {"address": address, "speed": speed, "max_speed": 32.0, "width": width, "max_width": max_width}


CASES = {
    "a slower link than at the other ends": (
        link("speed", 100_000),
        "refuse fabric.link spark2: enP2p1s0f0np0 has a link of 100000 Mb/s; limit: 200000 Mb/s, as at the other end on"
        f" spark1, spark3, spark4; remedy: {CABLE.format(NETDEV1)}",
    ),
    "the same slow link everywhere": (
        everywhere("speed", 100_000),
        *(
            f"warn fabric.link spark{n}: enP2p1s0f0np0 has a link of 100000 Mb/s; limit: a link of 200000 Mb/s; remedy:"
            f" {CABLE.format(NETDEV1)}"
            for n in range(1, 5)
        ),
    ),
    "a rail faster than the other": (
        everywhere("speed", 400_000, NETDEV0),
        # More than a Spark has today is no fault, and a rail is compared with its own ends alone.
    ),
    "a driver that says no speed": (
        everywhere("speed", None),
        *(
            f"warn fabric.link spark{n}: enP2p1s0f0np0 has a link, and its driver says no speed; limit: a link of"
            f" 200000 Mb/s; remedy: {CABLE.format(NETDEV1)}"
            for n in range(1, 5)
        ),
    ),
    "no cable": (
        link("carrier", False) | link("speed", None),
        f"refuse fabric.link spark2: enP2p1s0f0np0 has no carrier; limit: a link of 200000 Mb/s; remedy:"
        f" {CABLE.format(NETDEV1)}",
    ),
    "half of the lanes": (
        link("pci", pci(width=2)),
        "warn fabric.pcie spark2: the PCIe link of enP2p1s0f0np0 (0002:01:00.0) has 2 lanes at 32 GT/s; limit: 4 lanes"
        f" at 32 GT/s, its maximum; less moves about 3 GB/s instead of 13; remedy: {PCIE}",
    ),
    "an older generation": (
        link("pci", pci(speed=8.0)),
        "warn fabric.pcie spark2: the PCIe link of enP2p1s0f0np0 (0002:01:00.0) has 4 lanes at 8 GT/s; limit: 4 lanes"
        f" at 32 GT/s, its maximum; less moves about 3 GB/s instead of 13; remedy: {PCIE}",
    ),
    "a slot with fewer lanes than on the other nodes": (
        link("pci", pci(width=2, max_width=2)),
        "warn fabric.pcie spark2: the PCIe link of enP2p1s0f0np0 (0002:01:00.0) has 2 lanes at 32 GT/s; limit: 4 lanes"
        f" at 32 GT/s, as on spark1, spark2, spark3, spark4; remedy: {PCIE}",
    ),
    "no PCIe link that could be read": (
        link("pci", None),
        "warn fabric.pcie spark2: enP2p1s0f0np0 shows no PCIe link; limit: a PCIe link with all its lanes; remedy:"
        f" {PCIE}",
    ),
    "other firmware on one node": (
        {(*FABRIC, "rdma", device, "firmware"): "28.42.1000" for device in (DEVICE0, DEVICE1)},
        *(
            f"warn fabric.same-firmware spark2: the NIC of {netdev} runs firmware 28.42.1000 with driver mlx5_core;"
            " limit: firmware 28.45.4028 with driver mlx5_core, as on spark1, spark3, spark4; remedy:"
            f" {FIRMWARE}"
            for netdev in (NETDEV0, NETDEV1)
        ),
    ),
    "other firmware on one twin": (
        {(*FABRIC, "rdma", DEVICE1, "firmware"): "28.42.1000"},
        "warn fabric.same-firmware spark2: the NIC of enP2p1s0f0np0 runs firmware 28.42.1000 with driver mlx5_core;"
        " limit: firmware 28.45.4028 with driver mlx5_core, as on spark1, spark2, spark3, spark4; remedy:"
        f" {FIRMWARE}",
    ),
    "another driver": (
        link("driver", "mlx5_vendor"),
        "warn fabric.same-firmware spark2: the NIC of enP2p1s0f0np0 runs firmware 28.45.4028 with driver mlx5_vendor;"
        " limit: firmware 28.45.4028 with driver mlx5_core, as on spark1, spark2, spark3, spark4; remedy:"
        f" {FIRMWARE}",
    ),
    "firmware that one NIC does not tell": (
        {(*FABRIC, "rdma", DEVICE1, "firmware"): None},
        "warn fabric.same-firmware spark2: the NIC of enP2p1s0f0np0 runs firmware unknown with driver mlx5_core; limit:"
        " firmware 28.45.4028 with driver mlx5_core, as on spark1, spark2, spark3, spark4; remedy:"
        f" {FIRMWARE}",
    ),
    "a strict filter": (
        link("rp_filter", 1),
        "refuse fabric.rp-filter spark2: the reverse-path filter of enP2p1s0f0np0 is 1; limit: 2 or 0 with several"
        " rails, 1 is strict; remedy: run site.yml, which sets it to 2",
    ),
    "a filter that cannot be read": (
        link("rp_filter", None),
        "unknown fabric.rp-filter spark2: the reverse-path filter of enP2p1s0f0np0 is not readable; limit: 2 or 0 with"
        " several rails, 1 is strict; remedy: run site.yml, which sets it to 2",
    ),
    "no filter": (link("rp_filter", 0),),
    "another machine with the address": (
        {(*FABRIC, "macs", f"{NETDEV1} 192.168.101.11"): [OTHER_MAC]},
        f"refuse fabric.duplicate spark2: 192.168.101.11 is claimed by {OTHER_MAC} on enP2p1s0f0np0; limit: spark2"
        " alone; remedy: take the address from that machine, or choose another subnet for the rail",
    ),
    "an address that nobody was asked for": (
        {(*FABRIC, "macs", f"{NETDEV1} 192.168.101.11"): GONE},
        "unknown fabric.duplicate spark2: nobody on enP2p1s0f0np0 was asked for 192.168.101.11; limit: spark2 alone;"
        " remedy: read the facts as root, with probe_wires",
    ),
    "a profile of NetworkManager": (
        {(*FABRIC, "profiles"): {PROFILE: [NETDEV0], "/etc/NetworkManager/system-connections/lan": ["enP7s7"]}},
        f"refuse fabric.networkmanager spark2: enp1s0f0np0 is named by {PROFILE}; limit: no profile of NetworkManager;"
        " remedy: remove it with `nmcli connection delete`",
    ),
    "a profile that the account may not read": (
        {(*FABRIC, "unreadable"): ["/etc/netplan/50-lan.yaml", PROFILE]},
        *(
            f"unknown fabric.networkmanager spark2: {netdev} is named by no profile; {PROFILE} cannot be read; limit:"
            " no profile of NetworkManager; remedy: read the facts as root"
            for netdev in (NETDEV0, NETDEV1)
        ),
    ),
    "NCCL's own file sets what we set": (
        {(*FABRIC, "nccl_conf"): "# for tests\nNCCL_IB_HCA=mlx5\nNCCL_DEBUG=INFO\n#NCCL_NET=Socket\n"},
        f"warn fabric.nccl-conf spark2: /etc/nccl.conf sets NCCL_IB_HCA; limit: {NCCL_LIMIT}; remedy: remove these"
        " lines from /etc/nccl.conf",
    ),
    "NCCL's own file sets what is forbidden": (
        {(*FABRIC, "nccl_conf"): "NCCL_IB_GID_INDEX=3\nNCCL_IB_DISABLE=1\n"},
        f"warn fabric.nccl-conf spark2: /etc/nccl.conf sets NCCL_IB_DISABLE, NCCL_IB_GID_INDEX; limit: {NCCL_LIMIT};"
        " remedy: remove these lines from /etc/nccl.conf",
    ),
    "NCCL's own file is of no matter": ({(*FABRIC, "nccl_conf"): "NCCL_DEBUG=INFO\nNCCL_IB_DISABLE=0\nno pair\n"},),
    "NCCL's own file cannot be read": (
        {(*FABRIC, "unreadable"): ["/etc/nccl.conf"]},
        f"warn fabric.nccl-conf spark2: /etc/nccl.conf cannot be read; limit: {NCCL_LIMIT}; remedy: read the facts as"
        " root",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_thing_is_wrong(case):
    changes, *lines = case
    assert findings(cluster(facts=changes)) == lines


def about(found, *ids):
    return [line for line in findings(found) if line.split()[1].removeprefix("fabric.") in ids]


def test_an_interface_that_is_down_has_no_carrier_to_tell():
    lines = about(cluster(facts=link("carrier", None) | link("speed", None)), "link")
    assert lines == [
        "refuse fabric.link spark2: enP2p1s0f0np0 is down; limit: a link of 200000 Mb/s; remedy:"
        f" {CABLE.format(NETDEV1)}"
    ]


@pytest.mark.parametrize("change", [link("carrier", None), link("addresses", [])], ids=["down", "no address yet"])
def test_who_cannot_ask_yet_is_not_blamed(change):
    unasked = {(*FABRIC, "macs"): {}, **change}
    lines = about(cluster(facts=unasked), "duplicate")
    assert lines == [
        "unknown fabric.duplicate spark2: nobody on enp1s0f0np0 was asked for 192.168.100.11; limit: spark2 alone;"
        " remedy: read the facts as root, with probe_wires"
    ]


def test_firmware_that_no_nic_tells_is_equal():
    untold = {(f"spark{n}", "fabric", "rdma", d, "firmware"): None for n in range(1, 5) for d in (DEVICE0, DEVICE1)}
    assert about(cluster(facts=untold), "same-firmware") == []


def test_one_rail_alone_may_have_a_strict_filter():
    planned = cluster()
    intents = {host: {"rails": intent.rails[:1]} for host, intent in planned.intents.items()}
    assert about(cluster(facts=link("rp_filter", 1, NETDEV0), intents=intents), "rp-filter") == []


def test_an_interface_that_is_not_there_is_left_to_other_checks():
    gone = {(*FABRIC, "netdevs", NETDEV1): GONE}
    assert about(cluster(facts=gone), "link", "pcie", "same-firmware", "rp-filter", "duplicate") == []
