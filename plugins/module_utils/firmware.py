"""What fwupd knows about newer firmware (`fwupdmgr get-updates --json`)."""

from __future__ import annotations

from typing import Any


def parse_updates(data: Any) -> list[str]:
    """The devices with newer firmware, each as `name: old -> new`; the newest release comes first."""
    devices = data.get("Devices", []) if isinstance(data, dict) else []
    return [_told(device, device["Releases"][0]) for device in devices if device.get("Releases")]


def _told(device: dict[str, Any], release: dict[str, Any]) -> str:
    old, new = device.get("Version", "unknown"), release.get("Version", "unknown")
    return f"{device.get('Name', 'a device')}: {old} -> {new}"
