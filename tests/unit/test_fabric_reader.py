"""Reading the network of a node, as trees of the shapes that are known from the field."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace

import pytest
from builders import DEVICE0, HARDWARE, NETDEV0, NETDEV1, netdev, rail_netdev, rails
from trees import CAGE0, CAGE1, LOCAL_GID, Port, addresses, machine, plug, write

from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_reader import (
    FabricReader,
    pci_link,
    routes_of,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.facts import default_routes, device_of, gid_rows
from ansible_collections.sparkwright.cluster.plugins.module_utils.gids import find_ipv4
from ansible_collections.sparkwright.cluster.plugins.module_utils.probes import Probes

LAN = {
    "ifindex": 2,
    "ifname": "enP7s7",
    "mtu": 1500,
    "operstate": "UP",
    "address": "4c:bb:47:00:00:01",
    "addr_info": [
        {"family": "inet6", "local": "2001:db8::11", "prefixlen": 64, "scope": "global"},
        {"family": "inet", "local": "10.0.0.11", "prefixlen": 24, "scope": "global"},
        {"family": "inet", "local": "10.0.0.12", "prefixlen": 24, "scope": "global"},
        {"family": "inet6", "local": "fe80::1", "prefixlen": 64, "scope": "link"},
    ],
}
DOWN = {"ifname": NETDEV0, "mtu": 1500, "operstate": "DOWN", "address": "4c:bb:47:2c:10:0a", "addr_info": []}
NODE = addresses(LAN, *(port.link for port in CAGE0))
ACTIVE = {"systemctl is-active systemd-networkd.service NetworkManager.service": "active\nactive\n"}


def read(root, answers=None, hardware="/nowhere", probes=None):
    return FabricReader(machine(root, answers, hardware)).read(probes or Probes())


# --- a healthy node -------------------------------------------------------------------------------------------------


def test_a_healthy_node_with_one_cable(tmp_path):
    plug(tmp_path, *CAGE0, *(replace(port, up=False, address="") for port in CAGE1))
    write(tmp_path, {f"proc/sys/net/ipv4/conf/{who}/rp_filter": "2\n" for who in ("all", NETDEV0, NETDEV1)})
    write(tmp_path, {f"run/systemd/netif/links/{n}": "ADMIN_STATE=configured\n" for n in (2, 3)})
    found = read(tmp_path, NODE | ACTIVE)
    for name, rail in zip((NETDEV0, NETDEV1), rails(0), strict=True):
        assert found["netdevs"][name] == rail_netdev(rail)
    assert {name: (device["netdev"], device["port"]["state"]) for name, device in found["rdma"].items()} == {
        "rocep1s0f0": (NETDEV0, "ACTIVE"),
        "roceP2p1s0f0": (NETDEV1, "ACTIVE"),
        "rocep1s0f1": ("enp1s0f1np1", "DOWN"),
        "roceP2p1s0f1": ("enP2p1s0f1np1", "DOWN"),
    }
    assert {device["firmware"] for device in found["rdma"].values()} == {"28.45.4028"}
    assert found["unreadable"] == []


def test_a_node_with_two_cables(tmp_path):
    ports = (*CAGE0, *CAGE1)
    plug(tmp_path, *ports)
    found = read(tmp_path, addresses(*(port.link for port in ports)))
    for port in ports:
        link = found["netdevs"][port.netdev]
        assert (link["phys_port_name"], link["pci"]["address"], link["speed"]) == (port.cage, port.pci, 200000)
        name, device = device_of(found, port.netdev)
        assert name == port.device
        assert find_ipv4(gid_rows(device["port"]), port.address).index == 3


def test_the_stand_in_hardware_of_the_lab_is_a_healthy_node(tmp_path):
    found = read(tmp_path, NODE, HARDWARE)
    assert sorted(found["rdma"]) == ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]
    for rail in rails(0):
        link, healthy = found["netdevs"][rail.netdev], rail_netdev(rail)
        for key in ("speed", "driver", "pci", "phys_port_name"):
            assert link[key] == healthy[key]
    name, device = device_of(found, NETDEV0)
    port = device["port"]
    assert (name, device["firmware"]) == (DEVICE0, "28.45.4028")
    assert (port["state"], port["phys_state"], port["link_layer"]) == ("ACTIVE", "LinkUp", "Ethernet")
    assert port["rate"] == "200 Gb/sec (4X HDR)"
    assert [row["index"] for row in port["gids"]] == [0, 1, 2, 3]
    assert find_ipv4(gid_rows(port), "192.168.100.10").index == 3
    assert found["rdma"]["rocep1s0f1"]["port"]["state"] == "DOWN"


# --- other shapes ---------------------------------------------------------------------------------------------------


def test_a_node_without_a_cable_may_have_no_rdma_device_at_all(tmp_path):
    assert read(tmp_path, addresses(LAN))["rdma"] == {}


def test_a_node_without_a_cable_may_have_four_devices_that_are_down(tmp_path):
    ports = [replace(port, up=False) for port in (*CAGE0, *CAGE1)]
    plug(tmp_path, *ports)
    found = read(tmp_path, addresses(*(port.link for port in ports)))
    assert {device["port"]["state"] for device in found["rdma"].values()} == {"DOWN"}
    assert {device["port"]["phys_state"] for device in found["rdma"].values()} == {"Disabled"}
    assert [row["index"] for device in found["rdma"].values() for row in device["port"]["gids"]] == [0, 1] * 4
    assert {(link["carrier"], link["speed"]) for link in found["netdevs"].values()} == {(False, None)}


def test_renamed_devices_are_found_by_the_kernels_own_links(tmp_path):
    renamed = [Port("eth2", "mlx5_0", "0000:01:00.0", "p0"), Port("eth3", "mlx5_1", "0002:01:00.0", "p0")]
    plug(tmp_path, *renamed)
    found = read(tmp_path, addresses(*(port.link for port in renamed)))
    assert {name: device["netdev"] for name, device in found["rdma"].items()} == {"mlx5_0": "eth2", "mlx5_1": "eth3"}
    assert [found["netdevs"][name]["pci"]["address"] for name in ("eth2", "eth3")] == ["0000:01:00.0", "0002:01:00.0"]


def test_half_of_the_lanes(tmp_path):
    plug(tmp_path, replace(CAGE0[1], lanes=2))
    pci = read(tmp_path, NODE)["netdevs"][NETDEV1]["pci"]
    assert pci == {"address": "0002:01:00.0", "speed": 32.0, "max_speed": 32.0, "width": 2, "max_width": 4}


def test_soft_roce_of_a_virtual_machine(tmp_path):
    """No `device` link, no firmware, no RoCE v1, and free slots that cannot be read."""
    port = "sys/class/infiniband/rxe0/ports/1"
    files = {
        "sys/class/infiniband/rxe0/parent": "eth1\n",
        f"{port}/state": "4: ACTIVE\n",
        f"{port}/gids/0": f"{LOCAL_GID}\n",
        f"{port}/gid_attrs/types/0": "RoCE v2\n",
        f"{port}/gid_attrs/ndevs/0": "eth1\n",
    }
    write(tmp_path, files)
    (tmp_path / port / "gids/1").mkdir()
    found = read(tmp_path, addresses({**LAN, "ifname": "eth1"}))
    device = found["rdma"]["rxe0"]
    assert (device["netdev"], device["firmware"], device["port"]["state"]) == ("eth1", None, "ACTIVE")
    assert [(row["index"], row["gid"], row["netdev"]) for row in device["port"]["gids"]] == [
        (0, LOCAL_GID, "eth1"),
        (1, "", ""),
    ]
    assert (found["netdevs"]["eth1"]["pci"], found["netdevs"]["eth1"]["driver"]) == (None, None)


@pytest.mark.parametrize(
    "files",
    [
        {"parent": "eth1\n"},
        {"ports/1/gids/0": f"{LOCAL_GID}\n", "ports/1/gid_attrs/ndevs/0": "eth1\n"},
        # The first row is a hole.
        {"ports/1/gids/0": "0:0:0:0:0:0:0:0\n", "ports/1/gids/5": "fe80::1\n", "ports/1/gid_attrs/ndevs/5": "eth1\n"},
    ],
)
def test_the_interface_of_a_device_without_a_device_link(tmp_path, files):
    write(tmp_path / "sys/class/infiniband/rxe0", files)
    assert read(tmp_path)["rdma"]["rxe0"]["netdev"] == "eth1"


def test_a_device_of_which_nothing_names_the_interface(tmp_path):
    write(tmp_path, {"sys/class/infiniband/rxe0/ports/1/state": "1: DOWN\n"})
    assert read(tmp_path)["rdma"]["rxe0"]["netdev"] is None


def test_holes_and_slots_that_cannot_be_read(tmp_path):
    tree = tmp_path / "hardware"
    shutil.copytree(HARDWARE, tree, symlinks=True)
    port = tree / "sys/class/infiniband" / DEVICE0 / "ports/1"
    (port / "gid_attrs/types/3").unlink()
    (port / "gids/7").unlink()
    (port / "gids/7").mkdir()
    (port / "gids/2").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    # Only numbers are slots.
    (port / "gids/.3").write_text("fe80::1\n")
    rows = {row["index"]: row for row in read(tmp_path, NODE, tree)["rdma"][DEVICE0]["port"]["gids"]}
    assert sorted(rows) == [0, 1, 3, 7]
    assert (rows[3]["type"], rows[7]["gid"]) == ("", "")


def test_a_node_without_anything(tmp_path):
    assert read(tmp_path) == {
        "netdevs": {},
        "rdma": {},
        "routes": [],
        "netplan": {},
        "profiles": {},
        "own_netplan": None,
        "nccl_env": None,
        "nccl_conf": None,
        "pings": {},
        "neighbours": {},
        "macs": {},
        "unreadable": [],
    }


def test_an_ordinary_user_reads_what_the_kernel_allows_and_names_the_rest(ordinary_user):
    root = plug(ordinary_user.root, *CAGE0)
    own, profile = "etc/netplan/60-sparkwright.yaml", "etc/NetworkManager/system-connections/fast.nmconnection"
    write(root, {own: "network: {}\n", profile: "[connection]\n", "etc/nccl.conf": "NCCL_DEBUG=INFO\n"})
    for name in (own, profile):
        (root / name).chmod(0)
    with ordinary_user:
        found = read(root, NODE)
    assert found["netdevs"][NETDEV0]["pci"]["width"] == 4
    assert found["rdma"][DEVICE0]["port"]["state"] == "ACTIVE"
    assert (found["netplan"], found["profiles"], found["own_netplan"]) == ({}, {}, None)
    assert found["nccl_conf"] == "NCCL_DEBUG=INFO\n"
    assert found["unreadable"] == [f"/{profile}", f"/{own}"]


# --- interfaces -----------------------------------------------------------------------------------------------------


def test_an_interface_that_is_down_and_has_no_files(tmp_path):
    assert read(tmp_path, addresses(DOWN))["netdevs"][NETDEV0] == netdev(
        speed=None, operstate="DOWN", carrier=None, link_local=None, rp_filter=None, manager=None
    )


def test_addresses_are_those_of_ipv4_and_the_link_local_one(tmp_path):
    found = read(tmp_path, NODE)["netdevs"]["enP7s7"]
    assert found["addresses"] == ["10.0.0.11/24", "10.0.0.12/24"]
    assert found["link_local"] == "fe80::1"


def test_the_command_itself_shows_interfaces_without_an_address():
    """A pair of links in a network namespace of their own, neither with an address."""
    script = "ip link add name left type veth peer name right && ip -j addr"
    done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine makes no network namespace: {done.stderr.strip()}")
    assert {link["ifname"] for link in json.loads(done.stdout)} >= {"left", "right"}


@pytest.mark.parametrize(
    ("everywhere", "here", "effective"),
    [("0", "0", 0), ("0", "1", 1), ("1", "0", 1), ("2", "1", 2), ("1", "2", 2), (None, "1", None), ("1", None, None)],
)
def test_the_reverse_path_filter_in_effect(tmp_path, everywhere, here, effective):
    values = {"all": everywhere, NETDEV0: here}
    write(tmp_path, {f"proc/sys/net/ipv4/conf/{who}/rp_filter": f"{v}\n" for who, v in values.items() if v})
    assert read(tmp_path, NODE)["netdevs"][NETDEV0]["rp_filter"] == effective


@pytest.mark.parametrize(
    ("states", "manager"),
    [
        ("active\nactive\n", "networkd"),
        ("inactive\nactive\n", "NetworkManager"),
        ("inactive\ninactive\n", None),
        ((3, "active\ninactive\n", ""), "networkd"),
        ((127, "", "systemctl is not installed"), None),
    ],
)
def test_who_manages_an_interface_is_a_daemon_that_runs(tmp_path, states, manager):
    """Both left a file that claims the interface: files outlive their daemons."""
    files = {"run/systemd/netif/links/2": "ADMIN_STATE=configured\n", "run/NetworkManager/devices/2": "managed=true\n"}
    answers = addresses(LAN) | {"systemctl is-active systemd-networkd.service NetworkManager.service": states}
    assert read(write(tmp_path, files), answers)["netdevs"]["enP7s7"]["manager"] == manager


@pytest.mark.parametrize(
    ("texts", "link"),
    [
        (("32.0 GT/s PCIe", "32.0 GT/s PCIe", "4", "4"), (32.0, 32.0, 4, 4)),
        (("8.0 GT/s PCIe", "32.0 GT/s PCIe", "2", "4"), (8.0, 32.0, 2, 4)),
        (("2.5 GT/s", "5 GT/s", "1", "16"), (2.5, 5.0, 1, 16)),
        (("Unknown", "Unknown", "0", "0"), None),
        (("Unknown speed", "32.0 GT/s PCIe", "4", "4"), None),
        (("32.0 GT/s PCIe", "32.0 GT/s PCIe", "", "4"), None),
        (("", "", "", ""), None),
    ],
)
def test_a_pcie_link(texts, link):
    found = pci_link("0000:01:00.0", *texts)
    assert (found and (found["speed"], found["max_speed"], found["width"], found["max_width"])) == link


# --- routes and configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"dst": "default", "gateway": "10.0.0.1", "dev": "enP7s7"}, [("default", "enP7s7", "10.0.0.1")]),
        ({"dst": "10.0.0.0/24", "dev": "enP7s7", "scope": "link"}, [("10.0.0.0/24", "enP7s7", None)]),
        (
            {"dst": "default", "nexthops": [{"gateway": "10.0.0.1", "dev": "a"}, {"gateway": "10.0.1.1", "dev": "b"}]},
            [("default", "a", "10.0.0.1"), ("default", "b", "10.0.1.1")],
        ),
        ({"type": "unreachable", "dst": "192.0.2.0/24"}, []),
    ],
)
def test_a_route(row, found):
    assert [(route["dst"], route["dev"], route["gateway"]) for route in routes_of([row])] == found


def test_default_routes_are_named_once(tmp_path):
    rows = [{"dst": dst, "dev": "enP7s7", "gateway": "10.0.0.1"} for dst in ("default", "default", "192.0.2.0/24")]
    assert default_routes(read(tmp_path, {"ip -j -4 route": json.dumps(rows)})) == ["enP7s7"]


def test_netplan_files_of_all_folders(tmp_path):
    files = {
        "etc/netplan/60-sparkwright.yaml": f"network:\n  ethernets:\n    {NETDEV0}:\n",
        "etc/netplan/70-cx7.yaml": "network:\n  ethernets:\n    cx7:\n      match:\n        driver: mlx5*\n",
        "run/netplan/90-NM.yaml": "network:\n  ethernets:\n    enP7s7: {}\n",
        "etc/netplan/README": NETDEV0,
    }
    found = read(plug(write(tmp_path, files), *CAGE0), NODE)
    assert found["netplan"] == {
        "/etc/netplan/60-sparkwright.yaml": [NETDEV0],
        "/etc/netplan/70-cx7.yaml": [NETDEV1, NETDEV0],
        "/run/netplan/90-NM.yaml": ["enP7s7"],
    }
    assert found["own_netplan"] == files["etc/netplan/60-sparkwright.yaml"]


def test_profiles_of_network_manager_that_a_person_made(tmp_path):
    connections = "NetworkManager/system-connections"
    bound = f"[connection]\ninterface-name={NETDEV0}\n"
    files = {
        f"etc/{connections}/fast.nmconnection": bound,
        f"etc/{connections}/old": "[ethernet]\nmac-address=4C:BB:47:00:00:01\n",
        f"run/{connections}/Wired connection 1.nmconnection": f"{bound}[.nmmeta]\nnm-generated=true\n",
        f"run/{connections}/by hand.nmconnection": bound,
        f"run/{connections}/netplan-{NETDEV0}.nmconnection": bound,
        f"usr/lib/{connections}/vendor.nmconnection": "[match]\ninterface-name=enP2*;\n",
    }
    assert read(write(tmp_path, files), NODE)["profiles"] == {
        f"/etc/{connections}/fast.nmconnection": [NETDEV0],
        f"/etc/{connections}/old": ["enP7s7"],
        f"/run/{connections}/by hand.nmconnection": [NETDEV0],
        f"/usr/lib/{connections}/vendor.nmconnection": [NETDEV1],
    }


def test_what_nccl_is_told(tmp_path):
    write(tmp_path, {"etc/nccl.conf": "NCCL_DEBUG=INFO\n", "etc/sparkwright/nccl.env": "NCCL_NET=IB\n"})
    found = read(tmp_path)
    assert (found["nccl_conf"], found["nccl_env"]) == ("NCCL_DEBUG=INFO\n", "NCCL_NET=IB\n")


def test_probes_are_sent_and_answered(tmp_path):
    answers = NODE | {"ping -n -q -M do -s 8972": "", "ping -6": f"64 bytes from fe80::2%{NETDEV0}: icmp_seq=1\n"}
    asked = Probes([{"address": "192.168.100.10", "peer": "192.168.100.11", "size": 8972}], neighbours=True)
    found = read(plug(tmp_path, *CAGE0), answers, probes=asked)
    assert found["pings"] == {"192.168.100.10 192.168.100.11": True}
    assert found["neighbours"] == {NETDEV0: ["fe80::2"], NETDEV1: ["fe80::2"]}
