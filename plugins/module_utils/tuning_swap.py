"""The policy for swap, and whether swap can be drained without running out of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .facts import Swap, Tuning
from .meminfo import KIB, gib
from .tuning import SWAP_FILE, SWAP_UNIT, SWAP_UNIT_FILE, TuningWish, swap_unit_text
from .tuning_steps import Part, Record, Step

# kB that may stay in swap. A kernel that is told to swap as little as it can still moves a few pages.
DRAIN_ABOVE_KB = 64 * 1024

# kB by which the size of a swap differs from that of its file: a page for its header, and rounding.
SIZE_SPREAD_KB = 1024

GIB_KB = 1024 * 1024


def swap_part(wish: TuningWish, tuning: Tuning) -> Part:
    """What makes the policy true. A container has no say in the swap of the machine around it."""
    if tuning["container"]:
        return Part()
    if wish.swap == "off":
        return off_part(tuning, [swap for swap in tuning["swaps"] if swap["here"]], list(tuning["swap_units"]))
    if wish.swap == "size":
        return size_part(wish, tuning)
    return keep_part(tuning["swaps"])


def keep_part(swaps: Iterable[Swap]) -> Part:
    """Swap stays as the user made it; what is in it comes back to memory."""
    full = [swap for swap in swaps if swap["here"] and swap["used"] > DRAIN_ABOVE_KB]
    return Part(steps=tuple(_drain(swap) for swap in full))


def off_part(tuning: Tuning, swaps: Sequence[Swap], units: Sequence[str]) -> Part:
    """Those swaps off now, those units masked, so that they do not come back with a reboot; fstab stays as it is."""
    steps = [Step(f"turn {swap['path']} off", ("swapoff", swap["path"]), drains=True) for swap in swaps]
    steps += [Step(f"mask {unit}", ("systemctl", "mask", unit)) for unit in units]
    record: Record = {
        "swap_units": {unit: {"state": tuning["swap_units"][unit]} for unit in units},
        "swap": {swap["path"]: {"priority": swap["priority"]} for swap in swaps},
    }
    return Part(
        steps=tuple(steps),
        record={section: entries for section, entries in record.items() if entries},
        disturbs="swap would be turned off" if steps else "",
    )


def size_part(wish: TuningWish, tuning: Tuning) -> Part:
    """One swap file of our own with that size, and no other swap."""
    own = [swap for swap in tuning["swaps"] if swap["path"] == SWAP_FILE]
    others = [swap for swap in tuning["swaps"] if swap["path"] != SWAP_FILE and swap["here"]]
    off = off_part(tuning, others, [unit for unit in tuning["swap_units"] if unit != SWAP_UNIT])
    right = own and abs(own[0]["size"] - wish.swap_gib * GIB_KB) <= SIZE_SPREAD_KB
    stale = tuning["files"].get(SWAP_UNIT_FILE) != swap_unit_text()
    if right and not stale and SWAP_UNIT in tuning["swap_units"]:
        return keep_and(off, own)
    return Part(
        files={SWAP_UNIT_FILE: swap_unit_text()} if stale else {},
        steps=(*off.steps, *(_off(swap) for swap in own), *own_file_steps(wish.swap_gib)),
        record={**off.record, "swap_file": {SWAP_FILE: {"existed": False}}},
        reloads=stale,
        disturbs=f"swap would become {wish.swap_gib} GiB",
    )


def keep_and(off: Part, own: Iterable[Swap]) -> Part:
    """Our own file stays and is drained; others go."""
    return Part(steps=(*off.steps, *keep_part(own).steps), record=off.record, disturbs=off.disturbs)


def own_file_steps(size_gib: int) -> tuple[Step, ...]:
    """A swap file must have no holes, which `fallocate` sees to."""
    return (
        Step(f"make {SWAP_FILE}", ("fallocate", "--length", f"{size_gib}GiB", SWAP_FILE)),
        Step("close it to others", ("chmod", "600", SWAP_FILE)),
        Step("make it a swap", ("mkswap", SWAP_FILE)),
        Step("use it now and at every boot", ("systemctl", "enable", "--now", SWAP_UNIT)),
    )


def drained_kb(steps: Iterable[Step], swaps: Iterable[Swap]) -> int:
    """What the steps would bring back from swap to memory, in kB."""
    emptied = {step.argv[-1] for step in steps if step.drains}
    return sum(swap["used"] for swap in swaps if swap["path"] in emptied)


def unsafe(used_kb: int, memory: Mapping[str, int], margin: int) -> tuple[str, str, str] | None:
    """Why so much swap cannot be drained: fact, limit and remedy; None when it can. `margin` is in bytes.

    Swap that nothing uses is not in the way of anything.
    """
    available, need = memory.get("MemAvailable", 0), used_kb + margin // KIB
    if not used_kb or available > need:
        return None
    return (
        f"MemAvailable is {gib(available):.2f} GiB and {gib(used_kb):.2f} GiB are in swap",
        f"MemAvailable above {gib(need):.2f} GiB (that and a margin of {gib(margin // KIB):.2f})",
        f"end what takes memory until {gib(need - available):.2f} GiB more are free, or reboot the node",
    )


def _drain(swap: Swap) -> Step:
    """Off and on in one command: a run that is killed between the two would leave the node without its swap."""
    # The kernel itself gives the negative priorities; nobody can ask for one.
    priority = f"--priority {swap['priority']} " if swap["priority"] >= 0 else ""
    script = f'swapoff "$0" && exec swapon {priority}"$0"'
    does = f"drain {swap['path']} ({gib(swap['used']):.2f} GiB in use)"
    return Step(does, ("sh", "-c", script, swap["path"]), drains=True, restarts=True)


def _off(swap: Swap) -> Step:
    return Step(f"turn {swap['path']} off", ("swapoff", swap["path"]), drains=True)


def used_in(text: str, path: str) -> int:
    """How many kB of a swap are in use by /proc/swaps; 0 when it is off."""
    return next((swap[3] for swap in parse_swaps(text) if swap[0] == path), 0)


def parse_swaps(text: str) -> list[tuple[str, int, int, int]]:
    """The rows of /proc/swaps: path, priority, size and use in kB."""
    # The kernel writes a blank in a path in octal.
    rows = [line.split() for line in text.splitlines()[1:]]
    return [(row[0].replace("\\040", " "), int(row[4]), int(row[2]), int(row[3])) for row in rows if len(row) == 5]
