"""Checks of the host's tuning: kernel settings, swap, journal, protection of ssh, kernel arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from .checks import Check, Cluster, Stage, Status, rule
from .facts import Tuning
from .meminfo import KIB, gib
from .tuning import LIMITS_FILE, MIB, TuningWish, limits_text, same, sysctl_name, wanted_values
from .tuning_plan import JOURNAL_SLACK, make_tuning_plan
from .tuning_swap import GIB_KB, SIZE_SPREAD_KB

SITE = "run site.yml, which sets it"
NOT_OURS = "set it on the machine around the container"


@rule("tuning.due", "The host can be tuned: nothing serves, swap can be drained.", Stage.PREFLIGHT, needs="tuning")
def due(cluster: Cluster) -> Iterator[Check]:
    """What would restart something under an engine, or run the node out of memory, is refused before any change."""
    for host, _, intent in cluster.having("tuning"):
        facts = cluster.facts[host]
        plan = make_tuning_plan(intent.tuning, facts)
        if not plan.refused:
            count = len(plan.files) + len(plan.steps)
            fact = f"{count} files and settings are due" if count else "it is tuned"
            yield Check("tuning.due", host, Status.OK, fact)
        for number, (fact, limit, remedy) in enumerate(plan.refused):
            yield Check("tuning.due", host, Status.REFUSE, fact, limit, remedy, subject=str(number or ""))


@rule("tuning.sysctl", "Every kernel setting holds its wanted value.", Stage.HOST, needs="tuning")
def sysctl(cluster: Cluster) -> Iterator[Check]:
    """Read back from the kernel, not from our file. What nobody here can set is named and no refusal."""
    for host, tuning, intent in cluster.having("tuning"):
        wanted = {p: v for p, v in wanted_values(intent.tuning, tuning).items() if p.startswith("/proc/sys/")}
        yield _values("tuning.sysctl", host, tuning, wanted)


@rule("tuning.cpu", "CPU governor and transparent huge pages are as wanted.", Stage.HOST, needs="tuning")
def cpu(cluster: Cluster) -> Iterator[Check]:
    """A machine without governors, such as a virtual one, has nothing to set."""
    for host, tuning, intent in cluster.having("tuning"):
        wanted = {p: v for p, v in wanted_values(intent.tuning, tuning).items() if p.startswith("/sys/")}
        yield _values("tuning.cpu", host, tuning, wanted)


def _values(id_: str, host: str, tuning: Tuning, wanted: Mapping[str, str]) -> Check:
    live = tuning["values"]
    wrong = {path for path in wanted if path in live and not same(live[path]["value"], wanted[path])}
    ours = sorted(path for path in wrong if live[path]["writable"])
    fixed = sorted(path for path in wrong if not live[path]["writable"])
    absent = sorted(path for path in wanted if path not in live)
    told = [f"{sysctl_name(path)} is {live[path]['value']}" for path in ours]
    told += [f"{sysctl_name(path)} is {live[path]['value']} and cannot be set here" for path in fixed]
    told += [f"this kernel has no {sysctl_name(path)}" for path in absent]
    if not told:
        return Check(id_, host, Status.OK, f"{len(wanted)} of {len(wanted)} values are as wanted")
    limit = ", ".join(f"{sysctl_name(path)} {wanted[path]}" for path in [*ours, *fixed, *absent])
    status, remedy = (Status.REFUSE, SITE) if ours else (Status.WARN, NOT_OURS if fixed else "take it out of the list")
    return Check(id_, host, status, "; ".join(told), limit, remedy)


@rule("tuning.swap", "Swap is as the policy says, and the same on all nodes.", Stage.HOST, needs="tuning")
def swap(cluster: Cluster) -> Iterator[Check]:
    """Nodes that swap differently slow down differently, and the slowest one sets the pace of all."""
    sizes = {host: sum(s["size"] for s in tuning["swaps"]) for host, tuning, _ in cluster.having("tuning")}
    for host, tuning, intent in cluster.having("tuning"):
        fact = f"{gib(sizes[host]):.2f} GiB of swap"
        if tuning["container"]:
            limit, remedy = f"policy {intent.tuning.swap}", "set it on the machine around the container"
            status = Status.WARN if sizes[host] and intent.tuning.swap != "keep" else Status.OK
            yield Check("tuning.swap", host, status, f"{fact}, of the machine around this container", limit, remedy)
            continue
        yield _swap_check(host, intent.tuning, sizes, fact)


def _swap_check(host: str, wish: TuningWish, sizes: Mapping[str, int], fact: str) -> Check:
    if wish.swap == "keep":
        others = max(sizes.values())
        differs = others - min(sizes.values()) > SIZE_SPREAD_KB
        status = Status.WARN if differs else Status.OK
        limit = f"the same on all nodes, others have {gib(min(sizes.values())):.2f} to {gib(others):.2f} GiB"
        remedy = "set host_tuning_swap to off, or to size with host_tuning_swap_gib"
        return Check("tuning.swap", host, status, fact, limit if differs else "", remedy)
    wanted = wish.swap_gib * GIB_KB if wish.swap == "size" else 0
    good = abs(sizes[host] - wanted) <= SIZE_SPREAD_KB
    return Check("tuning.swap", host, Status.OK if good else Status.REFUSE, fact, f"{gib(wanted):.2f} GiB", SITE)


@rule("tuning.journal", "Journald has read its cap and keeps to it.", Stage.HOST, needs="tuning")
def journal(cluster: Cluster) -> Iterator[Check]:
    """While the engine serves journald is not restarted, so the cap counts from the next run or boot on."""
    for host, tuning, intent in cluster.having("tuning"):
        found, cap = tuning["journal"], intent.tuning.journal_mib
        over = cap and found["bytes"] > cap * MIB + JOURNAL_SLACK
        words = " and journald has not read its cap yet" if found["stale"] else ""
        yield Check(
            "tuning.journal",
            host,
            Status.WARN if over or found["stale"] else Status.OK,
            f"the journal takes {found['bytes'] // MIB} MiB{words}",
            f"{cap} MiB" if cap else "",
            "run playbooks/stop.yml and site.yml, or `systemctl restart systemd-journald`",
        )


@rule("tuning.ssh", "The way in keeps its memory when the node runs short.", Stage.HOST, needs="tuning")
def ssh(cluster: Cluster) -> Iterator[Check]:
    """The unit may say what it likes: the control group, and the slice around it, have the last word."""
    for host, tuning, intent in cluster.having("tuning"):
        wanted = intent.tuning.ssh_memory
        if wanted:
            yield _ssh_check(host, tuning, wanted)


def _ssh_check(host: str, tuning: Tuning, wanted: int) -> Check:
    guard, limit = tuning["ssh"], f"MemoryMin of {wanted // MIB} MiB"
    least = min(guard["memory_min"], guard["slice_memory_min"])
    if least < wanted:
        own, around = guard["memory_min"] // MIB, guard["slice_memory_min"] // MIB
        fact = f"MemoryMin is {own} MiB for ssh.service and {around} MiB for system.slice around it"
        return Check("tuning.ssh", host, Status.REFUSE, fact, limit, SITE)
    if guard["in_force"] is None:
        fact = "nothing shows the control group of ssh: no sshd of the unit runs, or no memory controller is here"
        return Check("tuning.ssh", host, Status.WARN, fact, limit, "look at `systemctl status ssh`")
    status = Status.OK if guard["in_force"] >= wanted else Status.WARN if tuning["container"] else Status.REFUSE
    fact = f"{guard['in_force'] // MIB} MiB are in force, sshd's oom_score_adj is {guard['oom_score_adj']}"
    return Check("tuning.ssh", host, status, fact, limit, SITE)


@rule("tuning.memlock", "Processes of a login may pin memory.", Stage.HOST, needs="tuning")
def memlock(cluster: Cluster) -> Iterator[Check]:
    """The engine's container has a limit of its own, by its profile; this one is for whoever tries RDMA by hand."""
    for host, tuning, intent in cluster.having("tuning"):
        wanted, there = intent.tuning.memlock, tuning["files"].get(LIMITS_FILE)
        if not wanted:
            continue
        if tuning["container"]:
            fact = "a container may not raise limits, and PAM would refuse every login"
            yield Check("tuning.memlock", host, Status.WARN, fact, f"memlock {wanted}", NOT_OURS)
            continue
        status = Status.OK if there == limits_text(wanted) else Status.REFUSE
        fact = f"{LIMITS_FILE} {'is as wanted' if status is Status.OK else 'says something else, or is not there'}"
        yield Check("tuning.memlock", host, status, fact, f"memlock {wanted}", SITE)


@rule("tuning.earlyoom", "Earlyoom, where it runs, acts only below the planned floor.", Stage.HOST, needs="tuning")
def earlyoom(cluster: Cluster) -> Iterator[Check]:
    """A line above what the plan leaves free ends a healthy engine."""
    for host, tuning, intent in cluster.having("tuning"):
        running, floor = tuning["earlyoom"]["argv"], intent.tuning.floor
        if not running or not floor:
            yield Check("tuning.earlyoom", host, Status.OK, "it does not run")
            continue
        line = term_line(running, cluster.facts[host].get("memory", {}).get("MemTotal", 0))
        yield Check(
            "tuning.earlyoom",
            host,
            Status.OK if line * KIB < floor else Status.REFUSE,
            f"it ends processes below {gib(line):.2f} GiB",
            f"below the floor of {gib(floor // KIB):.2f} GiB",
            "set host_tuning_earlyoom: true, or its arguments yourself",
        )


def term_line(argv: Sequence[str], total_kb: int) -> int:
    """Where earlyoom asks a process to end, in kB of MemAvailable: its -M, or its -m, or 10 % (earlyoom(1))."""
    options = dict(pairwise(argv))
    if "-M" in options:
        return int(options["-M"].split(",")[0])
    return int(total_kb * float(options.get("-m", "10").split(",")[0]) / 100)


@rule("tuning.reboot-required", "The kernel runs with the wanted arguments.", Stage.HOST, needs="tuning")
def reboot_required(cluster: Cluster) -> Iterator[Check]:
    """They count from the next boot on, and nobody but the user reboots a node."""
    for host, tuning, intent in cluster.having("tuning"):
        missing = [word for word in intent.tuning.kernel_arguments if word not in tuning["kernel_arguments"]]
        words = " ".join(missing)
        if not missing:
            yield Check("tuning.reboot-required", host, Status.OK, "no kernel argument waits for a reboot")
        elif tuning["grub"] and set(missing) <= set(tuning["boot_arguments"]):
            fact = f"reboot required: the next boot has {words}, this one has not"
            yield Check("tuning.reboot-required", host, Status.WARN, fact, "", "reboot the node when it suits you")
        else:
            fact = f"neither this boot nor the next one has {words}"
            remedy = SITE if tuning["grub"] else "set it in the boot loader of this machine; there is no update-grub"
            yield Check("tuning.reboot-required", host, Status.WARN, fact, f"kernel arguments {words}", remedy)
