"""kill -9 of the daemon between any two effects of a drain, from its request to the nodes' return: the end is the same.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from clearway.drain.request import DrainRequest, UndrainRequest
from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import SAVES, World


class TestDrain(Interruption):
    least_effects = 60
    end: ClassVar[End] = {
        "states": [EvictionState.COMPLETED, EvictionState.CANCELLED],
        "preemptions": [
            {
                "1": (Action.APP_CHECKPOINT, PreemptionState.RETURNED),
                "2": (Action.KILL, PreemptionState.RETURNED),
                "3": (Action.END, PreemptionState.ENDED),
            },
            {},
        ],
        "runs": {"saver": 2, "killed": 2, "ending": 1, "stuck": 1},
        "away": True,
        "saved": True,
        "held": ["n1", "n2", "n4"],
        "left": ["n4"],
    }

    def play(self, world: World, daemon: MortalDaemon) -> End:
        """Two drains, one of which is refused by a job, and the return of the nodes; with one kill."""

        def run_until(done: Callable[[], bool]) -> None:
            for _ in range(200):
                daemon.tick(1.0)
                if done():
                    return
            raise AssertionError(world.describe())

        def ask(kind: str, document: str) -> int:
            return world.store.add_request(kind, None, "root", world.clock.now(), document)

        def emptied(request_id: int) -> bool:
            request = world.store.request(request_id)
            if request is None or request.eviction_id is None:
                return False
            eviction = world.store.eviction(request.eviction_id)
            return eviction.started_at is not None or eviction.state.terminal

        saver = world.submit(Program(save_s=3.0, work_s=1_500), on=("n1", "n3"), num_nodes=2, ran_s=900, comment=SAVES)
        killed = world.submit(Program(exit_s=2.0), on=("n2",), ran_s=40)
        ending = world.submit(on=("n4",), ran_s=592, time_limit_s=600)
        stuck = world.submit(on=("n8",), ran_s=40)
        deadline = world.clock.now() + timedelta(seconds=90)
        forced = ask("drain", DrainRequest(nodes="n[1-2],n4", force=True, deadline=deadline).model_dump_json())
        refused = ask("drain", DrainRequest(nodes="n[7-8]").model_dump_json())
        run_until(lambda: emptied(forced) and emptied(refused) and world.settled())
        held = sorted(name for name, node in world.cluster.nodes.items() if node.drained)
        undrained = ask("undrain", UndrainRequest(nodes="n[1-2]").model_dump_json())
        run_until(lambda: bool((request := world.store.request(undrained)) and request.handled_at))
        evictions = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
        jobs = {"saver": saver, "killed": killed, "ending": ending, "stuck": stuck}
        entries = {name: world.cluster.jobs[job_id] for name, job_id in jobs.items()}
        return {
            "states": [e.state for e in evictions],
            "preemptions": [{p.job_id: (p.action, p.state) for p in e.preemptions} for e in evictions],
            "runs": {name: len(entry.runs) for name, entry in entries.items()},
            "away": not any(
                set(e.runs[-1]) & {"n1", "n2", "n4"} for n, e in entries.items() if n in ("saver", "killed")
            ),
            "saved": entries["saver"].lost_s <= 1.5,
            "held": held,
            "left": sorted(name for name, node in world.cluster.nodes.items() if node.drained),
        }
