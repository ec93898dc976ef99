"""One row for each guard: when it applies, what it says, and for which purposes it holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.exemption import GUARDS, Exemption, Purpose, exemption
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import Job, JobState
from clearway.model.limits import Limits, Partition
from clearway.model.plan import Preemptor
from tests.builders import NOW, after, job, snapshot, urgent_job

ALWAYS = set(Purpose)
UNASKED = {Purpose.PREEMPTION, Purpose.RELOCATION}  # no operator has named the node
UNLESS_FORCED = ALWAYS - {Purpose.FORCED_DRAIN}
RUNNING = job("101", nodes=("n1",), partitions=("batch",), user="alice", account="physics", qos="normal")
ETERNAL = replace(RUNNING, partitions=("eternal",))
STALE = f"clearway:checkpoint=signal,took=10,state=saved,asked={int(after(-7_200).timestamp())}"
ORDINARY = Preemptor(urgent_job(), "rule", 600.0, after(600), ordinary=True, only_opportunistic=True)
URGENT = Preemptor(urgent_job(), "rule", 600.0, after(600), only_opportunistic=True)


def context(
    config: dict[str, Any], *, preempted: int = 0, under_way: UnderWay | None = None, limits: Limits | None = None
) -> PlanningContext:
    sections = {"preemptors": [{"qos": ["urgent"]}], "eternal": {"partitions": ["eternal"]}} | config
    return PlanningContext(
        snapshot=snapshot([]),
        config=Config.model_validate(sections),
        now=NOW,
        preempted={"101": preempted},
        under_way=under_way or UnderWay(),
        limits=limits,
    )


def candidates(**fields: Any) -> dict[str, Any]:
    return {"candidates": fields}


Row = tuple[str, Job, dict[str, Any], dict[str, Any], str, set[Purpose]]

# The code, the job, the configuration, what else there is, the sentence, and the purposes.
ROWS: tuple[Row, ...] = (
    (
        "state",
        replace(RUNNING, state=JobState.SUSPENDED),
        {},
        {},
        "it is suspended; only running jobs are preempted or moved",
        ALWAYS,
    ),
    ("preemptor", replace(RUNNING, qos="urgent"), {}, {}, "it is an urgent job", UNLESS_FORCED),
    (
        "under_way",
        RUNNING,
        {},
        {"under_way": UnderWay(jobs=frozenset({"101"}))},
        "another eviction already concerns it",
        ALWAYS,
    ),
    (
        "did_not_leave",
        RUNNING,
        {},
        {"under_way": UnderWay(avoid=frozenset({"101"}))},
        "it did not leave in time when it was asked to",
        UNASKED,
    ),
    (
        "not_eternal",
        RUNNING,
        {},
        {"preemptor": ORDINARY},
        "only eternal jobs leave for an ordinary job",
        {Purpose.PREEMPTION},
    ),
    (
        "not_eternal",
        RUNNING,
        {},
        {"preemptor": URGENT},
        "eternal jobs suffice for the urgent job",
        {Purpose.PREEMPTION},
    ),
    (
        "restarting",
        replace(ETERNAL, comment=STALE),
        {},
        {},
        "what it says of its checkpoints is from an earlier run; this one has not got so far",
        UNASKED,
    ),
    (
        "protected_partition",
        RUNNING,
        candidates(protected_partitions=["batch"]),
        {},
        "its partition is protected",
        UNLESS_FORCED,
    ),
    ("protected_qos", RUNNING, candidates(protected_qos=["normal"]), {}, "its QoS normal is protected", UNLESS_FORCED),
    (
        "protected_account",
        RUNNING,
        candidates(protected_accounts=["physics"]),
        {},
        "its account physics is protected",
        UNLESS_FORCED,
    ),
    (
        "protected_user",
        RUNNING,
        candidates(protected_users=["alice"]),
        {},
        "its user alice is protected",
        UNLESS_FORCED,
    ),
    (
        "partition",
        RUNNING,
        candidates(partitions=["scavenge"]),
        {},
        "its partition is not among those that may be preempted",
        UNASKED,
    ),
    ("heterogeneous", replace(RUNNING, het_job_id="100"), {}, {}, "it is part of a heterogeneous job", ALWAYS),
    (
        "not_requeueable",
        replace(RUNNING, requeueable=False),
        {},
        {},
        "it cannot be requeued, and cancelling for good is not allowed",
        UNASKED,
    ),
    (
        "not_requeueable",
        replace(ETERNAL, batch=False),
        candidates(allow_cancel=True),
        {},
        "it cannot be requeued, and cancelling for good is not allowed",
        UNASKED,
    ),
    (
        "deadline",
        replace(RUNNING, time_limit_s=3_600, deadline=after(3_599)),
        {},
        {},
        f"Slurm would remove it once it waits: it could not end by its deadline, {after(3_599):%Y-%m-%d %H:%M} UTC",
        ALWAYS,
    ),
    (
        "would_not_return",
        RUNNING,
        {},
        {"limits": Limits(partitions={"batch": Partition(name="batch", state="INACTIVE")})},
        "requeued it would not start again: partition batch is INACTIVE",
        UNASKED,
    ),
    ("too_young", replace(RUNNING, start_time=after(-59)), {}, {}, "it has run for 59s, less than 1m00s", UNASKED),
    (
        "too_young",
        replace(RUNNING, start_time=after(-100)),
        {},
        {"preempted": 1},
        "it has run for 1m40s, less than 2m00s, as it was preempted 1 time before",
        UNASKED,
    ),
    (
        "near_end",
        replace(RUNNING, time_limit_s=4_200),
        candidates(spare_before_end="10m"),
        {},
        "it ends within 10m00s",
        UNASKED,
    ),
    ("preempted_before", RUNNING, {}, {"preempted": 3}, "it was preempted 3 times already, 3 are allowed", UNASKED),
    (
        "reservation",
        replace(RUNNING, reservation="course"),
        {},
        {},
        "it runs in reservation course",
        {Purpose.RELOCATION},
    ),
    (
        "asks_for_nodes",
        replace(RUNNING, required_nodes=("n9",)),
        {},
        {},
        "it asks for nodes by name",
        {Purpose.RELOCATION},
    ),
    (
        "asks_for_drained_node",
        replace(RUNNING, required_nodes=("n9", "n1")),
        {},
        {"nodes": ("n1", "n2")},
        "it asks for node n1, so it could not go on elsewhere",
        {Purpose.DRAIN},
    ),
    ("gres", replace(RUNNING, gres="gpu:1"), {}, {}, "it holds more than processors and memory", {Purpose.RELOCATION}),
    (
        "licenses",
        replace(RUNNING, licenses="matlab:1"),
        {},
        {},
        "it holds licenses, which others could take meanwhile",
        {Purpose.RELOCATION},
    ),
    (
        "features",
        replace(RUNNING, features="a|b"),
        {},
        {},
        "what it asks of nodes is not simple: a|b",
        {Purpose.RELOCATION},
    ),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_guard_holds_for_its_purposes_alone(row: Row) -> None:
    code, subject, config, others, reason, purposes = row
    beside = {name: value for name, value in others.items() if name in {"preemptor", "nodes"}}
    given = context(config, **{name: value for name, value in others.items() if name not in beside})
    for purpose in Purpose:
        found = exemption(subject, purpose, given, **beside)
        if purpose in purposes:
            assert found == Exemption(code, reason), purpose
        else:
            assert found is None or found.code != code, purpose


def test_every_guard_has_a_row_and_a_code_of_its_own() -> None:
    codes = [guard.code for guard in GUARDS]
    assert len(codes) == len(set(codes))
    assert {row[0] for row in ROWS} == set(codes)
    for row in ROWS:
        (guard,) = [guard for guard in GUARDS if guard.code == row[0]]
        assert guard.purposes == row[5]


@pytest.mark.parametrize("purpose", Purpose)
def test_an_ordinary_running_job_is_not_exempt(purpose: Purpose) -> None:
    assert exemption(RUNNING, purpose, context({}), nodes=("n1",)) is None


@pytest.mark.parametrize(
    ("subject", "config", "others"),
    [
        pytest.param(ETERNAL, {}, {"preempted": 9}, id="preempted before"),
        pytest.param(ETERNAL, candidates(partitions=["scavenge"]), {}, id="in a partition that is not named"),
    ],
)
def test_eternal_jobs_are_there_to_be_preempted(subject: Job, config: dict[str, Any], others: dict[str, Any]) -> None:
    assert exemption(subject, Purpose.PREEMPTION, context(config, **others)) is None
    assert exemption(subject, Purpose.PREEMPTION, context(config, **others), preemptor=ORDINARY) is None


def test_the_first_guard_in_the_table_decides() -> None:
    subject = replace(RUNNING, state=JobState.SUSPENDED, qos="urgent", het_job_id="100")
    found = exemption(subject, Purpose.DRAIN, context(candidates(protected_users=["alice"])))
    assert found is not None
    assert found.code == "state"
