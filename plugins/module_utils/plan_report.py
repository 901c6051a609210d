"""What a profile takes of every node, before there is any: the text of playbooks/plan.yml, and the same as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import profiles
from .address_plan import SWITCH
from .capacity import bytes_for, capacity, largest_context
from .executors import Commands, commands_of
from .intent import Intent, RailEnd
from .launch import engine_environment
from .meminfo import CLASSES_KB, GIB, KIB, SYSTEM_BYTES, shown_parts
from .memory_need import MemoryNeed
from .nccl_env import forbidden
from .option_values import Finding
from .profile_rules import TP_SIZES, contradictions, nodes_text, resized
from .profiles import Profile

# Stand in for what only an inventory knows: rail addresses as in inventory/spark4, a management address of RFC 5737.
RAIL, API = "192.168.100.", "192.0.2.11"
FIRST = 10


@dataclass(frozen=True)
class CapacityPlan:
    """A profile on a number of nodes, with what is wrong about it."""

    name: str
    profile: Profile
    count: int
    refusals: Sequence[Finding]

    @property
    def need(self) -> MemoryNeed | None:
        """What rank 0 takes; None where the profile's cache cannot be computed, which is a refusal."""
        return _need(self.profile)


def plan_for(name: str, profile: Profile, count: int | None = None, image: str = "") -> CapacityPlan:
    """Plan a profile as it is, or resized to another number of nodes: the largest power of two of them computes."""
    wanted = profiles.ranks(profile)
    if count is None or count == wanted:
        return CapacityPlan(name, profile, wanted, _refusals(profile, image))
    tp = max(size for size in TP_SIZES if size <= count)
    other = resized(profile, tp)
    shape = other["parallel"]
    written = f"{{tp: {tp}, pp: 1, dcp: {shape['dcp']}}}"
    finding = (
        f"is for {nodes_text(wanted)}, and planned here for {nodes_text(count)} with parallel: {written}",
        f"copy it and write parallel: {written}",
    )
    return CapacityPlan(name, other, count, [finding, *_refusals(other, image)])


def report(plan: CapacityPlan) -> str:
    """The plan for a person."""
    lines = [f"{plan.name} on {nodes_text(plan.count)}: {plan.profile['summary']}", ""]
    need = plan.need
    if need is not None:
        lines += [*_weights(plan.profile, need), *_cache(plan.profile, need), "", *_table(need), ""]
    lines += [f"refused: {line}" for line in refusal_lines(plan)] or ["no refusal"]
    return "\n".join(lines)


def as_data(plan: CapacityPlan) -> dict[str, Any]:
    """The plan for machines: bytes, tokens, refusals, and the commands of head and worker."""
    need = plan.need
    data: dict[str, Any] = {
        "profile": plan.name,
        "nodes": plan.count,
        "refusals": refusal_lines(plan),
        "commands": {role: _command_data(plan.profile, rank) for role, rank in (("head", 0), ("worker", 1))},
    }
    if need is None:
        return data
    totals = {f"{kb * KIB / GIB:.2f}": kb * KIB for kb in CLASSES_KB}
    data["memory"] = {name: {**need.parts(size), "needed": need.required(size)} for name, size in totals.items()}
    if need.block and need.context and need.kv_cache:
        found = capacity(need.kv_cache, need.block, need.context)
        data["kv_cache"] = {"blocks": found.blocks, "tokens": found.tokens, "concurrency": round(found.concurrency, 2)}
    return data


def refusal_lines(plan: CapacityPlan) -> list[str]:
    """What cannot work, one line each."""
    return [f"the profile {plan.name} {what}; remedy: {remedy}" for what, remedy in plan.refusals]


def example_intent(profile: Profile, rank: int) -> Intent:
    """A node of a cluster that does not exist, to show commands with."""
    count = profiles.ranks(profile)
    addresses = [f"{RAIL}{FIRST + number}" for number in range(count)]
    peers = {f"spark{n + 1}": address for n, address in enumerate(addresses) if n != rank}
    rail = RailEnd("rail0", "enp1s0f0np0", addresses[rank], f"{addresses[rank]}/24", 9000, peers)
    return Intent(
        host=f"spark{rank + 1}",
        rank=rank,
        world_size=count,
        management=API,
        head="spark1",
        head_address=addresses[0],
        topology=SWITCH,
        rails=(rail,),
        socket_netdev=rail.netdev,
        socket_address=rail.address,
        socket_peers=rail.peers,
        accelerator=profile["accelerator"],
        memory=MemoryNeed(0, 0, 0, 0, 0, 0),
        weights_path="",
        weights_pushed=False,
        image="",
        image_id="",
        api_host=API,
        api_port=profile["serve"]["port"],
        master_port=profile["serve"]["master_port"],
        executor=profile["executor"],
    )


def example_commands(profile: Profile, rank: int) -> tuple[Commands, dict[str, str]]:
    """The commands and the environment of a rank of that cluster."""
    commands = commands_of(profile, example_intent(profile, rank))
    return commands, engine_environment(profile, commands)


def _refusals(profile: Profile, image: str) -> list[Finding]:
    """What is wrong whatever the nodes are like; without an inventory they are taken to be on a switch."""
    nccl = forbidden(profile.get("nccl_env", {}), SWITCH, 0)
    return [*((f"breaks every launch: {what}", remedy) for what, remedy in nccl), *contradictions(profile, image)]


def _need(profile: Profile) -> MemoryNeed | None:
    try:
        return profiles.memory_need(profile, head=True)
    except ValueError:
        return None


def _command_data(profile: Profile, rank: int) -> dict[str, Any]:
    commands, environment = example_commands(profile, min(rank, profiles.ranks(profile) - 1))
    return {"container": commands.container, "serve": commands.serve, "environment": environment}


def _weights(profile: Profile, need: MemoryNeed) -> Iterator[str]:
    weights, repeated = profile["weights"], profile["weights"].get("repeated_bytes", 0)
    yield f"weights   {weights['bytes'] / 1e9:.1f} GB, {need.weights / GIB:.2f} GiB a rank"
    if repeated:
        yield f"          {repeated / GIB:.2f} GiB of them on every rank, the rest split by {need.ways}"
    if need.draft:
        yield f"          {need.draft / GIB:.2f} GiB of them are the draft"


def _cache(profile: Profile, need: MemoryNeed) -> Iterator[str]:
    block, context = need.block, need.context
    if block is None:
        yield "KV cache  not computed: the profile states no model"
        return
    yield f"KV cache  blocks of {block.block_tokens} tokens and {block.block_bytes} bytes a rank"
    if not context:
        return
    if need.sizes_itself:
        yield from _sized(need, context)
    elif need.kv_cache:
        found = capacity(need.kv_cache, block, context)
        yield f"          {need.kv_cache} bytes are {found.blocks} blocks"
        yield f"          the engine will print {found.tokens:,} tokens, {found.concurrency:.2f}x of {context:,}"
        yield f"          longest context that fits: {largest_context(need.kv_cache, block):,} tokens"
    sequences = int(profile.get("engine_args", {}).get("max-num-seqs", 1))
    requests = "1 request" if sequences == 1 else f"{sequences} requests at once"
    yield f"          {requests} of {context:,} tokens: {bytes_for(block, context, sequences)} bytes"


def _sized(need: MemoryNeed, context: int) -> Iterator[str]:
    """What the engine leaves itself depends on what it measures; the parts below are what is planned with."""
    for kb in CLASSES_KB:
        left = need.cache(kb * KIB)
        found = capacity(left, need.block, context) if need.block else None
        yield f"          about {left / GIB:.2f} GiB on a node of {kb * KIB / GIB:.2f}: about {found} of {context:,}"


def _table(need: MemoryNeed) -> Iterator[str]:
    """A line a part and a column a class of nodes; what is shown adds up."""
    totals = [kb * KIB for kb in CLASSES_KB]
    columns = [shown_parts(need.parts(total)) for total in totals]
    most = [f"{(total - SYSTEM_BYTES) / GIB:.2f}" for total in totals]
    rows = [["GiB of rank 0 on a node of", *(f"{total / GIB:.2f}" for total in totals)]]
    rows += [[name, *(shown.get(name, "0.00") for _, shown in columns)] for name in columns[0][1]]
    rows.append(["needed", *(total for total, _ in columns)])
    if need.utilization:
        rows.append([f"boot guard at {need.utilization}", *(f"{need.asked(total) / GIB:.2f}" for total in totals)])
    rows.append(["available at the most", *most])
    wide = max(len(row[0]) for row in rows)
    yield from (f"{row[0].ljust(wide)}  {'  '.join(cell.rjust(7) for cell in row[1:])}" for row in rows)


def command_lines(argv: Sequence[str]) -> list[str]:
    """A command for a person, a flag with its value a line; nothing is ever run from this text."""
    lines = [""]
    for word in argv:
        if word.startswith("--"):
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
