"""Table 2 beside the paper, and the report of it."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser

import pytest
from scipy import stats

from clearway.walltime.distributions import TRUNCATED_AT, Continuous
from clearway.walltime.request_sequence import Strategy
from clearway_lab.studies.stochastic import (
    Cell,
    StochasticStudy,
    as_csv,
    as_html,
    best_stated,
    figure_6,
    near,
    of_paper,
    over_epsilon,
    table_2,
)


def row(name: str, times: Continuous | None = None) -> list[Cell]:
    times = times or of_paper(name)
    return table_2(name, times, best_stated(times))


def test_the_exponential_row_is_met_with_a_cost_of_each_request_and_not_as_stated() -> None:
    times = of_paper("exponential")
    cells = table_2("exponential", times, best_stated(times))
    assert len(cells) == 14
    assert all(near(cell, cell.shown, cell.shown_tau) for cell in cells)
    stated = {cell.tau: round(cell.stated, 2) for cell in cells if cell.strategy is Strategy.ALL_CKPT_PER}
    assert (stated[1], stated[200], stated[1_000]) == (9.64, 2.11, 8.02)
    line = over_epsilon(times, best_stated(times))
    assert [epsilon for epsilon, _ in line] == [0.1, 0.2, 0.5, 1, 2, 5, 10]
    assert all(1 / 1.1 <= cost <= 1 + epsilon for epsilon, cost in line), "Theorem 3"
    made = StochasticStudy(tuple(cells), {"exponential": 14_507}, (figure_6({"exponential": line}),))
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert [float(row["paper"]) for row in rows] == [cell.paper for cell in cells]
    page = as_html(made)
    HTMLParser().feed(page)
    assert page.count('class="series"') == 1
    assert "as the cells show, 14" in page
    assert "http" not in page  # it needs nothing from anywhere


def test_the_uniform_rows_later_requests_leave_out_the_lower_bound() -> None:
    cells = row("uniform")
    assert len(cells) == 14
    assert all(near(cell, cell.shown, cell.shown_tau) for cell in cells)


def lognormal_of_cells() -> Continuous:
    """What the LogNormal row of the paper's table follows from, in place of mu = 3.0 and sigma = 0.5.

    Found by least squares over the twelve cells of fixed tau: a lognormal with a location, 0.4046 h, as a fit to
    samples gives; its lower bound is the location.
    """
    location_s = 0.4046 * 3_600
    whole = stats.lognorm(0.2943, loc=location_s, scale=2.295 * 3_600)
    return Continuous("lognormal", whole, location_s, float(whole.isf(TRUNCATED_AT)))


def test_the_lognormal_row_is_met_by_a_lognormal_with_a_location() -> None:
    """Not by the stated one; the best numbers of requests were not fitted."""
    cells = row("lognormal", lognormal_of_cells())
    assert len(cells) == 14
    assert all(near(cell, cell.shown, cell.shown_tau) for cell in cells)
    assert [cell.shown_tau for cell in cells if cell.best] == [9, 3]
    assert lognormal_of_cells().mean == pytest.approx(2.80 * 3_600, rel=0.002)
