"""The CoSim paper's figures: what is measured has their form, greedy's loss is a loss, and the report stands alone."""

from __future__ import annotations

import csv
import io
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.baselines import Backtracking, Greedy
from clearway_lab.studies import cosim as cosim_study
from clearway_lab.studies.cosim import DELAYS_S, NUMBERS, CosimStudy, Times, as_csv, as_html, relative_losses, timed
from clearway_lab.studies.scenarios import scenario


@pytest.fixture
def made() -> CosimStudy:
    """The times of a machine where all is told by the deadline's place: backtracking ends after three."""
    places = range(len(DELAYS_S))
    times = [
        Times(scenario(number, 1), [500.0] * len(places), [20.0 * (place + 1) for place in places], [1e3, 1e4, 1e7])
        for number in NUMBERS
    ]
    losses = [[float(number * place) for place in places] for number in NUMBERS]
    return CosimStudy(tuple(times), tuple(losses), seeds=7, patience_s=10.0)


def test_every_deadline_has_a_time_of_each_planner() -> None:
    found = timed(1)
    assert len(found.dynamic) == len(found.greedy) == len(found.backtracking) == len(DELAYS_S)
    assert len(set(found.dynamic)) == 1  # one pass
    assert min(*found.dynamic, *found.greedy, *found.backtracking) > 0
    assert found.scenario == scenario(1, cosim_study.SEED)


def test_an_impatient_study_asks_backtracking_once() -> None:
    assert len(timed(1, patience_s=0).backtracking) == 1


def test_greedys_loss_is_that_beyond_the_exhaustive_search() -> None:
    """The exhaustive search stands for the optimum here, where the study takes the dynamic program."""
    problem = scenario(1, 0).problem()
    expected = [
        ((point.lost_work_node_s or 0) - (best.lost_work_node_s or 0)) / 3_600
        for point, best in zip(Greedy().solve(problem).points, Backtracking().solve(problem).points, strict=True)
    ]
    assert len(expected) == len(DELAYS_S)
    assert relative_losses(1, seeds=1) == pytest.approx(expected)
    averaged = relative_losses(1, seeds=5)
    assert min(averaged) >= 0
    assert max(averaged) > 0


def test_the_report_stands_by_itself(made: CosimStudy) -> None:
    page = as_html(made)
    HTMLParser().feed(page)
    assert page.count("<svg") == 6
    assert page.count('class="series"') == 3 * 3 + 3
    assert "http" not in page
    for label in (0, 10, 20, 30, 40):  # the axis to 45 node-hours
        assert f">{label}</text>" in page
    assert "took longer than 10 s" in page
    assert "mean of 7 drawn problems" in page
    # 0.5 ms, 500 / 320 times greedy's, backtracking 10 s after 2 minutes: 20,000 times as long
    assert "<td>12<td>0.50<td>1.6<td>10,000.0<td>2<td>20,000<td>" in page
    assert "<tr><td>Scenario-3<td>0<td>45<td>15<td>45" in page


def test_the_table_has_a_line_for_each_deadline(made: CosimStudy) -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert len(rows) == 3 * len(DELAYS_S)
    first = [row for row in rows if row["scenario"] == "Scenario-1"]
    assert [int(row["deadline_s"]) for row in first] == list(DELAYS_S)
    assert [row["backtracking_us"] for row in first[:4]] == ["1000.0", "10000.0", "10000000.0", ""]
    assert [float(row["greedy_more_lost_node_h"]) for row in rows[-2:]] == [42.0, 45.0]


def test_the_command_writes_both(made: CosimStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cosim_study, "study", lambda *_, **__: made)
    result = CliRunner().invoke(app, ["lab", "experiment", "cosim", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "new" / "report.html").read_text() == as_html(made)
    assert (tmp_path / "new" / "cosim.csv").read_text() == as_csv(made)
    occupied = tmp_path / "file"
    occupied.write_text("")
    refused = CliRunner().invoke(app, ["lab", "experiment", "cosim", "--out", str(occupied)])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


def test_the_whole_study_covers_the_scenarios() -> None:
    told: list[str] = []
    found = cosim_study.study(told.append, seeds=1, patience_s=0)
    assert [each.scenario.name for each in found.times] == ["Scenario-1", "Scenario-2", "Scenario-3"]
    assert len(told) == 4
    assert [len(loss) for loss in found.losses] == [len(DELAYS_S)] * 3
    assert (found.seeds, found.patience_s) == (1, 0)
