"""The cluster that a chaos schedule begins with, its users' jobs, its configuration and its climate: from the seed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any

from clearway.config.configuration import Config
from clearway.model.cluster import JobState, Reservation
from clearway.model.limits import Association, Cap, LimitKind, Limits, Partition, Qos
from clearway.simulation.jobs import Ills, Program, SimulatedJob
from clearway.simulation.scheduler import Rules
from tests.simulation.chaos_world import ChaosWorld
from tests.simulation.world import SAVES
from tests.simulation.world import config as made

# Kinds of faults; a schedule draws from those that are switched on.
(
    KILL, STOP, SLOW, FAILING, PARTIAL, DATABASE, CLOCK, TWO, USERS, PROTECT, BUDGET, NODES, PROMISES, CHANGES, CLIMATE,
    SHAPES, LIMITED, MARKED,
) = KINDS = (
    "kill", "stop", "slow", "failing", "partial", "database", "clock", "two", "users", "protect", "budget", "nodes",
    "promises", "changes", "climate", "shapes", "limited", "marked",
)  # fmt: skip
PEOPLE = ("ann", "bea", "cem")
EVERYBODY = (*PEOPLE, "vip", "ursula", "uwe", "petra", "beam")
MAINTENANCE = "maintenance"
MARK = "clearway:checkpoint=signal,signal=USR1,to=batch,grace=20"  # for --signal and --requeue: it gives no answer


@dataclass(frozen=True, kw_only=True)
class Climate:
    """What is wrong, or just so, for as long as the schedule lasts."""

    ills: Ills = field(default_factory=Ills)
    slow_s: float = 0.0  # what each command takes
    deaf: float = 0.0  # so often a command's answer does not come, whether it was carried out or not
    plan_s: float = 0.0
    store_s: float = 0.0  # what each call to the database takes
    name: str = "fair"
    loses_nodes: bool = False


class Scene:
    """What is there; ``settings`` are what the configuration file says."""

    def __init__(self, random: Random, kinds: Collection[str], world: ChaosWorld) -> None:
        self.random, self.kinds, self.world = random, kinds, world
        self.settings = self._draw_settings()
        self.max_delay = random.choice(("20s", "60s", "300s", "300s"))
        self.shared = SHAPES in kinds and random.random() < 0.35
        self.gpus = self.shared and random.random() < 0.4
        self.climate = self._draw_climate() if CLIMATE in kinds else Climate()
        world.cluster.rules = self._draw_rules()
        if self.gpus:
            world.equip((("a100", 2),))
        world.cluster.licenses = {"matlab": 2}
        world.cluster.limits = self._draw_limits()

    def _draw_climate(self) -> Climate:
        """Mostly fair, else one thing that is wrong all the time."""
        r, nodes = self.random, list(self.world.cluster.nodes)
        some = r.sample(nodes, r.choice((3, len(nodes), len(nodes))))
        bad: tuple[tuple[float, Climate], ...] = (
            (6.0, Climate()),
            (1.5, Climate(name="epilogs", loses_nodes=True, ills=Ills(epilogs=dict.fromkeys(some, "Epilog error")))),
            (0.5, Climate(name="prologs", ills=Ills(prologs=set(some[:3])))),
            (
                0.7,
                Climate(
                    name="hangs",
                    loses_nodes=True,
                    ills=Ills(epilogs=dict.fromkeys(some, "Kill task failed"), hangs=dict.fromkeys(some, 60.0)),
                ),
            ),
            (0.7, Climate(name="slow", slow_s=r.choice((0.5, 3.0)))),
            (0.6, Climate(name="deaf", deaf=0.15)),
            (0.6, Climate(name="slow plans", plan_s=r.choice((1.0, 5.0)))),
            (0.5, Climate(name="slow database", store_s=r.choice((0.02, 0.1)))),
        )
        weights, climates = zip(*bad, strict=True)
        return r.choices(climates, weights)[0]

    def _draw_rules(self) -> Rules:
        r = self.random
        first = r.choice((1, 1, 1_000))
        return Rules(
            strict=True,
            every_s=r.choice((0.0, 0.0, 3.0, 30.0)) if CLIMATE in self.kinds else 0.0,
            over_time_limit_s=r.choice((0.0, 0.0, 60.0)),
            limits_every_s=r.choice((0.0, 30.0)),
            first_job_id=first,
            last_job_id=2**26 if first == 1 else first + 60,
        )

    def _draw_limits(self) -> Limits:
        partitions = {name: Partition(name=name) for name in ("batch", "urgent")}
        if LIMITED not in self.kinds or self.random.random() < 0.8:
            return Limits(partitions=partitions, sub_accounts=False)
        caps = {(LimitKind.USER, "jobs"): Cap(self.random.choice((1, 2)))}
        return Limits(
            enforced=True,
            sub_accounts=False,
            partitions=partitions,
            qos={"normal": Qos(name="normal"), "low": Qos(name="low", caps=caps)},
            associations=(
                *(Association(account=name) for name in ("a", "b")),
                *(
                    Association(account=account, user=user, uid=1_000 + number)
                    for number, user in enumerate(EVERYBODY)
                    for account in ("a", "b")
                ),
            ),
            users=frozenset(EVERYBODY),
        )

    def _draw_settings(self) -> dict[str, Any]:
        """Half of the sites let jobs leave as they must: there most is done."""
        r = self.random
        strict = r.random() < 0.5
        budget = r.choice((None, None, 1, 2, 3)) if strict and BUDGET in self.kinds else None
        return {
            "mode": r.choice(("automatic",) * 3 + ("approve",)) if strict else "automatic",
            "budget": {} if budget is None else {"jobs_per_hour": budget},
            "candidates": {
                "min_runtime": 0,
                "allow_cancel": r.random() < 0.5,
                "allow_suspend": strict and r.random() < 0.6,
                "max_preemptions": r.choice((1, 3)) if strict else 3,
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
            preemptors=[{"partition": ["urgent"], "max_delay": self.max_delay}],
            planning={"steps": 6},
            drain={"patience": "30s"},
            promises={"hold": "40s", "spare": "5s"},
            **sections,
        )

    def furnish(self) -> None:
        world, r = self.world, self.random
        world.cluster.next_id = world.cluster.rules.first_job_id + (50 if world.cluster.rules.first_job_id > 1 else 0)
        nodes = list(world.cluster.nodes)
        while nodes:
            size = min(len(nodes), r.choice((1, 1, 2, 3)))
            on, nodes = tuple(nodes[:size]), nodes[size:]
            if r.random() < 0.95:
                self._occupy(on)
        if SHAPES in self.kinds and r.random() < 0.2:
            start = world.clock.now() + timedelta(seconds=r.choice((0, 200)))
            world.cluster.reservations[MAINTENANCE] = Reservation(
                name=MAINTENANCE, nodes=("n10",), start_time=start, end_time=start + timedelta(days=1), users=("root",)
            )

    def fill(self) -> None:
        """A job that may leave on each node that is free."""
        cluster = self.world.cluster
        reserved = {name for r in cluster.reservations.values() for name in r.nodes}
        # These jobs have run for a while: they cannot have begun where another one stands suspended since.
        reserved |= {n for e in cluster.jobs.values() if e.job.state is JobState.SUSPENDED for n in e.job.nodes}
        for name, node in cluster.nodes.items():
            if node.available and name not in reserved and cluster.free.cpus[name] == node.cpus:
                program = Program(work_s=10_000.0, exit_s=0.1)
                self._queue(program, on=(name,), ran_s=100.0, user="ann", memory_mib=1_000, account="a", qos="normal")

    def _occupy(self, on: tuple[str, ...]) -> None:
        """One job on all of these nodes, or small ones on the first."""
        if self.shared and self.random.random() < 0.5:
            for _ in range(self.random.choice((1, 2, 3))):
                self.submit(on=on[:1], cpus_per_node=1, ran_s=self.random.uniform(10, 2_000))
        else:
            self.submit(on=on, num_nodes=len(on), ran_s=self.random.uniform(10, 2_000))

    def submit(self, **fields: Any) -> None:
        r = self.random
        saves = r.random() < 0.6
        marked = saves and MARKED in self.kinds and r.random() < 0.25
        program = Program(
            work_s=r.choice((20.0, 100.0, 5_000.0)) + fields.get("ran_s", 0.0),
            save_s=r.choice((1.0, 3.0, 12.0)) if saves else None,
            save_fails=r.random() < 0.1,
            exit_s=r.choice((0.1, 2.0)),
            requeues=saves and r.random() < 0.15,
            ends=r.choice(("COMPLETED", "FAILED", "")) if marked else "",
        )
        comment = (SAVES + (",requeues=self" if program.requeues else "")) if saves else ""
        comment = MARK if marked else comment
        defaults: dict[str, Any] = {
            "user": r.choice((*PEOPLE, *PEOPLE, "vip")),
            "requeueable": marked or r.random() < 0.9,
            "memory_mib": 1_000,
            "account": "a",
            "qos": r.choice(("normal", "normal", "low")),
        }
        if r.random() < 0.4:  # some of these end while others wait for them
            defaults["time_limit_s"] = int(fields.get("ran_s", 0.0)) + r.choice((40, 150, 150, 3_600))
        if SHAPES in self.kinds and "on" not in fields and r.random() < 0.3:
            defaults |= self._shape()
        entry = self._queue(program, comment=comment, **(defaults | fields))
        limit_s = entry.job.time_limit_s
        if limit_s is not None and r.random() < 0.25:  # it ends in time as it runs, and not where it begins again
            entry.job = replace(entry.job, deadline=entry.job.submit_time + timedelta(seconds=limit_s + 60))

    def _shape(self) -> dict[str, Any]:
        """An array, a heterogeneous job, or a part of a node."""
        r, next_id = self.random, str(self.world.cluster.next_id)
        if self.shared and r.random() < 0.5:
            return {"cpus_per_node": r.choice((1, 2)), "gpus": (("a100", 1),) if self.gpus else ()}
        if r.random() < 0.8:
            return {"pending_tasks": r.choice((2, 3)), "array_limit": r.choice((0, 1))}
        return {"het_job_id": next_id, "het_job_offset": 0}

    def _queue(self, program: Program, **fields: Any) -> SimulatedJob:
        world = self.world
        job_id = world.cluster.submit(program, **fields)
        if world.cluster.jobs[job_id].job.het_job_id is not None:
            world.cluster.jobs[job_id].job = replace(world.cluster.jobs[job_id].job, het_job_id=job_id)
            world.cluster.submit(program, **(fields | {"het_job_id": job_id, "het_job_offset": 1}))
        world.witness.look()
        return world.cluster.jobs[job_id]

    def urgent(self) -> None:
        r = self.random
        program = Program(work_s=r.choice((5.0, 30.0)))
        fields: dict[str, Any] = {
            "num_nodes": r.choice((1, 1, 2, 2, 3, 5)),
            "partitions": r.choice((("urgent",),) * 4 + (("batch", "urgent"),)),
            "user": r.choice(("ursula", "ursula", "uwe")),
            "account": "a",
            "qos": r.choice(("normal", "normal", "normal", "low")),
        }
        if r.random() < 0.5:
            fields["time_limit_s"] = 120
        if SHAPES in self.kinds and r.random() < 0.3:
            fields |= self._shape()
        self._queue(program, priority=1_000, memory_mib=1_000, **fields)

    def last_urgent(self) -> str:
        """A small one that comes when all faults are over: where there is room, it must run."""
        entry = self._queue(
            Program(work_s=5.0), partitions=("urgent",), priority=2_000, user="petra", account="a", qos="normal",
            memory_mib=1_000,
        )  # fmt: skip
        return entry.job.job_id
