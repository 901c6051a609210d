"""The report of a verdict, for machines."""

from __future__ import annotations

import json
from types import SimpleNamespace

from builders import GONE, REPO, cluster

from ansible_collections.sparkwright.cluster.plugins.action.verdict import write_report
from ansible_collections.sparkwright.cluster.plugins.plugin_utils.inventory import load_mapping

VALUES = {
    "model_store_path": "/models",
    "serving_cache_path": "/cache",
    "serving_extra_mounts": [],
    "serving_api_key": "",
}
PLAN = SimpleNamespace(
    profile=load_mapping(REPO / "profiles/glm52-awq15-mtp3-256k.yml"), value=lambda host, name: VALUES[name]
)


def test_it_has_the_launch_of_every_rank_whose_fabric_is_known(tmp_path):
    found = cluster(3, facts={("spark2", "fabric"): GONE}, intents={"spark3": {"rails": (), "socket_netdev": ""}})
    write_report(tmp_path / "report.json", PLAN, found, [])
    launches = json.loads((tmp_path / "report.json").read_text())["launches"]
    assert (launches["spark2"], launches["spark3"]) == (None, None)
    assert launches["spark1"]["argv"][:2] == ["docker", "run"]
    assert launches["spark1"]["environment"]["HF_HUB_OFFLINE"] == "1"
