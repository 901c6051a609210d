"""The command line of `ib_write_bw` (package perftest), and what its output says.

perftest has JSON output since 4.5, but that of 4.5 is not valid JSON; its table has been the same for ten years. Both
ends print it. All of its error messages go to the standard error output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .rdma_schedule import CLIENT, Run

TOOL = "ib_write_bw"

# What a run is for: a figure, or nothing but the proof that writes arrive.
SPEED, REACH = "speed", "reach"
MODES = (SPEED, REACH)

# Seconds of writing in the mode `speed`; perftest leaves out a quarter at both ends, rounded down to whole seconds.
MEASURED_SECONDS = 2
# Messages in the mode `reach`.
REACH_MESSAGES = 100
# The exponent of the time after which a write is sent again, 4 us * 2^18 = 1 s, in the mode `reach`: an emulated
# machine may stand still for longer than the 67 ms of perftest's default, and seven times in a row are a failure.
REACH_TIMEOUT = 18

# The option that binds the socket to one address: its name in newer versions, and in 4.5.
BIND_OPTIONS = ("--bind_source_ip", "--source_ip")

# Titles of the table's columns: `#bytes`, `BW average[Gb/sec]`, `MsgRate[Mpps]`.
_TITLE = re.compile(r"#\w+|(?:BW )?\w+\[[^]]+\]")
_AVERAGE = "BW average["
# Gb/s (10^9 bits) of one unit; older versions write MB where they mean MiB.
_UNITS = {"Gb/sec": 1.0, "MiB/sec": 2**20 * 8 / 1e9, "MB/sec": 2**20 * 8 / 1e9}

# Lines of the standard error output that say nothing about a failure.
_NOISE = re.compile(r"libibverbs: Warning|Conflicting CPU frequency|warning:|scnt=|rcnt=|-{10}", re.IGNORECASE)
# The first one that fits is put into plain words. 12 is IBV_WC_RETRY_EXC_ERR (libibverbs, verbs.h).
_MEANINGS = {
    re.compile(r"Couldn't connect to"): "nobody listened there",
    re.compile(r"Couldn't listen to port"): "its port is taken",
    re.compile(r"Failed to modify QP (\d+ )?to RTR"): "the device found no way to the peer's GID",
    re.compile(r"Failed status 12\b"): "the peer acknowledged no write",
    re.compile(r"Couldn't read remote address"): "the other end gave up",
    re.compile(r"allocate MR|create mr|reg_mr", re.IGNORECASE): "memory could not be registered for RDMA",
    re.compile(r"Unable to find the Infiniband/RoCE device"): "libibverbs does not know the device",
}
# Characters of perftest's own words that are passed on.
_QUOTED = 200


def bind_option(help_text: str) -> str | None:
    """The option that binds the socket, as the installed version names it in its help, or None."""
    return next((option for option in BIND_OPTIONS if option in help_text), None)


def command_line(run: Run, gid_index: int, message_bytes: int, mode: str, bind: str | None) -> list[str]:
    """The command of one end; perftest wants the same options at both, so all but the addresses is the same.

    `bind` is what `bind_option` found. Without it the socket listens on every interface for some seconds.
    """
    device = ["-d", str(run.device), "-i", "1", "-x", str(gid_index)]
    size = ["-s", str(message_bytes)]
    amount = ["-D", str(MEASURED_SECONDS)] if mode == SPEED else ["-n", str(REACH_MESSAGES), "-u", str(REACH_TIMEOUT)]
    source = [bind, run.gid_address] if bind else []
    peer = [run.peer_address] if run.role == CLIENT else []
    # -F: a processor that does not run at its highest clock is no reason to refuse.
    return [TOOL, *device, "-p", str(run.port), *size, *amount, "-F", "--report_gbits", *source, *peer]


def average_gbits(output: str) -> float | None:
    """The average of the last row of the table in Gb/s (10^9 bits), or None when there is no such figure."""
    figures = list(_averages(output))
    return figures[-1] if figures else None


def was_refused(errors: str) -> bool:
    """Whether a client found nobody who listens, which is no failure as long as the peer may still come."""
    return "Couldn't connect to" in errors


def failure(output: str, errors: str, status: int) -> str:
    """Why it failed, in one line: in plain words where they are known, with perftest's own behind them.

    `status` is the exit status, for a tool that said nothing.
    """
    lines = [line.strip() for line in errors.splitlines() if line.strip() and not _NOISE.search(line)]
    said = "; ".join(dict.fromkeys(lines)) or _last_line(output)
    meaning = next((words for pattern, words in _MEANINGS.items() if pattern.search(said)), None)
    shown = said if len(said) <= _QUOTED else said[:_QUOTED].rstrip() + " ..."
    if not shown:
        return f"{TOOL} ended with status {status} and said nothing"
    return f"{meaning} ({shown})" if meaning else shown


def _averages(output: str) -> Iterator[float]:
    column, factor = None, 0.0
    for line in output.splitlines():
        titles = _TITLE.findall(line) if "#bytes" in line else []
        average = next((title for title in titles if title.startswith(_AVERAGE)), None)
        if average is not None:
            column, factor = titles.index(average), _UNITS.get(average[len(_AVERAGE) : -1], 0.0)
        elif column is not None and factor:
            yield from _figure(line.split(), column, factor)


def _figure(fields: list[str], column: int, factor: float) -> Iterator[float]:
    """The figure of one row; a rule of dashes, an unfinished row, `nan` and `inf` have none."""
    if len(fields) > column and fields[0].isdigit() and re.fullmatch(r"\d+(\.\d+)?", fields[column]):
        yield round(float(fields[column]) * factor, 2)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
    return lines[-1] if lines else ""
