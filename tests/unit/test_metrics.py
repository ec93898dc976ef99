"""What is counted, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clearway.config.configuration import Config
from clearway.estimates.history import saved_node_s
from clearway.model.claims import Restart
from clearway.model.cluster import Skipped
from clearway.model.errors import (
    JobNotRunningError,
    SlurmRefusedError,
    SlurmTimeoutError,
    SlurmUnavailableError,
    StoreError,
    TransitionError,
)
from clearway.model.events import CommandGiven, CycleFailed, HandlingFailed, JobLeft, OperationFinished, PlanMade
from clearway.model.operations import EvictionState, Preemption, PreemptionState
from clearway.model.plan import Obstacle, ObstacleCode, Preemptor
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord, Usage
from clearway.model.report import CycleReport, Quarantined, Subject, Waiting
from clearway.telemetry.metrics import Metrics
from tests.builders import NOW, ManualClock, after, eviction, job, plan, preemption, snapshot, urgent_job

WALL = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(ManualClock(NOW), backend="cli", wall=ManualClock(WALL))


def samples(metrics: Metrics) -> dict[str, float]:
    """Sample names with their labels, as Prometheus writes them."""
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def report(**fields: object) -> CycleReport:
    defaults: dict[str, object] = {"at": NOW, "snapshot": snapshot(queries=2), "seconds": 0.03}
    return CycleReport(**(defaults | fields))  # type: ignore[arg-type]


def test_what_is_passed_over_is_counted_and_shown(metrics: Metrics) -> None:
    failed = Quarantined(Subject.OPERATION, "7", "TransitionError", 1, after(1))
    metrics.record(HandlingFailed(failed, TransitionError("7")))
    metrics.record(report(quarantined=(failed,)))
    found = samples(metrics)
    assert found["clearway_handling_failures_total{kind=operation}"] == 1
    assert found["clearway_quarantined{kind=operation}"] == 1
    metrics.record(report())
    assert samples(metrics)["clearway_quarantined{kind=operation}"] == 0


def test_names_follow_the_habits_of_prometheus(metrics: Metrics) -> None:
    metrics.configured(Config())
    metrics.record(report())
    metrics.record(JobLeft(preemption(actual_lost_node_s=1.0), "batch", eviction()))
    for family in text_string_to_metric_families(metrics.text().decode()):
        if family.name.startswith("process_"):
            continue
        assert family.name.startswith("clearway_")
        assert family.documentation.endswith(".")
        names = {sample.name for sample in family.samples}
        if family.type == "counter":
            assert all(name.endswith("_total") for name in names)
        else:
            assert not any(name.endswith("_total") for name in names)
        for sample in family.samples:
            assert sample.labels.keys() <= {
                "action", "partition", "result", "state", "kind", "mode", "le", "name", "version", "python",
                "checkpointer", "outcome", "restart", "rule", "account", "lane", "reason", "channel",
            }  # fmt: skip


def test_a_cycle(metrics: Metrics) -> None:
    held = Obstacle(ObstacleCode.HELD, "held")
    waiting = (
        Waiting(Preemptor(urgent_job(1), "r", 60, after(-1)), 1, ""),
        Waiting(Preemptor(urgent_job(2), "r", 60, after(60), held), None, held.why),
    )
    open_ones = (
        eviction(plan(), EvictionState.PREEMPTING, eviction_id=1),
        eviction(plan(), EvictionState.PROPOSED, eviction_id=2),
    )
    metrics.record(
        report(waiting=waiting, open_evictions=open_ones, paused=True, standby=False, usage=Usage(3, 7_200.0))
    )
    found = samples(metrics)
    assert found["clearway_cycles_total"] == 1
    assert found["clearway_cycle_duration_seconds_count"] == 1
    assert found["clearway_slurm_queries_total"] == 2
    assert found["clearway_last_cycle_timestamp_seconds"] == WALL.timestamp()
    assert found["clearway_paused"] == 1
    assert found["clearway_standby"] == found["clearway_only_observes"] == 0
    metrics.record(report(only_observes="Slurm 31.05.1 is newer than 26.05"))
    assert samples(metrics)["clearway_only_observes"] == 1
    assert found["clearway_waiting_preemptors"] == 2
    assert found["clearway_waiting_preemptors_without_eviction"] == 1
    assert found["clearway_waiting_preemptors_overdue"] == 1
    assert found["clearway_urgent_jobs_left_to_slurm{reason=held}"] == 1
    assert found["clearway_urgent_jobs_left_to_slurm{reason=array}"] == 0
    assert found["clearway_open_evictions{state=preempting}"] == 1
    assert found["clearway_open_evictions{state=proposed}"] == 1
    assert found["clearway_open_preemptions{state=planned}"] == 2, "a proposal preempts nobody"
    assert found["clearway_budget_jobs{kind=used}"] == 3
    assert found["clearway_budget_lost_node_seconds{kind=used}"] == 7_200

    metrics.record(report())
    assert samples(metrics)["clearway_open_evictions{state=preempting}"] == 0


def test_records_that_cannot_be_read_count_once(metrics: Metrics) -> None:
    bad = Skipped("job", "7", "State=WEIRD")
    metrics.record(report(snapshot=snapshot(skipped=(bad,))))
    metrics.record(report(snapshot=snapshot(skipped=(bad, Skipped("node", "n1", "CPUs")))))
    found = samples(metrics)
    assert found["clearway_skipped_records_total{kind=job}"] == 1
    assert found["clearway_skipped_records_total{kind=node}"] == 1
    assert found["clearway_unreadable_records{kind=job}"] == 1
    metrics.record(report())
    metrics.record(report(snapshot=snapshot(skipped=(bad,))))
    assert samples(metrics)["clearway_skipped_records_total{kind=job}"] == 2


def test_a_kind_of_record_that_is_not_known_makes_no_new_label(metrics: Metrics) -> None:
    metrics.record(report(snapshot=snapshot(skipped=(Skipped("j\n0b", "1", ""), Skipped("x", "2", "")))))
    assert samples(metrics)["clearway_unreadable_records{kind=job}"] == 2


def test_claims_that_cannot_be_read_are_counted(metrics: Metrics) -> None:
    jobs = [job(1, comment="clearway:max_delay=soon"), job(2, comment="clearway:interval=10m"), job(3)]
    metrics.record(report(snapshot=snapshot(jobs)))
    assert samples(metrics)["clearway_unreadable_claims"] == 1


def left(action: Action = Action.APP_CHECKPOINT, **fields: object) -> Preemption:
    """A job of two nodes that started an hour before NOW."""
    return preemption(job(101, 2), action, state=PreemptionState.VACATING, requeued_at=after(30), **fields)


def test_work_that_a_kill_loses(metrics: Metrics) -> None:
    metrics.record(JobLeft(left(Action.KILL, actual_lost_node_s=7_260.0), "batch", eviction()))
    found = samples(metrics)
    assert found["clearway_preemptions_total{action=kill,partition=batch}"] == 1
    assert found["clearway_lost_work_node_seconds_total{action=kill}"] == 7_260
    assert found["clearway_saved_work_node_seconds_total"] == 0


def test_work_that_a_checkpoint_saves(metrics: Metrics) -> None:
    saved = left(asked_at=NOW, actual_lost_node_s=20.0, actual_checkpoint_s=20.0)
    metrics.record(JobLeft(saved, "batch", eviction()))
    found = samples(metrics)
    # A kill when it was asked would have lost an hour on two nodes; 20 node-seconds were lost after all.
    assert found["clearway_saved_work_node_seconds_total"] == 2 * 3_600 - 20
    assert found["clearway_lost_work_node_seconds_total{action=app_checkpoint}"] == 20
    assert found["clearway_checkpoint_duration_seconds_sum"] == 20
    assert found["clearway_checkpoint_prediction_error_seconds_bucket{le=10.0}"] == 1, "20 s, 10 s were predicted"


def test_an_earlier_checkpoint_of_the_job_saved_nothing_through_us() -> None:
    ten_minutes_ago = int(after(-600).timestamp())
    with_claim = replace(left().job, comment=f"clearway:interval=1h,last={ten_minutes_ago}")
    saved = replace(left(asked_at=NOW, actual_lost_node_s=0.0), job=with_claim)
    assert saved_node_s(saved) == 2 * 600


@pytest.mark.parametrize(
    "fields",
    [
        {"asked_at": NOW},  # has not left
        {"actual_lost_node_s": 5.0},  # was never asked
        {"asked_at": NOW, "actual_lost_node_s": 7_260.0},  # did not save itself and was killed 30 s later
    ],
)
def test_nothing_is_saved(fields: dict[str, object]) -> None:
    assert saved_node_s(left(**fields)) == 0


def started(number: int, seconds: float) -> object:
    return eviction(plan(), EvictionState.STARTED, eviction_id=number, started_at=after(seconds))


def test_starts_are_counted_once_each(metrics: Metrics) -> None:
    for _ in range(3):
        metrics.record(report(open_evictions=(started(1, 30), started(2, 700))))
    metrics.record(OperationFinished(replace(started(1, 30), state=EvictionState.COMPLETED)))  # type: ignore[type-var]
    metrics.record(OperationFinished(replace(started(3, 10), state=EvictionState.COMPLETED)))  # type: ignore[type-var]
    found = samples(metrics)
    assert found["clearway_preemptor_starts_total{result=in_time}"] == 2
    assert found["clearway_preemptor_starts_total{result=late}"] == 1
    assert found["clearway_deadlines_missed_total"] == 1
    assert found["clearway_time_to_start_seconds_sum"] == 30 + 700 + 10
    assert found["clearway_start_margin_seconds_bucket{le=0.0}"] == 1
    assert found["clearway_evictions_total{result=completed}"] == 2


def test_a_start_before_this_daemon_is_not_counted_again(metrics: Metrics) -> None:
    metrics.record(report(open_evictions=(started(1, -30),)))
    assert samples(metrics)["clearway_time_to_start_seconds_count"] == 0


def test_an_eviction_that_failed_missed_its_deadline(metrics: Metrics) -> None:
    metrics.record(OperationFinished(eviction(plan(), EvictionState.FAILED, eviction_id=1)))
    metrics.record(OperationFinished(eviction(plan(), EvictionState.CANCELLED, eviction_id=2)))
    found = samples(metrics)
    assert found["clearway_deadlines_missed_total"] == 1
    assert found["clearway_evictions_total{result=failed}"] == 1
    assert found["clearway_evictions_total{result=cancelled}"] == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SlurmTimeoutError(""), "slurm_timeout"),
        (SlurmUnavailableError(""), "slurm_unavailable"),
        (SlurmRefusedError(""), "slurm_refused"),
        (JobNotRunningError(""), "slurm_refused"),
        (StoreError(""), "store"),
        (ZeroDivisionError(), "internal"),
    ],
)
def test_failed_cycles_by_kind(metrics: Metrics, error: Exception, kind: str) -> None:
    metrics.record(CycleFailed(error))
    assert samples(metrics)[f"clearway_cycle_failures_total{{kind={kind}}}"] == 1


def test_mode_and_limits_follow_the_configuration(metrics: Metrics) -> None:
    limits = {"jobs_per_hour": 4, "lost_node_hours_per_hour": 2}
    metrics.configured(Config.model_validate({"daemon": {"mode": "approve"}, "budget": limits}))
    found = samples(metrics)
    assert found["clearway_mode{mode=approve}"] == 1
    assert found["clearway_mode{mode=observe}"] == 0
    assert found["clearway_budget_jobs{kind=limit}"] == 4
    assert found["clearway_budget_lost_node_seconds{kind=limit}"] == 7_200
    metrics.configured(Config())
    assert "clearway_budget_jobs{kind=limit}" not in samples(metrics)
    metrics.configured(Config())


def test_steps_plans_restarts_and_the_process(metrics: Metrics) -> None:
    metrics.record(CommandGiven("requeue", "refused"))
    metrics.record(PlanMade(eviction(plan(), mode="approve"), 0.2))
    count = 3
    restarts: Callable[[], int] = lambda: count  # noqa: E731 - the name carries its type
    metrics.restarts = restarts
    found = samples(metrics)
    assert found["clearway_slurm_steps_total{kind=requeue,result=refused}"] == 1
    assert found["clearway_evictions_planned_total{mode=approve}"] == 1
    assert found["clearway_planner_duration_seconds_sum"] == 0.2
    assert found["clearway_backend_restarts_total"] == 3
    assert found["clearway_backend_info{name=cli}"] == 1
    assert found["process_resident_memory_bytes"] > 0


def test_what_became_of_checkpoints() -> None:
    metrics = Metrics(ManualClock(NOW), checkpointers=["dmtcp"])
    saved = learned(actual_s=15.0)
    metrics.record(saved)
    metrics.record(replace(saved, checkpointer="dmtcp", outcome=CheckpointOutcome.LATE, actual_s=None))
    metrics.record(replace(saved, checkpointer="anything-a-job-says", outcome=CheckpointOutcome.FAILED))
    found = samples(metrics)
    assert found["clearway_checkpoints_total{checkpointer=application,outcome=saved}"] == 1
    assert found["clearway_checkpoints_total{checkpointer=dmtcp,outcome=late}"] == 1
    assert found["clearway_checkpoints_total{checkpointer=dmtcp,outcome=saved}"] == 0, "seen before it rises"
    assert found["clearway_checkpoints_total{checkpointer=other,outcome=failed}"] == 1, "no job makes a label"
    assert (
        found["clearway_checkpoint_seconds_ratio_bucket{le=1.5}"]
        - found["clearway_checkpoint_seconds_ratio_bucket{le=1.25}"]
        == 2
    ), "15 s, 10 s were predicted"


def test_restarts(metrics: Metrics) -> None:
    assert samples(metrics)["clearway_restarts_total{restart=fallback}"] == 0
    record = RestartRecord(
        job_id="1", run=1, user="a", app="b", checkpointer="c", nodes=1, started_at=NOW, restart=Restart.FALLBACK
    )
    metrics.record(record)
    assert samples(metrics)["clearway_restarts_total{restart=fallback}"] == 1


def learned(**fields: object) -> CheckpointRecord:
    defaults: dict[str, object] = {"eviction_id": 1, "job_id": "1", "run": 0, "user": "a", "app": "b", "nodes": 1}
    defaults |= {"checkpointer": "application", "action": Action.APP_CHECKPOINT, "asked_at": NOW, "ended_at": NOW}
    defaults |= {"outcome": CheckpointOutcome.SAVED, "predicted_s": 10.0}
    return CheckpointRecord(**(defaults | fields))  # type: ignore[arg-type]
