"""Which runs have ended between two snapshots, and what the daemon remembers of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clearway.estimates.history import HistoryKeeper, ObservedRun, RunKey, RunRecord, advice_on, sentence, update_runs
from clearway.model.cluster import ClusterSnapshot, Job, JobState, Skipped
from clearway.store.repository import Store
from clearway.walltime.remaining import RunTimes, advice
from tests.builders import after, job, snapshot

RUNNING = job("101", name="fit", time_limit_s=7_200)


def ended(then: list[Job], now: ClusterSnapshot, preempted: tuple[str, ...] = ()) -> list[RunRecord]:
    runs, none = update_runs({}, snapshot(then), ())
    assert none == []
    return update_runs(runs, now, preempted)[1]


def at(seconds: float, *jobs: Job, **fields: Any) -> ClusterSnapshot:
    return snapshot(jobs, taken_at=after(seconds), **fields)


def test_a_run_that_is_seen_no_more_has_ended() -> None:
    other = job("102", name="fit")
    (record,) = ended([RUNNING, other], at(10, other))
    assert (record.job_id, record.user, record.app, record.nodes) == ("101", "alice", "fit", 1)
    assert (record.run_s, record.limit_s, record.cut) == (3_610.0, 7_200, False)
    assert ended([RUNNING], at(10, replace(RUNNING, state=JobState.ENDED)))[0].run_s == 3_610.0


def test_its_end_is_when_it_began_to_complete() -> None:
    runs, _ = update_runs({}, snapshot([RUNNING]), ())
    completing = replace(RUNNING, state=JobState.COMPLETING)
    for seconds in (10, 20, 30):
        runs, none = update_runs(runs, at(seconds, completing), ())
        assert none == []
    assert update_runs(runs, at(40), ())[1][0].run_s == 3_610.0


def test_what_was_requeued_suspended_or_preempted_says_nothing() -> None:
    waiting = replace(RUNNING, state=JobState.PENDING, start_time=None, restart_count=1)
    again = replace(RUNNING, start_time=after(5), restart_count=1)
    for now in (waiting, again, replace(RUNNING, state=JobState.SUSPENDED)):
        assert ended([RUNNING], at(10, now)) == []
    assert ended([RUNNING], at(10), preempted=("101",)) == []
    runs, _ = update_runs({}, snapshot([RUNNING]), ())
    runs, _ = update_runs(runs, at(1, replace(RUNNING, state=JobState.COMPLETING)), ())
    runs, none = update_runs(runs, at(2, waiting), ())
    assert (dict(runs), none) == ({}, [])


def test_a_job_that_cannot_be_read_has_not_ended() -> None:
    unreadable = at(10, skipped=(Skipped(kind="job", ident="101", why="?"),))
    runs, _ = update_runs({}, snapshot([RUNNING]), ())
    assert update_runs(runs, unreadable, ()) == (runs, [])


def test_the_time_limit_cuts() -> None:
    assert ended([RUNNING], at(3_599.0))[0].cut is False
    assert ended([RUNNING], at(3_600.0))[0].cut is True
    assert ended([replace(RUNNING, time_limit_s=None)], at(1e6))[0].cut is False


def test_what_a_job_calls_itself_counts_before_its_name() -> None:
    said = replace(RUNNING, comment="clearway:app=solver")
    assert ended([said], at(10))[0].key == RunKey("alice", "solver")


def test_the_daemon_remembers(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.sqlite")
    memory = HistoryKeeper(store)
    key = RunKey("alice", "fit")
    memory.record_ends(snapshot([replace(RUNNING, job_id=str(n), start_time=after(-n)) for n in range(1, 21)]), ())
    assert memory.runs(key) == ()
    memory.record_ends(at(80), ())
    found = memory.runs(key)
    assert sorted(each.run_s for each in found) == [80.0 + n for n in range(1, 21)]
    assert advice_on(found).asked_s == 7_200  # type: ignore[union-attr]

    assert memory.run_times(key).survival(85, 90) == pytest.approx(10 / 15)
    assert memory.run_times(RunKey("bob", "fit")).chance_of_end(85, 90) == 0

    memory.forget()
    assert set(memory.runs(key)) == set(found), "from the store"
    memory.record_ends(snapshot([RUNNING]), ())
    memory.record_ends(at(10), ())
    assert memory.runs(key)[0].job_id == "101"
    assert memory.run_times(key).survival(3_600, 3_610) == 0.0
    store.close()


def test_nothing_is_kept_of_what_was_not_seen_to_run() -> None:
    assert update_runs({}, at(0), ()) == ({}, [])
    runs, none = update_runs({}, at(0, replace(RUNNING, state=JobState.COMPLETING)), ())
    assert (dict(runs), none) == ({}, [])
    assert dict(update_runs({}, at(0, RUNNING), ())[0]) == {("101", RUNNING.start_time): ObservedRun(RUNNING)}


def test_advice_is_a_sentence() -> None:
    def said(ended_s: float, count: int, asked_s: list[float], cut_s: tuple[float, ...] = ()) -> str:
        found = advice(RunTimes((ended_s,) * count, cut_s), asked_s)
        assert found is not None
        return sentence(found)

    day = 86_400.0
    assert said(10_800.0, 50, [day], (day, day)) == (
        "jobs of this name ask for 1d00h and take 3h00m (nine in ten at most 3h00m); "
        "2 of 52 were cut by their time limit"
    )
    assert said(60.0, 10, []) == "jobs of this name ask for no limit and take 1m00s (nine in ten at most 1m00s)"
    assert said(5.0, 9, []).startswith("only 9 known: too few to advise")
