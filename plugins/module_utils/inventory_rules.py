"""The rules of an inventory, checked as plain data before any host is contacted.

It runs on the controller only and reads nothing. Variables that belong to a role are checked against the role's
meta/argument_specs.yml, because Ansible does not look for misspelt names there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address
from typing import Any

from .address_plan import NODES, RING, AddressPlan, AddressPlanError, Cabling, make_plan, parse_rails
from .mistakes import ALL_NODES, Mistake
from .nccl_env import forbidden
from .option_values import Finding, Spec, did_you_mean, is_int, option_findings, shown
from .profile_rules import nodes_text, shape_findings
from .weights_source import source_findings

GROUP = "sparks"
PROJECT = "sparkwright"
RANK = "sparkwright_rank"
PROFILE = "sparkwright_profile"

# Two Sparks make a cluster; the largest known weights (465 GB) need eight.
NODE_LIMITS = (2, 8)

# What the address plan cannot do without, whatever else the specification of the role says about it.
PLAN_INPUTS: Mapping[str, Spec] = {
    "fabric_rails": {"type": "list", "required": True},
    "fabric_mtu": {"type": "int", "required": True},
    "fabric_host_offset": {"type": "int", "required": True},
    "fabric_topology": {"type": "str", "required": True, "choices": list(NODES)},
    "fabric_link_prefix": {"type": "int", "required": True, "choices": [30, 31]},
}

# The networks of the head on which its API can listen.
API_NETWORKS = ("management", "fabric")
# A key that an environment file and a header carry as it is, and that nobody guesses.
API_KEY = re.compile(r"[!#-&(-~][!-~]{14,}[!#-&(-~]")

# The cluster is one machine: these describe the whole of it, so each node must say the same.
SHARING = ("share", "nfs_server", "nfs_export", "nfs_proto", "nfs_rails", "nfs_connections", "nfs_read_ahead_kb")
SAME_ON_ALL = (
    PROFILE,
    *PLAN_INPUTS,
    "engine_image_build",
    "engine_image_distribution",
    "engine_image_registry_port",
    "host_tuning_swap",
    "host_tuning_swap_gib",
    *(f"model_store_{name}" for name in SHARING),
    "os_update_canary",
)
# What brings weights to the nodes that hold data of their own.
BRINGERS = ("source", "fetch", "overlay", "prune")

# A directory that stands in an export, in a unit and in a command of the shell without a quote.
PLAIN_PATH = re.compile(r"(/[A-Za-z0-9_][A-Za-z0-9._-]*)+/?")
# How much the kernel takes (nfs(5)).
CONNECTIONS = (1, 16)


@dataclass(frozen=True)
class Unreadable:
    """Stands in for a variable whose template cannot be evaluated, or for a file that cannot be read."""

    reason: str


@dataclass(frozen=True)
class Inventory:
    """All that the rules look at, as plain data.

    Attributes:
        hostvars: {host: {name: value}}; a value may be Unreadable.
        groups: {group: hosts}.
        play_hosts: The hosts of the play, which a limit makes fewer than the group.
        role_specs: {role: {option: spec}} as in meta/argument_specs.yml.
        profile: The content of the first node's profile; None when there is no such file.
        profile_names: The profiles that exist.
        known_bad: The versions that this release knows to be bad, as roles/os_update/files/known_bad.yml lists them.
    """

    hostvars: Mapping[str, Mapping[str, object]]
    groups: Mapping[str, Sequence[str]]
    play_hosts: Sequence[str]
    role_specs: Mapping[str, Mapping[str, Spec]]
    profile: Mapping[str, object] | Unreadable | None
    profile_names: Sequence[str]
    known_bad: Sequence[Mapping[str, Any]] = ()

    @property
    def nodes(self) -> Sequence[str]:
        """The hosts of the group sparks, in the order of the inventory."""
        return self.groups.get(GROUP, ())

    @property
    def options(self) -> dict[str, Spec]:
        """The options of all roles by name."""
        return {name: spec for options in self.role_specs.values() for name, spec in options.items()}

    def value(self, host: str, name: str) -> object:
        """What a role will see: the variable of the host, or else the default of its specification."""
        value = self.hostvars[host].get(name)
        return self.options.get(name, {}).get("default") if value is None else value


def owned_prefixes(roles: Sequence[str]) -> tuple[str, ...]:
    """How the names of this project's variables begin."""
    return tuple(f"{owner}_" for owner in (PROJECT, *roles))


def find_mistakes(inventory: Inventory) -> list[Mistake]:
    """Every mistake in the inventory; what is equally wrong on all nodes is one mistake of "all nodes"."""
    if not inventory.nodes:
        return [_no_group(inventory)]
    mistakes = [mistake for rule in RULES for mistake in rule(inventory)]
    return list(_merge_hosts(mistakes, inventory.nodes))


def plan_of(inventory: Inventory) -> AddressPlan:
    """The address plan of an inventory whose ranks and PLAN_INPUTS have the right types. Raises AddressPlanError."""
    head = inventory.nodes[0]
    return make_plan(
        parse_rails(inventory.value(head, "fabric_rails")),
        _as_int(inventory.value(head, "fabric_mtu")),
        _as_int(inventory.value(head, "fabric_host_offset")),
        {host: _as_int(inventory.value(host, RANK)) for host in inventory.nodes},
        {host: _management(inventory, host) for host in inventory.nodes},
        Cabling(str(inventory.value(head, "fabric_topology")), _as_int(inventory.value(head, "fabric_link_prefix"))),
    )


def _merge_hosts(mistakes: Sequence[Mistake], nodes: Sequence[str]) -> Iterator[Mistake]:
    """Two rules may find the same mistake: it is kept once a host."""
    hosts_of: dict[Finding, list[str]] = {}
    for mistake in mistakes:
        hosts_of.setdefault((mistake.what, mistake.remedy), []).append(mistake.host)
    for (what, remedy), hosts in hosts_of.items():
        on_all = len(nodes) > 1 and set(hosts) >= set(nodes)
        for host in [ALL_NODES] if on_all else dict.fromkeys(hosts):
            yield Mistake(host, what, remedy)


def _as_int(value: object) -> int:
    """An int that an earlier rule has found to be one."""
    assert isinstance(value, int)
    return value


# --- who takes part -------------------------------------------------------------------------------------------------


def _no_group(inventory: Inventory) -> Mistake:
    state = "is empty" if GROUP in inventory.groups else "does not exist"
    others = [name for name in inventory.groups if name != GROUP]
    return Mistake(ALL_NODES, f"the group {GROUP} {state}{did_you_mean(GROUP, others)}", f"list the nodes in {GROUP}")


def _check_node_count(inventory: Inventory) -> Iterator[Mistake]:
    low, high = NODE_LIMITS
    count = len(inventory.nodes)
    if not low <= count <= high:
        what = f"the group {GROUP} has {nodes_text(count)}; limit: {low} to {high}"
        yield Mistake(ALL_NODES, what, f"list {low} to {high} nodes in {GROUP}")


def _check_whole_cluster(inventory: Inventory) -> Iterator[Mistake]:
    absent = [host for host in inventory.nodes if host not in inventory.play_hosts]
    if absent:
        what = f"the run leaves out {', '.join(absent)}; limit: all {nodes_text(len(inventory.nodes))} at once"
        yield Mistake(ALL_NODES, what, "run it without --limit")


def _check_management_addresses(inventory: Inventory) -> Iterator[Mistake]:
    owners: dict[str, str] = {}
    for host in inventory.nodes:
        address = _management(inventory, host)
        owner = owners.setdefault(address.casefold(), host)
        if owner != host:
            yield Mistake(host, f"has the ansible_host {address} of {owner}", "give each node its own address")


def _management(inventory: Inventory, host: str) -> str:
    """The address by which Ansible reaches a host, which is its name unless the inventory says otherwise."""
    address = inventory.hostvars[host].get("ansible_host")
    return address if isinstance(address, str) else host


# --- ranks ----------------------------------------------------------------------------------------------------------


def _check_ranks(inventory: Inventory) -> Iterator[Mistake]:
    values = {host: inventory.value(host, RANK) for host in inventory.nodes}
    wrong = [mistake for host, value in values.items() for mistake in _rank_mistakes(host, value)]
    yield from wrong
    if not wrong and all(is_int(value) for value in values.values()):
        yield from _rank_set_mistakes({host: _as_int(value) for host, value in values.items()})


def _rank_mistakes(host: str, value: object) -> Iterator[Mistake]:
    if value is None:
        yield Mistake(host, f"{RANK} is not set", "give each node its own rank: 0 for the head, then 1, 2, 3")
        return
    yield from _option_mistakes(host, RANK, value, {"type": "int"})
    if is_int(value) and _as_int(value) < 0:
        yield Mistake(host, f"{RANK} is {value}; limit: 0 or more", "count the ranks from 0, the head")


def _rank_set_mistakes(ranks: Mapping[str, int]) -> Iterator[Mistake]:
    repeated = list(_repeated_ranks(ranks))
    yield from repeated
    if 0 not in ranks.values():
        yield Mistake(ALL_NODES, f"no node has {RANK} 0: the head is missing", f"give the head {RANK}: 0")
    elif not repeated:
        yield from _rank_gaps(ranks)


def _repeated_ranks(ranks: Mapping[str, int]) -> Iterator[Mistake]:
    owners: dict[int, str] = {}
    for host, rank in ranks.items():
        owner = owners.setdefault(rank, host)
        if owner != host:
            yield Mistake(host, f"{RANK} {rank} is also the rank of {owner}", "give each node its own rank")


def _rank_gaps(ranks: Mapping[str, int]) -> Iterator[Mistake]:
    """Ranks are unique here, so there are as many beyond the last one as there are free ones below it."""
    count = len(ranks)
    free = sorted(set(range(count)) - set(ranks.values()))
    beyond = sorted((rank, host) for host, rank in ranks.items() if rank >= count)
    for vacant, (rank, host) in zip(free, beyond, strict=True):
        what = f"{RANK} is {rank} and nobody has {vacant}; limit: 0 to {count - 1} for {nodes_text(count)}"
        yield Mistake(host, what, f"write {RANK}: {vacant}")


# --- variables ------------------------------------------------------------------------------------------------------


def _check_unreadable(inventory: Inventory) -> Iterator[Mistake]:
    for host in inventory.nodes:
        for name, value in sorted(inventory.hostvars[host].items()):
            if isinstance(value, Unreadable):
                yield Mistake(host, f"{name} cannot be evaluated: {value.reason}", "define what it refers to")


def _check_known_names(inventory: Inventory) -> Iterator[Mistake]:
    prefixes = owned_prefixes(list(inventory.role_specs))
    known = sorted({*inventory.options, *SAME_ON_ALL, RANK})
    for host in inventory.nodes:
        for name in sorted(inventory.hostvars[host]):
            if name.startswith(prefixes) and name not in known:
                what = f"{name} is no variable of any role{did_you_mean(name, known)}"
                yield Mistake(host, what, "correct or remove it")


def _check_types(inventory: Inventory) -> Iterator[Mistake]:
    """Rank and profile have rules of their own."""
    for host in inventory.nodes:
        for name, spec in inventory.options.items():
            if name not in (RANK, PROFILE):
                yield from _option_mistakes(host, name, inventory.hostvars[host].get(name), spec)


def _option_mistakes(host: str, name: str, value: object, spec: Spec) -> Iterator[Mistake]:
    if not isinstance(value, Unreadable):
        yield from (Mistake(host, what, remedy) for what, remedy in option_findings(name, value, spec))


def _check_equality(inventory: Inventory) -> Iterator[Mistake]:
    for name in SAME_ON_ALL:
        values = {host: inventory.value(host, name) for host in inventory.nodes}
        hosts_of: dict[str, list[str]] = {}
        for host, value in values.items():
            hosts_of.setdefault(json.dumps(value, default=str, sort_keys=True), []).append(host)
        if len(hosts_of) > 1 and not any(isinstance(value, Unreadable) for value in values.values()):
            sides = [f"{shown(values[hosts[0]])} on {' and '.join(hosts)}" for hosts in hosts_of.values()]
            yield Mistake(ALL_NODES, f"{name} differs: {', '.join(sides)}", f"set it once, for the group {GROUP}")


# --- the fabric -----------------------------------------------------------------------------------------------------


def _check_addresses(inventory: Inventory) -> Iterator[Mistake]:
    """The plan is made only from sound inputs; of others, their own lines say what is wrong."""
    wrong = list(_plan_input_mistakes(inventory))
    yield from wrong
    if wrong or any(_check_ranks(inventory)) or _has_unreadable(inventory, (RANK, *PLAN_INPUTS)):
        return
    try:
        plan_of(inventory)
    except AddressPlanError as error:
        yield from error.mistakes


def _check_cage(inventory: Inventory) -> Iterator[Mistake]:
    """A ring uses both cages, each for one neighbour."""
    for host in inventory.nodes:
        cage = inventory.value(host, "fabric_cage")
        if cage and inventory.value(host, "fabric_topology") == RING:
            what = f"fabric_cage is {shown(cage)}; limit: empty in a ring, where each neighbour has a cage of its own"
            yield Mistake(host, what, "remove fabric_cage: the cage of each link is found by who answers on it")


def _plan_input_mistakes(inventory: Inventory) -> Iterator[Mistake]:
    for host in inventory.nodes:
        for name, least in PLAN_INPUTS.items():
            spec = {**inventory.options.get(name, {}), **least}
            yield from _option_mistakes(host, name, inventory.value(host, name), spec)


def _has_unreadable(inventory: Inventory, names: Sequence[str]) -> bool:
    return any(isinstance(inventory.value(host, name), Unreadable) for host in inventory.nodes for name in names)


# --- how the weights are shared -------------------------------------------------------------------------------------


def _check_share(inventory: Inventory) -> Iterator[Mistake]:
    if _has_unreadable(inventory, [*(f"model_store_{name}" for name in SHARING), "model_store_path"]):
        return
    head = inventory.nodes[0]
    value = partial(inventory.value, head)
    mode, server = value("model_store_share"), value("model_store_nfs_server")
    if server and mode != "nfs":
        what = f"model_store_nfs_server is {shown(server)} with model_store_share {mode}; limit: nfs"
        yield Mistake(ALL_NODES, what, "set model_store_share to nfs, or remove model_store_nfs_server")
    if mode in ("nfs", "copy"):
        yield from _shared_path_mistakes(inventory)
    if mode == "nfs":
        yield from _nfs_mistakes(inventory, server, value)


def _shared_path_mistakes(inventory: Inventory) -> Iterator[Mistake]:
    head = str(inventory.value(inventory.nodes[0], "model_store_path"))
    for host in inventory.nodes:
        path = str(inventory.value(host, "model_store_path"))
        if path != head:
            what = f"model_store_path is {path}, on {inventory.nodes[0]} it is {head}; limit: one directory for all"
            yield Mistake(host, what, f"set it once, for the group {GROUP}")
        elif not PLAIN_PATH.fullmatch(path):
            what = f"model_store_path is {path}; limit: an absolute path of letters, digits, dots, _ and - to be shared"
            yield Mistake(host, what, "choose a plainer path")


def _nfs_mistakes(inventory: Inventory, server: object, value: Callable[[str], object]) -> Iterator[Mistake]:
    rails, names = value("fabric_rails"), value("model_store_nfs_rails")
    known = [rail.get("name") for rail in rails if isinstance(rail, dict)] if isinstance(rails, list) else []
    for name in names if isinstance(names, list) else []:
        if name not in known:
            what = f"model_store_nfs_rails names {shown(name)}; limit: {', '.join(map(str, known))}"
            yield Mistake(ALL_NODES, what, "name rails of fabric_rails")
    low, high = CONNECTIONS
    connections = value("model_store_nfs_connections")
    if is_int(connections) and not low <= _as_int(connections) <= high:
        what = f"model_store_nfs_connections is {connections}; limit: {low} to {high}"
        yield Mistake(ALL_NODES, what, "write 4")
    bringers = [name for name in BRINGERS if server and value(f"model_store_{name}")]
    if bringers:
        names = " and ".join(f"model_store_{name}" for name in bringers)
        what = f"{names} would bring the weights, which all nodes mount from {shown(server)}; limit: one of both"
        yield Mistake(ALL_NODES, what, f"remove {names}, or model_store_nfs_server")
    # In a longer ring some nodes have no cable to the head.
    if value("fabric_topology") == RING and len(inventory.nodes) > 3 and not server:
        ring = f"a ring of {nodes_text(len(inventory.nodes))}"
        what = f"model_store_share is nfs in {ring}; limit: 3, where all are neighbours"
        yield Mistake(ALL_NODES, what, "set model_store_share to copy, which goes from neighbour to neighbour")


# --- the API --------------------------------------------------------------------------------------------------------


def _check_api(inventory: Inventory) -> Iterator[Mistake]:
    """Where the API listens, and its key, which no line may show."""
    head = next((host for host in inventory.nodes if inventory.value(host, RANK) == 0), None)
    if head is None:
        return
    address, key = inventory.value(head, "serving_api_address"), inventory.value(head, "serving_api_key")
    if isinstance(address, str) and address not in API_NETWORKS and not _is_ipv4(address):
        what = f"serving_api_address is {shown(address)}; limit: {', '.join(API_NETWORKS)}, or an IPv4 address"
        yield Mistake(head, what, "write management")
    if isinstance(key, str) and key and not API_KEY.fullmatch(key):
        what = f"serving_api_key has {len(key)} characters, not all of them usable; limit: 16 or more without blanks"
        yield Mistake(head, what, "make one with `openssl rand -hex 24`, and keep it in a vault")


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True


# --- the profile ----------------------------------------------------------------------------------------------------


def _check_profile(inventory: Inventory) -> Iterator[Mistake]:
    existing = ", ".join(sorted(inventory.profile_names)) or "none yet, write one in profiles/"
    for host in inventory.nodes:
        what = _profile_name_problem(inventory.value(host, PROFILE), inventory.profile_names)
        if what:
            yield Mistake(host, what, f"choose one that exists: {existing}")
    if isinstance(inventory.profile, Unreadable):
        yield Mistake(ALL_NODES, inventory.profile.reason, "correct the file")
    elif inventory.profile is not None:
        yield from _shape_mistakes(inventory, inventory.profile.get("parallel"))


def _check_weights_source(inventory: Inventory) -> Iterator[Mistake]:
    """How the checkpoint gets onto the nodes, once its variables have the right types."""
    profile = inventory.profile if isinstance(inventory.profile, Mapping) else {}
    weights = profile.get("weights")
    if not isinstance(weights, Mapping) or not isinstance(weights.get("directory"), str):
        return
    for host in inventory.nodes:
        names = [name for name in inventory.options if name.startswith("model_store_")]
        values = {name: inventory.value(host, name) for name in names}
        sound = not any(isinstance(value, Unreadable) for value in values.values())
        typed = (_option_mistakes(host, name, value, inventory.options[name]) for name, value in values.items())
        if sound and values and not any(mistake for mistakes in typed for mistake in mistakes):
            findings = source_findings(values.get, weights["directory"])
            yield from (Mistake(host, what, remedy) for what, remedy in findings)


def _check_nccl(inventory: Inventory) -> Iterator[Mistake]:
    """Variables of NCCL that break every launch, whatever the nodes are like."""
    variables = inventory.profile.get("nccl_env") if isinstance(inventory.profile, Mapping) else None
    if not isinstance(variables, Mapping) or _has_unreadable(inventory, tuple(PLAN_INPUTS)):
        return
    head = inventory.nodes[0]
    topology, prefix = inventory.value(head, "fabric_topology"), inventory.value(head, "fabric_link_prefix")
    for what, remedy in forbidden(variables, str(topology), _as_int(prefix) if is_int(prefix) else 0):
        yield Mistake(ALL_NODES, f"the profile's nccl_env: {what}", remedy)


def _profile_name_problem(name: object, existing: Sequence[str]) -> str:
    if name is None:
        return f"{PROFILE} is not set"
    if isinstance(name, Unreadable) or name in existing:
        return ""
    return f"{PROFILE} {shown(name)} does not exist{did_you_mean(str(name), existing)}"


def _shape_mistakes(inventory: Inventory, parallel: object) -> Iterator[Mistake]:
    """Whether the shape of the profile fits the nodes; one node has one GPU."""
    label = f"the profile {inventory.value(inventory.nodes[0], PROFILE)}"
    given = parallel if isinstance(parallel, Mapping) else {}
    shape = {"tp": given.get("tp"), "pp": given.get("pp", 1), "dcp": given.get("dcp", 1)}
    wrong = {key: value for key, value in shape.items() if not is_int(value) or _as_int(value) < 1}
    for key, value in wrong.items():
        yield Mistake(ALL_NODES, f"{label} has parallel.{key} {shown(value)}", "write a whole number from 1 up")
    if not wrong:
        findings = shape_findings(len(inventory.nodes), *map(_as_int, shape.values()))
        yield from (Mistake(ALL_NODES, f"{label} {what}", remedy) for what, remedy in findings)


RULES: tuple[Callable[[Inventory], Iterator[Mistake]], ...] = (
    _check_node_count,
    _check_whole_cluster,
    _check_management_addresses,
    _check_ranks,
    _check_unreadable,
    _check_known_names,
    _check_types,
    _check_equality,
    _check_addresses,
    _check_cage,
    _check_share,
    _check_api,
    _check_profile,
    _check_weights_source,
    _check_nccl,
)
