"""What contradicts itself in a serving profile, or can never work on the nodes; known before any host is contacted.

The profile has passed its schema. Each rule yields what is wrong, with its numbers and the limit, and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import profiles
from .capacity import CapacityError, KvLayout, bytes_for, largest_context
from .meminfo import CLASSES_KB, GIB, KIB, SYSTEM_BYTES
from .memory_need import MemoryNeed
from .model_shape import ModelShapeError
from .option_values import Finding
from .own_ports import ROLL_PORT, SPANS
from .profiles import Profile

# How an image is named that nobody has patched.
STOCK_IMAGE = "vllm/vllm-openai"
# The patch by which a draft of several tokens knows the target's DCP, as profiles list it.
DRAFT_PATCH = "draft-dcp"
# Without it the ranks of several nodes hang in the broadcast before the load.
RAY_SWITCH = "VLLM_DISABLE_TP_MQ_BROADCASTER"
# The largest cluster, see inventory_rules.NODE_LIMITS; tensor parallel sizes are powers of two.
TP_SIZES = (1, 2, 4, 8)
# Where the kernel of a node begins to take ports for connections that go out (net.ipv4.ip_local_port_range).
EPHEMERAL = 32768

SMALLEST, LARGEST = min(CLASSES_KB) * KIB, max(CLASSES_KB) * KIB


def contradictions(profile: Profile, image: str = "") -> list[Finding]:
    """Everything that is wrong with a profile by itself; `image` is the reference that the nodes would run."""
    try:
        profiles.layout(profile)
    except (ModelShapeError, CapacityError) as error:
        return [(f"describes a cache that cannot be computed: {error}", "correct model and engine_args")]
    # Of weights that never fit, no size of a cache makes a launch.
    sizes = list(_weights(profile)) or [*_cache(profile), *_share(profile)]
    return [*_image_findings(profile, image), *sizes, *(found for rule in RULES for found in rule(profile))]


def shape_findings(count: int, tp: int, pp: int, dcp: int) -> Iterator[Finding]:
    """Whether ranks and nodes agree; one node has one GPU."""
    world = tp * pp
    if world != count:
        what = f"needs {nodes_text(world)} (tp {tp} x pp {pp}, one GPU a node) and the group sparks has {count}"
        yield what, f"choose a profile for {nodes_text(count)} or list {nodes_text(world)}"
    if tp & (tp - 1):
        yield f"has tp {tp}; limit: a power of two", "write tp 1, 2, 4 or 8 and reach the rest with pp"
    if tp % dcp:
        yield f"has dcp {dcp}, which does not divide tp {tp}", f"write a dcp that divides {tp}"


def weights_findings(profile: Profile, count: int) -> Iterator[Finding]:
    """Whether that many nodes can ever hold the weights; the largest power of two that they make computes."""
    tp = max(size for size in TP_SIZES if size <= count)
    if profile["accelerator"] != "cuda" or _fits(resized(profile, tp)):
        return
    enough = next((size for size in TP_SIZES if size > tp and _fits(resized(profile, size))), None)
    remedy = f"use {nodes_text(enough)}, the fewest that can" if enough else "choose smaller weights"
    yield f"can never run on {nodes_text(count)}: {_too_much(resized(profile, tp), f'tp {tp}')}", remedy


def resized(profile: Profile, tp: int) -> Profile:
    """The same profile on that many nodes."""
    return {**profile, "parallel": {"tp": tp, "pp": 1, "dcp": min(tp, profile["parallel"]["dcp"])}}


def nodes_text(number: int) -> str:
    """A number of nodes in words."""
    return "1 node" if number == 1 else f"{number} nodes"


def captured(largest: int) -> int:
    """The largest batch that the engine captures when its maximum is `largest`: it is cut to 1, 2, 4, 8, 16, 24, ...

    Steps of 8 up to 256, of 16 above (vLLM, VllmConfig._set_cudagraph_sizes).
    """
    if largest < 8:
        return max(size for size in (0, 1, 2, 4) if size <= largest)
    return largest - largest % (8 if largest < 256 else 16)


def _least(profile: Profile) -> int:
    """The fewest bytes that a rank needs; a cache that sizes itself is looked at by a rule of its own."""
    need = profiles.memory_need(profile, head=True)
    return need.fixed + need.kv_cache + need.services + need.floor


def _fits(profile: Profile) -> bool:
    return _least(profile) <= LARGEST - SYSTEM_BYTES


def _too_much(profile: Profile, shape: str) -> str:
    most, least = (LARGEST - SYSTEM_BYTES) / GIB, _least(profile) / GIB
    limit = f"{most:.2f} GiB, by our estimate the most that a GB10 has available"
    return f"a rank of {shape} needs {least:.2f} GiB; limit: {limit}"


def _weights(profile: Profile) -> Iterator[Finding]:
    pp = profile["parallel"]["pp"]
    if pp == 1:
        yield from weights_findings(profile, profiles.ranks(profile))
    elif profile["accelerator"] == "cuda" and not _fits(profile):
        yield f"can never run: {_too_much(profile, f'pp {pp}')}", "choose smaller weights or more nodes"


def _draft_patch(profile: Profile) -> Iterator[Finding]:
    guessed, dcp = profiles.draft_tokens(profile), profile["parallel"]["dcp"]
    if guessed > 1 and dcp > 1 and DRAFT_PATCH not in profile.get("image", {}).get("patches", []):
        yield (
            f"guesses {guessed} tokens with dcp {dcp} on an image without the patch {DRAFT_PATCH}; limit: 1 token, as "
            "the draft would run with DCP 1 on a sharded cache and all later guesses be wrong",
            f"use an image with the patch and list {DRAFT_PATCH} in image.patches, or write num_speculative_tokens: 1",
        )


def _capture(profile: Profile) -> Iterator[Finding]:
    guessed = profiles.draft_tokens(profile)
    largest = profile.get("engine_args", {}).get("max-cudagraph-capture-size")
    if not guessed or not largest or captured(largest) > guessed:
        return
    enough = next(size for size in range(guessed + 1, 1024) if captured(size) > guessed)
    yield (
        f"captures graphs of up to {captured(largest)} tokens (max-cudagraph-capture-size {largest} is cut to 1, 2, 4, "
        f"8, 16, 24, ...); limit: at least {guessed + 1}, one step with {guessed} guessed tokens",
        f"write max-cudagraph-capture-size: {enough} or more",
    )


def _draft_layer(profile: Profile) -> Iterator[Finding]:
    found = profiles.shape(profile)
    if profiles.drafts_with_own_layer(profile) and found is not None and not found.draft_layers:
        yield (
            "guesses tokens with the MTP layer of a model that has none (model.num_nextn_predict_layers is 0)",
            "use a checkpoint with its MTP layer, name a draft in weights.draft, or remove speculative-config",
        )


def _cache(profile: Profile) -> Iterator[Finding]:
    """Whether one request of full length fits into a cache of a fixed size; the engine refuses to start otherwise."""
    need = profiles.memory_need(profile, head=True)
    if not need.block or not need.context or not need.kv_cache:
        return
    least = bytes_for(need.block, need.context)
    if need.kv_cache < least:
        most = largest_context(need.kv_cache, need.block)
        dtype = profile.get("engine_args", {}).get("kv-cache-dtype", "auto")
        yield (
            f"has a KV cache of {need.kv_cache} bytes a rank in {dtype}; limit: {least} bytes for one request of "
            f"{need.context} tokens",
            f"write memory.kv_cache_bytes: {least}, or a context of at most {most} tokens",
        )


def _share(profile: Profile) -> Iterator[Finding]:
    """Whether the share of the memory that the engine asks for can be had and is enough, on the weakest node."""
    need = profiles.memory_need(profile, head=True)
    if profile["accelerator"] != "cuda" or profile["executor"] == "llamacpp":
        return
    spare = need.floor + need.services if need.sizes_itself else 0
    most = int(100 * (SMALLEST - SYSTEM_BYTES - spare) / SMALLEST) / 100
    if not need.utilization and not need.kv_cache:
        yield "lets the engine size its cache without a share to size it by", "write memory.utilization"
    elif need.utilization > most:
        yield (
            f"asks for {need.utilization} of the memory, {need.asked(SMALLEST) / GIB:.2f} GiB of the weakest node's "
            f"{SMALLEST / GIB:.2f}; limit: {most:.2f}, which leaves it the system and the floor",
            f"write memory.utilization: {most:.2f} or less",
        )
    elif need.sizes_itself and need.block and need.context:
        yield from _room(need, need.block, most)


def _room(need: MemoryNeed, block: KvLayout, most: float) -> Iterator[Finding]:
    """Whether a cache that sizes itself holds one request; `most` is the largest share that the weakest node has."""
    least, left = bytes_for(block, need.context), need.cache(SMALLEST)
    if left >= least:
        return
    longest = largest_context(left, block)
    shorter = f"a context of at most {longest} tokens" if longest else "more nodes"
    wanted = -(-100 * (need.fixed + least) // SMALLEST) / 100
    yield (
        f"leaves {left / GIB:.2f} GiB of KV cache at memory.utilization {need.utilization} on the weakest node; limit: "
        f"{least / GIB:.2f} GiB for one request of {need.context} tokens",
        f"write memory.utilization: {wanted:.2f}, or {shorter}" if wanted <= most else f"choose {shorter}",
    )


def _shared_memory(profile: Profile) -> Iterator[Finding]:
    container = profile.get("container", {})
    if container.get("ipc") == "host" and container.get("shm_size"):
        yield (
            f"has container.shm_size {container['shm_size']} with container.ipc host, where Docker ignores it and "
            "/dev/shm is the node's",
            "remove container.shm_size, or container.ipc",
        )


def _early_oom(profile: Profile) -> Iterator[Finding]:
    memory = profile["memory"]
    line, floor = memory.get("earlyoom_gib", 0), memory["floor_gib"]
    if line >= floor and line:
        yield (
            f"has earlyoom end processes below {line} GiB; limit: less than the planned floor of {floor} GiB, which a "
            "healthy launch reaches",
            f"write memory.earlyoom_gib below {floor}",
        )


def _ray_switch(profile: Profile) -> Iterator[Finding]:
    set_to = str(profile.get("engine_env", {}).get(RAY_SWITCH, "unset"))
    if profile["executor"] == "ray" and profiles.ranks(profile) > 1 and set_to != "1":
        yield (
            f"has {RAY_SWITCH} {set_to} with the executor ray; limit: 1, as several nodes otherwise hang before the "
            "load",
            f"write {RAY_SWITCH}: 1 in engine_env",
        )


def _ports(profile: Profile) -> Iterator[Finding]:
    """Whether the ports of the ranks are clear of the API and of what the kernel hands out."""
    serve = profile["serve"]
    first, api, roll = serve["master_port"], serve["port"], serve.get("roll_port", ROLL_PORT)
    count = SPANS.get(profile["executor"], 1)
    last = first + count - 1
    ports = f"serve.master_port {first}"
    if count > 1:
        ports += f", from which on {profile['executor']} takes {count} ports"
    if first <= api <= last:
        yield f"has {ports} and the API on {api}; limit: each port once", "choose another serve.port"
    if first <= roll <= last or roll == api:
        yield (
            f"has {ports}, the API on {api} and the roll call on {roll}; limit: each port once",
            "choose another serve.roll_port",
        )
    # A single port is taken long before the kernel hands it out.
    if count > 1 and last >= EPHEMERAL:
        what = f"has {ports}; limit: below {EPHEMERAL}, where the kernel begins to hand out ports itself"
        yield what, f"write serve.master_port: {EPHEMERAL - count} or less"


def _image_findings(profile: Profile, image: str) -> Iterator[Finding]:
    patches = profile.get("image", {}).get("patches", [])
    if patches and image.split(":")[0].removeprefix("docker.io/") == STOCK_IMAGE:
        yield (
            f"needs an image with {', '.join(patches)} and engine_image_ref is {image}, the stock image",
            "build or load such an image and name it in engine_image_ref",
        )


RULES: tuple[Callable[[Profile], Iterator[Finding]], ...] = (
    _draft_patch,
    _capture,
    _draft_layer,
    _shared_memory,
    _early_oom,
    _ray_switch,
    _ports,
)
