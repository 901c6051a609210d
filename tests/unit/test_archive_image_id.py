"""The image ID inside an archive of `docker save`."""

from __future__ import annotations

import io
import json
import tarfile

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.sparkwright.cluster.plugins.plugin_utils.cluster import archive_image_id

DIGEST = "0123456789abcdef" * 4


def archive(path, **files):
    """A tar file; a name's `__` stands for a dot."""
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            content = data if isinstance(data, bytes) else json.dumps(data).encode()
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("config", [f"{DIGEST}.json", f"blobs/sha256/{DIGEST}"], ids=["older Docker", "OCI layout"])
def test_the_image_id(tmp_path, config):
    path = archive(tmp_path / "image.tar", manifest__json=[{"Config": config, "RepoTags": ["x:1"], "Layers": []}])
    assert archive_image_id(path) == f"sha256:{DIGEST}"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "\"filename 'manifest.json' not found\""),
        ({"manifest__json": b"{"}, "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ({"manifest__json": []}, "not enough values to unpack (expected 1, got 0)"),
        ({"manifest__json": [{"Config": "a"}, {"Config": "b"}]}, "too many values to unpack (expected 1)"),
        ({"manifest__json": [{}]}, "'Config'"),
    ],
    ids=["no manifest", "broken manifest", "no image", "two images", "no configuration"],
)
def test_what_is_no_archive_of_one_image(tmp_path, files, why):
    path = archive(tmp_path / "image.tar", **files)
    with pytest.raises(AnsibleActionFail) as error:
        archive_image_id(path)
    assert str(error.value) == (
        f"controller: {path} is no archive of one image ({why}); limit: what `docker save` writes; remedy: correct"
        " engine_image_archive"
    )


@pytest.mark.parametrize("content", [None, b"", b"plain text"])
def test_what_is_no_archive_at_all(tmp_path, content):
    path = tmp_path / "image.tar"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AnsibleActionFail) as error:
        archive_image_id(path)
    assert str(error.value).startswith(f"controller: {path} is no archive of one image (")
    assert "\n" not in str(error.value)
