"""Looks at jobs that were taken before they are needed: the same as if they were taken then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.learning import History
from clearway.model.cluster import Job, JobState
from clearway.model.limits import Limits, Partition
from clearway.model.plan import Preemptor, Verdict
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord
from clearway.preemption.candidates import CandidateCache, Look, looks_at_jobs
from clearway.walltime.remaining import RunTimes
from tests.builders import NOW, after, job, node, snapshot, urgent_job
from tests.simulation.world import config

EPOCH = int(NOW.timestamp())
COMMENTS = (
    "",
    "clearway:checkpoint=signal,took=40",
    "clearway:checkpoint=signal,size_mib=4000,app=a",
    "clearway:checkpoint=signal,app=failing",
    "clearway:checkpoint=interval,interval=600,took=40",
    "clearway:checkpoint=none",
    f"clearway:checkpoint=signal,took=9,last={EPOCH - 60}",
    f"clearway:checkpoint=signal,took=9,last={EPOCH + 30}",
    f"clearway:checkpoint=signal,took=9,last={EPOCH + 3_000}",
    f"clearway:checkpoint=signal,took=9,last={EPOCH - 50_000}",
    "clearway:checkpoint=",
)
SECTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"candidates": {"min_runtime": "10m", "spare_before_end": "5m"}},
    {"candidates": {"allow_kill": False, "protected_qos": ["keep"]}},
    {"candidates": {"min_runtime": "0s", "spare_before_end": "0s", "max_preemptions": 1}},
    {"planning": {"end_confidence": 0.9}},
    {"eternal": {"partitions": ["eternal"]}},
    {"costs": {"queueing_weight": 1.0}, "daemon": {"mode": "approve"}},
)
JOBS = st.builds(
    lambda job_id, **fields: job(job_id, nodes=(f"n{job_id}",), **fields),
    st.integers(1, 8).map(str),
    state=st.sampled_from([JobState.RUNNING] * 4 + [JobState.SUSPENDED, JobState.CONFIGURING]),
    start_time=st.one_of(st.integers(-20_000, 10), st.integers(-900, 10)).map(after),
    time_limit_s=st.sampled_from([None, 3_600, 7_200, 20_060, 86_400]),
    comment=st.sampled_from(COMMENTS),
    memory_mib=st.sampled_from([0, 64_000]),
    qos=st.sampled_from(["normal", "keep", "urgent"]),
    partitions=st.sampled_from([("batch",), ("eternal",)]),
    requeueable=st.booleans(),
)
FAILURES = tuple(
    CheckpointRecord(
        job_id=f"{1000 + n}", user="alice", app="failing", checkpointer="application", nodes=1, run=0, eviction_id=n,
        action=Action.APP_CHECKPOINT, asked_at=after(-120 * n), ended_at=after(-110 * n), predicted_s=9.0,
        outcome=CheckpointOutcome.FAILED,
    )
    for n in range(1, 9)
)  # fmt: skip
RUN_TIMES = RunTimes((3_700.0,) * 100, ())
PREEMPTORS = tuple(
    Preemptor(urgent_job("900"), "rule 1", 600, after(600), **fields)
    for fields in ({}, {"max_kill_loss_s": 1_000.0}, {"ordinary": True}, {"only_opportunistic": True})
)


def looks(
    context: PlanningContext, preemptor: Preemptor, kept: CandidateCache | None = None
) -> dict[str, Look | Verdict]:
    return looks_at_jobs(preemptor, context, leaving=(), suspend_on=frozenset(), cache=kept)


def seen(
    jobs: Sequence[Job], context: PlanningContext, later_s: float = 0.0, memory_mib: int | None = None
) -> PlanningContext:
    now, found = NOW + timedelta(seconds=later_s), snapshot(jobs)
    if memory_mib is not None:
        found = snapshot(jobs, [replace(each, memory_mib=memory_mib) for each in found.nodes])
    return replace(context, snapshot=replace(found, taken_at=now), now=now)


@settings(max_examples=600, deadline=None)
@given(
    jobs=st.lists(JOBS, min_size=1, unique_by=lambda each: each.job_id),
    changed=st.lists(JOBS, max_size=2, unique_by=lambda each: each.job_id),
    section=st.sampled_from(SECTIONS),
    other=st.sampled_from([*[None] * 20, *SECTIONS]),
    failures=st.sampled_from([(), FAILURES, FAILURES]),
    later_s=st.sampled_from([-3_600.0, 0.0, 0.5, 30.0, 61.0, 3_600.0, 90_000.0, 900_000.0]),
    preempted=st.dictionaries(st.integers(1, 8).map(str), st.integers(1, 3), max_size=2),
    claimed=st.sets(st.integers(1, 8).map(str), max_size=1).map(frozenset),
    claims=st.sampled_from(["jobs", "avoid", "lasting"]),
    preemptor=st.sampled_from([*PREEMPTORS[:1] * 5, *PREEMPTORS[1:]]),
    memory_mib=st.sampled_from([None, None, 500_000]),
)
@pytest.mark.fault(
    "Looks at jobs that were kept for later held on when the clock had been set back.", found_by="random faults"
)
def test_a_look_that_was_kept_is_what_a_new_look_would_find(
    jobs: list[Job],
    changed: list[Job],
    section: dict[str, Any],
    other: dict[str, Any] | None,
    failures: tuple[CheckpointRecord, ...],
    later_s: float,
    preempted: dict[str, int],
    claimed: frozenset[str],
    claims: str,
    preemptor: Preemptor,
    memory_mib: int | None,
) -> None:
    first = PlanningContext(
        snapshot=snapshot(jobs),
        config=config(**section),
        now=NOW,
        history=History(failures, run_times=lambda *_: RUN_TIMES),
    )
    kept = CandidateCache()
    kept.look_ahead(first, lambda: True)
    present = {each.job_id: each for each in jobs} | {each.job_id: each for each in changed}
    now = seen([*present.values()], first, later_s, memory_mib)
    under_way = replace(now.under_way, **{claims: claimed})
    config_now = first.config if other is None else config(**other)
    now = replace(now, preempted=preempted, under_way=under_way, config=config_now)
    assert looks(now, preemptor, kept) == looks(now, preemptor)
    kept.look_ahead(replace(now, preempted={}, under_way=UnderWay()), lambda: True)
    assert looks(now, preemptor, kept) == looks(now, preemptor)


def test_a_program_whose_failures_are_forgiven_and_one_whose_node_has_grown() -> None:
    failing = job("1", comment="clearway:checkpoint=signal,took=9,app=failing", time_limit_s=None)
    large = job("2", comment="clearway:checkpoint=signal", memory_mib=0, time_limit_s=None)
    first = PlanningContext(snapshot=snapshot([failing, large]), config=config(), now=NOW, history=History(FAILURES))
    kept = CandidateCache()
    kept.look_ahead(first, lambda: True)
    now = seen([failing, large], first, 900_000.0, 500_000)
    found = looks(now, PREEMPTORS[0], kept)
    assert found == looks(now, PREEMPTORS[0])
    assert found["1"] != looks(first, PREEMPTORS[0])["1"]


def test_kept_looks_are_used_and_forgotten() -> None:
    jobs = [job("1"), job("2", comment="clearway:checkpoint=signal,took=40"), job("3", comment=COMMENTS[4])]
    context = PlanningContext(snapshot=snapshot(jobs), config=config(), now=NOW)
    asked: list[str] = []

    def attempt(what: str, act: Callable[[], Any]) -> Any:
        asked.append(what)
        return act()

    kept = CandidateCache()
    counts = iter([True, True, False])
    kept.look_ahead(context, lambda: next(counts))  # the third is looked at in the next pause
    looks(replace(context, attempt=attempt), PREEMPTORS[0], kept)
    assert asked == ["3 as a candidate"]
    kept.look_ahead(context, lambda: True)
    looks(replace(context, attempt=attempt), PREEMPTORS[0], kept)
    assert asked == ["3 as a candidate"] * 2, "it saves itself at its own pace"

    kept.look_ahead(replace(context, snapshot=snapshot(jobs[1:], context.snapshot.nodes)), lambda: True)
    looks(replace(context, attempt=attempt), PREEMPTORS[0], kept)
    assert asked[2:] == ["1 as a candidate", "3 as a candidate"], "the first had gone meanwhile"


def test_kept_looks_go_by_partitions_and_nodes_as_they_are_now() -> None:
    jobs, nodes = [job("1", nodes=("n1",), features="ib")], [node("n1", features=("ib",))]
    context = PlanningContext(snapshot=snapshot(jobs, nodes), config=config(), now=NOW)
    states = ("UP", "INACTIVE", "INACTIVE", "UP")
    kept = CandidateCache()
    for state in states:
        limits = Limits(partitions={"batch": Partition(name="batch", state=state)})
        kept.look_ahead(context, lambda: True)  # what partitions say is not known then
        found = looks(replace(context, limits=limits), PREEMPTORS[0], kept)["1"]
        assert isinstance(found, Look)
        assert (found.verdict.code == "would_not_return") is (state == "INACTIVE")
    without = replace(context, limits=limits, snapshot=snapshot(jobs, [node("n1")]))
    found = looks(without, PREEMPTORS[0], kept)["1"]
    assert isinstance(found, Look)
    assert found.verdict.code == "would_not_return"


def test_a_record_at_which_looking_ahead_fails_is_told_of_in_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Look:
        raise RuntimeError("no sense")

    context = PlanningContext(snapshot=snapshot([job("1")]), config=config(), now=NOW)
    kept = CandidateCache()
    monkeypatch.setattr("clearway.preemption.candidates.look_at", fails)
    kept.look_ahead(context, lambda: True)
    with pytest.raises(RuntimeError, match="no sense"):
        looks(context, PREEMPTORS[0], kept)
