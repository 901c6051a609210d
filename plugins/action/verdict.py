"""Runs the checks of one stage over all nodes, shows them as a table, and fails when one of them refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.catalogue import run_checks
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks import (
    Stage,
    Status,
    refusals,
    table,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_picture import text
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_svg import svg
from ansible_collections.sparkwright.cluster.plugins.module_utils.fabric_view import nodes_of, rails_of, statuses_of
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import launch_of, make_cluster, make_plan
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import REPO

display = Display()

# Below the checkout, ignored by git; the last report of each verb and inventory is kept.
REPORTS = REPO / "reports"

ALL = "all"


class ActionModule(ActionBase):
    """Pure functions over registered facts; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Decide; the result has every check."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            argument_spec={
                "facts": {"type": "str", "required": True},
                "stage": {"type": "str", "required": True, "choices": [*Stage, ALL]},
                "report": {"type": "str"},
                "rdma": {"type": "str"},
                "hashes": {"type": "str"},
                "picture": {"type": "bool", "default": False},
            }
        )
        plan = make_plan(self._templar, task_vars)
        cluster = make_cluster(plan, task_vars, asked["facts"], asked["rdma"], asked["hashes"])
        stage = None if asked["stage"] == ALL else Stage(asked["stage"])
        checks = run_checks(cluster, stage)
        refused = refusals(checks)
        # The table is for the person in front of the terminal; machines read `checks`.
        display.display(table(checks, plan.intents), color="red" if refused else None)
        view = (nodes_of(cluster), rails_of(cluster), statuses_of(checks))
        if asked["picture"]:
            display.display(text(*view))
        result |= {
            "changed": False,
            "checks": [check.as_data() for check in checks],
            "counts": {str(status): sum(check.status is status for check in checks) for status in Status},
        }
        if asked["report"]:
            path = report_path(asked["report"], task_vars)
            write_report(path, plan, cluster, result["checks"])
            result["report"] = str(path)
            if asked["picture"]:
                topology = next(iter(cluster.intents.values())).topology
                path.with_suffix(".svg").write_text(svg(*view, topology), encoding="utf-8")
        if refused:
            # What passed is in the table and in the report; a failed task prints its whole result.
            failures = [check.as_data() for check in refused]
            result |= {"failed": True, "msg": "\n".join(map(str, refused)), "checks": failures}
        return result


def report_path(name: str, task_vars) -> Path:
    """The file of a report; the folder is made."""
    inventory = Path(task_vars.get("inventory_dir") or "inventory").name
    REPORTS.mkdir(exist_ok=True)
    return REPORTS / f"{inventory}-{name}.json"


def write_report(path: Path, plan, cluster, checks) -> None:
    """Write what was read and what was found as JSON for machines."""
    content = {
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "checks": checks,
        "facts": dict(cluster.facts),
        "intents": {host: intent.as_data() for host, intent in cluster.intents.items()},
        "launches": {host: launch_data(plan, intent, cluster.facts[host]) for host, intent in cluster.intents.items()},
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def launch_data(plan, intent, facts) -> dict | None:
    """The command and the environment of a rank, as its unit would run them; None while its fabric is not known."""
    launch = launch_of(plan, intent, facts)
    return launch and {"argv": launch.argv, "environment": dict(launch.environment)}
