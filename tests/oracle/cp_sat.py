"""The eviction problem for OR-tools' CP-SAT, on one thread: the model of ``milp``.

Two sweeps over the deadlines: a model built for each of them, and one model whose limit on the checkpoints is changed
from deadline to deadline, each time with the answer before as a hint.
"""

from __future__ import annotations

from ortools.sat.python import cp_model

from clearway.model.problem import EvictionProblem
from tests.oracle.exhaustive import whole_steps


def cp_sat_sweep(problem: EvictionProblem) -> list[tuple[int, int] | None]:
    """Lost work and checkpoint steps for every deadline, None where there is no plan; a model for each."""
    return [_Model(problem).solve(deadline) for deadline in range(problem.last_step + 1)]


def cp_sat_again(problem: EvictionProblem) -> list[tuple[int, int] | None]:
    """The same from one model, solved again for each deadline."""
    model = _Model(problem)
    return [model.solve(deadline) for deadline in range(problem.last_step + 1)]


class _Model:
    def __init__(self, problem: EvictionProblem) -> None:
        self._model = cp_model.CpModel()
        self._weight = problem.last_step + 1
        self._taken, nodes, costs, steps = [], [], [], []
        for job in problem.candidates:
            taken = [self._model.new_bool_var("") for _ in job.options]
            self._model.add_at_most_one(taken)
            self._taken += taken
            for option in job.options:
                nodes.append(job.nodes)
                steps.append(whole_steps(option.checkpoint_s, problem.step_s))
                costs.append(self._weight * round(option.lost_work_node_s) + steps[-1])
        weighted = cp_model.LinearExpr.weighted_sum
        self._model.add(weighted(self._taken, nodes) >= problem.nodes_needed)
        self._in_time = self._model.add(weighted(self._taken, steps) <= 0)
        self._model.minimize(weighted(self._taken, costs))

    def solve(self, deadline: int) -> tuple[int, int] | None:
        self._in_time.proto.linear.domain[1] = deadline
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        status = solver.solve(self._model)
        if status == cp_model.INFEASIBLE:
            return None
        assert status == cp_model.OPTIMAL
        self._model.clear_hints()
        for var in self._taken:
            self._model.add_hint(var, solver.boolean_value(var))
        return divmod(round(solver.objective_value), self._weight)
