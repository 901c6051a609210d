"""Values checked against Ansible argument specifications, strictly.

Ansible itself converts while it validates: "8000" passes for a number, "maybe" is only found when a role runs.
Here a value must already have its type, and what is wrong is said in words for the person who wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

# What is wrong, and how to put it right.
Finding = tuple[str, str]

# One option as in meta/argument_specs.yml.
Spec = Mapping[str, object]

# A value in a message is cut here (characters), so that one mistake stays one readable line.
SHOWN = 200

# difflib's ratio from which two names count as similar: its own 0.6 is reached by a common role prefix alone.
SIMILAR = 0.8


def is_int(value: object) -> bool:
    """Whether a value is a whole number; true and false are ints to Python, not to us."""
    return isinstance(value, int) and not isinstance(value, bool)


TYPES: dict[str, tuple[str, Callable[[object], bool]]] = {
    "str": ("text", lambda value: isinstance(value, str)),
    "path": ("a path", lambda value: isinstance(value, str)),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": ("a whole number", is_int),
    "float": ("a number", lambda value: is_int(value) or isinstance(value, float)),
    "list": ("a list", lambda value: isinstance(value, list)),
    "dict": ("a mapping", lambda value: isinstance(value, dict)),
}

KINDS = {
    bool: "the boolean",
    str: "the string",
    int: "the number",
    float: "the number",
    list: "the list",
    dict: "the mapping",
}


def option_findings(label: str, value: object, spec: Spec) -> Iterator[Finding]:
    """What is wrong with the value of one option. None means that it is not set, as it does to Ansible."""
    if value is not None:
        yield from _value_findings(label, value, spec)
    elif spec.get("required"):
        yield f"{label} is not set", f"set {label}"


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The closest known name as the end of a sentence; empty when none is close."""
    close = get_close_matches(name, known, n=1, cutoff=SIMILAR)
    return f" (did you mean {close[0]}?)" if close else ""


def shown(value: object) -> str:
    """A value as it may stand in a message: JSON, one line, not too long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _value_findings(label: str, value: object, spec: Spec) -> Iterator[Finding]:
    wanted = str(spec.get("type", "str"))
    # A type that is not listed (raw, json, bytes and the like) has no single shape in YAML and is let through.
    if wanted in TYPES and not TYPES[wanted][1](value):
        yield _type_finding(label, value, wanted, secret=bool(spec.get("no_log")))
        return
    yield from _choice_findings(label, value, spec)
    yield from _element_findings(label, value, spec)
    yield from _suboption_findings(label, value, spec)


def _type_finding(label: str, value: object, wanted: str, secret: bool) -> Finding:
    words = TYPES[wanted][0]
    kind = KINDS.get(type(value), f"the {type(value).__name__}")
    what = f"{label} is {kind}{'' if secret else ' ' + shown(value)} where {words} belongs"
    if isinstance(value, str) and wanted in ("int", "float", "bool"):
        return what, f"write {words} without quotes (after -e as JSON)"
    if wanted in ("str", "path"):
        return what, "put it in quotes"
    return what, f"write {words}"


def _choice_findings(label: str, value: object, spec: Spec) -> Iterator[Finding]:
    choices = spec.get("choices")
    if not isinstance(choices, Sequence):
        return
    names = [str(choice) for choice in choices]
    for item in value if isinstance(value, list) else [value]:
        if item not in choices:
            yield f"{label} is {shown(item)}{did_you_mean(str(item), names)}", f"choose one of {', '.join(names)}"


def _element_findings(label: str, value: object, spec: Spec) -> Iterator[Finding]:
    if not isinstance(value, list):
        return
    element = {"type": spec.get("elements", "raw"), "options": spec.get("options"), "no_log": spec.get("no_log")}
    for index, item in enumerate(value):
        yield from _value_findings(f"{label}[{index}]", item, element)


def _suboption_findings(label: str, value: object, spec: Spec) -> Iterator[Finding]:
    options = spec.get("options")
    if not isinstance(value, dict) or not isinstance(options, Mapping):
        return
    for name in value:
        if name not in options:
            known = ", ".join(options)
            yield f"{label}.{name} is not known{did_you_mean(str(name), list(options))}", f"choose from {known}"
    for name, suboption in options.items():
        yield from option_findings(f"{label}.{name}", value.get(name), suboption)
