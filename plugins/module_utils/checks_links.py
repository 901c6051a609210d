"""Checks of what lies below the rails: carrier and speed, PCIe, firmware, and what else has a say on the interface."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Fabric, Netdev, PciLink, device_of
from .intent import Intent, RailEnd
from .names import NCCL_CONF_FILE
from .nccl_env import NcclEnvError, forbidden, nccl_env, parse_env_file, pinned_gid

# Mb/s of one QSFP cable of a Spark, as both of its twins show it.
SPEED = 200_000

# Strict: a frame is dropped when its sender is not reached through the interface that it came in by (ip-sysctl.rst).
STRICT = 1


def _links(cluster: Cluster) -> Iterator[tuple[str, RailEnd, Netdev]]:
    """The rails whose interface is there; `fabric.rail` names the others."""
    for host, fabric, _, rail in cluster.rail_ends():
        if rail.netdev in fabric["netdevs"]:
            yield host, rail, fabric["netdevs"][rail.netdev]


@rule(
    "fabric.link",
    "Every rail has a link of 200000 Mb/s, and all ends of it the same.",
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def link(cluster: Cluster) -> Iterator[Check]:
    """A cable that is not quite in, or a transceiver of another kind, trains to a lower speed without a word."""
    links = list(_links(cluster))
    for host, rail, found in links:
        others = {h: end["speed"] or 0 for h, r, end in links if r.subnet == rail.subnet}
        fact, status, limit = _link_state(rail.netdev, found, others)
        yield Check(
            "fabric.link",
            host,
            status,
            fact,
            limit,
            f"check the cable or transceiver of {rail.netdev} at both ends, and the speed of its port on the switch",
            subject=rail.name,
        )


def _link_state(netdev: str, found: Netdev, speeds: dict[str, int]) -> tuple[str, Status, str]:
    """What is found on one end, what it is worth, and the limit; `speeds` are those of all ends in Mb/s, by host."""
    limit = f"a link of {SPEED} Mb/s"
    speed, best = found["speed"], max(speeds.values())
    if not found["carrier"]:
        return f"{netdev} {'is down' if found['carrier'] is None else 'has no carrier'}", Status.REFUSE, limit
    if speed is None:
        return f"{netdev} has a link, and its driver says no speed", Status.WARN, limit
    fact = f"{netdev} has a link of {speed} Mb/s"
    if speed < best:
        faster = ", ".join(host for host, other in speeds.items() if other == best)
        return fact, Status.REFUSE, f"{best} Mb/s, as at the other end on {faster}"
    return fact, Status.OK if speed >= SPEED else Status.WARN, limit


@rule(
    "fabric.pcie",
    "The PCIe link of every rail has all its lanes at full speed, the same on all nodes.",
    Stage.PREFLIGHT,
    needs="fabric",
)
def pcie(cluster: Cluster) -> Iterator[Check]:
    """A link that trained to less moves about 3 GB/s of bus bandwidth instead of 13, and the slowest rank decides."""
    links = [(host, rail, found["pci"]) for host, rail, found in _links(cluster)]
    best = max((pci for _, _, pci in links if pci), key=_rate, default=None)
    holders = ", ".join(dict.fromkeys(host for host, _, pci in links if pci and best and _rate(pci) == _rate(best)))
    for host, rail, pci in links:
        fact, status, limit = _pcie_state(rail.netdev, pci, best, holders)
        yield Check(
            "fabric.pcie",
            host,
            status,
            fact,
            limit,
            "update the NIC's firmware and switch the node off without power for a minute; look at `lspci -vv`",
            subject=rail.name,
        )


def _pcie_state(netdev: str, pci: PciLink | None, best: PciLink | None, holders: str) -> tuple[str, Status, str]:
    """What is found, what it is worth, and the limit; `best` is the best link of all nodes and `holders` have it."""
    if pci is None or best is None:
        return f"{netdev} shows no PCIe link", Status.WARN, "a PCIe link with all its lanes"
    fact = f"the PCIe link of {netdev} ({pci['address']}) has {_lanes(pci['width'], pci['speed'])}"
    whole = _lanes(pci["max_width"], pci["max_speed"])
    if _rate(pci) < pci["max_width"] * pci["max_speed"]:
        return fact, Status.WARN, f"{whole}, its maximum; less moves about 3 GB/s instead of 13"
    if _rate(pci) < _rate(best):
        return fact, Status.WARN, f"{_lanes(best['width'], best['speed'])}, as on {holders}"
    return fact, Status.OK, whole


def _rate(pci: PciLink) -> float:
    """GT/s of all lanes."""
    return pci["width"] * pci["speed"]


def _lanes(width: int, speed: float) -> str:
    return f"{width} lanes at {speed:g} GT/s"


@rule(
    "fabric.same-firmware",
    "The NICs of all rails run one firmware and one driver, on all nodes.",
    Stage.PREFLIGHT,
    needs="fabric",
)
def same_firmware(cluster: Cluster) -> Iterator[Check]:
    """Nodes that missed an update, or a NIC that was not switched off after one, are slow or silent with the others."""
    found = [
        (host, rail, f"firmware {device[1]['firmware'] or 'unknown'} with driver {link['driver'] or 'unknown'}")
        for host, rail, link in _links(cluster)
        if (device := device_of(cluster.facts[host]["fabric"], rail.netdev))
    ]
    if not found:
        return
    usual, _ = Counter(software for _, _, software in found).most_common(1)[0]
    holders = ", ".join(dict.fromkeys(host for host, _, software in found if software == usual))
    for host, rail, software in found:
        yield Check(
            "fabric.same-firmware",
            host,
            Status.OK if software == usual else Status.WARN,
            f"the NIC of {rail.netdev} runs {software}",
            f"{usual}, as on {holders}",
            "bring all nodes to one firmware (fwupdmgr) and one system, then switch them off and on",
            subject=rail.name,
        )


@rule(
    "fabric.rp-filter",
    "No strict reverse-path filter is on a rail, where there are several.",
    Stage.FABRIC,
    Stage.LAUNCH,
    needs="fabric",
)
def rp_filter(cluster: Cluster) -> Iterator[Check]:
    """A peer may answer over the other rail, and a strict filter drops that frame without a word."""
    for host, rail, found in _links(cluster):
        value = found["rp_filter"]
        if len(cluster.intents[host].rails) < 2:
            continue
        yield Check(
            "fabric.rp-filter",
            host,
            {None: Status.UNKNOWN, STRICT: Status.REFUSE}.get(value, Status.OK),
            f"the reverse-path filter of {rail.netdev} is {'not readable' if value is None else value}",
            "2 or 0 with several rails, 1 is strict",
            "run site.yml, which sets it to 2",
            subject=rail.name,
        )


@rule(
    "fabric.duplicate",
    "No other machine claims the address of a rail.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    needs="fabric",
)
def duplicate(cluster: Cluster) -> Iterator[Check]:
    """Two machines with one address take each other's frames, now this one and now that one."""
    for host, fabric, _, rail in cluster.rail_ends():
        macs = fabric["macs"].get(f"{rail.netdev} {rail.address}")
        # Before the rail has its address and a link nobody could ask; `fabric.address` and `fabric.link` say so.
        if macs is None and not _could_ask(fabric, rail):
            continue
        yield _duplicate_check(host, rail, macs)


def _could_ask(fabric: Fabric, rail: RailEnd) -> bool:
    found = fabric["netdevs"].get(rail.netdev)
    return found is not None and found["carrier"] is True and rail.cidr in found["addresses"]


def _duplicate_check(host: str, rail: RailEnd, macs: list[str] | None) -> Check:
    if macs is None:
        fact, status = f"nobody on {rail.netdev} was asked for {rail.address}", Status.UNKNOWN
        remedy = "read the facts as root, with probe_wires"
    else:
        claimed = f"claimed by {', '.join(macs)}" if macs else "claimed by no other machine"
        fact, status = f"{rail.address} is {claimed} on {rail.netdev}", Status.REFUSE if macs else Status.OK
        remedy = "take the address from that machine, or choose another subnet for the rail"
    return Check("fabric.duplicate", host, status, fact, f"{host} alone", remedy, subject=rail.name)


@rule(
    "fabric.networkmanager",
    "No profile of NetworkManager names the interface of a rail.",
    Stage.PREFLIGHT,
    Stage.FABRIC,
    needs="fabric",
)
def network_manager(cluster: Cluster) -> Iterator[Check]:
    """Such a profile brings its own address, route and MTU as soon as NetworkManager takes the interface."""
    for host, fabric, _, rail in cluster.rail_ends():
        hidden = [path for path in fabric["unreadable"] if "/NetworkManager/" in path]
        files = [file for file, names in fabric["profiles"].items() if rail.netdev in names]
        unsure = Status.UNKNOWN if hidden else Status.OK
        unread = f"; {', '.join(hidden)} cannot be read" if hidden else ""
        yield Check(
            "fabric.networkmanager",
            host,
            Status.REFUSE if files else unsure,
            f"{rail.netdev} is named by {', '.join(files) or 'no profile'}{unread}",
            "no profile of NetworkManager",
            "remove it with `nmcli connection delete`" if files else "read the facts as root",
            subject=rail.name,
        )


@rule(
    "fabric.nccl-conf",
    f"The host's own {NCCL_CONF_FILE} sets nothing that this project sets or forbids.",
    Stage.PREFLIGHT,
    needs="fabric",
)
def nccl_conf(cluster: Cluster) -> Iterator[Check]:
    """The engine's container does not see that file; a test that is run on the host itself obeys it and misleads."""
    for host, fabric, intent in cluster.having("fabric"):
        hidden, variables = NCCL_CONF_FILE in fabric["unreadable"], parse_env_file(fabric["nccl_conf"] or "")
        wrong = (variables.keys() & _own_names(fabric, intent)) | _forbidden_names(variables, intent)
        yield Check(
            "fabric.nccl-conf",
            host,
            Status.WARN if wrong or hidden else Status.OK,
            f"{NCCL_CONF_FILE} {'cannot be read' if hidden else f'sets {_listed(wrong)}'}",
            "nothing that this project sets or forbids; processes of the host obey that file, the engine does not",
            "read the facts as root" if hidden else f"remove these lines from {NCCL_CONF_FILE}",
        )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing of ours"


def _own_names(fabric: Fabric, intent: Intent) -> set[str]:
    """The variables of our own environment; of the written one while the rails cannot give another."""
    try:
        return set(nccl_env(intent, fabric))
    except NcclEnvError:
        return set(parse_env_file(fabric["nccl_env"] or ""))


def _forbidden_names(variables: dict[str, str], intent: Intent) -> set[str]:
    prefix = intent.rails[0].subnet.prefixlen
    return {
        name
        for name, value in variables.items()
        if forbidden({name: value}, intent.topology, prefix) or pinned_gid({name: value}) is not None
    }
