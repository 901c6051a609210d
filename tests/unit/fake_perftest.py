"""A stand-in for `ib_write_bw`: its two ends really meet over TCP, and fail in perftest's own words when told to.

It is installed as a script in a folder for PATH. A file `server` or `client` beside it holds what that end does:
a word of FAILURES, `hang` (never ends), `late` (listens after a second), `child` (hangs with a child of its own) or
`quick` (ends without a table). Each call appends its options to the file `calls`, and its process id to `pids`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HELP = "Usage:\n  -x, --gid-index=<index>\n      --bind_source_ip  Source IP of the interface\n"

TABLE = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rocep1s0f0
 Mtu             : 4096[B]
 GID index       : 3
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x009b PSN 0x57bb8f RKey 0x1fd4bc VAddr 0x007f0e0c8aa000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:168:119:02
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      355208           0.00               92.87  \t\t     0.177133
---------------------------------------------------------------------------------------
"""

FAILURES = {
    "rtr": "Failed to modify QP 1021 to RTR\n Unable to Connect the HCA's through the link\n",
    "retries": " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0\n"
    " Failed to complete run_iter_bw function successfully\n",
    "gone": "ethernet_read_keys: Couldn't read remote address\n Unable to read to socket/rdma_cm\n",
    "device": " Did not detect devices \n If device exists, check if driver is up\n"
    " Unable to find the Infiniband/RoCE device\n",
}


def install(folder: Path, **behaviour: str) -> Path:
    """Put the script into a folder with what its ends do; the value is the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "ib_write_bw"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -I {__file__} "$0" "$@"\n')
    script.chmod(0o755)
    for role, what in behaviour.items():
        (folder / role).write_text(what)
    return folder


def calls(folder: Path) -> list[list[str]]:
    """The options of every call so far, without those for help."""
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def pids(folder: Path) -> list[int]:
    """The processes of every call so far, and their children."""
    return [int(line) for line in (folder / "pids").read_text().splitlines()] if (folder / "pids").exists() else []


def running(folder: Path) -> list[int]:
    """Those of them that still run; a zombie does not."""
    return [pid for pid in pids(folder) if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _note(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(line + "\n")


def _value(options: list[str], name: str) -> str:
    return options[options.index(name) + 1]


def _listen(options: list[str]) -> socket.socket:
    with socket.create_server((_value(options, "--bind_source_ip"), int(_value(options, "-p")))) as server:
        return server.accept()[0]


def _connect(options: list[str], host: str) -> socket.socket:
    source = (_value(options, "--bind_source_ip"), 0)
    try:
        return socket.create_connection((host, int(_value(options, "-p"))), source_address=source)
    except ConnectionRefusedError:
        print(f"Couldn't connect to {host}:{_value(options, '-p')}", file=sys.stderr)
        sys.exit("Unable to open file descriptor for socket connection Unable to init the socket connection")


def _exchange(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"done")
        return peer.recv(4) == b"done"
    except ConnectionError:
        return False


def _end(folder: Path, what: str) -> None:
    """What an end does once both have met, or does not."""
    if what == "child":
        _note(folder / "pids", str(subprocess.Popen(["sleep", "60"]).pid))
    if what in ("hang", "child"):
        time.sleep(60)
    if what in FAILURES:
        sys.exit(FAILURES[what])


def main(script: str, *options: str) -> None:
    if options == ("--help",):
        sys.exit(print(HELP))
    folder, given = Path(script).parent, list(options)
    _note(folder / "calls", json.dumps(given))
    _note(folder / "pids", str(os.getpid()))
    # The last option is the address of the server, and follows the address of the client.
    host = given[-1] if given[-2] != "--bind_source_ip" else None
    role = folder / ("client" if host else "server")
    what = role.read_text() if role.exists() else ""
    if what == "device":
        _end(folder, what)
    time.sleep(what == "late")
    with _connect(given, host) if host else _listen(given) as peer:
        _end(folder, what)
        if not _exchange(peer):
            sys.exit(FAILURES["gone"])
    print("" if what == "quick" else TABLE)


if __name__ == "__main__":
    main(*sys.argv[1:])
