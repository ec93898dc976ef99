"""Plans for waiting jobs, urgent ones and those that eternal jobs give way to, and begins what was planned.

One cycle: who waits without a plan (observe), what each and all of them can have (``order``, ``batch``), all plans are
stored before anything is done (store), and the first of them are begun (begin). What is not begun is carried on first
in the next cycle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from itertools import groupby

from clearway.config.configuration import Mode
from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import UnderWay, promised_by
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.execution.progress import FIRST_STATE, fresh_operation
from clearway.execution.restraints import Quarantine, Suppression, UserPauses
from clearway.model.clock import Clock
from clearway.model.cluster import ClusterSnapshot, Job
from clearway.model.events import Emit, PlanMade
from clearway.model.operations import Eviction, EvictionState, Promise, Usage
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.report import Subject, Waiting
from clearway.preemption.batch import Answers, BatchDecision, SolveAlone, decide_batch
from clearway.preemption.candidates import CandidateCache, Survey
from clearway.preemption.detection import OthersThatWait, ordinary_preemptors, preemptors
from clearway.preemption.order import LATER, Examination, Turns
from clearway.preemption.problem import longest_horizon
from clearway.preemption.proposals import Proposals, SilentNodes
from clearway.preemption.validation import after_planning, plan_misfit
from clearway.slurm.base import SlurmBackend

# A node that is brought back takes jobs when it has answered slurmctld's next ping. No job has to leave instead.
_ANSWERS_WITHIN = timedelta(seconds=3)
_FRESH_FOR_S = 1.0  # so long after it has ended may the look be used that plans are checked against
_OTHERS_IN = 0.6  # of the time: where several plans were made, the others are stored and begun in the next cycle
_STORES_IN = 0.25  # of it have the others at least, so that few plans are made in vain
_CHANGED = "the cluster changed while the plan was made"
_FAILED = "Clearway failed at a plan for it and tries again later; see the log"
_FAILED_TOGETHER = "Clearway failed at a plan for several jobs at once; it is planned for in its turn"

_Unit = Sequence[tuple[Preemptor, Plan]]  # plans that are carried out together: of one job, or of its components


@dataclass(frozen=True, slots=True)
class _Stored:
    """The evictions of one unit, and the fresh snapshot where they are to be begun at once."""

    evictions: Sequence[tuple[Preemptor, Eviction]]
    seen: ClusterSnapshot | None


class _FreshLook:
    """The cluster after plans were made, for all of them: nothing is done before all of them are stored."""

    def __init__(self, backend: SlurmBackend, clock: Clock, preemptors: Sequence[str]) -> None:
        self._backend, self._clock, self._preemptors = backend, clock, preemptors
        self._seen: tuple[Mapping[str, Job], ClusterSnapshot] | None = None
        self._at_s = 0.0

    def take(self) -> tuple[Mapping[str, Job], ClusterSnapshot]:
        """The preemptors that could be looked at, by id, and the cluster; however long a look takes, one for all plans.

        A snapshot alone may know a preemptor's excluded nodes, and the limit of its array, from earlier.
        """
        if self._seen is None or self._clock.monotonic() - self._at_s > _FRESH_FOR_S:
            preemptors, _ = self._backend.look_at(self._preemptors, whole=True)
            self._seen = preemptors, self._backend.snapshot()
            self._at_s = self._clock.monotonic()
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

    def update(self, context: CycleContext) -> tuple[Waiting, ...]:
        """Plan for preemptors without an eviction, as time allows; all that wait, by deadline, and what they get."""
        with self.basis.time.spending():
            waiting, fresh = self._observe(context)
            waiting += self._serve(fresh, context)
            if context.config.eternal.partitions and not context.paused:
                ordinary = partial(self._serve_ordinary_jobs, tuple(waiting), context)
                waiting += self.quarantine.attempt_part("eternal jobs", lambda: list(ordinary())) or ()
            return self._told(waiting, context)

    def look_ahead(self, context: CycleContext, go_on: Callable[[], bool]) -> None:
        """Between two cycles: what the next plan has not to look at any more, as far as ``go_on`` says."""
        if context.config.preemptors:
            self.looks.look_ahead(self.basis.context(context, UnderWay(), counts=False), go_on)

    def _observe(self, context: CycleContext) -> tuple[list[Waiting], list[Preemptor]]:
        """Urgent jobs that are served or left alone, and those that a plan is wanted for."""
        by_preemptor, outdated = self.operations.by_preemptor(), self.proposals.outdated
        waiting: list[Waiting] = []
        fresh: list[Preemptor] = []
        rules, attempt = context.config.preemptors, self.quarantine.attempt_job
        for preemptor in preemptors(context.snapshot, rules, self._placements(), attempt):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is not None and (preemptor.job.job_id not in outdated or context.paused):
                waiting.append(_served(preemptor, eviction))
            elif why := self._left_alone(preemptor.job, context) or context.waits_why:
                waiting.append(Waiting(preemptor, None, why))
            else:
                fresh.append(preemptor)
        return waiting, fresh

    def _told(self, waiting: Sequence[Waiting], context: CycleContext) -> tuple[Waiting, ...]:
        """All that wait, by deadline; proposals whose turn did not come stay, those whose job is gone do not."""
        for job_id in self.proposals.outdated.keys() - {each.preemptor.job.job_id for each in waiting}:
            self.proposals.put_outdated_aside(job_id, context)
        self.proposals.outdated.clear()
        kept = self.operations.by_preemptor()
        told = [
            _served(each.preemptor, kept[each.preemptor.job.job_id]) if each.preemptor.job.job_id in kept else each
            for each in waiting
        ]
        return tuple(sorted(told, key=lambda each: (each.preemptor.deadline, each.preemptor.job.job_id)))

    def _left_alone(self, job: Job, context: CycleContext) -> str | None:
        return self.suppression.reason(job) or self.pauses.left_alone(job.user, context.now)

    def _placements(self) -> frozenset[str]:
        """Those that preemptors may be in; one that waits for promised nodes is left to Slurm."""
        return frozenset(e.placement for e in self.operations.all() if e.placement and not isinstance(e, Promise))

    def _serve_ordinary_jobs(self, urgent: Sequence[Waiting], context: CycleContext) -> Iterator[Waiting]:
        """Eternal jobs make room for them, after all urgent ones."""
        by_preemptor = self.operations.by_preemptor()
        fresh = []
        others = OthersThatWait(
            urgent=[each.preemptor for each in urgent if each.eviction_id is None],
            served=by_preemptor.keys(),
            suppressed=lambda job: self._left_alone(job, context) is not None,
            placements=self._placements(),
        )
        config = context.config
        for preemptor in ordinary_preemptors(context.snapshot, config.eternal, config.preemptors, context.now, others):
            eviction = by_preemptor.get(preemptor.job.job_id)
            if eviction is None or preemptor.job.job_id in self.proposals.outdated:
                fresh.append(preemptor)
            else:
                yield _served(preemptor, eviction)
        yield from self._serve(fresh, context)

    def _serve(self, fresh: Sequence[Preemptor], context: CycleContext) -> Iterator[Waiting]:
        """Plan for those together whose turn it is, store all plans, and begin.

        Others have their turn at once while there is time and nothing is carried out for the first ones.
        """
        if not fresh:
            return
        context = self._with_limits(fresh, context)
        planning, began = self.basis.context(context, UnderWay()), self.clock.monotonic()
        survey = Survey(longest_horizon(fresh, planning), self.looks)
        examination = Examination(self.quarantine, self.basis, planning, survey)
        known = examination.answers(self.turns.in_order(fresh), self.turns, context)
        yield from (Waiting(each, None, self.turns.last_told(each)) for each in fresh if each.job.job_id not in known)
        left: Sequence[Preemptor] = [each for each in fresh if each.job.job_id in known]
        claimed: list[Plan] = []
        while left:
            decided = self._decide(left, examination.beside(tuple(claimed)), known)
            known = {}
            claimed += [plan for _, plan in decided.plans if isinstance(plan, Plan)]
            told, stored, changed = self._store_all(decided.plans, planning, context)
            yield from told
            yield from self._begin(stored, context, began)
            if stored:
                self.basis.time.carried_out(self.clock.monotonic() - began)
            left, began = decided.later, self.clock.monotonic()
            acting = any(e.state.acting for unit in stored for _, e in unit.evictions)
            if changed or acting or self.basis.time.left_s() <= 0:
                yield from self._missed(left, decided.why_later)
                return

    def _with_limits(self, fresh: Sequence[Preemptor], context: CycleContext) -> CycleContext:
        """With what bounds those that are planned for, whose turn comes first as long as not all can be asked about."""
        jobs = [each.job for each in self.turns.in_order(fresh) if not each.obstacle]
        if not jobs:
            return context
        with self.basis.time.asking():
            return replace(context, limits=self.backend.limits(jobs), reservations=self.backend.reservations())

    def _missed(self, some: Sequence[Preemptor], why: str) -> Iterator[Waiting]:
        """They are the first in the next cycle."""
        for preemptor in some:
            self.turns.missed(preemptor)
            yield Waiting(preemptor, None, why)

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

        Returns the preemptors that wait for something else, what is stored, and whether the cluster changed meanwhile.
        """
        told, stored, changed = list[Waiting](), list[_Stored](), False
        for preemptor, plan in plans:
            if isinstance(plan, NoPlan):
                told += self._without_plan([preemptor], plan.why, context)
        made = [(preemptor, plan) for preemptor, plan in plans if isinstance(plan, Plan)]
        look = _FreshLook(self.backend, self.clock, [preemptor.job.job_id for preemptor, _ in made])
        began_s, time = self.clock.monotonic(), self.basis.time
        for _, group in groupby(made, key=lambda each: each[1].components or each[1].preemptor.job_id):
            unit = list(group)
            waiting = [preemptor for preemptor, _ in unit]
            late = time.left_s() <= (1 - _OTHERS_IN) * time.limit_s
            if stored and late and self.clock.monotonic() - began_s >= _STORES_IN * time.limit_s:
                self.executor.pace.put_off(context.now)  # those before it do not depend on it
                told += self._missed(waiting, LATER)
                continue
            store = partial(self._store_unit, unit, planning, context, None if changed else look)
            found = self.quarantine.attempt_job(f"{waiting[0].job.job_id} with a plan", store)
            if isinstance(found, _Stored):
                stored.append(found)
                continue
            changed |= found == _CHANGED
            told += self._without_plan(waiting, found or _FAILED, context)
        return told, stored, changed

    def _without_plan(self, some: Sequence[Preemptor], why: str, context: CycleContext) -> list[Waiting]:
        """Where the cluster only changed, a proposal stays until there is another."""
        for preemptor in some:
            if preemptor.job.job_id in self.proposals.outdated and why != _CHANGED:
                self.proposals.put_outdated_aside(preemptor.job.job_id, context)
        return [Waiting(preemptor, None, why) for preemptor in some]

    def _store_unit(
        self, unit: _Unit, planning: PlanningContext, context: CycleContext, look: _FreshLook | None
    ) -> _Stored | str:
        """All plans of a unit, or none: then why not. Without a look the cluster has changed."""
        others = [e for e in self.operations.all() if e.state.acting]
        group = [plan for _, plan in unit]
        lately = self.executor.brought_back_since(context.now - _ANSWERS_WITHIN) | self.silent.lately(context.now)
        for preemptor, plan in unit:
            why = self.proposals.needless(preemptor, plan, planning, context, lately)
            if why := why or after_planning(plan, others, planning, group):
                return why
        if look is None:
            return _CHANGED
        states = [self._first_state(plan, context) for plan in group]
        seen = None
        if EvictionState.PLACING in states:
            with self.basis.time.asking():
                looked_at, seen = look.take()  # the plan aged while it was made
            if not all(self._fits(plan, looked_at, seen, context) for plan in group):
                return _CHANGED
        made = [(each, self._create(plan, state, context)) for (each, plan), state in zip(unit, states, strict=True)]
        return _Stored(made, seen if all(e.state is EvictionState.PLACING for _, e in made) else None)

    def _first_state(self, plan: Plan, context: CycleContext) -> EvictionState:
        mode = context.config.daemon.mode
        usage = self.operations.usage(context.now)
        asked = mode is Mode.AUTOMATIC and self.proposals.asked_about(plan, usage, context)
        return FIRST_STATE[Mode.APPROVE if asked else mode]

    def _fits(self, plan: Plan, looked_at: Mapping[str, Job], seen: ClusterSnapshot, context: CycleContext) -> bool:
        preemptor = looked_at.get(plan.preemptor.job_id)
        if preemptor is None or set(preemptor.excluded_nodes) & set(plan.placement_nodes):
            return False
        return not plan_misfit(plan, seen, promised_by(self.operations.all()), context.config)

    def _create(self, plan: Plan, state: EvictionState, context: CycleContext) -> Eviction:
        mode = context.config.daemon.mode
        before = self.proposals.outdated.pop(plan.preemptor.job_id, None)
        if before is not None and state is EvictionState.PROPOSED:
            return self.proposals.replace_plan(before[0], plan, context)
        if before is not None:
            self.executor.put_aside(*before, context.now)

        def judged(usage: Usage) -> Eviction:
            why = self.proposals.asked_about(plan, usage, context)
            waits = state is EvictionState.PLACING and why
            outcome = Outcome(OutcomeCode.NEEDS_APPROVAL, why) if why and mode is not Mode.OBSERVE else None
            first = EvictionState.AWAITING_APPROVAL if waits else state
            return fresh_operation(Eviction, plan, mode.value, first, context.now, outcome=outcome)

        return self.operations.create(judged(self.operations.usage(context.now)), judged)

    def _begin(self, stored: Sequence[_Stored], context: CycleContext, began: float) -> Iterator[Waiting]:
        """The newest first: a plan that counts on another plan's jobs needs its placement before these jobs leave.

        Slurm would start the other preemptor on any of the nodes that become free, as long as no placement keeps them.
        One unit is begun however long all has taken, so that no urgent job waits for a quicker Slurm.
        """
        time, begun = self.basis.time, False
        for unit in reversed(stored):
            at_once = unit.seen is not None and (not begun or time.left_s() > (1 - _OTHERS_IN) * time.limit_s)
            if unit.seen is not None and not at_once:
                self.executor.pace.put_off(context.now)
            for preemptor, planned in unit.evictions:
                eviction = planned
                if at_once and unit.seen is not None:
                    context.alive()
                    advance = partial(self.executor.advance, planned, replace(context, snapshot=unit.seen))
                    eviction = self.quarantine.attempt(Subject.OPERATION, str(planned.eviction_id), advance) or planned
                self.emit(PlanMade(eviction, self.clock.monotonic() - began))
                yield _served(preemptor, eviction)
            begun |= at_once


def _served(preemptor: Preemptor, eviction: Eviction) -> Waiting:
    return Waiting(preemptor, eviction.eviction_id, eviction.outcome or eviction.state.value)
