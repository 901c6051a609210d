"""Boots a machine from the lab's disk once and saves its running state: template.py DISK OUT.

With KVM if that works, which is tried: on some machines /dev/kvm opens and every guest dies or hangs in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from emulator import EMULATED, VIRTUALIZED, end, pid_of, qemu
from qmp import Monitor

BOOTED = "sparkwright-lab: booted"
FAILED = "sparkwright-lab: failed: "
# Seconds. With KVM the boot takes about ten, under emulation 60 to 200 on an idle machine.
LIMITS: dict[tuple[str, ...], int] = {VIRTUALIZED: 60, EMULATED: 900}


def boots(folder: Path, accelerator: tuple[str, ...]) -> bool:
    """Start a machine; False when it ended, stopped or said nothing within its time."""
    try:
        qemu(folder, accelerator)
    except subprocess.CalledProcessError:
        return False
    deadline = time.monotonic() + LIMITS[accelerator]
    while time.monotonic() < deadline and pid_of(folder):
        console = (folder / "console.log").read_text(encoding="utf-8", errors="replace")
        if FAILED in console:
            sys.exit(f"template: the machine booted without {console.split(FAILED)[1].splitlines()[0]}; see {folder}")
        if BOOTED in console:
            return True
        with Monitor(folder / "monitor") as monitor:
            if not monitor("query-status")["running"]:
                return False
        time.sleep(0.5)
    return False


def save(folder: Path) -> None:
    """Write the state of the running machine next to its disk."""
    with Monitor(folder / "monitor") as monitor:
        monitor("stop")
        monitor("migrate-set-parameters", max_bandwidth=10 * 2**30)
        monitor("migrate", uri=f"exec:cat > {folder}/state")
        while (found := monitor("query-migrate")["status"]) not in ("completed", "failed"):
            time.sleep(0.2)
    if found == "failed":
        sys.exit("template: the state of the machine could not be saved")


def make(disk: Path, folder: Path) -> None:
    """Try one accelerator after the other on a fresh disk."""
    folder.mkdir()
    for accelerator in [VIRTUALIZED, EMULATED] if Path("/dev/kvm").exists() else [EMULATED]:
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(disk), "-F", "qcow2", str(folder / "disk.qcow2")]
        subprocess.run(argv, check=True)
        try:
            booted = boots(folder, accelerator)
            if booted:
                save(folder)
        finally:
            end(folder)
        if booted:
            (folder / "accelerator.json").write_text(json.dumps(accelerator), encoding="utf-8")
            return
        print(f"template: no machine boots with -accel {accelerator[1]}", file=sys.stderr)
    sys.exit(f"template: no machine booted; see {folder}/console.log")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
