"""Which rank failed first, and why: one dead rank soon takes the others with it, and each of them logs an error."""

from __future__ import annotations

from collections.abc import Mapping

from .engine_log import OTHERS, cause
from .facts import RankEnd

# Seconds within which the clocks of nodes and the order of reports are not trusted.
WINDOW = 10
KILLED = 137


def why(exit_code: int | None, out_of_memory: bool, log: list[str]) -> str:
    """Why a container ended, in one line: from its state first, then from the last words of its log."""
    said = cause(log)
    if out_of_memory:
        return "the kernel ended it for lack of memory"
    if exit_code is None:
        return said or "its container is gone"
    if exit_code == KILLED:
        return f"it was killed (exit code {KILLED}){f'; its log: {said}' if said else ''}"
    return f"it ended with exit code {exit_code}{f': {said}' if said else ' and its log names no cause'}"


def first_failure(ends: Mapping[str, RankEnd]) -> str:
    """The host of the rank that failed first; empty when every rank was ended by us.

    Of failures close together the one that names a cause of its own counts, not one that only lost its peer.
    """
    failed = {host: end for host, end in ends.items() if not end["ordered"]}
    if not failed:
        return ""
    earliest = min(end["at"] for end in failed.values())
    close = {host: end for host, end in failed.items() if end["at"] - earliest <= WINDOW}
    return min(close, key=lambda host: _order(close[host]))


def message(ends: Mapping[str, RankEnd], ranks: Mapping[str, int]) -> str:
    """Why a launch failed, for a person: what the start-up checks refused, or the rank that failed first.

    `ranks` are those of all hosts.
    """
    refused = [end["why"] for end in ends.values() if end["refused"]]
    if refused:
        return "\n".join(refused)
    host = first_failure(ends)
    if not host:
        return ""
    return (
        f"{host}: rank {ranks[host]} failed first: {ends[host]['why']}; limit: every rank runs until the model answers;"
        f" remedy: see its last lines below and `journalctl -u sparkwright-engine` on {host}; all ranks were stopped"
    )


def _order(end: RankEnd) -> tuple[int, float]:
    if end["refused"] or end["out_of_memory"] or end["exit_code"] == KILLED:
        return 0, end["at"]
    return (2 if OTHERS.search(end["why"]) else 1), end["at"]
