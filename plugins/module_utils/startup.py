"""What a node does when its engine starts: ask the launch checks once more, then become the container's client.

GIDs, MTU and memory are true only at the moment of the launch, so the unit runs `check` right before `run`. `close`
keeps strangers from the ports of the ranks, `open` takes that back. All read the launch file, which holds the argument
list as a list, so that no shell and no unit file quoting is in between.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .catalogue import run_checks
from .checks import Check, Cluster, Stage, refusals
from .intent import Intent
from .names import LAUNCH_FILE
from .node_reader import NodeReader
from .own_ports import CHAIN, JUMP, filter_rules, filter_rules_v6, restore_text

# Memory comes back up to a minute after a container has stopped, so a shortage is looked at again for that long; and so
# are the rails after a boot, as links train for seconds and nothing waits for an optional interface.
MEMORY = ("memory.headroom", "memory.boot-guard")
RAILS = "fabric."
LATE_SECONDS = 75
PAUSE = 5
# Age of a machine, in seconds, up to which its rails may still be on their way; a Spark boots within two minutes.
BOOT_SECONDS = 900

# Seconds between two looks for a node that this one needs, and for one look.
LOOK = 3
# Seconds for the lock of the packet filter, which Docker changes too.
FILTER_SECONDS = "20"

Commands = Sequence[tuple[list[str], str]]

SUBSETS = ("memory", "processes", "fabric", "runtime", "weights", "serving")


def check(launch: dict[str, Any]) -> list[Check]:
    """The reasons why this node must not start its engine now."""
    intent = Intent.from_data(launch["intent"])
    reader = NodeReader(launch["hardware_root"])
    facts = reader.read(SUBSETS, weights_path=intent.weights_path, images=[intent.image])
    cluster = Cluster({intent.host: facts}, {intent.host: intent})
    return refusals(run_checks(cluster, Stage.LAUNCH))


def settled_reasons(launch: dict[str, Any]) -> list[Check]:
    """The reasons that remain once memory and rails had time to come back.

    It waits only when nothing else is wrong, as nothing else comes back by waiting.
    """
    until = time.monotonic() + LATE_SECONDS
    found = check(launch)
    while found and all(comes_late(reason) for reason in found) and time.monotonic() < until:
        time.sleep(PAUSE)
        found = check(launch)
    return found


def comes_late(reason: Check) -> bool:
    """Whether a reason may go away by waiting."""
    # This clock counts from the boot.
    booting = time.monotonic() < BOOT_SECONDS
    return reason.id in MEMORY or (booting and reason.id.startswith(RAILS))


def close_commands(launch: dict[str, Any]) -> Commands:
    """The commands, each with its input, after which only the other ranks reach this rank's ports."""
    intent = Intent.from_data(launch["intent"])
    rules = {"iptables": filter_rules(intent), "ip6tables": filter_rules_v6(intent)}
    if not rules["iptables"]:
        return []
    return [
        ([f"{tool}-restore", "--noflush", "--wait", FILTER_SECONDS], restore_text(rules[tool])) for tool in families()
    ]


def families() -> list[str]:
    """The packet filters of this machine; one without IPv6 needs no filter of it."""
    return ["iptables", *(["ip6tables"] if Path("/proc/net/if_inet6").exists() else [])]


def close(launch: dict[str, Any]) -> str:
    """Let only the other ranks reach this rank's ports; why that failed, or an empty text."""
    commands = close_commands(launch)
    for argv, text in commands:
        fault = fault_of(argv, text)
        if fault:
            return fault
    for tool in families() if commands else []:
        if fault_of([tool, "--wait", FILTER_SECONDS, "--check", *JUMP]):
            fault = fault_of([tool, "--wait", FILTER_SECONDS, "--insert", *JUMP])
            if fault:
                return fault
    return ""


def open_again() -> None:
    """Take our chain out of the packet filter, as far as it is there."""
    for tool in families():
        for change in (["--delete", *JUMP], ["--flush", CHAIN], ["--delete-chain", CHAIN]):
            fault_of([tool, "--wait", FILTER_SECONDS, *change])


def fault_of(argv: list[str], text: str = "") -> str:
    """Why a command failed in one line, or an empty text."""
    try:
        done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{argv[0]}: {error.strerror}"
    return " ".join(f"{argv[0]}: {done.stderr.strip() or done.returncode}".split()) if done.returncode else ""


def wait_for(launch: dict[str, Any], pause: float = LOOK) -> list[str]:
    """Wait for the nodes that must listen before this rank can start; a line for each that does not in time."""
    intent = Intent.from_data(launch["intent"])
    waits = [(host, address, int(port)) for host, address, port in launch["waits"]]
    until = time.monotonic() + intent.meet_seconds
    waiting: list[tuple[str, str, int]] = []
    while True:
        late = [one for one in waits if not listens(one[1], one[2])]
        if not late or time.monotonic() > until:
            return [not_there(intent, *one) for one in late]
        if late != waiting:
            names = ", ".join(f"{host} at {address}:{port}" for host, address, port in late)
            print(f"rank {intent.rank} waits for {names}", flush=True)
            waiting = late
        time.sleep(pause)


def listens(address: str, port: int) -> bool:
    """Whether somebody listens there."""
    try:
        with socket.create_connection((address, port), LOOK):
            return True
    except OSError:
        return False


def not_there(intent: Intent, host: str, address: str, port: int) -> str:
    """What is said of a node that did not listen in time."""
    fact = f"rank {intent.rank} found nobody at {address}:{port} of {host}"
    limit = f"{intent.meet_seconds // 60} minutes (serving_meet_minutes)"
    return f"{intent.host}: {fact}; limit: {limit}; remedy: look at `journalctl -u sparkwright-engine` on {host}"


def refuse(reasons: Sequence[object]) -> int:
    """Print the reasons as the play shows them, and give the exit status."""
    for reason in reasons:
        print(f"refused: {reason}", flush=True)
    return 1 if reasons else 0


def run(launch: dict[str, Any]) -> int:
    """Become the container's client; returns only when another node is missing."""
    reasons = wait_for(launch)
    if not reasons:
        os.execvp(launch["argv"][0], launch["argv"])
    return refuse(reasons)


def close_or_refuse(launch: dict[str, Any]) -> int:
    """Close the ports, or say why that cannot be."""
    fault, host = close(launch), launch["intent"]["host"]
    limit = "a packet filter that keeps strangers from the ranks' ports"
    return refuse([f"{host}: {fault}; limit: {limit}; remedy: install iptables"] if fault else [])


def open_and_succeed(_: dict[str, Any]) -> int:
    """Open the ports; nothing of ours listens there any more."""
    open_again()
    return 0


VERBS: dict[str, Callable[[dict[str, Any]], int]] = {
    "check": lambda launch: refuse(settled_reasons(launch)),
    "close": close_or_refuse,
    "run": run,
    "open": open_and_succeed,
}


def main(arguments: Sequence[str]) -> int:
    """`check` and `close` print reasons and return 1 when there are any; `run` becomes the container's client."""
    (verb,) = arguments
    return VERBS[verb](json.loads(Path(LAUNCH_FILE).read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
