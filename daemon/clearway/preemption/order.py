"""In which order urgent jobs are planned for, and what each can have alone, as far as a cycle has time.

Users take turns, so that a hundred jobs of one user do not keep another user's job waiting. Of one user's jobs those
come first that were not looked at yet, by their deadlines, then the one that was looked at longest ago. A job that
could not be served before is therefore looked at again after all others, and never instead of them.

Half of the time there is goes into what each can have alone, the rest into a plan for all of them. The first has its
turn in any case: a cycle without any would help nobody. Of several it is enough to know that there is a plan, where
that is beyond doubt: the plan for all of them says which.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.restraints import Quarantine
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.report import Subject
from clearway.preemption.batch import Answers, SolveAlone, under_way_beside
from clearway.preemption.candidates import Survey, changes_at
from clearway.preemption.plan import Solution, solve_alone
from clearway.preemption.problem import horizon
from clearway.preemption.validation import ask_of

LATER = "its turn comes in one of the next cycles: planning has taken its time in this one"
_NEVER = -1
_TOGETHER = 0.5  # of the time for plans is kept for those that are made together


class Turns:
    """Who was looked at when; what is not stored of it only costs somebody a turn."""

    def __init__(self) -> None:
        self._count = 0
        self._jobs: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._told: dict[str, str] = {}

    def in_order(self, waiting: Sequence[Preemptor]) -> list[Preemptor]:
        """All of them, the next one first; ``waiting`` is in the order of deadlines."""
        jobs: defaultdict[str, list[Preemptor]] = defaultdict(list)
        for each in waiting:
            jobs[each.job.user].append(each)
        ids = {each.job.job_id for each in waiting}
        self._jobs = {job_id: at for job_id, at in self._jobs.items() if job_id in ids}
        self._told = {job_id: why for job_id, why in self._told.items() if job_id in ids}
        self._users = {user: at for user, at in self._users.items() if user in jobs}
        users = sorted(jobs, key=lambda user: self._users.get(user, _NEVER))  # stable: else by their first deadlines
        rounds = [
            (number, place, each)
            for place, user in enumerate(users)
            for number, each in enumerate(sorted(jobs[user], key=lambda one: self._jobs.get(one.job.job_id, _NEVER)))
        ]
        return [each for _, _, each in sorted(rounds, key=lambda one: one[:2])]

    def had(self, preemptor: Preemptor, why: str) -> None:
        """It was this one's turn; ``why``: why it has no plan all the same."""
        self._count += 1
        self._told[preemptor.job.job_id] = why or LATER
        self._jobs[preemptor.job.job_id] = self._users[preemptor.job.user] = self._count

    def missed(self, preemptor: Preemptor) -> None:
        """Its turn came to nothing, because of others: it is the first of its user's jobs again."""
        self._jobs.pop(preemptor.job.job_id, None)

    def last_told(self, preemptor: Preemptor) -> str:
        """Why it had no plan when it was its turn last: where that is unlikely to have changed, people want to know."""
        return self._told.get(preemptor.job.job_id, LATER)


@dataclass(frozen=True, slots=True)
class Examination:
    """Of the preemptors of one cycle, which have the survey in common."""

    quarantine: Quarantine
    basis: PlanningBasis
    planning: PlanningContext
    survey: Survey

    def beside(self, claimed: Sequence[Plan], *, rough: bool = False) -> SolveAlone:
        """What solves for a preemptor; ``claimed``: plans made before in this cycle; ``rough``: see ``solve_alone``."""

        def solve_one(preemptor: Preemptor, beside: Sequence[Plan]) -> Solution | NoPlan:
            under_way = under_way_by(self.basis.operations.all(), preemptor.deadline)
            under_way = under_way_beside(under_way, (*claimed, *beside), preemptor.deadline)
            context = replace(self.planning, under_way=under_way)
            return solve_alone(preemptor, context, self.basis.planner, rough=rough, survey=self.survey)

        def guarded(preemptor: Preemptor, *, beside: Sequence[Plan] = ()) -> Solution | NoPlan:
            ident = f"{preemptor.job.job_id} in a plan"
            found = self.quarantine.attempt_job(ident, partial(solve_one, preemptor, beside))
            return NoPlan(self.quarantine.why(Subject.JOB, ident)) if found is None else found

        return guarded

    def answers(self, order: Sequence[Preemptor], turns: Turns, context: CycleContext) -> Answers:
        """What can be done for each alone, of as many as there is time for; those without an answer wait."""
        time, impossible, now = self.basis.time, self.basis.impossible, context.now
        known: Answers = {}
        in_all_s, able = time.left_s(), False
        first: tuple[str, ...] = ()  # job_ids of the first one, with all components of its job
        singles = {each.job.job_id for each in order if each.tasks == 1 and not each.components}
        for preemptor in order:
            asks = (ask_of(preemptor, context.limits), context.reservations)
            if (why := impossible.why(preemptor.job.job_id, asks, now)) is not None:
                known[preemptor.job.job_id] = NoPlan(why)
                continue
            due = not first or preemptor.job.job_id in first
            if not due and time.left_s() <= (_TOGETHER * in_all_s if able else 0.0):
                continue  # those after it may still be known to be impossible
            context.alive()
            first = first or (preemptor.job.job_id, *preemptor.components)
            rough = len(singles) > 1 and preemptor.job.job_id in singles
            known[preemptor.job.job_id] = found = self.beside((), rough=rough)(preemptor)
            turns.had(preemptor, found.why if isinstance(found, NoPlan) else "")
            able |= isinstance(found, Solution)
            if isinstance(found, NoPlan) and found.curve is not None:
                impossible.remember(preemptor.job.job_id, asks, found.why, self._changes_at(preemptor))
        return self._exactly(known, order)

    def _changes_at(self, preemptor: Preemptor) -> datetime | None:
        planning = replace(self.planning, under_way=under_way_by(self.basis.operations.all()))
        deadline = None if preemptor.ordinary else preemptor.deadline
        return changes_at(planning, deadline, horizon(preemptor, planning))

    def _exactly(self, known: Answers, order: Sequence[Preemptor]) -> Answers:
        """The answers; where there is one plan alone, as though it had been the only preemptor from the beginning."""
        able = [each for each in order if isinstance(known.get(each.job.job_id), Solution)]
        if len(able) != 1 or len(order) == 1:
            return known
        alone = replace(self, survey=Survey(cache=self.survey.cache))
        return {**known, able[0].job.job_id: alone.beside(())(able[0])}
