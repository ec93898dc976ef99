"""What Slurm does with the queue: what holds a job back, what an update changes, and when a run ends.

The daemon rests on it, and the simulated cluster must do the same. No test waits for longer than some seconds.
"""

from datetime import timedelta

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError
from tests.contract.site import NODES, Site, look, wait_state


def waits_for(site: Site, job_id: str, reason: str) -> None:
    """Until the scheduler has looked at it again."""
    site.wait(f"job {job_id} waits for {reason}", lambda: look(site, job_id).reason == reason, 60)


class QueueConformance:
    def test_a_begin_time_that_is_set_later(self, site: Site) -> None:
        running, job_id = site.run_job(*NODES), site.wait_job()
        before = site.now()
        site.update_job(job_id, begin_s=120)
        eligible = look(site, job_id).eligible_time
        assert eligible is not None
        assert abs((eligible - before).total_seconds() - 120) <= 5
        site.finish(running)
        waits_for(site, job_id, "BeginTime")
        site.backend.start_now(job_id)
        wait_state(site, job_id, JobState.RUNNING, timeout_s=60)

    def test_a_dependency_that_is_set_later(self, site: Site) -> None:
        other, running, job_id = site.run_job("node1"), site.run_job(*NODES[1:]), site.wait_job()
        site.update_job(job_id, dependency=f"afterok:{other}")
        assert f"afterok:{other}" in look(site, job_id).dependency
        site.finish(running)
        waits_for(site, job_id, "Dependency")
        site.finish(other)
        assert wait_state(site, job_id, JobState.RUNNING, timeout_s=60).dependency == ""

    def test_a_dependency_that_is_never_met(self, site: Site) -> None:
        other, job_id = site.run_job("node1"), site.wait_job(len(NODES))
        site.update_job(job_id, dependency=f"afterok:{other}")
        site.backend.cancel(look(site, other))
        waits_for(site, job_id, "DependencyNeverSatisfied")

    def test_a_job_that_is_held_and_released(self, site: Site) -> None:
        running, job_id = site.run_job(*NODES), site.wait_job()
        site.hold(job_id)
        assert look(site, job_id).priority == 0
        site.finish(running)
        waits_for(site, job_id, "JobHeldUser")
        site.release(job_id)
        assert look(site, job_id).priority > 0
        wait_state(site, job_id, JobState.RUNNING, timeout_s=60)

    def test_nice_is_taken_off_the_priority_and_outlives_a_hold(self, site: Site) -> None:
        site.run_job(*NODES)
        job_id = site.wait_job(len(NODES))
        before = look(site, job_id).priority
        site.update_job(job_id, nice=50)
        assert (look(site, job_id).priority, site.nice(job_id)) == (max(before - 50, 1), 50)
        site.hold(job_id)
        site.release(job_id)
        assert site.nice(job_id) == 50

    def test_a_priority_that_is_set_takes_nice_away_until_a_release(self, site: Site) -> None:
        site.run_job(*NODES)
        job_id = site.wait_job(len(NODES))
        site.update_job(job_id, nice=50)
        site.update_job(job_id, priority=5_000)
        assert (look(site, job_id).priority, site.nice(job_id)) == (5_000, 0)
        site.update_job(job_id, nice=70)  # Slurm takes it, and does nothing
        assert (look(site, job_id).priority, site.nice(job_id)) == (5_000, 0)
        site.hold(job_id)
        site.release(job_id)
        assert look(site, job_id).priority not in (0, 5_000)

    def test_a_partition_that_is_down_starts_nothing_and_ends_nothing(self, site: Site) -> None:
        running = look(site, site.run_job("node1"))
        site.update_partition("batch", "DOWN")
        try:
            job_id = site.wait_job()
            waits_for(site, job_id, "PartitionDown")
            site.update_partition("batch", "INACTIVE")
            waits_for(site, job_id, "PartitionInactive")
            assert look(site, running.job_id).run == running.run
        finally:
            site.update_partition("batch", "UP")
        wait_state(site, job_id, JobState.RUNNING, timeout_s=60)

    def test_a_requeued_job_of_a_partition_that_is_inactive_stays_away(self, site: Site) -> None:
        """Slurm does not even take the requeue's delay off it."""
        job = look(site, site.run_job("node1"))
        site.update_partition("batch", "INACTIVE")
        try:
            site.backend.requeue(job)
            wait_state(site, job.job_id, JobState.PENDING)
            with pytest.raises(SlurmRefusedError):
                site.backend.start_now(job.job_id)
            assert look(site, job.job_id).state is JobState.PENDING
        finally:
            site.update_partition("batch", "UP")
        site.backend.start_now(job.job_id)
        wait_state(site, job.job_id, JobState.RUNNING, timeout_s=60)

    def test_a_waiting_job_that_cannot_end_by_its_deadline_is_removed(self, site: Site) -> None:
        site.run_job(*NODES)
        job_id = site.wait_job()
        site.update_job(job_id, limit_s=60, deadline_s=63)
        ended = wait_state(site, job_id, JobState.ENDED, timeout_s=90)
        assert ended.raw_state.startswith("DEADLINE")

    def test_an_end_moves_with_the_limit(self, site: Site) -> None:
        job_id = site.run_job("node1")
        before = site.end(job_id)
        site.update_job(job_id, limit_s=7_200)
        assert site.end(job_id) - before == timedelta(hours=1)
        assert look(site, job_id).time_limit_s == 7_200
        site.update_job(job_id, limit_s=1_800)
        assert before - site.end(job_id) == timedelta(minutes=30)

    def test_an_end_moves_by_what_a_run_stood_suspended(self, site: Site) -> None:
        job = look(site, site.run_job("node1"))
        before, began = site.end(job.job_id), site.now()
        site.backend.suspend(job)
        wait_state(site, job.job_id, JobState.SUSPENDED)
        site.wait("some seconds have passed", lambda: site.now() - began >= timedelta(seconds=3))
        site.backend.resume(job)
        wait_state(site, job.job_id, JobState.RUNNING)
        stood_s = (site.now() - began).total_seconds()
        assert 2 <= (site.end(job.job_id) - before).total_seconds() <= stood_s + 1

    def test_what_may_be_changed_only_while_a_job_waits(self, site: Site) -> None:
        job_id = site.run_job("node1")
        before = look(site, job_id)
        assert site.refuses(job_id, nodes=3)
        assert look(site, job_id) == before

    def test_ids_are_given_one_after_another(self, site: Site) -> None:
        first, second = site.wait_job(held=True), site.wait_job(held=True)
        assert int(second) == int(first) + 1
