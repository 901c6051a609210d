"""GRUB's menu, in the shape in which update-grub writes it on Ubuntu."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.boot_menu import (
    next_kernel,
    parse_environment,
    parse_menu,
    path_to,
)

OLD, NEW = "6.17.0-1008-nvidia", "7.0.0-1019-nvidia"


def kernel_entry(title: str, id_: str, kernel: str) -> str:
    return f"""
menuentry '{title}' --class ubuntu --class os $menuentry_id_option '{id_}' {{
	recordfail
	if [ x$grub_platform = xxen ]; then insmod xzio; insmod lzopio; fi
	linux	/boot/vmlinuz-{kernel} root=UUID=1 ro quiet
	initrd	/boot/initrd.img-{kernel}
}}"""


def menu(default: str = "0") -> str:
    inner = "".join(
        kernel_entry(f"Ubuntu, with Linux {kernel}{mode}", f"gnulinux-{kernel}-{kind}-1", kernel)
        for kernel in (NEW, OLD)
        for mode, kind in (("", "advanced"), (" (recovery mode)", "recovery"))
    )
    return f"""
if [ -s $prefix/grubenv ]; then
  set have_grubenv=true
  load_env
fi
if [ "${{next_entry}}" ] ; then
   set default="${{next_entry}}"
   set next_entry=
else
   set default="{default}"
fi
function gfxmode {{
	set gfxpayload="${{1}}"
}}
{kernel_entry("Ubuntu", "gnulinux-simple-1", NEW)}
submenu 'Advanced options for Ubuntu' $menuentry_id_option 'gnulinux-advanced-1' {{{inner}
}}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {{
	fwsetup
}}
"""


OLD_PATH = f"gnulinux-advanced-1>gnulinux-{OLD}-advanced-1"


@pytest.mark.parametrize(
    ("default", "environment", "kernel"),
    [
        ("0", "", NEW),
        ("1>2", "", OLD),
        ("1", "", NEW),
        ("2", "", None),
        ("7", "", None),
        (OLD_PATH, "", OLD),
        (f"Advanced options for Ubuntu>Ubuntu, with Linux {OLD}", "", OLD),
        ("0", f"next_entry={OLD_PATH}\n", OLD),
        ("${saved_entry}", f"saved_entry={OLD_PATH}\n", OLD),
        ("${saved_entry}", "", NEW),
        ("gone", "", None),
    ],
)
def test_the_kernel_of_the_next_boot(default, environment, kernel):
    text = f"# GRUB Environment Block\n{environment}####"
    assert next_kernel(parse_menu(menu(default)), parse_environment(text)) == kernel


def test_the_entry_of_a_kernel_is_the_ordinary_one():
    assert path_to(parse_menu(menu()), OLD) == OLD_PATH
    assert path_to(parse_menu(menu()), NEW) == "gnulinux-simple-1"
    assert path_to(parse_menu(menu()), "1.0") is None


@pytest.mark.parametrize("text", ["", "linux /vmlinuz root=LABEL=root ro\ninitrd /initrd.img\nboot\n"])
def test_a_file_without_entries(text):
    assert next_kernel(parse_menu(text), {}) is None
