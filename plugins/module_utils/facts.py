"""The shape of what `node_facts` returns, and the small questions that several checks ask of it.

Facts travel as plain JSON between node and controller. The types below name its keys and units; a key that was not
asked for is absent, and `None` means that the node has no such thing.
"""

from __future__ import annotations

from typing import Any, TypedDict

from .gids import Gid
from .names import ENGINE_CONTAINER


class GidRow(TypedDict):
    """One row of a GID table, see `gids.Gid`."""

    index: int
    gid: str
    type: str
    netdev: str


class RdmaPort(TypedDict):
    """Port 1 of a RDMA device; `state` is the kernel's word without its number, such as ACTIVE or DOWN."""

    state: str
    phys_state: str
    rate: str
    link_layer: str
    gids: list[GidRow]


class RdmaDevice(TypedDict):
    """A RDMA device, its firmware, and the network device on the same function (None where the kernel names none)."""

    netdev: str | None
    firmware: str | None
    port: RdmaPort


class PciLink(TypedDict):
    """A function's PCIe link, `address` such as 0002:01:00.0: speeds in GT/s, widths in lanes."""

    address: str
    speed: float
    max_speed: float
    width: int
    max_width: int


class Netdev(TypedDict):
    """A network device; `mtu` in bytes, `speed` in Mb/s (None without a link), `addresses` as CIDR, IPv4 only.

    `carrier` is None while the interface is administratively down, `link_local` is its fe80 address, `rp_filter` the
    value in effect, and `manager` who configures it: networkd, NetworkManager or nobody.
    """

    mtu: int
    speed: int | None
    operstate: str
    carrier: bool | None
    mac: str
    phys_port_name: str | None
    driver: str | None
    pci: PciLink | None
    addresses: list[str]
    link_local: str | None
    rp_filter: int | None
    manager: str | None


class Route(TypedDict):
    """One IPv4 route of the main table; `dst` is a subnet such as 10.0.0.0/24, or `default`."""

    dst: str
    dev: str
    gateway: str | None


class Fabric(TypedDict):
    """What the node's network is, and who else has a say in it.

    `netplan` maps each netplan file to the interfaces that it names, `profiles` each profile of NetworkManager that
    netplan did not write. `own_netplan`, `nccl_env` and `nccl_conf` are texts: of our own netplan file, of our NCCL
    environment and of /etc/nccl.conf. `unreadable` names the files that the account may not read.

    Found only when asked for: `pings` says by "own address, peer's address" who answered, `neighbours` gives by netdev
    the fe80 addresses of others on the same wire, and `macs` by "netdev address" the MAC addresses of others that
    claim this address.
    """

    netdevs: dict[str, Netdev]
    rdma: dict[str, RdmaDevice]
    routes: list[Route]
    netplan: dict[str, list[str]]
    profiles: dict[str, list[str]]
    own_netplan: str | None
    nccl_env: str | None
    nccl_conf: str | None
    pings: dict[str, bool]
    neighbours: dict[str, list[str]]
    macs: dict[str, list[str]]
    unreadable: list[str]


class Platform(TypedDict):
    """The machine: `dgx` is /etc/dgx-release or None, `gpus` the names that nvidia-smi gives."""

    os_id: str
    os_version: str
    architecture: str
    python: str
    kernel: str
    dgx: dict[str, str] | None
    gpus: list[str]
    driver: str | None


class Shard(TypedDict):
    """One safetensors file: `size` in bytes on disk, `expected` in bytes by its own header (None: no valid header).

    `tensors` is how many of those that the index takes from it are there, `header` a short hash of its header, which
    lists every tensor with type, shape and place.
    """

    size: int
    expected: int | None
    tensors: int
    header: str


class Published(TypedDict):
    """A file as it was published: its bytes, and its SHA-256 where the publisher gives one."""

    size: int
    sha256: str | None


class Origin(TypedDict):
    """Where a checkpoint directory came from: `sources` are such as owner/name@revision, empty when nothing says it.

    `include` are the patterns by which its files were chosen, `files` those whose published form is known.
    """

    sources: list[str]
    include: list[str]
    files: dict[str, Published]


class FileState(TypedDict):
    """A file in a manifest: bytes, time of change (ns), the SHA-256 that was found, and the one that it must have."""

    size: int
    mtime: int
    sha256: str
    wanted: str


class Manifest(TypedDict):
    """All files of one checkpoint directory."""

    path: str
    files: dict[str, FileState]


class HashReport(TypedDict):
    """What differs from the manifest; `error` says why the directory could not be read.

    `files` counts those of the manifest, `hashed` those whose content was compared and not only their size.
    """

    error: str | None
    missing: list[str]
    surplus: list[str]
    truncated: list[str]
    corrupt: list[str]
    hashed: int
    files: int


class Weights(TypedDict):
    """A checkpoint directory; `error` says why the index could not be read, `shards` holds the files that are there.

    `tensors` counts the tensors that the index names in each shard. Of these the bytes are given by beginning of the
    name (`model.layers.78.`), by type, and as the share that tensor parallelism splits and the share that each rank
    repeats. `config` has the keys of config.json that decide about the cache (model_shape.KEYS). `sources` is where it
    came from, as in Origin. `disk_free` is what its file system has left, in bytes (None: it did not answer), and
    `disk_used` what the directory has of it with all that it is made from.
    """

    path: str
    error: str | None
    tensors: dict[str, int]
    shards: dict[str, Shard]
    prefixes: dict[str, int]
    dtypes: dict[str, int]
    split: int
    repeated: int
    config: dict[str, Any]
    config_sha256: str | None
    sources: list[str]
    disk_free: int | None
    disk_used: int


class Process(TypedDict):
    """A process and the bytes that it holds, resident or on the GPU."""

    pid: int
    name: str
    bytes: int


class Processes(TypedDict):
    """Who holds memory: on the GPU, and the largest resident ones.

    `low_watermark` is in bytes, what the kernel keeps out of MemAvailable for the page cache's sake. `earlyoom` has the
    arguments of a running earlyoom, None when none runs. `nfs_threads` is the number of a running NFS server's threads.
    """

    gpu: list[Process]
    resident: list[Process]
    low_watermark: int
    earlyoom: list[str] | None
    nfs_threads: int


class Container(TypedDict):
    """One container of any state; `labels` are all its labels."""

    id: str
    name: str
    image_id: str
    state: str
    labels: dict[str, str]


class Runtime(TypedDict):
    """Docker on the node; `images` maps the references that were asked for to image IDs (None: absent).

    `containerd_store` is true where Docker keeps images in containerd: there an ID is the digest of a manifest, which
    `docker load` makes anew, and not the one that an archive names. `insecure_registries` are those that the running
    Docker speaks plain HTTP with.
    """

    version: str | None
    error: str | None
    runtimes: list[str]
    containerd_store: bool
    insecure_registries: list[str]
    daemon_json: str | None
    images: dict[str, str | None]
    containers: list[Container]


class ImageGates(TypedDict):
    """What was found inside of the engine image, see image_probe.py; None means that it has no such thing.

    `commit` is what vLLM was built from, `nccl` the version of the library that would be loaded, `nccl_from` its path,
    or why there is none. `imports` and `marks` give for each module and each patch the reason why it is not there,
    empty where it is. `strays` are files that configure NCCL, in the image and in the engine's home.
    """

    python: str
    machine: str
    vllm: str | None
    commit: str | None
    ray: str | None
    nccl: str | None
    nccl_from: str
    imports: dict[str, str]
    marks: dict[str, str]
    strays: list[str]


class ImageFacts(TypedDict):
    """The engine image: `digests` are all names of its content, `build` the hash of the build that made it.

    `gates` and `error` are None as long as nobody looked inside of this image for what the profile wants.
    """

    id: str | None
    architecture: str | None
    digests: list[str]
    build: str | None
    gates: ImageGates | None
    error: str | None


class Listener(TypedDict):
    """A listening TCP socket; `process` is the name of its owner, empty when the kernel did not say."""

    address: str
    port: int
    process: str


class RankEnd(TypedDict):
    """How a rank ended, at `at` seconds since 1970, with the last lines of its log.

    `ordered` is whether we ended it, because of another rank or on request, `refused` whether its start-up check did.
    `exit_code` is None where no container ran.
    """

    why: str
    at: float
    exit_code: int | None
    out_of_memory: bool
    ordered: bool
    refused: bool
    log: list[str]


class Rank(TypedDict):
    """What this node's rank does, as its unit keeps it in RANK_FILE until the next boot.

    `invocation` names the start of the unit that it belongs to, `stage` is of stages.LoadStage and began at `since`
    (seconds since 1970). `missing` are the hosts that the roll call waits for, `first` is what failed first in the
    cluster. `available` are the bytes of MemAvailable right before the launch. The rest is what the log said, see
    engine_log.Figures.
    """

    invocation: str
    stage: str
    detail: str
    since: float
    ready: bool
    missing: list[str]
    first: str
    available: int
    figures: dict[str, Any]
    end: RankEnd | None


class Watchdog(TypedDict):
    """What the head's watchdog remembers: when it started the cluster again (seconds since 1970), and the last words.

    `stopped` says why it gave up, empty while it has not.
    """

    restarts: list[float]
    last: str
    stopped: str


class Ray(TypedDict):
    """The Ray in the engine's container: its version, and on the head its own names of the living nodes by address.

    `error` says why one of them is not known.
    """

    version: str | None
    nodes: dict[str, str] | None
    error: str | None


class Serving(TypedDict):
    """The engine's unit and what listens; `unit` is systemd's ActiveState.

    `rank` is None when the unit has not run since the boot, `watchdog` None where none has ever acted. `filter` has the
    rules of our chain of the packet filter, `ray` is None where no Ray of ours runs.
    """

    unit: str
    listeners: list[Listener]
    rank: Rank | None
    watchdog: Watchdog | None
    filter: list[str]
    ray: Ray | None


class Live(TypedDict):
    """A file of the kernel: what it holds now (of several choices the chosen one), and whether it can be written."""

    value: str
    writable: bool


class Swap(TypedDict):
    """One active swap, sizes in kB; `here` is false where it belongs to the machine around a container."""

    path: str
    size: int
    used: int
    priority: int
    here: bool


class Journal(TypedDict):
    """The journal: bytes on disk; `stale` is true while journald has not read our drop-in."""

    bytes: int
    stale: bool


class SshGuard(TypedDict):
    """How ssh is protected: by its unit and by the slice around it, in bytes; `in_force` is the control group's own.

    `in_force` and `oom_score_adj` are None where nothing says it, such as while no sshd runs.
    """

    memory_min: int
    slice_memory_min: int
    in_force: int | None
    oom_score_adjust: int
    oom_score_adj: int | None


class Earlyoom(TypedDict):
    """The daemon that ends processes before memory is gone; `argv` is empty while it does not run."""

    installed: bool
    argv: list[str]


class Tuning(TypedDict):
    """What the role host_tuning looks after.

    `values` are files of the kernel by path, `files` the texts of our own files (None: absent), `swap_units` the units
    of swaps that come back at a boot with their UnitFileState. `grub` is whether update-grub is there, `boot_arguments`
    what the next boot is given, `kernel_arguments` what this one was. `first_footprint` is the one of the node before
    our first change, if it was recorded.
    """

    container: bool
    values: dict[str, Live]
    files: dict[str, str | None]
    swaps: list[Swap]
    swap_units: dict[str, str]
    journal: Journal
    ssh: SshGuard
    earlyoom: Earlyoom
    grub: bool
    boot_arguments: list[str]
    kernel_arguments: list[str]
    first_footprint: Footprint | None


class Footprint(TypedDict):
    """What a node uses by itself; memory in kB, the journal in bytes on disk.

    `units` is the proportional set size (PSS) of the processes of each unit, without those in containers of Docker.
    `processes` counts all that are not the kernel's own, `unread` those whose memory could not be read. `listeners` are
    open ports, such as `tcp 0.0.0.0:22 sshd`.
    """

    processes: int
    unread: int
    units: dict[str, int]
    memory_available: int
    swap_used: int
    journal: int
    listeners: list[str]


class Others(TypedDict):
    """All packages that nobody watches, as their number and a short hash over their names and versions."""

    count: int
    digest: str


class Toolkit(TypedDict):
    """NVIDIA's container runtime: its `mode` (auto, cdi, legacy), and a short hash of its configuration file."""

    mode: str
    digest: str


class Software(TypedDict):
    """What an update may change under a cluster that served.

    `packages` are the watched ones with their versions, `broken` those that dpkg left half done. `held` are packages
    that apt keeps as they are, with the seconds since 1970 at which we held them (0: not by us). `kernels` are the
    installed ones, `next_kernel` the one that the boot loader starts next (None: it does not say), `reboot_required`
    what the distribution says. `masked` are units of the system, and of all users with `user/` before their name.
    `files` are short hashes of the files that this project wrote and `updaters` the services that update by themselves
    and are active. `baseline` is what was noted when the cluster last served.
    """

    packages: dict[str, str]
    others: Others
    broken: list[str]
    held: dict[str, int]
    kernels: list[str]
    next_kernel: str | None
    reboot_required: list[str]
    system_firmware: str
    masked: list[str]
    boot_target: str
    toolkit: Toolkit | None
    files: dict[str, str | None]
    updaters: list[str]
    baseline: dict[str, Any] | None


class ShareMount(TypedDict):
    """What is mounted on the directory of the weights; `options` by name, empty for one without a value.

    `read_ahead_kb` is in KiB, None where the kernel says nothing about the device.
    """

    source: str
    fstype: str
    options: dict[str, str]
    read_ahead_kb: int | None


class Export(TypedDict):
    """A directory that the node's NFS server gives to a client, with all its options."""

    path: str
    client: str
    options: list[str]


class Share(TypedDict):
    """How the weights reach the node.

    `kernel` names those of nfs and nfsd that the kernel has or can load, `tools` the programs that are installed.
    `mount` is what lies on the directory of the weights, `nested` the mounts below it. `answer` says why that mount
    gives nothing, and is empty where it does; `said` is what the last try to mount it said. `reached` is whether the
    server takes a connection, `connections` the pairs of own and far address of those that are open.

    `threads`, `rdma`, `listens` (addresses) and `exports` belong to the node's own NFS server. `files` gives size and
    time of change by name of what the profile's directories hold, `disk_free` is in bytes. `cache_fstype` is the file
    system under the engine's caches.
    """

    container: bool
    kernel: list[str]
    tools: list[str]
    mount: ShareMount | None
    nested: list[str]
    answer: str
    said: str
    reached: bool | None
    connections: list[tuple[str, str]]
    threads: int
    rdma: bool
    listens: list[str]
    exports: list[Export]
    files: dict[str, list[int]]
    disk_free: int
    cache_fstype: str


class NodeFacts(TypedDict, total=False):
    """Everything about one node; `reachable` is always there, `reason` only when it is False."""

    schema: int
    reachable: bool
    privileged: bool
    reason: str
    platform: Platform
    memory: dict[str, int]
    processes: Processes
    fabric: Fabric
    runtime: Runtime
    image: ImageFacts
    weights: Weights
    serving: Serving
    tuning: Tuning
    footprint: Footprint
    software: Software
    share: Share


SCHEMA = 1


def gid_rows(port: RdmaPort) -> list[Gid]:
    """The GID table of a port as records."""
    return [Gid(**row) for row in port["gids"]]


def device_of(fabric: Fabric, netdev: str) -> tuple[str, RdmaDevice] | None:
    """The RDMA device that sits on a network device, by the kernel's own link and never by name."""
    for name, device in sorted(fabric["rdma"].items()):
        if device["netdev"] == netdev:
            return name, device
    return None


def default_routes(fabric: Fabric) -> list[str]:
    """The network devices through which a default route leaves, each once."""
    return sorted({route["dev"] for route in fabric["routes"] if route["dst"] == "default"})


def own_container(runtime: Runtime, name: str) -> Container | None:
    """The container of that name, or None."""
    return next((c for c in runtime["containers"] if c["name"] == name), None)


def has_image(runtime: Runtime, ref: str, image_id: str) -> bool:
    """True when the node has the image and, where IDs can be compared with a pinned one, that one."""
    found = runtime["images"].get(ref)
    return found is not None and (runtime["containerd_store"] or image_id in ("", found))


def engine_runs(facts: NodeFacts) -> bool:
    """True when the engine's container runs on that node."""
    runtime = facts.get("runtime")
    container = own_container(runtime, ENGINE_CONTAINER) if runtime else None
    return container is not None and container["state"] == "running"
