"""Runs one rank of a Ray cluster inside its container: Ray, on the head the engine, and an eye on the other ranks.

It starts Ray, waits on the head until exactly the planned addresses have registered, and only then starts the engine.
It ends when one of its processes ends or a rank that it needs is gone, and with it, as it is the first process of the
container, everything else does. It uses the standard library, and Ray itself where it asks Ray.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .ray_plan import CLIENT_PORT, FOLDER, RayPlan, ended, gone, missing, node_id, strangers

# Seconds between two looks at processes, peers and logs.
PAUSE = 2
# A rank is gone when it did not answer to so many looks in a row, each of so many seconds.
LOOKS, LOOK_SECONDS = 3, 3
# Seconds for one answer of Ray.
ANSWER_SECONDS = 5
# How often Ray is started: it gives itself 30 seconds, whatever else the node does at that moment.
ATTEMPTS = 5
# Seconds for the engine to end by itself.
END_SECONDS = 6
RAY, CLEARED, MEMBERS, ENGINE = "Ray", "the end of Ray", "the roll call", "the engine"


class LogRelay:
    """Copies to standard output what Ray's workers write to files of their own: how a rank's load goes on."""

    def __init__(self, folder: Path) -> None:
        """Remember where to look."""
        self._folder = folder
        self._read: dict[Path, int] = {}

    def new_text(self) -> Iterator[str]:
        """What was added since the last call, whole lines only."""
        for path in sorted(self._folder.glob("worker-*.*")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            if whole:
                self._read[path] = self._read.get(path, 0) + len(whole) + 1
                yield whole.decode(errors="replace")


class Peers:
    """Whether the other ranks still listen."""

    def __init__(self, plan: RayPlan) -> None:
        """Nobody has missed a look yet."""
        self._plan = plan
        self._missed = dict.fromkeys(plan.watched, 0)

    def gone(self) -> list[str]:
        """Look once, and give a line for each rank that has missed several looks in a row."""
        for host, place in self._plan.watched.items():
            self._missed[host] = 0 if answers(*place) else self._missed[host] + 1
        return [gone(self._plan, host) for host, missed in self._missed.items() if missed >= LOOKS]


class Rank:
    """The processes of one rank."""

    def __init__(self, plan: RayPlan) -> None:
        """Nothing runs yet."""
        self._plan = plan
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._relay = LogRelay(Path(FOLDER, "session_latest", "logs"))
        self._peers = Peers(plan)
        self._attempts = 0
        self._told_to_end = False

    def run(self) -> int:
        """Run until told to end (0), or until something ends or is gone (1)."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        self._start_ray()
        if self._plan.is_head:
            self._start(MEMBERS, [sys.executable, sys.argv[0], "ray-members", *sys.argv[2:]])
        reasons: list[str] = []
        while not self._told_to_end and not reasons:
            time.sleep(PAUSE)
            self._show_logs()
            self._reap()
            reasons = self._look()
        self._stop()
        for reason in reasons:
            say(reason)
        return 1 if reasons else 0

    def _look(self) -> list[str]:
        """Go on where something has ended, and return why the rank must end."""
        finished = {what: process.poll() for what, process in self._processes.items()}
        for what, code in finished.items():
            if code is not None:
                del self._processes[what]
                if not self._go_on(what, code):
                    # The roll call has said itself what is missing.
                    return [ended(self._plan, what, code)]
        complete = ENGINE in self._processes or not (self._plan.is_head or self._processes)
        return self._peers.gone() if complete else []

    def _go_on(self, what: str, code: int) -> bool:
        """Do what follows the end of a process, or say that nothing can."""
        if what == RAY and code and self._attempts < ATTEMPTS:
            self._start(CLEARED, [self._plan.start[0], "stop", "--force"])
        elif what == CLEARED:
            self._start_ray()
        elif what == MEMBERS and not code:
            self._start(ENGINE, self._plan.serve, RAY_ADDRESS=self._plan.meeting_point)
        else:
            return what == RAY and not code
        return True

    def _reap(self) -> None:
        """Take note of the ends of processes that others have left to us; until then they count as alive."""
        own = {process.pid for process in self._processes.values()}
        while True:
            try:
                ended_one = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended_one is None or ended_one.si_pid in own:
                return
            os.waitpid(ended_one.si_pid, 0)

    def _start_ray(self) -> None:
        """Start Ray under a new name; vLLM's ranks follow from these names, see node_id."""
        self._attempts += 1
        self._start(RAY, start_arguments(self._plan), RAY_OVERRIDE_NODE_ID_FOR_TESTING=new_node_id(self._plan))

    def _start(self, what: str, argv: Sequence[str], **environment: str) -> None:
        self._processes[what] = subprocess.Popen(argv, env={**os.environ, **environment})

    def _stop(self) -> None:
        """Let the engine end by itself for a while; whatever is left ends with this process."""
        for process in self._processes.values():
            process.terminate()
        engine = self._processes.get(ENGINE)
        if engine:
            try:
                engine.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                engine.kill()
        self._show_logs()

    def _show_logs(self) -> None:
        for text in self._relay.new_text():
            say(text)

    def _end(self, *_: object) -> None:
        self._told_to_end = True


def start_arguments(plan: RayPlan) -> list[str]:
    """The command that starts Ray; on a head whose image has grpc the port of the server for remote clients too."""
    client = plan.is_head and find_spec("grpc") is not None
    return [*plan.start, *(["--ray-client-server-port", str(plan.port + CLIENT_PORT)] if client else [])]


def new_node_id(plan: RayPlan) -> str:
    """A name for this node that no earlier start of it has had."""
    return node_id(plan.rank, secrets.token_hex(28))


def answers(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), LOOK_SECONDS):
            return True
    except OSError:
        return False


def registered(meeting_point: str) -> dict[str, str]:
    """Ray's names of its living nodes, by address. Raises RpcError while Ray does not answer."""
    # Only the image has it.
    client: Any = import_module("ray._raylet").GcsClient(address=meeting_point)
    nodes = client.get_all_node_info(timeout=ANSWER_SECONDS)
    # The state of a living node is 0 (gcs.proto, GcsNodeInfo).
    return {info.node_manager_address: name.hex() for name, info in nodes.items() if info.state == 0}


def called(plan: RayPlan) -> dict[str, str]:
    """Who has registered; nobody as long as Ray itself does not answer."""
    if not answers(plan.ranks[plan.head], plan.port):
        return {}
    try:
        return registered(plan.meeting_point)
    except Exception as error:  # Ray's own kinds of errors differ from release to release.
        say(f"Ray: no answer yet: {error}")
        return {}


def wait_for_members(plan: RayPlan) -> int:
    """Wait until exactly the planned addresses have registered (0), or say who is missing or too many (1)."""
    until = time.monotonic() + plan.seconds
    waiting: list[str] = []
    while True:
        found = called(plan)
        lines = strangers(plan, found) or missing(plan, found)
        if not lines:
            say(f"Ray: all {len(plan.ranks)} ranks have registered: {', '.join(plan.ranks.values())}")
            return 0
        if strangers(plan, found) or time.monotonic() > until:
            for line in lines:
                say(line)
            return 1
        names = [line.partition(":")[0] for line in lines]
        if names != waiting:
            say(f"Ray: waiting for {', '.join(names)}")
            waiting = names
        time.sleep(PAUSE)


def facts(meeting_point: str) -> dict[str, Any]:
    """Ray's version in this image, and on the head the addresses that are registered now; else why not."""
    try:
        found: dict[str, Any] = {"version": version("ray"), "nodes": None, "error": None}
    except PackageNotFoundError:
        return {"version": None, "nodes": None, "error": "the image has no Ray"}
    if meeting_point:
        try:
            found["nodes"] = registered(meeting_point)
        except Exception as error:  # Ray's own kinds of errors differ from release to release.
            found["error"] = f"Ray at {meeting_point} does not answer: {type(error).__name__}"
    return found


def say(text: str) -> None:
    """Write to the unit's log at once."""
    print(text, flush=True)


def main(arguments: Sequence[str]) -> int:
    """`ray` runs the rank, `ray-members` waits for all of them, `ray-facts` says what is registered, as JSON."""
    verb, *rest = arguments
    if verb == "ray-facts":
        print(json.dumps(facts(rest[0] if rest else "")))
        return 0
    plan = RayPlan.from_arguments(rest)
    return wait_for_members(plan) if verb == "ray-members" else Rank(plan).run()
