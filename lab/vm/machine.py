"""The virtual machines of the lab: make, switch and unplug them. Run through `lab/vm/machine`, which is root.

A machine is a folder with its disk (changes against the template's), its seed, its process id and its console's output.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import tarfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from emulator import end, pid_of, qemu
from qmp import Monitor

STATE = Path(__file__).resolve().parents[1] / ".state" / "vm"
BRIDGE = "sparkwright-vm"
# Rails are cables that exist only between these processes: multicast on the loopback device, a port each.
CABLE = "socket,id={id},mcast=230.78.0.1:{port},localaddr=127.0.0.1"
FIRST_CABLE_PORT = 23450
# Seconds for a machine to be restored from its saved state while three others are.
RESTORE_SECONDS = 180


@dataclass(frozen=True)
class Port:
    """A network port of a machine; the slot on the PCI bus gives it its name inside, see root/etc/systemd/network."""

    name: str
    slot: int
    cable: int | None = None


PORTS = (
    Port("mgmt", 3),
    Port("rail0", 4, cable=0),
    Port("rail1", 5, cable=1),
    # The other cage. Nothing is plugged in.
    Port("spare0", 6),
    Port("spare1", 7),
)
SPARE = ("spare0", "spare1")
# Files of a seed that every account on the node may read.
PUBLIC = ("etc/hostname", "etc/hosts", "etc/machine-id")


@dataclass(frozen=True)
class Machine:
    """One node: its name, its rank, from which its MAC addresses follow, and the template it comes from."""

    name: str
    rank: int
    template: str

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return STATE / self.name

    @property
    def socket(self) -> Path:
        """The socket of its monitor."""
        return self.folder / "monitor"

    def save(self) -> None:
        """Remember it for later commands."""
        (self.folder / "machine.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, name: str) -> Machine:
        """The machine of that name, which `create` has made."""
        return cls(**json.loads((STATE / name / "machine.json").read_text(encoding="utf-8")))

    def mac(self, port: Port) -> str:
        """The MAC address of a port, the same in every life of the machine."""
        return f"4e:bb:48:{port.slot:02x}:00:{self.rank:02x}"


def network_options(machine: Machine) -> list[str]:
    """The far ends of all ports. Those of the other cage have none."""
    tap = f"sw-{machine.name}"[:15]
    options = ["-netdev", f"tap,id=net-mgmt,ifname={tap},script=no,downscript=no"]
    for port in PORTS:
        if port.cable is not None:
            options += ["-netdev", CABLE.format(id=f"net-{port.name}", port=FIRST_CABLE_PORT + port.cable)]
    return options


def network_device(machine: Machine, port: Port) -> dict[str, object]:
    """A port's network card, as the monitor takes it."""
    far_end = {} if port.name in SPARE else {"netdev": f"net-{port.name}"}
    speed = {} if port.name == "mgmt" else {"speed": 200000, "duplex": "full"}
    card = {"driver": "virtio-net-pci", "id": port.name, "addr": f"0x{port.slot:x}", "mac": machine.mac(port)}
    return {**card, "romfile": "", **speed, **far_end}


def accelerator_of(template: Path) -> tuple[str, ...]:
    """What the template was saved with; only that can restore it."""
    return tuple(json.loads((template / "accelerator.json").read_text(encoding="utf-8")))


def connect_management(machine: Machine) -> None:
    """Plug the management port of a machine that has just been started into the bridge."""
    tap = f"sw-{machine.name}"[:15]
    subprocess.run(["ip", "link", "set", tap, "master", BRIDGE, "up"], check=True)


def create(machine: Machine, seed: dict[str, str]) -> None:
    """Make a machine from the template's state, running at once; then plug in what makes it this node."""
    template = Path(machine.template)
    off(machine)
    machine.folder.mkdir(parents=True, exist_ok=True)
    machine.save()
    write_seed(machine.folder / "seed.tar", seed)
    backing = ["-b", str(template / "disk.qcow2"), "-F", "qcow2"]
    argv = ["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(machine.folder / "disk.qcow2")]
    subprocess.run(argv, check=True)
    seed_option = ["-drive", f"file={machine.folder}/seed.tar,if=none,id=seed,format=raw,read-only=on"]
    options = [*network_options(machine), *seed_option, "-incoming", "defer"]
    qemu(machine.folder, accelerator_of(template), *options)
    connect_management(machine)
    with Monitor(machine.socket) as monitor:
        monitor("migrate-incoming", uri=f"exec:cat {template}/state")
        wait_until_restored(monitor)
        for port in PORTS:
            monitor("device_add", **network_device(machine, port))
        unplug_spare(monitor)
        monitor("cont")
        monitor("device_add", driver="virtio-blk-pci", drive="seed", serial="seed", addr="0xa")


def wait_until_restored(monitor: Monitor) -> None:
    """Return when the state is read; the machine then stands still."""
    deadline = time.monotonic() + RESTORE_SECONDS
    while monitor("query-status")["status"] == "inmigrate":
        if time.monotonic() > deadline:
            raise TimeoutError(f"the saved state was not restored within {RESTORE_SECONDS} s")
        time.sleep(0.1)


def unplug_spare(monitor: Monitor) -> None:
    """Take the carrier from the ports of the other cage."""
    for name in SPARE:
        monitor("set_link", name=name, up=False)


def write_seed(path: Path, files: dict[str, str]) -> None:
    """Write an archive that the machine unpacks at its root."""
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            data = text.encode()
            entry.size = len(data)
            entry.mode = 0o644 if name in PUBLIC else 0o600
            archive.addfile(entry, io.BytesIO(data))


def on(machine: Machine) -> None:
    """Switch a machine on that is off: a boot from its own disk."""
    if pid_of(machine.folder):
        return
    devices = [option for port in PORTS for option in ("-device", json.dumps(network_device(machine, port)))]
    options = [*network_options(machine), *devices, "-S"]
    qemu(machine.folder, accelerator_of(Path(machine.template)), *options)
    connect_management(machine)
    with Monitor(machine.socket) as monitor:
        unplug_spare(monitor)
        monitor("cont")


def off(machine: Machine) -> None:
    """Cut the power: the process ends at once, whatever the machine was doing."""
    end(machine.folder)


def remove(machine: Machine) -> None:
    """Cut the power and forget the machine."""
    off(machine)
    shutil.rmtree(machine.folder)


def set_cable(machine: Machine, rail: str, plugged: bool) -> None:
    """Plug a rail's cable in or out."""
    with Monitor(machine.socket) as monitor:
        monitor("set_link", name=rail, up=plugged)


def status(machine: Machine) -> str:
    """What QEMU calls it: `running` on a healthy machine; `off` when it has no process."""
    if not pid_of(machine.folder):
        return "off"
    with Monitor(machine.socket) as monitor:
        return str(monitor("query-status")["status"])


ACTIONS = {"on": on, "off": off, "remove": remove}


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="lab/vm/machine")
    parser.add_argument("name")
    verbs = parser.add_subparsers(dest="verb", required=True)
    creation = verbs.add_parser(
        "create", help="make it from the template; its seed, {path: text}, comes as JSON on stdin"
    )
    creation.add_argument("--rank", type=int, required=True)
    creation.add_argument("--template", required=True)
    for verb in ACTIONS:
        verbs.add_parser(verb)
    verbs.add_parser("status")
    for verb in ("plug", "unplug"):
        verbs.add_parser(verb, help=f"{verb} the cable of a rail").add_argument("rail", choices=["rail0", "rail1"])
    arguments = parser.parse_args()
    if arguments.verb == "create":
        create(Machine(arguments.name, arguments.rank, arguments.template), json.load(os.fdopen(0)))
        return
    machine = Machine.load(arguments.name)
    if arguments.verb in ACTIONS:
        ACTIONS[arguments.verb](machine)
    elif arguments.verb == "status":
        print(status(machine))
    else:
        set_cable(machine, arguments.rail, plugged=arguments.verb == "plug")


if __name__ == "__main__":
    main()
