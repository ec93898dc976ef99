"""One urgent job by the program: where jobs share nodes, parts of nodes are asked for, or checkpoints are shared.

Model: see ``program``. A plan for some deadline serves every later one, and is the best for all of them down to the
moment at which it is done itself. So a curve takes one program for each different plan, from the last deadline down.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import ceil, inf
from operator import itemgetter
from typing import Self

from clearway.model.plan import Curve, CurvePoint
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import Seconds
from clearway.planning.formulation.shared_bandwidth import planned_action
from clearway.planning.joint.program import JointProgram, whole_s
from clearway.planning.joint.requests import Best, Request

MOST_S = 2.0  # that HiGHS may look for the best plan, at a time: what it has found by then comes with its gap


@dataclass(frozen=True, slots=True)
class OneRequest:
    """A problem with names for all nodes."""

    problem: EvictionProblem

    @classmethod
    def of(cls, problem: EvictionProblem) -> Self:
        """Raises ValueError where the problem contradicts itself."""
        if problem.step_s <= 0 or problem.max_delay_s < 0:
            raise ValueError("an eviction problem needs step_s > 0 and max_delay_s >= 0")
        if len({each.job_id for each in problem.candidates}) < len(problem.candidates):
            raise ValueError("an eviction problem names each job_id once")
        last_s = problem.last_step * problem.step_s
        return cls(replace(problem, max_delay_s=last_s, candidates=tuple(map(_checked, problem.candidates))))

    def decided(self, name: str, seconds_left: Seconds, waiting_nodes: int) -> Curve:
        """The point to be carried out, alone; see ``Planner.decide``."""
        if self._free_already:
            return Curve(name, (self._point(0, None),), complete=False)
        program = self._program(self.problem)

        def seconds() -> float:
            return min(MOST_S, seconds_left())

        best = program.best(seconds, waiting_nodes)
        if best is not None and waiting_nodes and not best.least_node_s:
            best = program.without_preemption(seconds) or best
        if best is None:
            point = CurvePoint(self.problem.max_delay_s, feasible=False)
            return Curve(name, (point,), exact=program.infeasible, complete=False)
        point = self._point(self._done_s(best), best)
        return Curve(name, (point,), best.proven, _gap(best, point), complete=False)

    def curve(self, name: str) -> Curve:
        """A point for each deadline from the first that is asked about."""
        problem, step_s = self.problem, self.problem.step_s
        points: dict[int, CurvePoint] = {}
        exact, gap, step = True, 0.0, problem.last_step
        while step >= problem.first_step:
            best = None if self._free_already else self._program(problem.within(step * step_s)).best(lambda: inf)
            if best is None and not self._free_already:
                break
            done = 0 if best is None else ceil(self._done_s(best) / step_s)
            for each in range(max(problem.first_step, done), step + 1):
                points[each] = self._point(each * step_s, best)
            if best is not None:
                exact, gap = exact and best.proven, max(gap, _gap(best, points[step]))
            step = min(step, done) - 1
        every = range(problem.first_step, problem.last_step + 1)
        found = tuple(points.get(each) or CurvePoint(each * step_s, feasible=False) for each in every)
        return Curve(name, found, exact, gap)

    def soonest_s(self, seconds_left: Seconds) -> int | None:
        """The first moment at which the nodes can be free; None where they cannot, or that was not found in time."""
        return 0 if self._free_already else self._program(self.problem).soonest_s(seconds_left)

    @property
    def _free_already(self) -> bool:
        return self.problem.needs is None and self.problem.nodes_needed <= 0

    @staticmethod
    def _program(problem: EvictionProblem) -> JointProgram:
        required = len(problem.needs.required_nodes) if problem.needs is not None else 0
        nodes = max(0, problem.nodes_needed, required)
        return JointProgram([Request("", nodes, problem, ())], problem.step_s)

    def _done_s(self, best: Best) -> int:
        """When its nodes are free."""
        (allocation,) = best.allocations
        written = [option for _, option in allocation.leaving if option.checkpoint_s]
        whole = [self._steps_s(whole_s(option)) for option in written]
        rests = [self._steps_s(each.checkpoint_s) - of for each, of in zip(written, whole, strict=True)]
        busy_s = self._steps_s(self.problem.busy_s) if written else 0
        ready = [self._steps_s(option.ready_s) for _, option in (*allocation.leaving, *allocation.ending)]
        return max([sum(whole) + max(rests, default=0) + busy_s, *ready])

    def _steps_s(self, seconds: float) -> int:
        return ceil(seconds / self.problem.step_s) * self.problem.step_s

    def _point(self, delay_s: int, best: Best | None) -> CurvePoint:
        going = [] if best is None else [*best.allocations[0].leaving, *best.allocations[0].ending]
        going.sort(key=itemgetter(0))
        planned = [planned_action(job_id, option, self.problem.step_s) for job_id, option in going]
        return CurvePoint(
            delay_s,
            feasible=True,
            lost_work_node_s=round(sum(each.lost_work_node_s for each in planned), 9),
            checkpoint_s=sum(self._written_s(option) for _, option in going),
            nodes_freed=0 if best is None else self._freed(best, {job_id for job_id, _ in going}),
            actions=tuple(planned),
            return_node_s=sum(each.return_node_s for each in planned),
        )

    def _written_s(self, option: Option) -> int:
        return 0 if option.action is Action.END else self._steps_s(whole_s(option))

    def _freed(self, best: Best, gone: Collection[str]) -> int:
        """Nodes that all jobs have left; of parts of nodes those that it is given."""
        left: set[str] = set()
        held: set[str] = set()
        for each in self.problem.candidates:
            (left if each.job_id in gone else held).update(each.node_names)
        return len(left - held if self.problem.needs is None else left.intersection(best.allocations[0].nodes))


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
