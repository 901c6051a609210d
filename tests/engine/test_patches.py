"""The patches of patches/ on the real vLLM of the engine environment: they apply, and they change what they say.

Run it with `pytest tests/engine`. Like the contract it is skipped without the engine environment of the lab.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ansible_collections.sparkwright.cluster.plugins.module_utils.image_probe import functions
from ansible_collections.sparkwright.cluster.plugins.module_utils.source_patch import PatchError, apply, parse

PATCHES = Path(__file__).resolve().parents[2] / "patches"
DRAFT = Path(__file__).with_name("draft.py")
# Of the target TP, DCP and interleave, then TP of the draft; of the patched draft DCP, interleave and DCP backend.
TARGETS = {
    "four ranks share the cache": ([4, 4, 1, 4], [4, 1, "ag_rs"]),
    "two share it, in runs of 16 tokens": ([4, 2, 16, 4], [2, 16, "ag_rs"]),
    "a draft of two ranks under a DCP of two": ([4, 2, 16, 2], [2, 16, "ag_rs"]),
    "a draft of one rank cannot share": ([4, 4, 1, 1], [1, 1, "ag_rs"]),
    "nothing is shared": ([4, 1, 1, 4], [1, 1, "ag_rs"]),
}


def overlay(place: Path, folder: Path, files: dict[str, str]) -> None:
    """A copy of the installed packages made of links, but for some files."""
    for name, text in files.items():
        parts = Path(name).parts
        for depth in range(1, len(parts)):
            level = Path(*parts[:depth])
            (folder / level).mkdir(parents=True, exist_ok=True)
            for entry in (place / level).iterdir():
                link = folder / level / entry.name
                if entry.name not in (parts[depth], "__pycache__") and not link.exists():
                    link.symlink_to(entry)
        (folder / name).write_text(text, encoding="utf-8")


def patched_files(place: Path, name: str) -> dict[str, str]:
    """The files that a patch changes, as they are after it."""
    patch = parse((PATCHES / name).read_text(encoding="utf-8"))
    return {file: apply(hunks, (place / file).read_text(encoding="utf-8")) for file, hunks in patch.files.items()}


@pytest.fixture(scope="module")
def drafts(engine, tmp_path_factory):
    """What both, stock and patched, make of every target."""
    folder = tmp_path_factory.mktemp("patched")
    overlay(engine.place, folder, patched_files(engine.place, "draft-dcp.patch"))
    targets = [target for target, _ in TARGETS.values()]
    answers = [engine.ask(DRAFT, targets, before) for before in (None, folder)]
    return {name: found for name, *found in zip(TARGETS, *answers, strict=True)}


@pytest.mark.parametrize("name", TARGETS)
def test_the_stock_draft_never_shares_its_cache(drafts, name):
    stock, _ = drafts[name]
    assert stock == [TARGETS[name][0][3], 1, 1, None]


@pytest.mark.parametrize("name", TARGETS)
def test_the_patched_draft_shares_it_as_the_target_does_where_it_can(drafts, name):
    _, patched = drafts[name]
    assert patched == [TARGETS[name][0][3], *TARGETS[name][1]]


def marks():
    """How the profiles look for our patches inside of an image, each once."""
    for path in sorted((PATCHES.parent / "profiles").glob("*.yml")):
        gates = yaml.safe_load(path.read_text(encoding="utf-8")).get("image", {}).get("gates", {})
        yield from gates.get("marks", [])


def test_profiles_look_for_the_patch_where_it_can_be_seen(engine):
    found = [mark for mark in marks() if (PATCHES / f"{mark['patch']}.patch").exists()]
    assert found
    for mark in found:
        stock = (engine.place / mark["file"]).read_text(encoding="utf-8")
        patched = patched_files(engine.place, f"{mark['patch']}.patch")[mark["file"]]
        assert not any(mark["text"] in source for source in functions(stock, mark["within"]))
        assert any(mark["text"] in source for source in functions(patched, mark["within"]))


@pytest.mark.parametrize("path", sorted(PATCHES.glob("*.patch")), ids=lambda path: path.stem)
def test_a_patch_fits_once(engine, path):
    for file, text in patched_files(engine.place, path.name).items():
        hunks = parse(path.read_text(encoding="utf-8")).files[file]
        with pytest.raises(PatchError, match="is in the file already"):
            apply(hunks, text)
