"""The guard in apt: what it is told, and when it says no."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.apt_guard import changed_packages, refusal

HEAD = ["VERSION 2", "APT=", "DPkg::Pre-Install-Pkgs::=/usr/local/lib/sparkwright/apt-guard", ""]
INSTALL = [*HEAD, "htop - < 3.3 /var/cache/apt/archives/htop.deb", "runc 1.2 < 1.3 /var/cache/apt/archives/runc.deb"]
REMOVE = [*HEAD, "nvidia-driver-580-open:arm64 580.95 > - **REMOVE**"]
OTHER = [*HEAD, "htop 3.2 < 3.3 **CONFIGURE**"]


def test_what_is_to_be_changed():
    assert changed_packages(INSTALL) == ["htop", "runc"]
    assert changed_packages(HEAD) == []


@pytest.mark.parametrize(
    ("lines", "state", "names"),
    [
        (INSTALL, "active", "runc"),
        (INSTALL, "activating", "runc"),
        (REMOVE, "active", "nvidia-driver-580-open"),
        (INSTALL, "inactive", ""),
        (INSTALL, "", ""),
        (OTHER, "active", ""),
    ],
)
def test_when_apt_must_not_go_on(lines, state, names):
    found = refusal(lines, state)
    assert found.startswith(f"sparkwright: {names} would change under the engine") if names else found == ""
