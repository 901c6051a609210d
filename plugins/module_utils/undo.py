"""One thing that a restore puts back by a command, as the functions that undo a section of the record return it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """`argv` makes `what` be `before` again.

    `read` is a command that prints how it is now. When it prints `before`, blanks apart, the step is passed over;
    without such a command the step is run whenever the record is put back. `what` and `before` are a row of the table
    that a person sees, such as vm.swappiness and 60. `early` steps come before the files are put back, the others after
    them.
    """

    what: str
    before: str
    argv: tuple[str, ...]
    read: tuple[str, ...] = ()
    early: bool = False
