"""What is due on a host: a table of what differs, and what is done about it."""

from __future__ import annotations

import pytest
from builders import engine_container
from tuned import POLICIES, SWAP, SWAP_UNIT, SWAPPINESS, fresh, ssh, swap, tuned, wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.meminfo import GIB
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning import (
    EARLYOOM_FILE,
    FILES,
    GRUB_FILE,
    JOURNAL_FILE,
    LIMITS_FILE,
    MIB,
    SLICE_FILE,
    SSH_FILE,
    SWAP_FILE,
    SWAP_UNIT_FILE,
    SYSCTL_FILE,
    THP,
    TMPFILES_FILE,
    earlyoom_argv,
    swap_unit_text,
    wanted_files,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.tuning_plan import make_tuning_plan

KHO = ("kho=off",)
RELOAD = "systemctl daemon-reload"
EARLY = {"installed": True, "argv": ["/usr/bin/earlyoom", "-r", "3600"]}
OUR_SWAP = {"path": SWAP_FILE, "priority": -2, "here": True, "used": 0}


def plan(wanted, tuning, serving=False, available_gib=100):
    runtime = {"containers": [engine_container("spark1")] if serving else []}
    memory = {"MemAvailable": available_gib * 1024 * 1024, "MemTotal": 127_000_000}
    return make_tuning_plan(wanted, {"tuning": tuning, "runtime": runtime, "memory": memory})


def commands(found):
    """The steps as they would be typed."""
    return [" ".join(step.argv) or f"{step.value} > {step.path}" for step in found.steps]


def without(path, wanted=None, **changes):
    """A tuned host that lacks one file."""
    facts = tuned(wanted, **changes)
    return facts | {"files": facts["files"] | {path: None}}


def sized(gib, **changes):
    """A host with our own swap file."""
    wanted = wish(swap="size", swap_gib=16)
    own = OUR_SWAP | {"size": gib * 1024 * 1024 - 4}
    return tuned(wanted, swaps=[own], swap_units={"var-lib-sparkwright-swap.swap": "enabled"}, **changes)


def test_a_tuned_host_needs_nothing():
    for wanted in (wish(), wish(kernel_arguments=("quiet",))):
        for serving in (False, True):
            found = plan(wanted, tuned(wanted), serving)
            assert (found.files, found.steps, found.record, found.refused) == ({}, (), {}, ())


def test_a_fresh_host():
    found = plan(wish(), fresh())
    assert list(found.files) == [SYSCTL_FILE, TMPFILES_FILE, LIMITS_FILE, JOURNAL_FILE, SSH_FILE, SLICE_FILE]
    assert commands(found) == [
        RELOAD,
        f"1 > {SWAPPINESS}",
        "0 > /proc/sys/vm/watermark_boost_factor",
        f"madvise > {THP}",
        *(f"performance > {path}" for path in POLICIES),
        "systemctl restart systemd-journald.service",
        "journalctl --rotate --vacuum-size=256M",
    ]
    assert found.record == {
        "sysctl": {"vm/swappiness": {"value": "60"}, "vm/watermark_boost_factor": {"value": "15000"}},
        "sysfs": {THP: {"value": "always"}, **{path: {"value": "schedutil"} for path in POLICIES}},
        "journal": {"systemd-journald.service": {}},
    }


@pytest.mark.parametrize(
    ("wanted", "tuning", "files", "steps", "sections"),
    [
        (wish(), without(LIMITS_FILE), [LIMITS_FILE], [], []),
        (
            wish(),
            tuned(values={SWAPPINESS: {"value": "60", "writable": True}}),
            [],
            [f"1 > {SWAPPINESS}"],
            ["sysctl"],
        ),
        (wish(), tuned(values={SWAPPINESS: {"value": "60", "writable": False}}), [], [], []),
        (wish(), tuned(journal={"bytes": 300 * MIB, "stale": False}), [], [], []),
        (
            wish(),
            tuned(journal={"bytes": 100 * MIB, "stale": True}),
            [],
            ["systemctl restart systemd-journald.service"],
            [],
        ),
        (wish(), tuned(ssh=ssh(slice_memory_min=0)), [], [RELOAD], []),
        (wish(), without(SSH_FILE), [SSH_FILE], [RELOAD], []),
        (
            wish(),
            tuned(earlyoom=EARLY),
            [],
            [RELOAD, "systemctl try-restart earlyoom.service"],
            ["earlyoom"],
        ),
        (
            wish(),
            without(EARLYOOM_FILE, earlyoom={"installed": True, "argv": []}),
            [EARLYOOM_FILE],
            [RELOAD, "systemctl try-restart earlyoom.service"],
            ["earlyoom"],
        ),
        (wish(), tuned(earlyoom={"installed": True, "argv": earlyoom_argv(3 * GIB)}), [], [], []),
        (
            wish(kernel_arguments=KHO),
            without(GRUB_FILE, wish(kernel_arguments=KHO)),
            [GRUB_FILE],
            ["update-grub"],
            ["grub"],
        ),
        (wish(kernel_arguments=KHO), tuned(wish(kernel_arguments=KHO)), [], ["update-grub"], ["grub"]),
        (wish(kernel_arguments=KHO), tuned(wish(kernel_arguments=KHO), boot_arguments=[*KHO]), [], [], []),
        (wish(kernel_arguments=KHO), tuned(grub=False), [], [], []),
        (wish(), tuned(wish(kernel_arguments=KHO)), [GRUB_FILE], ["update-grub"], ["grub"]),
        (
            wish(),
            tuned(swaps=[swap(used=200_000)]),
            [],
            [f'sh -c swapoff "$0" && exec swapon "$0" {SWAP}'],
            [],
        ),
        (
            wish(),
            tuned(swaps=[swap(used=200_000, priority=5)]),
            [],
            [f'sh -c swapoff "$0" && exec swapon --priority 5 "$0" {SWAP}'],
            [],
        ),
        (wish(), tuned(swaps=[swap(used=60_000)]), [], [], []),
        (wish(), tuned(swaps=[swap(used=200_000, here=False)]), [], [], []),
        (
            wish(swap="off"),
            tuned(),
            [],
            [f"swapoff {SWAP}", f"systemctl mask {SWAP_UNIT}"],
            ["swap", "swap_units"],
        ),
        (wish(swap="off"), tuned(swaps=[]), [], [f"systemctl mask {SWAP_UNIT}"], ["swap_units"]),
        (wish(swap="off"), tuned(swaps=[], swap_units={}), [], [], []),
        (wish(swap="off"), tuned(container=True), [], [], []),
        (
            wish(swap="size", swap_gib=16),
            tuned(),
            [SWAP_UNIT_FILE],
            [
                RELOAD,
                f"swapoff {SWAP}",
                f"systemctl mask {SWAP_UNIT}",
                f"fallocate --length 16GiB {SWAP_FILE}",
                f"chmod 600 {SWAP_FILE}",
                f"mkswap {SWAP_FILE}",
                "systemctl enable --now var-lib-sparkwright-swap.swap",
            ],
            ["swap", "swap_file", "swap_units"],
        ),
        (wish(swap="size", swap_gib=16), sized(16), [], [], []),
        (
            wish(swap="size", swap_gib=16),
            sized(8),
            [],
            [
                f"swapoff {SWAP_FILE}",
                f"fallocate --length 16GiB {SWAP_FILE}",
                f"chmod 600 {SWAP_FILE}",
                f"mkswap {SWAP_FILE}",
                "systemctl enable --now var-lib-sparkwright-swap.swap",
            ],
            ["swap_file"],
        ),
    ],
    ids=[
        "no limits",
        "a value that was changed",
        "a value that a container cannot set",
        "a journal a little beyond its cap",
        "journald that has not read its cap",
        "a slice without protection",
        "no drop-in for ssh",
        "earlyoom with its own lines",
        "earlyoom off",
        "earlyoom as wanted",
        "no kernel arguments",
        "a menu without the arguments",
        "a menu with the arguments",
        "a machine without grub",
        "arguments that are wanted no more",
        "swap in use",
        "swap in use with a priority",
        "a few pages in swap",
        "swap of the machine around",
        "off",
        "off but for the next boot",
        "off already",
        "off in a container",
        "size",
        "size already",
        "another size",
    ],
)
def test_what_is_due(wanted, tuning, files, steps, sections):
    found = plan(wanted, tuning)
    assert (list(found.files), commands(found), sorted(found.record)) == (files, steps, sections)
    assert found.refused == ()


def test_a_file_of_ours_that_is_not_wanted_any_more_goes():
    assert plan(wish(memlock=""), tuned()).files == {LIMITS_FILE: None}


def test_the_state_of_a_swap_is_recorded():
    assert plan(wish(swap="off"), tuned()).record == {
        "swap": {SWAP: {"priority": -2}},
        "swap_units": {SWAP_UNIT: {"state": "generated"}},
    }


@pytest.mark.parametrize(("available", "refused"), [(5, False), (4, True), (1, True)])
@pytest.mark.parametrize("policy", ["keep", "off"])
def test_swap_is_drained_only_into_memory_that_is_there(policy, available, refused):
    """2 GiB are in swap, and 2 GiB must be left."""
    found = plan(wish(swap=policy), tuned(swaps=[swap(used=2 * 1024 * 1024)]), available_gib=available)
    assert bool(found.refused) is refused


def test_a_refusal_has_the_numbers():
    found = plan(wish(), tuned(swaps=[swap(used=3 * 1024 * 1024)]), available_gib=4)
    assert found.refused == (
        (
            "MemAvailable is 4.00 GiB and 3.00 GiB are in swap",
            "MemAvailable above 5.00 GiB (that and a margin of 2.00)",
            "end what takes memory until 1.00 GiB more are free, or reboot the node",
        ),
    )


def test_swap_that_nothing_uses_may_go_on_a_full_node():
    assert plan(wish(swap="off"), tuned(), available_gib=1).refused == ()


@pytest.mark.parametrize(
    ("wanted", "tuning", "fact"),
    [
        (wish(), without(SSH_FILE), "the memory protection of ssh would be set"),
        (wish(), tuned(earlyoom=EARLY), "earlyoom would be restarted"),
        (wish(swap="off"), tuned(), "swap would be turned off"),
        (wish(swap="size", swap_gib=16), tuned(), "swap would become 16 GiB"),
    ],
)
def test_while_the_engine_serves_nothing_is_restarted(wanted, tuning, fact):
    found = plan(wanted, tuning, serving=True)
    assert found.refused == (
        (fact, "no restart and no reload while the engine serves", "run playbooks/stop.yml first"),
    )
    assert (found.files, found.steps) == ({}, ())


def test_while_the_engine_serves_what_is_harmless_is_done():
    """The cap of the journal is written and read later; swap is left alone."""
    changed = tuned(
        values={SWAPPINESS: {"value": "60", "writable": True}},
        swaps=[swap(used=10 * 1024 * 1024)],
        journal={"bytes": 4 * GIB, "stale": False},
    )
    changed["files"] |= {JOURNAL_FILE: None, LIMITS_FILE: None}
    found = plan(wish(), changed, serving=True, available_gib=1)
    assert list(found.files) == [LIMITS_FILE, JOURNAL_FILE]
    assert commands(found) == [f"1 > {SWAPPINESS}", "journalctl --rotate --vacuum-size=256M"]
    assert found.refused == ()


def test_every_file_belongs_to_a_part():
    """A file that no part claims would be wanted for ever and written never."""
    everything = wish(swap="size", swap_gib=16, kernel_arguments=KHO)
    facts = fresh() | {"earlyoom": EARLY}
    assert set(plan(everything, facts).files) == set(FILES) == set(wanted_files(everything, facts))
    assert plan(everything, facts).files[SWAP_UNIT_FILE] == swap_unit_text()
