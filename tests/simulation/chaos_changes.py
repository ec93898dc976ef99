"""What ``scontrol update`` may set on jobs, partitions and nodes, set at random by owners and administrators.

Most of it while jobs leave: ``Schedule`` calls ``_change_urgent`` between any two steps of a daemon as well.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError
from clearway.model.problem import Action
from clearway.simulation.updates import update_job, update_node, update_partition
from tests.simulation.chaos_people import People

ADMINISTRATORS_REASON = "disk"
_LIMITS_S = (20, 60, 300, 3_600, None)
OF_WAITING = (
    "eligible_time", "dependency", "held", "time_limit_s", "partitions", "qos", "account", "requeueable", "num_nodes",
    "nice", "priority", "comment", "excluded_nodes", "required_nodes", "licenses", "deadline",
)  # fmt: skip
OF_RUNNING = ("time_limit_s", "requeueable", "nice", "priority", "comment")
OF_PARTITION = ("state", "max_time_s", "max_nodes", "allow_accounts", "deny_accounts", "allow_qos")


class Changes(People):
    def _change_job(self) -> None:
        waiting, running = self._jobs(JobState.PENDING), self._jobs(JobState.RUNNING)
        if waiting and self.random.random() < 0.6:
            self._update(self.random.choice(waiting), self.random.choice(OF_WAITING))
        elif running:
            planned = {p.job_id for e in self.world.store.open_evictions() for p in e.preemptions}
            of_plans = [entry for entry in running if entry.job.job_id in planned]
            among = of_plans if of_plans and self.random.random() < 0.7 else running
            self._update(self.random.choice(among), self.random.choice(OF_RUNNING))

    def _extend(self) -> None:
        """An administrator gives more time to a job on whose end a plan counts."""
        ends = {p.job_id for e in self.world.store.open_evictions() for p in e.preemptions if p.action is Action.END}
        if counted := [entry for entry in self._jobs(JobState.RUNNING) if entry.job.job_id in ends]:
            self._update(self.random.choice(counted), "time_limit_s", self.random.choice((3_600, None)))
        else:
            self._change_job()

    def _change_urgent(self) -> None:
        if waiting := self._urgent_waiting():
            self._update(self.random.choice(waiting), self.random.choice(OF_WAITING))

    def _urgent_waiting(self) -> list[Any]:
        return [e for e in self._jobs(JobState.PENDING) if "urgent" in e.job.partitions]

    def _update(self, entry: Any, name: str, *given: Any) -> None:
        world, job_id = self.world, entry.job.job_id
        value = given[0] if given else self._value(entry, name)
        world.log(f"update job {job_id} {name}={value}")
        with world.witness.somebody_changes(job_id):
            try:
                update_job(world.cluster, job_id, **{name: value})
            except SlurmRefusedError as error:
                world.log(str(error))

    def _value(self, entry: Any, name: str) -> Any:
        r, job, now = self.random, entry.job, self.world.clock.now()
        nodes, jobs = list(self.world.cluster.nodes), list(self.world.cluster.jobs)
        drawn: dict[str, Any] = {
            "eligible_time": now + timedelta(seconds=r.choice((0, 5, 60, 120))),
            "dependency": r.choice(("", f"afterok:{r.choice(jobs)}", f"afterany:{r.choice(jobs)}")),
            "held": "" if job.priority == 0 else r.choice(("user", "admin")),
            "time_limit_s": r.choice(_LIMITS_S),
            "partitions": r.choice((("batch",), ("urgent",), ("batch", "urgent"), ("urgent", "batch"))),
            "qos": r.choice(("normal", "low")),
            "account": r.choice(("a", "b")),
            "requeueable": not job.requeueable,
            "num_nodes": r.choice((1, 2, 3, 4, 12)),
            "nice": r.choice((0, 50, 100)),
            "priority": r.choice((200, 5_000, 77_777)),
            "comment": f"{job.comment},seen" if job.comment else "mine",
            "excluded_nodes": r.choice(((), tuple(r.sample(nodes, 2)))),
            "required_nodes": r.choice(((), (r.choice(nodes),))),
            "licenses": r.choice(("", "matlab:1", "matlab:2")),
            "deadline": now + timedelta(seconds=r.choice((100, 600))),
        }
        return drawn[name]

    def _change_partition(self) -> None:
        r, world = self.random, self.world
        name, what = r.choice(("batch", "urgent", "urgent")), r.choice(OF_PARTITION)
        drawn: dict[str, Any] = {
            "state": r.choice(("UP", "UP", "DOWN", "DRAIN", "INACTIVE")),
            "max_time_s": r.choice((None, 60, 3_600)),
            "max_nodes": r.choice((None, 2)),
            "allow_accounts": r.choice((None, frozenset({"b"}))),
            "deny_accounts": r.choice((frozenset(), frozenset({"a"}))),
            "allow_qos": r.choice((None, frozenset({"low"}))),
        }
        world.log(f"update partition {name} {what}={drawn[what]}")
        with world.witness.somebody_changes():
            update_partition(world.cluster, name, **{what: drawn[what]})

    def _change_node(self) -> None:
        """An administrator drains a node, or brings back what was drained for a fault."""
        world = self.world
        name = self.random.choice(list(world.cluster.nodes))
        node = world.cluster.nodes[name]
        if node.available:
            self._administer(name, "DRAIN", ADMINISTRATORS_REASON)
        elif node.reason == ADMINISTRATORS_REASON:
            self._administer(name, "RESUME")

    def _administer(self, name: str, state: str, reason: str = "") -> None:
        self.world.log(f"update node {name} {state} {reason}")
        self.world.witness.administered[name] = reason
        with self.world.witness.somebody_changes():
            update_node(self.world.cluster, name, state, reason)

    def _all_as_usual(self) -> None:
        """Partitions take jobs again, no job is held or waits for anything but nodes."""
        world = self.world
        with world.witness.somebody_changes():
            for name in ("batch", "urgent"):
                update_partition(
                    world.cluster, name, state="UP", max_time_s=None, max_nodes=None, allow_accounts=None,
                    deny_accounts=frozenset(), allow_qos=None,
                )  # fmt: skip
            for entry in self._jobs(JobState.PENDING):
                self._as_usual(entry)
            for name, node in world.cluster.nodes.items():
                if not node.available and not node.reason.startswith("clearway"):
                    self._administer(name, "RESUME")

    def _as_usual(self, entry: Any) -> None:
        """Nothing but nodes may be what it waits for; with the requeue's own delay it is left alone."""
        update: dict[str, Any] = {"dependency": "", "licenses": ""}
        if entry.job.priority == 0:
            update["held"] = ""
        if entry.job.job_id in self.world.witness.told_to_wait:
            update["eligible_time"] = self.world.clock.now()
        # What it waits for no more may let another one start, too.
        with self.world.witness.somebody_changes(entry.job.job_id), suppress(SlurmRefusedError):
            update_job(self.world.cluster, entry.job.job_id, **update)
