"""The command line, the environment and the hash of one rank."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
from builders import IMAGE_ID, intent, rails

from ansible_collections.sparkwright.cluster.plugins.module_utils.executors import Commands, commands_of
from ansible_collections.sparkwright.cluster.plugins.module_utils.launch import (
    HostPaths,
    container_options,
    deployment,
    engine_environment,
    render,
    smoke,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.memory_need import MemoryNeed
from ansible_collections.sparkwright.cluster.plugins.module_utils.vllm_argv import flags, memory_arguments

PATHS = HostPaths(models="/var/lib/models", cache="/var/cache/sparkwright")
PROFILE = {
    "summary": "A small one",
    "executor": "mp",
    "accelerator": "cuda",
    "weights": {"directory": "small", "bytes": 1000},
    "parallel": {"tp": 4, "pp": 1, "dcp": 1},
    "serve": {"name": "small", "port": 8210, "master_port": 29501, "ready_minutes": 5},
    "memory": {"kv_cache_bytes": 0, "runtime_gib": 1, "floor_gib": 1},
    "engine_args": {"max-model-len": 128},
    "engine_env": {"HF_HUB_OFFLINE": 1},
}


def engine_argv(profile, planned):
    return commands_of(profile, planned).container


def pairs(argv):
    """{flag: value} of a command line; a flag without a value has True."""
    found = {}
    for word, following in zip(argv, [*argv[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = True if following.startswith("--") else following
    return found


def repeated(argv, flag):
    """The values of a flag that may come several times."""
    return [following for word, following in pairwise(argv) if word == flag]


# --- flags ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "argv"),
    [
        ({}, []),
        ({"enforce-eager": True}, ["--enforce-eager"]),
        ({"enable-log-requests": False}, ["--no-enable-log-requests"]),
        ({"max-model-len": 262144}, ["--max-model-len", "262144"]),
        ({"gpu-memory-utilization": 0.93}, ["--gpu-memory-utilization", "0.93"]),
        ({"kv-cache-dtype": "fp8"}, ["--kv-cache-dtype", "fp8"]),
        ({"compilation-config": {"cudagraph_mode": "FULL"}}, ["--compilation-config", '{"cudagraph_mode":"FULL"}']),
        ({"hf-overrides": {"a": {"b": [1, True]}}}, ["--hf-overrides", '{"a":{"b":[1,true]}}']),
        ({"sizes": [1, 2]}, ["--sizes", "[1,2]"]),
        ({"a": 1, "b": True}, ["--a", "1", "--b"]),
    ],
)
def test_arguments_become_flags(arguments, argv):
    assert flags(arguments) == argv


# --- the engine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accelerator", "program"), [("cuda", ["nvidia-smi", IMAGE_ID, "-L"]), ("cpu", ["true", IMAGE_ID])]
)
def test_a_container_is_tried_within_a_time_and_without_a_download(accelerator, program):
    argv = list(smoke(PROFILE | {"accelerator": accelerator}, PATHS, IMAGE_ID))
    assert argv[:5] == ["timeout", "--kill-after=10", "300", "docker", "run"]
    assert repeated(argv, "--pull") == ["never"]
    assert argv[argv.index("--entrypoint") + 1 :] == program


def test_the_head_serves_the_api():
    assert engine_argv(PROFILE, intent(0)) == [
        *("vllm", "serve", "/models/small", "--served-model-name", "small"),
        *("--host", "10.0.0.11", "--port", "8210"),
        *("--tensor-parallel-size", "4", "--pipeline-parallel-size", "1"),
        *("--distributed-executor-backend", "mp", "--nnodes", "4", "--node-rank", "0"),
        *("--master-addr", "192.168.100.10", "--master-port", "29501"),
        *("--max-model-len", "128"),
    ]


def test_a_worker_serves_no_api():
    found = pairs(engine_argv(PROFILE, intent(3)))
    assert (found["--node-rank"], found["--headless"], found["--master-addr"]) == ("3", True, "192.168.100.10")
    assert not found.keys() & {"--host", "--port"}


def test_the_ranks_differ_in_nothing_but_rank_and_api():
    head, worker = pairs(engine_argv(PROFILE, intent(0))), pairs(engine_argv(PROFILE, intent(1)))
    assert {flag for flag in head | worker if head.get(flag) != worker.get(flag)} == {
        "--host",
        "--port",
        "--node-rank",
        "--headless",
    }


@pytest.mark.parametrize(("dcp", "value"), [(1, None), (4, "4")])
def test_dcp_is_named_only_where_it_is_used(dcp, value):
    profile = {**PROFILE, "parallel": {"tp": 4, "pp": 1, "dcp": dcp}}
    assert pairs(engine_argv(profile, intent())).get("--decode-context-parallel-size") == value


def test_the_environment_is_text_and_the_profile_comes_last():
    profile = {**PROFILE, "engine_env": {"A": 1, "B": 0.5, "C": "x", "TRITON_CACHE_DIR": "/elsewhere"}}
    assert engine_environment(profile, Commands([])) == {
        "HOME": "/var/cache/sparkwright",
        "VLLM_CACHE_ROOT": "/var/cache/sparkwright/vllm",
        "TRITON_CACHE_DIR": "/elsewhere",
        "A": "1",
        "B": "0.5",
        "C": "x",
    }


# --- the container --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("container", "argv"),
    [
        ({}, []),
        ({"gpus": "all"}, ["--gpus", "all"]),
        ({"ipc": "host", "shm_size": "10gb"}, ["--ipc", "host", "--shm-size", "10gb"]),
        ({"devices": ["/dev/a", "/dev/b"]}, ["--device", "/dev/a", "--device", "/dev/b"]),
        ({"capabilities": ["IPC_LOCK"]}, ["--cap-add", "IPC_LOCK"]),
        ({"ulimits": {"memlock": "-1:-1"}}, ["--ulimit", "memlock=-1:-1"]),
        ({"models_mount": "/cache"}, []),
    ],
)
def test_the_container_section(container, argv):
    assert container_options(container) == argv


def launch(profile=PROFILE, rank=0, paths=PATHS, nccl=None, image=IMAGE_ID, **changes):
    return render(profile, intent(rank, **changes), paths, nccl or {"NCCL_NET": "IB"}, image)


def test_the_whole_command():
    found = launch()
    end = found.argv.index(IMAGE_ID)
    assert found.argv[:end] == (
        *("docker", "run", "--name", "sparkwright-engine", "--network", "host", "--log-driver", "none"),
        *("--security-opt", "no-new-privileges"),
        *("--env-file", "/etc/sparkwright/nccl.env", "--env-file", "/etc/sparkwright/engine.env"),
        *("--env-file", "/etc/sparkwright/api.env"),
        *("--label", f"sparkwright.config={found.config_hash}", "--label", "sparkwright.rank=0"),
        *("--volume", "/var/lib/models:/models:ro", "--volume", "/var/cache/sparkwright:/var/cache/sparkwright"),
    )
    assert list(found.argv[end + 1 :]) == engine_argv(PROFILE, intent())
    assert found.environment == engine_environment(PROFILE, Commands([]))
    assert found.waits == ()


def test_a_container_of_ray_runs_our_program_says_where_ray_is_met_and_serves_behind_it():
    found = launch({**PROFILE, "executor": "ray"}, executor="ray")
    assert "/usr/local/lib/sparkwright:/usr/local/lib/sparkwright:ro" in repeated(found.argv, "--volume")
    assert "sparkwright.ray=192.168.100.10:29501" in repeated(found.argv, "--label")
    serve = commands_of({**PROFILE, "executor": "ray"}, intent(executor="ray")).serve
    assert list(found.argv[-len(serve) - 1 :]) == ["--", *serve]
    assert launch({**PROFILE, "executor": "ray"}, 1, executor="ray").waits == (("spark1", "192.168.100.10", 29502),)


def test_the_key_of_the_api_is_on_the_head_alone_and_in_no_argument():
    plain, keyed = (render(PROFILE, intent(), HostPaths("/m", "/c"), {}, IMAGE_ID, key) for key in ("", "s3cret"))
    assert plain.config_hash != keyed.config_hash
    assert not [part for part in (*keyed.argv, *keyed.environment.values()) if "s3cret" in part]
    worker = render(PROFILE, intent(1), HostPaths("/m", "/c"), {}, IMAGE_ID, "s3cret")
    assert worker.config_hash == render(PROFILE, intent(1), HostPaths("/m", "/c"), {}, IMAGE_ID).config_hash
    assert "/etc/sparkwright/api.env" not in worker.argv


def test_all_ranks_have_one_deployment_and_another_profile_another():
    hosts = ["spark1", "spark2"]
    assert deployment(PROFILE, hosts, IMAGE_ID) == deployment(copy.deepcopy(PROFILE), hosts, IMAGE_ID)
    others = [deployment({**PROFILE, "x": 1}, hosts, IMAGE_ID), deployment(PROFILE, hosts[::-1], IMAGE_ID)]
    assert len({deployment(PROFILE, hosts, IMAGE_ID), deployment(PROFILE, hosts, "other"), *others}) == 4


def test_mounts_of_the_user_come_last():
    found = launch(paths=HostPaths("/m", "/c", ("/opt/env:/opt/env:ro",)))
    assert repeated(found.argv, "--volume")[-1] == "/opt/env:/opt/env:ro"


def test_a_draft_of_its_own_is_found_beside_the_weights():
    weights = {**PROFILE["weights"], "draft": {"directory": "draft", "bytes": 5}}
    arguments = {"speculative-config": {"method": "mtp", "num_speculative_tokens": 3}}
    found = pairs(engine_argv({**PROFILE, "weights": weights, "engine_args": arguments}, intent()))
    assert found["--speculative-config"] == '{"model":"/models/draft","method":"mtp","num_speculative_tokens":3}'


def test_the_profile_may_move_the_models():
    found = launch({**PROFILE, "container": {"models_mount": "/cache/huggingface"}})
    assert "/var/lib/models:/cache/huggingface:ro" in found.argv
    assert "/cache/huggingface/small" in found.argv


# --- the hash -------------------------------------------------------------------------------------------------------


def edited(*path, value):
    """The profile with one value changed."""
    profile = copy.deepcopy(PROFILE)
    *parents, last = path
    place = profile
    for key in parents:
        place = place.setdefault(key, {})
    place[last] = value
    return profile


@pytest.mark.parametrize(
    "changed",
    [
        {"profile": edited("engine_args", "max-model-len", value=256)},
        {"profile": edited("engine_args", "enforce-eager", value=True)},
        {"profile": edited("engine_env", "HF_HUB_OFFLINE", value=0)},
        {"profile": edited("weights", "directory", value="other")},
        {"profile": edited("serve", "name", value="other")},
        {"profile": edited("parallel", "dcp", value=2)},
        {"profile": edited("container", "shm_size", value="1g")},
        {"profile": edited("container", "models_mount", value="/m")},
        {"nccl": {"NCCL_NET": "IB", "NCCL_CROSS_NIC": "1"}},
        {"image": "sha256:other"},
        {"rank": 1},
        {"api_port": 8211},
        {"api_host": "0.0.0.0"},
        {"master_port": 29502},
        {"head_address": "192.168.100.99"},
        {"world_size": 8},
        {"paths": HostPaths("/elsewhere", PATHS.cache)},
        {"paths": HostPaths(PATHS.models, "/elsewhere")},
        {"paths": HostPaths(PATHS.models, PATHS.cache, ("/a:/a",))},
    ],
    ids=str,
)
def test_what_matters_changes_the_hash(changed):
    assert launch(**changed).config_hash != launch().config_hash


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"profile": edited("summary", value="Another line")},
        {"profile": edited("serve", "ready_minutes", value=60)},
        {"profile": edited("weights", "bytes", value=2000)},
        {"profile": edited("memory", "floor_gib", value=2)},
        {"profile": {**PROFILE, "container": {}}},
        {"memory": MemoryNeed(1, 1, 1, 1, 1, 1)},
        {"management": "spark1.example"},
        {"weights_pushed": True},
        {"daemon_config": {}},
        {"free_memory": True},
        {"socket_peers": {}},
        {"rails": rails(2)},
        {"topology": "direct"},
        {"image_id": ""},
    ],
    ids=str,
)
def test_what_does_not_matter_keeps_the_hash(changed):
    assert launch(**changed).config_hash == launch().config_hash


def test_the_order_of_the_environment_does_not_matter():
    one, two = {"A": "1", "B": "2"}, {"B": "2", "A": "1"}
    assert launch(nccl=one).config_hash == launch(nccl=two).config_hash
    assert launch({**PROFILE, "engine_env": one}).config_hash == launch({**PROFILE, "engine_env": two}).config_hash


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ({"utilization": 0.93, "kv_cache_bytes": 0}, {"gpu-memory-utilization": 0.93}),
        ({"kv_cache_bytes": 1810000000}, {"kv-cache-memory-bytes": 1810000000}),
        (
            {"utilization": 0.9, "kv_cache_bytes": 1810000000},
            {"gpu-memory-utilization": 0.9, "kv-cache-memory-bytes": 1810000000},
        ),
    ],
)
def test_the_engine_gets_the_figures_that_the_checks_use(memory, expected):
    assert memory_arguments(memory) == expected
