"""The eviction problem as a mixed-integer program for scipy's HiGHS: one solve for each deadline.

One binary variable for each option of each job; at most one option a job; enough nodes; checkpoints within the
deadline. Lost work comes before checkpoint time by weight, as both are whole numbers. Nodes are not shared and
nothing ends by itself, as in the paper.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from clearway.model import EvictionProblem
from tests.oracle.exhaustive import whole_steps


def milp_sweep(problem: EvictionProblem) -> list[tuple[int, int] | None]:
    """Lost work and checkpoint steps for every deadline, None where there is no plan."""
    options = [
        (index, job.nodes, round(option.lost_work_node_s), whole_steps(option.checkpoint_s, problem.step_s))
        for index, job in enumerate(problem.candidates)
        for option in job.options
    ]
    owners, nodes, lost, steps = (np.array(column, dtype=float) for column in zip(*options, strict=True))
    one_each = np.array([owners == index for index in range(len(problem.candidates))], dtype=float)
    weight = problem.last_step + 1
    answers: list[tuple[int, int] | None] = []
    for deadline in range(problem.last_step + 1):
        found = milp(
            lost * weight + steps,
            integrality=np.ones(len(options)),
            bounds=Bounds(0, 1),
            constraints=[
                LinearConstraint(one_each, ub=1),
                LinearConstraint(nodes[np.newaxis], lb=problem.nodes_needed),
                LinearConstraint(steps[np.newaxis], ub=deadline),
            ],
            options={"mip_rel_gap": 0},
        )
        if found.x is None:
            answers.append(None)
            continue
        taken = found.x > 0.5
        answers.append((round(lost[taken].sum()), round(steps[taken].sum())))
    return answers
