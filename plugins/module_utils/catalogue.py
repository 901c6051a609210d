"""All checks, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import (
    checks_fabric,
    checks_image,
    checks_launch,
    checks_links,
    checks_memory,
    checks_nccl,
    checks_node,
    checks_rails,
    checks_ray,
    checks_rdma,
    checks_serving,
    checks_share,
    checks_tuning,
    checks_updates,
    checks_weights,
)
from .checks import REGISTERED, Check, Cluster, Rule, Stage, Status

_MODULES = (
    checks_node,
    checks_tuning,
    checks_memory,
    checks_rails,
    checks_links,
    checks_fabric,
    checks_nccl,
    checks_rdma,
    checks_share,
    checks_weights,
    checks_image,
    checks_launch,
    checks_serving,
    checks_ray,
    checks_updates,
)
_ORDER = [module.__name__ for module in _MODULES]

CATALOGUE: tuple[Rule, ...] = tuple(sorted(REGISTERED.values(), key=lambda rule: _ORDER.index(rule.run.__module__)))


def run_checks(cluster: Cluster, stage: Stage | None = None) -> list[Check]:
    """Run the checks of a stage, or all of them."""
    rules = [rule for rule in CATALOGUE if stage is None or stage in rule.stages]
    asked = replace(cluster, stage=stage)
    return [check for rule in rules for check in [*_unread(rule, asked), *rule.run(asked)]]


def _unread(rule: Rule, cluster: Cluster) -> Iterator[Check]:
    """A check that found no facts must not look like one that passed; `node.reachable` names the silent nodes."""
    for host in cluster.intents:
        facts = cluster.facts.get(host)
        if rule.needs and facts and facts["reachable"] and rule.needs not in facts:
            fact, remedy = f"its {rule.needs} facts were not read", f"read the subset {rule.needs}"
            yield Check(rule.id, host, Status.UNKNOWN, fact, "facts to look at", remedy)
