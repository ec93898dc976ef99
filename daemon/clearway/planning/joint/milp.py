"""The eviction problem as a mixed-integer program, solved by HiGHS for each deadline: exact, and slow.

Model: the joint program (``program``) of one request, with durations in whole steps and without dominated options. Of
plans equal in all keys but the last HiGHS may return any: the list of jobs is not kept to. It needs no dynamic program,
which makes it an independent answer to compare with. It counts as exact where the program checked it in whole numbers
(``Best.sure``).

Cost: up to four programs a deadline; exponential at worst.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from clearway.model.plan import Curve
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.base import PlainPlanner
from clearway.planning.formulation.windows import Contest, Taken, Way, Window
from clearway.planning.joint.program import JointProgram
from clearway.planning.joint.requests import Request

_ENDS = (Option(Action.END),)


class Milp(PlainPlanner):
    """HiGHS, one key after another, for each deadline anew."""

    name = "milp"

    def solve_plain(self, problem: EvictionProblem) -> Curve:
        contest = Contest(problem)
        programs: list[_Program] = []

        def plans(window: Window) -> Callable[[int], Taken | None]:
            programs.append(_Program(contest, window))
            return programs[-1].best

        points = contest.points(contest.windows(), plans)
        return Curve(self.name, points, exact=all(program.proven for program in programs))


class _Program:
    """The joint program of one window; only the deadline changes from one solution to the next."""

    def __init__(self, contest: Contest, window: Window) -> None:
        self.proven = True
        problem, self._window = contest.problem, window
        self._problem = problem
        self._ways: dict[tuple[str, Option], Way] = {}
        candidates = []
        for rank, candidate in enumerate(contest.candidates):
            ways = {
                replace(contest.option(way), checkpoint_s=way.steps * problem.step_s, ready_s=0.0): way
                for way in window.ways.get(rank, ())
            }
            self._ways |= {(candidate.job_id, option): way for option, way in ways.items()}
            options = _ENDS if rank in window.ended_ranks else tuple(ways)
            candidates.append(replace(_named(candidate, problem), options=options))
        needed = max(problem.nodes_needed, len(problem.needs.required_nodes) if problem.needs else 0)
        last_s = window.last_step * problem.step_s
        asked = replace(problem, candidates=tuple(candidates), max_delay_s=last_s)
        self._joint = JointProgram([Request("", needed, asked, ())])

    def best(self, step: int) -> Taken | None:
        """The plan for one deadline in steps; None when there is none."""
        self._joint.shorten(step * self._problem.step_s)
        found = self._joint.best(lambda: inf)
        self.proven = self.proven and (found is None or found.sure)
        if found is None:
            return None
        taken = [self._ways[each] for each in found.allocations[0].leaving]
        return Taken.of(taken, self._window.freed_by(taken))


def _named(candidate: Candidate, problem: EvictionProblem) -> Candidate:
    """With names for nodes that have none."""
    if candidate.node_names or problem.needs is not None:
        return candidate
    return replace(candidate, node_names=tuple([f"{candidate.job_id} {number}" for number in range(candidate.nodes)]))
