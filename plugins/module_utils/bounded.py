"""Run something that may never come back, such as a stat on a dead NFS mount, within a bounded time."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class TimedOut(Exception):
    """The work did not end in time; its process may hang for as long as the mount does."""


def bounded(work: Callable[[], T], seconds: float) -> T:
    """The result of `work`, run in a child process that is killed, and not waited for, when it is late.

    The kernel may keep it for as long as a mount is dead. A thread would not do: a process with one thread stuck in the
    kernel cannot exit. Raises TimedOut, and RuntimeError with the text of whatever `work` raised, or when the child
    ended without an answer.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        # Held open here, it would keep a late child for ever in a write that nobody reads.
        os.close(reader)
        _answer(work, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        if not select.select([pipe], [], [], seconds)[0]:
            os.kill(child, signal.SIGKILL)
            raise TimedOut(f"no answer within {seconds} s")
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        raise RuntimeError("its process ended without an answer")
    good, value = pickle.loads(answer)
    if not good:
        raise RuntimeError(value)
    result: T = value
    return result


def _answer(work: Callable[[], object], writer: int) -> None:
    """Never returns, whatever `work` does: the child must not go on with the program of its parent."""
    # It ends with its answer; looking for garbage until then took a third of the time of a large checkpoint.
    gc.disable()
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(_pickled(work))
    finally:
        os._exit(0)


def _pickled(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((True, work()))
    except Exception as error:
        return pickle.dumps((False, f"{type(error).__name__}: {error}"))
