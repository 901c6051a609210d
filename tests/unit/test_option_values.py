"""Values against argument specifications: what passes, and the line for what does not."""

from __future__ import annotations

import pytest

from ansible_collections.sparkwright.cluster.plugins.module_utils.option_values import (
    SHOWN,
    did_you_mean,
    option_findings,
    shown,
)

RAIL = {"name": {"type": "str", "required": True}, "mtu": {"type": "int"}}


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        ("text", {}),
        ("text", {"type": "str"}),
        ("/var/lib/models", {"type": "path"}),
        (True, {"type": "bool"}),
        (0, {"type": "int"}),
        (0, {"type": "float"}),
        (0.9, {"type": "float"}),
        ([], {"type": "list", "elements": "str"}),
        (["a"], {"type": "list", "elements": "str", "choices": ["a", "b"]}),
        ([1, "mixed"], {"type": "list"}),
        ({"any": 1}, {"type": "dict"}),
        ({"name": "rail0", "mtu": 9000}, {"type": "dict", "options": RAIL}),
        ([{"name": "rail0"}], {"type": "list", "elements": "dict", "options": RAIL}),
        (8, {"type": "int", "choices": [4, 8]}),
        (object(), {"type": "raw"}),
        (None, {"type": "int"}),
    ],
)
def test_a_right_value_is_not_complained_about(value, spec):
    assert list(option_findings("x", value, spec)) == []


@pytest.mark.parametrize(
    ("value", "spec", "what", "remedy"),
    [
        (
            "9000",
            {"type": "int"},
            'x is the string "9000" where a whole number belongs',
            "write a whole number without quotes (after -e as JSON)",
        ),
        (
            "0.9",
            {"type": "float"},
            'x is the string "0.9" where a number belongs',
            "write a number without quotes (after -e as JSON)",
        ),
        (
            "yes",
            {"type": "bool"},
            'x is the string "yes" where true or false belongs',
            "write true or false without quotes (after -e as JSON)",
        ),
        (True, {"type": "int"}, "x is the boolean true where a whole number belongs", "write a whole number"),
        (True, {"type": "float"}, "x is the boolean true where a number belongs", "write a number"),
        (1.5, {"type": "int"}, "x is the number 1.5 where a whole number belongs", "write a whole number"),
        (1, {"type": "bool"}, "x is the number 1 where true or false belongs", "write true or false"),
        (1.1, {"type": "str"}, "x is the number 1.1 where text belongs", "put it in quotes"),
        (1.1, {}, "x is the number 1.1 where text belongs", "put it in quotes"),
        (False, {"type": "path"}, "x is the boolean false where a path belongs", "put it in quotes"),
        ("a", {"type": "list"}, 'x is the string "a" where a list belongs', "write a list"),
        (["a"], {"type": "dict"}, 'x is the list ["a"] where a mapping belongs', "write a mapping"),
        ({"a": 1}, {"type": "list"}, 'x is the mapping {"a": 1} where a list belongs', "write a list"),
        (["a", 2], {"type": "list", "elements": "str"}, "x[1] is the number 2 where text belongs", "put it in quotes"),
        (None, {"type": "int", "required": True}, "x is not set", "set x"),
        (9, {"type": "int", "choices": [4, 8]}, "x is 9", "choose one of 4, 8"),
        ("rai", {"choices": ["ray", "mp"]}, 'x is "rai"', "choose one of ray, mp"),
        ("localx", {"choices": ["local", "nfs"]}, 'x is "localx" (did you mean local?)', "choose one of local, nfs"),
        (
            ["a", "c"],
            {"type": "list", "elements": "str", "choices": ["a", "b"]},
            'x is "c"',
            "choose one of a, b",
        ),
        ({}, {"type": "dict", "options": RAIL}, "x.name is not set", "set x.name"),
        (
            {"name": "rail0", "mtuu": 1},
            {"type": "dict", "options": RAIL},
            "x.mtuu is not known (did you mean mtu?)",
            "choose from name, mtu",
        ),
        (
            [{"name": "rail0", "mtu": "1"}],
            {"type": "list", "elements": "dict", "options": RAIL},
            'x[0].mtu is the string "1" where a whole number belongs',
            "write a whole number without quotes (after -e as JSON)",
        ),
        (1234, {"type": "str", "no_log": True}, "x is the number where text belongs", "put it in quotes"),
        (
            [1234],
            {"type": "list", "elements": "str", "no_log": True},
            "x[0] is the number where text belongs",
            "put it in quotes",
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_remedy(value, spec, what, remedy):
    assert list(option_findings("x", value, spec)) == [(what, remedy)]


def test_every_wrong_element_is_named():
    spec = {"type": "list", "elements": "int"}
    assert [what.split()[0] for what, _ in option_findings("x", ["1", 2, "3"], spec)] == ["x[0]", "x[2]"]


def test_a_long_value_is_cut():
    assert len(shown("x" * 1000)) == SHOWN + len("...")


def test_a_shared_prefix_alone_is_not_similar():
    assert did_you_mean("fabric_color", ["fabric_mtu", "fabric_rails"]) == ""
