"""A daemon of any older schema may end in the middle of an eviction: the present one migrates, and carries it on."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.model.operations import EvictionState as E
from clearway.model.operations import PreemptionState as P
from clearway.simulation.jobs import Program
from clearway.store import migrate
from clearway.store.database import open_database
from tests.simulation.bad_days import busy, finish
from tests.simulation.world import World

REVISIONS = tuple(f"{number:04}" for number in range(1, int(migrate.HEAD) + 1))


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("state", [P.CHECKPOINTING, P.VACATING, P.QUEUED])
def test_evictions_under_way_are_carried_on(tmp_path: Path, revision: str, state: P) -> None:
    """Jobs that save themselves, that leave, or that wait to run again when the older daemon ends."""
    world = World(f"sqlite:///{tmp_path}/store.sqlite")
    jobs = busy(world, Program(save_s=3.0))
    urgent = world.urgent(2)
    world.run_until(
        lambda: bool(world.store.evictions()) and any(p.state is state for p in world.eviction().preemptions)
    )
    before = world.eviction()
    world.store.close()
    database = open_database(world.store_url)
    if revision != migrate.HEAD:
        migrate.downgrade(database, revision)
    assert migrate.current_revision(database) == revision
    database.engine.dispose()

    world.start_daemon()

    after = world.eviction()
    assert (after.state, after.placement) == (before.state, before.placement)
    assert [(p.job_id, p.action, p.state) for p in after.preemptions] == [
        (p.job_id, p.action, p.state) for p in before.preemptions
    ]
    if before.state.before_start:
        finish(world, urgent)
    else:
        world.run_until(lambda: world.eviction().state is E.COMPLETED)
    touched = {p.job_id for p in world.eviction().preemptions}
    assert all(len(world.cluster.jobs[each].runs) == 1 for each in jobs if each not in touched)
    assert all(len(world.cluster.jobs[each].runs) <= 2 for each in touched), "no job was requeued twice"
