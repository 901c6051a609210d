"""What is broken on one node, and the exact lines of the refusal; unit tests hold the same lines against the code."""

from __future__ import annotations

from pathlib import Path

HEALTHY = Path(__file__).resolve().parents[1] / "healthy"
PROFILE = "glm52-nvfp4-dcp4-mtp3-128k"
ADMITTED = "cluster: admitted; the tightest node is spark1 with 4.93 GiB to spare"
# pid, name and MiB of an engine that has lost its container, as nvidia-smi shows it.
ORPHAN = "4711, VLLM::EngineCore, 106496"

WORKER = "weights 95.50, KV cache 1.69, graphs 1.00, activations 2.00, runtime 3.00, services 0.27, floor 3.00"
GUARD = "limit: 109.51 GiB (0.9 of 121.68)"
STOP = "remedy: stop pid 4711 (VLLM::EngineCore, 104.00 GiB)"
GPU_LIMIT = "limit: at most 1.00 GiB each before a launch"

# {what is broken: (node, {figure of /proc/meminfo: kB}, lines of nvidia-smi, lines of the refusal)}.
CASES: dict[str, tuple[str, dict[str, int], str, list[str]]] = {
    "one node is short": (
        "spark3",
        {"MemAvailable": 111_000_000},
        "",
        [
            f"spark3: MemAvailable is 105.86 GiB; limit: 106.46 GiB ({WORKER}); remedy: set the profile's"
            " memory.kv_cache_bytes to at most 1162860544 and its context to at most 84736 tokens",
            f"spark3: MemAvailable is 105.86 GiB; {GUARD}; remedy: set the profile's memory.utilization to at most"
            f" 0.86",
        ],
    ),
    "an orphan engine holds the GPU": (
        "spark2",
        {"MemAvailable": 10_000_000},
        ORPHAN,
        [
            f"spark2: the GPU is held by pid 4711 (VLLM::EngineCore, 104.00 GiB); {GPU_LIMIT}; {STOP}",
            f"spark2: MemAvailable is 9.54 GiB; limit: 106.46 GiB ({WORKER}); {STOP}",
            f"spark2: MemAvailable is 9.54 GiB; {GUARD}; {STOP}",
        ],
    ),
    "the swap is in use": (
        "spark4",
        {"SwapFree": 15_204_348},
        "",
        [
            "spark4: 1.50 GiB lie in the swap; limit: 0.06 GiB before a launch; remedy: run `swapoff -a && swapon -a`,"
            " which takes 2.50 GiB, or set serving_free_memory: true",
        ],
    ),
    "a node of the smaller class": (
        "spark2",
        {"MemTotal": 125_508_000, "MemAvailable": 112_500_000},
        "",
        [
            "spark2: MemAvailable is 107.29 GiB; limit: 107.72 GiB (0.9 of 119.69); remedy: set the profile's"
            " memory.utilization to at most 0.89",
        ],
    ),
    "a kernel that hands memory over": (
        "spark1",
        {"CmaFree": 9_740_000},
        "",
        [
            "spark1: CmaFree is 9740000 kB with CmaTotal 65536 kB; limit: CmaFree at most CmaTotal; remedy: boot kernel"
            " 6.17, or add kho=off by a drop-in under /etc/default/grub.d and reboot",
        ],
    ),
    "the page cache would do": (
        "spark4",
        {"MemAvailable": 114_700_000},
        "",
        [
            f"spark4: MemAvailable is 109.39 GiB; {GUARD}; remedy: drop the page cache, which gives back 0.14 GiB"
            " (serving_free_memory: true)",
        ],
    ),
}


def meminfo(changes: dict[str, int]) -> str:
    """The figures of a healthy node with changes, as the kernel writes them."""
    found = dict(line.split(":", 1) for line in (HEALTHY / "meminfo").read_text(encoding="utf-8").splitlines())
    whole = found | {name: f"{kb:>15} kB" for name, kb in changes.items()}
    return "".join(f"{name}:{figure}\n" for name, figure in whole.items())
