"""Clearway in a replay, in the settings of the WCJS and of the UJFB paper.

Clearway in a replay: its own detection, policy and planner over a base scheduler.

Batch jobs are scheduled by EASY backfilling, in the order of submission or in one of ``wfp``'s. Urgent ones stand
before them, as in a partition of higher priority. So do short ones, behind the urgent ones, where a rule makes room for
the partition ``short``. For one that does not start by itself ``preemption.detection`` says by when it must run, and
``preemption.plan.decide`` makes the plan, from a snapshot of the simulated machine: the very functions that the daemon
calls, with a configuration of the same form. As in the daemon, the nodes of a plan are kept for the urgent job from
then on, checkpoints begin at once, a job that ends in time is waited for, and where there is no plan the next event
brings another try.

How a preempted job leaves in the replay is the checkpoint model's matter; what the plan believes of it stands in the
jobs' claims and in ``costs`` of the configuration.

EASY with the daemon beside it, where jobs are suspended in memory: the setting of the UJFB paper.

The very functions that the daemon calls decide which jobs make room for an urgent job. (``clearway`` does the same with
checkpoints, in the setting of the WCJS paper.) Urgent jobs stand first in the queue, as a site gives them priority.
While one waits, a cycle shows the daemon's ``detection.preemptors`` and ``decision.decide`` (with policy, costs and
the configured planner) a ``ClusterSnapshot`` of the simulated machine, and the plan is carried out: a suspended job
keeps its nodes and returns to them, a killed one goes back to the queue without its work. Until the urgent job has
started no other job starts, which is what the placement is for. One eviction is carried out at a time.

Three rules (``SuspensionRules``) keep suspensions few and short where urgent jobs come faster than they can run. Of the
urgent jobs that wait, the shortest goes first, since waiting makes its slowdown the largest. The nodes of a suspended
job serve only the urgent job that it left for. So the suspended job returns when that urgent job ends, and the next
urgent job finds room elsewhere. No job is suspended while the waiting urgent jobs ask for more nodes than all regular
jobs hold: some urgent jobs then wait for others in any case, and a long one that starts early keeps out short ones
that come later.

A trace does not say what its jobs can save, so they claim nothing, and no job is checkpointed. Each job has half of
its nodes' memory, so that an urgent one fits beside a suspended one. Swap times are those of ``ujfb``.

The default configuration suspends and never kills, and gives an urgent job no delay at all, as UJFB does: of equally
good choices the planner takes that with the fewest jobs, where UJFB takes those with longest to run.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from clearway.config import plugins
from clearway.config.configuration import CandidatesConfig, Config, CostsConfig, ExecutionConfig, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay
from clearway.model.cluster import JobState
from clearway.model.plan import NoPlan, Plan
from clearway.model.problem import Action
from clearway.planning.base import Planner
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import preemptors
from clearway.preemption.plan import decide
from clearway_lab.errors import SimulationError
from clearway_lab.schedulers.conservative import swap_times_s
from clearway_lab.schedulers.easy import Easy
from clearway_lab.schedulers.realtime import Wfp, is_short
from clearway_lab.simulator.checkpoint_models import NODES, CheckpointModel, JustInTime, NoCheckpoints, Storage
from clearway_lab.simulator.cluster_view import BATCH, INSTRUMENT, SHORT, URGENT, ClusterView
from clearway_lab.simulator.machine import Machine, ReplayedJob, State

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


_CYCLE_S = 60.0  # between two attempts while nothing can be done
_MEMORY_MIB = 2
_STATES = {State.LEAVING: JobState.COMPLETING, State.SUSPENDED: JobState.SUSPENDED}


_CONFIG = Config(
    preemptors=(PreemptorRule(name=URGENT, partition=(URGENT,), max_delay=0.0),),
    candidates=CandidatesConfig(allow_suspend=True, allow_kill=False, min_runtime=0.0),
)


@dataclass(frozen=True, slots=True)
class SuspensionRules:
    """Each can be turned off, to measure what it does."""

    shortest_first: bool = True
    return_at_once: bool = True
    never_needlessly: bool = True


class ClearwaySuspend(Easy):
    name = "clearway-suspend"

    def __init__(self, config: Config | None = None, rules: SuspensionRules = SuspensionRules()) -> None:
        super().__init__()
        self.rules = rules
        self.config = config or _CONFIG
        self.planner: Planner = plugins.load(plugins.PLANNERS, self.config.planning.planner)()
        self.open: ReplayedJob | None = None  # the urgent job whose plan is being carried out
        self.open_until_s = 0.0
        self.room: list[ReplayedJob] = []  # the jobs suspended for it
        self.next_cycle_s = 0.0

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        self.cluster = ClusterView(
            machine, states=_STATES, node_memory_mib=_MEMORY_MIB, job_memory_mib=_MEMORY_MIB // 2
        )

    def submitted(self, job: ReplayedJob) -> None:
        if not job.urgent:
            super().submitted(job)
            return
        before = (other for other in self.queue if other.urgent)
        if self.rules.shortest_first:
            before = (other for other in before if other is self.open or other.limit_s <= job.limit_s)
        place = sum(1 for _ in before)
        self.insert(place, job)
        self.next_cycle_s = self.machine.now_s

    def returned(self, job: ReplayedJob) -> None:
        self.seen = 0
        if job.keeps_nodes:
            return
        waits = (i for i, other in enumerate(self.queue) if not other.urgent and other.index > job.index)
        self.insert(next(waits, len(self.queue)), job)

    def schedule(self) -> None:
        machine = self.machine
        self._start_urgent()
        if self.open is not None:
            if machine.leaving or machine.now_s < self.open_until_s:
                return
            self.open, self.room = None, []  # a job that was to end in time has not: another plan is needed
        for job in list(machine.suspended.values()):
            if machine.can_resume(job):
                machine.start(job)
                self.seen = 0
        if machine.leaving or machine.suspended:
            self.seen = 0  # when they are back depends on the clock
        super().schedule()
        if self.queue and self.queue[0].urgent and machine.now_s >= self.next_cycle_s and not self._needless():
            self._cycle()

    def _start_urgent(self) -> None:
        machine = self.machine
        while self.queue and self.queue[0].urgent and self.open in {None, self.queue[0]}:
            job = self.queue[0]
            beside = self.room if self.rules.return_at_once else list(machine.suspended.values())
            if job.size > len(machine.free) + len(machine.kept_for(beside)):
                return
            machine.start(job, beside=beside)
            self.remove(job)
            self.seen = 0
            self.open, self.room = None, []

    def _needless(self) -> bool:
        """Whether some urgent job would still wait if all regular jobs made room."""
        if not self.rules.never_needlessly:
            return False
        machine = self.machine
        wanted = sum(job.size for job in self.queue if job.urgent)
        return wanted > len(machine.free) + sum(job.size for _, _, job in machine.running if not job.urgent)

    def _cycle(self) -> None:
        """The daemon's decision for the first urgent job, and the beginning of what it decides."""
        machine = self.machine
        urgent = self.queue[0]
        snapshot = self.cluster.snapshot([urgent], machine.kept if self.rules.return_at_once else ())
        counts = {str(job.job_id): job.preemptions for _, _, job in machine.running if job.preemptions}
        context = PlanningContext(snapshot=snapshot, config=self.config, now=snapshot.taken_at, preempted=counts)
        for preemptor in preemptors(snapshot, self.config.preemptors):
            plan = decide(preemptor, context, self.planner)
            if isinstance(plan, Plan):
                self.open = urgent
                self.open_until_s = machine.now_s + plan.chosen.max_delay_s
                machine.wake_at(self.open_until_s)
                self._carry_out(plan)
                return
        self.next_cycle_s = machine.now_s + _CYCLE_S
        machine.wake_at(self.next_cycle_s)

    def _carry_out(self, plan: Plan) -> None:
        machine = self.machine
        by_id = {str(job.job_id): job for _, _, job in machine.running}
        for planned in plan.chosen.actions:
            match planned.action:
                case Action.END:
                    pass
                case Action.SUSPEND:
                    job = by_id[planned.job_id]
                    out_s, in_s = swap_times_s(job.job_id, machine.seed)
                    machine.preempt(job, leave_s=out_s, return_s=in_s, keep_nodes=True)
                    self.room.append(job)
                case Action.KILL:
                    machine.preempt(by_id[planned.job_id], saved_s=0)
                case other:
                    raise SimulationError(f"job {planned.job_id} of a trace cannot be asked for {other.value}")


class ClearwaySjf(ClearwaySuspend):
    """It backfills by the shortest limit instead of by submission: urgent jobs may overtake first, then short ones."""

    name = "clearway-sjf"
    reorders = True

    def in_turn(self, places: list[int]) -> list[int]:
        queue = self.queue
        return sorted(places, key=lambda i: (not queue[i].urgent, queue[i].limit_s, i))
