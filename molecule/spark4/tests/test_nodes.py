"""What the nodes are after site.yml, asked of the nodes and not of the play."""

from __future__ import annotations

import json

import pytest

RAILS = (("enp1s0f0np0", "192.168.100"), ("enP2p1s0f0np0", "192.168.101"))
LAUNCH = "/etc/sparkwright/launch.json"
SYSCTL = "/etc/sysctl.d/60-sparkwright-fabric.conf"


def rank_of(host) -> int:
    return int(host.check_output("hostname").removeprefix("spark")) - 1


@pytest.mark.parametrize(("netdev", "subnet"), RAILS)
def test_each_rail_has_its_address_and_mtu(host, netdev, subnet):
    (link,) = json.loads(host.check_output("ip -j -4 addr show dev %s", netdev))
    assert [address["local"] for address in link["addr_info"]] == [f"{subnet}.{10 + rank_of(host)}"]
    assert link["mtu"] == 9000


@pytest.mark.parametrize(("netdev", "subnet"), RAILS)
def test_full_frames_reach_every_peer_on_each_rail(host, netdev, subnet):
    for number in set(range(4)) - {rank_of(host)}:
        host.run_expect([0], f"ping -c1 -W2 -M do -s 8972 -I {netdev} {subnet}.{10 + number}")


def test_netplan_is_readable_by_root_alone(host):
    file = host.file("/etc/netplan/60-sparkwright.yaml")
    assert (file.mode, file.user) == (0o600, "root")


def test_the_nccl_environment_names_the_devices_of_this_node(host):
    lines = host.file("/etc/sparkwright/nccl.env").content_string.splitlines()
    assert "NCCL_IB_HCA==rocep1s0f0,roceP2p1s0f0" in lines
    assert f"VLLM_HOST_IP=192.168.100.{10 + rank_of(host)}" in lines
    assert "GLOO_SOCKET_IFNAME=enp1s0f0np0" in lines
    assert not [line for line in lines if line.startswith(("NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE"))]


@pytest.mark.parametrize(("netdev", "subnet"), RAILS)
def test_no_reverse_path_filter_of_a_rail_is_strict(host, netdev, subnet):
    assert f"net/ipv4/conf/{netdev}/rp_filter = 2\n" in host.file(SYSCTL).content_string
    values = [host.file(f"/proc/sys/net/ipv4/conf/{who}/rp_filter").content_string for who in ("all", netdev)]
    assert max(map(int, values)) != 1


def test_docker_kept_the_keys_it_had_and_got_ours(host):
    config = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert config["log-opts"] == {"max-size": "100m", "max-file": "3"}
    assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "json-file"


def test_the_rank_runs_in_an_unprivileged_container(host):
    assert host.service("sparkwright-engine").is_running
    assert host.service("sparkwright-engine").is_enabled
    (container,) = json.loads(host.check_output("docker inspect sparkwright-engine"))
    assert container["State"]["Running"]
    assert container["HostConfig"]["Privileged"] is False
    assert container["HostConfig"]["NetworkMode"] == "host"
    mounts = {mount["Destination"]: mount["RW"] for mount in container["Mounts"]}
    assert mounts["/models"] is False
    assert container["Config"]["Labels"]["sparkwright.rank"] == str(rank_of(host))


def test_the_command_line_of_the_rank_is_the_planned_one(host):
    argv = json.loads(host.file(LAUNCH).content_string)["argv"]
    (container,) = json.loads(host.check_output("docker inspect sparkwright-engine"))
    engine = argv[argv.index("vllm") :]
    assert container["Config"]["Cmd"] == engine
    assert engine[engine.index("--node-rank") + 1] == str(rank_of(host))
    assert engine[engine.index("--master-addr") + 1] == "192.168.100.10"
    assert ("--headless" in engine) is (rank_of(host) > 0)


def test_only_the_head_answers_and_only_on_its_management_address(host):
    listening = host.check_output("ss -H -l -t -n sport = :8000").split()
    assert ("10.77.0.11:8000" in listening) is (rank_of(host) == 0)
    assert "0.0.0.0:8000" not in listening


def test_the_four_ranks_meet_on_the_rail(host):
    # The store of the rendezvous listens on IPv6 too, so its connections show mapped addresses.
    connections = host.check_output("ss -H -t -n state established").replace("[::ffff:", "").replace("]", "")
    assert "192.168.100.10:29501" in connections.split()


def test_the_start_up_check_of_the_node_finds_nothing_wrong(host):
    command = "PYTHONPATH=/usr/local/lib/sparkwright python3 -B -m sparkwright.startup check"
    assert host.check_output(command) == ""
