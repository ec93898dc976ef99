"""What every Slurm backend must do, checked the same way on the simulated cluster and on real ones.

A test module subclasses ``BackendConformance`` and offers a fixture ``site``: a backend, and the ways to bring a
cluster into the state that a test is about. ``Site.wait`` polls with a limit (real) or moves the clock (simulated).
"""

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from clearway.eligibility.limits import Later, holds_back
from clearway.model.cluster import FIRST, AdminLevel, JobState, first_nice
from clearway.model.errors import AlreadyGoneError, JobNotRunningError, SlurmRefusedError
from clearway.model.site import Topology
from tests.contract.list_conformance import ListConformance
from tests.contract.node_conformance import NodeConformance
from tests.contract.queue_conformance import QueueConformance
from tests.contract.site import CPUS, NODES, Site, by_id, look, placement, reserved, untouched, wait_state

FORGED = 'x\nJobId=9 JobState=RUNNING UserId=root(0) NodeList=node8 |guess|0|"},{"job_id": 9'


def give_nice(site: Site, job_id: str, nice: int, instead_of: int) -> None:
    assert site.backend.set_nice({job_id: (nice, instead_of)}) == {}


class BackendConformance(ListConformance, NodeConformance, QueueConformance):
    # ---- reading -----------------------------------------------------------------------------------------------

    def test_an_idle_cluster(self, site: Site) -> None:
        site.backend.snapshot()  # the first also reads what hardly ever changes
        snapshot = site.backend.snapshot()
        assert [job for job in snapshot.jobs if job.state.holds_nodes] == []
        assert snapshot.skipped == ()
        assert snapshot.queries <= site.most_queries
        assert sorted(node.name for node in snapshot.nodes) == list(NODES)
        for node in snapshot.nodes:
            assert (node.available, node.cpus, node.alloc_cpus, node.reservation) == (True, CPUS, 0, None)
            assert "batch" in node.partitions

    def test_a_job_that_spans_nodes(self, site: Site) -> None:
        before = site.now()
        job_id = site.run_job("node2", "node3", name="two", comment="clearway:interval=60")
        job = look(site, job_id)
        assert (job.state, job.nodes, job.num_nodes) == (JobState.RUNNING, ("node2", "node3"), 2)
        assert (job.user, job.name, job.comment) == (site.user, "two", "clearway:interval=60")
        assert (job.cpus, job.partitions, job.time_limit_s) == (2 * CPUS, ("batch",), 3600)
        assert (job.batch, job.requeueable, job.restart_count, job.reservation) == (True, True, 0, None)
        assert (job.array_job_id, job.array_task_id, job.het_job_id, job.pending_tasks) == (None, None, None, 1)
        assert job.start_time is not None
        assert before - timedelta(seconds=2) <= job.start_time <= site.now() + timedelta(seconds=2)
        assert job.memory_mib > 0
        snapshot = site.backend.snapshot()
        assert snapshot.job_by_id[job_id] == job
        assert [held.job_id for held in snapshot.jobs_on["node3"]] == [job_id]
        assert snapshot.node_by_name["node2"].alloc_cpus == CPUS

    def test_waiting_jobs(self, site: Site) -> None:
        site.run_job(*NODES)
        waits, held = site.wait_job(3), site.wait_job(held=True)
        jobs = by_id(site)
        for job_id, num_nodes in ((waits, 3), (held, 1)):
            job = jobs[job_id]
            assert (job.state, job.nodes, job.start_time, job.num_nodes) == (JobState.PENDING, (), None, num_nodes)
        assert jobs[waits].priority > 0
        assert jobs[held].priority == 0
        assert site.backend.snapshot().queries <= site.most_queries

    def test_limits_that_hold_nothing_back(self, site: Site) -> None:
        site.run_job(*NODES)
        waits = look(site, site.wait_job(3))
        limits = site.backend.limits([waits])
        assert limits.unknown == ""
        later = Later(site.backend.snapshot())
        assert [holds_back(waits, name, limits, later) for name in waits.partitions] == [""] * len(waits.partitions)

    def test_unknown_leaf_switches(self, site: Site) -> None:
        site.run_job(*NODES)
        assert site.backend.snapshot().topology == Topology()
        job_id = site.wait_job(2, switches=1)
        snapshot = site.backend.snapshot()
        assert snapshot.job_by_id[job_id].switches == 1
        assert snapshot.topology.switch_of == {}
        assert snapshot.topology.unknown not in ("", Topology().unknown)
        assert site.backend.snapshot().queries <= site.most_queries

    def test_array_tasks(self, site: Site) -> None:
        array_id = site.array()
        tasks = [job for job in site.backend.snapshot().jobs if job.array_job_id == array_id]
        running = {job.array_task_id: job for job in tasks if job.state is JobState.RUNNING}
        assert {task: job.nodes for task, job in running.items()} == {1: ("node1",), 2: ("node1",)}
        assert {job.display_id for job in running.values()} == {f"{array_id}_1", f"{array_id}_2"}
        (waiting,) = (job for job in tasks if job.state is JobState.PENDING)
        assert (waiting.pending_tasks, waiting.array_task_id) == (2, None)
        assert len({job.job_id for job in tasks}) == 3

    def test_heterogeneous_jobs(self, site: Site) -> None:
        first = site.het()
        parts = sorted(
            (job for job in site.backend.snapshot().jobs if job.het_job_id == first), key=lambda job: job.display_id
        )
        assert [(job.display_id, job.num_nodes, len(job.nodes)) for job in parts] == [
            (f"{first}+0", 1, 1),
            (f"{first}+1", 2, 2),
        ]
        assert {job.state for job in parts} == {JobState.RUNNING}
        assert parts[0].job_id == first

    def test_jobs_on_a_shared_node(self, site: Site) -> None:
        one, two = site.run_job("node4", cpus=1), site.run_job("node4", cpus=2)
        whole = site.run_job("node5")
        snapshot = site.backend.snapshot()
        jobs = [snapshot.job_by_id[job_id] for job_id in (one, two, whole)]
        assert [job.exclusive for job in jobs] == [False, False, True]
        assert [job.even_cpus for job in jobs[:2]] == [1, 2]
        assert [job.gpus for job in jobs] == [(), (), ()]
        assert {job.job_id for job in snapshot.jobs_on["node4"]} == {one, two}
        assert snapshot.node_by_name["node4"].alloc_cpus == 3
        assert snapshot.node_by_name["node4"].available

    def test_a_hostile_name_and_comment(self, site: Site) -> None:
        hostile, other = site.run_job("node1", name=FORGED, comment=FORGED), site.run_job("node2")
        snapshot = site.backend.snapshot()
        assert snapshot.skipped == ()
        assert (snapshot.job_by_id[hostile].name, snapshot.job_by_id[hostile].comment) == (FORGED, FORGED)
        assert snapshot.job_by_id[hostile].nodes == ("node1",)
        assert snapshot.job_by_id[other].name == "job"
        assert {job.user for job in snapshot.jobs} == {site.user}

    def test_a_suspended_job_and_its_return(self, site: Site) -> None:
        job = look(site, site.run_job("node5"))
        site.backend.suspend(job)
        suspended = wait_state(site, job.job_id, JobState.SUSPENDED)
        assert (suspended.nodes, suspended.run) == (("node5",), job.run)
        site.backend.suspend(job)
        site.backend.resume(job)
        assert wait_state(site, job.job_id, JobState.RUNNING).run == job.run
        site.backend.resume(job)
        assert look(site, job.job_id).state is JobState.RUNNING

    def test_a_completing_job(self, site: Site) -> None:
        job = look(site, site.run_job("node6", deaf=True))
        site.backend.requeue(job)
        leaving = by_id(site)[job.job_id]
        assert (leaving.state, leaving.nodes) == (JobState.COMPLETING, ("node6",))
        with pytest.raises(SlurmRefusedError):
            site.backend.start_now(job.job_id)
        with pytest.raises(AlreadyGoneError):
            site.backend.requeue(job)
        site.let_go(job.job_id)
        again = wait_state(site, job.job_id, JobState.PENDING)
        assert (again.restart_count, again.nodes, again.start_time) == (1, (), None)

    def test_a_configuring_job(self, site: Site) -> None:
        job_id = site.configuring()
        job = look(site, job_id)
        assert job.state is JobState.CONFIGURING
        assert len(job.nodes) == 1
        with pytest.raises(JobNotRunningError):
            site.backend.signal(job, "USR1", batch_only=True)
        site.configured(job_id)
        wait_state(site, job_id, JobState.RUNNING)

    def test_an_ended_and_an_unknown_job(self, site: Site) -> None:
        job = look(site, site.run_job("node1"))
        site.finish(job.job_id)
        wait_state(site, job.job_id, JobState.ENDED)
        assert "node1" not in site.backend.snapshot().jobs_on
        assert site.backend.job("999999") is None

    # ---- requeue -----------------------------------------------------------------------------------------------

    def test_requeue_and_start_now(self, site: Site) -> None:
        other = look(site, site.run_job("node2"))
        job = look(site, site.run_job("node1"))
        site.backend.requeue(job)
        waiting = wait_state(site, job.job_id, JobState.PENDING)
        assert waiting.restart_count == 1
        with pytest.raises(AlreadyGoneError):
            site.backend.requeue(job)
        assert look(site, job.job_id).restart_count == 1
        site.backend.start_now(job.job_id)  # else it would wait for 121 s
        back = wait_state(site, job.job_id, JobState.RUNNING, timeout_s=60)
        assert back.restart_count == 1
        for act in (site.backend.requeue, site.backend.cancel, site.backend.suspend, site.backend.resume):
            with pytest.raises(JobNotRunningError):
                act(job)  # a decision about the first run
        with pytest.raises(SlurmRefusedError):
            site.backend.start_now(job.job_id)
        assert untouched(site, [back, other])

    def test_an_ended_job_is_never_run_again(self, site: Site) -> None:
        job = look(site, site.run_job("node1"))
        site.finish(job.job_id)
        ended = wait_state(site, job.job_id, JobState.ENDED)
        for act in (site.backend.requeue, site.backend.cancel, site.backend.suspend, site.backend.resume):
            with pytest.raises(JobNotRunningError):
                act(job)
        with pytest.raises(SlurmRefusedError):
            site.backend.start_now(job.job_id)
        with pytest.raises(JobNotRunningError):
            site.backend.signal(job, "USR1", batch_only=True)
        assert untouched(site, [ended])

    def test_a_run_that_was_over_is_run_again_on_demand_alone(self, site: Site) -> None:
        """Where it ended by itself: not one that runs, was cancelled, or is run again already."""
        job, other = look(site, site.run_job("node1")), look(site, site.run_job("node2"))
        cancelled, tied = look(site, site.run_job("node3")), look(site, site.run_job("node4", requeueable=False))
        with pytest.raises(JobNotRunningError):
            site.backend.run_again(job)
        site.finish(job.job_id)
        site.finish(tied.job_id)
        site.backend.cancel(cancelled)
        for each in (job, tied, cancelled):
            wait_state(site, each.job_id, JobState.ENDED)
        for each in (tied, cancelled, replace(job, restart_count=1), replace(job, user="another")):
            with pytest.raises(JobNotRunningError):
                site.backend.run_again(each)
        site.backend.run_again(job)
        waiting = wait_state(site, job.job_id, JobState.PENDING)
        assert (waiting.restart_count, waiting.nodes) == (1, ())
        with pytest.raises(AlreadyGoneError):
            site.backend.run_again(job)
        site.backend.start_now(job.job_id)
        assert wait_state(site, job.job_id, JobState.ENDED, timeout_s=60).restart_count == 1
        with pytest.raises(JobNotRunningError):
            site.backend.run_again(job)  # a decision about the first run
        assert look(site, tied.job_id).state is look(site, cancelled.job_id).state is JobState.ENDED
        assert untouched(site, [other])

    def test_one_task_alone_is_run_again(self, site: Site) -> None:
        array_id = site.full_array()
        last = look(site, array_id)  # its id is the array's own
        others = [job for job in by_id(site).values() if job.array_job_id == array_id and job.job_id != array_id]
        for each in (last, *others):
            site.finish(each.job_id)
            wait_state(site, each.job_id, JobState.ENDED)
        site.backend.run_again(last)
        assert wait_state(site, array_id, JobState.PENDING).restart_count == 1
        assert all(look(site, job.job_id).state is JobState.ENDED for job in others)

    def test_a_forgotten_job(self, site: Site) -> None:
        job = replace(look(site, site.run_job("node1")), job_id="999999")
        for act in (
            *(site.backend.requeue, site.backend.run_again, site.backend.cancel),
            *(site.backend.suspend, site.backend.resume),
        ):
            with pytest.raises(JobNotRunningError):
                act(job)
        with pytest.raises(SlurmRefusedError):
            site.backend.start_now("999999")
        site.backend.detach("999999", "clearway-test")

    def test_what_may_not_be_requeued(self, site: Site) -> None:
        job = look(site, site.run_job("node1", requeueable=False))
        assert not job.requeueable
        with pytest.raises(SlurmRefusedError) as refused:
            site.backend.requeue(job)
        assert not isinstance(refused.value, JobNotRunningError)
        assert untouched(site, [job])

    def test_requeue_of_one_task_leaves_the_array_alone(self, site: Site) -> None:
        array_id = site.full_array()
        last = look(site, array_id)  # its id is the array's own
        others = [job for job in by_id(site).values() if job.array_job_id == array_id and job.job_id != array_id]
        assert len(others) == 1
        site.backend.requeue(last)
        assert wait_state(site, array_id, JobState.PENDING).restart_count == 1
        assert untouched(site, others)
        site.backend.cancel(others[0])
        wait_state(site, others[0].job_id, JobState.ENDED)
        assert look(site, array_id).state is JobState.PENDING

    def test_a_suspended_job_is_requeued_without_being_held(self, site: Site) -> None:
        job = look(site, site.run_job("node1"))
        site.backend.suspend(job)
        wait_state(site, job.job_id, JobState.SUSPENDED)
        site.backend.requeue(job)
        waiting = wait_state(site, job.job_id, JobState.PENDING)
        assert waiting.priority > 0
        site.backend.start_now(job.job_id)
        wait_state(site, job.job_id, JobState.RUNNING, timeout_s=60)

    def test_cancel(self, site: Site) -> None:
        job, other = look(site, site.run_job("node1")), look(site, site.run_job("node2"))
        site.backend.cancel(job)
        wait_state(site, job.job_id, JobState.ENDED)
        with suppress(JobNotRunningError):
            site.backend.cancel(job)
        assert look(site, job.job_id).state is JobState.ENDED
        assert untouched(site, [other])

    def test_cancel_of_a_waiting_job(self, site: Site) -> None:
        job = look(site, site.wait_job(held=True))
        site.backend.cancel(job)
        wait_state(site, job.job_id, JobState.ENDED)

    # ---- signals and comments ----------------------------------------------------------------------------------

    def test_a_signal_to_the_batch_shell(self, site: Site) -> None:
        job, other = look(site, site.run_job("node1")), site.run_job("node2")
        site.backend.signal(job, "USR1", batch_only=True)
        site.wait("the job has heard the signal", lambda: site.heard(job.job_id))
        assert untouched(site, [job])
        assert not site.heard(other)

    def test_signals_that_would_hang_or_hit_another_run(self, site: Site) -> None:
        waiting = look(site, site.wait_job(held=True))
        running = look(site, site.run_job("node1"))
        suspended = look(site, site.run_job("node2"))
        site.backend.suspend(suspended)
        wait_state(site, suspended.job_id, JobState.SUSPENDED)
        another_run = replace(running, restart_count=running.restart_count + 1)
        for job in (waiting, suspended, another_run):
            with pytest.raises(JobNotRunningError):
                site.backend.signal(job, "USR1", batch_only=True)
        assert not site.heard(running.job_id)

    # ---- placement ---------------------------------------------------------------------------------------------

    def test_the_life_of_a_reservation(self, site: Site) -> None:
        wanted = placement(site, "node1", "node2")
        site.backend.create_reservation(wanted)
        site.backend.create_reservation(wanted)
        (made,) = site.backend.reservations()
        assert (made.name, set(made.nodes), made.users) == (wanted.name, {"node1", "node2"}, (site.user,))
        assert {"IGNORE_JOBS", "FLEX"} <= set(made.flags)
        assert abs((made.end_time - wanted.end_time).total_seconds()) <= 90
        assert abs((made.start_time - site.now()).total_seconds()) <= 60
        with pytest.raises(SlurmRefusedError):
            site.backend.create_reservation(replace(wanted, nodes=("node3",)))
        site.backend.update_reservation(wanted.name, ("node2", "node5", "node6"))
        site.backend.update_reservation(wanted.name, ("node2", "node5", "node6"))
        later = wanted.end_time + timedelta(minutes=30)
        site.backend.extend_reservation(wanted.name, later)
        (moved,) = site.backend.reservations()
        assert abs((moved.end_time - later).total_seconds()) <= 60
        assert set(moved.nodes) == {"node2", "node5", "node6"}
        site.wait("node5 is seen as reserved", lambda: reserved(site, "node5"))
        site.backend.delete_reservation(wanted.name)
        site.backend.delete_reservation(wanted.name)
        assert site.backend.reservations() == ()
        with pytest.raises(SlurmRefusedError):
            site.backend.update_reservation(wanted.name, ("node2",))
        site.wait("node5 is free again", lambda: not reserved(site, "node5"))

    def test_a_reservation_to_come(self, site: Site) -> None:
        start = (site.now() + timedelta(minutes=20)).replace(microsecond=0)
        wanted = replace(placement(site, "node1"), start_time=start, end_time=start + timedelta(minutes=30))
        site.run_job("node1")  # its time limit does not matter
        site.backend.create_reservation(wanted)
        site.backend.create_reservation(wanted)
        (made,) = site.backend.reservations()
        assert (made.start_time, made.end_time) == (wanted.start_time, wanted.end_time)
        assert {"IGNORE_JOBS", "FLEX"} <= set(made.flags)
        assert not reserved(site, "node1")
        site.backend.update_reservation(wanted.name, ("node2",))
        (moved,) = site.backend.reservations()
        assert (moved.nodes, moved.start_time, moved.end_time) == (("node2",), wanted.start_time, wanted.end_time)
        site.backend.delete_reservation(wanted.name)
        assert site.backend.reservations() == ()

    def test_a_reservation_of_less_than_a_minute(self, site: Site) -> None:
        site.backend.create_reservation(placement(site, "node1", seconds=20))
        (made,) = site.backend.reservations()
        assert 0 < (made.end_time - site.now()).total_seconds() <= 90
        site.backend.delete_reservation(made.name)
        assert site.backend.reservations() == ()

    def test_freed_nodes_go_to_the_attached_job(self, site: Site) -> None:
        holders = [look(site, site.run_job(name)) for name in NODES]
        rival, urgent = site.wait_job(1), site.wait_job(2)
        site.backend.create_reservation(placement(site, "node3", "node4"))
        site.backend.attach(urgent, "clearway-test")
        site.backend.attach(urgent, "clearway-test")
        assert look(site, urgent).reservation == "clearway-test"
        site.backend.update_reservation("clearway-test", ("node5", "node6"))  # re-planned: both are busy
        for job in (holders[4], holders[5]):
            site.backend.requeue(job)
        started = wait_state(site, urgent, JobState.RUNNING)
        assert started.nodes == ("node5", "node6")
        assert look(site, rival).state is JobState.PENDING
        with pytest.raises(SlurmRefusedError):
            site.backend.delete_reservation("clearway-test")  # a job runs in it
        site.backend.detach(urgent, "clearway-test")
        site.backend.detach(urgent, "clearway-test")
        site.backend.delete_reservation("clearway-test")
        after = look(site, urgent)
        assert (after.run, after.state, after.reservation) == (started.run, JobState.RUNNING, None)
        assert untouched(site, [*holders[:4], *holders[6:]])

    def test_attach_to_nothing_and_detach(self, site: Site) -> None:
        waiting = site.wait_job(held=True)
        with pytest.raises(SlurmRefusedError):
            site.backend.attach(waiting, "clearway-unknown")
        site.backend.create_reservation(placement(site, "node1"))
        site.backend.attach(waiting, "clearway-test")
        site.backend.detach(waiting, "another")
        with pytest.raises(SlurmRefusedError):
            site.backend.attach(waiting, "another")
        assert look(site, waiting).reservation == "clearway-test"
        site.backend.detach(waiting, "clearway-test")
        assert look(site, waiting).reservation is None
        site.backend.detach(waiting, "clearway-test")
        site.backend.delete_reservation("clearway-test")

    # ---- priorities and rights ---------------------------------------------------------------------------------

    def test_first_in_queue_until_the_nice_is_put_back(self, site: Site) -> None:
        running = site.run_job(*NODES)
        early, late, last = (site.wait_job(len(NODES)) for _ in range(3))
        before = {job_id: look(site, job_id) for job_id in (early, late, last)}
        assert all(0 < job.priority < FIRST and job.nice == 0 for job in before.values())
        give_nice(site, early, 0, -5)  # its user has changed it since
        nice = first_nice(before[late])
        give_nice(site, late, nice, 0)
        give_nice(site, late, nice, 0)
        give_nice(site, last, first_nice(before[last]), 0)
        give_nice(site, last, 0, first_nice(before[last]))
        first = look(site, late)
        assert before[early].priority < first.priority <= FIRST
        assert first.nice == nice
        for job_id in (early, last):
            assert (look(site, job_id).nice, look(site, job_id).priority) == (0, before[job_id].priority)
        assert all(look(site, job_id).state is JobState.PENDING for job_id in before)
        site.finish(running)
        started = wait_state(site, late, JobState.RUNNING)
        give_nice(site, late, 0, nice)
        give_nice(site, late, 0, nice)
        assert (look(site, late).nice, look(site, late).priority) == (0, before[late].priority)
        assert untouched(site, [started])
        assert [look(site, job_id).state for job_id in (early, last)] == [JobState.PENDING] * 2
        site.finish(late)
        wait_state(site, late, JobState.ENDED)
        give_nice(site, late, 7, 0)
        assert look(site, late).state is JobState.ENDED

    def test_the_nice_of_a_job_that_is_not_there(self, site: Site) -> None:
        assert site.backend.set_nice({"999999": (-7, 0)}) == {}

    def test_without_accounting_nobody_has_rights(self, site: Site) -> None:
        for user in (site.user, "root", "nobody-of-this-name", "alice,root", FORGED):
            assert site.backend.admin_level(user) is AdminLevel.NONE
