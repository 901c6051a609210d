"""Checks of the node itself: can it be reached, is it a Spark, does Docker work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .daemon_config import DaemonConfigError, merge, parse, restarts
from .facts import NodeFacts, engine_runs
from .intent import Intent

# The oldest Python that the node's own start-up check is written for: Debian 12 has 3.11, DGX OS 7 has 3.12.
PYTHON_MINIMUM = (3, 11)
GPU_NAME = "GB10"


@rule("node.reachable", "The node answers over SSH and sudo works.", *Stage)
def reachable(cluster: Cluster) -> Iterator[Check]:
    """A node that does not answer stops the verb before any other node is changed."""
    for host, intent in cluster.intents.items():
        facts: NodeFacts = cluster.facts.get(host, {"reachable": False, "reason": "it was not asked"})
        if facts["reachable"] and facts["privileged"]:
            yield Check("node.reachable", host, Status.OK, "it answers and sudo works")
            continue
        fact, remedy = _unreachable(facts, intent)
        yield Check("node.reachable", host, Status.REFUSE, fact, "every node answers, with sudo", remedy)


def _unreachable(facts: NodeFacts, intent: Intent) -> tuple[str, str]:
    if facts["reachable"]:
        return "the account is not root and sudo was not used", "set ansible_become: true"
    reason = facts.get("reason", "no reason was given")
    return (
        f"no usable connection to {intent.management}: {reason}",
        "check the address, the key and the host key with ssh, and sudo with -K",
    )


@rule("node.python", "Python is new enough for the node's own start-up check.", Stage.PREFLIGHT, needs="platform")
def python(cluster: Cluster) -> Iterator[Check]:
    """The start-up check runs on the node's own Python."""
    limit = ".".join(map(str, PYTHON_MINIMUM))
    for host, platform, _ in cluster.having("platform"):
        version = platform["python"]
        good = tuple(int(part) for part in version.split(".")[:2]) >= PYTHON_MINIMUM
        status = Status.OK if good else Status.REFUSE
        yield Check("node.python", host, status, f"Python is {version}", f"{limit} or newer", "install DGX OS 7")


@rule("platform.gpu", "The GPU is a GB10; unknown hardware is refused.", Stage.PREFLIGHT, needs="platform")
def gpu(cluster: Cluster) -> Iterator[Check]:
    """Every figure of this project is one of the GB10, so another GPU fails closed."""
    for host, platform, _ in cluster.having("platform"):
        names = platform["gpus"]
        good = len(names) == 1 and GPU_NAME in names[0]
        fact = f"nvidia-smi shows {', '.join(names)}" if names else "nvidia-smi shows no GPU"
        yield Check(
            "platform.gpu",
            host,
            Status.OK if good else Status.REFUSE,
            fact,
            f"one {GPU_NAME}",
            "check the driver with nvidia-smi, or take the node out of the inventory",
        )


@rule(
    "platform.dgx-os",
    "The system is DGX OS; another Ubuntu on a GB10 is only warned about.",
    Stage.PREFLIGHT,
    needs="platform",
)
def dgx_os(cluster: Cluster) -> Iterator[Check]:
    """Stock Ubuntu on a GB10 has no /etc/dgx-release; it works, but nobody has published figures for it."""
    for host, platform, _ in cluster.having("platform"):
        dgx = platform["dgx"]
        if dgx is None:
            fact = f"no /etc/dgx-release; the system is {platform['os_id']} {platform['os_version']}"
            yield Check("platform.dgx-os", host, Status.WARN, fact, "DGX OS 7", "expect differences after updates")
            continue
        ota = dgx.get("DGX_OTA_VERSION", "none")
        yield Check("platform.dgx-os", host, Status.OK, f"{dgx.get('DGX_NAME', 'DGX')} with OTA {ota}")


@rule("platform.same-software", "All nodes run one kernel and one GPU driver.", Stage.PREFLIGHT, needs="platform")
def same_software(cluster: Cluster) -> Iterator[Check]:
    """Nodes of different kernels or drivers are the usual state after an update that reached only some of them."""
    found = {h: f"kernel {p['kernel']}, driver {p['driver'] or 'none'}" for h, p, _ in cluster.having("platform")}
    if not found:
        return
    usual, _ = Counter(found.values()).most_common(1)[0]
    for host, software in found.items():
        status = Status.OK if software == usual else Status.WARN
        yield Check("platform.same-software", host, status, software, f"as on the others: {usual}", "update the node")


@rule("runtime.docker", "Docker answers.", Stage.PREFLIGHT, Stage.LAUNCH, needs="runtime")
def docker(cluster: Cluster) -> Iterator[Check]:
    """DGX OS ships Docker; this project configures it and never installs it."""
    for host, runtime, _ in cluster.having("runtime"):
        version = runtime["version"]
        yield Check(
            "runtime.docker",
            host,
            Status.OK if version else Status.REFUSE,
            f"Docker {version}" if version else f"Docker does not answer: {runtime['error']}",
            "a running Docker",
            "look at `systemctl status docker`; on DGX OS reinstall docker-ce",
        )


@rule(
    "runtime.gpu", "Docker knows the NVIDIA runtime, where the profile uses the GPU.", Stage.PREFLIGHT, needs="runtime"
)
def runtime_gpu(cluster: Cluster) -> Iterator[Check]:
    """Without the runtime `--gpus all` fails only when the container starts."""
    for host, runtime, intent in cluster.having("runtime"):
        if intent.accelerator != "cuda":
            continue
        known = ", ".join(runtime["runtimes"]) or "none"
        yield Check(
            "runtime.gpu",
            host,
            Status.OK if "nvidia" in runtime["runtimes"] else Status.REFUSE,
            f"Docker's runtimes are {known}",
            "nvidia among them",
            "run `nvidia-ctk runtime configure --runtime=docker` and restart Docker",
        )


@rule("runtime.config", "Docker's configuration can be merged with ours.", Stage.PREFLIGHT, needs="runtime")
def runtime_config(cluster: Cluster) -> Iterator[Check]:
    """The user's keys win; a contradiction is named and nothing is overwritten."""
    for host, runtime, intent in cluster.having("runtime"):
        try:
            current = parse(runtime["daemon_json"])
            changes = restarts(current, merge(current, intent.daemon_config))
        except DaemonConfigError as error:
            remedy = "correct the file, or set container_runtime_daemon_config to the value you want"
            yield Check("runtime.config", host, Status.REFUSE, str(error), "a file that agrees with ours", remedy)
            continue
        if changes and engine_runs(cluster.facts[host]):
            fact, limit = "daemon.json would change, which restarts Docker", "no restart while the engine serves"
            yield Check("runtime.config", host, Status.REFUSE, fact, limit, "run playbooks/stop.yml first")
            continue
        yield Check("runtime.config", host, Status.OK, "daemon.json agrees with ours")
