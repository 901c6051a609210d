"""All checks, in the order in which they are shown."""

from __future__ import annotations

from . import checks_fabric, checks_launch, checks_node
from .checks import REGISTERED, Check, Cluster, Rule, Stage

_ORDER = (checks_node.__name__, checks_fabric.__name__, checks_launch.__name__)

CATALOGUE: tuple[Rule, ...] = tuple(sorted(REGISTERED.values(), key=lambda rule: _ORDER.index(rule.run.__module__)))


def run_checks(cluster: Cluster, stage: Stage | None = None) -> list[Check]:
    """Run the checks of a stage, or all of them."""
    rules = [rule for rule in CATALOGUE if stage is None or stage in rule.stages]
    return [check for rule in rules for check in rule.run(cluster)]
