"""Plans a profile on the controller, without any node."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.sparkwright.cluster.plugins.module_utils.inventory_rules import GROUP, NODE_LIMITS, PROFILE
from ansible_collections.sparkwright.cluster.plugins.module_utils.option_values import did_you_mean
from ansible_collections.sparkwright.cluster.plugins.module_utils.plan_report import as_data, plan_for, report
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import (
    REPO,
    find_profiles,
    load_mapping,
    profile_mistakes,
)

display = Display()


class ActionModule(ActionBase):
    """Reads the profile, and nothing else; no host is contacted."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        """Plan; fails with a line for each refusal."""
        result = super().run(tmp, task_vars)
        _, asked = self.validate_argument_spec(
            argument_spec={
                "profile": {"type": "str"},
                "nodes": {"type": "raw"},
                "image": {"type": "str", "default": ""},
            }
        )
        name, profile = find_profile(asked["profile"] or inventory_profile(task_vars), task_vars)
        mistakes = profile_mistakes(profile)
        if mistakes:
            return result | {"failed": True, "msg": "\n".join(map(str, mistakes))}
        plan = plan_for(name, profile, node_count(asked["nodes"]), asked["image"])
        display.display(report(plan), color="red" if plan.refusals else None)
        data = as_data(plan)
        result |= {"changed": False, "plan": data}
        if data["refusals"]:
            # A failed task prints its whole result, and nobody runs what is refused.
            del data["commands"]
            result |= {"failed": True, "msg": "\n".join(data["refusals"])}
        return result


def inventory_profile(task_vars) -> str | None:
    """The profile of the inventory that the run was given, if there is one."""
    nodes = task_vars["groups"].get(GROUP, [])
    return task_vars["hostvars"][nodes[0]].get(PROFILE) if nodes else None


def find_profile(name: str | None, task_vars) -> tuple[str, dict]:
    """A profile by its name; one beside the inventory comes first. Raises AnsibleActionFail."""
    files = find_profiles([Path(task_vars.get("inventory_dir") or "."), REPO])
    if name in files:
        return str(name), load_mapping(files[name])
    what = f"{PROFILE} {name} does not exist{did_you_mean(str(name), list(files))}" if name else f"{PROFILE} is not set"
    raise AnsibleActionFail(f"{what}; remedy: choose one that exists with -e {PROFILE}=: {', '.join(sorted(files))}")


def node_count(asked: int | str | None) -> int | None:
    """A number of nodes that can make a cluster, which a command line gives as text. Raises AnsibleActionFail."""
    if asked is None:
        return None
    if str(asked).isdecimal() and 1 <= int(asked) <= NODE_LIMITS[1]:
        return int(asked)
    raise AnsibleActionFail(f"plan_nodes is {asked}; limit: 1 to {NODE_LIMITS[1]}; remedy: choose another number")
