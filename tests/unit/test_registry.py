"""The head's registry: its units, what it answers, and images that go in and out of it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from fake_docker import FakeDocker
from module_runner import run_module

from ansible_collections.sparkwright.cluster.plugins.module_utils.own_images import own_images, remember_image
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry import (
    push_address,
    registry_files,
    tag_of,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.registry_client import (
    RegistryError,
    manifest_digest,
    wait_for,
)
from ansible_collections.sparkwright.cluster.plugins.modules import registry_image

REGISTRY = "192.168.100.10:5055"
IMAGE_ID = "sha256:" + "0123456789abcdef" * 4
DIGEST = "sha256:" + "d" * 64
REF = "own:1"
NAME = f"{REGISTRY}/sparkwright/engine@{DIGEST}"

# --- units ----------------------------------------------------------------------------------------------------------


def files():
    return {file["path"]: file["content"] for file in registry_files(REGISTRY, "/data")}


@pytest.mark.parametrize(
    ("name", "address", "readonly"), [("registry-push", "127.0.0.1:5055", False), ("registry", REGISTRY, True)]
)
def test_images_come_in_on_the_loopback_address_and_go_out_read_only(name, address, readonly):
    config = yaml.safe_load(files()[f"/etc/sparkwright/{name}.yml"])
    assert config["http"]["addr"] == address
    assert config["storage"]["maintenance"]["readonly"]["enabled"] is readonly
    assert config["storage"]["filesystem"]["rootdirectory"] == "/data"
    unit = files()[f"/etc/systemd/system/sparkwright-{name}.service"].splitlines()
    assert f"ExecStart=/usr/bin/docker-registry serve /etc/sparkwright/{name}.yml" in unit
    assert {"User=docker-registry", "NoNewPrivileges=yes", "ProtectSystem=strict", "ReadWritePaths=/data"} <= set(unit)
    # It is started for one distribution, never at boot.
    assert "[Install]" not in unit


def test_names_in_the_registry():
    assert push_address(REGISTRY) == "127.0.0.1:5055"
    assert tag_of(IMAGE_ID) == "0123456789ab"


# --- what it answers ------------------------------------------------------------------------------------------------


class Registry(BaseHTTPRequestHandler):
    """The two questions that are asked of a registry; `manifests` are digests by tag."""

    manifests: dict[str, str]
    version = "registry/2.0"
    status = 200

    def do_GET(self):
        self.send_response(self.status)
        if self.version:
            self.send_header("Docker-Distribution-Api-Version", self.version)
        self.end_headers()

    def do_HEAD(self):
        assert "application/vnd.docker.distribution.manifest.v2+json" in self.headers["Accept"]
        digest = self.manifests.get(self.path.removeprefix("/v2/sparkwright/engine/manifests/"))
        self.send_response(200 if digest else 404)
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    def log_message(self, *arguments):
        """A request is nothing to log."""


@pytest.fixture
def registry():
    """A registry on a port of its own; what it is like may be changed on the class that the fixture gives."""
    handler = type("Handler", (Registry,), {"manifests": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.address = f"127.0.0.1:{server.server_port}"
    yield handler
    server.shutdown()
    server.server_close()


def test_a_registry_that_is_there(registry):
    wait_for(registry.address)
    assert manifest_digest(registry.address, "0123") == ""
    registry.manifests["0123"] = DIGEST
    assert manifest_digest(registry.address, "0123") == DIGEST


def test_no_proxy_is_asked(registry, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    wait_for(registry.address, patience=0)


@pytest.mark.parametrize(
    ("change", "why"),
    [({"version": ""}, "what answers is no registry"), ({"status": 404}, "HTTP Error 404: Not Found")],
)
def test_something_else_at_that_port(registry, change, why):
    for name, value in change.items():
        setattr(registry, name, value)
    with pytest.raises(RegistryError) as error:
        wait_for(registry.address, patience=0)
    assert str(error.value) == f"no registry at {registry.address}: {why}; limit: an answer within 0 s"


def test_nothing_at_that_port():
    with pytest.raises(RegistryError, match=r"^no registry at 127.0.0.1:9: .*Connection refused.*; limit: "):
        wait_for("127.0.0.1:9", patience=0)


# --- in and out -----------------------------------------------------------------------------------------------------


@pytest.fixture
def docker(tmp_path, monkeypatch):
    """A node whose Docker has no image yet."""
    fake = FakeDocker(tmp_path)
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    for function in (own_images, remember_image):
        monkeypatch.setattr(function, "__defaults__", (str(tmp_path / "images.json"),))
    return fake


def pushed(registry, **more):
    asked = {"state": "pushed", "host": "spark1", "head": "spark1", "image": REF, "registry": registry.address}
    return run_module(registry_image.main, **asked, **more)


def pulled(check_mode=False, registry=REGISTRY):
    asked = {"state": "pulled", "host": "spark2", "head": "spark1", "image": REF, "registry": registry}
    return run_module(registry_image.main, check_mode, **asked, image_id=IMAGE_ID, digest=DIGEST)


def test_an_image_is_pushed_once(docker, registry, tmp_path):
    docker.image(IMAGE_ID, REF)
    remains = tmp_path / "docker/registry/v2/repositories/sparkwright/engine/_uploads/half"
    remains.mkdir(parents=True)

    first = pushed(registry, storage=str(tmp_path))
    assert first["changed"] is True
    name = f"{registry.address}/sparkwright/engine:0123456789ab"
    assert docker.calls == [f"tag {IMAGE_ID} {name}", f"push --quiet {name}"]
    assert not remains.exists()

    registry.manifests["0123456789ab"] = DIGEST
    again = pushed(registry, storage=str(tmp_path))
    assert (again["changed"], again["image_id"], again["digest"]) == (False, IMAGE_ID, DIGEST)
    assert len(docker.calls) == 2


def test_a_push_that_fails_is_said_in_one_line(docker, registry):
    docker.image(IMAGE_ID, REF)
    docker.put(fails={"push": "The push refers to repository\nno space left\non device"})
    assert pushed(registry)["msg"] == (
        "spark1: docker push failed: on device; limit: it ends well; remedy: look at `journalctl -u"
        " sparkwright-registry-push.service` on spark1, and run it again: what is there is not sent twice"
    )


def test_there_is_nothing_to_push(docker, registry):
    assert pushed(registry)["msg"].startswith("spark1: there is no image own:1; limit: it is on the head before")


def test_in_check_mode_no_registry_is_asked(docker):
    docker.image(IMAGE_ID, REF)
    asked = {"state": "pushed", "host": "spark1", "head": "spark1", "image": REF, "registry": "127.0.0.1:9"}
    assert run_module(registry_image.main, True, **asked)["changed"] is True
    assert docker.calls == []


@pytest.mark.parametrize(("tags", "changed"), [([REF], False), ([], True)])
def test_in_check_mode_a_node_is_told_whether_it_lacks_the_image(docker, tags, changed):
    docker.image(IMAGE_ID, *tags)
    assert pulled(check_mode=True)["changed"] is changed
    assert docker.calls == []


def test_a_node_pulls_by_the_digest_and_names_what_it_got(docker, registry):
    name = f"{registry.address}/sparkwright/engine@{DIGEST}"
    docker.put(remote={name: IMAGE_ID})
    result = pulled(registry=registry.address)
    assert (result["changed"], result["moved"], result["image_id"]) == (True, True, IMAGE_ID)
    assert docker.calls == [f"pull --quiet {name}", f"tag {IMAGE_ID} {REF}"]
    assert own_images() == [IMAGE_ID]

    again = pulled(registry=registry.address)
    assert (again["changed"], again["moved"]) == (False, False)


@pytest.mark.parametrize("state", ["lost", "taken"])
def test_a_name_is_repaired_without_any_transfer(docker, state):
    docker.image(IMAGE_ID)
    if state == "taken":
        docker.image("sha256:other", REF)
    result = pulled()
    assert (result["changed"], result["moved"]) == (True, False)
    assert docker.calls == [f"tag {IMAGE_ID} {REF}"]


def test_a_store_that_names_it_by_its_manifest(docker):
    """The ID is another one than the head's, and the digest tells that it is the same image."""
    docker.image(DIGEST, REF)
    state = docker.read()["images"][DIGEST]
    docker.put(images={DIGEST: {**state, "RepoDigests": [NAME]}})
    result = pulled()
    assert (result["changed"], result["image_id"]) == (False, DIGEST)
    assert docker.calls == []


def test_a_registry_that_is_down_is_said_in_one_line(docker, monkeypatch):
    monkeypatch.setattr(registry_image, "wait_for", lambda address: wait_for(address, patience=0))
    line = pulled(registry="127.0.0.1:9")["msg"]
    assert line.startswith("spark2: no registry at 127.0.0.1:9: ")
    assert line.endswith(
        "; remedy: look at `journalctl -u sparkwright-registry.service` on spark1, and run it again: what is there is"
        " not sent twice"
    )
    assert docker.calls == []
