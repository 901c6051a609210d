"""The engine image: how it travels and what that costs, built with a real patch, and what breaks on the way.

The figures of the two ways, from the counters of the rails, go to reports/lab-image.json.
"""

from __future__ import annotations

import json
import subprocess
import time

import pytest
import yaml
from driver import REPO, STATE, inventory_with, play

IMAGE = "molecule/image/image.yml"
HEAD, WORKERS = "spark1", ("spark2", "spark3", "spark4")
REGISTRY = "192.168.100.10:5055"
RAIL = "enp1s0f0np0"
LAB_IMAGE = "sparkwright-lab/vllm-cpu:0.32.0"
BASE, BUILT = "sparkwright-lab/patchable:1", "sparkwright-lab/built:1"
STORAGE = "/var/lib/sparkwright/registry"
REPORT = REPO / "reports" / "lab-image.json"
# A patch of the lab's own beside the real one, whose one line is changed for a rebuild.
LINE = REPO / "patches" / "lab-line.patch"
LINE_PATCH = """Change one line

Fixes: nothing, it is there to be changed
Upstream: none
Applies-to: the lab's own image
Test: tests/driver/test_image.py

--- a/labtool/words.py
+++ b/labtool/words.py
@@ -1 +1 @@
-WORD = "one"
+WORD = "{word}"
"""
# The sources of the real vLLM in an image of their own, so that a build can patch them; what they import is mounted.
MAKE_BASE = f"""
set -eu
folder=/var/tmp/patchable
rm -rf $folder && mkdir -p $folder/site/labtool
cd /opt/sparkwright-lab/engine-env
find vllm -name '*.py' -print0 | tar --create --null --files-from=- | tar --extract --directory=$folder/site
touch $folder/site/labtool/__init__.py
echo 'WORD = "one"' > $folder/site/labtool/words.py
cat > $folder/Dockerfile <<END
FROM {LAB_IMAGE}
COPY site /opt/patched
ENV PYTHONPATH=/opt/patched:/opt/sparkwright-lab/engine-env
END
docker build --quiet --tag {BASE} $folder >&2
docker image inspect --format '{{{{.Id}}}}' {BASE}
"""


def script(node: str, text: str) -> str:
    """Run a script as root on a node and return what it printed."""
    argv = ["ssh", "-F", str(STATE / "ssh_config"), node, "sudo bash -s"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def received() -> int:
    """Bytes that all workers have received on the rail."""
    return sum(int(script(node, f"cat /sys/class/net/{RAIL}/statistics/rx_bytes")) for node in WORKERS)


def image_id(node: str, ref: str) -> str:
    return script(node, f"docker image inspect --format '{{{{.Id}}}}' {ref} 2>/dev/null || true")


def forget(ref: str, *nodes: str) -> None:
    """Take an image away from nodes, with all its names."""
    for node in nodes:
        script(
            node,
            f"docker image inspect {ref} >/dev/null 2>&1 && docker image rm --force $(docker image inspect"
            f" --format '{{{{.Id}}}}' {ref}) >/dev/null; docker image prune --force >/dev/null",
        )


def note(name: str, size: int, seconds: float) -> None:
    """Add a figure to the report."""
    REPORT.parent.mkdir(exist_ok=True)
    known = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    known[name] = {"bytes": size, "seconds": round(seconds, 1), "workers": len(WORKERS)}
    REPORT.write_text(json.dumps(known, indent=1) + "\n")
    print(f"{name}: {size} bytes on the rail of {len(WORKERS)} workers, {seconds:.1f} s")


def figure(name: str) -> dict:
    return json.loads(REPORT.read_text())[name]


def measured(name: str, inventory, variables) -> object:
    """Run the play; what it moved and how long its two transfers took goes to the report."""
    before = received()
    run = play(IMAGE, inventory, variables=variables)
    assert run.code == 0, run.output
    seconds = run.seconds("Put the image into the registry") + run.seconds("Get the image from the head")
    note(name, received() - before, seconds)
    return run


@pytest.fixture(scope="module")
def inventory(tmp_path_factory):
    """The lab's inventory with a profile that wants the patch and looks for it in the image."""
    copy = inventory_with(tmp_path_factory.mktemp("image"), {})
    write_profile(copy)
    return copy


def write_profile(copy, *imports: str) -> None:
    profile = yaml.safe_load((REPO / "profiles/lab-tiny-tp4.yml").read_text(encoding="utf-8"))
    marked = yaml.safe_load((REPO / "profiles/glm52-nvfp4-dcp4-mtp3-128k.yml").read_text(encoding="utf-8"))
    profile["image"] |= {
        "patches": ["draft-dcp"],
        "gates": {
            "imports": ["safetensors", *imports],
            "vllm": "0.32.0",
            "marks": marked["image"]["gates"]["marks"],
        },
    }
    (copy / "profiles").mkdir(exist_ok=True)
    (copy / "profiles/lab-tiny-tp4.yml").write_text(yaml.safe_dump(profile), encoding="utf-8")


@pytest.fixture(scope="module")
def build():
    """The variables of a build on the head; the line of the second patch is what `say` makes it."""
    base_id = script(HEAD, MAKE_BASE)
    yield {
        "engine_image_ref": BUILT,
        "engine_image_archive": "",
        "engine_image_distribution": "registry",
        "engine_image_build": {
            "base": BASE,
            "base_id": base_id,
            "patches": ["draft-dcp", "lab-line"],
            "network": "none",
        },
    }
    LINE.unlink(missing_ok=True)


def say(word: str) -> None:
    LINE.write_text(LINE_PATCH.format(word=word), encoding="utf-8")


def test_the_first_distribution_goes_over_the_rail():
    forget(LAB_IMAGE, *WORKERS)
    script(HEAD, f"rm -rf {STORAGE}/docker")
    REPORT.unlink(missing_ok=True)
    run = measured(
        "first distribution by the registry", REPO / "inventory/lab", {"engine_image_distribution": "registry"}
    )
    assert {line.split(":")[0] for line in run.changed if line.endswith("Get the image from the head")} == set(WORKERS)
    assert len({image_id(node, LAB_IMAGE) for node in (HEAD, *WORKERS)}) == 1
    assert figure("first distribution by the registry")["bytes"] > 10_000_000
    assert script(HEAD, "ss -H -l -t -n sport = :5055") == ""


def test_the_same_by_save_and_load():
    """As people do it: the whole image from the head to every worker, all at once, over the same rail."""
    forget(LAB_IMAGE, *WORKERS)
    key = (STATE / "id_ed25519").read_text()
    script(HEAD, f"umask 077; cat > /root/lab-key <<'END'\n{key}END")
    addresses = " ".join(f"192.168.100.{10 + number}" for number in (1, 2, 3))
    ssh = "ssh -i /root/lab-key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    before, start = received(), time.monotonic()
    try:
        script(
            HEAD,
            f"set -o pipefail; for a in {addresses}; do docker save {LAB_IMAGE} | {ssh} spark@$a sudo docker load"
            ' >/dev/null & pids="$pids $!"; done; for p in $pids; do wait $p || exit 1; done',
        )
    finally:
        script(HEAD, "rm /root/lab-key")
    note("first distribution by save and load", received() - before, time.monotonic() - start)
    assert len({image_id(node, LAB_IMAGE) for node in (HEAD, *WORKERS)}) == 1


def test_a_build_with_a_real_patch_reaches_every_node(inventory, build):
    say("two")
    run = measured("first build", inventory, build)
    assert f"{HEAD}: Build the image from its pins" in run.changed
    assert len({image_id(node, BUILT) for node in (HEAD, *WORKERS)}) == 1
    for node in (HEAD, *WORKERS):
        found = json.loads(script(node, "cat /var/lib/sparkwright/image-gates.json"))
        assert found["image_id"] == image_id(node, BUILT)
        assert found["gates"]["marks"] == {"draft-dcp": ""}
        assert found["gates"]["vllm"] == "0.32.0+cpu"
    assert play(IMAGE, inventory, variables=build).changed == []


def test_a_changed_line_costs_next_to_nothing(inventory, build):
    say("three")
    run = measured("rebuild with one line changed", inventory, build)
    assert f"{HEAD}: Build the image from its pins" in run.changed
    word = f"docker run --rm --network none --entrypoint python3 {BUILT} -c 'import labtool.words as w; print(w.WORD)'"
    assert {script(node, word) for node in (HEAD, *WORKERS)} == {"three"}
    whole, rebuilt = figure("first distribution by save and load"), figure("rebuild with one line changed")
    assert rebuilt["bytes"] * 50 < whole["bytes"]


def test_the_patch_is_missed_where_the_image_has_it_not(inventory, build):
    """The base under the name of the build: the label says what it is, and a look inside says what it lacks."""
    before = image_id("spark2", BUILT)
    try:
        script("spark2", f"docker tag {LAB_IMAGE} {BUILT}; rm /var/lib/sparkwright/image-gates.json")
        doctor = play("playbooks/doctor.yml", inventory, variables=build)
    finally:
        script("spark2", f"docker tag {before} {BUILT}")
    assert doctor.code != 0
    assert any(line.startswith(f"spark2: {BUILT} is of build unknown; limit: ") for line in doctor.failures), (
        doctor.output
    )
    assert any(line.startswith("spark2: its engine image was not looked into: ") for line in doctor.failures)
    assert play(IMAGE, inventory, variables=build).code == 0


def test_another_image_on_one_node_is_named_and_repaired_without_a_transfer(inventory, build):
    before = image_id("spark3", BUILT)
    script(
        "spark3",
        f"docker tag {before} keep:1; printf 'FROM keep:1\\nLABEL other=1\\n' | docker build --quiet --tag"
        f" {BUILT} - >/dev/null",
    )
    doctor = play("playbooks/doctor.yml", inventory, variables=build)
    assert doctor.code != 0
    assert any(
        line.startswith("spark3: its engine image is ") and ", as on spark1; " in line for line in doctor.failures
    ), doctor.output

    received_before = received()
    repaired = play(IMAGE, inventory, variables=build)
    assert repaired.code == 0, repaired.output
    assert {line for line in repaired.changed if "Get the image" in line} == {"spark3: Get the image from the head"}
    assert image_id("spark3", BUILT) == before
    # Pings and ssh pass over the rail as well; an image does not.
    assert received() - received_before < 5_000_000
    script("spark3", "docker image rm keep:1; docker image prune --force")


def test_a_registry_that_is_down_is_named_and_the_next_run_goes_on(inventory, build):
    forget(BUILT, "spark2")
    script(HEAD, "systemd-run --quiet --unit=lab-squatter python3 -m http.server 5055 --bind 192.168.100.10")
    try:
        run = play(IMAGE, inventory, variables=build)
    finally:
        script(HEAD, "systemctl stop lab-squatter")
    assert run.code != 0
    assert any(line.startswith(f"spark2: no registry at {REGISTRY}: ") for line in run.failures), run.output
    assert script(HEAD, "systemctl is-active sparkwright-registry-push || true") == "inactive"

    again = play(IMAGE, inventory, variables=build)
    assert again.code == 0, again.output
    assert image_id("spark2", BUILT) == image_id(HEAD, BUILT)


def test_a_push_that_is_killed_leaves_nothing_half_and_is_finished_by_the_next_run(inventory, build):
    forget(BUILT, *WORKERS)
    forget(LAB_IMAGE, *WORKERS)
    script(HEAD, f"rm -rf {STORAGE}/docker")
    killer = "while ! pkill --signal KILL --full '[d]ocker push --quiet 127.0.0.1'; do sleep 0.2; done"
    with subprocess.Popen(["ssh", "-F", str(STATE / "ssh_config"), HEAD, f'sudo timeout 300 bash -c "{killer}"']):
        run = play(IMAGE, inventory, variables=build)
    assert run.code != 0
    assert any(line.startswith("spark1: docker push failed: ") for line in run.failures), run.output
    assert {image_id(node, BUILT) for node in WORKERS} == {""}

    again = play(IMAGE, inventory, variables=build)
    assert again.code == 0, again.output
    assert len({image_id(node, BUILT) for node in (HEAD, *WORKERS)}) == 1
    assert script(HEAD, f"ls {STORAGE}/docker/registry/v2/repositories/sparkwright/engine/_uploads || true") == ""


def test_a_gate_that_fails_on_one_node_is_named(inventory, build):
    stray = "/var/cache/sparkwright/.nccl.conf"
    script("spark4", f"mkdir -p /var/cache/sparkwright; echo NCCL_IB_DISABLE=1 > {stray}")
    try:
        write_profile(inventory, "regex")
        run = play(IMAGE, inventory, variables=build)
    finally:
        script("spark4", f"rm {stray}")
    assert run.code != 0
    assert [line for line in run.failures if "NCCL" in line or "nccl" in line] == [
        f"spark4: its engine image has {stray}; limit: no such file; remedy: remove {stray}, and write its lines to"
        " nccl_env of the profile"
    ], run.output
    assert play(IMAGE, inventory, variables=build).code == 0


def test_docker_learns_of_the_registry_without_a_restart(inventory, build):
    script(
        "spark2",
        "python3 - <<'END'\nimport json\npath = '/etc/docker/daemon.json'\ndata = json.load(open(path))\n"
        "data['insecure-registries'] = ['10.9.9.9:5000']\njson.dump(data, open(path, 'w'))\nEND\n"
        "systemctl reload docker",
    )
    before = script("spark2", "pidof dockerd")
    run = play(IMAGE, inventory, variables=build)
    assert run.code == 0, run.output
    assert "spark2: Have Docker read its configuration again" in run.changed
    assert script("spark2", "pidof dockerd") == before
    known = json.loads(script("spark2", "docker info --format '{{json .RegistryConfig.IndexConfigs}}'"))
    assert {name for name, row in known.items() if not row["Secure"]} == {"10.9.9.9:5000", REGISTRY}


def test_of_ours_two_are_kept_and_those_of_others_all(inventory, build):
    # The lab's own image was taken from the workers before.
    script("spark2", "tar --create --directory=/etc hostname | docker import - somebody/else:1")
    script("spark3", f"docker tag {BUILT} keep:1")
    for word in ("four", "five", "six"):
        say(word)
        run = play(IMAGE, inventory, variables=build)
        assert run.code == 0, run.output
    for node in (HEAD, *WORKERS):
        ours = json.loads(script(node, "cat /var/lib/sparkwright/images.json"))
        # What has a name of another repository stays: on spark3 one of them, and the lab's own image everywhere.
        named = [image_id(node, ref) for ref in ("keep:1", LAB_IMAGE)]
        assert len(set(ours) - set(named)) == 2, (node, ours)
        assert image_id(node, BUILT) in ours
    assert image_id("spark2", "somebody/else:1")
    assert image_id("spark3", "keep:1")
