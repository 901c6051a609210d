"""Patches: their headers, and hunks that fit in one place or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils import source_patch
from ansible_collections.sparkwright.cluster.plugins.module_utils.source_patch import FIELDS, PatchError, apply, parse

REPO = Path(__file__).resolve().parents[2]
PATCHES = sorted((REPO / "patches").glob("*.patch"))
HEADER = "Say two\n\nFixes: one was said,\n where two is right\nUpstream: none\nApplies-to: any\nTest: this\n\n"
BODY = "--- a/tool/words.py\n+++ b/tool/words.py\n@@ -3,3 +3,3 @@\n a\n-one\n+two\n b\n"
PATCH = HEADER + BODY


def hunks(text=PATCH, file="tool/words.py"):
    return parse(text).files[file]


def test_there_are_patches():
    assert [path.stem for path in PATCHES] == ["draft-dcp"]


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_patch_says_what_it_is_for_and_names_a_test_that_exists(path):
    patch = parse(path.read_text(encoding="utf-8"))
    assert patch.subject
    assert (REPO / patch.fields["Test"]).is_file()
    assert path.name in (REPO / patch.fields["Test"]).read_text(encoding="utf-8")


def test_the_header():
    patch = parse(PATCH)
    assert patch.subject == "Say two"
    assert patch.fields["Fixes"] == "one was said, where two is right"


@pytest.mark.parametrize("field", FIELDS)
def test_a_header_that_lacks_a_field(field):
    with pytest.raises(PatchError) as error:
        parse(PATCH.replace(f"{field}:", "Other:"))
    assert str(error.value) == f"its header lacks {field}"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "it changes no file"),
        (BODY + "what is this\n", "it has a line that belongs to no hunk: what is this"),
        (BODY.replace(" b\n", ""), "a hunk ends before its last line: end of the patch"),
        (BODY.replace(" b\n", "*\n"), "a hunk ends before its last line: *"),
    ],
)
def test_a_body_that_cannot_be_read(body, why):
    with pytest.raises(PatchError) as error:
        parse(HEADER + body)
    assert str(error.value) == why


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("a\none\nb\n", "a\ntwo\nb\n"),
        ("x\ny\nz\na\none\nb\nc\n", "x\ny\nz\na\ntwo\nb\nc\n"),
        ("a\none\nb", "a\ntwo\nb\n"),
    ],
    ids=["as it is", "further down", "no line end at the end"],
)
def test_a_hunk_fits_wherever_its_lines_are(text, changed):
    assert apply(hunks(), text) == changed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a\nONE\nb\n", "hunk 1 fits in 0 places, limit: exactly 1"),
        ("", "hunk 1 fits in 0 places, limit: exactly 1"),
        ("a\none\nb\na\none\nb\n", "hunk 1 fits in 2 places, limit: exactly 1"),
        ("a\ntwo\nb\n", "hunk 1 is in the file already"),
    ],
)
def test_a_hunk_that_does_not_fit(text, why):
    with pytest.raises(PatchError) as error:
        apply(hunks(), text)
    assert str(error.value) == why


def test_two_hunks_and_two_files():
    more = "@@ -9 +9,2 @@\n last\n+end\n--- a/tool/other.py\n+++ b/tool/other.py\n@@ -1,2 +1 @@\n-x\n y\n"
    patch = parse(PATCH + more)
    assert list(patch.files) == ["tool/words.py", "tool/other.py"]
    assert apply(patch.files["tool/words.py"], "a\none\nb\nlast\n") == "a\ntwo\nb\nlast\nend\n"
    assert apply(patch.files["tool/other.py"], "x\ny\n") == "y\n"


def test_an_empty_line_of_context_may_have_lost_its_blank():
    body = "--- a/tool/words.py\n+++ b/tool/words.py\n@@ -1,3 +1,3 @@\n\n-one\n+two\n b\n"
    assert apply(hunks(HEADER + body), "\none\nb\n") == "\ntwo\nb\n"


@pytest.fixture
def program(tmp_path):
    """Runs the file by itself, as the image build does, on a package that must not be imported."""
    (tmp_path / "site/tool").mkdir(parents=True)
    (tmp_path / "site/tool/__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "site/tool/words.py").write_text("a\none\nb\n")
    (tmp_path / "words.patch").write_text(PATCH)

    def run():
        argv = [sys.executable, "-B", source_patch.__file__, str(tmp_path / "words.patch")]
        env = {"PYTHONPATH": str(tmp_path / "site")}
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    return run, tmp_path / "site/tool/words.py"


def test_the_program_patches_what_is_installed_once(program):
    run, file = program
    done = run()
    assert (done.returncode, done.stdout) == (0, f"words.patch: Say two: changed {file}\n")
    assert file.read_text() == "a\ntwo\nb\n"

    again = run()
    assert again.returncode == 1
    assert again.stderr == f"words.patch does not apply: {file}: hunk 1 is in the file already\n"
    assert file.read_text() == "a\ntwo\nb\n"


def test_the_program_names_what_is_not_there(program):
    run, file = program
    file.unlink()
    done = run()
    assert done.returncode == 1
    assert done.stderr.startswith(f"words.patch does not apply: {file}: ")


def test_a_package_that_is_not_installed(tmp_path):
    file = tmp_path / "x.patch"
    file.write_text(PATCH.replace("tool/", "no_such_package/"))
    done = subprocess.run(
        [sys.executable, source_patch.__file__, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "x.patch does not apply: the package no_such_package is not installed here\n"
