"""The NCCL environment of a node, from its own devices; what NCCL makes of a value; the file that carries it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from builders import DEVICE0, DEVICE1, GONE, NETDEV0, NETDEV1, cluster, intent, netdev, rail_end, rails
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.sparkwright.cluster.plugins.module_utils.nccl_env import (
    NcclEnvError,
    env_file,
    forbidden,
    nccl_env,
    nccl_select,
    nccl_select_sockets,
    parse_env_file,
    pinned_gid,
    ring_variables,
)

INTENT = intent(1)


def fabric(**changes):
    """The fabric of spark2; a change names a RDMA device and its netdev, or GONE."""
    paths = {("spark2", "fabric", "rdma", d, "netdev"): n for d, n in changes.items() if n is not GONE}
    gone = {("spark2", "fabric", "rdma", device): GONE for device, value in changes.items() if value is GONE}
    return cluster(facts={**paths, **gone}).facts["spark2"]["fabric"]


FABRIC = fabric()


def ring(**changes):
    """spark2 in a ring of four, on one rail: a link to spark1 and one to spark3."""
    ends = (
        rail_end("rail0.link0", NETDEV0, 1, {"spark1": "10.1.0.0", "spark2": "10.1.0.1"}, 31),
        rail_end("rail0.link1", NETDEV1, 1, {"spark2": "10.1.0.2", "spark3": "10.1.0.3"}, 31),
    )
    sockets = {"socket_netdev": "enP7s7", "socket_address": "10.0.0.12"}
    return replace(intent(1), topology="ring", rails=ends, **{**sockets, **changes})


# --- what is written ------------------------------------------------------------------------------------------------


def test_two_rails():
    assert nccl_env(INTENT, fabric()) == {
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
    one = rails(1)[1:]
    found = nccl_env(intent(1, rails=one), fabric())
    assert (found["NCCL_IB_HCA"], found["VLLM_HOST_IP"]) == (f"={DEVICE1}", "192.168.101.11")


def test_socket_interfaces_are_named_exactly_only_where_a_longer_name_begins_like_one():
    found = fabric()
    found["netdevs"][f"{NETDEV0}.100"] = netdev("10.1.1.1/24")
    assert nccl_env(INTENT, found)["NCCL_SOCKET_IFNAME"] == f"={NETDEV0},{NETDEV1}"


def test_in_a_ring_what_speaks_tcp_uses_the_management_network():
    found = nccl_env(ring(), fabric())
    assert found["NCCL_SOCKET_IFNAME"] == "enP7s7"
    assert {found[name] for name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include")} == {
        "enP7s7"
    }
    assert found["VLLM_HOST_IP"] == "10.0.0.12"
    assert found["NCCL_IB_HCA"] == f"={DEVICE0},{DEVICE1}"


def test_in_a_ring_nccl_is_told_how_small_a_link_is():
    found = nccl_env(ring(), fabric())
    assert found.items() >= ring_variables(31).items()
    assert found["NCCL_IB_SUBNET_PREFIX_LEN"] == "31"


def test_the_variables_of_a_ring_are_for_rings_only():
    assert not nccl_env(INTENT, fabric()).keys() & ring_variables(31).keys()
    assert not nccl_env(replace(INTENT, topology="direct"), fabric()).keys() & ring_variables(31).keys()


def test_devices_are_taken_by_their_interface_and_in_the_order_of_the_rails():
    renamed = fabric(**{DEVICE0: NETDEV1, DEVICE1: NETDEV0})
    assert nccl_env(INTENT, renamed)["NCCL_IB_HCA"] == f"={DEVICE1},{DEVICE0}"


def test_no_gid_index_is_ever_written():
    assert not any("GID_INDEX" in name for name in nccl_env(INTENT, fabric()))


def test_the_profile_comes_last():
    found = nccl_env(intent(1, nccl_env={"NCCL_CROSS_NIC": "1", "NCCL_IB_HCA": "=mlx5_0"}), fabric())
    assert list(found)[-1] == "NCCL_CROSS_NIC"
    assert found["NCCL_IB_HCA"] == "=mlx5_0"


@pytest.mark.parametrize(
    ("subject", "changes", "line"),
    [
        (
            INTENT,
            {DEVICE1: GONE},
            f"{NETDEV1} has no RDMA device; limit: one for each rail; remedy: check `rdma link show`",
        ),
        (
            intent(1, rails=(rails(1)[0], replace(rails(1)[1], netdev=""))),
            {},
            "the interface of rail1, which was not found, has no RDMA device; limit: one for each rail;"
            " remedy: check `rdma link show`",
        ),
        (ring(socket_netdev=""), {}, "no interface has 10.0.0.12; limit: one for what speaks TCP"),
    ],
)
def test_a_rail_without_interface_or_device_is_refused(subject, changes, line):
    with pytest.raises(NcclEnvError) as error:
        nccl_env(subject, fabric(**changes))
    assert str(error.value) == line


# --- what NCCL selects ----------------------------------------------------------------------------------------------

FOUR = ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")


def fabric_of(*devices, down=()):
    """A fabric with these RDMA devices, each on an interface of its own; those that are down have no ACTIVE port."""
    port = FABRIC["rdma"][DEVICE0]["port"]
    rdma = {
        name: {"netdev": f"eth{n}", "port": {**port, "state": "DOWN" if name in down else "ACTIVE"}}
        for n, name in enumerate(devices)
    }
    links = {f"eth{n}": netdev(f"192.168.{n}.1/24") for n in range(len(devices))}
    return {**FABRIC, "rdma": rdma, "netdevs": links}


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        ("=rocep1s0f0,roceP2p1s0f0", ["roceP2p1s0f0", "rocep1s0f0"]),
        ("=rocep1s0f0", ["rocep1s0f0"]),
        ("rocep1s0f0", ["rocep1s0f0"]),
        ("rocep", ["rocep1s0f0", "rocep1s0f1"]),
        ("roce", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]),
        ("=roce", []),
        ("=rocep1s0f", []),
        ("^rocep", ["roceP2p1s0f0", "roceP2p1s0f1"]),
        ("^=rocep1s0f0", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f1"]),
        ("^=rocep", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]),
        # An equal sign before the ^ makes it a part of the name.
        ("=^rocep1s0f0", []),
        ("==rocep1s0f0", []),
        ("=rocep1s0f0:1", ["rocep1s0f0"]),
        ("=rocep1s0f0:2", []),
        ("=rocep1s0f0:1:0:3", ["rocep1s0f0"]),
        ("=rocep1s0f0:-1", ["rocep1s0f0"]),
        ("=rocep1s0f0:one", []),
        ("=rocep1s0f0: 1x", ["rocep1s0f0"]),
        ("^rocep1s0f0:2", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]),
        # Blanks are a part of a name, entries without a name are none.
        ("=rocep1s0f0, rocep1s0f1", ["rocep1s0f0"]),
        ("=,rocep1s0f0,,", ["rocep1s0f0"]),
        ("=:1,rocep1s0f1", ["rocep1s0f1"]),
        # No entry at all takes everything, and so a lone ^ leaves nothing.
        ("", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]),
        ("=", ["roceP2p1s0f0", "roceP2p1s0f1", "rocep1s0f0", "rocep1s0f1"]),
        ("^", []),
        ("mlx5", []),
    ],
)
def test_the_grammar_of_devices(value, selected):
    assert nccl_select(value, fabric_of(*FOUR)) == selected


def test_only_active_ports_count():
    assert nccl_select("=rocep1s0f0,rocep1s0f1", fabric_of(*FOUR, down=("rocep1s0f1",))) == ["rocep1s0f0"]
    assert nccl_select("^=rocep1s0f0", fabric_of(*FOUR, down=FOUR)) == []


def test_a_name_that_is_the_beginning_of_another_is_a_trap_without_an_equal_sign():
    both = fabric_of("rocep1s0f1", "rocep1s0f10")
    assert nccl_select("rocep1s0f1", both) == ["rocep1s0f1", "rocep1s0f10"]
    assert nccl_select("=rocep1s0f1", both) == ["rocep1s0f1"]


def test_nccl_takes_at_most_32_of_a_list_and_of_devices():
    names = [f"mlx5_{n:02}" for n in range(40)]
    assert nccl_select("=" + ",".join(names), fabric_of(*names)) == names[:32]
    assert nccl_select("mlx5", fabric_of(*names)) == names[:32]
    assert nccl_select("=" + ",".join([*names[:32], "rocep1s0f0"]), fabric_of("rocep1s0f0")) == []


def test_an_empty_port_is_read_in_two_ways():
    with pytest.raises(NcclEnvError) as error:
        nccl_select("=rocep1s0f0:", fabric_of(*FOUR))
    assert str(error.value) == (
        "rocep1s0f0: has an empty port; limit: name or name:port, as NCCL's releases differ on it"
    )


LINKS = {
    "lo": netdev("127.0.0.1/8", link_local=None),
    "enP7s7": netdev("10.0.0.12/24"),
    "enp1s0f0np0": netdev("192.168.100.11/24"),
    "enp1s0f0np0.7": netdev("10.7.0.1/24"),
    "enp1s0f1np1": netdev(carrier=False),
    "docker0": netdev("172.17.0.1/16", link_local=None),
    "veth1": netdev(link_local=None),
    "br0": netdev(link_local="fe80::1"),
}


@pytest.mark.parametrize(
    ("value", "selected"),
    [
        ("=enp1s0f0np0", ["enp1s0f0np0"]),
        ("enp1s0f0np0", ["enp1s0f0np0", "enp1s0f0np0.7"]),
        ("=enp1s0f0np0,enP7s7", ["enP7s7", "enp1s0f0np0"]),
        ("en", ["enP7s7", "enp1s0f0np0", "enp1s0f0np0.7"]),
        ("^docker,lo", ["enP7s7", "enp1s0f0np0", "enp1s0f0np0.7", "br0"]),
        ("^=enp1s0f0np0,lo,docker0,br0", ["enP7s7", "enp1s0f0np0.7"]),
        ("=enp1s0f1np1", []),
        ("=veth1", []),
        ("=enP7s7:5", ["enP7s7"]),
    ],
)
def test_the_grammar_of_interfaces(value, selected):
    assert nccl_select_sockets(value, {**FABRIC, "netdevs": LINKS}) == selected


@pytest.mark.parametrize("value", ["", "e", "^", "="])
def test_a_value_of_one_character_is_ignored_by_nccl(value):
    with pytest.raises(NcclEnvError, match="NCCL ignores"):
        nccl_select_sockets(value, {**FABRIC, "netdevs": LINKS})


# What the kernel takes for the name of a RDMA device or of an interface: no slash, no blank, no NUL.
NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=["C", "Z"]), min_size=1, max_size=15)


@given(
    st.lists(NAMES, min_size=2, max_size=8, unique=True),
    st.lists(NAMES, min_size=2, max_size=8, unique=True),
    st.integers(1, 2),
)
def test_whatever_the_names_nccl_uses_the_devices_of_the_rails_and_no_others(devices, netdevs, count):
    """The names of the first ones are those of the rails; a name that cannot be said is refused."""
    pairs = list(zip(devices, netdevs, strict=False))
    port = FABRIC["rdma"][DEVICE0]["port"]
    found = {
        **FABRIC,
        "rdma": {device: {"netdev": name, "port": port} for device, name in pairs},
        "netdevs": {name: netdev(f"192.168.{100 + n}.11/24") for n, (_, name) in enumerate(pairs)},
    }
    ends = tuple(replace(end, netdev=name) for end, (_, name) in zip(rails(1)[:count], pairs, strict=False))
    used = pairs[:count]
    try:
        written = env_file(nccl_env(intent(1, rails=ends), found))
    except NcclEnvError:
        assert any(re.search("[,:]", name) for pair in used for name in pair)
        return
    carried = dict(docker_reads(written.encode()))
    assert set(nccl_select(carried["NCCL_IB_HCA"], found)) == {device for device, _ in used}
    assert set(nccl_select_sockets(carried["NCCL_SOCKET_IFNAME"], found)) == {name for _, name in used}


# --- the file -------------------------------------------------------------------------------------------------------


def docker_reads(content: bytes) -> list[tuple[str, str]]:
    """What `docker run --env-file` makes of a file, in the strictest of its releases; it fails like Docker."""
    found = []
    for number, raw in enumerate(content.split(b"\n")):
        assert len(raw) < 64 * 1024, "a line is too long"
        text = raw.removesuffix(b"\r").decode("utf-8")
        line = (text.removeprefix("\ufeff") if number == 0 else text).lstrip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        assert name, "no variable name"
        assert not re.search(r"\s", name), "a variable contains whitespace"
        assert equals, "the value would come from Docker's own environment"
        if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
            value = value[1:-1]
        found.append((name, value))
    return found


def test_both_equal_signs_survive_the_file():
    text = env_file(nccl_env(INTENT, fabric()))
    assert f"NCCL_IB_HCA=={DEVICE0},{DEVICE1}\n" in text
    assert docker_reads(text.encode()) == list(nccl_env(INTENT, fabric()).items())


def test_the_file_is_literal():
    assert env_file({"A": '{"x": "$HOME"}', "B": ""}) == 'A={"x": "$HOME"}\nB=\n'


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("A", "two\nlines", "its value has a line break or a NUL"),
        ("A", "nothing\0more", "its value has a line break or a NUL"),
        ("A", "ends\r", "its value has a line break or a NUL"),
        ("A=B", "1", "its name has a blank, an equal sign or a control character"),
        (" A", "1", "its name has a blank, an equal sign or a control character"),
        ("A\t", "1", "its name has a blank, an equal sign or a control character"),
        ("\ufeffA", "1", "its name has a blank, an equal sign or a control character"),
        ("#A", "1", "its name begins with #, which makes a comment"),
        ("A", '"quoted"', "its value is in quotes"),
        ("A", "''", "its value is in quotes"),
        ("A", "\udce4", "it is no valid UTF-8"),
        ("A", "x" * 65_534, "its line is longer than 65535 bytes"),
        ("A", "\u20ac" * 30_000, "its line is longer than 65535 bytes"),
    ],
)
def test_what_a_file_cannot_carry_is_refused(name, value, fault):
    with pytest.raises(ValueError, match="cannot be written to an environment file") as error:
        env_file({name: value})
    assert str(error.value) == f"{name} cannot be written to an environment file: {fault}"


def test_a_variable_without_a_name_is_refused():
    with pytest.raises(ValueError, match="a variable cannot be written to an environment file: its name is empty"):
        env_file({"": "1"})


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=12) | st.sampled_from(['"a"', " a ", "#", "a\r", "a=b"])))
def test_what_is_written_is_what_docker_reads(environment):
    try:
        text = env_file(environment)
    except ValueError:
        return
    assert docker_reads(text.encode()) == list(environment.items())


@given(st.dictionaries(st.from_regex("[A-Z_]{1,6}", fullmatch=True), st.text(max_size=12)))
def test_a_file_is_read_back(environment):
    try:
        text = env_file(environment)
    except ValueError:
        return
    assert parse_env_file(text) == environment


# --- what a profile may set -----------------------------------------------------------------------------------------

DISABLED = (
    "is set; limit: 0 or unset, RoCE runs through NCCL's IB code, and without it the fabric drops to TCP",
    "remove NCCL_IB_DISABLE",
)
OTHER_NET = (
    "is set; limit: IB, with any other a broken path of the fabric drops to TCP or hangs",
    "remove NCCL_NET",
)


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"NCCL_IB_DISABLE": "1"}, (f"NCCL_IB_DISABLE=1 {DISABLED[0]}", DISABLED[1])),
        ({"NCCL_IB_DISABLE": 1}, (f"NCCL_IB_DISABLE=1 {DISABLED[0]}", DISABLED[1])),
        ({"NCCL_IB_DISABLE": "0x2"}, (f"NCCL_IB_DISABLE=0x2 {DISABLED[0]}", DISABLED[1])),
        ({"NCCL_NET": "Socket"}, (f"NCCL_NET=Socket {OTHER_NET[0]}", OTHER_NET[1])),
    ],
)
@pytest.mark.parametrize("topology", ["switch", "direct", "ring"])
def test_a_harmful_variable_is_refused_everywhere(variables, found, topology):
    assert forbidden(variables, topology, 31) == [found]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"NCCL_IB_DISABLE": 0},
        {"NCCL_IB_DISABLE": "00"},
        {"NCCL_IB_DISABLE": "no"},
        {"NCCL_NET": "ib"},
        {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_HCA": "mlx5", "NCCL_SOCKET_IFNAME": "en"},
        ring_variables(31),
    ],
    ids=str,
)
def test_other_variables_are_not(variables):
    assert forbidden(variables, "ring", 31) == []


@pytest.mark.parametrize("name", ring_variables(30))
def test_what_a_ring_needs_cannot_be_changed_there(name):
    needed = ring_variables(30)[name]
    limit = f"limit: {needed} in a ring, where a node's ports lead to different nodes"
    assert forbidden({name: "other"}, "ring", 30) == [(f"{name}=other is set; {limit}", f"remove {name}")]
    assert forbidden({name: "other"}, "switch", 30) == []


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (None, None),
        ("", None),
        ("-1", None),
        ("3", 3),
        ("0", 0),
        ("0x10", 16),
        ("010", 8),
        (" 5 rows", 5),
        ("three", 0),
    ],
)
def test_a_pinned_gid_index_is_read_as_nccl_reads_numbers(value, index):
    assert pinned_gid({} if value is None else {"NCCL_IB_GID_INDEX": value}) == index
