"""Plans for waiting jobs, urgent ones and those that eternal jobs give way to, and begins what was planned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from clearway.config.configuration import Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, promised_by, under_way_by
from clearway.estimates.costs import TIME_LIMIT_SLACK_S
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import FIRST_STATE, fresh_operation
from clearway.execution.quarantine import Quarantine
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Promise, Usage
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.report import Subject, Waiting
from clearway.preemption.batch import Answers, BatchDecision, SolveAlone, decide_batch
from clearway.preemption.detection import preemptors, waits_since
from clearway.preemption.examination import Examination
from clearway.preemption.held_back import after_planning
from clearway.preemption.looks import KeptLooks
from clearway.preemption.opportunistic import ordinary_preemptors
from clearway.preemption.plan import decide, free_already
from clearway.preemption.proposals import Proposals
from clearway.preemption.silent_nodes import SilentNodes
from clearway.preemption.slurms_own import slurm_preempts
from clearway.preemption.suppression import Suppression
from clearway.preemption.turns import LATER, Turns
from clearway.preemption.user_pauses import UserPauses
from clearway.preemption.validation import plan_misfit
from clearway.slurm.base import SlurmBackend

# With enough free nodes Slurm starts the job itself; only when it has not done so by then does Clearway step in.
_SLURM_HAS_ITS_TURN_S = 15.0
# ... also where it may preempt jobs by itself, once it has looked at the whole queue. Their grace comes on top, with
# the time until Slurm sees that it is over: it looks at that when it looks at time limits.
_SLURM_PREEMPTS_S = 30.0
# A node that is brought back takes jobs when it has answered slurmctld's next ping. No job has to leave instead.
_ANSWERS_WITHIN_S = 3.0
_FRESH_FOR_S = 1.0  # so old may the look be that plans are checked against before they are stored
_BEGINS_IN = 0.5  # of the time for planning as well
_OTHERS_IN = 0.6  # of it: where several plans were made, the others are stored and begun in the next cycle
_STORES_IN = 0.25  # of it have the others at least, so that few plans are made in vain
_CHANGED = "the cluster changed while the plan was made"
_FAILED = "Clearway failed at a plan for it and tries again later; see the log"
_FAILED_TOGETHER = "Clearway failed at a plan for several jobs at once; it is planned for in its turn"

# The preemptor, its eviction, and the fresh snapshot where the eviction is to be begun at once.
_Stored = tuple[Preemptor, Eviction, ClusterSnapshot | None]


class _FreshLook:
    """The cluster after plans were made, for all of them: nothing is done before all of them are stored."""

    def __init__(self, backend: SlurmBackend, clock: Clock, preemptors: Sequence[str]) -> None:
        self._backend, self._clock, self._preemptors = backend, clock, preemptors
        self._seen: tuple[Mapping[str, Job], ClusterSnapshot] | None = None
        self._at_s = 0.0

    def take(self) -> tuple[Mapping[str, Job], ClusterSnapshot]:
        """The preemptors that could be looked at, by id, and the cluster.

        A snapshot alone may know a preemptor's excluded nodes, and the limit of its array, from earlier.
        """
        now_s = self._clock.monotonic()
        if self._seen is None or now_s - self._at_s > _FRESH_FOR_S:
            preemptors, _ = self._backend.look_at(self._preemptors, whole=True)
            self._seen, self._at_s = (preemptors, self._backend.snapshot()), now_s
        return self._seen


@dataclass(frozen=True, slots=True)
class PreemptionController:
    """Plans evictions and begins them; the executor carries them on."""

    backend: SlurmBackend
    operations: OpenOperations
    suppression: Suppression
    pauses: UserPauses
    executor: Executor
    proposals: Proposals
    basis: PlanningBasis
    quarantine: Quarantine
    clock: Clock
    emit: Emit
    turns: Turns
    silent: SilentNodes
    looks: KeptLooks = field(default_factory=KeptLooks)

    def update(self, context: CycleContext) -> tuple[Waiting, ...]:
        """Plan for preemptors without an eviction, as time allows; all that wait, by deadline, and what they get."""
        with self.basis.time.spending():
            return self._update(context)

    def look_ahead(self, context: CycleContext, go_on: Callable[[], bool]) -> None:
        """Between two cycles: what the next plan has not to look at any more, as far as ``go_on`` says."""
        if context.config.preemptors:
            self.looks.look_ahead(self.basis.context(context, UnderWay(), counts=False), go_on)

    def _update(self, context: CycleContext) -> tuple[Waiting, ...]:
        config = context.config
        by_preemptor = self.operations.by_preemptor()
        waiting = []
        fresh: list[Preemptor] = []
        outdated = self.proposals.outdated
        for preemptor in preemptors(
            context.snapshot, config.preemptors, self._placements(), self.quarantine.attempt_job
        ):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is not None and (preemptor.job.job_id not in outdated or context.paused):
                waiting.append(_served(preemptor, eviction))
            elif why := self._left_alone(preemptor.job, context) or context.waits_why:
                waiting.append(Waiting(preemptor, None, why))
            else:
                fresh.append(preemptor)
        waiting += self._plan_for(fresh, context)
        if config.eternal.partitions and not context.paused:
            ordinary = partial(self._plan_for_ordinary_jobs, tuple(waiting), context)
            waiting += self.quarantine.attempt_part("eternal jobs", lambda: list(ordinary())) or ()
        for job_id in outdated.keys() - {each.preemptor.job.job_id for each in waiting}:
            self.proposals.put_aside(job_id, context)
        outdated.clear()
        by_preemptor = self.operations.by_preemptor()  # proposals whose turn did not come stay
        waiting = [
            _served(each.preemptor, kept) if (kept := by_preemptor.get(each.preemptor.job.job_id)) else each
            for each in waiting
        ]
        return tuple(sorted(waiting, key=lambda each: (each.preemptor.deadline, each.preemptor.job.job_id)))

    def _left_alone(self, job: Job, context: CycleContext) -> str | None:
        return self.suppression.reason(job) or self.pauses.left_alone(job.user, context.now)

    def _placements(self) -> frozenset[str]:
        """Those that preemptors may be in; one that waits for promised nodes is left to Slurm."""
        return frozenset(e.placement for e in self.operations.all() if e.placement and not isinstance(e, Promise))

    def _plan_for_ordinary_jobs(self, urgent: Sequence[Waiting], context: CycleContext) -> Iterator[Waiting]:
        """Eternal jobs make room for them, after all urgent ones."""
        by_preemptor = self.operations.by_preemptor()
        fresh = []
        for preemptor in ordinary_preemptors(
            context.snapshot,
            context.config.eternal,
            context.config.preemptors,
            context.now,
            urgent=[each.preemptor for each in urgent if each.eviction_id is None],
            served=by_preemptor.keys(),
            suppressed=lambda job: self._left_alone(job, context) is not None,
            placements=self._placements(),
        ):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is None or preemptor.job.job_id in self.proposals.outdated:
                fresh.append(preemptor)
            else:
                yield _served(preemptor, eviction)
        yield from self._plan_for(fresh, context)

    def _plan_for(self, fresh: Sequence[Preemptor], context: CycleContext) -> Iterator[Waiting]:
        """Plan for those together whose turn it is, and begin.

        A preemptor that is planned for after the first ones has its turn at once while there is time and nothing is
        carried out for those; else it waits for the next cycle.
        """
        if not fresh:
            return
        if jobs := [each.job for each in self.turns.in_order(fresh) if not each.obstacle]:
            backend = self.backend
            context = replace(context, limits=backend.limits(jobs), reservations=backend.reservations())
        time, planning, began = self.basis.time, self.basis.context(context, UnderWay()), self.clock.monotonic()
        examination = Examination.of(fresh, planning, self.basis, self.operations, self.quarantine, self.looks)
        known = examination.answers(self.turns.in_order(fresh), self.turns, context)
        yield from (Waiting(each, None, self.turns.last_told(each)) for each in fresh if each.job.job_id not in known)
        fresh = [each for each in fresh if each.job.job_id in known]
        claimed: list[Plan] = []
        while fresh:
            decided = self._decide(fresh, examination.beside(tuple(claimed)), known)
            known = {}
            claimed += [plan for _, plan in decided.plans if isinstance(plan, Plan)]
            told, begun, changed = self._store_all(decided.plans, planning, context)
            yield from told
            yield from self._begin(begun, context, began)
            fresh = decided.later
            if changed or any(e.state.acting for _, e, _ in begun) or time.left_s() <= 0:
                for preemptor in fresh:
                    self.turns.missed(preemptor)
                    yield Waiting(preemptor, None, decided.why_later)
                return
            began = self.clock.monotonic()

    def _decide(self, fresh: Sequence[Preemptor], solve: SolveAlone, known: Answers) -> BatchDecision:
        """Plans for all of them; where that raises, for the first one that it does not raise for alone."""
        found = self._try_to_decide(fresh, solve, known)
        if found is not None:
            return found
        failed: list[tuple[Preemptor, Plan | NoPlan]] = []
        for number, each in enumerate(fresh, 1):
            alone = self._try_to_decide([each], solve, known) if len(fresh) > 1 else None
            if alone is not None:
                return BatchDecision((*failed, *alone.plans), tuple(fresh[number:]), _FAILED_TOGETHER)
            failed.append((each, NoPlan(_FAILED)))
        return BatchDecision(tuple(failed))

    def _try_to_decide(self, some: Sequence[Preemptor], solve: SolveAlone, known: Answers) -> BatchDecision | None:
        ident = ", ".join(each.job.job_id for each in some)
        answers = {each.job.job_id: known[each.job.job_id] for each in some if each.job.job_id in known}
        work = partial(decide_batch, some, solve, self.basis.planner, self.basis.time.left_s, answers)
        return self.quarantine.attempt(Subject.PART, f"plan for {ident}", work)

    def _store_all(
        self, plans: Sequence[tuple[Preemptor, Plan | NoPlan]], planning: PlanningContext, context: CycleContext
    ) -> tuple[list[Waiting], list[_Stored], bool]:
        """All intents, before anything is done; after a plan that does not fit any more the rest waits for a cycle.

        Returns the preemptors that wait for something else, the evictions, and whether the cluster changed meanwhile.
        """
        told = []
        begun: list[_Stored] = []
        changed = False
        served = [preemptor.job.job_id for preemptor, plan in plans if isinstance(plan, Plan)]
        look = _FreshLook(self.backend, self.clock, served)
        time, began_s = self.basis.time, self.clock.monotonic()
        for preemptor, plan in plans:
            if isinstance(plan, NoPlan):
                if preemptor.job.job_id in self.proposals.outdated:
                    self.proposals.put_aside(preemptor.job.job_id, context)
                told.append(Waiting(preemptor, None, plan.why))
                continue
            late = time.left_s() <= (1 - _OTHERS_IN) * time.limit_s
            if begun and late and self.clock.monotonic() - began_s >= _STORES_IN * time.limit_s:
                self.executor.put_off(context.now)  # those before it do not depend on it
                self.turns.missed(preemptor)
                told.append(Waiting(preemptor, None, LATER))
                continue
            group = [each for _, each in plans if isinstance(each, Plan) and each.preemptor.job_id in plan.components]
            store = partial(self._store_if_needed, preemptor, plan, group, planning, context, None if changed else look)
            stored = self.quarantine.attempt_job(f"{preemptor.job.job_id} with a plan", store)
            if isinstance(stored, tuple):
                begun.append((preemptor, *stored))
                continue
            changed |= stored == _CHANGED
            if stored != _CHANGED and preemptor.job.job_id in self.proposals.outdated:
                self.proposals.put_aside(preemptor.job.job_id, context)
            told.append(Waiting(preemptor, None, _FAILED if stored is None else stored))
        return told, begun, changed

    def _store_if_needed(
        self,
        preemptor: Preemptor,
        plan: Plan,
        group: Sequence[Plan],
        planning: PlanningContext,
        context: CycleContext,
        look: _FreshLook | None,
    ) -> tuple[Eviction, ClusterSnapshot | None] | str:
        """As ``_store_plan``; why not, where the plan is not worth it, or the cluster has changed (without a look).

        ``group``: the plans of all components of a heterogeneous job, all of which start, or none.
        """
        others = [e for e in self.operations.all() if e.state.acting]
        why = self._no_need(preemptor, plan, planning, context)
        held_back = (after_planning(each, planning.limits, others, planning, group) for each in group or [plan])
        if why := why or next(filter(None, held_back), ""):
            return why
        return (None if look is None else self._store_plan(plan, context, look)) or _CHANGED

    def _begin(self, begun: Sequence[_Stored], context: CycleContext, began: float) -> Iterator[Waiting]:
        """The newest first: a plan that counts on another plan's jobs needs its placement before these jobs leave.

        Slurm would start the other preemptor on any of the nodes that become free, as long as no placement keeps them.
        """
        time = self.basis.time
        least_left_s = -_BEGINS_IN * time.limit_s
        for preemptor, planned, seen in reversed(begun):
            eviction = planned
            # Where time is up the next cycle begins it, in the same order: what is stored is carried on first.
            if seen is not None and time.left_s() <= least_left_s:
                self.executor.put_off(context.now)
            elif seen is not None:
                least_left_s = (1 - _OTHERS_IN) * time.limit_s
                context.alive()
                advance = partial(self.executor.advance, planned, replace(context, snapshot=seen))
                ident = str(planned.eviction_id)
                eviction = self.quarantine.attempt(Subject.OPERATION, ident, advance) or planned
            self.emit(PlanMade(eviction, self.clock.monotonic() - began))
            yield _served(preemptor, eviction)

    def _no_need(self, preemptor: Preemptor, plan: Plan, planning: PlanningContext, context: CycleContext) -> str:
        """Why a plan is not worth storing; empty where it is."""
        if context.database_full and context.config.daemon.mode is Mode.OBSERVE:
            return "the database is larger than daemon.database_limit_mib, so that proposals are not stored"
        if preemptor.ordinary and not plan.preemptees:
            return "enough nodes are free; Slurm starts it in its turn"
        waited_s = (context.now - waits_since(preemptor.job)).total_seconds()
        slurms_turn = waited_s < _SLURM_HAS_ITS_TURN_S
        if slurms_turn and not plan.components and free_already(plan, context.snapshot):
            return "enough nodes are free; Slurm has its turn"
        if slurms_turn and context.snapshot.power_saving.hides_nodes and preemptor.job.reason == "None":
            return "Slurm, which does not show nodes of the cloud that are off, has its turn"
        grace_s = context.snapshot.preempt_priorities.grace_s
        turn_s = _SLURM_PREEMPTS_S + (grace_s + TIME_LIMIT_SLACK_S if grace_s else 0.0)
        if plan.leaving and waited_s < turn_s and slurm_preempts(preemptor, context.snapshot):
            return "Slurm preempts jobs for it by itself, and has its turn"
        if plan.leaving and self._fewer_soon(preemptor, plan, planning, context):
            return "nodes that Slurm waits for may answer in a moment; then fewer jobs leave, or none"
        return ""

    def _fewer_soon(self, preemptor: Preemptor, now: Plan, planning: PlanningContext, context: CycleContext) -> bool:
        """Whether fewer jobs had to leave if the nodes took jobs that may answer in a moment.

        This daemon has just brought them back, or they have not been silent for long.
        """
        lately = self.executor.brought_back_since(context.now - timedelta(seconds=_ANSWERS_WITHIN_S))
        lately |= self.silent.lately(context.now)
        silent = {node.name for node in context.snapshot.nodes if node.name in lately and not node.available}
        if not silent:
            return False
        nodes = tuple(replace(node, available=node.available or node.name in silent) for node in context.snapshot.nodes)
        under_way = under_way_by(self.operations.all(), preemptor.deadline)
        soon = replace(planning, snapshot=replace(context.snapshot, nodes=nodes), under_way=under_way)
        plan = decide(preemptor, soon, self.basis.planner)
        return isinstance(plan, Plan) and len(plan.leaving) < len(now.leaving)

    def _store_plan(
        self, plan: Plan, context: CycleContext, look: _FreshLook
    ) -> tuple[Eviction, ClusterSnapshot | None] | None:
        """Store a plan, with a fresh snapshot where it is to be begun at once; None when it does not fit any more."""
        mode = context.config.daemon.mode
        usage, approval = self.operations.usage(context.now), self.proposals.approval
        asked = approval.why(plan, usage, context) and mode is Mode.AUTOMATIC
        state = FIRST_STATE[Mode.APPROVE if asked else mode]
        fresh = None
        if state is EvictionState.PLACING:
            preemptors, fresh = look.take()  # the plan aged while it was made
            preemptor = preemptors.get(plan.preemptor.job_id)
            excluded = preemptor is None or set(preemptor.excluded_nodes) & set(plan.placement_nodes)
            if excluded or plan_misfit(plan, fresh, promised_by(self.operations.all())):
                return None
        before = self.proposals.outdated.pop(plan.preemptor.job_id, None)
        if before is not None and state is EvictionState.PROPOSED:
            return self.proposals.replace_plan(before[0], plan, context), None
        if before is not None:
            self.executor.put_aside(*before, context.now)

        def judged(usage: Usage) -> Eviction:
            why = approval.why(plan, usage, context)
            waits = state is EvictionState.PLACING and why
            outcome = Outcome(OutcomeCode.NEEDS_APPROVAL, why) if why and mode is not Mode.OBSERVE else None
            first = EvictionState.AWAITING_APPROVAL if waits else state
            return fresh_operation(Eviction, plan, mode.value, first, context.now, outcome=outcome)

        created = self.operations.create(judged(usage), judged)
        return created, fresh if created.state is EvictionState.PLACING else None


def _served(preemptor: Preemptor, eviction: Eviction) -> Waiting:
    return Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value)
