"""The eviction problem as a mixed-integer program for scipy's HiGHS: one solve for each deadline.

One binary variable for each option of each job; at most one option a job; enough nodes; checkpoints within the
deadline. A job that ends in time has that option alone and takes it. Where nodes are named, one more variable for each
of them is at most what every job on it takes. Lost work comes before checkpoint time by weight, as both are whole
numbers. Where checkpoints share the file system, one more variable is at least the rest of every one that is taken.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from clearway.model.plan import Curve
from clearway.model.problem import Action, EvictionProblem, Option
from clearway.planning.joint.one import OneRequest
from tests.oracle.exhaustive import whole_steps

Cost = tuple[Fraction, int]  # lost work, checkpoint steps


def milp_sweep(problem: EvictionProblem) -> list[Cost | None]:
    """Lost work and checkpoint steps for every deadline, None where there is no plan."""
    if problem.nodes_needed <= 0:
        return [(Fraction(0), 0)] * (problem.last_step + 1)
    answers: list[Cost | None] = []
    program = None
    for step in range(problem.last_step + 1):
        ways = [_ways(job.options, step * problem.step_s) for job in problem.candidates]
        if program is None or program.ways != ways:
            program = _Program(problem, ways)
        answers.append(program.best(step))
    return answers


def _ways(options: tuple[Option, ...], deadline_s: int) -> list[Option]:
    ready = [option for option in options if option.ready_s <= deadline_s]
    ends = [option for option in ready if option.action is Action.END]
    return ends[:1] or ready


class _Program:
    """Columns: the ways of all jobs, the nodes that have names, the longest rest."""

    def __init__(self, problem: EvictionProblem, ways: list[list[Option]]) -> None:
        self.ways = ways
        options = [option for mine in ways for option in mine]
        names = sorted({name for job in problem.candidates for name in job.node_names})
        self._binary = len(options) + len(names)
        column = np.eye(self._binary + 1)
        taken, node, rest = iter(column), dict(zip(names, column[len(options) :], strict=False)), column[-1]
        rows, least = [], []
        self._lost, self._steps, nodes = (np.zeros(len(rest)) for _ in range(3))
        nodes += sum(node.values())
        lost = [Fraction(str(option.lost_work_node_s)) for option in options]
        self._unit = Fraction(1, lcm(*[each.denominator for each in lost]))
        for job, mine in zip(problem.candidates, ways, strict=True):
            leaves = np.zeros(len(rest))
            for option in mine:
                takes = next(taken)
                leaves += takes
                if option.action is not Action.END:
                    whole, longer = _time(option, problem.step_s)
                    self._lost += takes * int(Fraction(str(option.lost_work_node_s)) / self._unit)
                    self._steps += takes * whole
                    if longer:
                        rows.append(rest - takes * longer)
                        least.append(0)
            rows += [-leaves, *[leaves - node[name] for name in job.node_names]]
            least += [-1, *[0 for _ in job.node_names]]
            if any(option.action is Action.END for option in mine):
                rows.append(leaves)
                least.append(1)
            if not job.node_names:
                nodes += leaves * job.nodes
        self._weight = problem.last_step + 1
        self._rows = np.array([*rows, nodes, -self._steps - rest])
        self._least = np.array([*least, problem.nodes_needed, 0], float)
        self._upper = np.append(np.ones(self._binary), problem.last_step)
        self._whole = np.append(np.ones(self._binary), 0)

    def best(self, deadline: int) -> Cost | None:
        self._least[-1] = -deadline
        found = milp(
            self._lost * self._weight + self._steps,
            integrality=self._whole,
            bounds=Bounds(0, self._upper),
            constraints=LinearConstraint(self._rows, lb=self._least),
            options={"mip_rel_gap": 0},
        )
        if found.x is None:
            return None
        taken = np.append(found.x[:-1] > 0.5, [False])
        return round(self._lost[taken].sum()) * self._unit, round(self._steps[taken].sum())


def _time(option: Option, step_s: int) -> tuple[int, int]:
    """Steps with the whole file system, and the rest of those that it takes alone."""
    alone = whole_steps(option.checkpoint_s, step_s)
    whole = alone if option.file_system_s is None else whole_steps(option.file_system_s, step_s)
    return whole, alone - whole


class AsProgram:
    """The program of parts of nodes as a planner of all problems."""

    name = "program"

    def solve(self, problem: EvictionProblem) -> Curve:
        return OneRequest(problem).curve(self.name)
