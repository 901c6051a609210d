"""What changed since a node last served: the note, each kind of difference with what is thought of it, the checks."""

from __future__ import annotations

import json

import pytest
from builders import GONE, IMAGE, NETDEV0, OTHER_IMAGE_ID, cluster, drifting, intent, node_facts, software
from tuned import wish

from ansible_collections.sparkwright.cluster.plugins.module_utils.baseline import (
    differing,
    items_in,
    items_of,
    make_baseline,
)
from ansible_collections.sparkwright.cluster.plugins.module_utils.checks_updates import drifts_of, known_bad
from ansible_collections.sparkwright.cluster.plugins.module_utils.drift import Severity, drift_of, drift_table, uneven
from ansible_collections.sparkwright.cluster.plugins.module_utils.update_wish import KnownBad, UpdateWish

HARMLESS, OURS, DECIDE, REFUSE = Severity


def one_drift(before, after, planned=None):
    """The single item that differs between two sets of facts."""
    planned = planned or intent()
    (found,) = drift_of(items_of(before, planned), items_of(after, planned), planned)
    return found


def changed(*path_and_value):
    *path, last, value = path_and_value
    facts = node_facts()
    place = facts
    for key in path:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return facts


def test_a_node_is_the_same_as_itself_and_its_note_survives_json():
    items = items_of(node_facts(), intent())
    note = json.loads(json.dumps(make_baseline(items, {"profile": "x"}, "2026-01-01")))
    assert items_in(note) == items
    assert differing(items_in(note), items) == []
    assert len(json.dumps(note)) < 16_000


@pytest.mark.parametrize("note", [None, {}, {"schema": 2, "items": {}}, {"schema": 1, "items": []}])
def test_a_note_that_is_none(note):
    assert items_in(note) is None


@pytest.mark.parametrize("section", ["platform", "memory", "fabric", "runtime", "weights", "tuning", "software"])
def test_what_was_not_read_is_no_item(section):
    facts = node_facts()
    del facts[section]
    assert set(items_of(facts, intent())) < set(items_of(node_facts(), intent()))


@pytest.mark.parametrize(
    ("path", "name", "severity", "stops", "reboots"),
    [
        (("platform", "kernel", "7.0.0-1019-nvidia"), "kernel", HARMLESS, False, False),
        (("platform", "driver", "590.1"), "driver", HARMLESS, False, False),
        (("platform", "driver", None), "driver", DECIDE, False, False),
        (("platform", "dgx", {"DGX_OTA_VERSION": "7.5.0"}), "os OTA", HARMLESS, False, False),
        (("memory", "MemTotal", 125_508_000), "memory total", DECIDE, False, False),
        (("memory", "CmaTotal", 131_072), "memory CMA", HARMLESS, False, False),
        (("memory", "CmaFree", 9_800_000), "memory CMA", REFUSE, False, True),
        (("memory", "SwapTotal", 0), "memory swap", DECIDE, False, False),
        (("fabric", "netdevs", NETDEV0, "mtu", 1500), "link rail0", OURS, True, False),
        (("fabric", "netdevs", NETDEV0, "addresses", ["10.9.9.9/24"]), "link rail0", OURS, True, False),
        (
            ("fabric", "netplan", "/etc/netplan/90.yaml", [NETDEV0]),
            "netplan /etc/netplan/90.yaml",
            DECIDE,
            False,
            False,
        ),
        (
            ("fabric", "netplan", "/etc/netplan/90.yaml", ["wlP9s9"]),
            "netplan /etc/netplan/90.yaml",
            HARMLESS,
            False,
            False,
        ),
        (("fabric", "rdma", "rocep1s0f0", "firmware", "28.46"), "firmware rocep1s0f0", HARMLESS, False, False),
        (("runtime", "version", "29.0"), "runtime Docker", HARMLESS, False, False),
        (("runtime", "runtimes", ["runc"]), "runtime names", DECIDE, False, False),
        (("runtime", "images", {IMAGE: OTHER_IMAGE_ID}), "image", DECIDE, False, False),
        (("weights", "config_sha256", "other"), "weights", DECIDE, False, False),
        (("tuning", "kernel_arguments", ["ro", "quiet", "iommu=off"]), "kernel arguments", DECIDE, False, False),
        (("software", "system_firmware", "5.37"), "firmware system", HARMLESS, False, False),
        (("software", "masked", []), "unit cups.service", OURS, False, False),
        (
            ("software", "masked", ["cups.service", "user/pipewire.socket"]),
            "unit user/pipewire.socket",
            HARMLESS,
            False,
            False,
        ),
        (("software", "boot_target", "graphical.target"), "boot target", OURS, False, False),
        (("software", "toolkit", {"mode": "cdi", "digest": "x"}), "runtime toolkit", DECIDE, False, False),
        (
            ("software", "files", "/etc/sparkwright/nccl.env", None),
            "file /etc/sparkwright/nccl.env",
            OURS,
            False,
            False,
        ),
        (
            ("software", "files", "/etc/netplan/60-sparkwright.yaml", "x"),
            "file /etc/netplan/60-sparkwright.yaml",
            HARMLESS,
            False,
            False,
        ),
        (("software", "held", {"rdma-core": 0}), "hold rdma-core", HARMLESS, False, False),
        (("software", "others", {"count": 1512, "digest": "x"}), "packages other", HARMLESS, False, False),
        (("software", "packages", "avahi-daemon", "0.8"), "package avahi-daemon", OURS, False, False),
        (("software", "packages", "rdma-core", "51.0"), "package rdma-core", HARMLESS, False, False),
        (("software", "packages", "rdma-core", "49.0"), "package rdma-core", DECIDE, False, False),
        (("software", "packages", "rdma-core", GONE), "package rdma-core", DECIDE, False, False),
        (
            ("software", "packages", "linux-modules-nvidia-580-open-6.17.0-1008-nvidia", GONE),
            "package linux-modules-nvidia-580-open-6.17.0-1008-nvidia",
            HARMLESS,
            False,
            False,
        ),
    ],
)
def test_one_thing_changed(path, name, severity, stops, reboots):
    found = one_drift(node_facts(), changed(*path))
    assert (found.name, found.severity, found.stops, found.reboots) == (name, severity, stops, reboots)
    assert found.remedy or severity is HARMLESS


def test_a_file_of_ours_that_systemd_reads_is_put_back_while_nothing_serves():
    path = "/etc/systemd/system/ssh.service.d/60-sparkwright.conf"
    found = one_drift(changed("software", "files", path, "a"), changed("software", "files", path, "b"))
    assert (found.severity, found.stops) == (OURS, True)


@pytest.mark.parametrize("kb", [127_590_001, 127_580_000, 127_600_000])
def test_memory_moves_a_little_from_boot_to_boot(kb):
    planned = intent()
    was, now = (items_of(facts, planned) for facts in (node_facts(), changed("memory", "MemTotal", kb)))
    assert drift_of(was, now, planned) == []


def test_a_kernel_argument_of_ours_that_is_missing_takes_a_boot():
    planned = intent(tuning=wish(kernel_arguments=("kho=off",)))
    with_it = changed("tuning", "kernel_arguments", ["BOOT_IMAGE=/vmlinuz-1", "ro", "kho=off"])
    found = one_drift(with_it, changed("tuning", "kernel_arguments", ["BOOT_IMAGE=/vmlinuz-2", "ro"]), planned)
    assert (found.severity, found.stops, found.reboots) == (OURS, True, True)
    back = one_drift(changed("tuning", "kernel_arguments", ["ro"]), with_it, planned)
    assert back.severity is HARMLESS


def test_the_name_of_the_kernel_is_no_argument():
    planned = intent()
    one, other = (changed("tuning", "kernel_arguments", [f"BOOT_IMAGE=/vmlinuz-{n}", "ro"]) for n in (1, 2))
    assert drift_of(items_of(one, planned), items_of(other, planned), planned) == []


def test_kho_that_is_switched_off_already_waits_for_its_boot():
    planned = intent(tuning=wish(kernel_arguments=("kho=off",)))
    trapped = changed("memory", "CmaFree", 9_800_000)
    found = one_drift(node_facts(), trapped, planned)
    assert (found.severity, found.reboots) == (OURS, True)


def test_what_this_release_does_not_know_must_be_decided():
    planned = intent()
    items = items_of(node_facts(), planned)
    (found,) = drift_of({**items, "moon phase": "full"}, items, planned)
    assert (found.severity, str(found)) == (DECIDE, "moon phase is gone, it was full")


@pytest.mark.parametrize("pattern", ["memory total", "memory *"])
def test_what_is_accepted_is_harmless(pattern):
    planned = intent(updates=UpdateWish(accept=(pattern,)))
    found = one_drift(node_facts(), changed("memory", "MemTotal", 125_508_000), planned)
    assert (found.severity, found.remedy) == (HARMLESS, "accepted by os_update_accept")


@pytest.mark.parametrize(("hold", "severity"), [(("rdma-core",), OURS), ((), DECIDE)])
def test_a_hold_that_is_gone(hold, severity):
    planned = intent(updates=UpdateWish(hold=hold))
    before = node_facts() | {"software": software(held={"rdma-core": 0})}
    assert one_drift(before, node_facts(), planned).severity is severity


def test_the_table_of_a_node_begins_with_the_worst():
    found = cluster(
        facts={
            ("spark2", "platform", "kernel"): "6.17.0-1019-nvidia",
            ("spark2", "memory", "MemTotal"): 125_508_000,
            ("spark2", "software", "masked"): [],
        }
    )
    assert drift_table(drifts_of(found)).splitlines() == [
        "spark1: as when it last served",
        "",
        "spark2: 3 changed since it last served",
        "  what               was                 is",
        "  memory total       127590000 kB        125508000 kB        decide",
        "  unit cups.service  masked              none                put back",
        "  kernel             6.17.0-1008-nvidia  6.17.0-1019-nvidia  harmless",
        "",
        "spark3: as when it last served",
        "",
        "spark4: as when it last served",
    ]


def test_what_one_node_has_otherwise_than_the_others():
    nodes = {f"spark{n}": {"kernel": "6.17", "package rdma-core": "50"} for n in range(1, 5)}
    nodes["spark3"] = {"kernel": "7.0", "package docker-ce": "28"}
    found = uneven(nodes)
    assert {host: [drift.name for drift in drifts] for host, drifts in found.items()} == {
        "spark1": [],
        "spark2": [],
        "spark3": ["kernel", "package docker-ce", "package rdma-core"],
        "spark4": [],
    }


def test_what_an_older_kernel_left_behind_on_some_nodes_does_not_matter():
    nodes = {f"spark{n}": {"kernel": "6.17.0-1008-nvidia"} for n in range(1, 5)}
    nodes["spark3"] |= {"package linux-image-6.11.0-1-nvidia": "1", "package linux-headers-6.11.0-1-nvidia": "1"}
    assert not any(uneven(nodes).values())


# --- the checks -----------------------------------------------------------------------------------------------------

KHO = KnownBad(
    "kho", "kernel", "memory is gone", "boot 6.17", "me", {"from": "7.0.0-1019", "to": "7.0.0-1019"}, "kho=off"
)
TOOLKIT = KnownBad("cdi", "nvidia-container-*", "no libcuda", "set the mode", "me", {"from": "1.18"}, refuse=False)
KNOWN = {"*": {"updates": UpdateWish(known_bad=(KHO, TOOLKIT))}}
EVERYWHERE = [f"spark{n}" for n in range(1, 5)]


def everywhere(*path, value):
    return {(host, *path): value for host in EVERYWHERE}


@pytest.mark.parametrize(
    ("facts", "intents", "line"),
    [
        (
            {("spark2", "software", "masked"): []},
            {},
            "warn drift.ours spark2: unit cups.service is gone, it was masked since it last served;"
            " remedy: run playbooks/reprovision.yml",
        ),
        (
            {("spark2", "memory", "MemTotal"): 125_508_000},
            {},
            "refuse drift.decide spark2: memory total is 125508000 kB, it was 127590000 kB since it last served;"
            " remedy: set the memory option of the firmware as before, or accept it",
        ),
        (
            {("spark2", "memory", "CmaFree"): 9_800_000},
            {},
            "refuse drift.refuse spark2: memory CMA is 65536 kB, more free than there is, it was 65536 kB since it last"
            " served; remedy: set host_tuning_kernel_arguments: [kho=off] and reboot, or boot the kernel of before",
        ),
        (
            {("spark2", "platform", "kernel"): "6.17.0-1019-nvidia"},
            {},
            "refuse drift.nodes spark2: kernel is 6.17.0-1019-nvidia, on the others 6.17.0-1008-nvidia; limit: the same"
            " on all nodes; remedy: run playbooks/update.yml, which brings all nodes to one state, or accept it by"
            " os_update_accept",
        ),
        (
            everywhere("platform", "kernel", value="7.0.0-1019-nvidia"),
            KNOWN,
            "refuse drift.known-bad spark2: kernel 7.0.0-1019-nvidia is known to be bad: memory is gone; limit: none of"
            " the versions in docs/updates.md; remedy: boot 6.17",
        ),
        (
            everywhere("software", "packages", "nvidia-container-toolkit", value="1.18.1-1"),
            KNOWN,
            "warn drift.known-bad spark2: nvidia-container-toolkit 1.18.1-1 is known to be bad: no libcuda; limit: none"
            " of the versions in docs/updates.md; remedy: set the mode",
        ),
        (
            {("spark2", "software", "broken"): ["runc"]},
            {},
            "refuse updates.broken spark2: half installed: runc; limit: every package configured; remedy: run"
            " playbooks/update.yml, which ends what was begun, or `dpkg --configure -a`",
        ),
        (
            {("spark2", "software", "next_kernel"): "7.0.0-1019-nvidia"},
            {},
            "warn updates.reboot spark2: a reboot is due: the next boot starts kernel 7.0.0-1019-nvidia, now it runs"
            " 6.17.0-1008-nvidia; remedy: run playbooks/reprovision.yml with os_update_reboot: always, or reboot it"
            " yourself",
        ),
        (
            {("spark2", "software", "held"): {"rdma-core": 0}},
            {},
            "warn updates.holds spark2: on hold: rdma-core (not by us); remedy: lift it once it is not needed",
        ),
        (
            {},
            {"spark2": {"updates": UpdateWish(hold=("rdma-core",))}},
            "warn updates.holds spark2: on hold: nothing; limit: held as well: rdma-core; remedy: run site.yml",
        ),
        (
            {("spark2", "software", "updaters"): ["dgx-dashboard-admin.service"]},
            {},
            "warn updates.automatic spark2: active: dgx-dashboard-admin.service; limit: none of them; remedy: set"
            " headless_classes.dashboard: true and run site.yml; until then the guard in apt stops it",
        ),
        (
            {("spark2", "software", "baseline"): None},
            {},
            "warn drift.baseline spark2: there is no note of when it last served; remedy: run playbooks/verify.yml"
            " while it serves",
        ),
    ],
)
def test_a_node_that_changed(facts, intents, line):
    assert line in drifting(cluster(facts=facts, intents=intents))


def test_a_cluster_that_is_as_it_was():
    assert drifting(cluster()) == []
    assert drifting(cluster(serving=True)) == []


def test_many_differences_of_one_kind_are_one_line():
    packages = dict.fromkeys((f"libnvidia-x{n}" for n in range(9)), "2")
    (line,) = drifting(cluster(facts=everywhere("software", "packages", value=software()["packages"] | packages)))[:1]
    assert " and 6 more since it last served" in line


def test_with_the_argument_that_cures_it_a_bad_kernel_may_be_reprovisioned_and_still_not_served():
    wanted = {"*": {**KNOWN["*"], "tuning": wish(kernel_arguments=("kho=off",))}}
    bad = cluster(facts=everywhere("platform", "kernel", value="7.0.0-1019-nvidia"), intents=wanted)
    assert [line for line in drifting(bad) if "known-bad" in line] == []
    assert [check.status for check in known_bad(bad)] == ["refuse"] * 4


def test_an_accepted_difference_between_nodes_is_only_warned_about():
    one = {("spark2", "platform", "kernel"): "6.17.0-1019-nvidia"}
    accepting = {"*": {"updates": UpdateWish(accept=("kernel",))}}
    (line,) = [line for line in drifting(cluster(facts=one, intents=accepting)) if "drift.nodes" in line]
    assert line.startswith("warn drift.nodes spark2: kernel is 6.17.0-1019-nvidia")
