"""What a node does when its engine starts: ask the launch checks once more, then run its rank with the others.

GIDs, MTU and memory are true only at the moment of the launch, so the unit runs `admit` right before `run`; `check` is
the same for a person. `close` keeps strangers from the ports of the ranks, `open` takes that back. All read the launch
file, which holds the argument list as a list, so that no shell and no unit file quoting is in between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .catalogue import run_checks
from .checks import Check, Cluster, Stage, refusals
from .intent import Intent
from .meminfo import KIB
from .names import LAUNCH_FILE
from .node_reader import NodeReader
from .own_ports import CHAIN, JUMP, filter_rules, filter_rules_v6, restore_text
from .rank import new_end, save_rank
from .share_reader import asked_of
from .stages import LoadStage
from .supervisor import Supervisor

# Memory comes back up to a minute after a container has stopped, so a shortage is looked at again for that long; and so
# are the rails after a boot and what comes over them, as links train for seconds and nothing waits for an optional
# interface.
MEMORY = ("memory.headroom", "memory.boot-guard")
RAILS = ("fabric.", "share.")
LATE_SECONDS = 75
PAUSE = 5
# Age of a machine, in seconds, up to which its rails may still be on their way; a Spark boots within two minutes.
BOOT_SECONDS = 900

SUBSETS = ("memory", "processes", "fabric", "runtime", "weights", "serving", "share")
# Seconds for the lock of the packet filter, which Docker changes too.
FILTER_SECONDS = "20"

Commands = Sequence[tuple[list[str], str]]


def check(launch: dict[str, Any]) -> list[Check]:
    """The reasons why this node must not start its engine now."""
    intent = Intent.from_data(launch["intent"])
    reader = NodeReader(launch["hardware_root"])
    facts = reader.read(SUBSETS, weights_path=intent.weights_path, images=[intent.image], share=asked_of(intent.share))
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


def keep_refusal(reasons: Sequence[str]) -> None:
    """Keep why the rank did not start where doctor and the play look for it."""
    end = new_end("\n".join(reasons), time.time(), refused=True) if reasons else None
    save_rank(
        {
            "invocation": os.environ.get("INVOCATION_ID", ""),
            "stage": str(LoadStage.ROLL_CALL),
            "detail": "start-up check",
            "since": time.time(),
            "ready": False,
            "missing": [],
            "first": "",
            "available": 0,
            "figures": {},
            "end": end,
        }
    )


def run(launch: dict[str, Any]) -> int:
    """Run the rank until it ends; the exit status of the unit."""
    available = NodeReader(launch["hardware_root"]).read(["memory"])["memory"].get("MemAvailable", 0) * KIB
    try:
        supervisor = Supervisor(launch, available)
    except OSError as error:
        intent = launch["intent"]
        reason = (
            f"{intent['host']}: {intent['head_address']} port {intent['roll_port']} cannot be had ({error.strerror}); "
            "limit: free for the roll call of the ranks; remedy: end what holds it"
        )
        keep_refusal([reason])
        return refuse([reason])
    return supervisor.run()


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


def refuse(reasons: Sequence[object]) -> int:
    """Print the reasons for the unit's log, and give the exit status."""
    for reason in reasons:
        print(f"refused: {reason}", flush=True)
    return 1 if reasons else 0


def admit(launch: dict[str, Any]) -> int:
    """The start-up check of the unit: its reasons are kept, too."""
    keep_refusal([])
    reasons = settled_reasons(launch)
    keep_refusal([str(reason) for reason in reasons])
    return refuse(reasons)


def close_or_refuse(launch: dict[str, Any]) -> int:
    """Close the ports, or say why that cannot be."""
    fault = close(launch)
    if not fault:
        return 0
    limit = "a packet filter that keeps strangers from the ranks' ports"
    reason = f"{launch['intent']['host']}: {fault}; limit: {limit}; remedy: install iptables"
    keep_refusal([reason])
    return refuse([reason])


def open_and_succeed(_: dict[str, Any]) -> int:
    """Open the ports; nothing of ours listens there any more."""
    open_again()
    return 0


VERBS: dict[str, Callable[[dict[str, Any]], int]] = {
    "check": lambda launch: refuse(settled_reasons(launch)),
    "admit": admit,
    "close": close_or_refuse,
    "run": run,
    "open": open_and_succeed,
}


def main(arguments: Sequence[str]) -> int:
    """All but `open` print reasons and return 1 when there are any; `run` returns when the rank has ended."""
    (verb,) = arguments
    return VERBS[verb](json.loads(Path(LAUNCH_FILE).read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
