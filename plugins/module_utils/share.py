"""How the weights reach the nodes: an NFS server and its clients, copies from node to node, or nothing to do.

From one node's part in it to the texts of its files, and what of it is not so on the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .facts import Export, Share, ShareMount
from .names import (
    EXPORTS_FILE,
    NFS_CONF_FILE,
    NFS_SERVER_FILE,
    NFS_SERVER_UNIT,
    RAILS_UNIT,
    READ_AHEAD_UNIT,
    UNIT_FOLDER,
)

LOCAL, COPY, NFS = "local", "copy", "nfs"
TCP, RDMA = "tcp", "rdma"

# nfs(5): the port of NFS, and that of NFS over RDMA.
NFS_PORT, RDMA_PORT = 2049, 20049
VERSION = "4.2"
# Minutes for which mount.nfs tries again while the server is down: a week, as `bg` means.
RETRY_MINUTES = 10_000
# Seconds in which clients must come back after a restart of the server. They only read, and so have no locks to claim.
GRACE_SECONDS = 15

# What a package brings along by which it is known to be there.
TOOLS = {"mount.nfs": "nfs-common", "exportfs": "nfs-kernel-server", "rsync": "rsync"}

# How a socket that listens on every address shows it.
WILDCARDS = ("0.0.0.0", "*", "::")
# What must not stand in an export of the weights.
LOOSE = {"rw", "no_root_squash"}

HEADER = "# Written by Sparkwright (role model_store).\n"


@dataclass(frozen=True)
class ShareWish:
    """One node's part in sharing the weights.

    Attributes:
        mode: `nfs`, `copy` or `local`.
        path: The directory that is shared, on every node the same.
        folders: The directories of the profile's weights below it.
        holds: Whether the node has data of its own before anything is shared.
        server: The address from which the node mounts; empty on a node that mounts nothing.
        remote: The directory on the server.
        address: The node's own address on the way to the server, empty where the server is not one of the nodes.
        clients: The addresses that may mount from this node.
        listen: The addresses on which this node's NFS server listens.
        proto: `tcp` or `rdma`.
        connections: Connections of a client to the server.
        read_ahead_kb: What a client reads ahead, in KiB.
        threads: Threads of the NFS server.
        cache: The directory of the engine's caches, which is never shared.
    """

    mode: str = LOCAL
    path: str = ""
    folders: tuple[str, ...] = ()
    holds: bool = True
    server: str = ""
    remote: str = ""
    address: str = ""
    clients: tuple[str, ...] = ()
    listen: tuple[str, ...] = ()
    proto: str = TCP
    connections: int = 1
    read_ahead_kb: int = 128
    threads: int = 8
    cache: str = ""

    @property
    def holds_data(self) -> bool:
        """Whether others get the weights from this node's own disk, or it gets a copy there."""
        return self.mode == COPY or bool(self.clients)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> ShareWish:
        """The wish of plain data."""
        lists = {name: tuple(data[name]) for name in ("folders", "clients", "listen")}
        return cls(**{**data, **lists})


def unit_name(path: str) -> str:
    """The name of the mount unit of a directory, as systemd demands it (systemd.unit(5), string escaping)."""
    name = "/".join(part for part in path.split("/") if part)
    return f"{''.join(_escaped(place, byte) for place, byte in enumerate(name.encode())) or '-'}.mount"


def _escaped(place: int, byte: int) -> str:
    character = chr(byte)
    if character == "/":
        return "-"
    plain = character.isascii() and (character.isalnum() or character in ":_" or (character == "." and place > 0))
    return character if plain else f"\\x{byte:02x}"


def server_files(wish: ShareWish, share: Share) -> dict[str, str]:
    """The files of the node that exports: who may mount, on which addresses it listens, and when it starts."""
    if not wish.clients:
        return {}
    return {
        EXPORTS_FILE: exports_text(wish, crosses=bool(share["nested"])),
        NFS_CONF_FILE: conf_text(wish, alone=is_alone(wish, share)),
        NFS_SERVER_FILE: HEADER + f"[Unit]\nWants={RAILS_UNIT}\nAfter={RAILS_UNIT}\n",
        f"{UNIT_FOLDER}/{RAILS_UNIT}": rails_text(wish.listen),
    }


def exports_text(wish: ShareWish, crosses: bool) -> str:
    """One line for each address that may mount; `crosses` is whether file systems are mounted below the directory."""
    options = ",".join(export_options(crosses))
    return HEADER + "".join(f"{wish.path} {client}({options})\n" for client in wish.clients)


def export_options(crosses: bool) -> list[str]:
    """How a client may use an export (exports(5))."""
    return ["ro", "root_squash", "sync", "no_subtree_check", *(["crossmnt"] if crosses else [])]


def conf_text(wish: ShareWish, alone: bool) -> str:
    """The server's settings; it listens on the rails alone unless it exports something of the user's as well."""
    lines = ["[nfsd]", f"threads={wish.threads}"]
    if alone:
        lines += [f"host={','.join(wish.listen)}", "vers3=n"]
        lines += [f"grace-time={GRACE_SECONDS}", f"lease-time={GRACE_SECONDS}"]
    if wish.proto == RDMA:
        lines += ["rdma=y", f"rdma-port={RDMA_PORT}"]
    return HEADER + "\n".join(lines) + "\n"


def is_alone(wish: ShareWish, share: Share) -> bool:
    """Whether the server exports nothing but the weights."""
    return all(export["path"] == wish.path for export in share["exports"])


def client_files(wish: ShareWish) -> dict[str, str]:
    """The units of a node that mounts."""
    if not wish.server:
        return {}
    rails = {f"{UNIT_FOLDER}/{RAILS_UNIT}": rails_text([wish.address])} if wish.address else {}
    return {
        **rails,
        f"{UNIT_FOLDER}/{unit_name(wish.path)}": mount_text(wish),
        f"{UNIT_FOLDER}/{READ_AHEAD_UNIT}": read_ahead_text(wish),
    }


def rails_text(addresses: Sequence[str]) -> str:
    """A unit that ends when the node has these addresses: nothing else waits at a boot for a rail."""
    waits = [f"until ip -4 -oneline address show to {address} | grep -q inet" for address in addresses]
    starts = "".join(f"ExecStart=/bin/sh -c '{wait}; do sleep 1; done'\n" for wait in waits)
    return (
        f"{HEADER}[Unit]\nDescription=Addresses on the rails\nAfter=network.target\n\n[Service]\nType=oneshot\n{starts}"
    )


def mount_options(wish: ShareWish) -> list[str]:
    """The options of the mount (nfs(5)); `nofail` keeps a dead server from holding up logins at a boot."""
    port = [f"port={RDMA_PORT}"] if wish.proto == RDMA else []
    shape = [f"proto={wish.proto}", *port, f"nconnect={wish.connections}"]
    return ["ro", "hard", f"vers={VERSION}", *shape, f"retry={RETRY_MINUTES}", "nofail"]


def mount_text(wish: ShareWish) -> str:
    """The mount unit. It waits for the server as long as that takes, and lets go of a dead one at once."""
    rails = f"Wants={RAILS_UNIT}\nAfter={RAILS_UNIT}\n" if wish.address else ""
    return (
        f"{HEADER}[Unit]\nDescription=Weights from {wish.server}\n{rails}"
        "Wants=network-online.target\nAfter=network-online.target\n\n"
        f"[Mount]\nWhat={wish.server}:{wish.remote}\nWhere={wish.path}\nType=nfs\n"
        f"Options={','.join(mount_options(wish))}\nTimeoutSec=infinity\nForceUnmount=yes\nLazyUnmount=yes\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def read_ahead_text(wish: ShareWish) -> str:
    """A unit that follows the mount; nfs-common's own rule for udev may set another value first, so it waits for it."""
    unit = unit_name(wish.path)
    # Without --raw it is filled up with blanks.
    device = f"$$(findmnt --raw --noheadings --output MAJ:MIN --mountpoint {wish.path})"
    script = f"udevadm settle --timeout=20; echo {wish.read_ahead_kb} >/sys/class/bdi/{device}/read_ahead_kb"
    return (
        f"{HEADER}[Unit]\nDescription=Read ahead of the weights\nBindsTo={unit}\nAfter={unit}\n\n"
        f"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c '{script}'\n\n"
        f"[Install]\nWantedBy={unit}\n"
    )


def packages(wish: ShareWish, share: Share) -> list[str]:
    """The packages for NFS that the node lacks."""
    needed = [*(["exportfs"] if wish.clients else []), *(["mount.nfs"] if wish.server else [])]
    return [TOOLS[tool] for tool in needed if tool not in share["tools"]]


def lacks_rsync(wish: ShareWish, share: Share, pushed: bool) -> bool:
    """Whether files are to travel to the node or from it by an rsync that it does not have.

    `pushed` is whether the controller has files for it.
    """
    return (wish.mode == COPY or pushed) and "rsync" not in share["tools"]


def kernel_needs(wish: ShareWish) -> list[str]:
    """The file systems that the node's kernel must know."""
    return [*(["nfsd"] if wish.clients else []), *(["nfs"] if wish.server else [])]


def server_fault(wish: ShareWish, share: Share) -> str:
    """What is wrong with the NFS server of a node that exports; empty when nothing is."""
    if not share["threads"]:
        return "no NFS server runs"
    here = {address for address in share["listens"] if address not in WILDCARDS}
    wild = len(here) < len(share["listens"])
    deaf = [address for address in wish.listen if address not in here and not wild]
    if deaf:
        return f"its NFS server does not listen on {', '.join(deaf)}"
    if is_alone(wish, share) and (wild or here - set(wish.listen)):
        more = sorted(set(share["listens"]) - set(wish.listen))
        return f"its NFS server listens on {', '.join(more)} too"
    if wish.proto == RDMA and not share["rdma"]:
        return "its NFS server does not take RDMA"
    return ""


def unexported(wish: ShareWish, share: Share) -> list[str]:
    """The clients to which the node does not export as it should."""
    wanted = set(export_options(bool(share["nested"])))
    good = {
        export["client"]
        for export in share["exports"]
        if export["path"] == wish.path and wanted <= set(export["options"]) and not LOOSE & set(export["options"])
    }
    return [client for client in wish.clients if client not in good]


def strangers(wish: ShareWish, share: Share) -> list[Export]:
    """Exports by which others reach the weights, or ours reach them otherwise than read-only."""
    return [export for export in share["exports"] if _overlap(export["path"], wish.path) and _open(wish, export)]


def _open(wish: ShareWish, export: Export) -> bool:
    return export["client"] not in wish.clients or bool(LOOSE & set(export["options"]))


def _overlap(one: str, other: str) -> bool:
    first, second = f"{one.rstrip('/')}/", f"{other.rstrip('/')}/"
    return first.startswith(second) or second.startswith(first)


def mount_faults(wish: ShareWish, mount: ShareMount) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a mount: the check that says so, how it is, how it should be."""
    option = mount["options"].get
    found = option("addr") or mount["source"].rpartition(":")[0]
    if found != wish.server or mount["source"].rpartition(":")[2] != wish.remote:
        yield "share.rail", f"mounted from {mount['source']} at {found}", f"{wish.server}:{wish.remote}"
    if option("proto") != wish.proto:
        yield "share.transport", f"mounted with proto={option('proto')}", f"proto={wish.proto}"
    wanted = {"ro": "", "hard": "", "vers": VERSION}
    # One connection is not shown by kernels that were not asked for it.
    wanted |= {"nconnect": str(wish.connections)} if wish.connections > 1 else {}
    wrong = [name for name, value in wanted.items() if option(name) != value]
    if wrong:
        shown = ", ".join(_shown(name, option(name)) for name in wrong)
        yield "share.options", f"mounted with {shown}", ", ".join(_shown(name, wanted[name]) for name in wrong)


def _shown(name: str, value: str | None) -> str:
    if value is None:
        return f"no {name}"
    return f"{name}={value}" if value else name


def is_mounted(wish: ShareWish, share: Share) -> bool:
    """Whether the mount is there as it should be, answers, and reads ahead."""
    mount = share["mount"]
    if mount is None or not mount["fstype"].startswith("nfs"):
        return False
    ahead = mount["read_ahead_kb"] == wish.read_ahead_kb
    return ahead and not share["answer"] and not list(mount_faults(wish, mount))


def must_remount(wish: ShareWish, share: Share) -> bool:
    """Whether something else is mounted, or what is mounted gives nothing."""
    mount = share["mount"]
    if not wish.server or mount is None:
        return False
    return bool(share["answer"]) or not mount["fstype"].startswith("nfs") or bool(list(mount_faults(wish, mount)))


def is_due(wish: ShareWish, share: Share) -> bool:
    """Whether what is mounted or exported must be changed."""
    if wish.clients and (server_fault(wish, share) or unexported(wish, share)):
        return True
    return bool(wish.server) and not is_mounted(wish, share)


def undo_record(wish: ShareWish, share: Share) -> dict[str, dict[str, dict[str, Any]]]:
    """What was there before, for the record: whether a server ran, and which mount of the user's ours replaces."""
    record: dict[str, dict[str, dict[str, Any]]] = {}
    if wish.clients:
        record["nfs_server"] = {NFS_SERVER_UNIT: {"active": share["threads"] > 0}}
    if wish.server:
        record["nfs_mount"] = {wish.path: {"unit": unit_name(wish.path), **_theirs(share["mount"])}}
    return record


def _theirs(mount: ShareMount | None) -> dict[str, str]:
    if mount is None or not mount["fstype"].startswith("nfs"):
        return {}
    return {"source": mount["source"], "options": ",".join(_shown(*option) for option in mount["options"].items())}
