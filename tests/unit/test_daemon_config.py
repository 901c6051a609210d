"""Docker's configuration: ours is added, the user's is kept."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.daemon_config import (
    DaemonConfigError,
    dump,
    merge,
    parse,
)

NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
OURS = {"log-driver": "json-file", "log-opts": {"max-size": "100m", "max-file": "3"}}


@pytest.mark.parametrize(
    ("text", "data"),
    [(None, {}), ("", {}), (" \n", {}), ("{}", {}), ('{"debug": true}', {"debug": True})],
)
def test_a_file_is_read(text, data):
    assert parse(text) == data


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "{'a': 1}",
            "/etc/docker/daemon.json is not JSON (Expecting property name enclosed in double quotes: line 1 column 2"
            " (char 1))",
        ),
        ("[]", "/etc/docker/daemon.json is not an object"),
    ],
)
def test_a_file_that_docker_cannot_read_is_named(text, line):
    with pytest.raises(DaemonConfigError) as error:
        parse(text)
    assert str(error.value) == line


@pytest.mark.parametrize(
    ("current", "merged"),
    [
        ({}, OURS),
        (NVIDIA, {**NVIDIA, **OURS}),
        (OURS, OURS),
        ({"log-opts": {"tag": "x"}}, {"log-opts": {"tag": "x", **OURS["log-opts"]}, "log-driver": "json-file"}),
    ],
    ids=["nothing", "a runtime", "ours already", "one level down"],
)
def test_the_users_keys_are_kept(current, merged):
    before = json.dumps(current)
    assert merge(current, OURS) == merged
    assert json.dumps(current) == before


@pytest.mark.parametrize(
    ("current", "line"),
    [
        (
            {"log-driver": "journald"},
            "/etc/docker/daemon.json has log-driver='journald', wanted is 'json-file'",
        ),
        (
            {"log-opts": {"max-size": "5m"}},
            "/etc/docker/daemon.json has log-opts.max-size='5m', wanted is '100m'",
        ),
        (
            {"log-opts": []},
            "/etc/docker/daemon.json has log-opts=[], wanted is {'max-size': '100m', 'max-file': '3'}",
        ),
    ],
)
def test_a_contradiction_is_named(current, line):
    with pytest.raises(DaemonConfigError) as error:
        merge(current, OURS)
    assert str(error.value) == line


def test_the_text_keeps_the_users_order():
    text = dump(merge({"zeta": 1, "alpha": 2}, OURS))
    assert list(json.loads(text)) == ["zeta", "alpha", "log-driver", "log-opts"]
    assert text.endswith("}\n")
