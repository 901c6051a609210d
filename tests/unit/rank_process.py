"""One rank's supervisor as a process, with a folder instead of a node: rank_process.py FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "collections"))

from ansible_collections.sparkwright.cluster.plugins.module_utils import supervisor

FOLDER = Path(sys.argv[1])
# The same steps as on a node, sooner.
supervisor.TURN, supervisor.KNOCK, supervisor.LOOK_SECONDS = 0.1, 0.2, 0.3
supervisor.COLLECT, supervisor.ORDERS, supervisor.HANG_UP = 0.6, 60.0, 10.0

watch, rank = str(FOLDER / "watchdog.json"), str(FOLDER / "rank.json")
load, save, keep = supervisor.load_watchdog, supervisor.save_watchdog, supervisor.save_rank
supervisor.load_watchdog = lambda: load(watch)
supervisor.save_watchdog = lambda content: save(content, watch)
supervisor.save_rank = lambda content: keep(content, rank)

if __name__ == "__main__":
    sys.exit(supervisor.Supervisor(json.loads((FOLDER / "launch.json").read_text()), 7).run())
