"""Plans for waiting jobs, urgent ones and those that eternal jobs give way to, and begins what was planned.

One cycle: who waits without a plan, what each and all of them can have (``batch``), all plans are stored before
anything is done (store), and the first of them are begun (begin). What is not begun is carried on first in the next.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import groupby

from clearway.config.configuration import Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, promised_by, under_way_by
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import FIRST_STATE, fresh_operation
from clearway.execution.restraints import Quarantine, Suppression, UserPauses
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Promise
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.records import Usage
from clearway.model.report import Subject, Waiting
from clearway.preemption.batch import LATER, Answers, BatchDecision, SolveAlone, Turns, decide_batch, under_way_beside
from clearway.preemption.candidates import CandidateCache, Survey, changes_at
from clearway.preemption.detection import OthersThatWait, ordinary_preemptors, preemptors
from clearway.preemption.plan import Solution, solve_alone
from clearway.preemption.problem import horizon, longest_horizon
from clearway.preemption.proposals import Proposals, SilentNodes
from clearway.preemption.validation import after_planning, ask_of, plan_misfit
from clearway.slurm.base import SlurmBackend

# A node that is brought back takes jobs when it has answered slurmctld's next ping. No job has to leave instead.
_ANSWERS_WITHIN = timedelta(seconds=3)
_FRESH_FOR_S = 1.0  # so long after it has ended may the look be used that plans are checked against
_TOGETHER = 0.5  # of the time for plans is kept for those that are made together
_OTHERS_IN = 0.6  # of the time: where several plans were made, the others are stored and begun in the next cycle
_STORES_IN = 0.25  # of it have the others at least, so that few plans are made in vain
_CHANGED = "the cluster changed while the plan was made"
_FAILED = "Clearway failed at a plan for it and tries again later; see the log"
_FAILED_TOGETHER = "Clearway failed at a plan for several jobs at once; it is planned for in its turn"

_Unit = Sequence[tuple[Preemptor, Plan]]  # plans that are carried out together: of one job, or of its components
_Whys = dict[str, str]  # why a job has no plan, by job_id


@dataclass(frozen=True, slots=True)
class _Stored:
    """The evictions of one unit, and the fresh snapshot where they are to be begun at once."""

    evictions: Sequence[Eviction]
    seen: ClusterSnapshot | None


class _FreshLook:
    """The cluster after plans were made, for all of them: nothing is done before all of them are stored."""

    def __init__(self, backend: SlurmBackend, clock: Clock, preemptors: Sequence[str]) -> None:
        self._backend, self._clock, self._preemptors, self._until_s = backend, clock, preemptors, -1.0

    def take(self) -> tuple[Mapping[str, Job], ClusterSnapshot]:
        """The preemptors that could be looked at, by id, and the cluster; however long a look takes, one for all plans.

        A snapshot alone may know a preemptor's excluded nodes, and the limit of its array, from earlier.
        """
        if self._clock.monotonic() > self._until_s:
            self._seen = self._backend.look_at(self._preemptors, whole=True)[0], self._backend.snapshot()
            self._until_s = self._clock.monotonic() + _FRESH_FOR_S
        return self._seen


@dataclass(frozen=True, slots=True, kw_only=True)
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
    silent: SilentNodes
    turns: Turns = field(default_factory=Turns)
    looks: CandidateCache = field(default_factory=CandidateCache)
    without_plan: set[str] = field(default_factory=set)  # in this cycle, as none can be made for the cluster as it is

    def update(self, context: CycleContext) -> tuple[Waiting, ...]:
        """Plan for preemptors without an eviction, as time allows; all that wait, by deadline, and what they get."""
        outdated, whys = self.proposals.outdated, _Whys()
        self.without_plan.clear()
        with self.basis.time.spending():
            rules, attempt = context.config.preemptors, self.quarantine.attempt_job
            urgent = preemptors(context.snapshot, rules, self._placements(), attempt)
            self._serve(urgent, whys, context)
            ordinary: Sequence[Preemptor] | None = None
            if context.config.eternal.partitions and not context.paused:
                serve = partial(self._serve_ordinary, urgent, whys, context)
                ordinary = self.quarantine.attempt_part("eternal jobs", serve)
            found = {each.job.job_id: each for each in (*urgent, *(ordinary or ()))}
        # A proposal stays where its job's turn did not come.
        for job_id in [each for each in outdated if each in self.without_plan or each not in found]:
            self.executor.put_aside(*outdated[job_id], context.now)
        outdated.clear()
        kept, told = self.operations.by_preemptor(), list[Waiting]()
        for job_id, each in sorted(found.items(), key=lambda item: (item[1].deadline, item[0])):
            if (e := kept.get(job_id)) is None:
                told.append(Waiting(each, None, whys.get(job_id, "its plan has just ended")))
            else:
                told.append(Waiting(each, e.eviction_id, e.outcome or e.state.value))
        return tuple(told)

    def look_ahead(self, context: CycleContext, go_on: Callable[[], bool]) -> None:
        """Between two cycles: what the next plan has not to look at any more, as far as ``go_on`` says."""
        if context.config.preemptors:
            self.looks.look_ahead(self.basis.context(context, UnderWay(), counts=False), go_on)

    def _serve_ordinary(self, urgent: Sequence[Preemptor], whys: _Whys, context: CycleContext) -> Sequence[Preemptor]:
        """Eternal jobs make room for them, after all urgent ones."""
        others = OthersThatWait(
            urgent=[each for each in urgent if each.job.job_id in whys],
            served=self.operations.by_preemptor().keys(),
            suppressed=lambda job: self._left_alone(job, context) is not None,
            placements=self._placements(),
        )
        config = context.config
        found = ordinary_preemptors(context.snapshot, config.eternal, config.preemptors, context.now, others)
        self._serve(found, whys, context)
        return found

    def _left_alone(self, job: Job, context: CycleContext) -> str | None:
        return self.suppression.reason(job) or self.pauses.left_alone(job.user, context.now)

    def _placements(self) -> frozenset[str]:
        """Those that preemptors may be in; one that waits for promised nodes is left to Slurm."""
        return frozenset(e.placement for e in self.operations.all() if e.placement and not isinstance(e, Promise))

    def _serve(self, found: Sequence[Preemptor], whys: _Whys, context: CycleContext) -> None:
        """Plan for those together that have no plan and are not left alone, store all plans, and begin.

        Others than the first have their turn at once while there is time and nothing is carried out for these.
        """
        fresh, time = self._fresh(found, whys, context), self.basis.time
        if not fresh:
            return
        order = self.turns.in_order(fresh)
        if jobs := [each.job for each in order if not each.obstacle]:
            with time.asking():  # by turns, as long as not all can be asked about
                context = replace(context, limits=self.backend.limits(jobs), reservations=self.backend.reservations())
        planning, began = self.basis.context(context, UnderWay()), self.clock.monotonic()
        survey = Survey(longest_horizon(fresh, planning), self.looks)
        known = self._answers(order, planning, survey, context)
        whys |= {each.job.job_id: self.turns.last_told(each) for each in fresh if each.job.job_id not in known}
        left: Sequence[Preemptor] = [each for each in fresh if each.job.job_id in known]
        claimed: list[Plan] = []
        while left:
            decided = self._decide(left, self._solve_beside(claimed, planning, survey), known)
            known = {}
            claimed += [plan for _, plan in decided.plans if isinstance(plan, Plan)]
            stored, changed = self._store_all(decided, planning, whys, context)
            whys |= self._missed(decided.later, decided.why_later)
            if self._begin(stored, context, began) or changed or time.left_s() <= 0:
                return
            left, began = decided.later, self.clock.monotonic()

    def _fresh(self, found: Sequence[Preemptor], whys: _Whys, context: CycleContext) -> list[Preemptor]:
        by_preemptor, outdated = self.operations.by_preemptor(), {} if context.paused else self.proposals.outdated
        wanted = [each for each in found if each.job.job_id not in by_preemptor or each.job.job_id in outdated]
        alone = {each.job.job_id: self._left_alone(each.job, context) or context.waits_why for each in wanted}
        whys |= {job_id: why for job_id, why in alone.items() if why}
        return [each for each in wanted if not alone[each.job.job_id]]

    def _solve_beside(
        self, claimed: Sequence[Plan], planning: PlanningContext, survey: Survey, rough: bool = False
    ) -> SolveAlone:
        """``claimed``: plans made before in this cycle; ``rough``: see ``solve_alone``."""

        def solve(preemptor: Preemptor, beside: Sequence[Plan]) -> Solution | NoPlan:
            under_way = under_way_by(self.operations.all(), preemptor.deadline)
            under_way = under_way_beside(under_way, (*claimed, *beside), preemptor.deadline)
            context, ident = replace(planning, under_way=under_way), f"{preemptor.job.job_id} in a plan"
            work = partial(solve_alone, preemptor, context, self.basis.planner, rough=rough, survey=survey)
            found = self.quarantine.attempt_job(ident, work)
            return NoPlan(self.quarantine.why(Subject.JOB, ident)) if found is None else found

        return solve

    def _answers(
        self, order: Sequence[Preemptor], planning: PlanningContext, survey: Survey, context: CycleContext
    ) -> Answers:
        """What can be done for each alone, of as many as there is time for; those without an answer wait.

        The first one is answered in any case: a cycle without any would help nobody. Of several it is enough to know
        that there is a plan, where that is beyond doubt: the plan for all of them says which.
        """
        time, impossible = self.basis.time, self.basis.impossible
        known: Answers = {}
        in_all_s, able = time.left_s(), False
        first: tuple[str, ...] = ()  # job_ids of the first one, with all components of its job
        singles = {each.job.job_id for each in order if each.tasks == 1 and not each.components}
        for preemptor in order:
            job_id, asks = preemptor.job.job_id, (ask_of(preemptor, context.limits), context.reservations)
            if (why := impossible.why(job_id, asks, context.now)) is not None:
                known[job_id] = NoPlan(why)
                continue
            due = not first or job_id in first
            if not due and time.left_s() <= (_TOGETHER * in_all_s if able else 0.0):
                continue  # those after it may still be known to be impossible
            context.alive()
            first = first or (job_id, *preemptor.components)
            rough = len(singles) > 1 and job_id in singles
            known[job_id] = found = self._solve_beside((), planning, survey, rough=rough)(preemptor, ())
            self.turns.had(preemptor, found)
            able |= isinstance(found, Solution)
            if isinstance(found, NoPlan) and found.curve is not None:
                seen = replace(planning, under_way=under_way_by(self.operations.all()))
                until = changes_at(seen, None if preemptor.ordinary else preemptor.deadline, horizon(preemptor, seen))
                impossible.remember(job_id, asks, found.why, until)
        return known

    def _missed(self, some: Sequence[Preemptor], why: str) -> _Whys:
        """They are the first in the next cycle."""
        for preemptor in some:
            self.turns.missed(preemptor)
        return {each.job.job_id: why for each in some}

    def _decide(self, fresh: Sequence[Preemptor], solve: SolveAlone, known: Answers) -> BatchDecision:
        """Plans for all of them; where that raises, for the first one."""
        for some in (fresh, fresh[:1]) if len(fresh) > 1 else (fresh,):
            work = partial(decide_batch, some, solve, self.basis.planner, self.basis.time.left_s, known)
            ident = f"plan for {', '.join(each.job.job_id for each in some)}"
            if (found := self.quarantine.attempt_part(ident, work)) is not None:
                return found if some is fresh else BatchDecision(found.plans, tuple(fresh[1:]), _FAILED_TOGETHER)
        return BatchDecision(((fresh[0], NoPlan(_FAILED)),), tuple(fresh[1:]), _FAILED_TOGETHER)

    def _store_all(
        self, decided: BatchDecision, planning: PlanningContext, whys: _Whys, context: CycleContext
    ) -> tuple[list[_Stored], bool]:
        """All intents, before anything is done, and whether the cluster changed: then the rest waits for a cycle."""
        stored, changed = list[_Stored](), False
        made: list[tuple[Preemptor, Plan]] = []
        for preemptor, plan in decided.plans:
            if isinstance(plan, Plan):
                made.append((preemptor, plan))
            else:
                whys |= self._without_plan([preemptor], plan.why)
        look = _FreshLook(self.backend, self.clock, [preemptor.job.job_id for preemptor, _ in made])
        began_s, time = self.clock.monotonic(), self.basis.time
        for _, group in groupby(made, key=lambda each: each[1].components or each[1].preemptor.job_id):
            unit = list(group)
            waiting = [preemptor for preemptor, _ in unit]
            late = time.left_s() <= (1 - _OTHERS_IN) * time.limit_s
            if stored and late and self.clock.monotonic() - began_s >= _STORES_IN * time.limit_s:
                self.executor.pace.put_off(context.now)  # those before it do not depend on it
                whys |= self._missed(waiting, LATER)
                continue
            store = partial(self._store_unit, unit, planning, context, None if changed else look)
            found = self.quarantine.attempt_job(f"{waiting[0].job.job_id} with a plan", store)
            if isinstance(found, _Stored):
                stored.append(found)
                for each in waiting:
                    whys.pop(each.job.job_id, None)
            else:
                changed |= found == _CHANGED
                whys |= self._without_plan(waiting, found or _FAILED)
        return stored, changed

    def _without_plan(self, some: Sequence[Preemptor], why: str) -> _Whys:
        """Where the cluster only changed, a proposal stays until there is another."""
        whys = {each.job.job_id: why for each in some}
        if why != _CHANGED:
            self.without_plan.update(whys)
        return whys

    def _store_unit(
        self, unit: _Unit, planning: PlanningContext, context: CycleContext, look: _FreshLook | None
    ) -> _Stored | str:
        """All plans of a unit, or none: then why not. Without a look the cluster has changed."""
        others = [e for e in self.operations.all() if e.state.acting]
        group = [plan for _, plan in unit]
        lately = self.executor.brought_back_since(context.now - _ANSWERS_WITHIN) | self.silent.lately(context.now)
        for preemptor, plan in unit:
            why = self.proposals.needless(preemptor, plan, planning, context.database_full, lately)
            if why := why or after_planning(plan, others, planning, group):
                return why
        if look is None:
            return _CHANGED
        group = [self.proposals.pledged(plan, context) for plan in group]
        seen = None
        if self._acts(group, context) and (seen := self._fits(group, look, context)) is None:
            return _CHANGED
        made = [self._create(plan, context) for plan in group]
        return _Stored(made, seen if all(e.state is EvictionState.PLACING for e in made) else None)

    def _acts(self, group: Sequence[Plan], context: CycleContext) -> bool:
        """Whether one of them may be carried out without being asked about."""
        usage = self.operations.usage(context.now)
        asked = (self.proposals.asked_about(plan, usage, context) for plan in group)
        return context.config.daemon.mode is Mode.AUTOMATIC and not all(asked)

    def _fits(self, group: Sequence[Plan], look: _FreshLook, context: CycleContext) -> ClusterSnapshot | None:
        """The cluster as it is now, where all these plans fit it: they aged while they were made."""
        with self.basis.time.asking():
            looked_at, seen = look.take()
        for plan in group:
            preemptor = looked_at.get(plan.preemptor.job_id)
            lost = preemptor is None or not set(preemptor.excluded_nodes).isdisjoint(plan.placement_nodes)
            if lost or plan_misfit(plan, seen, promised_by(self.operations.all()), context.config):
                return None
        return seen

    def _create(self, plan: Plan, context: CycleContext) -> Eviction:
        mode = context.config.daemon.mode
        before = self.proposals.outdated.pop(plan.preemptor.job_id, None)
        if before is not None and mode is Mode.OBSERVE:
            return self.proposals.replace_plan(before[0], plan, context)
        if before is not None:
            self.executor.put_aside(*before, context.now)

        def judged(usage: Usage) -> Eviction:
            why = self.proposals.asked_about(plan, usage, context)
            first = FIRST_STATE[Mode.APPROVE if why and mode is Mode.AUTOMATIC else mode]
            outcome = Outcome(OutcomeCode.NEEDS_APPROVAL, why) if why and mode is not Mode.OBSERVE else None
            return fresh_operation(Eviction, plan, mode.value, first, context.now, outcome=outcome)

        return self.operations.create(judged(self.operations.usage(context.now)), judged)

    def _begin(self, stored: Sequence[_Stored], context: CycleContext, began: float) -> bool:
        """The newest first: a plan that counts on another plan's jobs needs its placement before these jobs leave.

        Slurm would start the other preemptor on any of the nodes that become free, as long as no placement keeps them.
        One unit is begun however long all has taken, so that no urgent job waits for a quicker Slurm.
        Returns whether anything is carried out.
        """
        time, begun = self.basis.time, False
        for unit in reversed(stored):
            at_once = unit.seen is not None and (not begun or time.left_s() > (1 - _OTHERS_IN) * time.limit_s)
            if unit.seen is not None and not at_once:
                self.executor.pace.put_off(context.now)
            for planned in unit.evictions:
                eviction = planned
                if at_once and unit.seen is not None:
                    context.alive()
                    advance = partial(self.executor.advance, planned, replace(context, snapshot=unit.seen))
                    eviction = self.quarantine.attempt(Subject.OPERATION, str(planned.eviction_id), advance) or planned
                self.emit(PlanMade(eviction, self.clock.monotonic() - began))
            begun |= at_once
        if stored:
            time.carried_out(self.clock.monotonic() - began)
        return any(e.state.acting for unit in stored for e in unit.evictions)
