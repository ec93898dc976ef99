"""How a job can be saved, what it would lose now, and what its owner is told to do."""

from __future__ import annotations

from typing import Any

import pytest

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.options import SavingWay, if_urgent, saving
from clearway.model.cluster import Job, JobState
from tests.builders import NOW, job, snapshot
from tests.simulation.world import config


def context(of: Job, **fields: Any) -> PlanningContext:
    return PlanningContext(snapshot=snapshot([of]), config=config(**fields.pop("sections", {})), now=NOW, **fields)


@pytest.mark.parametrize(
    ("comment", "way", "possible", "advice"),
    [
        ("", SavingWay.NOTHING, False, "says nothing of checkpoints"),
        ("clearway:checkpoint=none", SavingWay.NONE, False, "says that it cannot be saved"),
        ("clearway:checkpoint=signal,took=38s", SavingWay.SIGNAL, True, "saves itself within 40s when it is asked"),
        (
            "clearway:checkpoint=signal,signal=USR2,to=steps,grace=90",
            SavingWay.SIGNAL,
            True,
            "The job's steps get SIGUSR2, as its --signal says, and it is requeued once it has ended, after 1m30s",
        ),
        ("clearway:checkpoint=interval,interval=1h", SavingWay.INTERVAL, True, "at its own pace"),
        ("clearway:checkpoint=signal,state=failed,run=0", SavingWay.SIGNAL, False, "its last checkpoint failed"),
        ("clearway:checkpointer=magic,checkpoint=signal", SavingWay.SIGNAL, False, "not one that the daemon knows"),
        ("clearway:chekpoint=signal", SavingWay.NOTHING, False, "cannot be read (clearway: unknown key"),
    ],
)
def test_what_a_job_says(comment: str, way: SavingWay, possible: bool, advice: str) -> None:
    of = job(comment=comment)
    found = saving(of, context(of))
    assert (found.way, found.possible) == (way, possible)
    assert bool(found.why_not) is not possible
    assert advice in found.advice
    assert found.advice.endswith(".")
    assert found.advice.count("\n") == 0


@pytest.mark.parametrize(("checkpoint", "told"), [("checkpoint=signal,", "dmtcp"), ("", "")])
def test_a_checkpointer_is_told_of_a_job_that_offers_checkpoints(checkpoint: str, told: str) -> None:
    of = job(comment=f"clearway:{checkpoint}checkpointer=dmtcp,run=0")
    assert saving(of, context(of)).checkpointer == told


@pytest.mark.parametrize(
    ("said", "restarts", "told"),
    [
        ("checkpointer=dmtcp,restart=ok", 1, "restarted from the newest checkpoint, and has computed since"),
        ("checkpointer=dmtcp,restart=fallback", 1, "from an older checkpoint: what was computed after that is lost"),
        ("checkpointer=dmtcp,restart=scratch", 1, "began anew, and what was computed before it is lost"),
        ("checkpointer=dmtcp", 1, "whether its program computes is not known yet"),
        ("checkpointer=dmtcp", 0, ""),
        ("signal=USR1", 1, ""),  # a program that saves itself: only it knows
    ],
)
def test_a_restart_is_told_as_far_as_it_is_known(said: str, restarts: int, told: str) -> None:
    of = job(comment=f"clearway:checkpoint=signal,run={restarts},{said}", restart_count=restarts)
    began = saving(of, context(of)).began
    assert told in began
    assert bool(told) is bool(began)


@pytest.mark.parametrize("comment", ["clearway:checkpoint=signal,took=38s", "clearway:checkpoint=interval,interval=1h"])
@pytest.mark.fault(
    "A page, mail and `clearway job` said that a saved job loses nothing, before its restart had been seen.",
    found_by="trial",
)
def test_nobody_is_told_that_a_job_will_lose_nothing(comment: str) -> None:
    """Whether it goes on from what it saves is known only when it does."""
    of = job(nodes=4, comment=comment)
    urgent = if_urgent(of, context(of))
    assert urgent is not None
    told = f"{saving(of, context(of)).advice} {urgent.sentence}"
    assert "nothing" not in told
    assert "go on from" in told


def test_a_job_that_slurm_cannot_start_again() -> None:
    for fields, told in (({"requeueable": False}, "--requeue"), ({"batch": False}, "batch job")):
        of = job(comment="clearway:checkpoint=signal", **fields)
        found = saving(of, context(of))
        assert not found.possible
        assert told in found.advice


def test_a_waiting_job_is_told_by_what_it_says() -> None:
    of = job(state=JobState.PENDING, comment="clearway:checkpoint=signal")
    found = saving(of, context(of))
    assert (found.possible, found.expected_s) == (True, None)
    assert if_urgent(of, context(of)) is None


def test_if_an_urgent_job_came_now() -> None:
    of = job(nodes=4)
    told = if_urgent(of, context(of))
    assert told is not None
    assert (told.may_leave, told.lost_work_node_s) == (True, 4 * 3_600)
    assert told.sentence == "It would be requeued without a checkpoint and lose 4.0 node-hours."
    saved = job(nodes=4, comment="clearway:checkpoint=signal,took=38s")
    told = if_urgent(saved, context(saved))
    assert told is not None
    assert told.sentence == (
        "It would be requeued once it has saved itself, within 40s, to go on from there; "
        "where there is no time for that, it would lose 4.0 node-hours."
    )


def test_what_protects_a_job_is_named() -> None:
    of = job(qos="vip")
    told = if_urgent(of, context(of, sections={"candidates": {"protected_qos": ["vip"]}}))
    assert told is not None
    assert (told.may_leave, told.code, told.ways) == (False, "protected_qos", ())
    assert told.sentence == "It would stay: its QoS vip is protected."
    no_kill = if_urgent(job(), context(job(), sections={"candidates": {"allow_kill": False}}))
    assert no_kill is not None
    assert (no_kill.may_leave, no_kill.code) == (False, "no_option")
