#!/usr/bin/env python3
"""A docker that keeps images and containers in a JSON file and answers the few commands that the modules give it.

As a program: the state is the file of the environment variable FAKE_DOCKER. As a library: `FakeDocker(folder)`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

EMPTY = {"images": {}, "containers": {}, "remote": {}, "calls": [], "fails": {}, "prints": {}}


class FakeDocker:
    """The state, for a test; `image` and `container` put something there."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "docker.json"
        self.file.write_text(json.dumps(EMPTY))
        program = folder / "bin" / "docker"
        program.parent.mkdir()
        program.write_text(Path(__file__).read_text())
        program.chmod(0o755)
        self.environment = {
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
            "FAKE_DOCKER": str(self.file),
        }

    def read(self):
        return json.loads(self.file.read_text())

    def put(self, **changes):
        state = self.read()
        for section, entries in changes.items():
            state[section].update(entries)
        self.file.write_text(json.dumps(state))

    def image(self, image_id, *tags, created="2026-01-01T00:00:00Z", **labels):
        self.put(images={image_id: image(image_id, tags, created, labels)})

    def container(self, name, image_id):
        self.put(containers={name: {"Id": name, "Name": f"/{name}", "Image": image_id}})

    @property
    def calls(self):
        """The commands that change something or move layers."""
        looks = ("image inspect", "image ls", "container inspect", "ps", "info")
        return [call for call in self.read()["calls"] if not call.startswith(looks)]


def image(image_id, tags, created="2026-01-01T00:00:00Z", labels=None):
    return {
        "Id": image_id,
        "RepoTags": list(tags),
        "RepoDigests": [],
        "Created": created,
        "Architecture": "amd64",
        "Config": {"Labels": labels or None},
    }


def find(state, name):
    return next((row for row in state["images"].values() if name == row["Id"] or name in names(row)), None)


def names(row):
    return [*row["RepoTags"], *row["RepoDigests"]]


def inspect(rows, asked):
    found = [row for name in asked for row in rows(name)]
    print(json.dumps(found))
    return 0 if len(found) == len(asked) else 1


def tag(state, source, name):
    for row in state["images"].values():
        row["RepoTags"] = [other for other in row["RepoTags"] if other != name]
    find(state, source)["RepoTags"].append(name)


def pull(state, name):
    if name not in state["remote"]:
        print(f"Error response from daemon: manifest for {name} not found", file=sys.stderr)
        return 1
    image_id = state["remote"][name]
    state["images"][image_id] = image(image_id, [])
    state["images"][image_id]["RepoDigests"].append(name)
    return 0


def run(state, words):
    line = " ".join(words)
    state["calls"].append(line)
    for beginning, said in state["fails"].items():
        if line.startswith(beginning):
            print(said, file=sys.stderr)
            return 1
    for beginning, said in state["prints"].items():
        if line.startswith(beginning):
            print(said)
            return 0
    return act(state, words)


def inspect_images(state, words):
    return inspect(lambda name: filter(None, [find(state, name)]), words[2:])


def inspect_containers(state, words):
    return inspect(lambda name: filter(None, [state["containers"].get(name)]), words[2:])


def build(state, words):
    label = words[words.index("--label") + 1].split("=")
    state["images"]["sha256:built"] = image("sha256:built", [], labels=dict([label]))
    tag(state, "sha256:built", words[words.index("--tag") + 1])
    state["context"] = {path.name: path.read_text() for path in Path(words[-1]).iterdir()}


# What the fake does, by how the command begins; anything else ends well and does nothing.
VERBS = {
    "image inspect": inspect_images,
    "container inspect": inspect_containers,
    "image ls": lambda state, words: print("\n".join(state["images"])),
    "image rm": lambda state, words: state["images"].pop(words[-1]) and None,
    "ps": lambda state, words: print("\n".join(state["containers"])),
    "tag": lambda state, words: tag(state, *words[1:]),
    "pull": lambda state, words: pull(state, words[-1]),
    "build": build,
}


def act(state, words):
    line = " ".join(words)
    work = next((work for beginning, work in VERBS.items() if line.startswith(beginning)), lambda *_: 0)
    return work(state, words) or 0


if __name__ == "__main__":
    place = Path(os.environ["FAKE_DOCKER"])
    known = json.loads(place.read_text())
    code = run(known, sys.argv[1:])
    place.write_text(json.dumps(known))
    sys.exit(code)
