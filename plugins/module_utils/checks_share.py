"""Checks of how the weights reach the nodes: exports, mounts and copies, and that caches are not shared."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import Check, Cluster, Stage, Status, rule
from .facts import NodeFacts, Share, engine_runs
from .fanout import GB, lacking, room_needed, surplus
from .intent import Intent
from .mounts import on_network
from .names import EXPORTS_FILE, NFS_SERVER_UNIT
from .safetensors_index import complete, total_bytes
from .share import (
    COPY,
    NFS,
    RDMA,
    ShareWish,
    is_due,
    kernel_needs,
    mount_faults,
    server_fault,
    strangers,
    unexported,
    unit_name,
)

SITE = "run site.yml, which sets it up"
# Bytes that a copy leaves free, for logs and caches.
MARGIN = 2 * GB


@rule("share.kernel", "The kernel has what sharing the weights needs.", Stage.PREFLIGHT, needs="share")
def kernel(cluster: Cluster) -> Iterator[Check]:
    """A container has no NFS of its own, whatever the kernel around it can do."""
    for host, share, intent in cluster.having("share"):
        needed = kernel_needs(intent.share)
        if not needed:
            continue
        lacks = [name for name in needed if name not in share["kernel"]]
        fact = f"its kernel has {', '.join(needed)}"
        if lacks:
            fact = f"its kernel has no {', '.join(lacks)}"
        elif share["container"]:
            fact = "it is a container, and NFS belongs to the machine around it"
        yield Check(
            "share.kernel",
            host,
            Status.REFUSE if lacks or share["container"] else Status.OK,
            fact,
            f"{', '.join(needed)} of its own for model_store_share nfs",
            "set model_store_share to copy, or boot a kernel with NFS",
        )


@rule(
    "share.due", "The weights can be shared: nothing serves from what must be changed.", Stage.PREFLIGHT, needs="share"
)
def due(cluster: Cluster) -> Iterator[Check]:
    """A mount is not taken away from an engine, nor a disk of the user's, and no data are written into one."""
    for host, share, intent in cluster.having("share"):
        mount, unit = share["mount"], unit_name(intent.share.path)
        if mount and mount["fstype"].startswith("nfs") and intent.share.holds_data:
            fact = f"{intent.share.path} is mounted from {mount['source']}"
            limit = f"a directory of its own, for model_store_share {intent.share.mode}"
            remedy = f"run `systemctl disable --now {unit}`, or unmount it"
            yield Check("share.due", host, Status.REFUSE, fact, limit, remedy)
        elif mount and not mount["fstype"].startswith("nfs") and intent.share.server:
            fact = f"{mount['source']} ({mount['fstype']}) is mounted on {intent.share.path}"
            limit = "nothing but the NFS mount, for which it would have to give way"
            remedy = "unmount it and take it out of /etc/fstab, or set model_store_path to another directory"
            yield Check("share.due", host, Status.REFUSE, fact, limit, remedy)
        elif intent.share.mode == NFS:
            waits = is_due(intent.share, share)
            yield Check(
                "share.due",
                host,
                Status.REFUSE if waits and engine_runs(cluster.facts[host]) else Status.OK,
                "its mount or export is not as it should be" if waits else "its mount or export is as it should be",
                "no change while the engine serves",
                "run playbooks/stop.yml first",
            )


@rule("share.room", "There is room for the copy of the weights.", Stage.PREFLIGHT, needs="share")
def room(cluster: Cluster) -> Iterator[Check]:
    """A disk that is full after 300 GB has cost the time of 300 GB."""
    for host, share, intent in _copying(cluster):
        needed = _bytes_to_copy(cluster, host, intent)
        if needed is None:
            continue
        free = share["disk_free"] - needed
        yield Check(
            "share.room",
            host,
            Status.OK if free >= MARGIN or not needed else Status.REFUSE,
            f"{share['disk_free'] / GB:.2f} GB are free at {intent.share.path}, {needed / GB:.2f} GB are to be copied",
            f"{MARGIN / GB:.0f} GB left",
            "free some space, or set model_store_path to a larger disk",
        )


def _bytes_to_copy(cluster: Cluster, host: str, intent: Intent) -> int | None:
    """From what the head has, or what a run brings to it; None while nobody knows."""
    facts, own = cluster.facts.get(intent.head), cluster.facts[host]
    if "weights" not in own:
        return None
    if facts and "share" in facts and complete(facts["weights"]):
        return room_needed(host, intent.head, cluster.intents, cluster.facts)
    whole = total_bytes(cluster.source) if cluster.source else intent.checkpoint.disk
    return max(0, whole - total_bytes(own["weights"])) if whole else None


@rule("share.copied", "Every file of the weights is on the node as on the head.", Stage.WEIGHTS, needs="share")
def copied(cluster: Cluster) -> Iterator[Check]:
    """Tokenizer and configuration have no header that tells of damage."""
    for host, share, intent in _copying(cluster):
        head: NodeFacts = cluster.facts.get(intent.head, {})
        if "share" not in head:
            continue
        files = head["share"]["files"]
        wrong = [
            *(f"other or missing: {name}" for name in sorted(lacking(share["files"], files))),
            *(f"surplus: {name}" for name in surplus(share["files"], files)),
        ]
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        yield Check(
            "share.copied",
            host,
            Status.REFUSE if wrong else Status.OK,
            f"{', '.join(wrong[:3])}{more}" if wrong else f"{len(files)} files are as on {intent.head}",
            f"all {len(files)} files as on {intent.head}",
            "run site.yml, which copies what differs",
        )


def _copying(cluster: Cluster) -> Iterator[tuple[str, Share, Intent]]:
    """The nodes to which the weights are copied from another one."""
    for host, share, intent in cluster.having("share"):
        if intent.share.mode == COPY and not intent.is_head:
            yield host, share, intent


@rule(
    "share.server",
    "The NFS server runs, on the rails alone, and takes connections.",
    Stage.WEIGHTS,
    Stage.LAUNCH,
    needs="share",
)
def server(cluster: Cluster) -> Iterator[Check]:
    """Asked of the node that exports, and of each client by a connection."""
    for host, share, intent in cluster.having("share"):
        wish = intent.share
        if wish.clients:
            fault = server_fault(wish, share)
            yield Check(
                "share.server",
                host,
                Status.REFUSE if fault else Status.OK,
                fault or f"its NFS server listens with {share['threads']} threads",
                f"a server on {', '.join(wish.listen)} alone",
                f"look at `systemctl status {NFS_SERVER_UNIT}`, then {SITE}",
            )
        if wish.server:
            yield Check(
                "share.server",
                host,
                Status.OK if share["reached"] else Status.REFUSE,
                f"{wish.server} {'takes' if share['reached'] else 'does not take'} a connection on port 2049",
                "an NFS server that answers",
                f"look at `systemctl status {NFS_SERVER_UNIT}` on {_server_name(intent)}, and at the rail",
            )


@rule("share.export", "The weights are exported to each client, read-only.", Stage.WEIGHTS, Stage.LAUNCH, needs="share")
def export(cluster: Cluster) -> Iterator[Check]:
    """What the server was really told, and not what stands in a file."""
    for host, share, intent in cluster.having("share"):
        wish = intent.share
        if wish.clients:
            missing = unexported(wish, share)
            shown = f"it does not export {wish.path} to {', '.join(missing)}"
            yield Check(
                "share.export",
                host,
                Status.REFUSE if missing else Status.OK,
                shown if missing else f"it exports {wish.path} to {len(wish.clients)} addresses",
                "read-only, with root_squash, to every address of a client",
                f"run `exportfs -ra`, and site.yml if {EXPORTS_FILE} was changed",
            )


@rule("share.closed", "Nobody else can mount the weights, and nobody can write to them.", Stage.WEIGHTS, needs="share")
def closed(cluster: Cluster) -> Iterator[Check]:
    """An export of a directory around the weights gives them away as well."""
    for host, share, intent in cluster.having("share"):
        if intent.share.clients:
            found = [f"{export['path']} to {export['client']}" for export in strangers(intent.share, share)]
            yield Check(
                "share.closed",
                host,
                Status.REFUSE if found else Status.OK,
                f"it exports {', '.join(found)}" if found else f"it exports {intent.share.path} to clients alone",
                "read-only, to the addresses of the other nodes on the rails",
                "take that line out of /etc/exports or /etc/exports.d, then run `exportfs -ra`",
            )


@rule("share.mount", "The weights are mounted.", Stage.WEIGHTS, Stage.LAUNCH, needs="share")
def mounted(cluster: Cluster) -> Iterator[Check]:
    """Without it an engine would find an empty directory, or what lies below."""
    for host, share, intent in _mounting(cluster):
        wish, mount = intent.share, share["mount"]
        there = mount is not None and mount["fstype"].startswith("nfs")
        fact = f"{wish.path} is mounted from {mount['source']}" if mount else f"nothing is mounted on {wish.path}"
        yield Check(
            "share.mount",
            host,
            Status.OK if there else Status.REFUSE,
            f"{fact} ({share['said']})" if share["said"] else fact,
            f"{wish.server}:{wish.remote}, over NFS",
            _mounting_remedy(wish, silent=bool(share["reached"]) and not share["said"]),
        )


def _mounting_remedy(wish: ShareWish, silent: bool) -> str:
    """A mount by RDMA that is never answered says nothing at all, where one by TCP gives its reason (`silent`)."""
    start = f"run site.yml, or `systemctl start {unit_name(wish.path)}`"
    if wish.proto == RDMA and silent:
        tries = f"`rping -s` on {wish.server} and `rping -c -C 1 -a {wish.server}` on the node"
        return f"see with {tries} whether RDMA connects (else model_store_nfs_proto: tcp), then {start}"
    return start


@rule(
    "share.rail", "The weights come from the planned address, over a rail.", Stage.WEIGHTS, Stage.LAUNCH, needs="share"
)
def rail(cluster: Cluster) -> Iterator[Check]:
    """Over the management network 410 GB take an hour, and nothing else tells."""
    for host, share, intent in _mounting(cluster):
        wish = intent.share
        ways = [own for own, far in share["connections"] if far == wish.server and own != wish.address]
        if share["mount"] and wish.address and ways and not _fault("share.rail", share, intent):
            fact = f"{wish.path} is mounted over its address {', '.join(ways)}"
            yield Check("share.rail", host, Status.REFUSE, fact, f"{wish.address}, its address on the rail", REMOUNT)
        else:
            yield from _mount_check("share.rail", host, share, intent, f"{wish.path} is mounted from {wish.server}")


@rule("share.transport", "The mount uses the transport that was asked for.", Stage.WEIGHTS, Stage.LAUNCH, needs="share")
def transport(cluster: Cluster) -> Iterator[Check]:
    """A mount asked for RDMA joins a TCP connection that the kernel has to the same server, without an error."""
    for host, share, intent in _mounting(cluster):
        good = f"{intent.share.path} is mounted with proto={intent.share.proto}"
        yield from _mount_check("share.transport", host, share, intent, good)


@rule(
    "share.options",
    "The mount is read-only and hard, of the planned version and width.",
    Stage.WEIGHTS,
    Stage.LAUNCH,
    needs="share",
)
def options(cluster: Cluster) -> Iterator[Check]:
    """A soft mount gives an error to the engine where a hard one waits."""
    for host, share, intent in _mounting(cluster):
        yield from _mount_check("share.options", host, share, intent, f"{intent.share.path} is mounted as planned")


@rule("share.answer", "The mount gives what is in it.", Stage.WEIGHTS, Stage.LAUNCH, needs="share")
def answers(cluster: Cluster) -> Iterator[Check]:
    """A stale handle, a server that is gone, a directory that may not be read."""
    for host, share, intent in _mounting(cluster):
        if share["mount"]:
            why = share["answer"]
            yield Check(
                "share.answer",
                host,
                Status.REFUSE if why else Status.OK,
                f"{intent.share.path}: {why or 'it answers'}",
                "names and sizes within 5 s",
                _cure(why, intent),
            )


def _cure(why: str, intent: Intent) -> str:
    """Refused is what the server squashes; stale what was exported anew; anything else is a server that is gone."""
    if "ermission" in why:
        return f"make the files of {intent.share.remote} readable by all on {_server_name(intent)}: chmod -R a+rX"
    if "tale" in why:
        return REMOUNT
    return f"start {NFS_SERVER_UNIT} on {_server_name(intent)}, or bring the rail back"


@rule("share.read-ahead", "The mount reads ahead as far as planned.", Stage.WEIGHTS, needs="share")
def read_ahead(cluster: Cluster) -> Iterator[Check]:
    """The kernel's own 128 KiB leave a fast network idle between two requests."""
    for host, share, intent in _mounting(cluster):
        if share["mount"]:
            found, wanted = share["mount"]["read_ahead_kb"], intent.share.read_ahead_kb
            yield Check(
                "share.read-ahead",
                host,
                Status.OK if found is not None and found >= wanted else Status.REFUSE,
                f"{intent.share.path} is read {found if found is not None else 'an unknown number of'} KiB ahead",
                f"{wanted} KiB",
                "run site.yml, which sets it",
            )


@rule("share.cache", "The engine's caches are on a disk of the node.", Stage.PREFLIGHT, Stage.LAUNCH, needs="share")
def cache(cluster: Cluster) -> Iterator[Check]:
    """Ranks that compile into one directory read each other's half-written kernels."""
    for host, share, intent in cluster.having("share"):
        shared = on_network(share["cache_fstype"])
        yield Check(
            "share.cache",
            host,
            Status.REFUSE if shared else Status.OK,
            f"{intent.share.cache} is on {share['cache_fstype'] or 'an unknown file system'}",
            "a file system of the node",
            "set serving_cache_path to a directory on a disk of the node",
        )


REMOUNT = "unmount whatever comes from that server on the node (see /proc/mounts), then run site.yml"


def _mounting(cluster: Cluster) -> Iterator[tuple[str, Share, Intent]]:
    for host, share, intent in cluster.having("share"):
        if intent.share.server:
            yield host, share, intent


def _fault(id_: str, share: Share, intent: Intent) -> tuple[str, str] | None:
    mount = share["mount"]
    if mount is None or not mount["fstype"].startswith("nfs"):
        return None
    faults = mount_faults(intent.share, mount)
    return next(((fact, limit) for found, fact, limit in faults if found == id_), None)


def _mount_check(id_: str, host: str, share: Share, intent: Intent, good: str) -> Iterator[Check]:
    """One thing about a mount; that there is none is said by `share.mount`."""
    if share["mount"] is None:
        return
    fault = _fault(id_, share, intent)
    if fault:
        yield Check(id_, host, Status.REFUSE, f"{intent.share.path} is {fault[0]}", fault[1], REMOUNT)
    else:
        yield Check(id_, host, Status.OK, good)


def _server_name(intent: Intent) -> str:
    """The node that exports, or the server of somebody else."""
    return intent.head if intent.share.address else intent.share.server
