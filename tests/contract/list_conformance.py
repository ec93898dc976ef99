"""What every Slurm backend must do with a list of jobs: each is done or refused by itself."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from clearway.model.cluster import JobState, first_nice
from clearway.model.errors import AlreadyGoneError, JobNotRunningError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm.base import JobChange
from tests.contract.site import Site, look, untouched, wait_state


class ListConformance:
    def test_a_list_is_looked_at(self, site: Site) -> None:
        jobs = [site.run_job(f"node{number}") for number in (1, 2)]
        seen, failures = site.backend.look_at([*jobs, "999999"])
        assert (sorted(seen), dict(failures)) == (sorted(jobs), {})
        assert {job.nodes for job in seen.values()} == {("node1",), ("node2",)}
        assert site.backend.look_at([])[0] == {}

    def test_a_list_is_looked_at_as_a_whole(self, site: Site) -> None:
        """As each of them alone: with what a snapshot may know from earlier."""
        jobs = [site.wait_job(held=True), site.run_job("node1"), site.wait_job(held=True)]
        seen, failures = site.backend.look_at([*jobs, "999999"], whole=True)
        assert (sorted(seen), dict(failures)) == (sorted(jobs), {})
        assert seen == {job_id: site.backend.job(job_id) for job_id in jobs}
        assert site.backend.look_at([], whole=True)[0] == {}

    def test_a_list_is_requeued_but_for_what_must_not_be(self, site: Site) -> None:
        array_id = site.full_array()
        good = [look(site, site.run_job("node2")), look(site, site.run_job("node3")), look(site, array_id)]
        site.backend.suspend(good[1])
        wait_state(site, good[1].job_id, JobState.SUSPENDED)
        tied = look(site, site.run_job("node4", requeueable=False))
        over = look(site, site.run_job("node5"))
        other = look(site, site.run_job("node6"))
        site.finish(over.job_id)
        wait_state(site, over.job_id, JobState.ENDED)
        waits = look(site, site.wait_job(held=True))
        another_run = replace(other, restart_count=other.restart_count + 1)
        unknown = replace(other, job_id="999999")
        jobs = [good[0], tied, over, good[1], waits, another_run, unknown, good[2]]
        failures = site.backend.change_jobs(JobChange.REQUEUE, jobs)
        assert failures.keys() == {tied.job_id, over.job_id, waits.job_id, other.job_id, "999999"}
        assert isinstance(failures[waits.job_id], AlreadyGoneError)
        assert not isinstance(failures[tied.job_id], JobNotRunningError)
        assert all(isinstance(failures[job.job_id], JobNotRunningError) for job in (over, other, unknown))
        for job in good:
            again = wait_state(site, job.job_id, JobState.PENDING)
            assert again.restart_count == 1
            assert again.priority > 0
        assert look(site, over.job_id).restart_count == 0
        assert untouched(site, [tied, other, waits])

    def test_a_list_starts_now_and_comes_first(self, site: Site) -> None:
        jobs = [look(site, site.run_job(f"node{number}")) for number in (2, 3)] + [look(site, site.full_array())]
        runs = look(site, site.run_job("node5"))
        assert site.backend.change_jobs(JobChange.REQUEUE, jobs[:2]) == {}
        site.backend.requeue(jobs[2])
        for job in jobs:
            wait_state(site, job.job_id, JobState.PENDING)
        before = [look(site, job.job_id) for job in jobs]
        given = {job.job_id: first_nice(job) for job in before}
        assert site.backend.set_nice({job_id: (nice, 0) for job_id, nice in given.items()}) == {}
        first = [look(site, job.job_id) for job in jobs]
        assert {job.job_id: job.nice for job in first} == given
        assert all(job.priority > max(each.priority for each in before) for job in first)
        assert site.backend.set_nice({job_id: (0, nice) for job_id, nice in given.items()} | {"999999": (0, 1)}) == {}
        assert [(job.priority, job.nice) for job in (look(site, job.job_id) for job in jobs)] == [
            (job.priority, 0) for job in before
        ]
        failures = site.backend.change_jobs(JobChange.START_NOW, [jobs[0], runs, *jobs[1:]])
        assert failures.keys() == {runs.job_id}
        for job in jobs:
            wait_state(site, job.job_id, JobState.RUNNING, timeout_s=60)
        assert untouched(site, [runs])

    def test_a_list_is_signalled_but_for_what_would_hang(self, site: Site) -> None:
        jobs = [look(site, site.run_job(f"node{number}")) for number in (1, 2)]
        suspended = look(site, site.run_job("node3"))
        waits = look(site, site.wait_job(held=True))
        other = site.run_job("node4")
        site.backend.suspend(suspended)
        wait_state(site, suspended.job_id, JobState.SUSPENDED)
        asked = [jobs[0], suspended, waits, jobs[1]]
        failures = site.backend.change_jobs(JobChange.SIGNAL_BATCH, asked, "USR1")
        assert failures.keys() == {suspended.job_id, waits.job_id}
        assert all(isinstance(error, JobNotRunningError) for error in failures.values())
        site.wait("the jobs have heard the signal", lambda: all(site.heard(job.job_id) for job in jobs))
        assert untouched(site, jobs)
        assert not site.heard(other)

    def test_a_list_is_suspended_resumed_and_cancelled(self, site: Site) -> None:
        jobs = [look(site, site.run_job(f"node{number}")) for number in (1, 2)]
        over, other = look(site, site.run_job("node3")), look(site, site.run_job("node4"))
        site.finish(over.job_id)
        wait_state(site, over.job_id, JobState.ENDED)
        for change, state in ((JobChange.SUSPEND, JobState.SUSPENDED), (JobChange.RESUME, JobState.RUNNING)):
            failures = site.backend.change_jobs(change, [jobs[0], over, jobs[1]])
            assert failures.keys() == {over.job_id}
            for job in jobs:
                wait_state(site, job.job_id, state)
        failures = site.backend.change_jobs(JobChange.CANCEL, [jobs[0], over, jobs[1]])
        assert all(isinstance(error, SlurmRefusedError) for error in failures.values())
        assert failures.keys() == {over.job_id}
        for job in jobs:
            wait_state(site, job.job_id, JobState.ENDED)
        assert untouched(site, [other])

    def test_a_waiting_job_in_one_of_its_partitions_and_back(self, site: Site) -> None:
        waiting, array = site.wait_job(held=True), site.array()
        both, one = ("batch", "urgent"), ("urgent",)
        running = site.run_job("node2")

        def asked(job_id: str, wanted: tuple[str, ...], before: tuple[str, ...]) -> bool:
            """Slurm may refuse for a moment, and says so: it is asked again."""
            with suppress(SlurmUnavailableError):
                site.backend.set_partitions(job_id, wanted, instead_of=before)
                return True
            return False

        for job_id, waits in ((waiting, True), (array, True), (running, False)):
            for wanted, before, then in ((one, both, ("batch",)), (both, ("batch",), both), (one, both, one)):
                site.wait(f"{wanted} of {job_id}", partial(asked, job_id, wanted, before))
                site.backend.set_partitions(job_id, wanted, instead_of=before)
                assert look(site, job_id).partitions == (then if waits else ("batch",))
        site.backend.set_partitions("999999", one, instead_of=("batch",))
