"""Docker's configuration: ours is added, the user's is kept."""

from __future__ import annotations

import json

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.daemon_config import (
    DaemonConfigError,
    dump,
    merge,
    parse,
    restarts,
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


REGISTRY = {"insecure-registries": ["192.168.100.10:5055"]}


@pytest.mark.parametrize(
    ("current", "registries"),
    [
        ({}, ["192.168.100.10:5055"]),
        ({"insecure-registries": ["10.1.1.1:5000"]}, ["10.1.1.1:5000", "192.168.100.10:5055"]),
        ({"insecure-registries": ["192.168.100.10:5055", "10.1.1.1:5000"]}, ["192.168.100.10:5055", "10.1.1.1:5000"]),
    ],
    ids=["none yet", "the user's own", "ours already"],
)
def test_registries_are_added_to_the_users_own(current, registries):
    before = json.dumps(current)
    assert merge(current, REGISTRY) == {"insecure-registries": registries}
    assert json.dumps(current) == before


def test_registries_that_are_no_list_are_a_contradiction():
    with pytest.raises(DaemonConfigError) as error:
        merge({"insecure-registries": "10.1.1.1:5000"}, REGISTRY)
    assert str(error.value) == (
        "/etc/docker/daemon.json has insecure-registries='10.1.1.1:5000', wanted is ['192.168.100.10:5055']"
    )


@pytest.mark.parametrize(
    ("current", "wanted", "restart"),
    [
        (OURS, {**OURS, **REGISTRY}, False),
        (REGISTRY, REGISTRY, False),
        ({}, OURS, True),
        ({}, {**OURS, **REGISTRY}, True),
        ({"insecure-registries": ["10.1.1.1:5000"]}, REGISTRY, False),
    ],
)
def test_only_a_registry_is_added_without_a_restart(current, wanted, restart):
    assert restarts(current, merge(current, wanted)) is restart


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
