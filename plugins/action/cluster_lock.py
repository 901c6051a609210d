"""Takes the cluster's lock on the head, for as long as this ansible-playbook lives."""

from __future__ import annotations

import json
import os
import select
import shlex
import socket
import subprocess
import sys
from datetime import UTC, datetime
from getpass import getuser

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.sparkwright.cluster.plugins.plugin_utils import lock_holder

# Any file that every account may read, no account may replace, and nobody else locks; flock needs no more.
LOCK_FILE = "/etc/machine-id"
# Who holds the lock, for the run that is refused. It locks nothing, so it does no harm when it is left behind.
NOTE = "/tmp/.sparkwright-lock"
# The exit code that flock is told to give when somebody else holds the lock.
BUSY = 75
# Seconds until the head must have answered.
PATIENCE = 60
# Seconds without a line after which the head frees the lock: a controller that lost its power sends none.
SILENCE = 6 * lock_holder.BEAT_SECONDS


class ActionModule(ActionBase):
    """Starts the holder, which outlives this task and ends with the run."""

    def run(self, tmp=None, task_vars=None):
        """Take the lock, or fail with who holds it."""
        result = super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec={})
        host = task_vars["inventory_hostname"]
        # This task runs in a child of the process that is the run.
        owner = os.getppid()
        token = f"{getuser()}@{socket.gethostname()} pid {owner}"
        found = self.hold(owner, remote_command(token))
        if found["held"] or found["holder"].startswith(token):
            return result | {"changed": False}
        raise AnsibleActionFail(refusal(host, found))

    def hold(self, owner: int, command: str) -> dict:
        """Start the holder and read what it reports."""
        argv = [sys.executable, lock_holder.__file__, str(owner), *self.connection_argv(command)]
        holder = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        if not select.select([holder.stdout], [], [], PATIENCE)[0]:
            holder.terminate()
            return {"held": False, "code": None, "holder": "", "error": f"no answer within {PATIENCE} s"}
        said = holder.stdout.readline()
        silent = {"held": False, "code": None, "holder": "", "error": "its holder ended without a word"}
        return json.loads(said) if said else silent

    def connection_argv(self, command: str) -> list[str]:
        """How the holder reaches the head: the way in which Ansible does."""
        if self._connection.transport == "local":
            return ["bash", "-c", command]
        if self._connection.transport != "ssh":
            raise AnsibleActionFail(
                f"the head is reached by {self._connection.transport}; limit: ssh or local, which can hold the lock; "
                "remedy: set ansible_connection: ssh"
            )
        executable = self._connection.get_option("ssh_executable")
        host = self._connection.get_option("host")
        built = self._connection._build_command(executable, "ssh", host, command)
        argv = [os.fsdecode(part) for part in built]
        # A password prompter in front is left out: the session joins the connection that Ansible has open.
        return argv[argv.index(executable) :]


def remote_command(token: str) -> str:
    """What runs on the head: it holds the lock while lines arrive, and prints the holder when it cannot have it."""
    since = datetime.now(UTC).strftime("%H:%M UTC")
    note = f'"{NOTE}-$UID"'
    beats = f"while read -t {SILENCE} _; do :; done"
    keep = f'umask 022; echo "$0" > {note}; trap "rm -f {NOTE}-$UID" EXIT; echo held; {beats}'
    held = shlex.join(["bash", "-c", keep, f"{token} since {since}"])
    take = f"flock --nonblock --conflict-exit-code {BUSY} {LOCK_FILE} {held}"
    return f"{take} || {{ code=$?; cat {NOTE}-* 2>/dev/null; exit $code; }}"


def refusal(host: str, found: dict) -> str:
    """Why the lock is not ours, in one line."""
    if found["code"] == BUSY:
        return (
            f"{host}: another run works on this cluster: {found['holder'] or 'it did not say who'}; "
            "limit: one run at a time; remedy: wait for it, or end that process"
        )
    why = found["error"] or f"exit code {found['code']}"
    remedy = f"try `flock {LOCK_FILE} true` there"
    return f"{host}: {LOCK_FILE} cannot be locked: {why}; limit: flock works on the head; remedy: {remedy}"
