"""The eviction problem where jobs share nodes by GPUs, for OR-tools' CP-SAT: one deadline, one thread."""

from __future__ import annotations

from ortools.sat.python import cp_model

from clearway.model.problem import Amounts, EvictionProblem
from tests.oracle.exhaustive import whole_steps


def cp_sat_shared(problem: EvictionProblem, deadline: int, limit_s: float) -> tuple[int, int, bool] | None:
    """Lost work in thousandths and checkpoint steps where jobs share nodes, and whether that is proven; None: no plan.

    Every node is a variable that is 1 only when, in each resource, what those that stay hold leaves room for the need.
    """
    assert problem.needs is not None
    model = cp_model.CpModel()
    nodes = {node.name: node for node in problem.nodes}
    staying: dict[str, list[tuple[Amounts, cp_model.IntVar]]] = {name: [] for name in nodes}
    lost, steps = [], []
    for job in problem.candidates:
        taken = [model.new_bool_var("") for _ in job.options]
        stays = model.new_bool_var("")
        model.add_exactly_one([*taken, stays])
        for var, option in zip(taken, job.options, strict=True):
            lost.append(round(option.lost_work_node_s * 1_000) * var)
            steps.append(whole_steps(option.checkpoint_s, problem.step_s) * var)
        for name, holds in zip(job.node_names, job.holds, strict=True):
            staying[name].append((holds, stays))
    serves = []
    for name, node in nodes.items():
        free = model.new_bool_var("")
        serves.append(free)
        gpus = [(holds.gpus_of(""), stays) for holds, stays in staying[name]]
        needed = problem.needs.per_node.gpus_of("")
        model.add(sum(held * stays for held, stays in gpus) <= node.has.gpus_of("") - needed).only_enforce_if(free)
    model.add(sum(serves) >= problem.nodes_needed)
    model.add(sum(steps) <= deadline)
    weight = problem.last_step + 1
    model.minimize(weight * sum(lost) + sum(steps))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = limit_s
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return (*divmod(round(solver.objective_value), weight), status == cp_model.OPTIMAL)
