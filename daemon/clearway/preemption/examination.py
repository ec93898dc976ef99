"""What can be done for each urgent job of a cycle alone, of as many as there is time for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Self

from clearway.eligibility.context import PlanningContext
from clearway.eligibility.under_way import under_way_by
from clearway.execution.cycle_context import CycleContext, PlanningBasis
from clearway.execution.open_operations import OpenOperations
from clearway.execution.quarantine import Quarantine
from clearway.model.plan import NoPlan, Plan, Preemptor
from clearway.model.report import Subject
from clearway.planning.base import Planner
from clearway.planning.joint.cheapest_nodes import FEW_NODES
from clearway.planning.joint.several import MANY
from clearway.preemption.batch import Answers, SolveAlone, under_way_beside
from clearway.preemption.looks import KeptLooks
from clearway.preemption.plan import Solution, solve_alone
from clearway.preemption.problem import horizon
from clearway.preemption.survey import Survey
from clearway.preemption.turns import Turns
from clearway.preemption.validation import asks_for

# Of the time that solving for a preemptor alone takes, what planning for it beside others takes more; and likewise for
# one that asks for the same as one before it: they are planned for as one.
_BESIDE_OTHERS = 2.0
_BESIDE_ALIKE = 1.0
_AT_ONCE = 0.5  # of the time that there is have many that are planned for at once
_OF_A_NODE_S = 0.002  # that the curve of one takes for each node that it may have a part of, about


@dataclass(frozen=True, slots=True)
class Examination:
    """Of the preemptors of one cycle, which have the survey in common."""

    operations: OpenOperations
    quarantine: Quarantine
    basis: PlanningBasis
    planning: PlanningContext
    planner: Planner
    survey: Survey

    @classmethod
    def of(
        cls,
        fresh: Sequence[Preemptor],
        planning: PlanningContext,
        basis: PlanningBasis,
        operations: OpenOperations,
        quarantine: Quarantine,
        looks: KeptLooks,
    ) -> Self:
        planner, survey = basis.planner, Survey(kept_looks=looks)
        if len(fresh) > 1:
            survey = Survey(max(horizon(each, planning.config, planning.now) for each in fresh), looks)
        return cls(operations, quarantine, basis, planning, planner, survey)

    def beside(self, claimed: Sequence[Plan], *, exact_nodes: float = inf) -> SolveAlone:
        """What solves for a preemptor; ``claimed`` are the plans that were made before in this cycle.

        ``exact_nodes``: see ``solve_alone``.
        """

        def solve_one(preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()) -> Solution | NoPlan:
            under_way = under_way_by(self.operations.all(), preemptor.deadline)
            under_way = under_way_beside(under_way, (*claimed, *beside), preemptor.deadline)
            context = replace(self.planning, under_way=under_way)
            return solve_alone(
                preemptor, context, self.planner, whole=whole, exact_nodes=exact_nodes, survey=self.survey
            )

        def guarded(preemptor: Preemptor, *, whole: bool = False, beside: Sequence[Plan] = ()) -> Solution | NoPlan:
            ident = f"{preemptor.job.job_id} in a plan"
            solve = partial(solve_one, preemptor, whole=whole, beside=beside)
            found = self.quarantine.attempt_job(ident, solve)
            return NoPlan(self.quarantine.why(Subject.JOB, ident)) if found is None else found

        return guarded

    def answers(self, order: Sequence[Preemptor], turns: Turns, context: CycleContext) -> Answers:
        """What can be done for each alone, of as many as can be planned for beside each other in the time there is.

        Of many, and of fewer whose curves would take too long, it is enough to know that there is a plan, where that is
        beyond doubt: they are planned for at once. The first has its turn in any case: a cycle without any would help
        nobody.
        """
        time, impossible, now = self.basis.time, self.basis.impossible, context.now
        known: Answers = {}
        later_s, longest_s = 0.0, 0.0  # that planning beside others takes; that solving for one has taken at most
        together_s, in_all_s = 0.0, time.left_s()  # that planning for many at once takes; that there is
        examined = False
        single = [each for each in order if each.tasks == 1 and not each.components]
        crowd = {each.job.job_id for each in single}
        solve, solve_roughly = self.beside(()), self.beside((), exact_nodes=_exact_nodes(len(crowd), in_all_s))
        for preemptor in order:
            job = preemptor.job
            of_preemptor = (preemptor.only_opportunistic, preemptor.takes_free)
            asks = (*of_preemptor, asks_for(job), job.restart_count, context.reservations)
            if (why := impossible.why(job.job_id, asks, now)) is not None:
                known[job.job_id] = NoPlan(why)
                continue
            if examined and time.left_s() - longest_s <= max(together_s, later_s + _BESIDE_OTHERS * longest_s):
                continue  # those after it may still be known to be impossible
            context.alive()
            left_s, parts, examined = time.left_s(), self.survey.found, True
            known[job.job_id] = found = (solve_roughly if job.job_id in crowd else solve)(preemptor)
            turns.had(preemptor, found.why if isinstance(found, NoPlan) else "")
            took_s, alike = left_s - time.left_s(), self.survey.found == parts
            longest_s = took_s if alike else max(longest_s, took_s)
            if isinstance(found, Solution) and found.rough:
                together_s, longest_s = _AT_ONCE * in_all_s, 0.0
            elif isinstance(found, Solution):
                later_s += (_BESIDE_ALIKE if alike else _BESIDE_OTHERS) * took_s
            elif found.curve is not None:
                impossible.remember(job.job_id, asks, found.why, now)
        return self._exactly(known, order)

    def _exactly(self, known: Answers, order: Sequence[Preemptor]) -> Answers:
        """The answers; where there is one plan alone, as though it had been the only preemptor from the beginning."""
        able = [each for each in order if isinstance(known.get(each.job.job_id), Solution)]
        if len(able) != 1 or len(order) == 1:
            return known
        alone = replace(self, planner=self.basis.planner, survey=Survey(kept_looks=self.survey.kept_looks))
        return {**known, able[0].job.job_id: alone.beside(())(able[0])}


def _exact_nodes(preemptors: int, seconds: float) -> float:
    """On more nodes than that, the exact curves of so many preemptors would take longer.

    Those of ``MANY`` are not worth their time on few nodes either; that of a single one is never in anybody's way.
    """
    if preemptors <= 1:
        return inf
    return FEW_NODES if preemptors >= MANY else max(FEW_NODES, seconds / preemptors / _OF_A_NODE_S)
