"""A node of a plan is deleted, as dynamic nodes are: the urgent job is planned for anew, on others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from clearway.execution.lifecycle import is_placement
from clearway.model.cluster import JobState, Reservation
from clearway.model.operations import EvictionState
from clearway.model.outcome import OutcomeCode
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World


def delete(world: World, name: str) -> None:
    """As Slurm does: without a word to the reservation that covers it."""
    del world.cluster.nodes[name], world.cluster.free.cpus[name]
    for reservation in world.cluster.reservations.values():
        left = tuple(each for each in reservation.nodes if each != name)
        world.cluster.reservations[reservation.name] = replace(reservation, nodes=left)


def busy(world: World, *free: str) -> None:
    for number in range(1, 9):
        if f"n{number}" not in free:
            words = {"comment": SAVES} if number < 3 else {}
            save_s = 20.0 if number < 3 else None
            world.submit(Program(save_s=save_s, work_s=9_000), on=(f"n{number}",), ran_s=1_000, **words)


def test_before_its_placement_is_made(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world, "n8")

    class Vanishing(SimulatedBackend):
        def create_reservation(self, reservation: Reservation) -> None:
            if "n8" in world.cluster.nodes:
                delete(world, "n8")
            super().create_reservation(reservation)

    world.start_daemon(backend=Vanishing(world.cluster, world.clock))
    urgent = world.urgent(2)
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    first, second = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
    assert (first.state, first.outcome_code) == (EvictionState.CANCELLED, OutcomeCode.CALLED_OFF)
    assert "n8: the node is not available any more" in first.outcome
    assert not any(p.requeued_at for p in first.preemptions)
    assert sum(p.requeued_at is not None for p in second.preemptions) == 2


def test_while_jobs_save_themselves_for_it(make_world: Callable[..., World]) -> None:
    world = make_world()
    busy(world, "n8")
    urgent = world.urgent(2)
    world.run_until(lambda: any(is_placement(r) for r in world.cluster.reservations.values()), limit_s=30)
    assert "n8" in world.eviction().plan.placement_nodes
    delete(world, "n8")
    world.run_until(lambda: world.started(urgent) is not None, limit_s=120)
    gone = [p.job_id for p in world.eviction().preemptions if p.requeued_at is not None]
    assert len(gone) == 2
    assert all(world.state(job_id) is not JobState.ENDED for job_id in gone)
