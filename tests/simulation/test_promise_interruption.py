"""kill -9 of the daemon between any two effects of promises, from the request to the end: the end is the same.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from typing import ClassVar

from clearway.config.configuration import Config
from clearway.model.operations import EvictionState, PreemptionState, Promise
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.promised import ask, ask_to_cancel
from tests.simulation.world import SAVES, World, config


class TestPromise(Interruption):
    least_effects = 60
    end: ClassVar[End] = {
        "states": [EvictionState.COMPLETED, EvictionState.CANCELLED],
        "codes": [OutcomeCode.KEPT, OutcomeCode.CANCELLED],
        "preemptions": [
            {"1": (Action.APP_CHECKPOINT, PreemptionState.RETURNED), "2": (Action.KILL, PreemptionState.RETURNED)},
            {},
        ],
        "runs": [2, 2, 1, 1],
        "away": True,
        "saved": True,
        "left": [],
    }

    def settings(self) -> Config:
        return config(promises={"hold": "60s", "spare": "10s"}, execution={"kill_allowance": "6s"})

    def play(self, world: World, daemon: MortalDaemon) -> End:
        """Three nodes are promised, of which one job saves itself and one is killed; another promise is cancelled."""
        jobs = [
            world.submit(Program(save_s=3, work_s=5_000), on=("n1",), ran_s=900, comment=SAVES),
            world.submit(Program(work_s=5_000), on=("n2",), ran_s=40),
            world.submit(Program(work_s=5_000), on=("n3",), ran_s=10, time_limit_s=60),
        ]
        for number in range(4, 9):
            world.submit(Program(work_s=9_000), on=(f"n{number}",), ran_s=4_000)
        kept = ask(world, 3, 90, duration_s=120)
        cancelled = ask(world, 1, 95)
        asked_to: set[int] = set()
        for _ in range(600):
            daemon.tick(1.0)
            found = {e.order.request_id: e for e in world.store.evictions() if isinstance(e, Promise)}
            other = found.get(cancelled)
            if other is not None and other.placement and not asked_to:
                asked_to.add(ask_to_cancel(world, other))
            if kept in found and found[kept].started_at and len(jobs) == 3:
                jobs.append(
                    world.submit(Program(work_s=30), num_nodes=3, user="beam", reservation=found[kept].placement)
                )
            if len(jobs) == 4 and not world.store.open_evictions():
                break
        else:
            raise AssertionError(world.describe())
        promises = [found[kept], found[cancelled]]
        entries = [world.cluster.jobs[job_id] for job_id in jobs]
        return {
            "states": [e.state for e in promises],
            "codes": [e.outcome_code for e in promises],
            "preemptions": [{p.job_id: (p.action, p.state) for p in e.preemptions} for e in promises],
            "runs": [len(entry.runs) for entry in entries],
            "away": set(entries[3].runs[0]) == set(promises[0].plan.placement_nodes),
            "saved": entries[0].lost_s <= 1.5,
            "left": world.leftovers(),
        }
