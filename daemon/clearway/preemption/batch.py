"""Plans for several preemptors that wait in the same cycle: in which order, and none at another's expense. Pure.

Users take turns, so that a hundred jobs of one user do not keep another user's job waiting. Of one user's jobs those
come first that were not looked at yet, by their deadlines, then the one that was looked at longest ago: one that could
not be served before comes after all others, and never instead of them.

One without a plan alone has none beside others either. There is one program for all of the rest
(``planning.joint.several``). What it does not know (licenses, tasks of an array on parts of nodes), and what it has no
time for, is planned in turn: each beside the plans before it.

Where the nodes of one job serve several preemptors, the job belongs to the plan of the first of them by time, and the
plans of the others depend on it. When the first one disappears before the job has left, only the others are planned
anew.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import zip_longest

from clearway.config.configuration import Mode
from clearway.eligibility.under_way import UnderWay
from clearway.execution.progress import fresh_operation
from clearway.model.operations import Eviction, EvictionState
from clearway.model.plan import Choice, Curve, CurvePoint, NoPlan, Plan, Preemptor, Verdict
from clearway.model.problem import EvictionProblem
from clearway.planning.base import Planner
from clearway.planning.formulation.shared_bandwidth import after_others, one_after_another, planned_action
from clearway.planning.joint.requests import Allocation, Best, Request
from clearway.planning.joint.several import gap_of, plan_together
from clearway.preemption.candidates import Survey
from clearway.preemption.node_needs import takes_parts
from clearway.preemption.plan import Solution, plan_alone, plan_of, too_late, why_chosen

LATER = "its turn comes in one of the next cycles: planning has taken its time in this one"
_WITH_GAP = "planned together with others; of what they all lose there may be needless at most"
_IN_TURN = "planned in its turn; there was no time to find out whether a plan for all of them at once is better"
_NOT_PROVEN = "planned at once with others; that is not proven to be the best"
_NO_TIME = "there was no time for it in this cycle"
_OF_THEIR_OWN = "heterogeneous jobs have a turn of their own"

# The best for one preemptor alone, beside plans for other preemptors.
SolveAlone = Callable[[Preemptor, Sequence[Plan]], Solution | NoPlan]
Answers = dict[str, Solution | NoPlan]  # by job_id of the preemptor
Plans = dict[str, Plan | NoPlan]


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
        users = sorted(jobs, key=lambda user: self._users.get(user, 0))  # stable: else by their first deadlines
        for own in jobs.values():
            own.sort(key=lambda each: self._jobs.get(each.job.job_id, 0))
        rounds = zip_longest(*(jobs[user] for user in users))
        return [each for one_of_each in rounds for each in one_of_each if each is not None]

    def had(self, preemptor: Preemptor, answer: Solution | NoPlan) -> None:
        self._count += 1
        self._told[preemptor.job.job_id] = answer.why if isinstance(answer, NoPlan) else LATER
        self._jobs[preemptor.job.job_id] = self._users[preemptor.job.user] = self._count

    def missed(self, preemptor: Preemptor) -> None:
        """Its turn came to nothing, because of others: it is the first of its user's jobs again."""
        self._jobs.pop(preemptor.job.job_id, None)

    def last_told(self, preemptor: Preemptor) -> str:
        """Why it had no plan when it was its turn last: that is unlikely to have changed."""
        return self._told.get(preemptor.job.job_id, LATER)


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Plans, each after those that it depends on; and the preemptors that have to wait for another cycle."""

    plans: tuple[tuple[Preemptor, Plan | NoPlan], ...]
    later: tuple[Preemptor, ...] = ()
    why_later: str = ""


def decide_batch(
    found: Sequence[Preemptor],
    solve: SolveAlone,
    planner: Planner,
    seconds_left: Callable[[], float],
    known: Answers | None = None,
) -> BatchDecision:
    """A decision for each preemptor, or for those that there is time for; ``seconds_left``: see ``plan_together``.

    The components of a heterogeneous job are decided on together, and apart from others: all of them, or none.
    ``known``: what ``solve`` has answered for some of them alone.
    """
    batch = _Batch(solve, planner, seconds_left, dict(known or {}))
    components, by_id = found[0].components, {each.job.job_id: each for each in found}
    if components:
        plans = batch.all_or_none([each for each in found if each.job.job_id in components])
    else:
        plans = batch.decide([each for each in found if not each.components])
    decided = tuple((by_id[job_id], plan) for job_id, plan in plans.items())
    later = tuple(each for each in found if each.job.job_id not in plans)
    in_turn = components or all(each.components for each in later)
    return BatchDecision(decided, later, _OF_THEIR_OWN if in_turn else _NO_TIME)


def under_way_beside(under_way: UnderWay, plans: Iterable[Plan], deadline: datetime) -> UnderWay:
    """What is under way, with what these plans claim as well, none of which is carried out yet."""
    for number, plan in enumerate(plans, 1):
        leaving = {job.job_id for job in plan.leaving}
        mode, state = Mode.AUTOMATIC.value, EvictionState.PREEMPTING
        begun = fresh_operation(Eviction, plan, mode, state, plan.made_at, eviction_id=-number)
        under_way = replace(
            under_way,
            jobs=under_way.jobs | leaving | {plan.preemptor.job_id},
            nodes=under_way.nodes | set(plan.placement_nodes),
            promised=under_way.promised | (leaving if plan.due <= deadline else set()),
            evictions=(*under_way.evictions, begun),
        )
    return under_way


@dataclass(frozen=True, slots=True)
class _Batch:
    """What all decisions of one batch are made from."""

    solve: SolveAlone
    planner: Planner
    seconds_left: Callable[[], float]
    known: Answers  # for preemptors alone

    def all_or_none(self, group: Sequence[Preemptor]) -> Plans:
        """Plans for all components of a heterogeneous job, which count on each other, or for none."""
        if len(group) < len(group[0].components):
            plans, why = Plans(), "not all of its components could be looked at in this cycle"
        else:
            plans, why = self.decide(group), "not all components can be served in time beside each other"
        for each in group:
            if isinstance(no := plans.get(each.job.job_id), NoPlan):
                plans, why = {}, f"component {each.job.display_id}: {no.why}"
        return plans if len(plans) == len(group) else {each.job.job_id: NoPlan(why) for each in group}

    def decide(self, found: Sequence[Preemptor]) -> Plans:
        """Each plan after those that it depends on; for some there may have been no time."""
        answers = self._answers(found)
        able = {job_id: each for job_id, each in answers.items() if isinstance(each, Solution)}
        best = None
        if len(able) > 1 and all(map(_in_programs, able.values())):
            best = plan_together(requests_of(able), self.seconds_left)
        if best is not None and best.allocations:
            plans = plans_of({key: each for key, each in able.items() if key not in best.later}, best.allocations)
            note = _not_proven(best, len(able))
        else:
            plans = self._in_turn(found)
            note = _IN_TURN if len(able) > 1 else ""
        for job_id, plan in plans.items():
            if isinstance(plan, Plan):
                plans[job_id] = replace(plan, note="; ".join(filter(None, (plan.note, note))))
        return plans | {job_id: each for job_id, each in answers.items() if isinstance(each, NoPlan)}

    def _answers(self, found: Sequence[Preemptor]) -> Answers:
        """For each alone, as far as there is time; the first in any case."""
        answers: Answers = {}
        for each in found:
            job_id = each.job.job_id
            if job_id not in self.known and (not answers or self.seconds_left() > 0):
                self.known[job_id] = self.solve(each, ())
            if job_id in self.known:
                answers[job_id] = self.known[job_id]
        return answers

    def _in_turn(self, found: Sequence[Preemptor]) -> Plans:
        """Each beside the plans of those before it; the first in any case, the others while there is time."""
        plans: Plans = {}
        for each in found:
            answer = self.known.get(each.job.job_id)
            if not isinstance(answer, Solution):
                continue
            if plans and self.seconds_left() <= 0:
                break
            beside = [plan for plan in plans.values() if isinstance(plan, Plan)]
            best = self.solve(each, beside) if beside or answer.rough else answer
            plans[each.job.job_id] = plan_alone(best, self.planner) if isinstance(best, Solution) else best
        return plans


def _in_programs(solution: Solution) -> bool:
    """Whether the joint programs know its needs."""
    problem = solution.prepared.problem
    return not problem.pools and (solution.prepared.preemptor.tasks == 1 or not takes_parts(problem))


def _not_proven(best: Best, asked: int) -> str:
    if best.proven:
        return ""
    gap = gap_of(best.allocations, best.least_node_s) if len(best.allocations) == asked and best.least_node_s else 0.0
    return f"{_WITH_GAP} {100 * gap:.1f} %" if gap else _NOT_PROVEN


def requests_of(solutions: Mapping[str, Solution]) -> list[Request]:
    """What each asks of the joint planner, in the serial model; candidates that are the same stay so."""
    busy_s, survey = _busy_s(solutions), Survey()

    def serial(problem: EvictionProblem) -> EvictionProblem:
        name = (id(problem.candidates), problem.busy_s)
        own = replace(problem, candidates=survey.once(name, lambda: one_after_another(problem).candidates))
        times = (id(own.candidates), own.max_delay_s, own.step_s)
        after = survey.once(times, lambda: after_others(own, busy_s))
        return replace(own, candidates=after.candidates, max_delay_s=after.max_delay_s, busy_s=after.busy_s)

    return [
        Request(job_id, each.prepared.preemptor.nodes, serial(each.prepared.problem), each.prepared.free_nodes)
        for job_id, each in solutions.items()
    ]


def plans_of(solutions: Mapping[str, Solution], allocations: Sequence[Allocation]) -> Plans:
    """A plan for each allocation, by the preemptor's job_id; a NoPlan for each preemptor without one."""
    goes_for = {job_id: allocation.job_id for allocation in allocations for job_id, _ in allocation.leaving}
    busy_s, survey = _busy_s(solutions), Survey()
    plans: Plans = {}
    for allocation in allocations:
        others = tuple(sorted(other.job_id for other in allocations if other is not allocation))
        solution = solutions[allocation.job_id]
        point = _point(allocation, solution, busy_s)
        # What it would be alone, and for other deadlines, is worked out later.
        solution = replace(solution, curve=Curve("joint", (point,), exact=False, complete=False))
        verdicts = _verdicts(point, solution, goes_for, survey)
        plans[allocation.job_id] = plan_of(solution, point, allocation.nodes, verdicts, others, allocation.depends_on)
    names = ", ".join(sorted(plans))
    for job_id, solution in solutions.items():
        if job_id not in plans:
            called = solution.prepared.preemptor.called
            why = f"its nodes could be freed in time, but not beside those of the {called}s before it ({names})"
            plans[job_id] = NoPlan(why, solution.curve)
    return plans


def _busy_s(solutions: Mapping[str, Solution]) -> int:
    """Seconds that checkpoints of other evictions keep the file system: the longest of all, as any may come first."""
    return max(each.prepared.problem.busy_s for each in solutions.values())


def _point(allocation: Allocation, solution: Solution, busy_s: int) -> CurvePoint:
    """The allocation as a point of a curve; it was planned as though ``busy_s`` had passed."""
    problem = solution.prepared.problem
    going = sorted((*allocation.leaving, *allocation.ending), key=lambda each: each[0])
    names = {job_id for job_id, _ in going}
    own = [each for each in problem.candidates if each.job_id in names]
    ready_s = {(each.job_id, way.action): way.ready_s for each in own for way in each.options}
    passed_s = busy_s if allocation.done_s or allocation.ending else 0
    own_ways = ((key, replace(way, ready_s=ready_s.get((key, way.action), way.ready_s))) for key, way in going)
    planned = [planned_action(job_id, way, 1) for job_id, way in own_ways]
    return CurvePoint(
        max_delay_s=min(allocation.done_s + passed_s, problem.max_delay_s) if busy_s else allocation.done_s,
        feasible=True,
        lost_work_node_s=sum(each.lost_work_node_s for each in planned),
        checkpoint_s=sum(each.checkpoint_s for each in planned),
        nodes_freed=len(set(allocation.nodes) - set(solution.prepared.free_nodes)),
        actions=tuple(planned),
        return_node_s=sum(each.return_node_s for each in planned),
    )


def _verdicts(point: CurvePoint, solution: Solution, goes_for: Mapping[str, str], survey: Survey) -> list[Verdict]:
    """Those of one plan, on each candidate; ``goes_for``: by each job that leaves, the preemptor that it leaves for."""
    prepared, candidates = solution.prepared, solution.prepared.problem.candidates
    called, only_end = prepared.preemptor.called, prepared.ground.jobs.only_end

    def spares(job_id: str) -> Verdict:
        code, reason = "not_needed", f"not needed: all {called}s together are served at less cost without it"
        if (owner := goes_for.get(job_id)) is not None:
            code, reason = "leaves_for_another", f"it leaves for {called} {owner}, once for all of them"
        return Verdict(job_id, Choice.SPARED, code, reason)

    # Most are the same in all plans that are made together.
    spared = survey.once((called, id(candidates)), lambda: {each.job_id: spares(each.job_id) for each in candidates})
    found = dict(spared)
    ending = [each for each in candidates if each.job_id in only_end and each.job_id not in goes_for]
    found |= {late.job_id: late for each in ending if (late := too_late(each, prepared))}
    for planned in point.actions:
        if planned.job_id in found:  # not one that only others may preempt: on it there is a verdict already
            found[planned.job_id] = why_chosen(planned, prepared, f"; planned together with other {called}s")
    return list(found.values())
