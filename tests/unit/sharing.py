"""Four nodes that share the weights over NFS, and the facts of each while all is well."""

from __future__ import annotations

from builders import share

from ansible_collections.sparkwright.cluster.plugins.module_utils.share import ShareWish

SERVER = "192.168.100.10"
LISTEN = (SERVER, "192.168.101.10")
CLIENTS = tuple(f"192.168.10{rail}.{11 + n}" for rail in (0, 1) for n in range(3))
PATH = "/models"
OPTIONS = {
    "ro": "",
    "relatime": "",
    "vers": "4.2",
    "hard": "",
    "proto": "tcp",
    "nconnect": "4",
    "clientaddr": "192.168.100.11",
    "addr": SERVER,
}


def wish(rank=0, **changes) -> ShareWish:
    """What spark<rank + 1> is meant to do."""
    common = {
        "mode": "nfs",
        "path": PATH,
        "folders": ("big",),
        "proto": "tcp",
        "connections": 4,
        "read_ahead_kb": 16384,
        "threads": 16,
        "cache": "/var/cache/sparkwright",
    }
    head = {"clients": CLIENTS, "listen": LISTEN}
    client = {"holds": False, "server": SERVER, "remote": PATH, "address": f"192.168.100.{10 + rank}"}
    return ShareWish(**{**common, **(client if rank else head), **changes})


def mount(**changes) -> dict:
    """The mount of a client; `options` are changed one by one, None takes one away."""
    options = {**OPTIONS, **changes.pop("options", {})}
    shown = {name: value for name, value in options.items() if value is not None}
    return {"source": f"{SERVER}:{PATH}", "fstype": "nfs4", "options": shown, "read_ahead_kb": 16384, **changes}


def export(client, *extra, path=PATH) -> dict:
    """An export as the server's table has it, with all that exportfs fills in."""
    filled = ["ro", "sync", "wdelay", "hide", "nocrossmnt", "secure", "root_squash", "no_all_squash"]
    kept = [option for option in filled if f"no{option}" not in extra]
    return {"path": path, "client": client, "options": [*kept, "no_subtree_check", "sec=sys", *extra]}


def facts(rank=0) -> dict:
    """The section `share` of spark<rank + 1>."""
    if rank == 0:
        exports = [export(client) for client in CLIENTS]
        return {
            **share(),
            "tools": ["mount.nfs", "exportfs"],
            "threads": 16,
            "listens": list(LISTEN),
            "exports": exports,
        }
    own = f"192.168.100.{10 + rank}"
    mounted = {"mount": mount(), "reached": True, "connections": [(own, SERVER)], "disk_free": 0}
    return {**share(), "tools": ["mount.nfs"], **mounted}
