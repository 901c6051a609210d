"""What the play says while ranks load, and once one has failed."""

from __future__ import annotations

from builders import cluster, engine_rank

from ansible_collections.sparkwright.cluster.plugins.action.engine_progress import failure, step_of_result
from ansible_collections.sparkwright.cluster.plugins.module_utils.lifecycle import Step
from ansible_collections.sparkwright.cluster.plugins.module_utils.rank import new_end

INTENTS = cluster(3).intents
FINE = {"line": "weights, for 1 min", "ready": False, "fault": ""}


def task_vars(waited=None, stopped=None):
    """The variables of a play over three nodes; what is not named is as on a node where all went well."""
    results = {host: {"waited": FINE, "stopped": {"rank": engine_rank()}} for host in INTENTS}
    for name, changes in (("waited", waited or {}), ("stopped", stopped or {})):
        for host, result in changes.items():
            results[host][name] = result
    return {"hostvars": results}


def failed(waited=None, stopped=None):
    variables = task_vars(waited, stopped)
    steps = {host: step_of_result(variables, host, "waited") for host in INTENTS}
    return failure(variables, "stopped", steps, INTENTS)


def test_a_node_that_does_not_answer_any_more_is_a_fault():
    variables = task_vars(waited={"spark2": {"unreachable": True, "msg": "timed out"}})
    assert step_of_result(variables, "spark2", "waited") == Step("no answer", fault="its node does not answer any more")
    found = failed(waited={"spark2": {"unreachable": True}}, stopped={"spark2": {"unreachable": True}})
    assert found["msg"].startswith("spark2: rank 1 failed first: its node does not answer any more; ")


def test_the_rank_that_failed_first_is_named_with_its_last_lines():
    dead = engine_rank(end=new_end("it was killed", 5.0, exit_code=137, log=["one", "two"]))
    ended = engine_rank(end=new_end("the head ended it", 6.0, ordered=True))
    found = failed(
        waited={"spark3": {"line": "ended", "ready": False, "fault": "it was killed"}},
        stopped={"spark3": {"rank": dead}, "spark1": {"rank": ended}},
    )
    assert found["failed"]
    assert found["msg"].startswith("spark3: rank 2 failed first: it was killed; limit: every rank runs until the model")
    assert found["log"] == ["one", "two"]


def test_what_a_start_up_check_refused_is_the_message():
    refused = engine_rank(end=new_end("spark2: no; limit: yes; remedy: do", 5.0, refused=True))
    found = failed(
        waited={"spark2": {"line": "ended", "ready": False, "fault": "spark2: no"}},
        stopped={"spark2": {"rank": refused}},
    )
    assert (found["msg"], found["log"]) == ("spark2: no; limit: yes; remedy: do", [])


def test_a_roll_call_that_took_too_long_names_who_is_missing():
    waits = {"line": "roll call", "ready": False, "fault": "the roll call waited 16 minutes for spark3; limit: 15"}
    stopped = engine_rank(end=new_end("stopped on request", 9.0, ordered=True))
    found = failed(waited={"spark1": waits}, stopped={host: {"rank": stopped} for host in INTENTS})
    assert "the roll call waited 16 minutes for spark3; limit: 15" in found["msg"]
