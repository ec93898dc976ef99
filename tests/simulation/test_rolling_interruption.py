"""kill -9 of the daemon between any two effects of a rolling drain: the same nodes were emptied, and no more at once.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from clearway.drain.request import DrainRequest, UndrainRequest
from clearway.model.orders import RollingState, TurnState
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import SAVES, World

AT_ONCE = 2


class TestRollingDrain(Interruption):
    # What a drain's own steps are interrupted by is in ``test_drain_interruption``: here it is the order's.
    changes = ("drain", "undrain")
    writes = ("create_rolling_drain", "save_rolling_drain", "create_eviction", "finish_request")
    least_effects = 50
    end: ClassVar[End] = {
        "states": [RollingState.COMPLETED, RollingState.CANCELLED],
        "turns": [
            {"n1": TurnState.OVER, "n2": TurnState.OVER, "n3": TurnState.SKIPPED, "n4": TurnState.OVER},
            dict.fromkeys(("n5", "n6", "n7"), TurnState.SKIPPED),
        ],
        "restarts": [1, 1, 0, 0],
        "saved": True,
        "held": [],
        "most": AT_ONCE,
    }

    def play(self, world: World, daemon: MortalDaemon) -> End:
        """Four nodes, two at once, one with a job in the way; then another order, cancelled while it empties."""
        most = 0

        def tick() -> None:
            nonlocal most
            daemon.tick(1.0)
            most = max(most, len(held()))

        def held() -> list[str]:
            return sorted(name for name, node in world.cluster.nodes.items() if node.drained)

        def turns(number: int) -> dict[str, TurnState]:
            found = [each for each in world.store.rolling_drains() if each.rolling_id == number]
            return {turn.node: turn.state for each in found for turn in each.turns}

        def run_until(done: Callable[[], bool]) -> None:
            for _ in range(300):
                if done():
                    return
                tick()
            raise AssertionError(world.describe())

        jobs = [
            world.submit(Program(save_s=3.0, work_s=2_500), on=on, num_nodes=len(on), ran_s=900, comment=SAVES)
            for on in (("n1", "n2"), ("n4",), ("n6",))
        ]
        stuck = world.submit(on=("n3",), ran_s=40)
        wish = DrainRequest(nodes="n[1-4]", rolling=AT_ONCE)
        world.store.add_request("drain", None, "root", world.clock.now(), wish.model_dump_json())
        back: set[str] = set()
        for _ in range(200):
            tick()
            away = [name for name, state in turns(1).items() if state is TurnState.AWAY and name not in back]
            if away:
                back.add(away[0])
                document = UndrainRequest(nodes=away[0]).model_dump_json()
                world.store.add_request("undrain", None, "root", world.clock.now(), document)
            if world.store.rolling_drains() and world.store.rolling_drains()[0].state.terminal:
                break
        wish = DrainRequest(nodes="n[5-7]", rolling=AT_ONCE)
        world.store.add_request("drain", None, "root", world.clock.now(), wish.model_dump_json())
        run_until(lambda: TurnState.EMPTYING in turns(2).values())
        world.store.add_request("cancel_rolling", None, "root", world.clock.now(), rolling_id=2)
        run_until(lambda: world.store.rolling_drains()[0].state.terminal and world.settled())
        orders = sorted(world.store.rolling_drains(), key=lambda each: each.rolling_id)
        return {
            "states": [each.state for each in orders],
            "turns": [turns(1), turns(2)],
            "restarts": [world.cluster.jobs[job_id].job.restart_count for job_id in (*jobs, stuck)],
            "saved": all(world.cluster.jobs[job_id].lost_s <= 2.0 for job_id in jobs),
            "held": held(),
            "most": most,
        }
