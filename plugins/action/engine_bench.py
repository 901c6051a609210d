"""Measures on the head, holds the speeds against the profile, and keeps them: a JSON report, and a line of evidence."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.action.engine_verify import api_arguments
from ansible_collections.sparkwright.cluster.plugins.action.verdict import report_path
from ansible_collections.sparkwright.cluster.plugins.module_utils.speeds import TOLERANCE, line, too_slow
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import make_plan

display = Display()


class ActionModule(ActionBase):
    """One module call, then pure functions and two files on the controller."""

    def run(self, tmp=None, task_vars=None):
        """Measure and judge."""
        result = super().run(tmp, task_vars)
        plan = make_plan(self._templar, task_vars)
        planned = api_arguments(plan, task_vars["inventory_hostname"])
        requests = plan.profile.get("engine_args", {}).get("max-num-seqs", 1)
        arguments = {**planned, "requests": requests, **self._task.args}
        found = self._execute_module("sparkwright.cluster.engine_bench", arguments, task_vars=task_vars)
        if found.get("failed"):
            return result | found
        expect = plan.profile.get("expect", {})
        slow = too_slow(found["measured"], expect, expect.get("tolerance", TOLERANCE))
        shown = f"{planned['model']}: {line(found['measured'], expect)}"
        display.display(shown, color="red" if slow else None)
        path = keep(task_vars, plan, found, slow, shown)
        remedy = "run playbooks/doctor.yml, whose checks of rails and memory name what slows a rank down"
        failed = {"failed": True, "msg": "\n".join(f"{planned['url']}: {one}; remedy: {remedy}" for one in slow)}
        return result | found | {"report": str(path), **(failed if slow else {})}


def keep(task_vars, plan, found, slow, shown: str):
    """Write the report, and add the line to the evidence; the path of the report."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    path = report_path("bench", task_vars)
    content = {
        "written": now,
        "profile": plan.inventory.value(next(iter(plan.intents)), "sparkwright_profile"),
        "measured": found["measured"],
        "sizes": found["sizes"],
        "expect": dict(plan.profile.get("expect", {})),
        "published": dict(plan.profile.get("published", {})),
        "slow": slow,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    with path.with_name(path.name.replace("bench.json", "evidence.txt")).open("a", encoding="utf-8") as file:
        file.write(f"{now} bench {'too slow' if slow else 'ok'} {content['profile']} {shown}\n")
    return path
