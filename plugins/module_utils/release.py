"""Shell-style KEY="value" files: /etc/os-release and /etc/dgx-release."""

from __future__ import annotations

import shlex


def parse_release(text: str) -> dict[str, str]:
    """The file's keys; of a key that repeats the last one counts, as every OTA appends its own lines."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            found[key] = _unquote(value)
    return found


def _unquote(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value
