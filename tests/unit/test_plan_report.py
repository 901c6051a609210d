"""The plan of a profile, as playbooks/plan.yml shows it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
import yaml
from builders import REPO

from ansible_collections.sparkwright.cluster.plugins.module_utils.plan_report import (
    as_data,
    command_lines,
    example_commands,
    plan_for,
    report,
)

PROFILES = sorted((REPO / "profiles").glob("*.yml"))


def shipped(name):
    return yaml.safe_load((REPO / f"profiles/{name}.yml").read_text())


def planned(name, **options):
    return plan_for(name, shipped(name), **options)


NVFP4 = """\
glm52-nvfp4-dcp4-mtp3-128k on 4 nodes: GLM-5.2 NVFP4, TP4 DCP4 on four Sparks, 131,072 tokens, MTP 3

weights   410.0 GB, 95.50 GiB a rank
          0.05 GiB of them on every rank, the rest split by 4
KV cache  blocks of 256 tokens and 3502592 bytes a rank
          1810000000 bytes are 516 blocks
          the engine will print 132,096 tokens, 1.01x of 131,072
          longest context that fits: 131,840 tokens
          1 request of 131,072 tokens: 1796829696 bytes

GiB of rank 0 on a node of   119.69   121.68
weights                       95.50    95.50
KV cache                       1.69     1.69
graphs                         1.00     1.00
activations                    2.00     2.00
runtime                        3.00     3.00
services                       0.43     0.43
floor                          3.00     3.00
needed                       106.62   106.62
boot guard at 0.9            107.72   109.51
available at the most        116.69   118.68

no refusal"""

AWQ = """\
glm52-awq15-mtp3-256k on 4 nodes: GLM-5.2 AWQ 15 %, TP4 on four Sparks, 262,144 tokens, MTP 3

weights   378.0 GB, 89.17 GiB a rank
          1.16 GiB of them are the draft
KV cache  blocks of 64 tokens and 3502592 bytes a rank
          about 16.14 GiB on a node of 119.69: about 316,672 tokens, 1.21x of 262,144
          about 17.99 GiB on a node of 121.68: about 352,896 tokens, 1.35x of 262,144
          1 request of 262,144 tokens: 14350119424 bytes

GiB of rank 0 on a node of   119.69   121.68
weights                       89.17    89.17
KV cache                      16.14    17.99
graphs                         1.00     1.00
activations                    2.00     2.00
runtime                        3.00     3.00
floor                          3.00     3.00
needed                       114.31   116.16
boot guard at 0.93           111.32   113.16
available at the most        116.69   118.68

no refusal"""


@pytest.mark.parametrize(
    ("name", "text"), [("glm52-nvfp4-dcp4-mtp3-128k", NVFP4), ("glm52-awq15-mtp3-256k", AWQ)], ids=["nvfp4", "awq"]
)
def test_the_plan_of_a_published_row(name, text):
    assert report(planned(name)) == text


def test_three_requests_are_planned_at_once():
    assert "3 requests at once of 46,080 tokens: 1894902272 bytes" in report(planned("glm52-nvfp4-dcp4-mtp3-bs3"))


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_column_adds_up(path):
    lines = report(planned(path.stem)).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("GiB of rank 0"))
    end = next(n for n, line in enumerate(lines) if line.startswith("needed"))
    for column in (-2, -1):
        parts = [Decimal(line.split()[column]) for line in lines[start + 1 : end]]
        assert sum(parts) == Decimal(lines[end].split()[column])


@pytest.mark.parametrize(
    ("count", "lines"),
    [
        (4, []),
        (
            3,
            [
                "is for 4 nodes, and planned here for 3 nodes with parallel: {tp: 2, pp: 1, dcp: 2}; remedy: copy it"
                " and write parallel: {tp: 2, pp: 1, dcp: 2}",
                "can never run on 2 nodes: a rank of tp 2 needs 202.07 GiB; limit: 118.68 GiB, by our estimate the most"
                " that a GB10 has available; remedy: use 4 nodes, the fewest that can",
            ],
        ),
        (
            8,
            [
                "is for 4 nodes, and planned here for 8 nodes with parallel: {tp: 8, pp: 1, dcp: 4}; remedy: copy it"
                " and write parallel: {tp: 8, pp: 1, dcp: 4}",
            ],
        ),
    ],
)
def test_another_number_of_nodes(count, lines):
    plan = planned("glm52-nvfp4-dcp4-mtp3-128k", count=count)
    assert as_data(plan)["refusals"] == [f"the profile glm52-nvfp4-dcp4-mtp3-128k {line}" for line in lines]
    shown = report(plan).splitlines()
    assert shown[0].startswith(f"glm52-nvfp4-dcp4-mtp3-128k on {count} nodes: ")
    assert [line for line in shown if line.startswith("refused: ")] == [
        f"refused: the profile glm52-nvfp4-dcp4-mtp3-128k {line}" for line in lines
    ]


def test_a_cache_that_cannot_be_computed_is_the_only_refusal():
    profile = shipped("glm52-awq15-mtp3-256k")
    profile["engine_args"]["kv-cache-dtype"] = "fp6"
    plan = plan_for("mine", profile)
    assert len(as_data(plan)["refusals"]) == 1
    assert "memory" not in as_data(plan)
    assert (
        report(plan).splitlines()[2].startswith("refused: the profile mine describes a cache that cannot be computed")
    )


def test_the_stock_image_is_a_refusal():
    plan = planned("glm52-awq15-mtp3-256k", image="vllm/vllm-openai:latest")
    assert "the stock image; remedy: build or load" in as_data(plan)["refusals"][0]


def test_a_variable_of_nccl_that_breaks_every_launch_is_a_refusal():
    profile = {**shipped("glm52-awq15-mtp3-256k"), "nccl_env": {"NCCL_IB_DISABLE": 1}}
    (line,) = as_data(plan_for("mine", profile))["refusals"]
    assert line.startswith("the profile mine breaks every launch: NCCL_IB_DISABLE=1 is set; limit: 0 or unset")


def test_the_plan_as_data():
    data = as_data(planned("glm52-nvfp4-dcp4-mtp3-128k"))
    assert json.loads(json.dumps(data)) == data
    assert data["kv_cache"] == {"blocks": 516, "tokens": 132096, "concurrency": 1.01}
    memory = data["memory"]["121.68"]
    assert memory.pop("needed") == sum(memory.values())
    assert data["commands"]["head"]["serve"][:3] == ["vllm", "serve", "/models/glm52-nvfp4-mtp"]
    assert data["commands"]["worker"]["serve"] == []


@pytest.mark.parametrize("path", PROFILES, ids=lambda path: path.stem)
def test_every_profile_has_commands_of_head_and_worker(path):
    profile = yaml.safe_load(path.read_text())
    for rank in (0, 1):
        commands, environment = example_commands(profile, rank)
        assert all(isinstance(word, str) for word in [*commands.container, *commands.serve])
        assert all(isinstance(value, str) for value in environment.values())


def test_a_command_is_shown_a_flag_a_line():
    argv = ["vllm", "serve", "/m", "--port", "80", "--headless", "--json", '{"a":1}']
    assert command_lines(argv) == ["vllm serve /m", "--port 80", "--headless", '--json {"a":1}']
