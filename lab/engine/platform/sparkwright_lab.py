"""What vLLM calls to ask whether the lab's platform is there; it must not import vLLM."""

from __future__ import annotations


def register() -> str:
    """The name of the class."""
    return "sparkwright_lab_platform.RayCpuPlatform"
