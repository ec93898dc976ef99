"""Checkpoint, restart and run history on all three databases: kept once, bounded, pruned."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearway.estimates.history import RunKey, RunRecord
from clearway.estimates.learning import Requeued
from clearway.model.claims import Restart
from clearway.model.operations import PreemptionState
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, RestartRecord
from clearway.store import eviction_rows, record_rows
from clearway.store.repository import Store
from tests.builders import NOW, after, eviction, plan, urgent_job
from tests.integration.store.strategies import record

CHECKPOINT = CheckpointRecord(
    eviction_id=1,
    job_id="101",
    run=0,
    user="alice",
    app="solver",
    checkpointer="dmtcp",
    action=Action.SYS_CHECKPOINT,
    nodes=2,
    asked_at=NOW,
    ended_at=after(20),
    outcome=CheckpointOutcome.LATE,
    predicted_s=10.0,
)
RESTART = RestartRecord(
    job_id="101", run=1, user="alice", app="solver", checkpointer="dmtcp", nodes=2, started_at=NOW, restart=Restart.OK
)
RUN = RunRecord(
    job_id="101", started_at=NOW, ended_at=after(90), user="a", app="solver", nodes=1, limit_s=None, cut=False
)
shared_database = settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@shared_database
@given(record(CheckpointRecord, job_id=st.just("7")), record(RestartRecord, job_id=st.just("7")))
def test_any_record_comes_back_as_it_was(store: Store, kept: CheckpointRecord, restart: RestartRecord) -> None:
    store.record_checkpoint(kept)
    store.record_restart(restart)
    assert kept in store.checkpoint_history()
    assert restart in store.restart_history()


def test_the_same_checkpoint_is_kept_once(store: Store) -> None:
    """A daemon that was killed after it stored a record stores it again."""
    assert store.record_checkpoint(CHECKPOINT) is True
    assert store.record_checkpoint(CHECKPOINT) is False
    saved = replace(CHECKPOINT, outcome=CheckpointOutcome.SAVED, actual_s=12.5, write_s=12.5)
    assert store.record_checkpoint(saved) is False
    assert store.checkpoint_history() == (saved,)
    asked_again = replace(CHECKPOINT, asked_at=after(60), ended_at=after(80))
    assert store.record_checkpoint(asked_again) is True
    assert store.checkpoint_history() == (asked_again, saved), "newest first"


def test_the_same_run_is_kept_once_with_what_it_said_last(store: Store) -> None:
    assert store.record_restart(RESTART) is True
    told = replace(RESTART, restart_s=3.5)
    assert store.record_restart(told) is False
    assert store.restart_history() == (told,)


def test_the_newest_of_each_key_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rows, "A_KEY", 3)
    for number in range(5):
        for user in ("alice", "Alice", "bob"):
            ended = after(number)
            store.record_checkpoint(replace(CHECKPOINT, eviction_id=number, job_id=user, user=user, ended_at=ended))
    found = store.checkpoint_history()
    assert {user: [each.eviction_id for each in found if each.user == user] for user in ("alice", "Alice", "bob")} == {
        "alice": [4, 3, 2],
        "Alice": [4, 3, 2],
        "bob": [4, 3, 2],
    }
    monkeypatch.setattr(record_rows, "AT_ALL", 4)
    assert [each.eviction_id for each in store.checkpoint_history()] == [4, 4, 4, 3]


def test_what_is_old_is_pruned(store: Store) -> None:
    store.record_checkpoint(CHECKPOINT)
    store.record_checkpoint(replace(CHECKPOINT, eviction_id=2, ended_at=after(100)))
    store.record_restart(RESTART)
    store.record_restart(replace(RESTART, started_at=after(100)))
    store.prune(NOW + timedelta(seconds=50))
    assert [each.eviction_id for each in store.checkpoint_history()] == [2]
    assert [each.started_at for each in store.restart_history()] == [after(100)]


@shared_database
@given(record(RunRecord, job_id=st.just("7")))
def test_any_run_comes_back_as_it_was(store: Store, run: RunRecord) -> None:
    store.record_runs([run, run])
    found = store.runs_of(run.key)
    assert run in found
    assert len(found) == len({each.started_at for each in found})


def test_the_newest_runs_of_a_key_are_read_and_older_ones_pruned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rows, "A_KEY", 3)
    runs = [
        replace(RUN, job_id=f"{number}{user}", ended_at=after(number), user=user)
        for number in range(5)
        for user in "ab"
    ]
    store.record_runs(runs)
    assert [each.job_id for each in store.runs_of(RunKey("a", "solver"))] == ["4a", "3a", "2a"]
    assert store.runs_of(RunKey("A", "solver")) == ()
    store.prune(NOW)
    monkeypatch.setattr(record_rows, "A_KEY", 10)
    assert [each.job_id for each in store.runs_of(RunKey("b", "solver"))] == ["4b", "3b", "2b"]
    store.prune(after(4))
    assert [each.job_id for each in store.runs_of(RunKey("b", "solver"))] == ["4b"]


def test_the_newest_returns_from_the_queue_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eviction_rows, "_REQUEUED", 2)
    actions = (Action.KILL, Action.SUSPEND, Action.APP_CHECKPOINT, Action.KILL, Action.KILL)
    kept = eviction(plan(urgent_job(nodes=5)))
    preemptions = [
        replace(
            p,
            action=action,
            state=PreemptionState.QUEUED if p.job_id == "105" else PreemptionState.RETURNED,
            requeued_at=after(number),
            vacated_at=after(10),
            returned_at=None if p.job_id == "105" else after(10 + 100 * number),
        )
        for number, (p, action) in enumerate(zip(kept.preemptions, actions, strict=True), 1)
    ]
    store.create_eviction(replace(kept, preemptions=tuple(preemptions)))
    nodes = [p.job.num_nodes for p in preemptions]
    assert store.requeued() == (Requeued(nodes[3], 400.0), Requeued(nodes[2], 300.0)), "not suspended, not waiting yet"
