"""What would suffice on a node that is short of memory: computed from what it holds, never guessed.

Each remedy is one that makes the launch fit by itself. What costs the user nothing comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .capacity import KvLayout, largest_context
from .facts import Process, Processes
from .meminfo import GIB, KIB
from .memory_need import MemoryNeed

# Bytes that must stay free while the swap is read back: a node was seen to lose 7.4 GB in three seconds, but only while
# an engine loaded; nothing loads here.
SWAP_MARGIN = GIB
# Processes that a node lives on, whatever they hold.
KEPT = (
    *("systemd", "systemd-journald", "systemd-networkd", "systemd-resolved", "systemd-logind", "dbus-daemon"),
    *("sshd", "sshd:", "dockerd", "containerd", "NetworkManager", "wpa_supplicant", "polkitd", "nvidia-persistenced"),
)
# Bytes below which ending a process is not worth a word.
WORTH = GIB // 4

NOBODY: Processes = {"gpu": [], "resident": [], "low_watermark": 0, "earlyoom": None, "nfs_threads": 0}


@dataclass(frozen=True)
class Node:
    """A node's memory: `memory` are the figures of /proc/meminfo in kB, `need` is what its rank takes."""

    memory: Mapping[str, int]
    processes: Processes
    need: MemoryNeed

    @property
    def total(self) -> int:
        """MemTotal in bytes."""
        return self.memory["MemTotal"] * KIB

    @property
    def available(self) -> int:
        """MemAvailable in bytes."""
        return self.memory["MemAvailable"] * KIB

    @property
    def page_cache(self) -> int:
        """Bytes of file pages, which the kernel gives up when memory is asked for."""
        return (self.memory.get("Active(file)", 0) + self.memory.get("Inactive(file)", 0)) * KIB

    @property
    def swap_used(self) -> int:
        """Bytes that lie in the swap."""
        return (self.memory.get("SwapTotal", 0) - self.memory.get("SwapFree", 0)) * KIB

    @property
    def short(self) -> int:
        """Bytes that are missing for the launch; negative when some are to spare."""
        return self.need.required(self.total) - self.available

    @property
    def short_of_guard(self) -> int:
        """Bytes that are missing for the engine's own boot guard."""
        return self.need.asked(self.total) - self.available

    @property
    def lacking(self) -> int:
        """Bytes that are missing for whichever asks for more, the launch or the guard."""
        return max(self.short, self.short_of_guard)

    @property
    def can_drain(self) -> bool:
        """Whether all that lies in the swap fits into memory, with a margin."""
        return self.available > self.swap_used + SWAP_MARGIN

    @property
    def drop_gain(self) -> int:
        """Bytes by which MemAvailable grows at least when the page cache is dropped.

        MemAvailable leaves out a part of the page cache, half of it or the low watermark, whichever is less (kernel,
        si_mem_available). Mapped pages are not dropped.
        """
        mapped = self.memory.get("Mapped", 0) * KIB
        return self._withheld(self.page_cache) - self._withheld(min(self.page_cache, mapped))

    def _withheld(self, cached: int) -> int:
        return min(cached // 2, self.processes["low_watermark"])


def remedy(node: Node) -> str:
    """The first thing that gives the bytes that the launch is short of, or makes it smaller by as much."""
    return next(_remedies(node, node.short, _smaller(node)))


def guard_remedy(node: Node) -> str:
    """The first thing with which the engine's boot guard passes."""
    return next(_remedies(node, node.short_of_guard, _smaller_share(node)))


def named(process: Process) -> str:
    """A process as a person finds it."""
    return f"pid {process['pid']} ({process['name']}, {process['bytes'] / GIB:.2f} GiB)"


def most_share(node: Node) -> float:
    """The largest utilization, in hundredths, with which the node has enough."""
    spare = node.need.floor + node.need.services if node.need.sizes_itself else 0
    return max(0, int(100 * (node.available - spare) / node.total)) / 100


def _remedies(node: Node, short: int, smaller: Iterator[str]) -> Iterator[str]:
    yield from _stop(node.processes["gpu"], short)
    if node.drop_gain >= short:
        yield f"drop the page cache, which gives back {node.drop_gain / GIB:.2f} GiB (serving_free_memory: true)"
    yield from _stop(_others(node.processes), short)
    yield from smaller
    largest = ", ".join(named(process) for process in node.processes["resident"][:2])
    yield f"free {short / GIB:.2f} GiB{f' (largest: {largest})' if largest else ''}, or serve on more nodes"


def _others(processes: Processes) -> list[Process]:
    """What may be ended besides the GPU's processes."""
    return [one for one in processes["resident"] if one["name"] not in KEPT and one["bytes"] >= WORTH]


def _stop(processes: Sequence[Process], short: int) -> Iterator[str]:
    """The fewest processes, the largest first, that hold enough together."""
    held, chosen = 0, []
    for process in processes:
        held += process["bytes"]
        chosen.append(named(process))
        if held >= short:
            yield f"stop {' and '.join(chosen)}"
            return


def _smaller(node: Node) -> Iterator[str]:
    """A smaller share, a smaller cache, or a shorter context."""
    if node.need.sizes_itself:
        yield from _smaller_share(node)
    elif node.need.block:
        yield from _smaller_cache(node.need, node.need.block, node.need.kv_cache - node.short)


def _smaller_share(node: Node) -> Iterator[str]:
    """A share with which the guard passes and, where it also sizes the cache, one request fits."""
    need, share = node.need, most_share(node)
    left = int(share * node.total) - need.fixed
    line = f"set the profile's memory.utilization to at most {share:.2f}"
    longest = largest_context(left, need.block) if need.block else 0
    fits = longest >= need.context if need.block and need.context else left > 0
    if fits or not need.sizes_itself:
        yield line
    elif longest > 0:
        yield f"{line} and its context to at most {longest} tokens"


def _smaller_cache(need: MemoryNeed, block: KvLayout, left: int) -> Iterator[str]:
    size = left // block.block_bytes * block.block_bytes
    longest = largest_context(size, block)
    line = f"set the profile's memory.kv_cache_bytes to at most {size}"
    if longest >= need.context > 0:
        yield line
    elif longest > 0:
        yield f"{line} and its context to at most {longest} tokens"
