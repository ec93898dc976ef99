"""The cluster that a chaos schedule begins with, its users' jobs and its configuration, drawn from the seed."""

from __future__ import annotations

from collections.abc import Collection
from random import Random
from typing import Any

from clearway.config.configuration import Config
from clearway.simulation.jobs import Program
from tests.simulation.chaos_world import ChaosWorld
from tests.simulation.world import SAVES
from tests.simulation.world import config as made

# Kinds of faults; a schedule draws from those that are switched on.
KILL, STOP, SLOW, FAILING, PARTIAL, DATABASE, CLOCK, TWO, USERS, PROTECT, BUDGET, NODES, PROMISES = KINDS = (
    "kill", "stop", "slow", "failing", "partial", "database", "clock", "two", "users", "protect", "budget", "nodes",
    "promises",
)  # fmt: skip
PEOPLE = ("ann", "bea", "cem")


class Scene:
    """What is there; ``settings`` are what the configuration file says."""

    def __init__(self, random: Random, kinds: Collection[str], world: ChaosWorld) -> None:
        self.random, self.kinds, self.world = random, kinds, world
        self.settings = self._draw_settings()

    def _draw_settings(self) -> dict[str, Any]:
        r = self.random
        budget = r.choice((None, None, 1, 2, 3)) if BUDGET in self.kinds else None
        return {
            "mode": r.choice(("automatic",) * 6 + ("approve",)),
            "budget": {} if budget is None else {"jobs_per_hour": budget},
            "candidates": {
                "min_runtime": 0,
                "allow_cancel": r.random() < 0.5,
                "allow_suspend": r.random() < 0.5,
                "max_preemptions": r.choice((1, 3)),
                "protected_users": ["vip"],
            },
            "execution": {
                "kill_allowance": r.choice(("2s", "6s")),
                "late_checkpoint": r.choice(("kill", "wait")),
                "placement_grace": "60s",
                "watch_return": "20s",
            },
        }

    def config(self) -> Config:
        sections = {name: keys for name, keys in self.settings.items() if name != "mode"}
        return made(
            self.settings["mode"],
            daemon={"mode": self.settings["mode"]},
            planning={"steps": 6},
            drain={"patience": "30s"},
            promises={"hold": "40s", "spare": "5s"},
            **sections,
        )

    def furnish(self) -> None:
        nodes = list(self.world.cluster.nodes)
        while nodes:
            size = min(len(nodes), self.random.choice((1, 1, 2, 3)))
            on, nodes = tuple(nodes[:size]), nodes[size:]
            if self.random.random() < 0.9:
                self.submit(on=on, num_nodes=size, ran_s=self.random.uniform(10, 2_000))

    def submit(self, **fields: Any) -> None:
        r = self.random
        saves = r.random() < 0.6
        program = Program(
            work_s=r.choice((20.0, 100.0, 5_000.0)) + fields.get("ran_s", 0.0),
            save_s=r.choice((1.0, 3.0, 12.0)) if saves else None,
            save_fails=r.random() < 0.1,
            exit_s=r.choice((0.1, 2.0)),
            requeues=saves and r.random() < 0.15,
        )
        comment = (SAVES + (",requeues=self" if program.requeues else "")) if saves else ""
        defaults = {"user": r.choice((*PEOPLE, "vip")), "requeueable": r.random() < 0.85, "memory_mib": 1_000}
        self.world.cluster.submit(program, comment=comment, **(defaults | fields))

    def urgent(self) -> None:
        size = self.random.choice((1, 2, 3, 5))
        program = Program(work_s=self.random.choice((5.0, 30.0)))
        self.world.cluster.submit(
            program, num_nodes=size, partitions=("urgent",), priority=1_000, user="ursula", memory_mib=1_000
        )
