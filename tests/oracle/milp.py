"""The eviction problem as a mixed-integer program for scipy's HiGHS: one solve for each deadline.

One binary variable for each option of each job; at most one option a job; enough nodes; checkpoints within the
deadline. Lost work comes before checkpoint time by weight, as both are whole numbers. Nodes are not shared and
nothing ends by itself, as in the paper. Where checkpoints share the file system, one more variable is at least the rest
of every one that is taken.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from clearway.model import EvictionProblem, Option
from tests.oracle.exhaustive import whole_steps


def milp_sweep(problem: EvictionProblem) -> list[tuple[int, int] | None]:
    """Lost work and checkpoint steps for every deadline, None where there is no plan."""
    options = [
        (index, job.nodes, round(option.lost_work_node_s), *_time(option, problem.step_s))
        for index, job in enumerate(problem.candidates)
        for option in job.options
    ]
    nobody = (-1, 0, 0, 0, 0)  # the variable that is the longest rest
    owners, nodes, lost, steps, rests = (np.array(row, dtype=float) for row in zip(*options, nobody, strict=True))
    one_each = np.array([owners == index for index in range(len(problem.candidates))], dtype=float)
    longest = np.hstack([np.diag(-rests[:-1]), np.ones((len(options), 1))])
    last = np.append(steps[:-1], 1.0)
    integrality = np.append(np.ones(len(options)), 0)
    upper = np.append(np.ones(len(options)), problem.last_step)
    weight = problem.last_step + 1
    answers: list[tuple[int, int] | None] = []
    for deadline in range(problem.last_step + 1):
        found = milp(
            lost * weight + steps,
            integrality=integrality,
            bounds=Bounds(0, upper),
            constraints=[
                LinearConstraint(one_each, ub=1),
                LinearConstraint(nodes[np.newaxis], lb=problem.nodes_needed),
                LinearConstraint(last[np.newaxis], ub=deadline),
                LinearConstraint(longest, lb=0),
            ],
            options={"mip_rel_gap": 0},
        )
        if found.x is None:
            answers.append(None)
            continue
        taken = np.append(found.x[:-1] > 0.5, [False])
        answers.append((round(lost[taken].sum()), round(steps[taken].sum())))
    return answers


def _time(option: Option, step_s: int) -> tuple[int, int]:
    """Steps with the whole file system, and the rest of those that it takes alone."""
    alone = whole_steps(option.checkpoint_s, step_s)
    whole = alone if option.file_system_s is None else whole_steps(option.file_system_s, step_s)
    return whole, alone - whole
