"""tools/collections: which collections are required, which of them are missing, and what is unpacked."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TREE = {
    "a.one": ("1.2.0", {"a.two": ">=1.0.0"}),
    "a.two": ("2.0.0", {}),
    "a.other": ("3.0.0", {}),
}


def manifest_text(name: str) -> str:
    version, dependencies = TREE[name]
    return json.dumps({"collection_info": {"version": version, "dependencies": dependencies}})


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, working on an empty directory."""
    loader = SourceFileLoader("collections_tool", str(ROOT / "tools/collections"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    monkeypatch.setattr(module, "COLLECTIONS", tmp_path)
    return module


@pytest.fixture
def wheel(tmp_path: Path, tool: ModuleType) -> Path:
    path = tmp_path / "ansible-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name in TREE:
            file.writestr(tool.manifest_path(name), manifest_text(name))
    return path


def install(tool: ModuleType, *names: str) -> None:
    for name in names:
        path = tool.COLLECTIONS / tool.manifest_path(name)
        path.parent.mkdir(parents=True)
        path.write_text(manifest_text(name))


@pytest.mark.parametrize(
    ("present", "version_range", "expected"),
    [
        (["a.one", "a.two"], ">=1.0.0,<2.0.0", []),
        (["a.one", "a.two"], "*", []),
        (["a.one", "a.two"], ">=1.3.0", ["a.one 1.2.0, required: >=1.3.0"]),
        (["a.one"], ">=1.0.0", ["a.two absent, required: >=1.0.0"]),
        ([], ">=1.0.0", ["a.one absent, required: >=1.0.0"]),
    ],
)
def test_unmet(tool: ModuleType, present: list[str], version_range: str, expected: list[str]) -> None:
    install(tool, *present)
    assert tool.unmet({"a.one": version_range}) == expected


def test_wheel_gives_the_collection_and_its_dependencies_and_nothing_else(
    tool: ModuleType, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "download_wheel", lambda _: wheel)
    stale = tool.COLLECTIONS / "ansible_collections/a/one/stale"
    own = tool.COLLECTIONS / "ansible_collections/sparkwright/cluster/galaxy.yml"
    for path in (stale, own):
        path.parent.mkdir(parents=True)
        path.touch()
    assert tool.install_from_wheel({"a.one": "*"}) == wheel.name
    assert tool.unmet({"a.one": "*"}) == []
    assert not stale.exists()
    assert own.exists()
    assert tool.installed("a.other") is None


def test_collection_that_the_wheel_lacks_is_named(
    tool: ModuleType, wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "download_wheel", lambda _: wheel)
    with pytest.raises(tool.CollectionsError, match=r"has no collection a\.none"):
        tool.install_from_wheel({"a.none": "*"})


@pytest.mark.parametrize(("core", "known"), [("2.19.14", True), ("2.21.5", True), ("2.18.0", False)])
def test_wheel_is_pinned_for_each_supported_core(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, core: str, known: bool
) -> None:
    monkeypatch.setattr(tool, "core_version", core)
    if known:
        assert len(tool.pinned_wheel()[1]) == 64
    else:
        with pytest.raises(tool.CollectionsError, match=r"no ansible wheel for ansible-core 2\.18"):
            tool.pinned_wheel()


@pytest.mark.parametrize("galaxy", [True, False])
def test_galaxy_comes_first_and_the_wheel_second(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, galaxy: bool
) -> None:
    monkeypatch.setattr(tool, "galaxy_answers", lambda: True)
    monkeypatch.setattr(tool, "install_from_galaxy", lambda: galaxy)
    monkeypatch.setattr(tool, "install_from_wheel", lambda _: "wheel")
    assert tool.install({}) == ("Galaxy" if galaxy else "wheel")


def test_probe_is_bounded(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "PROBE_SECONDS", 0.01)
    assert tool.galaxy_answers() is False
