"""What a replay knows of the time before it begins: what runs said of their checkpoints, and how often they were asked.

The Comments are as a launcher leaves them at the end of a run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clearway.config.configuration import Config
from clearway.estimates.learning import Requeued
from clearway.model.cluster import JobState
from clearway.model.records import CheckpointOutcome
from clearway.model.report import CycleReport
from clearway_lab.site.daemon import Past, ReplayStore, past_of
from clearway_lab.site.record import RecordedJob, Run, SiteRecord
from clearway_lab.site.replay import SiteReplay
from tests.builders import job as waiting
from tests.simulation.test_site_replay import after, machine, recorded

SAVES = "clearway:checkpoint=signal,signal=USR1,to=batch,app=mesh"


def unix(at_s: float) -> int:
    return int(after(at_s).timestamp())


def said(run: int, asked_s: float, last_s: float, took_s: float = 20, state: str = "saved") -> str:
    return f"{SAVES},run={run},state={state},asked={unix(asked_s)},took={took_s:g},last={unix(last_s)},generation=1"


def ran(start_s: float, end_s: float, comment: str = "", *, requeued: bool = False) -> Run:
    nodes = ("n0", "n1")
    elapsed_s = end_s - start_s
    return Run(
        start=after(start_s), end=after(end_s), elapsed_s=elapsed_s, nodes=nodes, requeued=requeued, comment=comment
    )


def job(*runs: Run, job_id: int = 7, **fields: object) -> RecordedJob:
    return recorded(job_id, -500, 100, 2, runs=runs, comment=runs[-1].comment, **fields)


URGENT = recorded(9, 200, 40, 2, partition="urgent")


def begins_with(*jobs: RecordedJob) -> SiteRecord:
    return SiteRecord("site", (*jobs, URGENT)).as_of(9, lambda each: each.partition == "urgent")


@pytest.mark.parametrize(
    ("run", "kept_s"),
    [
        (ran(0, 100), 100),  # it ended by itself
        (ran(0, 100, said(0, 70, 90), requeued=True), 70),  # it stands while it saves itself
        (ran(0, 100, said(0, 95, 95), requeued=True), 65),  # asked again while it is held: it answers at once
        (ran(0, 100, f"{SAVES},run=0", requeued=True), 0),  # it was not asked: nothing is kept
        (ran(0, 100, f"{SAVES},run=0,last={unix(60)},generation=1", requeued=True), 60),
        (ran(0, 100, "clearway:checkpoint=signal,requeues=yes", requeued=True), 100),  # it tells nothing
    ],
)
def test_a_later_run_goes_on_from_what_was_kept(run: Run, kept_s: float) -> None:
    assert run.kept_s == kept_s


def test_a_save_for_nothing_is_no_work() -> None:
    assert ran(0, 100, said(0, 30, 50)).stood_s == 40  # and 20 s, in which the launcher held it
    assert ran(0, 60, said(0, 30, 50)).stood_s == 30
    assert ran(0, 100).stood_s == 0


def test_what_was_saved_by_then_is_told_by_the_end_of_the_run() -> None:
    at = after(200)
    assert job(ran(100, 300, said(0, 130, 150))).saved_by(at) == after(150)
    assert job(ran(100, 300, said(0, 230, 250))).saved_by(at) is None
    assert job(ran(100, 300, said(0, 190, 210))).saved_by(at) is None
    assert job(ran(100, 300, said(0, 190, 210))).saves_at(at) == after(190)
    assert job(ran(100, 300, said(0, 205, 205))).saved_by(at) == after(195)  # it was held when it was asked again
    assert job(ran(100, 300, said(1, 130, 150))).saved_by(at) is None  # an earlier run's words


def test_the_daemon_of_a_replay_knows_what_was_before() -> None:
    twice = job(
        ran(0, 60, said(0, 40, 60), requeued=True), ran(90, 150, said(1, 130, 150), requeued=True), ran(180, 400)
    )
    failed = job(ran(0, 80, said(0, 70, 60, state="failed"), requeued=True), ran(300, 400), job_id=8)
    later = job(ran(0, 250, said(0, 230, 250), requeued=True), ran(300, 400), job_id=5)
    past = past_of(begins_with(twice, failed, later))
    assert dict(past.preempted) == {"7": 2, "8": 1}
    assert past.requeued == (Requeued(2, 30.0), Requeued(2, 30.0))
    told = [(c.job_id, c.run, c.app, c.outcome, c.write_s) for c in past.checkpoints]
    saved, lost = CheckpointOutcome.SAVED, CheckpointOutcome.FAILED
    assert told == [("7", 0, "mesh", saved, 20), ("7", 1, "mesh", saved, 20), ("8", 0, "mesh", lost, None)]


def test_the_past_stands_beside_what_the_replay_writes(tmp_path: Path) -> None:
    past = past_of(begins_with(job(ran(0, 60, said(0, 40, 60), requeued=True), ran(90, 400))))
    store = ReplayStore(f"sqlite:///{tmp_path}/replay.sqlite", past)
    try:
        assert store.preemption_counts([waiting("7"), waiting("9")]) == {"7": 1}
        assert store.requeued() == (Requeued(2, 30.0),)
        assert [each.job_id for each in store.checkpoint_history()] == ["7"]
    finally:
        store.close()
    assert past_of(SiteRecord("site", ())) == Past()


def test_a_case_begins_with_the_first_of_the_urgent_jobs_that_waited() -> None:
    first = recorded(3, 150, 40, 2, partition="urgent", runs=(ran(185, 225),))
    second = recorded(4, 180, 40, 2, partition="urgent", runs=(ran(210, 250),))
    over = recorded(2, 100, 40, 2, partition="urgent", runs=(ran(120, 160),))
    record = SiteRecord("site", (over, first, second, URGENT)).as_of(9, lambda each: each.partition == "urgent")
    assert record.begins == after(150)
    assert [each.job_id for each in record.jobs] == [2, 3, 4, 9]  # 2 runs


def replayed(*jobs: RecordedJob) -> SiteReplay:
    return SiteReplay(begins_with(*jobs), machine(), Config())


def test_a_program_that_is_held_is_held_in_the_replay() -> None:
    replay = replayed(job(ran(100, 400, said(0, 170, 190)), time_limit_s=3_600))
    entry = replay.cluster.jobs["7"]
    replay.cluster.advance(after(209))
    assert entry.held
    replay.cluster.advance(after(211))
    assert not entry.held
    assert entry.done_s(after(221)) == pytest.approx(70 + 11)


def test_a_program_that_saves_itself_is_done_with_it_as_it_was() -> None:
    replay = replayed(job(ran(100, 400, said(0, 190, 210)), time_limit_s=3_600, took_s=(20.0,)))
    entry = replay.cluster.jobs["7"]
    replay.cluster.advance(after(209))
    assert "state=saving" in entry.job.comment
    replay.cluster.advance(after(210.5))
    assert "state=saved" in entry.job.comment
    assert entry.saved_s == pytest.approx(90)


def test_no_work_is_done_while_a_program_saves_itself_and_is_held() -> None:
    replay = replayed(
        job(ran(100, 250, said(0, 230, 250), requeued=True), ran(300, 350, SAVES), took_s=(20.0,), time_limit_s=3_600)
    )
    cluster = replay.cluster
    entry = cluster.jobs["7"]
    cluster.advance(after(201))
    done_s = entry.done_s(after(201))
    cluster.signalled(entry)
    cluster.advance(after(215))
    cluster.signalled(entry)  # what is under way answers this, too
    cluster.advance(after(222))
    assert "state=saved" in entry.job.comment
    assert entry.saved_s == done_s
    cluster.advance(after(235))
    cluster.signalled(entry)
    assert f"asked={unix(235)}" in entry.job.comment
    cluster.advance(after(254))
    assert entry.done_s(after(254)) == done_s
    cluster.advance(after(256))
    assert entry.done_s(after(260)) == pytest.approx(done_s + 5)
    assert entry.job.state is JobState.RUNNING


def test_a_requeued_job_waits_until_it_was_eligible() -> None:
    again = replace(ran(300, 400), eligible=after(250))
    record = begins_with(job(ran(100, 190, requeued=True), again))
    assert next(each for each in record.jobs if each.job_id == 7).eligible == after(250)


def test_a_run_that_was_requeued_in_the_second_of_the_submission_still_runs() -> None:
    record = begins_with(job(ran(100, 200, requeued=True), ran(300, 400)), job(ran(100, 200), job_id=8))
    assert [each.job_id for each in record.jobs] == [7, 9]
    assert SiteReplay(record, machine(), Config()).cluster.jobs["7"].job.state is JobState.RUNNING


def test_the_replayed_daemon_does_not_know_what_was_said_later() -> None:
    comment = replayed(job(ran(100, 400, said(0, 230, 250)))).cluster.jobs["7"].job.comment
    assert "app=mesh" in comment
    assert not any(key in comment for key in ("took=", "last=", "asked=", "state="))


@pytest.mark.parametrize(
    ("came_s", "asked_s"),
    [
        ([], 165),  # it stands for half of the 20 s for which its launcher may hold it
        ([120], 165),  # too long ago
        ([120, 158, 190], 159),  # within a second of the urgent job that came then
        ([175], 175),  # asked again while it saved itself: it answered when that was done
    ],
)
def test_a_job_that_was_asked_twice_was_asked_first_when_an_urgent_job_came(
    came_s: list[float], asked_s: float
) -> None:
    asked_twice = job(ran(100, 300, said(0, 195, 195), requeued=True))
    others = [recorded(20 + n, at, 40, 2, partition="urgent") for n, at in enumerate(came_s)]
    record = SiteRecord("site", (asked_twice, *others)).knowing(lambda each: each.partition == "urgent")
    run = record.jobs[0].runs[0]
    assert run.asked_first == after(asked_s)
    assert run.kept_s == asked_s - 100
    assert record.jobs[0].saved_by(after(asked_s + 20)) == after(asked_s + 20)
    assert record.jobs[0].saves_at(after(asked_s + 19)) == after(asked_s)


def test_a_job_that_was_asked_once_says_when() -> None:
    once = job(ran(100, 300, said(0, 175, 195)))
    record = SiteRecord("site", (once, recorded(9, 160, 40, 2))).knowing(lambda each: each.job_id == 9)
    assert record.jobs[0].runs[0].asked_first == after(175)


def test_a_program_says_how_long_it_took_before_it_is_requeued_and_no_more_in_its_next_run() -> None:
    replay = replayed(job(ran(100, 400, f"{SAVES},run=0"), took_s=(20.0,), time_limit_s=3_600))
    cluster = replay.cluster
    entry = cluster.jobs["7"]
    cluster.advance(after(201))
    cluster.signalled(entry)
    cluster.advance(after(220))
    assert "took=" not in entry.job.comment
    cluster.advance(after(222))
    assert "took=20" in entry.job.comment
    cluster.end_run(entry, requeue=True)
    cluster.advance(after(400))
    assert entry.job.restart_count == 1
    assert "run=1" in entry.job.comment
    assert "took=" not in entry.job.comment


@pytest.mark.fault(
    "A replay of a recorded day foretold waits of 7.1 s in the mean, where 3.8 s had happened.",
    found_by="recorded workloads",
)
def test_the_first_cycle_comes_half_a_poll_after_the_submission() -> None:
    replay = replayed(job(ran(100, 400)))
    seen: list[float] = []

    def cycle() -> CycleReport:
        seen.append((replay.clock.now() - after(200)).total_seconds())
        raise InterruptedError

    with pytest.raises(InterruptedError):
        replay.run(cycle)
    assert seen == [Config().daemon.poll_interval / 2]


def test_a_job_that_stood_for_long_ends_when_it_did() -> None:
    """Of 130 s it computed 90, and stands no more when the replay begins: 30 s before its end, after 100 s."""
    replay = replayed(job(ran(100, 230, said(0, 130, 150)), time_limit_s=3_600))
    cluster = replay.cluster
    cluster.advance(after(229))
    assert cluster.jobs["7"].job.state is JobState.RUNNING
    cluster.advance(after(231))
    assert cluster.outcomes["7"].ended_at == after(230)
