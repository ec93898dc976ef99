"""Two daemons on one database: at no moment do both act, whatever the first one was stopped in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import LeaseLostError, SlurmTimeoutError
from clearway.model.operations import EvictionState
from clearway.model.records import LeaderEnd
from clearway.model.requests import RequestResult
from clearway.service.loop import Loop
from clearway.simulation.backend import SimulatedBackend
from tests.simulation.two_daemons import first_daemon, second_daemon
from tests.simulation.world import World, config

LEASE_S = config().daemon.lease
COMMAND_S = LEASE_S / 2


def busy(world: World) -> list[str]:
    """A job on each node, none of which can save itself."""
    return [world.submit(on=(f"n{number}",), ran_s=100 * number) for number in range(1, 9)]


def requeued(world: World, jobs: list[str]) -> list[str]:
    return [
        each for each in jobs if len(world.cluster.jobs[each].runs) > 1 or world.state(each) is not JobState.RUNNING
    ]


def taken_over(world: World, other: Loop, limit_s: float = 60.0) -> None:
    """The other daemon cycles until it acts."""
    end = world.clock.now().timestamp() + limit_s
    while other.cycle().standby or other.leadership.observes:
        assert world.clock.now().timestamp() < end
        world.clock.advance(1.0)


def closed_by(world: World, other: Loop) -> None:
    """The eviction is cancelled, and the other daemon carries that out."""
    world.store.add_request("cancel", world.eviction().eviction_id, "olga", world.clock.now())
    taken_over(world, other)
    while not world.eviction().state.terminal:
        world.clock.advance(1.0)
        other.cycle()


@pytest.mark.parametrize("stopped_at", [1, 2, 4])
@pytest.mark.fault(
    "A leader that was stopped in a cycle woke after its successor had taken over, and requeued jobs.",
    found_by="random faults",
)
def test_a_leader_that_was_stopped_in_a_cycle_does_nothing_after_its_successor(world: World, stopped_at: int) -> None:
    """For 190 s between two of its commands: an eviction that has ended meanwhile stays as it is."""
    calls: list[str] = []

    def happens(call: str) -> None:
        calls.append(call)
        if calls.count("requeue") == stopped_at and call == "requeue":
            world.clock.advance(190.0)
            closed_by(world, other)
            ended.append((world.eviction(), requeued(world, jobs)))

    ended: list[tuple[object, list[str]]] = []
    first_daemon(world, happens)
    jobs = busy(world)
    world.urgent(4)
    with second_daemon(world) as other:
        while not ended:
            world.tick()
        assert world.loop.report is not None
        assert world.loop.report.standby
        assert ended == [(world.eviction(), requeued(world, jobs))]
        for _ in range(20):
            world.tick()
            other.cycle()
        assert ended == [(world.eviction(), requeued(world, jobs))]
    assert len(requeued(world, jobs)) <= stopped_at, "the one whose intent was stored may have been"
    assert not world.leftovers()


@pytest.mark.parametrize("call", ["begin_step", "save_eviction", "finish_step", "add_event", "set_value"])
def test_a_leader_that_was_stopped_before_a_write_writes_nothing(world: World, call: str) -> None:
    first_daemon(world, lambda _: None)
    jobs = busy(world)
    world.urgent(4)
    world.tick()
    eviction = world.eviction()
    step = world.store.begin_step(eviction.eviction_id, None, "attach", world.clock.now())
    arguments = {
        "begin_step": (eviction.eviction_id, None, "requeue", world.clock.now()),
        "save_eviction": (eviction,),
        "finish_step": (step, world.clock.now(), "ok"),
        "add_event": (eviction.eviction_id, None, world.clock.now(), "woken"),
        "set_value": ("paused", True),
    }[call]
    with second_daemon(world) as other:
        world.clock.advance(190.0)
        closed_by(world, other)
        before, steps = world.eviction(), world.store.steps(eviction.eviction_id)
        with pytest.raises(LeaseLostError):
            getattr(world.store, call)(*arguments)
    assert (world.eviction(), world.store.steps(eviction.eviction_id)) == (before, steps)
    assert not world.store.get_value("paused")
    assert jobs


def test_two_daemons_never_both_act_however_slow_slurm_is(world: World) -> None:
    """Every call that changes the cluster takes 19 s; the other daemon goes on meanwhile."""
    acts: list[tuple[int | None, str]] = []

    def happens(call: str) -> None:
        for _ in range(19):
            world.clock.advance(1.0)
            other.cycle()
        before.append(other.leadership.epoch or 0)
        acts.append((world.loop.leadership.epoch, call))

    before: list[int] = []
    first_daemon(world, happens)
    jobs = busy(world)
    urgent = world.urgent(6)
    with second_daemon(world) as other:
        for _ in range(20):
            world.tick()
        leaders = world.store.leaders()
        assert [each.epoch for each in leaders] == sorted({each.epoch for each in leaders}, reverse=True)
        assert world.started(urgent) is not None, "the other daemon has carried it out"
    assert all(len(world.cluster.jobs[each].runs) <= 2 for each in jobs)
    (eviction,) = world.store.evictions()
    kinds = [(each.kind, each.job_id) for each in world.store.steps(eviction.eviction_id) if each.kind == "requeue"]
    assert len(kinds) == len(set(kinds)), "each job was requeued once"


def test_a_command_that_takes_too_long_ends_before_the_lease(world: World) -> None:
    """Then its end is known, and nobody can have taken over while it was under way."""

    def slow(call: str, limit_s: float) -> None:
        assert limit_s == COMMAND_S
        began = world.clock.monotonic()
        world.clock.advance(min(limit_s, 19.0))
        with second_daemon(world) as other:
            assert other.cycle().standby, f"another daemon leads {world.clock.monotonic() - began} s into {call}"
        raise SlurmTimeoutError(f"{call} did not answer within {limit_s:g} s")

    first_daemon(world, lambda _: None)
    busy(world)
    world.urgent(2)
    backend = world.backend._target  # type: ignore[attr-defined]
    assert isinstance(backend, SimulatedBackend)
    backend.before_change = slow
    for _ in range(4):
        world.tick()
    assert [each.result for each in world.store.steps(world.eviction().eviction_id) if each.kind != "event"] != []


def test_a_long_cycle_keeps_the_lease(world: World) -> None:
    """Each command takes 2 s: the cycle outlasts the lease, which is renewed in the middle."""
    seen: list[bool] = []

    def happens(_: str) -> None:
        world.clock.advance(2.0)
        seen.append(other.cycle().standby)

    first_daemon(world, happens)
    busy(world)
    world.urgent(8)
    with second_daemon(world) as other:
        for _ in range(4):
            world.tick()
    assert len(seen) > 8
    assert all(seen)
    assert [each.owner for each in world.store.leaders()] == ["a"]


def test_a_cycle_ends_when_what_it_saw_is_too_old(world: World) -> None:
    """A daemon alone, stopped for longer than ``daemon.snapshot_limit``: it looks again before it acts."""
    stops = [31.0]
    numbers: list[int] = []

    def happens(call: str) -> None:
        numbers.append(len(requeued(world, jobs)))
        if call == "requeue" and stops:
            world.clock.advance(stops.pop())

    first_daemon(world, happens)
    jobs = busy(world)
    urgent = world.urgent(2)
    while stops:
        world.tick()
    assert not requeued(world, jobs)
    assert world.loop.report is not None
    assert not world.loop.report.standby
    world.run_until(lambda: world.started(urgent) is not None, 60.0)
    assert not world.observer.failures


def test_a_successor_only_watches_until_the_last_command_must_have_ended(world: World) -> None:
    first_daemon(world, lambda _: None)
    jobs = busy(world)
    world.tick()  # and it is killed
    world.urgent(2)
    began = world.clock.monotonic()
    with second_daemon(world) as other:
        while other.cycle().standby:
            world.clock.advance(0.5)
        assert LEASE_S - 1.0 <= world.clock.monotonic() - began <= LEASE_S + 1.0
        led = world.clock.monotonic()
        while world.clock.monotonic() - led < COMMAND_S - 0.5:
            world.clock.advance(0.5)
            assert not other.cycle().standby
            assert not world.store.evictions()
        for _ in range(6):
            world.clock.advance(0.5)
            other.cycle()
    assert requeued(world, jobs)


def test_a_lease_that_is_given_up_is_had_at_once(world: World) -> None:
    first_daemon(world, lambda _: None)
    busy(world)
    world.tick()
    world.urgent(2)
    world.loop.leadership.release()
    with second_daemon(world) as other:
        assert not other.cycle().standby
        assert world.store.evictions(), "it plans in its first cycle"
    last, first = world.store.leaders()
    assert (first.owner, first.ended, last.owner, last.ended) == ("a", LeaderEnd.RELEASED, "b", None)


def test_a_leader_hands_over_when_it_is_asked_to(world: World) -> None:
    """It ends its cycle first; without another daemon it leads again after a while."""
    first_daemon(world, lambda _: None)
    busy(world)
    world.tick()
    with second_daemon(world) as other:
        asked = world.store.add_request("hand_over", None, "olga", world.clock.now())
        assert world.loop.cycle().standby
        request = world.store.request(asked)
        assert request is not None
        assert request.code is RequestResult.DONE
        assert world.loop.cycle().standby, "it lets another daemon have it"
        assert not other.cycle().standby
        assert not other.leadership.observes
        other.leadership.release()
    world.clock.advance(LEASE_S)
    assert not world.tick().standby


def test_an_operator_takes_the_lease_from_a_daemon_that_does_not_answer(world: World) -> None:
    first_daemon(world, lambda _: None)
    busy(world)
    world.tick()
    assert world.store.depose("root", world.clock.now()) == "a"
    with pytest.raises(LeaseLostError):
        world.store.set_value("paused", True)
    with second_daemon(world) as other:
        assert not other.cycle().standby
        assert other.leadership.observes, "a command of the other may be under way"
    assert [(each.owner, each.ended, each.ended_by) for each in world.store.leaders()] == [
        ("b", None, ""), ("a", LeaderEnd.FORCED, "root")
    ]  # fmt: skip


def test_of_two_daemons_of_one_name_one_leads_at_a_time(world: World) -> None:
    """Names are never the same; were they, no epoch would be: the one that was there first is out."""
    first_daemon(world, lambda _: None)
    busy(world)
    world.tick()
    with second_daemon(world, owner="a") as other:
        assert not other.cycle().standby
        with pytest.raises(LeaseLostError):
            world.store.set_value("paused", True)
        assert world.store.leaders()[0].epoch == other.leadership.epoch == 2


@pytest.mark.fault(
    "A daemon that no longer led opened an eviction again that its successor had ended.", found_by="random faults"
)
def test_an_eviction_that_has_ended_is_not_changed(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world)
    world.urgent(2)
    world.tick()
    began = world.eviction()
    world.store.add_request("cancel", began.eviction_id, "olga", world.clock.now())
    world.run_until(lambda: world.eviction().state is EvictionState.CANCELLED, 900.0)
    ended = world.eviction()
    with pytest.raises(Exception, match="what has ended is not changed"):
        world.store.save_eviction(began)
    assert world.eviction() == ended
