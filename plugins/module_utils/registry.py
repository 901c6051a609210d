"""The registry on the head: its two units, and how an image is named in it.

Two processes share one folder. The first takes images in, on the loopback address alone, so that nobody on the network
can put one there. The second gives them out, read-only, on the address where the others meet the head. Each runs only
while it is needed.
"""

from __future__ import annotations

from .names import REGISTRY_PULL_UNIT, REGISTRY_PUSH_UNIT

# The name of the engine image in the registry.
REPOSITORY = "sparkwright/engine"
PROGRAM = "/usr/bin/docker-registry"
LOOPBACK = "127.0.0.1"
ACCOUNT = "docker-registry"
# Manifests of images and of lists of images, as Docker and as OCI name them.
MANIFESTS = (
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
)

# No cache of what is stored: the two processes, and a garbage collection, would not know of each other's changes.
_CONFIG = """# Written by Sparkwright (role engine_image).
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {storage}}}
  maintenance: {{readonly: {{enabled: {readonly}}}, uploadpurging: {{enabled: false}}}}
http: {{addr: "{address}"}}
"""

_UNIT = """# Written by Sparkwright (role engine_image).
[Unit]
Description=Sparkwright registry that {what}

[Service]
User={account}
ExecStart={program} serve {config}
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={storage}
ProtectHome=yes
# A run that was killed leaves it behind.
RuntimeMaxSec=6h
"""


def push_address(registry: str) -> str:
    """Where the head pushes to, for the address where the others pull."""
    return f"{LOOPBACK}:{registry.rpartition(':')[2]}"


def tag_of(image_id: str) -> str:
    """The tag of an image in the registry, from its ID, so that two images never have one tag."""
    return image_id.removeprefix("sha256:")[:12]


def registry_files(registry: str, storage: str) -> list[dict[str, str]]:
    """Units and configurations of both processes, as for managed_files."""
    rows = (
        (REGISTRY_PUSH_UNIT, "takes images in", push_address(registry), "false"),
        (REGISTRY_PULL_UNIT, "gives images out", registry, "true"),
    )
    return [file for row in rows for file in _files(*row, storage)]


def _files(unit: str, what: str, address: str, readonly: str, storage: str) -> list[dict[str, str]]:
    config = f"/etc/sparkwright/{unit.removesuffix('.service').removeprefix('sparkwright-')}.yml"
    text = _UNIT.format(what=what, account=ACCOUNT, program=PROGRAM, config=config, storage=storage)
    return [
        {"path": config, "content": _CONFIG.format(storage=storage, readonly=readonly, address=address)},
        {"path": f"/etc/systemd/system/{unit}", "content": text},
    ]
