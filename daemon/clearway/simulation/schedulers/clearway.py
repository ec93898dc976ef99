"""Clearway in a replay: its own detection, policy and planner over a base scheduler.

Batch jobs are scheduled by EASY backfilling, in the order of submission or in one of ``wfp``'s. Urgent ones stand
before them, as in a partition of higher priority. So do short ones, behind the urgent ones, where a rule makes room for
the partition ``short``. For one that does not start by itself ``preemption.detection`` says by when it must run, and
``preemption.plan.decide`` makes the plan, from a snapshot of the simulated machine: the very functions that the daemon
calls, with a configuration of the same form. As in the daemon, the nodes of a plan are kept for the urgent job from
then on, checkpoints begin at once, a job that ends in time is waited for, and where there is no plan the next event
brings another try.

How a preempted job leaves in the replay is the checkpoint model's matter; what the plan believes of it stands in the
jobs' claims and in ``costs`` of the configuration.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from clearway.config.configuration import CandidatesConfig, Config, CostsConfig, ExecutionConfig, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import JobState
from clearway.model.plan import NoPlan
from clearway.model.problem import Action
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import preemptors
from clearway.preemption.plan import decide
from clearway.simulation.checkpoint_models import NODES, CheckpointModel, JustInTime, NoCheckpoints, Storage
from clearway.simulation.cluster_view import BATCH, INSTRUMENT, SHORT, URGENT, ClusterView
from clearway.simulation.machine import Machine, ReplayedJob, State
from clearway.simulation.schedulers.wfp import Wfp, is_short

MAX_LATE_S = 3_600
MAX_KILL_LOSS_S = 600
_CHECKPOINTER = "simulated"
_UNSAVED = NoCheckpoints()
_MIB = 1_024


def simulated_site(storage: Storage = NODES, *, save: bool = True) -> Config:
    """A site whose jobs can all be saved (or none), that has urgent jobs in a partition, and no other guards.

    Where jobs can be saved, none leaves without that; but for an instrument's jobs, which are too short to wait for
    images, those leave so that have just begun, and where that does not do images are written after their deadlines.

    Images of several jobs are written side by side: each takes its share of the file system, and the last one is
    ready one node's time later, for which the plan leaves room at the deadline.
    """
    alone_s = storage.transfer_s(1)
    return Config(
        preemptors=(
            PreemptorRule(
                name=INSTRUMENT,
                account=(INSTRUMENT,),
                max_late=MAX_LATE_S if save else 0,
                max_kill_loss=MAX_KILL_LOSS_S if save else None,
            ),
            PreemptorRule(name="urgent", partition=(URGENT,), max_kill_loss=0 if save else None),
        ),
        candidates=CandidatesConfig(min_runtime=0, max_preemptions=1_000),
        costs=CostsConfig(
            restart_weight=0,  # else many small jobs leave for a few large ones, and each of them is a job that waits
            file_system_mib_s=storage.file_system_gib_s * _MIB,
            node_mib_s=storage.file_system_gib_s * _MIB,
            checkpoint_overhead=0,
        ),
        execution=ExecutionConfig(kill_allowance=alone_s if save else 0),
    )


def site_with_short_jobs(storage: Storage = NODES) -> Config:
    """The same site with a partition for short jobs: others make room for these, and for all that are urgent, as they
    do for an instrument's.
    """
    rules = [
        PreemptorRule(name=name, partition=(name,), max_late=MAX_LATE_S, max_kill_loss=MAX_KILL_LOSS_S)
        for name in (URGENT, SHORT)
    ]
    return simulated_site(storage).model_copy(update={"preemptors": tuple(rules)})


@dataclass(frozen=True, slots=True)
class _Eviction:
    """A plan under way: the urgent job, and the jobs whose nodes it waits for."""

    preemptor: ReplayedJob
    waits_for: tuple[ReplayedJob, ...]

    def held(self) -> int:
        """Free nodes that no other job may have."""
        return self.preemptor.size - sum(job.size for job in self.waits_for if job.nodes)


class Clearway(Wfp):
    name = "clearway"

    def __init__(
        self,
        model: CheckpointModel | None = None,
        *,
        config: Config | None = None,
        storage: Storage = NODES,
        planner: Planner | None = None,
        order: Literal["submission", "wfp", "small"] = "submission",
        max_delay_s: Callable[[ReplayedJob], float] | None = lambda job: 0.1 * job.limit_s,
        partitions: tuple[str, ...] = (BATCH, URGENT),
    ) -> None:
        """``max_delay_s`` None: urgent jobs claim nothing, and the rule's holds."""
        super().__init__(order)
        self.model = model or JustInTime(storage)
        self.config = config or simulated_site(storage, save=not isinstance(self.model, NoCheckpoints))
        self.storage = storage
        self.planner = planner or EvictionDP()
        self.short_too = any(SHORT in rule.partition for rule in self.config.preemptors)
        self.max_delay_s = max_delay_s
        self.partitions = partitions
        self.open: dict[int, _Eviction] = {}  # by the urgent job's index
        self.preempted: dict[str, int] = {}

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        memory_mib = round(self.storage.node_gib * _MIB * self.storage.unit_nodes)
        self.cluster = ClusterView(
            machine,
            states={State.LEAVING: JobState.UNKNOWN},
            comment=self._says,
            node_memory_mib=memory_mib,
            job_memory_mib=memory_mib,
            partitions=self.partitions,
        )

    def in_order(self, jobs: Iterable[ReplayedJob]) -> list[ReplayedJob]:
        return sorted(super().in_order(jobs), key=lambda job: (not job.urgent, not self._preempts(job)))

    def schedule(self) -> None:
        first = self.in_order([job for job in self.queue if self._preempts(job)])
        for job in first:
            if job.size <= len(self.machine.free) - self._held(but=self.open.get(job.index)):
                self.open.pop(job.index, None)
                self.start(job)
        waiting = [job for job in first if job.state is State.WAITING and job.index not in self.open]
        if waiting:
            self._plan(waiting)
        self._start_others()

    def _preempts(self, job: ReplayedJob) -> bool:
        """Whether a rule makes it a preemptor."""
        return job.urgent or (self.short_too and is_short(job))

    def _held(self, but: _Eviction | None = None) -> int:
        return sum(max(0, eviction.held()) for eviction in self.open.values() if eviction is not but)

    def _kept(self) -> list[int]:
        """The free nodes that no other job may have."""
        free = self.machine.free
        return free[len(free) - min(self._held(), len(free)) :]

    def _start_others(self) -> None:
        """The base scheduler's turn, with the nodes that are kept for urgent jobs out of its sight."""
        free = self.machine.free
        kept = self._kept()
        del free[len(free) - len(kept) :]
        planned = [job for job in self.queue if job.index in self.open]
        for job in planned:
            self.remove(job)
        self.start_in_order()
        free += kept
        if planned:
            self.renew(planned + self.queue)

    def _plan(self, waiting: list[ReplayedJob]) -> None:
        by_id = {str(job.job_id): job for _, _, job in self.machine.running} | {str(job.job_id): job for job in waiting}
        snapshot = self.cluster.snapshot(waiting)
        for preemptor in preemptors(snapshot, self.config.preemptors):
            context = PlanningContext(
                snapshot=snapshot,
                config=self.config,
                now=snapshot.taken_at,
                preempted=self.preempted,
                under_way=self._under_way(),
                actions={_CHECKPOINTER: Action.SYS_CHECKPOINT},
            )
            plan = decide(preemptor, context, self.planner)
            if isinstance(plan, NoPlan):
                continue
            chosen = [(by_id[planned.job_id], planned.action) for planned in plan.chosen.actions]
            for job, action in chosen:
                if action is not Action.END:
                    model = _UNSAVED if action is Action.KILL else self.model
                    self.machine.preempt(job, **asdict(model.departure(job, self.machine.now_s)))
                    self.preempted[str(job.job_id)] = job.preemptions
            job = by_id[preemptor.job.job_id]
            self.open[job.index] = _Eviction(job, tuple(each for each, _ in chosen))

    def _says(self, job: ReplayedJob) -> str:
        """What the job's Comment would hold."""
        if job.urgent:
            return "" if self.max_delay_s is None else f"clearway:max_delay={max(1, round(self.max_delay_s(job)))}s"
        if isinstance(self.model, NoCheckpoints):
            return ""
        image_mib = round(job.size * self.storage.unit_nodes * self.storage.node_gib * _MIB)
        return f"clearway:checkpoint=signal,checkpointer={_CHECKPOINTER},size_mib={image_mib}"

    def _under_way(self) -> UnderWay:
        """What other plans claim: those they wait for, and so many of the free nodes."""
        evictions = self.open.values()
        holders = {job for eviction in evictions for job in eviction.waits_for if job.nodes}
        nodes = {self.cluster.names[number] for job in holders for number in job.nodes}
        nodes |= {self.cluster.names[number] for number in self._kept()}
        return UnderWay(jobs=frozenset(str(job.job_id) for job in holders), nodes=frozenset(nodes))
