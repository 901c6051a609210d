"""Runs one node's part of the RDMA proofs: starts `ib_write_bw`, meets the peers, and ends in bounded time.

It does I/O: it reads the GID tables, starts processes and looks at the node's sockets. Every process has a session of
its own, which is killed with all that is in it; should this process be killed itself, `timeout` ends them.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .fabric_reader import FabricReader
from .facts import gid_rows
from .gids import find_ipv4, summary
from .machine import Machine, run_command
from .perftest import SPEED, TOOL, average_gbits, bind_option, command_line, failure, was_refused
from .rdma_schedule import RUN_SECONDS, SERVER, WAIT_SECONDS, RdmaProbe, Run, RunResult, latest_start

# Verbs reach the devices through this folder; a container has it only when it was given to it.
VERBS = "dev/infiniband"
SOCKETS = Path("/proc/net/tcp")
# The kernel's number of the state LISTEN (include/net/tcp_states.h).
LISTEN = "0A"

# Seconds between two attempts of a client to connect.
RETRY_SECONDS = 0.5
# Seconds between two looks at a process.
LOOK_SECONDS = 0.05
# Seconds that `timeout` leaves to this process before it kills the tool.
SPARE_SECONDS = 5


class Tool:
    """A running command, in a `with` that kills it and all its children."""

    def __init__(self, argv: Sequence[str], seconds: float) -> None:
        """Start it; `seconds` is the time after which it ends even when nobody is left to kill it."""
        # Files and not pipes, which nobody would empty while the command is waited for.
        self._output, self._errors = _scratch(), _scratch()
        bound = ["timeout", "--signal=KILL", str(math.ceil(seconds + SPARE_SECONDS))]
        self._process = subprocess.Popen(
            [*bound, *argv],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C"},
        )

    def __enter__(self) -> Tool:
        """The running command."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what still runs."""
        # Nobody has taken the exit status yet, so the number still names this session and no other process.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._output.close()
        self._errors.close()

    def ends_by(self, moment: float) -> bool:
        """Wait until it has ended, at the latest until a moment of the monotonic clock."""
        while self._exit() is None:
            if time.monotonic() >= moment:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def said(self) -> tuple[str, str]:
        """What it wrote so far to its standard output and to its standard error output."""
        return _content(self._output), _content(self._errors)

    @property
    def status(self) -> int:
        """Its exit status, or the number of the signal that ended it; it must have ended."""
        found = self._exit()
        assert found is not None
        return found.si_status

    def _exit(self) -> os.waitid_result | None:
        """How it ended, or None; the status stays there to be asked for again."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


@dataclass(frozen=True)
class Limits:
    """Seconds: for all runs together, for the first wait for a peer, and for each run."""

    whole: float
    wait: float = WAIT_SECONDS
    each: float = RUN_SECONDS


class Exchange:
    """One node's part. `root` is changed by tests only."""

    def __init__(self, limits: Limits, message_bytes: int, mode: str, root: str = "/") -> None:
        """Start the clock; `message_bytes` is the size of one write, `mode` one of `perftest.MODES`."""
        self._limits, self._root = limits, root
        self._message_bytes, self._mode = message_bytes, mode
        self._start = time.monotonic()
        self._bind: str | None = None

    def probe(self, runs: Iterable[Run]) -> RdmaProbe:
        """Make the runs one after the other, in the order of their rounds."""
        lacking = self._lacking()
        if lacking:
            return {"available": False, "reason": lacking, "runs": []}
        self._bind = bind_option(run_command([TOOL, "--help"]).stdout)
        results = [self._result(run) for run in sorted(runs, key=lambda run: run.round)]
        return {"available": True, "reason": "", "runs": results}

    def _lacking(self) -> str:
        if shutil.which(TOOL) is None:
            return f"{TOOL} is not installed (package perftest)"
        if not (Path(self._root) / VERBS).is_dir():
            return f"there is no /{VERBS}"
        return ""

    def _result(self, run: Run) -> RunResult:
        """One run. The GID index is looked up now: it may have moved since the facts were read."""
        if time.monotonic() >= self._end:
            return run.result(f"its turn did not come within {self._limits.whole:g} s")
        index, reason = self._gid_index(run)
        if index is None:
            return run.result(reason)
        argv = command_line(run, index, self._message_bytes, self._mode, self._bind)
        return self._serve(run, argv) if run.role == SERVER else self._connect(run, argv)

    def _gid_index(self, run: Run) -> tuple[int | None, str]:
        """The index of the own address in the device's GID table, or the reason why there is none."""
        if run.device is None:
            return None, f"{run.rail} has no RDMA device"
        machine = Machine(self._root, self._root)
        if run.device not in machine.names("sys/class/infiniband"):
            return None, f"there is no RDMA device {run.device}"
        found = FabricReader(machine).device(run.device)
        rows = gid_rows(found["port"])
        row = find_ipv4(rows, run.gid_address)
        if row is None:
            return None, f"{run.device} has no RoCE v2 GID of {run.gid_address}, only {summary(rows)}"
        return row.index, ""

    def _serve(self, run: Run, argv: Sequence[str]) -> RunResult:
        """Listen until the peer has come, then until the run has ended."""
        latest = self._latest_start(run)
        with Tool(argv, latest + self._limits.each - time.monotonic()) as tool:
            if not tool.ends_by(latest) and listens(run.port):
                return run.result(f"{run.peer} had not connected to port {run.port} {self._age(latest)}")
            return self._outcome(run, tool, latest + self._limits.each)

    def _connect(self, run: Run, argv: Sequence[str]) -> RunResult:
        """Try until the peer listens, then until the run has ended."""
        latest = self._latest_start(run)
        while True:
            with Tool(argv, self._limits.each) as tool:
                result = self._outcome(run, tool, time.monotonic() + self._limits.each)
                refused = was_refused(tool.said()[1])
            if not refused or time.monotonic() + RETRY_SECONDS >= latest:
                return result
            time.sleep(RETRY_SECONDS)

    def _outcome(self, run: Run, tool: Tool, moment: float) -> RunResult:
        moment = min(moment, self._end)
        if not tool.ends_by(moment):
            return run.result(f"{TOOL} had not ended {self._age(moment)}")
        output, errors = tool.said()
        if tool.status:
            return run.result(failure(output, errors, tool.status))
        # The mode `reach` moves too little for a figure.
        return run.result(gbits=average_gbits(output) if self._mode == SPEED else None)

    def _latest_start(self, run: Run) -> float:
        return min(self._start + latest_start(run.round, self._limits.wait, self._limits.each), self._end)

    def _age(self, moment: float) -> str:
        return f"{moment - self._start:.0f} s after the start"

    @property
    def _end(self) -> float:
        return self._start + self._limits.whole


def listens(port: int, sockets: Path = SOCKETS) -> bool:
    """Whether an IPv4 socket of this node listens on a port; perftest closes its own as soon as the peer has come."""
    rows = [line.split() for line in sockets.read_text(encoding="ascii").splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == LISTEN for row in rows)


def _scratch() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
