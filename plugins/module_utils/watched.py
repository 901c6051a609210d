"""The packages that a serving cluster stands on, as patterns of their names. It imports nothing of ours."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

KERNELS = ("linux-image-*", "linux-modules-*", "linux-headers-*", "linux-nvidia*", "grub-*")
DRIVERS = ("nvidia-*", "libnvidia-*", "cuda-drivers*", "linux-modules-nvidia-*", "linux-objects-nvidia-*")
FABRIC = ("rdma-core", "ibverbs-*", "libibverbs*", "librdmacm*", "perftest", "mlnx-*", "doca-*", "mft", "mft-*")
CONTAINERS = ("docker*", "containerd*", "runc", "nvidia-container-*", "libnvidia-container*")
SYSTEM = ("netplan.io", "network-manager", "systemd", "openssh-server", "fwupd", "nfs-kernel-server", "dgx-*")
# What comes back with an update although the node does without it.
DESKTOP = (
    "snapd",
    "avahi-daemon",
    "gdm3",
    "cups",
    "packagekit",
    "unattended-upgrades",
    "ubuntu-desktop*",
    "gnome-shell",
)

# What must not change under an engine that serves.
VITAL = (*KERNELS, *DRIVERS, *FABRIC, *CONTAINERS)
WATCHED = (*VITAL, *SYSTEM, *DESKTOP)


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name fits one of the patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
