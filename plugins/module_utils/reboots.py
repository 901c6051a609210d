"""Why a node should be booted again, from its facts."""

from __future__ import annotations

from collections.abc import Sequence

from .facts import NodeFacts

# So many packages are named.
SHOWN = 3


def reboot_reasons(facts: NodeFacts, arguments: Sequence[str] = ()) -> list[str]:
    """Another kernel comes next, `arguments` are missing, or the distribution asks for it; a container has no boot."""
    software, platform, tuning = facts["software"], facts.get("platform"), facts.get("tuning")
    if tuning and tuning["container"]:
        return []
    coming, runs = software["next_kernel"], platform["kernel"] if platform else ""
    reasons = [f"the next boot starts kernel {coming}, now it runs {runs}"] if coming and runs != coming else []
    missing = (
        [word for word in arguments if word not in tuning["kernel_arguments"]] if tuning and tuning["grub"] else []
    )
    reasons += [f"this boot has not {' '.join(missing)}"] if missing else []
    asked = software["reboot_required"]
    return reasons + ([f"the system asks for it because of {', '.join(asked[:SHOWN])}"] if asked else [])
