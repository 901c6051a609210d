#!/usr/bin/python
"""A repository of Hugging Face at one revision, in a directory that is whole or has another name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_fetch
short_description: Fetch one revision of a repository from Hugging Face, resumably
description:
  - Fetches with the command C(hf) into C(<path>.partial), and renames that to C(path) as the last step. So a directory
    that has its name is whole, and a run that died is taken up where it ended.
  - Lists the files first, compares what is still to come with what the disk has left, and refuses with both numbers.
  - Compares the size of every file with the list afterwards, because C(hf) also ends well when it cannot reach the hub.
  - Keeps repository, revision, and size and published SHA-256 of every file in C(.sparkwright.json) in the directory.
    While that agrees, the hub is not asked.
  - A directory that lost files is completed. One of another revision, or that says nothing of itself, is refused.
options:
  repo:
    description: Repository, such as C(owner/name).
    type: str
    required: true
  revision:
    description: The commit, 40 hexadecimal digits.
    type: str
    required: true
  path:
    description: Directory on the node.
    type: path
    required: true
  include:
    description: Patterns of the files that are wanted, all when empty.
    type: list
    elements: str
    default: []
  hf:
    description: The command C(hf).
    type: path
    required: true
  endpoint:
    description: Address of the hub.
    type: str
    default: https://huggingface.co
  home:
    description: Directory that C(hf) may use for itself.
    type: path
    default: /var/cache/sparkwright/huggingface
  token:
    description: Token for repositories that are not public, given to C(hf) in its environment.
    type: str
    default: ""
attributes:
  check_mode:
    description: Says in check mode whether anything is to be fetched, without asking the hub.
    support: full
author: [Sparkwright (@sparkwright)]
"""

EXAMPLES = r"""
- name: Fetch a checkpoint
  sparkwright.cluster.checkpoint_fetch:
    repo: owner/name
    revision: 0123456789abcdef0123456789abcdef01234567
    path: /var/lib/sparkwright/models/name
    hf: /usr/local/lib/sparkwright/hf-2.4.0/bin/hf
  async: 86400
  poll: 15
"""

RETURN = r"""
fetched:
  description: Bytes that this call had to fetch.
  returned: success
  type: int
due:
  description: Whether anything was to be fetched.
  returned: success
  type: bool
lacking:
  description: Files that a directory of that name lacks or has in another size.
  returned: success
  type: list
  elements: str
"""

import os
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.sparkwright.cluster.plugins.module_utils.hub import (
    UNFINISHED,
    bytes_needed,
    download_argv,
    environment,
    list_argv,
    parse_listing,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.origin import (
    ORIGIN_NAME,
    dump_origin,
    parse_origin,
    source_name,
    unlike,
    wrong_sources,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.recorded import write_atomically
from ansible_collections.sparkwright.cluster.plugins.module_utils.staging import Staging


class Fetch:
    """One repository at one revision, and its directory."""

    def __init__(self, module: AnsibleModule) -> None:
        """Nothing is read yet."""
        asked = module.params
        self.module = module
        self.staging = Staging(asked["path"])
        self.source = source_name(asked["repo"], asked["revision"])
        self.environment = environment(asked["endpoint"], asked["home"], asked["token"])

    def look(self) -> list[str] | None:
        """The files that the directory lacks; None when there is no directory. Fails when it is another one."""
        for folder in (self.staging.path, self.staging.partial):
            self.refuse_other(folder)
        if not self.staging.done:
            return None
        origin = parse_origin(text(self.staging.path / ORIGIN_NAME))
        fewer = origin["include"] != self.module.params["include"]
        return unlike(origin["files"], sizes(self.staging.path)) or ([ORIGIN_NAME] if fewer else [])

    def refuse_other(self, folder: Path) -> None:
        """Fail when the directory is not of the pinned revision; an unfinished one may say nothing yet."""
        if not folder.is_dir():
            return
        found = parse_origin(text(folder / ORIGIN_NAME))["sources"]
        wrong = wrong_sources(found, [self.source])
        if wrong and (found or folder == self.staging.path):
            adopt = "" if found else f", or name it {self.staging.partial} to have it compared and completed"
            self.fail(f"{folder}: {wrong}; limit: {self.source}; remedy: move it away{adopt}, or pin what it is")

    def run(self) -> int:
        """Bring what is lacking; the bytes that had to come."""
        asked = self.module.params
        try:
            files = parse_listing(self.hf(list_argv(asked["hf"], asked["repo"], asked["revision"])), asked["include"])
        except ValueError as error:
            self.fail(f"{self.source} cannot be listed: {error}; limit: a list of files; remedy: run it again")
        if not files:
            self.fail(f"{self.source} has no file that {asked['include']} names; limit: 1 or more; remedy: correct it")
        if self.staging.done:
            self.staging.reopen()
        self.staging.begin()
        need = self.refuse_full(files)
        folder = self.staging.partial
        write_atomically(folder / ORIGIN_NAME, dump_origin([self.source], files, asked["include"]).encode(), 0o644)
        self.hf(download_argv(asked["hf"], asked["repo"], asked["revision"], str(folder), asked["include"]))
        wrong = unlike(files, sizes(folder))
        if wrong:
            self.fail(
                f"{folder}: {len(wrong)} files are missing or of another size, {wrong[0]} the first; limit: all "
                f"{len(files)} of {self.source}; remedy: run it again, it goes on where it ended"
            )
        self.staging.publish()
        return need

    def refuse_full(self, files: Any) -> int:
        """Fail when the disk has no room for what is still to come; else how much that is."""
        folder = self.staging.partial
        need = bytes_needed(files, sizes(folder), sizes(folder / UNFINISHED))
        free = shutil.disk_usage(folder).free
        if need > free:
            self.fail(
                f"{folder}: {need} bytes of {self.source} are to come; limit: {free} bytes, which are free; remedy: "
                "free that much, or set model_store_path"
            )
        return need

    def hf(self, argv: list[str]) -> str:
        """What `hf` prints. Fails with its last line."""
        Path(self.module.params["home"]).mkdir(parents=True, exist_ok=True)
        code, out, err = self.module.run_command(argv, environ_update=self.environment)
        if code:
            lines = [line.strip() for line in f"{out}\n{err}".splitlines() if line.strip()]
            self.fail(
                f"hf {argv[1]} of {self.source} ended with {code}: {lines[-1] if lines else 'no word'}; limit: 0; "
                "remedy: check the way to the hub, and model_store_hf_token; a run goes on where the last one ended"
            )
        return str(out)

    def fail(self, msg: str) -> None:
        """End the module; Ansible names the host."""
        self.module.fail_json(msg=msg)


def sizes(folder: Path) -> dict[str, int]:
    """{file: bytes} of a directory, with the folders in it."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def text(path: Path) -> str:
    """A text file; an empty text when there is none."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> None:
    """Look, fetch, return."""
    module = AnsibleModule(
        argument_spec={
            "repo": {"type": "str", "required": True},
            "revision": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "include": {"type": "list", "elements": "str", "default": []},
            "hf": {"type": "path", "required": True},
            "endpoint": {"type": "str", "default": "https://huggingface.co"},
            "home": {"type": "path", "default": "/var/cache/sparkwright/huggingface"},
            "token": {"type": "str", "default": "", "no_log": True},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    fetch = Fetch(module)
    lacking = fetch.look()
    if module.check_mode or lacking == []:
        module.exit_json(changed=lacking != [], due=lacking != [], fetched=0, lacking=lacking or [])
    with fetch.staging.held():
        # Another run may have fetched it while this one waited.
        lacking = fetch.look()
        fetched = fetch.run() if lacking != [] else 0
    module.exit_json(changed=lacking != [], due=lacking != [], fetched=fetched, lacking=lacking or [])


if __name__ == "__main__":
    main()
