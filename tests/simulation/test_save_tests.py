"""A job is asked to save itself as an eviction would, and nothing is requeued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmUnavailableError
from clearway.model.records import SaveTestEnd
from clearway.model.requests import OperatorRequest, RequestKind, RequestResult
from clearway.simulation.jobs import Program
from clearway.store.repository import Store
from tests.simulation.world import SAVES, World, config, make_world

__all__ = ["make_world"]

WELL = Program(work_s=100_000, save_s=5.0)
SETTLED_S = 100.0  # a run of that age waits for the signal


def ask(world: World, job_id: str, actor: str = "ann", *, operator: bool = False) -> int:
    document = f'{{"job_id": "{job_id}", "operator": {str(operator).lower()}}}'
    return world.store.add_request(RequestKind.TEST_PREEMPTION, None, actor, world.clock.now(), document)


def answered(world: World, request_id: int) -> OperatorRequest | None:
    request = world.store.request(request_id)
    return request if request is not None and request.handled_at else None


def signals(world: World) -> int:
    return sum(entry.asked_at is not None for entry in world.cluster.jobs.values())


def test_a_job_that_saves_itself(make_world: Callable[..., World]) -> None:
    world = make_world()
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    request = ask(world, job_id)
    world.tick()
    assert answered(world, request) is None, "it waits for the job"
    world.run_until(lambda: answered(world, request) is not None, 120)
    test = world.store.save_test(request)
    assert test is not None
    assert (test.end, test.took_s) == (SaveTestEnd.SAVED, pytest.approx(5, abs=1))
    found = answered(world, request)
    assert found is not None
    assert (found.code, found.result) == (RequestResult.DONE, test.sentence)
    assert "saved itself in" in found.result
    job = world.cluster.jobs[job_id].job
    assert (job.state, job.restart_count) == (JobState.RUNNING, 0), "nothing is requeued"
    assert world.store.evictions() == ()


@pytest.mark.parametrize(
    ("program", "end"),
    [
        (Program(work_s=100_000, save_s=5.0, save_fails=True), SaveTestEnd.FAILED),
        (Program(work_s=100_000, save_s=10_000.0), SaveTestEnd.LATE),
        (Program(work_s=120.0, save_s=10_000.0), SaveTestEnd.LEFT),
    ],
)
def test_a_job_that_does_not(make_world: Callable[..., World], program: Program, end: SaveTestEnd) -> None:
    world = make_world()
    job_id = world.submit(program, on=("n1",), ran_s=SETTLED_S, user="ann", comment=f"{SAVES},took=10")
    world.tick()
    request = ask(world, job_id)
    world.run_until(lambda: answered(world, request) is not None, 1_000)
    test = world.store.save_test(request)
    assert test is not None
    assert test.end is end
    assert test.sentence


@pytest.mark.parametrize(
    ("fields", "actor", "why"),
    [
        ({"comment": SAVES}, "bob", "is not a job of bob"),
        ({}, "ann", "does not say that it can be saved"),
        ({"comment": f"{SAVES},requeues=self"}, "ann", "requeues itself"),
        ({"comment": f"{SAVES},grace=20"}, "ann", "may end by the signal"),
        ({"comment": SAVES, "requeueable": False}, "ann", "cannot be requeued"),
        ({"comment": "clearway:checkpoint=none"}, "ann", "says that it cannot be checkpointed"),
        ({"comment": "clearway:checkpont=none"}, "ann", "cannot be read"),
        ({"comment": SAVES, "ran_s": 10.0}, "ann", "has just started"),
    ],
)
def test_what_is_refused(make_world: Callable[..., World], fields: dict[str, Any], actor: str, why: str) -> None:
    world = make_world()
    job_id = world.submit(WELL, on=("n1",), **({"ran_s": SETTLED_S, "user": "ann"} | fields))
    world.tick()
    request = ask(world, job_id, actor)
    world.tick()
    found = answered(world, request)
    assert found is not None
    assert found.refused
    assert why in found.result
    assert signals(world) == 0
    assert world.store.save_test(request) is None


def test_an_operator_may_test_jobs_of_others(make_world: Callable[..., World]) -> None:
    world = make_world()
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    request = ask(world, job_id, "olga", operator=True)
    world.run_until(lambda: answered(world, request) is not None, 120)
    test = world.store.save_test(request)
    assert test is not None
    assert test.end is SaveTestEnd.SAVED


def test_one_at_a_time_and_not_again_at_once(make_world: Callable[..., World]) -> None:
    world = make_world()
    jobs = [world.submit(WELL, on=(f"n{n}",), ran_s=SETTLED_S, user="ann", comment=SAVES) for n in (1, 2)]
    world.tick()
    first, same, other = (ask(world, job_id) for job_id in (jobs[0], jobs[0], jobs[1]))
    world.tick()
    for request, why in ((same, "being tested already"), (other, "one at a time")):
        found = answered(world, request)
        assert found is not None
        assert why in found.result
    world.run_until(lambda: answered(world, first) is not None, 120)
    again = ask(world, jobs[0])
    world.tick()
    found = answered(world, again)
    assert found is not None
    assert "ask again in" in found.result


def test_a_job_that_an_eviction_has_chosen_is_refused(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=1)
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.urgent(1)
    world.tick()
    request = ask(world, job_id)
    world.tick()
    found = answered(world, request)
    assert found is not None
    assert "under way" in found.result


@pytest.mark.parametrize("how", ["observe", "pause", "halt"])
def test_nothing_is_sent_where_nothing_may_be_done(make_world: Callable[..., World], how: str) -> None:
    world = make_world(config=config("observe" if how == "observe" else "automatic"))
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    if how != "observe":
        world.store.add_request(RequestKind(how), None, "olga", world.clock.now())
    request = ask(world, job_id)
    world.tick()
    found = answered(world, request)
    assert found is not None
    assert found.refused
    assert signals(world) == 0


class DiesAfterIntent:
    """A store whose daemon dies as soon as the intent of a test is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name != "create_save_test":
            return getattr(self._store, name)

        def create(test: Any) -> None:
            self._store.create_save_test(test)
            raise KeyboardInterrupt

        return create


def test_a_daemon_that_died_after_the_intent_does_not_ask_again(make_world: Callable[..., World]) -> None:
    world = make_world()
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    request = ask(world, job_id)
    world.store.close()
    world.start_daemon(fuse=DiesAfterIntent)
    with pytest.raises(KeyboardInterrupt):
        world.tick()
    world.store.close()
    world.start_daemon()
    world.run_until(lambda: answered(world, request) is not None, 1_000)
    test = world.store.save_test(request)
    assert test is not None
    assert test.end is SaveTestEnd.NOT_ASKED
    assert signals(world) == 0


def test_a_signal_of_which_it_is_not_known_whether_it_came(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not sent again; what the job says counts."""
    world = make_world()
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    send, sent = world.backend.signal, 0

    def signal(*arguments: Any, **named: Any) -> None:
        nonlocal sent
        sent += 1
        send(*arguments, **named)
        raise SlurmUnavailableError("no answer")

    monkeypatch.setattr(world.backend, "signal", signal)
    request = ask(world, job_id)
    world.run_until(lambda: answered(world, request) is not None, 120)
    test = world.store.save_test(request)
    assert test is not None
    assert (test.end, test.asked, sent) == (SaveTestEnd.SAVED, False, 1)


def test_an_eviction_meanwhile_goes_its_way(make_world: Callable[..., World]) -> None:
    world = make_world(node_count=1)
    job_id = world.submit(WELL, on=("n1",), ran_s=SETTLED_S, user="ann", comment=SAVES)
    world.tick()
    request = ask(world, job_id)
    world.tick()
    urgent = world.urgent(1, work_s=30)
    world.run_until(lambda: world.started(urgent) is not None, 300)
    world.run_until(lambda: answered(world, request) is not None, 300)
    test = world.store.save_test(request)
    assert test is not None
    assert test.end in (SaveTestEnd.SAVED, SaveTestEnd.LEFT)
