"""One urgent job by the program: where jobs share nodes, parts of nodes are asked for, or checkpoints are shared.

Model: see ``program``. A plan for some deadline serves every later one, and is the best for all of them down to the
moment at which it is done itself. So a curve takes one program for each different plan, from the last deadline down.
"""

from dataclasses import replace
from math import ceil, inf
from operator import itemgetter

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem
from clearway.planning.base import Seconds
from clearway.planning.formulation.shared_bandwidth import planned_action
from clearway.planning.joint.program import JointProgram
from clearway.planning.joint.requests import Best, Request

MOST_S = 2.0  # that HiGHS may look for the best plan, at a time: what it has found by then comes with its gap


class OneRequest:
    """A problem with names for all nodes."""

    def __init__(self, problem: EvictionProblem) -> None:
        """Raises ValueError where the problem contradicts itself."""
        if problem.step_s <= 0 or problem.max_delay_s < 0:
            raise ValueError("an eviction problem needs step_s > 0 and max_delay_s >= 0")
        if len({each.job_id for each in problem.candidates}) < len(problem.candidates):
            raise ValueError("an eviction problem names each job_id once")
        last_s = problem.last_step * problem.step_s
        self._problem = replace(problem, max_delay_s=last_s, candidates=tuple(map(_checked, problem.candidates)))

    def decided(self, name: str, seconds_left: Seconds, waiting_nodes: int) -> Curve:
        """The point to be carried out, alone; see ``Planner.decide``."""
        program = self._program(self._problem)

        def seconds() -> float:
            return min(MOST_S, seconds_left())

        best = program.best(seconds, waiting_nodes)
        if best is not None and waiting_nodes and not best.least_node_s:
            best = program.without_preemption(seconds) or best
        if best is None:
            point = CurvePoint(self._problem.max_delay_s, feasible=False)
            return Curve(name, (point,), exact=program.infeasible, complete=False)
        point = self._point(program.done_s(best), best, program)
        return Curve(name, (point,), best.proven, _gap(best, point), complete=False)

    def curve(self, name: str) -> Curve:
        """A point for each deadline from the first that is asked about."""
        problem, step_s = self._problem, self._problem.step_s
        points: dict[int, CurvePoint] = {}
        exact, gap, step = True, 0.0, problem.last_step
        while step >= problem.first_step:
            program = self._program(problem.within(step * step_s))
            best = program.best(lambda: inf)
            if best is None:
                break
            done = ceil(program.done_s(best) / step_s)
            for each in range(max(problem.first_step, done), step + 1):
                points[each] = self._point(each * step_s, best, program)
            exact, gap = exact and best.proven, max(gap, _gap(best, points[step]))
            step = min(step, done) - 1
        every = range(problem.first_step, problem.last_step + 1)
        found = tuple(points.get(each) or CurvePoint(each * step_s, feasible=False) for each in every)
        return Curve(name, found, exact, gap)

    def soonest_s(self) -> int | None:
        """The first moment at which the nodes can be free; None where they cannot."""
        return self._program(self._problem).soonest_s()

    @staticmethod
    def _program(problem: EvictionProblem) -> JointProgram:
        required = len(problem.needs.required_nodes) if problem.needs is not None else 0
        nodes = max(0, problem.nodes_needed, required)
        return JointProgram([Request("", nodes, problem, ())], problem.step_s)

    def _point(self, delay_s: int, best: Best, program: JointProgram) -> CurvePoint:
        (given,) = best.allocations
        going = sorted([*given.leaving, *given.ending], key=itemgetter(0))
        planned = [planned_action(job_id, option, self._problem.step_s) for job_id, option in going]
        gone = {job_id for job_id, _ in going}
        left: set[str] = set()
        held: set[str] = set()
        for each in self._problem.candidates:
            (left if each.job_id in gone else held).update(each.node_names)
        freed = left - held if self._problem.needs is None else left.intersection(given.nodes)
        return CurvePoint(
            delay_s,
            feasible=True,
            lost_work_node_s=round(sum(each.lost_work_node_s for each in planned), 9),
            checkpoint_s=sum(program.written_s(option) for _, option in going if option.action is not Action.END),
            nodes_freed=len(freed),
            actions=tuple(planned),
            return_node_s=sum(each.return_node_s for each in planned),
        )


def _gap(best: Best, point: CurvePoint) -> float:
    lost = point.lost_work_node_s or 0.0
    return 0.0 if best.proven or not lost else max(0.0, lost - best.least_node_s) / lost


def _checked(candidate: Candidate) -> Candidate:
    """With names for its nodes where they have none."""
    for option in candidate.options:
        if not (0 <= option.checkpoint_s < inf and 0 <= option.ready_s < inf):
            raise ValueError(f"job {candidate.job_id}: checkpoint_s and ready_s must be finite numbers of seconds >= 0")
        if option.file_system_s is not None and not 0 <= option.file_system_s <= option.checkpoint_s:
            raise ValueError("file_system_s must be a number of seconds between 0 and checkpoint_s")
        if option.return_node_s < 0:
            raise ValueError("coming back must cost a number of node-seconds >= 0")
    if candidate.nodes < 0 or (candidate.node_names and len(candidate.node_names) != candidate.nodes):
        raise ValueError(f"job {candidate.job_id}: nodes must be the number of its node names")
    if candidate.node_names or not candidate.nodes:
        return candidate
    return replace(candidate, node_names=tuple([f"{candidate.job_id} {number}" for number in range(candidate.nodes)]))
