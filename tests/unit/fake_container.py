"""Stands in for Docker's command: one container, which is a process that lives until it is told to end.

Its state lies in the folder FAKE_DOCKER: `pid` while there is a container, `prints` what it prints, `exit` tells it to
end with that status, `state` is what `inspect` shows, and `calls` has every command.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])


def run() -> int:
    """The container; it ignores TERM as a rank does that waits for its peers."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (HOME / "exit").unlink(missing_ok=True)
    (HOME / "state").write_text(json.dumps({"OOMKilled": False, "ExitCode": 0}))
    (HOME / "pid").write_text(str(os.getpid()))
    print((HOME / "prints").read_text() if (HOME / "prints").exists() else "an engine starts", flush=True)
    while not (HOME / "exit").exists():
        time.sleep(0.05)
    status = int((HOME / "exit").read_text() or 0)
    state = json.loads((HOME / "state").read_text())
    (HOME / "state").write_text(json.dumps({**state, "ExitCode": status}))
    return status


def end() -> int:
    """`stop` and `rm --force`."""
    if (HOME / "pid").exists():
        (HOME / "exit").write_text("137")
    if sys.argv[1] == "rm":
        (HOME / "pid").unlink(missing_ok=True)
    return 0


def main() -> int:
    with (HOME / "calls").open("a") as calls:
        calls.write(" ".join(sys.argv[1:]) + "\n")
    if sys.argv[1] == "run":
        return run()
    if sys.argv[1] == "container":
        print((HOME / "state").read_text() if (HOME / "pid").exists() else "", end="")
        return 0 if (HOME / "pid").exists() else 1
    return end()


sys.exit(main())
