"""Who may drain what and when, and what is refused."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clearway.drain import request as drain_request
from clearway.drain.request import DrainRequest, chosen_nodes
from clearway.execution.cycle_context import CycleContext
from clearway.model.cluster import AdminLevel
from clearway.model.errors import DrainError
from clearway.model.operations import EvictionState
from clearway.model.requests import Answer, OperatorRequest
from clearway.service.requests import LONGEST_S, RequestHandler, in_turns
from clearway.slurm.parse.hostlist import expand
from tests.simulation.drains import answer, ask, drain, held, now, saver
from tests.simulation.world import World, config


@pytest.mark.parametrize(
    ("actor", "level", "allowed"),
    [
        ("root (command line)", AdminLevel.NONE, True),
        ("olga", AdminLevel.OPERATOR, True),
        ("ada (command line)", AdminLevel.ADMINISTRATOR, True),
        ("carl", AdminLevel.NONE, True),  # named in drain.operators
        ("alice", AdminLevel.NONE, True),  # all jobs there are hers
        ("bob", AdminLevel.NONE, False),
        ("rooty", AdminLevel.NONE, False),
    ],
)
def test_who_may_drain(make_world: Callable[..., World], actor: str, level: AdminLevel, allowed: bool) -> None:
    world = make_world(config=config(drain={"operators": ["carl"], "owners": True}))
    world.cluster.admin_levels[actor.partition(" ")[0]] = level
    saver(world, "n1")
    request_id = ask(world, "n1", actor)
    world.tick()
    assert answer(world, request_id).startswith("drain 1" if allowed else "refused: ")
    assert bool(held(world)) is allowed


def test_an_owner_may_not_drain_empty_nodes_nor_where_the_site_says_no(make_world: Callable[..., World]) -> None:
    world = make_world(config=config(drain={"owners": True}))
    saver(world, "n1")
    request_id = ask(world, "n[1-2]", "alice")
    world.tick()
    assert "nor the owner of all jobs on these nodes" in answer(world, request_id)
    world.loop.reconfigure(config())
    request_id = ask(world, "n1", "alice")
    world.tick()
    assert answer(world, request_id).startswith("refused: alice is neither an operator")
    assert not held(world)


def test_begins_at_its_time_and_can_be_cancelled_before(make_world: Callable[..., World]) -> None:
    world = make_world()
    job = saver(world, "n1")
    at = world.clock.now() + timedelta(seconds=100)
    begun, other = drain(world, "n1", at=at), drain(world, "n2", at=at)
    assert begun.state is EvictionState.SCHEDULED
    world.store.add_request("cancel", other.eviction_id, "olga", world.clock.now())
    world.tick(50)
    assert not held(world)
    world.run_until(lambda: now(world, begun).started_at is not None, 120)
    assert now(world, begun).started_at >= at  # type: ignore[operator]  # waited for
    assert set(held(world)) == {"n1"}
    assert world.cluster.jobs[job].job.restart_count == 1
    assert now(world, other).state is EvictionState.CANCELLED


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"at": -3_600}, "its beginning, 2026-01-01 00:00:00 UTC, has passed"),
        ({"at": -3_600, "rolling": 1}, "its beginning, 2026-01-01 00:00:00 UTC, has passed"),
        ({"deadline": -3_600}, "its deadline, 2026-01-01 00:00:00 UTC, has passed"),
        (
            {"at": 7_200, "deadline": 3_600},
            "its deadline, 2026-01-01 02:00:00 UTC, comes before its beginning, 2026-01-01 03:00:00 UTC",
        ),
    ],
)
def test_times_that_make_no_sense_are_refused(
    make_world: Callable[..., World], fields: dict[str, int], why: str
) -> None:
    """A mistyped date must not empty nodes at once."""
    world = make_world()
    hour = world.clock.now().replace(year=2026, month=1, day=1, hour=1, minute=0, second=0, microsecond=0)
    times = {key: value if key == "rolling" else hour + timedelta(seconds=value) for key, value in fields.items()}
    document = DrainRequest(nodes="n1", **times).model_dump_json()  # type: ignore[arg-type]  # as named
    request_id = world.store.add_request("drain", None, "root", hour, document)
    world.tick()
    assert answer(world, request_id) == f"refused: {why}"
    assert not held(world)
    assert not world.store.evictions()
    assert not world.store.rolling_drains()


@pytest.mark.parametrize("field", ["at", "deadline"])
@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("9999-12-31T23:59:59Z", "lies more than ten years ahead"),
        ("9999-12-31T23:59:59-05:00", "lies more than ten years ahead"),
        ("2100-01-01T00:00:00Z", "lies more than ten years ahead"),
        ("0001-01-01T00:00:00+05:00", "has passed"),
    ],
)
@pytest.mark.fault("A drain with a date of another age ended every cycle.", found_by="hostile input")
def test_a_date_of_another_age_is_refused_and_ends_no_cycle(world: World, field: str, when: str, why: str) -> None:
    document = DrainRequest.model_validate({"nodes": "n1", field: when}).model_dump_json()
    request_id = world.store.add_request("drain", None, "root", world.clock.now(), document)
    world.tick()
    assert why in answer(world, request_id)
    assert not held(world)
    assert not world.store.evictions()


def test_a_beginning_that_passes_before_the_daemon_reads_it_is_now(make_world: Callable[..., World]) -> None:
    """It was down, or the asker's clock is a little behind: what was asked for in good time is done."""
    world = make_world()
    asked_at = world.clock.now() - timedelta(hours=1)
    document = DrainRequest(nodes="n1", at=asked_at - timedelta(seconds=2)).model_dump_json()
    request_id = world.store.add_request("drain", None, "root", asked_at, document)
    world.tick()
    assert answer(world, request_id) == "drain 1: emptying n1"


def test_nothing_is_drained_in_observe_mode_or_while_paused(make_world: Callable[..., World]) -> None:
    world = make_world(config=config("observe"))
    request_id = ask(world, "n1")
    world.tick()
    assert answer(world, request_id) == "refused: the daemon only observes (daemon.mode)"
    world.loop.reconfigure(config())
    world.store.add_request("pause", None, "olga", world.clock.now())
    request_id = ask(world, "n1")
    world.tick()
    assert answer(world, request_id) == "drain 1: emptying n1, when the pause is over (clearway resume)"
    begun = world.store.eviction(1)
    world.tick()
    assert not held(world)
    world.store.add_request("resume", None, "olga", world.clock.now())
    world.run_until(lambda: now(world, begun).started_at is not None, 10)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("n99", "n99 is not a node of this cluster"),
        ("n[1-", "brackets that do not match"),
        ("partition=none", "'partition=none' names no node of this cluster"),
        ("rack=7", "'rack=7' is neither a host list nor partition=NAME or feature=NAME"),
    ],
)
def test_nodes_that_do_not_exist(make_world: Callable[..., World], nodes: str, why: str) -> None:
    world = make_world()
    request_id = ask(world, nodes)
    world.tick()
    assert why in answer(world, request_id)
    assert not world.store.evictions()
    assert not held(world)


def test_a_whole_partition(make_world: Callable[..., World]) -> None:
    world = make_world()
    begun = drain(world, "partition=urgent")
    world.run_until(lambda: now(world, begun).started_at is not None, 10)
    assert len(held(world)) == 8


def test_a_garbled_request_is_refused(make_world: Callable[..., World]) -> None:
    world = make_world()
    for kind, document in (("drain", ""), ("drain", '{"nodes": "n1", "colour": 3}'), ("undrain", "{")):
        request_id = world.store.add_request(kind, None, "root", world.clock.now(), document)
        world.tick()
        assert answer(world, request_id).startswith("refused: ")
    assert not held(world)


def test_slurm_refuses_to_drain(make_world: Callable[..., World]) -> None:
    world = make_world()
    saver(world, "n1")
    request_id = ask(world, "n[1-2]")
    context = CycleContext(world.backend.snapshot(), world.config, world.clock.now())
    world.loop._cycle.requests.handle(world.store.pending_requests(), context)
    world.by_hand.drain("n2", "in between")  # after the request was taken, before the first cycle acts on it
    world.run_until(world.settled, 10)
    (eviction,) = world.store.evictions()
    assert eviction.state is EvictionState.CANCELLED
    assert answer(world, request_id).startswith("drain 1")
    assert held(world) == {"n2": "in between"}


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ("a[1-65536]", "'a[1-65536]' names more than the 8 node(s) of this cluster"),
        ("n[1-4096]", "'n[1-4096]' names more than the 8 node(s) of this cluster"),
        ("a[1-9][1-9],n1", "'a[1-9][1-9]' names more than the 8 node(s) of this cluster"),
        ("a[1-8]", "a1 is not a node of this cluster"),
        ("n[1-8],n[1-7],n[1-6]", "it names the 8 node(s) of this cluster again and again"),
        (",".join(f"n[{n}-8]" for n in (1, 2, 3, 4, 5) for _ in range(100)), "again and again"),
    ],
)
def test_a_short_text_that_stands_for_many_names(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch, nodes: str, why: str
) -> None:
    """It is refused before the names are made."""
    made: list[int] = []

    def counted(*args: Any, **named: Any) -> tuple[str, ...]:
        names = expand(*args, **named)
        made.append(len(names))
        return names

    monkeypatch.setattr(drain_request, "expand", counted)
    world = make_world()
    with pytest.raises(DrainError) as caught:
        chosen_nodes(nodes, world.backend.snapshot())
    assert why in str(caught.value)
    assert sum(made) <= 2 * len(world.cluster.nodes) + 1


def test_nodes_may_be_named_twice(make_world: Callable[..., World]) -> None:
    found = chosen_nodes("n[1-8],n[2-3],n2,partition=batch,partition=batch", make_world().backend.snapshot())
    assert len(found) == 8


def of(actor: str, *kinds: str) -> list[tuple[str, str]]:
    return [(actor, kind) for kind in kinds]


@pytest.mark.parametrize(
    ("asked", "order"),
    [
        (of("mallory", *["drain"] * 5) + of("ann", "approve"), "0 5 1 2 3 4"),
        (of("mallory", *["drain"] * 3) + of("ann", "approve", "cancel") + of("bob", "drain"), "0 3 5 1 4 2"),
        (of("mallory", *["drain"] * 3) + of("ann", "halt", "unhalt", "drain", "pause"), "3 4 6 0 5 1 2"),
        (of("mallory", "test_preemption", "drain") + of("ann", "drain"), "2 1 0"),
        ([], ""),
    ],
)
def test_the_order_in_which_requests_are_handled(asked: list[tuple[str, str]], order: str) -> None:
    requests = [
        OperatorRequest(request_id=n, kind=kind, eviction_id=None, actor=actor, created_at=datetime.now(UTC))
        for n, (actor, kind) in enumerate(asked)
    ]
    assert " ".join(str(each.request_id) for each in in_turns(requests[::-1])) == order


@pytest.mark.fault("One user's requests to drain held up cycles for two minutes.", found_by="load")
def test_requests_have_a_part_of_a_cycle(make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a fifth of a second here. A switch is never put off; the others have the next cycles, at once."""
    world = make_world()
    handled: list[tuple[int, str]] = []
    original, cycles = RequestHandler._handle, [0]

    def slow(self: RequestHandler, request: OperatorRequest, context: CycleContext) -> Answer | None:
        world.clock.advance(LONGEST_S / 2.5)
        handled.append((cycles[0], request.actor))
        return original(self, request, context)

    monkeypatch.setattr(RequestHandler, "_handle", slow)
    made = [ask(world, "nowhere", "mallory") for _ in range(9)]
    made += [ask(world, "nowhere", "ann"), world.store.add_request("resume", None, "ann", world.clock.now())]
    while len(handled) < len(made):
        cycles[0] += 1
        assert world.tick().in_arrears is (len(handled) < len(made))
        assert cycles[0] <= len(made)
    assert sum(cycle == 1 for cycle, _ in handled) <= 4
    assert (1, "ann") in handled[:3]
    assert all(answer(world, each) for each in made)
    assert 3 <= cycles[0] <= 5
