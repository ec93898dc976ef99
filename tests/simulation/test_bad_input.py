"""Bad input of every kind: it is skipped, counted and told, and nothing is preempted because of it."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from clearway.model.cluster import ClusterSnapshot, JobState, Skipped
from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError, StoreError
from clearway.model.notice import Notice
from clearway.model.operations import EvictionState, Operation, PreemptionState
from clearway.model.problem import Action
from clearway.model.records import StepLog
from clearway.simulation.jobs import Program
from clearway.slurm import parse
from clearway.store.repository import Store
from tests.simulation.bad_days import busy, finish, try_cycle, untouched, wrapped
from tests.simulation.world import World, config

COMMENTS = [
    "clearway:",
    "clearway:checkpoint",
    "clearway:checkpoint=signal,checkpoint=signal",
    "clearway:checkpoint=signal,last=999999999999",
    "clearway:checkpoint=interval,interval=0,last=1000000000",
    "clearway:max_delay=\x1b]0;x\x07",
    "clearway:" + "9" * 50_000,
    "clearway:size_mib=-1",
]


# -- what users write --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("comment", COMMENTS, ids=lambda comment: comment[:40].encode("unicode_escape").decode())
def test_malformed_comments_count_as_no_claim(make_world: Callable[..., World], comment: str) -> None:
    world = make_world(config=config("observe"))
    jobs = busy(world, comment=comment)
    world.urgent(1, comment=comment)
    world.tick()
    (preemption,) = world.eviction().preemptions
    assert (preemption.job_id, preemption.action) == (jobs[0], Action.KILL)
    assert preemption.predicted_lost_node_s == pytest.approx(300, abs=1), "never checkpointed, as far as is known"
    world.store.eviction(1)  # and the store gives back what it was given
    assert untouched(world, jobs)


def test_a_comment_cannot_make_a_job_urgent_where_no_rule_asks_for_it(world: World) -> None:
    jobs = busy(world)
    world.submit(num_nodes=1, comment="clearway:max_delay=0")
    for _ in range(40):
        world.tick()
    assert not world.store.evictions()
    assert untouched(world, jobs)


def test_a_comment_that_breaks_while_the_job_saves_itself(world: World) -> None:
    jobs = busy(world, Program())  # none of them answers
    urgent = world.urgent(1)
    world.run_until(lambda: any(p.asked_at for e in world.store.evictions() for p in e.preemptions))
    asked = next(p.job_id for p in world.eviction().preemptions if p.asked_at)
    for job_id in jobs:
        entry = world.cluster.jobs[job_id]
        entry.job = replace(entry.job, comment="clearway:state=saved,last=tomorrow" if job_id == asked else "")
    finish(world, urgent)
    (p,) = [each for each in world.eviction().preemptions if each.job_id == asked]
    assert (p.action, p.checkpointed_at) == (Action.KILL, None), "what cannot be read is no checkpoint"


# -- what Slurm tells --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        Skipped("job", "77", "NodeList: n[1-"),
        Skipped("job", "", "no JobId at all"),
        Skipped("job", "\x1b[31m7", "StartTime: \x00"),
    ],
    ids=lambda record: record.why.encode("unicode_escape").decode(),
)
def test_nothing_is_planned_while_a_job_record_cannot_be_read(world: World, record: Skipped) -> None:
    backend = wrapped(world)
    jobs = busy(world)
    urgent = world.urgent(2)
    backend.skipped = (record,)
    for _ in range(10):
        report = world.tick()
        assert report.waiting[0].why == "a job record could not be read, so no node is known to be free"
        assert report.snapshot.skipped == (record,), "counted and told by whoever reads the report"
    assert not world.store.evictions()
    assert untouched(world, jobs)
    backend.skipped = ()
    finish(world, urgent)


class Unread:
    """A backend that cannot read more of some jobs than their nodes."""

    def __init__(self, world: World, *job_ids: str) -> None:
        self.job_ids = set(job_ids)
        backend = world.backend
        self._snapshot = backend.snapshot
        backend.snapshot = self.snapshot  # type: ignore[method-assign]

    def snapshot(self) -> ClusterSnapshot:
        seen = self._snapshot()
        jobs = []
        for job in seen.jobs:
            hostlist = ",".join(job.nodes)
            bare = parse.unread_job(job.job_id, job.user, job.raw_state, hostlist, "") or job
            jobs.append(bare if job.job_id in self.job_ids else job)
        found = {job.job_id: Skipped("job", job.job_id, "TimeLimit", nodes=job.nodes) for job in jobs}
        return replace(seen, jobs=tuple(jobs), skipped=tuple(found[each] for each in self.job_ids & found.keys()))


def test_a_record_that_cannot_be_read_keeps_its_own_nodes_and_no_others(world: World) -> None:
    """Any user could write such a record, and nothing was planned any more."""
    jobs = busy(world)
    Unread(world, jobs[0])
    urgent = world.urgent(7)
    finish(world, urgent)
    kept = world.cluster.jobs[jobs[0]].job
    assert kept.state is JobState.RUNNING, "it was left alone"
    assert not set(kept.nodes) & set(world.eviction().plan.placement_nodes)


def test_of_a_job_that_becomes_unreadable_on_its_way_nothing_is_concluded(world: World) -> None:
    """It seems to be in another run, as if somebody else had requeued it."""
    busy(world, Program(save_s=8.0))
    urgent = world.urgent(2)
    world.tick()
    unread = Unread(world, *(p.job_id for p in world.eviction().preemptions))
    before = world.eviction().preemptions
    for _ in range(6):
        world.tick()
    assert [(p.job_id, p.state) for p in world.eviction().preemptions] == [(p.job_id, p.state) for p in before]
    unread.job_ids.clear()
    finish(world, urgent)


def test_a_record_of_a_job_that_holds_no_nodes_does_not_matter(world: World) -> None:
    backend = wrapped(world)
    busy(world)
    backend.skipped = (Skipped("job", "77", "TimeLimit", holds_nodes=False), Skipped("node", "n99", "CPUTot"))
    finish(world, world.urgent(2))


@pytest.mark.parametrize("missing", ["preemptee", "all"])
def test_records_that_become_unreadable_on_the_way(make_world: Callable[..., World], missing: str) -> None:
    """A job that is missing from an unreadable snapshot has not ended: it may be the very record."""
    world = make_world()
    backend = wrapped(world)
    busy(world, Program(save_s=8.0))
    urgent = world.urgent(2)
    world.tick()
    hidden = {p.job_id for p in world.eviction().preemptions}
    original = backend.snapshot

    def partial() -> ClusterSnapshot:
        seen = original()
        jobs = tuple(job for job in seen.jobs if missing == "preemptee" and job.job_id not in hidden)
        return replace(seen, jobs=(*jobs, world.cluster.jobs[urgent].job) if missing == "all" else jobs,
                       skipped=(Skipped("job", "?", "?"),))  # fmt: skip

    world.start_daemon(backend=backend)
    backend.snapshot = partial  # type: ignore[method-assign]
    for _ in range(6):
        world.tick()
    assert not any(p.state.terminal for p in world.eviction().preemptions)
    assert world.state(urgent) is JobState.PENDING
    backend.snapshot = original  # type: ignore[method-assign]
    finish(world, urgent)


# -- when Slurm fails --------------------------------------------------------------------------------------------

FAILURES = [SlurmTimeoutError("no answer within 20 s"), SlurmUnavailableError("slurmctld is down")]
CALLS = ["snapshot", "reservations", "create_reservation", "attach", "signal", "requeue", "start_now", "detach",
         "delete_reservation"]  # fmt: skip


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_fails_for_a_while_delays_and_harms_nothing(world: World, call: str, error: SlurmError) -> None:
    backend = wrapped(world)
    jobs = busy(world)
    urgent = world.urgent(2)
    backend.failing = {call: error}
    for _ in range(30):
        try_cycle(world)
    assert call in backend.calls, "the test must reach it"
    if call in ("snapshot", "create_reservation", "attach"):
        assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs), "placement first, then preemption"
    backend.failing = {}
    world.run_until(lambda: world.started(urgent) is not None, limit_s=200)
    world.run_until(world.settled, limit_s=1_800, every_s=5)
    assert not world.leftovers()
    planned = {p.job_id for e in world.store.evictions() for p in e.preemptions}
    for job_id in set(jobs) - planned:
        assert len(world.cluster.jobs[job_id].runs) == 1, f"job {job_id} was in no plan"


@pytest.mark.parametrize(
    ("call", "kind"), [("create_reservation", "create_placement"), ("attach", "attach"), ("signal", "ask_checkpoint")]
)
def test_what_slurm_refuses_before_anything_is_preempted(world: World, call: str, kind: str) -> None:
    backend = wrapped(world)
    jobs = busy(world)
    world.urgent(2)
    backend.failing = {call: SlurmRefusedError("Access/permission denied")}
    for _ in range(20):
        try_cycle(world)
    assert call in backend.calls
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in jobs)
    results = [s.result for s in world.store.steps(world.eviction().eviction_id) if s.kind == kind]
    assert results
    assert set(results) == {"refused"}


def test_a_job_that_slurm_does_not_requeue_is_given_up_and_told(make_world: Callable[..., World]) -> None:
    world = make_world(
        config=config(candidates={"min_runtime": 0}, execution={"kill_allowance": "6s", "retry_after": 1})
    )
    backend = wrapped(world)
    busy(world, Program(), comment="")
    world.urgent(1)
    backend.failing = {"requeue": SlurmRefusedError("Requested operation is presently disabled")}
    world.run_until(
        lambda: any(p.state is PreemptionState.FAILED for e in world.store.evictions() for p in e.preemptions),
        limit_s=120,
    )
    steps = world.store.steps(world.eviction().eviction_id)
    assert any(s.kind == "requeue" and s.result == "refused" and "disabled" in s.detail for s in steps)
    assert any("still running after" in s.detail for s in steps if s.kind == "event")


def test_the_loop_outlives_whatever_a_cycle_dies_of(world: World) -> None:
    backend = wrapped(world)
    busy(world)
    backend.failing = {"snapshot": SlurmTimeoutError("no answer within 20 s")}
    world.loop.reconfigure(config(daemon={"mode": "automatic", "poll_interval": 0.01, "active_interval": 0.01}))
    stop = threading.Event()
    beats: list[None] = []

    def beat() -> None:
        beats.append(None)
        stop.set()

    thread = threading.Thread(target=world.loop.run, args=(stop, beat))
    thread.start()
    try:
        for _ in range(12_000):
            if len(world.observer.failures) >= 3:
                break
            stop.wait(0.01)
        assert not beats, "a cycle that failed is no sign of life"
        backend.failing = {}
        thread.join(timeout=120)
    finally:
        stop.set()
        thread.join(timeout=120)
    assert beats
    assert len(world.observer.failures) >= 3
    assert all(isinstance(error, SlurmTimeoutError) for error in world.observer.failures)


# -- when the database fails -------------------------------------------------------------------------------------


class FailingStore(Store):
    """A database whose writes fail when they are told to."""

    failing: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in super().__getattribute__("failing"):
            raise StoreError("database is locked")
        return super().__getattribute__(name)


class LosingStore(Store):
    """A database that stores the next states of evictions, and whose answer is lost."""

    losing = 0

    def save_eviction(
        self, eviction: Operation, notices: Sequence[Notice] = (), log: StepLog | None = None
    ) -> tuple[int, ...]:
        begun = super().save_eviction(eviction, notices, log)
        if self.losing:
            self.losing -= 1
            raise StoreError("server closed the connection unexpectedly")
        return begun


WRITES = ["take_lease", "cycle_state", "preemption_counts", "create_eviction", "begin_step"]


@pytest.mark.parametrize("call", WRITES)
def test_nothing_is_done_that_could_not_be_stored_before(world: World, call: str) -> None:
    store = FailingStore(world.store_url)
    world.start_daemon(store=store)
    jobs = busy(world, Program(), comment="")
    urgent = world.urgent(2)
    store.failing = frozenset({call})
    for _ in range(8):
        assert isinstance(try_cycle(world), StoreError)
    store.failing = frozenset()
    assert untouched(world, jobs), "no intent was stored, so nothing was done"
    finish(world, urgent)
    store.close()


@pytest.mark.parametrize("call", ["save_eviction", "finish_step", "add_event"])
def test_a_result_that_could_not_be_stored_is_found_out_again(world: World, call: str) -> None:
    store = FailingStore(world.store_url)
    world.start_daemon(store=store)
    jobs = busy(world, Program(), comment="")
    urgent = world.urgent(2)
    for _ in range(4):
        store.failing = frozenset({call})
        try_cycle(world)
        store.failing = frozenset()
        try_cycle(world)
    finish(world, urgent)
    (eviction,) = world.store.evictions()
    planned = {p.job_id for p in eviction.preemptions}
    for job_id in jobs:
        assert len(world.cluster.jobs[job_id].runs) <= (2 if job_id in planned else 1)
    store.close()


@pytest.mark.fault(
    "A request whose answer from the database was lost was refused, although it had been carried out.",
    found_by="random faults",
)
def test_a_request_whose_answer_from_the_database_was_lost_is_not_refused(world: World) -> None:
    """It was stored that the eviction is called off: to carry it on in the same cycle would undo that."""
    store = LosingStore(world.store_url)
    world.start_daemon(store=store)
    jobs = busy(world, Program(save_s=20.0))
    world.urgent(2)
    world.tick()
    request_id = world.store.add_request("cancel", 1, "root", world.clock.now())
    store.losing = 1
    assert isinstance(try_cycle(world), StoreError)
    request = world.store.request(request_id)
    assert request is not None
    assert request.handled_at is None, request.result
    world.run_until(world.settled)
    assert world.eviction().state is EvictionState.CANCELLED
    assert untouched(world, jobs)
    store.close()
