"""The ranks call each other before a launch and stay on the line while it runs; no node logs in to another.

The head listens on the fabric, and every other rank connects and says who it is. Nobody starts a container before all
are there, so a node that is off or refuses costs the others no memory. A line that ends, or is silent, is a rank that
is gone. A message is one line of JSON; it does I/O on sockets alone.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# Seconds: between two signs of life, the silence after which a rank counts as gone, between two tries to reach the
# head, and for a message to be sent. A node that fills its memory with weights, or waits for its Docker, may be silent
# for tens of seconds and be well.
BEAT, SILENCE, RETRY, SEND = 5.0, 60.0, 3.0, 5.0
# Bytes; a message that is longer is none of ours.
LONGEST = 65_536

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """Something that happened on a line: `joined`, `lost`, or the kind of a message, with its data."""

    kind: str
    host: str
    data: Message = field(default_factory=dict)


class Line:
    """One connection, on which whole messages come and go."""

    def __init__(self, connection: socket.socket) -> None:
        """Take over a connection."""
        connection.settimeout(SEND)
        self.connection, self.host = connection, ""
        self.heard = self.spoken = time.monotonic()
        self._buffer = b""

    def send(self, kind: str, **data: Any) -> None:
        """Send a message. Raises OSError when the line is gone."""
        # Escaped, the last lines of a log may be longer than a message can be.
        text = json.dumps({"kind": kind, **data}, ensure_ascii=False)
        self.connection.sendall(text.encode(errors="replace") + b"\n")
        self.spoken = time.monotonic()

    def receive(self) -> list[Message]:
        """The messages that came; call it when there is something to read. Raises OSError when the line is gone."""
        chunk = self.connection.recv(LONGEST)
        if not chunk:
            raise ConnectionError("it hung up")
        self.heard = time.monotonic()
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        if len(self._buffer) > LONGEST:
            raise ConnectionError("it sent no message of ours")
        return [message for line in lines if (message := _parsed(line)) is not None]

    def keep_alive(self) -> None:
        """Give a sign of life when one is due. Raises OSError when the line is gone or has been silent for too long."""
        now = time.monotonic()
        if now - self.heard > SILENCE:
            raise TimeoutError(f"it was silent for {SILENCE:.0f} s")
        if now - self.spoken > BEAT:
            self.send("beat")

    def close(self) -> None:
        """Hang up."""
        with contextlib.suppress(OSError):
            self.connection.close()


class HeadCall:
    """The head's end: one line for each other rank."""

    def __init__(self, address: str, port: int, ranks: Mapping[str, int], deployment: str) -> None:
        """Listen; `ranks` are the others by host. Raises OSError when the address or port cannot be had."""
        self._listener = socket.create_server((address, port))
        self._ranks, self._deployment = ranks, deployment
        self._strangers: list[Line] = []
        self._lines: dict[str, Line] = {}

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def missing(self) -> list[str]:
        """The hosts that are not there."""
        return [host for host in self._ranks if host not in self._lines]

    def step(self, seconds: float) -> list[Event]:
        """What happened within that time, or at once when something happens."""
        lines = [*self._strangers, *self._lines.values()]
        ready = select.select([self._listener, *(line.connection for line in lines)], [], [], seconds)[0]
        if self._listener in ready:
            self._accept()
        return [event for line in lines for event in self._of(line, line.connection in ready)]

    def send(self, kind: str, **data: Any) -> None:
        """Tell every rank; one that is gone is found by the next step."""
        for line in self._lines.values():
            with contextlib.suppress(OSError):
                line.send(kind, **data)

    def close(self) -> None:
        """Hang up on all and listen no more."""
        for line in [*self._strangers, *self._lines.values()]:
            line.close()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            self._strangers.append(Line(self._listener.accept()[0]))

    def _of(self, line: Line, readable: bool) -> Iterator[Event]:
        try:
            messages = line.receive() if readable else []
            line.keep_alive()
        except OSError as error:
            yield from self._gone(line, str(error))
            return
        for message in messages:
            if line.host:
                yield from _events(line.host, message)
            elif line in self._strangers:
                # What a rank sends after it was refused is of no interest.
                yield from self._introduced(line, message)

    def _gone(self, line: Line, why: str) -> Iterator[Event]:
        line.close()
        if line in self._strangers:
            self._strangers.remove(line)
        elif self._lines.get(line.host) is line:
            del self._lines[line.host]
            yield Event("lost", line.host, {"why": why})

    def _introduced(self, line: Line, message: Message) -> Iterator[Event]:
        host, fault = str(message.get("host")), self._fault(message)
        self._strangers.remove(line)
        if fault:
            with contextlib.suppress(OSError):
                line.send("end", again=False, why=fault, first=fault)
            line.close()
            yield Event("refused", host, {"why": fault})
            return
        # A node that lost its power says nothing before it calls again; what it was before is over.
        former = self._lines.pop(host, None)
        if former:
            former.close()
            yield Event("lost", host, {"why": "it calls again"})
        line.host = host
        self._lines[host] = line
        yield Event("joined", host)

    def _fault(self, message: Message) -> str:
        host, rank = str(message.get("host")), message.get("rank")
        if message.get("kind") != "hello" or host not in self._ranks or self._ranks[host] != rank:
            return f"{host} calls as rank {rank}; limit: {_listed(self._ranks)}; remedy: run site.yml"
        if message.get("deployment") != self._deployment:
            return (
                f"{host} was set up for deployment {message.get('deployment')}; limit: {self._deployment}, as on the "
                "head; remedy: run site.yml"
            )
        return ""


class WorkerCall:
    """The end of a rank above 0: one line to the head, tried for as long as it takes."""

    def __init__(self, address: str, port: int, hello: Message) -> None:
        """Remember whom to call and what to say first."""
        self._place, self._hello = (address, port), hello
        self._line: Line | None = None
        self._next = 0.0

    @property
    def connected(self) -> bool:
        """Whether there is a line to the head."""
        return self._line is not None

    def step(self, seconds: float) -> list[Event]:
        """What happened within that time, or at once when something happens."""
        if self._line is None and not self._connect(seconds):
            return []
        line = self._line
        assert line is not None
        try:
            readable = select.select([line.connection], [], [], seconds)[0]
            messages = line.receive() if readable else []
            line.keep_alive()
        except OSError as error:
            line.close()
            self._line = None
            return [Event("lost", "", {"why": str(error)})]
        return [event for message in messages for event in _events("", message)]

    def send(self, kind: str, **data: Any) -> None:
        """Tell the head; a line that is gone is found by the next step."""
        if self._line:
            with contextlib.suppress(OSError):
                self._line.send(kind, **data)

    def close(self) -> None:
        """Hang up."""
        if self._line:
            self._line.close()
            self._line = None

    def _connect(self, seconds: float) -> bool:
        wait = self._next - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, seconds))
            return False
        self._next = time.monotonic() + RETRY
        try:
            self._line = Line(socket.create_connection(self._place, timeout=SEND))
            self._line.send("hello", **self._hello)
        except OSError:
            self.close()
        return self._line is not None


def _events(host: str, message: Message) -> Iterator[Event]:
    if message.get("kind") != "beat":
        yield Event(str(message.get("kind")), host, message)


def _parsed(line: bytes) -> Message | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _listed(ranks: Mapping[str, int]) -> str:
    return ", ".join(f"{host} as {rank}" for host, rank in ranks.items())


def others(hosts: Sequence[str]) -> dict[str, int]:
    """The ranks above 0 by host, from all hosts in the order of their ranks."""
    return {host: rank for rank, host in enumerate(hosts) if rank}


def listens(address: str, port: int, seconds: float) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), seconds):
            return True
    except OSError:
        return False
