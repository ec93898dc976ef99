"""kill -9 of the daemon between any two effects of a compaction: the end is the same, and nothing is left behind.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from typing import ClassVar

from clearway.config.configuration import Config
from clearway.model.operations import EvictionState, PreemptionState
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.moving_jobs import moving, nodes_of, serial, wide
from tests.simulation.world import World


class TestCompaction(Interruption):
    least_effects = 80
    end: ClassVar[End] = {
        "states": [EvictionState.COMPLETED],
        "preemptions": [{"1": PreemptionState.RETURNED, "2": PreemptionState.RETURNED}],
        "targets": [{"1": ("n3",), "2": ("n3", "n4")}],
        "nodes": [{"n3"}, {"n3", "n4"}, {"n3"}],
        "runs": [2, 2, 1],
        "saved": True,
        "left": [],
        "held": [],
    }

    def settings(self) -> Config:
        return moving()

    def play(self, world: World, daemon: MortalDaemon) -> End:
        """A job of one node and one of two join a third, one after another; with one kill."""

        def carry_out(kind: str) -> None:
            request_id = world.store.add_request(kind, None, "root", world.clock.now())
            for _ in range(200):
                daemon.tick(1.0)
                request = world.store.request(request_id)
                if request is not None and request.handled_at and not world.store.open_evictions():
                    assert request.eviction_id is not None, request.result
                    return
            raise AssertionError(world.describe())

        jobs = [serial(world, "n1"), wide(world, "n2", "n4"), serial(world, "n3", cpus=2)]
        serial(world, "n4", cpus=3, save_s=None)
        carry_out("compact")
        evictions = sorted(world.store.evictions(), key=lambda e: e.eviction_id)
        entries = [world.cluster.jobs[job_id] for job_id in jobs]
        return {
            "states": [e.state for e in evictions],
            "preemptions": [{p.job_id: p.state for p in e.preemptions} for e in evictions],
            "targets": [{p.job_id: e.order.nodes_after(p.job) for p in e.preemptions} for e in evictions],
            "nodes": [set(nodes) for nodes in nodes_of(world, *jobs)],
            "runs": [len(entry.runs) for entry in entries],
            "saved": all(entry.lost_s <= 2.5 for entry in entries),
            "left": world.leftovers(),
            "held": [name for name, node in world.cluster.nodes.items() if node.reason or not node.available],
        }
