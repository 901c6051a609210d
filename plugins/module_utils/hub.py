"""Fetching from Hugging Face with its own command `hf`: the command lines, what is wanted, and the disk that it takes.

`hf download` also ends well when the hub cannot be reached and its directory holds something already, so its exit code
proves nothing: the files are listed before, and their sizes compared afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from .facts import Published

REVISION = re.compile(r"[0-9a-f]{40}")
# Where `hf` keeps what it has of a file so far, below the directory: <hash>.<etag>.incomplete, and the etag of a large
# file is its SHA-256.
UNFINISHED = ".cache/huggingface/download"
SUFFIX = ".incomplete"


def list_argv(hf: str, repo: str, revision: str) -> list[str]:
    """Lists every file of a repository with its exact size, as JSON."""
    return [hf, "models", "ls", repo, "--revision", revision, "--recursive", "--json"]


def download_argv(hf: str, repo: str, revision: str, folder: str, include: Sequence[str]) -> list[str]:
    """Downloads into a plain directory, and takes up again what is unfinished there."""
    patterns = [word for pattern in include for word in ("--include", pattern)]
    return [hf, "download", repo, "--revision", revision, "--local-dir", folder, *patterns, "--quiet"]


def environment(endpoint: str, home: str, token: str) -> dict[str, str]:
    """The environment of both. The token is nowhere else: command lines can be seen by every user of the node."""
    quiet = ("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_UPDATE_CHECK", "HF_HUB_DISABLE_PROGRESS_BARS")
    return {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": home,
        # Xet's cache of chunks would be a second copy of some gigabytes, of use to nobody.
        "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",
        # An offline mode of the account's own would make `hf` take what is there for the whole.
        "HF_HUB_OFFLINE": "0",
        **dict.fromkeys(quiet, "1"),
        **({"HF_TOKEN": token} if token else {}),
    }


def parse_listing(text: str, include: Sequence[str]) -> dict[str, Published]:
    """The wanted files of a repository, from what `list_argv` printed. Raises ValueError for anything else.

    The patterns are read as `hf` reads them: `*` goes across folders, and a folder stands for all below it.
    """
    patterns = [f"{pattern}*" if pattern.endswith("/") else pattern for pattern in include]
    try:
        rows = [row for row in json.loads(text) if "size" in row or "path" not in row]
        files = {str(row["path"]): _published(row) for row in rows}
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no listing of files: {error}") from None
    return {name: entry for name, entry in files.items() if not patterns or _matches(name, patterns)}


def _published(row: Mapping[str, object]) -> Published:
    lfs = row.get("lfs")
    sha256 = str(lfs["sha256"]) if isinstance(lfs, Mapping) else None
    return {"size": int(str(row["size"])), "sha256": sha256}


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def bytes_needed(files: Mapping[str, Published], sizes: Mapping[str, int], unfinished: Mapping[str, int]) -> int:
    """Bytes that are still to be written; `unfinished` are the sizes of what `hf` has of files so far, by name.

    A file of another size is replaced once the new one is whole, so it frees nothing before.
    """
    lacking = [entry for name, entry in files.items() if sizes.get(name) != entry["size"]]
    begun = {name.removesuffix(SUFFIX).rpartition(".")[2]: size for name, size in unfinished.items()}
    return sum(max(entry["size"] - begun.get(entry["sha256"] or "", 0), 0) for entry in lacking)
