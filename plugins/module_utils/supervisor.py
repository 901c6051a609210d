"""Runs one rank: waits until all are there, starts the container, keeps what it does, and ends it with the others.

It is the main process of the engine's unit, on every node. The head's also watches whether the engine generates. When
something fails, the head decides once for all ranks and tells them: start again (exit status AGAIN, on which systemd
starts the unit anew, start-up check first) or stop. It does I/O on sockets, files and the container.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .engine_client import Counters, counters, generate, key_of
from .engine_log import KEPT_LINES, Figures, kept, noticed
from .facts import Rank, RankEnd
from .first_failure import first_failure, why
from .intent import Intent
from .machine import json_or, run_command
from .names import ENGINE_CONTAINER
from .rank import load_watchdog, new_end, save_rank, save_watchdog
from .roll_call import Event, HeadCall, WorkerCall, listens, others
from .stages import LoadStage, Progress, advanced, at, overdue
from .watchdog import ANSWER_SECONDS, LOOK_SECONDS, Decision, Look, Watch, decide, observed, recent

# Exit status after which systemd starts the unit again; EX_TEMPFAIL of sysexits.h.
AGAIN = 75
# Seconds: a turn of the loop; between two tries to get the first answer; how long the head collects what else fails
# before it decides which rank was first; how long a rank that failed waits for the head's decision.
TURN, KNOCK, COLLECT, ORDERS = 1.0, 5.0, 3.0, 15.0
# Seconds until the others must have heard the head's last words.
HANG_UP = 5.0
# Seconds that a container has to end by itself: a rank that waits for its peers ignores TERM for tens of them.
GRACE = 10
# Seconds for Docker to answer; it is asked between two signs of life, and a silent rank counts as gone.
DOCKER = 45


class Container:
    """The engine's container and the lines that it prints, which go on to the journal."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Start it."""
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.last: deque[str] = deque(maxlen=KEPT_LINES)
        self._client = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def new_lines(self) -> list[str]:
        """What it printed since the last call."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self.lines.get_nowait())
        self.last.extend(line for line in found if line.strip())
        return found

    def ended(self) -> RankEnd | None:
        """How it ended, None while it runs."""
        code = self._client.poll()
        if code is None:
            return None
        self._reader.join(2)
        self.new_lines()
        state = _inspected()
        out_of_memory, log = bool(state.get("OOMKilled")), kept(self.last)
        exit_code = int(state.get("ExitCode", code))
        reason = why(exit_code, out_of_memory, log)
        return new_end(reason, time.time(), exit_code=exit_code, out_of_memory=out_of_memory, log=log)

    def stop(self) -> None:
        """End it whatever it does, and take it away."""
        docker("stop", "--time", str(GRACE), ENGINE_CONTAINER)
        remove_container()

    def _read(self) -> None:
        """Pass on the bytes as they come; a progress bar rewrites its line with carriage returns."""
        pipe, rest = self._client.stdout, b""
        assert pipe is not None
        while chunk := os.read(pipe.fileno(), 65_536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            *pieces, rest = re.split(rb"[\r\n]", rest + chunk)
            for piece in pieces:
                self.lines.put(piece.decode(errors="replace"))


class Prober:
    """Asks the engine in a thread of its own, because an answer may take a minute. The head alone has one."""

    def __init__(self, intent: Intent, model: str, key: str | None) -> None:
        """Remember whom to ask."""
        self._url, self._executor = f"http://{intent.api_host}:{intent.api_port}", intent.executor
        self._model, self._key = model, key
        self._answers: queue.SimpleQueue[Look] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._next = 0.0

    def look(self, pause: float, first: bool) -> Look | None:
        """The newest look, if one is done; begins the next one when `pause` seconds have passed.

        While the `first` answer is looked for, a token that the engine generated for anybody is one.
        """
        now = time.monotonic()
        if self._thread is None and now >= self._next:
            self._next = now + pause
            self._thread = threading.Thread(target=lambda: self._answers.put(self._ask(first)), daemon=True)
            self._thread.start()
        try:
            found = self._answers.get_nowait()
        except queue.Empty:
            return None
        self._thread = None
        return found

    def _ask(self, first: bool) -> Look:
        try:
            before = self._counters()
            if before.requests:
                proof = True if first and before.generated else None
                return Look(time.time(), before.tokens, before.requests, proof)
            generated = self._generates()
            after = self._counters()
            return Look(time.time(), after.tokens, after.requests, generated and after.generated > before.generated)
        except (OSError, ValueError):
            return Look(time.time())

    def _counters(self) -> Counters:
        return counters(self._url, self._executor, timeout=ANSWER_SECONDS, api_key=self._key)

    def _generates(self) -> bool:
        try:
            answer = generate(self._url, self._model, "1", tokens=1, timeout=ANSWER_SECONDS, api_key=self._key)
        except (OSError, ValueError):
            return False
        return answer.tokens > 0


class Supervisor:
    """One rank from the roll call to its end. `head` is None on the others, `worker` on the head."""

    def __init__(self, launch: Mapping[str, Any], available: int) -> None:
        """Join the roll call; `available` are the bytes of memory before the launch. Raises OSError."""
        self.launch, self.intent = launch, Intent.from_data(launch["intent"])
        self.progress, self.figures = Progress(LoadStage.ROLL_CALL, time.time()), Figures()
        self.container: Container | None = None
        self.available, self.ready, self.first, self.stopping = available, False, "", False
        self.started = 0.0
        self.watch = Watch()
        # Ends that were reported so far, by host, and until when the head waits for more of them.
        self.ends: dict[str, RankEnd] = {}
        self.decide_at = 0.0
        self._saved = ""
        intent = self.intent
        self.head: HeadCall | None = None
        self.worker: WorkerCall | None = None
        if intent.is_head:
            ranks = others(launch["hosts"])
            self.head = HeadCall(intent.head_address, intent.roll_port, ranks, launch["deployment"])
            self.prober = Prober(intent, launch["model"], key_of())
        else:
            hello = {"host": intent.host, "rank": intent.rank, "deployment": launch["deployment"]}
            self.worker = WorkerCall(intent.head_address, intent.roll_port, hello)

    def run(self) -> int:
        """The exit status of the unit."""
        signal.signal(signal.SIGTERM, self._on_term)
        say(f"rank {self.intent.rank} waits for the others; no memory is taken until all are there")
        status: int | None = None
        while status is None:
            status = self.turn()
            self.save()
        return status

    def turn(self) -> int | None:
        """One turn of the loop; the result is the exit status once the rank has ended."""
        if self.stopping:
            return self.leave()
        call = self.head or self.worker
        assert call is not None
        for event in call.step(TURN):
            status = self.on_head(event) if self.head else self.on_worker(event)
            if status is not None:
                return status
        self.go_on()
        return self.end_of_turn()

    def go_on(self) -> None:
        """Begin when all are there, start when all listen, and read on."""
        if self.head and not self.begun and not self.head.missing:
            self.head.send("go")
            self.begin()
        if self.container:
            self.read()
        elif self.begun and not self.ends:
            self.start()

    def end_of_turn(self) -> int | None:
        """What has become of the rank itself, and what the head makes of all that failed."""
        host = self.intent.host
        end = self.failed() if self.begun and host not in self.ends else None
        if end:
            say(f"rank {self.intent.rank} has failed: {end['why']}")
            self.report(host, end)
            if self.worker:
                return self.await_orders(end)
        return self.decided() if self.head and self.ends and time.monotonic() >= self.decide_at else None

    def failed(self) -> RankEnd | None:
        """Whether the container ended, a stage takes too long, or the engine fails; None while all is well."""
        end = self.container.ended() if self.container else None
        if end:
            return end
        late = overdue(self.progress, time.time(), self.launch["stage_minutes"], self.intent.is_head)
        if late:
            return new_end(late, time.time(), log=self.last_words())
        return self.looked() if self.head else None

    # --- what the head does ------------------------------------------------------------------------------------------

    def on_head(self, event: Event) -> int | None:
        """A rank came, went, or says something."""
        host, reason = event.host, str(event.data.get("why", ""))
        if event.kind == "joined":
            say(f"{host} is there; missing: {', '.join(self.head.missing) if self.head else ''}")
        elif event.kind == "refused":
            say(f"refused: {reason}")
        elif self.begun and event.kind == "left":
            return self.finish(Decision.AGAIN, f"{host} was stopped by its administrator", counted=False)
        elif self.begun and event.kind == "failed":
            self.report(host, {**new_end(reason, time.time()), **event.data["end"]})
        elif self.begun and event.kind == "lost" and host not in self.ends:
            self.report(host, new_end(f"its node does not answer any more: {reason}", time.time()))
        return None

    def report(self, host: str, end: RankEnd) -> None:
        """Keep a failure; the head decides when it has waited for those that came with it."""
        if not self.ends:
            self.decide_at = time.monotonic() + COLLECT
        self.ends.setdefault(host, end)
        if self.worker:
            self.worker.send("failed", why=end["why"], end=end)

    def decided(self) -> int:
        """Decide for all ranks, once."""
        host = first_failure(self.ends)
        rank = self.launch["hosts"].index(host)
        self.first = f"rank {rank} on {host}: {self.ends[host]['why']}"
        watchdog = load_watchdog()
        restarts = watchdog["restarts"] if watchdog else []
        allowed = decide(restarts, time.time(), was_ready=self.ready, enabled=self.launch["watchdog"])
        return self.finish(allowed, self.first)

    def finish(self, decision: Decision, reason: str, *, counted: bool = True) -> int:
        """Tell all ranks, keep why, and end the own one."""
        again = decision is Decision.AGAIN
        assert self.head is not None
        self.head.send("end", again=again, why=reason, first=self.first)
        say(f"{'all ranks start again' if again else 'all ranks stop'}: {reason}")
        if counted:
            watchdog = load_watchdog()
            restarts = recent(watchdog["restarts"] if watchdog else [], time.time())
            save_watchdog(
                {
                    "restarts": [*restarts, time.time()] if again else restarts,
                    "last": reason,
                    "stopped": "" if again else reason,
                }
            )
        self.end(self.ends.get(self.intent.host) or new_end(reason, time.time(), ordered=True))
        # A line that is closed too early loses what was sent last; the others hang up when they have heard it.
        until = time.monotonic() + HANG_UP
        while len(self.head.missing) < len(self.launch["hosts"]) - 1 and time.monotonic() < until:
            self.head.step(TURN)
        self.head.close()
        return AGAIN if again else 1

    def looked(self) -> RankEnd | None:
        """The engine failed although its container runs: it never answered, or does not any more."""
        look = self.prober.look(LOOK_SECONDS if self.ready else KNOCK, first=not self.ready)
        if look and not self.ready and look.generated:
            self.answered(look)
        elif look and self.ready:
            self.watch, reason = observed(self.watch, look)
            if reason and self.launch["watchdog"]:
                return new_end(reason, time.time(), log=self.last_words())
        limit = self.launch["ready_minutes"]
        if not self.ready and time.time() - self.started > limit * 60:
            return new_end(f"no answer {limit} minutes after the launch, in stage {self.progress}", time.time())
        return None

    def answered(self, look: Look) -> None:
        """The first answer of this launch."""
        self.ready, self.watch = True, Watch(0, look.tokens, look.at)
        self.progress = at(LoadStage.READY, self.progress, time.time())
        say("ready: the engine generated a token and counted it")
        assert self.head is not None
        self.head.send("ready")
        watchdog = load_watchdog()
        if watchdog and watchdog["stopped"]:
            save_watchdog({**watchdog, "stopped": ""})

    # --- what the others do ------------------------------------------------------------------------------------------

    def on_worker(self, event: Event) -> int | None:
        """The head says something, or is gone."""
        if event.kind == "go":
            self.begin()
        elif event.kind == "ready":
            self.ready, self.progress = True, at(LoadStage.READY, self.progress, time.time())
        elif event.kind == "end":
            return self.obey(event)
        elif event.kind == "lost" and self.begun:
            reason = f"the head is gone ({event.data['why']})"
            say(f"{reason}; rank {self.intent.rank} ends and waits for it")
            self.end(new_end(reason, time.time(), ordered=True))
            return AGAIN
        return None

    def obey(self, event: Event) -> int:
        """End as the head says."""
        self.first = str(event.data.get("first", ""))
        say(f"the head ends all ranks: {event.data['why']}")
        if self.worker:
            self.worker.close()
        own = self.ends.get(self.intent.host)
        self.end(own or new_end(str(event.data["why"]), time.time(), ordered=True))
        return AGAIN if event.data.get("again") else 1

    def await_orders(self, end: RankEnd) -> int:
        """The rank has failed: hear what the head makes of it. Without a head it waits for one, and takes no memory."""
        assert self.worker is not None
        until = time.monotonic() + ORDERS
        while time.monotonic() < until and self.worker.connected:
            for event in self.worker.step(TURN):
                if event.kind == "end":
                    return self.obey(event)
        self.end(end)
        return 1 if self.worker.connected else AGAIN

    # --- what all do -------------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether the launch has begun: from then on the ranks end together."""
        return self.started > 0

    def begin(self) -> None:
        """All ranks are there."""
        say("all ranks are there")
        self.started = time.time()
        self.progress = at(LoadStage.CONTAINER, self.progress, self.started)

    def start(self) -> None:
        """Start the container in the place of whatever has its name, once they listen whom it asks as it starts."""
        places = [(host, address, port) for host, address, port in self.launch["waits"]]
        late = next((place for place in places if not listens(place[1], place[2], TURN)), None)
        detail = "waits for {} at {}:{}".format(*late) if late else ""
        if late and detail != self.progress.detail:
            say(f"rank {self.intent.rank} {detail}")
        self.progress = replace(self.progress, detail=detail)
        if not late:
            say("the container starts")
            remove_container()
            self.container = Container(self.launch["argv"])

    def last_words(self) -> list[str]:
        """The last lines of the engine, as they are kept."""
        return kept(self.container.last) if self.container else []

    def read(self) -> None:
        """Follow the engine's log."""
        assert self.container is not None
        now = time.time()
        for line in self.container.new_lines():
            self.progress, self.figures = advanced(self.progress, line, now), noticed(self.figures, line)

    def leave(self) -> int:
        """The unit is being stopped."""
        call = self.head or self.worker
        assert call is not None
        if self.worker:
            self.worker.send("left")
        # Before its container ends, or the others would take that for a failure.
        call.close()
        say("stopped on request")
        self.end(new_end("stopped on request", time.time(), ordered=True))
        return 0

    def end(self, end: RankEnd) -> None:
        """End the container and keep how that came about."""
        if self.container:
            self.container.stop()
        self.ends[self.intent.host] = end
        self.save(end)

    def save(self, end: RankEnd | None = None) -> None:
        """Keep what the rank does, when it differs from what was kept."""
        end = end or self.ends.get(self.intent.host)
        rank: Rank = {
            "invocation": os.environ.get("INVOCATION_ID", ""),
            "stage": str(self.progress.stage),
            "detail": self.progress.detail,
            "since": self.progress.since,
            "ready": self.ready and end is None,
            "missing": self.head.missing if self.head and not self.begun else [],
            "first": self.first,
            "available": self.available,
            "figures": asdict(self.figures),
            "end": end,
        }
        text = json.dumps(rank)
        if text != self._saved:
            save_rank(rank)
            self._saved = text

    def _on_term(self, number: int, frame: object) -> None:
        self.stopping = True


def remove_container() -> None:
    """Take away a container of our name that an earlier run left."""
    docker("rm", "--force", ENGINE_CONTAINER)


def docker(*words: str) -> None:
    """Ask Docker. One that hangs must not keep the rank from saying how it ended; the unit tries once more."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(["docker", *words], capture_output=True, timeout=DOCKER, check=False)


def _inspected() -> Mapping[str, Any]:
    """The state of the container as Docker keeps it; empty when it is gone."""
    done = run_command(["docker", "container", "inspect", "--format", "{{json .State}}", ENGINE_CONTAINER])
    found = json_or(done.stdout, {})
    return found if isinstance(found, dict) else {}


def say(text: str) -> None:
    """A line for the unit's log."""
    print(f"sparkwright: {text}", flush=True)
