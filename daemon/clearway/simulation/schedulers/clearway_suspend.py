"""EASY with the daemon beside it, where jobs are suspended in memory: the setting of the UJFB paper.

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

from dataclasses import dataclass

from clearway.config import plugins
from clearway.config.configuration import CandidatesConfig, Config, PreemptorRule
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import JobState
from clearway.model.errors import SimulationError
from clearway.model.plan import Plan
from clearway.model.problem import Action
from clearway.planning.base import Planner
from clearway.preemption.detection import preemptors
from clearway.preemption.plan import decide
from clearway.simulation.cluster_view import URGENT, ClusterView
from clearway.simulation.machine import Machine, ReplayedJob, State
from clearway.simulation.schedulers.easy import Easy
from clearway.simulation.schedulers.ujfb import swap_times_s

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
