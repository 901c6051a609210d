"""Reading what an update may change, from trees of files and answers of commands."""

from __future__ import annotations

import json

from test_boot_menu import NEW, OLD, menu
from trees import link, machine, write

from ansible_collections.sparkwright.cluster.plugins.module_utils.software_reader import (
    UPDATERS,
    SoftwareReader,
    digest,
    parse_packages,
)

PACKAGES = """\
ii  bash 5.2.21-2ubuntu4
hi  rdma-core 50.0-2build2
rc  nvidia-driver-570 570.1-0
iU  runc 1.3.3-0ubuntu1
iF  docker-ce 5:28.5.1-1
un  nvidia-driver-580
"""
RECORD = {
    "files": {"/etc/sparkwright/nccl.env": {}, "/etc/gone": {}, "/usr/local/lib/sparkwright/sparkwright/facts.py": {}},
    "holds": {"rdma-core": {"since": 1_700_000_000}},
}


def read(root, active=()):
    states = "".join(f"{'active' if name in active else 'inactive'}\n" for name in UPDATERS)
    return SoftwareReader(machine(root, {"dpkg-query": PACKAGES, "systemctl is-active": (3, states, "")})).read()


def test_a_machine_without_anything(tmp_path):
    found = SoftwareReader(machine(tmp_path)).read()
    assert found == {
        "packages": {},
        "others": {"count": 0, "digest": digest("")},
        "broken": [],
        "held": {},
        "kernels": [],
        "next_kernel": None,
        "reboot_required": [],
        "system_firmware": "",
        "masked": [],
        "boot_target": "",
        "toolkit": None,
        "files": {},
        "updaters": [],
        "baseline": None,
    }


def test_packages(tmp_path):
    write(tmp_path, {"var/lib/sparkwright/before.json": json.dumps(RECORD)})
    found = read(tmp_path)
    assert found["packages"] == {"rdma-core": "50.0-2build2", "runc": "1.3.3-0ubuntu1", "docker-ce": "5:28.5.1-1"}
    assert found["others"]["count"] == 1
    assert found["broken"] == ["docker-ce", "runc"]
    assert found["held"] == {"rdma-core": 1_700_000_000}
    assert parse_packages("garbage\n") == {}


def test_files_of_ours_and_the_note(tmp_path):
    files = {
        "etc/sparkwright/nccl.env": "NCCL_NET=IB\n",
        "usr/local/lib/sparkwright/sparkwright/facts.py": "x = 1\n",
        "var/lib/sparkwright/before.json": json.dumps(RECORD),
        "var/lib/sparkwright/provisioned.json": '{"schema": 1}',
    }
    found = read(write(tmp_path, files))
    assert set(found["files"]) == {"/etc/sparkwright/nccl.env", "/etc/gone", "/usr/local/lib/sparkwright"}
    assert found["files"]["/etc/sparkwright/nccl.env"] == digest("NCCL_NET=IB\n")
    assert found["files"]["/etc/gone"] is None
    assert found["baseline"] == {"schema": 1}
    (tmp_path / "usr/local/lib/sparkwright/sparkwright/facts.py").write_text("x = 2\n")
    assert read(tmp_path)["files"]["/usr/local/lib/sparkwright"] != found["files"]["/usr/local/lib/sparkwright"]


def test_masks_target_kernels_and_firmware(tmp_path):
    write(
        tmp_path,
        {
            f"boot/vmlinuz-{OLD}": "",
            f"boot/vmlinuz-{NEW}": "",
            f"boot/initrd.img-{NEW}": "",
            "boot/grub/grub.cfg": menu(),
            "sys/class/dmi/id/bios_version": "5.36\n",
            "sys/class/dmi/id/bios_date": "08/29/2025\n",
            "run/reboot-required": "*** System restart required ***\n",
            "run/reboot-required.pkgs": "linux-image-nvidia\nlibc6\nlibc6\n",
            "etc/nvidia-container-runtime/config.toml": '[nvidia-container-runtime]\nmode = "legacy"\n',
            "usr/lib/systemd/system/multi-user.target": "",
        },
    )
    units = tmp_path / "etc/systemd/system"
    write(tmp_path, {"null": "", "etc/systemd/system/own.service": ""})
    link(units / "cups.service", tmp_path / "null")
    link(units / "default.target", tmp_path / "usr/lib/systemd/system/multi-user.target")
    link(tmp_path / "etc/systemd/user/pipewire.socket", tmp_path / "null")
    found = read(tmp_path, active=["apt-daily.timer"])
    assert (found["kernels"], found["next_kernel"]) == ([OLD, NEW], NEW)
    assert found["masked"] == ["cups.service", "user/pipewire.socket"]
    assert found["boot_target"] == "multi-user.target"
    assert found["system_firmware"] == "5.36 08/29/2025"
    assert found["reboot_required"] == ["linux-image-nvidia", "libc6"]
    (tmp_path / "run/reboot-required.pkgs").unlink()
    assert read(tmp_path)["reboot_required"] == ["/run/reboot-required"]
    assert found["toolkit"]["mode"] == "legacy"
    assert found["updaters"] == ["apt-daily.timer"]
