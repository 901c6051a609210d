"""Checks of a node's memory: does the launch fit, who holds what, and what will give way when it is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Container, engine_runs
from .intent import Intent
from .meminfo import CLASS_SPREAD_KB, GIB, KIB, cma_trap, gib, shown_parts
from .memory_need import need_of
from .names import ENGINE_CONTAINER, LABEL_RANK
from .shortage import NOBODY, SWAP_MARGIN, WORTH, Node, guard_remedy, named, remedy

# Bytes of swap in use that are no hindrance: some pages of an idle process, which nobody will miss.
SWAP_LIMIT = 64 * 1024**2
# What a process may hold on the GPU besides the engine, such as a desktop's compositor.
GPU_LIMIT = GIB
# States of a container whose processes are on their way out.
STOPPING = ("removing", "dead")
# The line of an earlyoom that is told none, in percent of the memory that processes can have (earlyoom, README).
EARLYOOM_PERCENT = 10.0
EARLYOOM_OPTIONS = ("-m", "-M")


@rule(
    "memory.class",
    "All nodes have MemTotal of one class; the smallest sizes the cluster.",
    Stage.PREFLIGHT,
    needs="memory",
)
def memory_class(cluster: Cluster) -> Iterator[Check]:
    """A firmware setting takes 2 GiB from some nodes; a plan made on the larger ones does not fit there."""
    totals = {host: memory["MemTotal"] for host, memory, _ in cluster.having("memory")}
    largest = max(totals.values(), default=0)
    for host, total in totals.items():
        status = Status.WARN if largest - total > CLASS_SPREAD_KB else Status.OK
        yield Check(
            "memory.class",
            host,
            status,
            f"MemTotal is {gib(total):.2f} GiB",
            f"the largest node's {gib(largest):.2f} GiB",
            "set the same memory option in the firmware of all nodes",
        )


@rule(
    "memory.cma-trap",
    "No memory is lost to CMA by a kernel with KHO on.",
    Stage.PREFLIGHT,
    Stage.LAUNCH,
    needs="memory",
)
def memory_cma_trap(cluster: Cluster) -> Iterator[Check]:
    """With KHO on, RDMA registration dies after the load with `Cannot allocate memory`."""
    for host, memory, _ in cluster.having("memory"):
        free, total = memory.get("CmaFree", 0), memory.get("CmaTotal", 0)
        yield Check(
            "memory.cma-trap",
            host,
            Status.REFUSE if cma_trap(memory) else Status.OK,
            f"CmaFree is {free} kB with CmaTotal {total} kB",
            "CmaFree at most CmaTotal",
            "boot kernel 6.17, or add kho=off by a drop-in under /etc/default/grub.d and reboot",
        )


@rule(
    "memory.gpu-process",
    "No other process holds much of the GPU's memory.",
    Stage.PREFLIGHT,
    Stage.LAUNCH,
    needs="processes",
)
def memory_gpu_process(cluster: Cluster) -> Iterator[Check]:
    """An engine that lost its container can hold 104 GiB; only its pid finds it."""
    for host, processes, _ in cluster.having("processes"):
        if engine_runs(cluster.facts[host]):
            continue
        large = [process for process in processes["gpu"] if process["bytes"] > GPU_LIMIT]
        held = ", ".join(map(named, processes["gpu"])) or "no process"
        yield Check(
            "memory.gpu-process",
            host,
            Status.REFUSE if large else Status.OK,
            f"the GPU is held by {held}",
            f"at most {GPU_LIMIT / GIB:.2f} GiB each before a launch",
            f"stop {' and '.join(map(named, large))}",
        )


@rule("memory.stopping", "No container of ours is still on its way out.", Stage.LAUNCH, needs="runtime")
def memory_stopping(cluster: Cluster) -> Iterator[Check]:
    """Its memory comes back up to a minute later, for which the launch waits."""
    for host, runtime, _ in cluster.having("runtime"):
        serving = cluster.facts[host].get("serving")
        ending = serving is not None and serving["unit"] == "deactivating"
        leaving = [one for one in runtime["containers"] if _is_ours(one) and (ending or one["state"] in STOPPING)]
        names = ", ".join(f"{container['name']} ({container['state']})" for container in leaving)
        yield Check(
            "memory.stopping",
            host,
            Status.WARN if leaving else Status.OK,
            f"still stopping: {names or 'nothing'}",
            "nothing of ours",
            "wait a minute, or `docker rm --force` it",
        )


@rule("memory.swap", "The swap is drained before a launch.", Stage.LAUNCH, needs="memory")
def memory_swap(cluster: Cluster) -> Iterator[Check]:
    """What was swapped out comes back in the middle of the load, or stays and slows every step."""
    for host, node, intent in _nodes(cluster):
        # Where the run may drain it, it does so right before the launch.
        dirty = Status.WARN if intent.free_memory and node.can_drain else Status.REFUSE
        yield Check(
            "memory.swap",
            host,
            dirty if node.swap_used > SWAP_LIMIT else Status.OK,
            f"{node.swap_used / GIB:.2f} GiB lie in the swap",
            f"{SWAP_LIMIT / GIB:.2f} GiB before a launch",
            _drain(node),
        )


@rule(
    "memory.headroom",
    "MemAvailable holds the rank's share and the floor.",
    Stage.PREFLIGHT,
    Stage.LAUNCH,
    needs="memory",
)
def memory_headroom(cluster: Cluster) -> Iterator[Check]:
    """A node that runs short freezes without a message, so the sum is made before the load."""
    for host, _, intent in cluster.having("memory"):
        node = node_of(cluster, host)
        if node is None:
            yield Check("memory.headroom", host, Status.OK, "its engine is loaded already")
            continue
        total, parts = shown_parts(node.need.parts(node.total))
        yield Check(
            "memory.headroom",
            host,
            _status(node, node.short, intent),
            f"MemAvailable is {node.available / GIB:.2f} GiB",
            f"{total} GiB ({', '.join(f'{name} {size}' for name, size in parts.items())})",
            remedy(node) if node.short > 0 else "",
        )


@rule("memory.boot-guard", "The engine's own start-up guard will pass.", Stage.PREFLIGHT, Stage.LAUNCH, needs="memory")
def memory_boot_guard(cluster: Cluster) -> Iterator[Check]:
    """VLLM refuses to start when MemAvailable is below ceil(utilization x total)."""
    for host, node, intent in _nodes(cluster):
        if not node.need.utilization:
            continue
        yield Check(
            "memory.boot-guard",
            host,
            _status(node, node.short_of_guard, intent),
            f"MemAvailable is {node.available / GIB:.2f} GiB",
            f"{node.need.asked(node.total) / GIB:.2f} GiB ({node.need.utilization} of {node.total / GIB:.2f})",
            guard_remedy(node) if node.short_of_guard > 0 else "",
        )


@rule(
    "memory.earlyoom",
    "A running earlyoom ends processes only below the planned floor.",
    Stage.PREFLIGHT,
    Stage.LAUNCH,
    needs="processes",
)
def memory_earlyoom(cluster: Cluster) -> Iterator[Check]:
    """A line of 5 percent ended a healthy launch."""
    for host, processes, intent in cluster.having("processes"):
        memory = cluster.facts[host].get("memory")
        if processes["earlyoom"] is None or memory is None:
            continue
        line, floor = earlyoom_line(processes["earlyoom"], memory), intent.memory.floor
        yield Check(
            "memory.earlyoom",
            host,
            Status.OK if line < floor else Status.REFUSE,
            f"earlyoom ends processes below {line / GIB:.2f} GiB",
            f"less than the planned floor of {floor / GIB:.2f} GiB",
            f"start it with -M {floor // 2 // KIB} in /etc/default/earlyoom",
        )


def earlyoom_line(argv: Sequence[str], memory: dict[str, int]) -> int:
    """Bytes below which an earlyoom with these arguments ends processes; of two lines the lower one counts."""
    lines = []
    for option, value in pairwise(argv):
        number = value.split(",")[0]
        if option in EARLYOOM_OPTIONS and number.replace(".", "", 1).isdigit():
            lines.append(_percent(float(number), memory) if option == "-m" else int(float(number)) * KIB)
    return min(lines, default=_percent(EARLYOOM_PERCENT, memory))


def node_of(cluster: Cluster, host: str) -> Node | None:
    """The memory of a node that will load its rank; None when it was not read, or its engine runs already."""
    facts = cluster.facts.get(host)
    memory = facts.get("memory") if facts else None
    if facts is None or memory is None or engine_runs(facts):
        return None
    return Node(memory, facts.get("processes", NOBODY), need_of(cluster.intents[host].memory, facts))


def _nodes(cluster: Cluster) -> Iterator[tuple[str, Node, Intent]]:
    for host, intent in cluster.intents.items():
        node = node_of(cluster, host)
        if node is not None:
            yield host, node, intent


def _status(node: Node, short: int, intent: Intent) -> Status:
    """What dropping the page cache gives is only warned about where the run may drop it."""
    if short <= 0:
        return Status.OK
    return Status.WARN if intent.free_memory and node.drop_gain >= short else Status.REFUSE


def _drain(node: Node) -> str:
    wanted = (node.swap_used + SWAP_MARGIN) / GIB
    if node.can_drain:
        return f"run `swapoff -a && swapon -a`, which takes {wanted:.2f} GiB, or set serving_free_memory: true"
    large = [process for process in node.processes["resident"] if process["bytes"] >= WORTH]
    first = f"stop {named(large[0])}" if large else "reboot the node"
    return f"{first}: draining takes {wanted:.2f} GiB and {node.available / GIB:.2f} are available"


def _is_ours(container: Container) -> bool:
    return container["name"] == ENGINE_CONTAINER or LABEL_RANK in container["labels"]


def _percent(percent: float, memory: dict[str, int]) -> int:
    """Percent of what processes can have: available and anonymous memory (earlyoom, meminfo.c)."""
    return int(percent / 100 * (memory["MemAvailable"] + memory.get("AnonPages", 0)) * KIB)
