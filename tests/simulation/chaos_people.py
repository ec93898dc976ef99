"""What users, administrators and operators do in a chaos schedule."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from clearway.drain.request import DrainRequest
from clearway.model.cluster import JobState
from clearway.model.operations import EvictionState
from clearway.promise.request import PromiseRequest
from clearway.simulation.updates import hold, release
from tests.simulation.chaos_scene import PEOPLE, Scene
from tests.simulation.chaos_world import ChaosWorld


class People:
    """Each event is something that somebody does."""

    random: Random
    world: ChaosWorld
    scene: Scene

    def _cycles(self) -> None:
        raise NotImplementedError

    def _pass_time(self) -> None:
        self.world.advance(self.random.choice((5.0, 30.0)))

    def _jobs(self, *states: JobState) -> list[Any]:
        return [e for e in self.world.cluster.jobs.values() if e.job.state in states]

    def _cancel(self) -> None:
        if found := self._jobs(JobState.PENDING, JobState.RUNNING):
            self._withdraw(self.random.choice(found))

    def _cancel_urgent(self) -> None:
        waiting = [e for e in self._jobs(JobState.PENDING) if "urgent" in e.job.partitions]
        if waiting:
            self.world.log("the urgent job is cancelled")
            self._withdraw(self.random.choice(waiting))
            self._cycles()

    def _withdraw(self, entry: Any) -> None:
        if entry.job.state is JobState.PENDING:
            whole = entry.job.het_job_id  # Slurm refuses to cancel one component of a heterogeneous job that waits
            for each in self._jobs(JobState.PENDING) if whole else [entry]:
                if each is entry or each.job.het_job_id == whole:
                    self.world.cluster.withdraw(each)
        else:
            self._end_by_hand(entry, requeue=False)

    def _end_by_hand(self, entry: Any, *, requeue: bool) -> None:
        self.world.witness.ended_by_users.add(entry.job.run)
        self.world.cluster.end_run(entry, requeue=requeue)

    def _hold(self) -> None:
        """Hold a waiting job, or release it."""
        if found := self._jobs(JobState.PENDING):
            entry = self.random.choice(found)
            with self.world.witness.somebody_changes(entry.job.job_id):
                release(entry) if entry.job.priority == 0 else hold(entry)

    def _requeue(self) -> None:
        if found := [e for e in self._jobs(JobState.RUNNING) if e.job.can_be_requeued]:
            self._end_by_hand(self.random.choice(found), requeue=True)

    def _end(self) -> None:
        if found := self._jobs(JobState.RUNNING):
            self._end_by_hand(self.random.choice(found), requeue=False)

    def _ask(self, kind: str, eviction_id: int | None = None, document: str = "") -> None:
        self.world.store.add_request(kind, eviction_id, "root (command line)", self.world.clock.now(), document)  # type: ignore[arg-type]

    def _operator(self) -> None:
        open_ones = self.world.store.open_evictions()
        waiting = [e for e in open_ones if e.state is EvictionState.AWAITING_APPROVAL]
        if waiting and self.random.random() < 0.7:
            self._ask("approve", self.random.choice(waiting).eviction_id)
        elif open_ones and self.random.random() < 0.6:
            self._ask("cancel", self.random.choice(open_ones).eviction_id)
        else:
            self._ask(self.random.choice(("pause", "resume")))

    def _halt(self) -> None:
        self._ask("halt")

    def _unhalt(self) -> None:
        self._ask("unhalt")

    def _drain(self) -> None:
        names = self.random.sample(list(self.world.cluster.nodes), self.random.choice((1, 2)))
        self._ask("drain", document=DrainRequest(nodes=",".join(names)).model_dump_json())

    def _promise(self) -> None:
        """Nodes for a time that is near, and for a while that ends before the schedule does."""
        r = self.random
        at = self.world.clock.now() + timedelta(seconds=r.choice((10, 45, 90)))
        wish = PromiseRequest(
            nodes=r.choice((1, 2, 4)), partition="batch", at=at, duration_s=r.choice((60.0, 120.0)), users=("beam",)
        )
        self._ask("promise", document=wish.model_dump_json())

    def _reload(self) -> None:
        for daemon in self.world.daemons:
            daemon.reload(self.scene.config())

    def _protect(self) -> None:
        users = self.random.sample(PEOPLE, self.random.randint(0, len(PEOPLE)))
        self.scene.settings["candidates"]["protected_users"] = ["vip", *users]
        self._reload()

    def _new_budget(self) -> None:
        until = self.world.clock.now().replace(tzinfo=None)  # as SQLite keeps times: UTC
        self.world.witness.budgets.append((until, self.scene.config().budget.jobs_per_hour))
        self.scene.settings["budget"] = {"jobs_per_hour": self.random.choice((0, 1, 2, 5))}
        self._reload()
