"""Holds the cluster's lock for as long as one ansible-playbook lives. Run as a program, by cluster_lock alone.

    lock_holder.py PID COMMAND...

COMMAND takes the lock on the head, prints `held`, and keeps it while lines arrive on its standard input. This program
sends one every few seconds until process PID is gone. Whatever dies, be it PID, this program, the connection or either
machine, the lines stop and the lock is free: nothing can leave it behind.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence

# Seconds between two lines. The command gives up after six of them without any.
BEAT_SECONDS = 10


def main(arguments: Sequence[str]) -> int:
    """Report in one line of JSON whether the lock is held, then hold it."""
    owner, command = int(arguments[0]), list(arguments[1:])
    watched = os.pidfd_open(owner)
    # Unbuffered: a line that the other side did not take must not wait in a buffer to fail again in `close`.
    process = subprocess.Popen(
        command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin
    assert process.stdout
    assert process.stderr
    first = process.stdout.readline().decode().strip()
    if first != "held":
        said = process.stderr.read().decode(errors="replace").strip()
        report({"held": False, "code": process.wait(), "holder": first, "error": said})
        return 1
    report({"held": True})
    while process.poll() is None and not select.select([watched], [], [], BEAT_SECONDS)[0]:
        beat(process)
    process.stdin.close()
    return process.wait()


def beat(process: subprocess.Popen[bytes]) -> None:
    """Send one line; that the other side is gone shows in the next poll."""
    assert process.stdin
    try:
        process.stdin.write(b"\n")
    except BrokenPipeError:
        process.terminate()


def report(found: dict[str, object]) -> None:
    """Say it once and let go of the pipe, so that nobody waits for its end."""
    print(json.dumps(found), flush=True)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.dup2(null, sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
