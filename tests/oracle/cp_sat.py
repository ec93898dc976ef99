"""The eviction problem for OR-tools' CP-SAT: one solve for each deadline, on one thread; the model of ``milp``."""

from __future__ import annotations

from ortools.sat.python import cp_model

from clearway.model import EvictionProblem
from tests.oracle.exhaustive import whole_steps


def cp_sat_sweep(problem: EvictionProblem) -> list[tuple[int, int] | None]:
    """Lost work and checkpoint steps for every deadline, None where there is no plan."""
    return [_solve(problem, deadline) for deadline in range(problem.last_step + 1)]


def _solve(problem: EvictionProblem, deadline: int) -> tuple[int, int] | None:
    model = cp_model.CpModel()
    nodes, lost, steps = [], [], []
    for job in problem.candidates:
        taken = [model.new_bool_var("") for _ in job.options]
        model.add_at_most_one(taken)
        for var, option in zip(taken, job.options, strict=True):
            nodes.append(job.nodes * var)
            lost.append(round(option.lost_work_node_s) * var)
            steps.append(whole_steps(option.checkpoint_s, problem.step_s) * var)
    model.add(sum(nodes) >= problem.nodes_needed)
    model.add(sum(steps) <= deadline)
    weight = problem.last_step + 1
    model.minimize(weight * sum(lost) + sum(steps))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return None
    assert status == cp_model.OPTIMAL
    return divmod(round(solver.objective_value), weight)
