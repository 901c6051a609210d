"""Shell-style release files."""

from __future__ import annotations

import pytest
from builders import HARDWARE

from ansible_collections.sparkwright.cluster.plugins.module_utils.release import parse_release


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ('ID=ubuntu\nVERSION_ID="24.04"\n', {"ID": "ubuntu", "VERSION_ID": "24.04"}),
        ("NAME='DGX Spark'", {"NAME": "DGX Spark"}),
        ('# a comment=1\n\nA="x"', {"A": "x"}),
        ('URL="https://x/?a=b"', {"URL": "https://x/?a=b"}),
        ('OTA="7.3.1"\nOTA="7.4.0"', {"OTA": "7.4.0"}),
        ('BROKEN="no end', {"BROKEN": '"no end'}),
        ("EMPTY=\n", {"EMPTY": ""}),
        ("no assignment", {}),
    ],
)
def test_a_file_is_read(text, found):
    assert parse_release(text) == found


def test_the_last_of_several_updates_counts():
    found = parse_release((HARDWARE / "etc/dgx-release").read_text())
    assert (found["DGX_NAME"], found["DGX_OTA_VERSION"]) == ("DGX Spark", "7.4.0")
