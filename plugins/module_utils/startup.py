"""What a node does when its engine starts: ask the launch checks once more, then become the container's client.

GIDs, MTU and memory are true only at the moment of the launch, so the unit runs `check` right before `run`. Both read
the launch file, which holds the argument list as a list, so that no shell and no unit file quoting is in between.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .catalogue import run_checks
from .checks import Cluster, Stage, refusals
from .intent import Intent
from .names import LAUNCH_FILE
from .node_reader import NodeReader

SUBSETS = ("memory", "fabric", "runtime", "weights", "serving")


def check(launch: dict[str, Any]) -> list[str]:
    """The reasons why this node must not start its engine now, one line each."""
    intent = Intent.from_data(launch["intent"])
    reader = NodeReader(launch["hardware_root"])
    facts = reader.read(SUBSETS, weights_path=intent.weights_path, images=[intent.image])
    cluster = Cluster({intent.host: facts}, {intent.host: intent})
    return [str(found) for found in refusals(run_checks(cluster, Stage.LAUNCH))]


def main(arguments: Sequence[str]) -> int:
    """`check` prints reasons and returns 1 when there are any; `run` does not return."""
    launch = json.loads(Path(LAUNCH_FILE).read_text(encoding="utf-8"))
    if list(arguments) == ["run"]:
        os.execvp(launch["argv"][0], launch["argv"])
    reasons = check(launch)
    for reason in reasons:
        print(f"refused: {reason}")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
