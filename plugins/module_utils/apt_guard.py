"""Asked by apt before it lets dpkg change anything: no package that the engine stands on, while the engine serves.

It runs on the node, as a program, and reads from apt what is to be done (apt.conf(5), DPkg::Pre-Install-Pkgs with
version 2). So it holds for a person, for unattended upgrades and for the dashboard alike.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from .names import ENGINE_UNIT
from .watched import VITAL, matches

SERVES = ("active", "activating", "reloading")


def changed_packages(lines: Iterable[str]) -> list[str]:
    """The packages that are to be changed or removed; before them, up to an empty line, comes apt's configuration."""
    rows, behind = [], False
    for line in lines:
        if behind and line.split():
            rows.append(line.split()[0].partition(":")[0])
        behind = behind or not line.strip()
    return rows


def refusal(lines: Iterable[str], state: str) -> str:
    """Why apt must not go on, in one line; empty when it may. `state` is that of the engine's unit."""
    vital = sorted({name for name in changed_packages(lines) if matches(name, VITAL)})
    if state not in SERVES or not vital:
        return ""
    return (
        f"sparkwright: {', '.join(vital)} would change under the engine, which serves; limit: it is stopped; "
        f"remedy: run playbooks/update.yml, or playbooks/stop.yml, or `systemctl stop {ENGINE_UNIT}`"
    )


def main() -> int:
    """0 lets apt go on."""
    shown = subprocess.run(["systemctl", "is-active", ENGINE_UNIT], capture_output=True, text=True, check=False)
    reason = refusal(sys.stdin.read().splitlines(), shown.stdout.strip())
    if reason:
        print(reason, file=sys.stderr)
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
