"""What is wrong with an inventory, as data: one mistake is one line of plain English."""

from __future__ import annotations

from dataclasses import dataclass

ALL_NODES = "all nodes"


@dataclass(frozen=True)
class Mistake:
    """One mistake: where it is (a host, or ALL_NODES), what is wrong, with the value, and how to put it right."""

    host: str
    what: str
    remedy: str

    def __str__(self) -> str:
        """The mistake as one line, whatever line breaks a value brings along."""
        line = f"{self.host}: {self.what}; remedy: {self.remedy}"
        return " ".join(line.split())
