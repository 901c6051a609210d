"""Starts and ends QEMU. All that the saved state of a template depends on is in here."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

MEMORY_MIB = 1024
# MiB of translated code. A boot fills 128 forty times over, and all of it is translated again each time.
EMULATED = ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem")
VIRTUALIZED = ("-accel", "kvm", "-cpu", "host")


def pid_of(folder: Path) -> int | None:
    """The process of the machine in a folder, if it runs; the number alone may have gone to another process."""
    try:
        pid = int((folder / "pid").read_text(encoding="utf-8"))
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (OSError, ValueError):
        return None
    return pid if str(folder / "pid").encode() in command else None


def qemu(folder: Path, accelerator: tuple[str, ...], *options: str) -> None:
    """Start the emulator in the background with the disk of a folder; returns when its monitor listens."""
    argv = [
        *("qemu-system-x86_64", "-machine", "pc,usb=off,vmport=off,hpet=off", *accelerator),
        *("-m", str(MEMORY_MIB), "-smp", "1", "-nodefaults", "-no-user-config", "-display", "none"),
        # The guest may set its own clock; the battery-backed one goes on with the time of this machine.
        *("-rtc", "base=utc,clock=host"),
        # Unsafe means that the lab's machine may lose it in a power cut of its own. That of a node loses nothing of it.
        *("-drive", f"file={folder}/disk.qcow2,if=none,id=disk,cache=unsafe,discard=unmap"),
        *("-device", "virtio-blk-pci,drive=disk,addr=0x8", "-device", "virtio-rng-pci,addr=0x9"),
        *("-chardev", f"file,id=console,path={folder}/console.log,append=on", "-serial", "chardev:console"),
        *("-qmp", f"unix:{folder}/monitor,server=on,wait=off"),
        *("-pidfile", str(folder / "pid"), "-daemonize", *options),
    ]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def end(folder: Path) -> None:
    """Kill the machine's process, if there is one, and wait until it is gone and has let go of its disk."""
    pid = pid_of(folder)
    if not pid:
        return
    process = os.pidfd_open(pid)
    signal.pidfd_send_signal(process, signal.SIGKILL)
    # Readable when the process has ended. Its command line goes earlier, when its files are still open.
    select.select([process], [], [])
    os.close(process)
