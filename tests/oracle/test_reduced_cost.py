"""Programs decided where their relaxations leave doubt, or over what these use: beside HiGHS on all columns."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csc_array

from clearway.planning.joint import reduced_cost
from clearway.planning.joint.reduced_cost import Program, over_used, relaxed
from tests.oracle.problems import TIMES

CASES = 150 * TIMES


def program(seed: int) -> Program:
    """Rows that ask for enough, and one that allows only so much; every other column may be in parts."""
    rng = np.random.default_rng(seed)
    width, rows = int(rng.integers(3, 12)), int(rng.integers(1, 5))
    gives = rng.integers(0, 6, (rows, width)).astype(float)
    takes = rng.integers(0, 4, width).astype(float)
    asked = gives.sum(axis=1) * rng.uniform(0.2, 0.8, rows)
    most = np.append(-np.ceil(asked), np.ceil(takes.sum() * rng.uniform(0.3, 0.9)))
    whole = np.ones(width, dtype=bool) if seed % 2 else rng.random(width) < 0.5
    cost = rng.integers(1, 50, width).astype(float)
    return Program(cost, csc_array(np.vstack([-gives, takes])), most, np.ones(width), whole)


def exact(it: Program) -> float:
    """The least cost; infinite where there is no solution."""
    limits = LinearConstraint(it.matrix, -np.inf, it.most)
    found = milp(it.cost, integrality=it.whole.astype(float), bounds=Bounds(0, it.upper), constraints=limits)
    return inf if found.x is None else float(found.fun)


@pytest.mark.parametrize("doubt", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_a_solution_is_found_where_there_is_one_and_no_better_one_beyond_its_bound(
    monkeypatch: pytest.MonkeyPatch, doubt: float, gap: float
) -> None:
    monkeypatch.setattr(reduced_cost, "DOUBT", doubt)
    solvable = 0
    for seed in range(CASES):
        it = program(seed)
        found, best = relaxed(it, inf).solved(lambda: inf, gap), exact(it)
        assert not found.cut_short, seed
        assert found.least <= best + 1e-6 or best == inf, seed
        assert (found.values is None) == (best == inf), seed
        if found.values is None:
            assert found.least == inf, seed
            continue
        solvable += 1
        costs = float(it.cost @ found.values)
        assert np.all(it.matrix @ found.values <= it.most + 1e-6), seed
        assert np.array_equal(found.values[it.whole], np.round(found.values[it.whole])), seed
        assert best - 1e-6 <= costs, seed
        assert costs * (1 - gap) <= best + 1e-6, seed
        assert costs * (1 - gap) <= found.least + 1e-6, seed
    assert 0.3 * CASES < solvable < CASES


@pytest.mark.parametrize(("gap", "most_gap"), [(0.0, 0.0), (0.02, 0.1), (0.1, 0.5)])
def test_a_solution_over_the_used_columns_costs_no_more_than_it_says(gap: float, most_gap: float) -> None:
    found_any = solvable = 0
    for seed in range(CASES):
        it = program(seed)
        found, best = over_used(it, gap, most_gap, lambda: inf), exact(it)
        solvable += best < inf
        if found is None:
            continue
        found_any += 1
        assert found.values is not None, seed
        assert not found.cut_short, seed
        assert found.least <= best + 1e-6, seed
        costs = float(it.cost @ found.values)
        assert np.all(it.matrix @ found.values <= it.most + 1e-6), seed
        assert np.all((found.values >= 0) & (found.values <= it.upper)), seed
        assert np.array_equal(found.values[it.whole], np.round(found.values[it.whole])), seed
        assert best - 1e-6 <= costs, seed
        assert costs * (1 - most_gap) <= found.least + 1e-6, seed
    assert found_any <= solvable
    assert found_any >= {0.0: 0.05, 0.1: 0.4, 0.5: 0.8}[most_gap] * solvable
