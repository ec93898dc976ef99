"""What sequences cost, and that the dynamic program finds the cheapest.

Against the paper's example, exhaustive search over every sequence, a much finer grid, and simulated jobs.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearway.model.errors import WalltimeError
from clearway.walltime.distributions import FAMILIES, Discrete, continuous
from clearway.walltime.request_sequence import (
    Costs,
    Milestone,
    Recurrence,
    Strategy,
    best_periods,
    chunks,
    discretised,
    dynamic,
    expected_cost,
    omniscient_cost,
    periodic,
    plan,
    requests,
)
from tests.unit.walltime.drawing import sample

HOUR_S = 3_600.0
DYNAMIC = (Strategy.DYN_PROG_COUNT, Strategy.ALL_CKPT, Strategy.NO_CKPT)
EXAMPLE = Discrete(np.array([20.0, 40.0, 80.0]), np.array([0.66, 0.26, 0.08]))


def sequence(*milestones: tuple[float, bool]) -> tuple[Milestone, ...]:
    return tuple(Milestone(at, checkpoint) for at, checkpoint in milestones)


@pytest.mark.parametrize(
    ("milestones", "expected"),
    [
        (sequence((80, False)), 80),
        (sequence((20, False), (80, False)), 47.2),
        (sequence((20, True), (40, False), (80, False)), 41.54),
        # the paper's 128: the second checkpoint at 40 and a third request still 7 + 60 long, so that it covers 100
        (sequence((20, True), (40, True), (100, False)), 43.92),
        (sequence((20, True), (40, True), (80, False)), 42.32),
    ],
)
def test_the_introductions_example(milestones: tuple[Milestone, ...], expected: float) -> None:
    assert expected_cost(milestones, EXAMPLE, Costs(7, 7)) == pytest.approx(expected, abs=1e-9)


def every_sequence(values: list[float], strategy: Strategy) -> itertools.chain[tuple[Milestone, ...]]:
    *inner, last = values
    choices = {Strategy.ALL_CKPT: (None, True), Strategy.NO_CKPT: (None, False)}.get(strategy, (None, True, False))
    return itertools.chain(
        sequence(*((at, kept) for at, kept in zip(inner, chosen, strict=True) if kept is not None), (last, False))
        for chosen in itertools.product(choices, repeat=len(inner))
    )


@st.composite
def discrete(draw: st.DrawFn) -> Discrete:
    size = draw(st.integers(1, 7))
    gaps = draw(st.lists(st.floats(0.1, 10), min_size=size, max_size=size))
    weights = np.array(draw(st.lists(st.floats(0.001, 1), min_size=size, max_size=size)))
    return Discrete(draw(st.sampled_from([0.0, 5.0])) + np.cumsum(gaps), weights / weights.sum())


COSTS = st.builds(
    Costs,
    checkpoint=st.sampled_from([0.0, 0.1, 1.0, 7.0]),
    restart=st.sampled_from([0.0, 0.1, 1.0, 7.0]),
    alpha=st.sampled_from([0.3, 1.0]),
    beta=st.sampled_from([0.0, 0.5, 2.0]),
    gamma=st.sampled_from([0.0, 0.2, 3.0]),
)


@given(times=discrete(), costs=COSTS, strategy=st.sampled_from(DYNAMIC))
@settings(max_examples=150, deadline=None)
def test_it_equals_exhaustive_search(times: Discrete, costs: Costs, strategy: Strategy) -> None:
    found = expected_cost(dynamic(times, costs, strategy, 0), times, costs)
    least = min(expected_cost(each, times, costs) for each in every_sequence(times.values.tolist(), strategy))
    assert found == pytest.approx(least, rel=1e-12)


def as_printed(values: list[float], shares: list[float], costs: Costs) -> float:
    """Theorem 2 word for word, O(n^3): the oracle for more times than every sequence can be tried for."""
    n, v = len(values), [0.0, *values]
    s = [1.0] + [sum(shares[i:]) for i in range(1, n + 1)]
    mean = sum(share * value for share, value in zip(shares, values, strict=True))
    table = [[0.0] * (n + 1) for _ in range(n + 1)]
    for last in range(n, -1, -1):
        for saved in range(last + 1):
            if last == n:
                table[saved][last] = costs.beta * mean
                continue
            restart = costs.restart if saved else 0.0
            table[saved][last] = min(
                table[j if kept else saved][j]
                + (
                    costs.alpha * (restart + v[j] - v[saved] + kept * costs.checkpoint)
                    + costs.beta * restart
                    + costs.gamma
                )
                * s[last]
                + costs.beta * ((1 - kept) * (v[j] - v[saved]) + kept * costs.checkpoint) * s[j]
                for j in range(last + 1, n + 1)
                for kept in (0, 1)
            )
    return table[0][0]


@given(seed=st.integers(0, 10_000), size=st.integers(20, 45), costs=COSTS, many=st.sampled_from([0, 3, 10_000]))
@settings(max_examples=40, deadline=None)
def test_it_equals_the_recurrence_as_printed(seed: int, size: int, costs: Costs, many: int) -> None:
    """Whether the states of a checkpoint are answered one by one, by the envelope, or by both in turn."""
    draws = np.random.Generator(np.random.PCG64(seed))
    shares = draws.dirichlet(np.full(size, draws.choice([0.1, 1.0]))) + 1e-12
    times = Discrete(np.cumsum(draws.random(size) ** draws.choice([1, 4]) + 1e-3), shares / shares.sum())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearway.walltime.request_sequence._MANY", many)
        found = expected_cost(dynamic(times, costs, Strategy.DYN_PROG_COUNT, 0), times, costs)
    expected = as_printed(times.values.tolist(), times.probabilities.tolist(), costs)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("checkpoint_s", [36.0, 360.0, 3_600.0])
@pytest.mark.parametrize("name", FAMILIES)
def test_theorem_3_holds_against_a_much_finer_grid(name: str, checkpoint_s: float) -> None:
    times, costs, epsilon = continuous(name, FAMILIES[name], HOUR_S), Costs(checkpoint_s, checkpoint_s), 1.0
    count = min(chunks(times, costs, epsilon), 1_500)  # fewer than Algorithm 1 asks for: all the harder
    coarse = expected_cost(dynamic(times, costs, Strategy.DYN_PROG_COUNT, count), times, costs)
    finest = 6_000 if checkpoint_s < 3_600 and name != "beta" else 1_500
    finer = count * max(2, finest // count)  # a multiple, so that it has every milestone of the coarse one
    fine = expected_cost(dynamic(times, costs, Strategy.DYN_PROG_COUNT, finer), times, costs)
    assert omniscient_cost(times, costs) <= fine <= coarse * (1 + 1e-9)
    assert coarse <= (1 + epsilon) * fine


def cost_of(milestones: tuple[Milestone, ...], costs: Costs, time: float) -> float:
    """Equation 5: what the sequence costs for a job that lasts ``time``."""
    total, saved = 0.0, None
    for request in requests(milestones, costs):
        restart = 0.0 if saved is None else costs.restart
        total += costs.alpha * request.request_s + costs.gamma
        if time <= request.milestone_s:
            return total + costs.beta * (restart + time - (saved or 0.0))
        total += costs.beta * request.request_s
        if request.checkpoint:
            saved = request.milestone_s
    raise WalltimeError(f"no request of the sequence covers a job of {time:g}")


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("strategy", list(Strategy))
def test_expected_cost_equals_simulated_jobs(name: str, strategy: Strategy) -> None:
    times, costs = continuous(name, FAMILIES[name], HOUR_S), Costs(360, 240, alpha=1.0, beta=0.7, gamma=120)
    make = periodic if strategy.periodic else lambda x, s, n: dynamic(x, costs, s, n)
    milestones = make(times, strategy, 12)
    simulated = np.array([cost_of(milestones, costs, float(time)) for time in sample(times, 20_000, seed=11)])
    error = simulated.std() / math.sqrt(len(simulated))
    assert abs(simulated.mean() - expected_cost(milestones, times, costs)) < 4 * error


@pytest.mark.parametrize("name", FAMILIES)
def test_fixing_the_checkpoints_or_the_periods_never_helps(name: str) -> None:
    times, costs = continuous(name, FAMILIES[name], HOUR_S), Costs(360, 360)
    count = 1_000
    best, *others = (expected_cost(dynamic(times, costs, each, count), times, costs) for each in DYNAMIC)
    others += [
        expected_cost(periodic(times, each, periods), times, costs)
        for each in (Strategy.ALL_CKPT_PER, Strategy.NO_CKPT_PER)
        for periods in (1, 2, 10, 100, 1_000)
    ]
    assert best <= min(others) * (1 + 1e-9)


def test_uniform_times_are_asked_for_at_once_without_checkpoints() -> None:
    """A known optimum: without checkpoints, uniform on [1, 20] is cheapest in one request of 20."""
    times = continuous("uniform", FAMILIES["uniform"], HOUR_S)
    planned = plan(Strategy.NO_CKPT, times, Costs(0, 0), count=500)
    assert [request.milestone_s for request in planned.sequence] == [20 * HOUR_S]
    assert planned.expected_cost == pytest.approx(20 * HOUR_S)
    assert planned.omniscient_cost == pytest.approx(10.5 * HOUR_S)


def test_exponential_times_are_checkpointed_at_equal_distances() -> None:
    """They have no memory: x with e^x - 1 - x = C + R, at the cost e^x - R (in hours)."""
    times, costs = continuous("exponential", {"rate": 1.0}, HOUR_S), Costs(360, 360)
    planned = plan(Strategy.ALL_CKPT, times, costs, count=5_000)
    found = np.diff([request.milestone_s for request in planned.sequence[:15]]) / HOUR_S
    lengths = np.linspace(0.3, 0.9, 100_001)
    best = float(lengths[np.argmin((lengths + 0.2) / -np.expm1(-lengths))])
    assert found == pytest.approx(best, abs=0.01)
    assert planned.expected_cost / HOUR_S == pytest.approx(math.exp(best) - 0.1, rel=1e-3)


def test_best_periods_is_the_least_of_all() -> None:
    times, costs = continuous("gamma", FAMILIES["gamma"], HOUR_S), Costs(360, 360)
    tried = [expected_cost(periodic(times, Strategy.NO_CKPT_PER, n), times, costs) for n in range(1, 60)]
    assert best_periods(times, costs, Strategy.NO_CKPT_PER, most=59) == 1 + int(np.argmin(tried))


def test_requests_hold_restart_work_and_checkpoint() -> None:
    """Figure 3's sequence: (W1, 1), (W2, 0), (W3, 1), (W4, 0)."""
    made = requests(sequence((10, True), (25, False), (40, True), (60, False)), Costs(2, 3))
    assert [(each.request_s, each.milestone_s, each.checkpoint) for each in made] == [
        (12, 10, True),
        (18, 25, False),
        (35, 40, True),
        (23, 60, False),
    ]


def test_algorithm_1s_number_of_chunks() -> None:
    times = continuous("uniform", {"low": 1, "high": 20}, HOUR_S)
    assert chunks(times, Costs(360, 360), 0.1) == 5_700  # 3 * 19 / 0.1 / 0.1
    assert chunks(times, Costs(360, 360, gamma=HOUR_S), 0.1) == 570  # (alpha + beta) / gamma = 1 a hour
    with pytest.raises(WalltimeError, match="free checkpoints"):
        chunks(times, Costs(0, 360), 0.1)
    with pytest.raises(WalltimeError, match="epsilon"):
        chunks(times, Costs(360, 360), 0)


def test_chunks_gather_all_probability() -> None:
    cut = discretised(continuous("weibull", FAMILIES["weibull"], HOUR_S), 300)
    assert cut.probabilities.sum() == pytest.approx(1)
    assert cut.tail[-1] == 0


@pytest.mark.parametrize(
    "milestones",
    [(), sequence((20, False)), sequence((20, False), (20, True), (80, False)), sequence((-1, True), (80, False))],
)
def test_impossible_sequences_are_refused(milestones: tuple[Milestone, ...]) -> None:
    with pytest.raises(WalltimeError):
        expected_cost(milestones, EXAMPLE, Costs(7, 7))


def test_most_states_are_retired_at_once() -> None:
    """What makes it fast where checkpoints are cheap; see the module's docstring."""
    cut = discretised(continuous("exponential", {"rate": 1.0}, HOUR_S), 2_000)
    solver = Recurrence(cut.values, cut.tail, Costs(36, 36), Strategy.DYN_PROG_COUNT)
    solver.solve()
    assert len(solver.active) < 100
