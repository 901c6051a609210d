"""What the kernel and the services of a headless node are to be like: the wish, and the text of every file of it.

The wish is made from the variables of the role host_tuning and lies in the node's intent. What must be done to get
there is in `tuning_plan.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .facts import Tuning
from .meminfo import KIB

# Behind almost everything, and before the user's own /etc/sysctl.conf, which systemd reads as 99-sysctl.conf.
SYSCTL_FILE = "/etc/sysctl.d/99-sparkwright.conf"
TMPFILES_FILE = "/etc/tmpfiles.d/sparkwright.conf"
JOURNAL_FILE = "/etc/systemd/journald.conf.d/60-sparkwright.conf"
LIMITS_FILE = "/etc/security/limits.d/60-sparkwright.conf"
SSH_FILE = "/etc/systemd/system/ssh.service.d/60-sparkwright.conf"
SLICE_FILE = "/etc/systemd/system/system.slice.d/60-sparkwright.conf"
EARLYOOM_FILE = "/etc/systemd/system/earlyoom.service.d/60-sparkwright.conf"
GRUB_FILE = "/etc/default/grub.d/60-sparkwright.cfg"
SWAP_UNIT = "var-lib-sparkwright-swap.swap"
SWAP_UNIT_FILE = f"/etc/systemd/system/{SWAP_UNIT}"
SWAP_FILE = "/var/lib/sparkwright/swap"

FILES = (
    SYSCTL_FILE,
    TMPFILES_FILE,
    JOURNAL_FILE,
    LIMITS_FILE,
    SSH_FILE,
    SLICE_FILE,
    EARLYOOM_FILE,
    GRUB_FILE,
    SWAP_UNIT_FILE,
)

PROC = "/proc/sys/"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
CPUFREQ = "/sys/devices/system/cpu/cpufreq"
GOVERNOR = "scaling_governor"

MIB = 1024**2

# Of the floor that the plan leaves free: where earlyoom asks the largest process to end, and where it kills it. A node
# that is as planned stays above the whole floor; hosts were seen to freeze with 2 to 3 GiB left, of a floor of 3.
TERM_SHARE = 0.75
KILL_SHARE = 0.375

# Never the way in, the container runtime or the first process.
EARLYOOM_AVOID = "^(systemd.*|sshd.*|dockerd|containerd.*|earlyoom)$"

_HEAD = "# Written by Sparkwright (role host_tuning).\n"


@dataclass(frozen=True)
class TuningWish:
    """The role's variables as data; a part that is empty or 0 is left alone.

    `sysctl` is {name: {value, reason}}. `swap` is keep, off or size, then with `swap_gib`; `margin` is what must be
    left of MemAvailable when swap is drained, `floor` what the plan leaves free while the engine serves, both in bytes.
    `memlock` is a limit in KiB or `unlimited`.
    """

    sysctl: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    swap: str = "keep"
    swap_gib: int = 0
    margin: int = 0
    journal_mib: int = 0
    memlock: str = ""
    ssh_memory_mib: int = 0
    ssh_oom_score_adjust: int = 0
    earlyoom: bool = False
    kernel_arguments: tuple[str, ...] = ()
    governor: str = ""
    thp: str = ""
    floor: int = 0

    @property
    def ssh_memory(self) -> int:
        """Bytes that ssh keeps under pressure."""
        return self.ssh_memory_mib * MIB

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TuningWish:
        """The wish that `asdict` and JSON made data of. Raises TypeError when the data are of another version."""
        return cls(**{**data, "kernel_arguments": tuple(data["kernel_arguments"])})


def make_wish(value: Callable[[str], Any], floor: int) -> TuningWish:
    """The wish of one host; `value` gives its variables without the prefix of the role, `floor` is in bytes."""
    return TuningWish(
        sysctl=merged_sysctl(value("sysctl") or (), value("sysctl_extra") or ()),
        swap=value("swap") or "keep",
        swap_gib=value("swap_gib") or 0,
        margin=int((value("swap_margin_gib") or 0) * 1024 * MIB),
        journal_mib=value("journal_mib") or 0,
        memlock=value("memlock") or "",
        ssh_memory_mib=value("ssh_memory_mib") or 0,
        ssh_oom_score_adjust=value("ssh_oom_score_adjust") or 0,
        earlyoom=bool(value("earlyoom")),
        kernel_arguments=tuple(value("kernel_arguments") or ()),
        governor=value("governor") or "",
        thp=value("transparent_hugepages") or "",
        floor=floor,
    )


def merged_sysctl(*lists: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The settings of all lists; a later one wins, and one with an empty value takes the setting away."""
    found: dict[str, dict[str, str]] = {}
    for setting in (one for several in lists for one in several):
        found[setting["name"]] = {"value": str(setting["value"]), "reason": setting["reason"]}
    return {name: setting for name, setting in found.items() if setting["value"]}


def sysctl_path(name: str) -> str:
    """The file of a kernel setting. With slashes a name may hold dots, such as net/ipv4/conf/eth0.7/rp_filter."""
    return f"{PROC}{name if '/' in name else name.replace('.', '/')}"


def sysctl_name(path: str) -> str:
    """The other way round; a path of /sys stays as it is."""
    name = path.removeprefix(PROC)
    return name if "." in name or path == name else name.replace("/", ".")


def wanted_values(wish: TuningWish, tuning: Tuning) -> dict[str, str]:
    """What the files of the kernel should hold, by path; a file of /sys that this machine lacks is left out."""
    wanted = {sysctl_path(name): setting["value"] for name, setting in wish.sysctl.items()}
    places = {path: wish.thp if path == THP else wish.governor for path in tuning["values"] if path.startswith("/sys/")}
    return wanted | {path: value for path, value in places.items() if value}


def same(live: str, wanted: str) -> bool:
    """Whether two values of a kernel's file are one; it separates numbers by tabs."""
    return live.split() == wanted.split()


def wanted_files(wish: TuningWish, tuning: Tuning) -> dict[str, str | None]:
    """Every file of ours, by path; None is a file that must not be there."""
    ssh = wish.ssh_memory or wish.ssh_oom_score_adjust
    watched = wish.earlyoom and tuning["earlyoom"]["installed"] and wish.floor
    return {
        SYSCTL_FILE: sysctl_text(wish) if wish.sysctl else None,
        TMPFILES_FILE: tmpfiles_text(wish, tuning),
        JOURNAL_FILE: f"{_HEAD}[Journal]\nSystemMaxUse={wish.journal_mib}M\n" if wish.journal_mib else None,
        # Where a limit may not be raised, as in a container, PAM refuses the whole login.
        LIMITS_FILE: limits_text(wish.memlock) if wish.memlock and not tuning["container"] else None,
        SSH_FILE: ssh_text(wish) if ssh else None,
        SLICE_FILE: slice_text(wish) if wish.ssh_memory else None,
        EARLYOOM_FILE: earlyoom_text(wish.floor) if watched else None,
        GRUB_FILE: grub_text(wish.kernel_arguments) if wish.kernel_arguments and tuning["grub"] else None,
        SWAP_UNIT_FILE: swap_unit_text() if wish.swap == "size" else None,
    }


def sysctl_text(wish: TuningWish) -> str:
    """Each setting below its reason."""
    return _HEAD + "".join(
        f"# {' '.join(setting['reason'].split())}\n{name} = {setting['value']}\n"
        for name, setting in wish.sysctl.items()
    )


def tmpfiles_text(wish: TuningWish, tuning: Tuning) -> str | None:
    """What brings the values of /sys back at every boot."""
    globs = {f"{CPUFREQ}/policy*/{GOVERNOR}" if GOVERNOR in path else path for path in tuning["values"]}
    values = {THP: wish.thp, f"{CPUFREQ}/policy*/{GOVERNOR}": wish.governor}
    lines = [f"w {path} - - - - {value}\n" for path, value in values.items() if value and path in globs]
    return _HEAD + "".join(lines) if lines else None


def limits_text(memlock: str) -> str:
    """RDMA pins the memory that it writes to. A star leaves root out (limits.conf(5))."""
    return f"{_HEAD}* - memlock {memlock}\nroot - memlock {memlock}\n"


def ssh_text(wish: TuningWish) -> str:
    """The way in, when memory is short."""
    memory = f"MemoryMin={wish.ssh_memory_mib}M\n" if wish.ssh_memory else ""
    score = f"OOMScoreAdjust={wish.ssh_oom_score_adjust}\n" if wish.ssh_oom_score_adjust else ""
    return f"{_HEAD}[Service]\n{memory}{score}"


def slice_text(wish: TuningWish) -> str:
    """A group has no more of its MemoryMin than those above it have: alone, that of ssh.service would be nothing."""
    return f"{_HEAD}[Slice]\nMemoryMin={wish.ssh_memory_mib}M\n"


def earlyoom_argv(floor: int) -> list[str]:
    """Lines in KiB of MemAvailable, for a floor in bytes. However much swap is free, memory alone decides."""
    term, kill = int(floor * TERM_SHARE) // KIB, int(floor * KILL_SHARE) // KIB
    return ["/usr/bin/earlyoom", "-r", "3600", "-M", f"{term},{kill}", "-s", "100", "--avoid", EARLYOOM_AVOID]


def earlyoom_text(floor: int) -> str:
    """The arguments that the package keeps in /etc/default/earlyoom stay there, unused."""
    # systemd reads a dollar as the beginning of a variable.
    words = " ".join(word if word.startswith(("/", "-")) else f"'{word}'" for word in earlyoom_argv(floor))
    return f"{_HEAD}[Service]\nExecStart=\nExecStart={words.replace('$', '$$')}\n"


def grub_text(arguments: Iterable[str]) -> str:
    """Added to what the vendor's file says, which stays as it is."""
    words = " ".join(arguments)
    for special in '\\"$`':
        words = words.replace(special, f"\\{special}")
    return f'{_HEAD}GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {words}"\n'


def swap_unit_text() -> str:
    """Our own swap file, at every boot."""
    unit = "[Unit]\nDescription=Swap of one size on all nodes\n"
    return f"{_HEAD}{unit}\n[Swap]\nWhat={SWAP_FILE}\n\n[Install]\nWantedBy=swap.target\n"
