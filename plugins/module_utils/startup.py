"""What a node does when its engine starts: ask the launch checks once more, then run its rank with the others.

GIDs, MTU and memory are true only at the moment of the launch, so the unit runs `admit` right before `run`; `check` is
the same for a person. All read the launch file, which holds the argument list as a list, so that no shell and no unit
file quoting is in between.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .catalogue import run_checks
from .checks import Check, Cluster, Stage, refusals
from .intent import Intent
from .meminfo import KIB
from .names import LAUNCH_FILE
from .node_reader import NodeReader
from .rank import new_end, save_rank
from .share_reader import asked_of
from .stages import LoadStage
from .supervisor import Supervisor

# Memory comes back up to a minute after a container has stopped, so a shortage is looked at again for that long; and so
# are the rails after a boot and what comes over them, as links train for seconds and nothing waits for an optional
# interface.
MEMORY = ("memory.headroom", "memory.boot-guard")
RAILS = ("fabric.", "share.")
LATE_SECONDS = 75
PAUSE = 5
# Age of a machine, in seconds, up to which its rails may still be on their way; a Spark boots within two minutes.
BOOT_SECONDS = 900

SUBSETS = ("memory", "processes", "fabric", "runtime", "weights", "serving", "share")


def check(launch: dict[str, Any]) -> list[Check]:
    """The reasons why this node must not start its engine now."""
    intent = Intent.from_data(launch["intent"])
    reader = NodeReader(launch["hardware_root"])
    facts = reader.read(SUBSETS, weights_path=intent.weights_path, images=[intent.image], share=asked_of(intent.share))
    cluster = Cluster({intent.host: facts}, {intent.host: intent})
    return refusals(run_checks(cluster, Stage.LAUNCH))


def settled_reasons(launch: dict[str, Any]) -> list[Check]:
    """The reasons that remain once memory and rails had time to come back.

    It waits only when nothing else is wrong, as nothing else comes back by waiting.
    """
    until = time.monotonic() + LATE_SECONDS
    found = check(launch)
    while found and all(comes_late(reason) for reason in found) and time.monotonic() < until:
        time.sleep(PAUSE)
        found = check(launch)
    return found


def comes_late(reason: Check) -> bool:
    """Whether a reason may go away by waiting."""
    # This clock counts from the boot.
    booting = time.monotonic() < BOOT_SECONDS
    return reason.id in MEMORY or (booting and reason.id.startswith(RAILS))


def keep_refusal(reasons: Sequence[str]) -> None:
    """Keep why the rank did not start where doctor and the play look for it."""
    end = new_end("\n".join(reasons), time.time(), refused=True) if reasons else None
    save_rank(
        {
            "invocation": os.environ.get("INVOCATION_ID", ""),
            "stage": str(LoadStage.ROLL_CALL),
            "detail": "start-up check",
            "since": time.time(),
            "ready": False,
            "missing": [],
            "first": "",
            "available": 0,
            "figures": {},
            "end": end,
        }
    )


def run(launch: dict[str, Any]) -> int:
    """Run the rank until it ends; the exit status of the unit."""
    available = NodeReader(launch["hardware_root"]).read(["memory"])["memory"].get("MemAvailable", 0) * KIB
    try:
        supervisor = Supervisor(launch, available)
    except OSError as error:
        intent = launch["intent"]
        reason = (
            f"{intent['host']}: {intent['head_address']} port {intent['roll_port']} cannot be had ({error.strerror}); "
            "limit: free for the roll call of the ranks; remedy: end what holds it"
        )
        print(f"refused: {reason}")
        keep_refusal([reason])
        return 1
    return supervisor.run()


def main(arguments: Sequence[str]) -> int:
    """`check` and `admit` print reasons and return 1 when there are any; `run` returns when the rank has ended."""
    launch = json.loads(Path(LAUNCH_FILE).read_text(encoding="utf-8"))
    if list(arguments) == ["run"]:
        return run(launch)
    admits = list(arguments) == ["admit"]
    if admits:
        keep_refusal([])
    reasons = settled_reasons(launch)
    for reason in reasons:
        print(f"refused: {reason}")
    if admits:
        keep_refusal([str(reason) for reason in reasons])
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
