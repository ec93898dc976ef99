"""``clearway lab experiment urgent`` on a workload small enough for a test: what is injected, compared and reported."""

from __future__ import annotations

import csv
import re
from html import unescape
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.studies import chart
from clearway_lab.studies import urgent as urgent_study
from clearway_lab.studies.urgent import PAPER_ABOVE_2, SCHEDULERS, SWAP_FACTORS, VARIATIONS, UrgentStudy, as_html, study
from clearway_lab.sweeps.local import Sweep, local_workers
from tests.traces import recorded

runner = CliRunner()


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Ten busy days under LANL-CM5's name, and a day of DWD's two queues; the other two files are absent."""
    rng = Random(7)
    folder = tmp_path / "traces"
    folder.mkdir()

    def line(number: int, submit_s: int, run_s: int, size: int, queue: int) -> str:
        return f"{number} {submit_s} -1 {run_s} {size} -1 -1 {size} -1 -1 1 1 1 1 {queue} -1 -1 -1\n"

    lanl = [line(n, rng.randrange(900_000), rng.randrange(600, 90_000), rng.choice((64, 256)), 1) for n in range(120)]
    (folder / "LANL-CM5-1994-4.1-cln.swf.xz").write_text("".join(lanl))
    dwd = ["; Queue: 1 sx_rout\n; Queue: 2 other\n"]
    for n in range(60):
        submit_s = rng.randrange(7_200)
        dwd.append(line(n, submit_s, rng.randrange(30, 900), 64, 1) if n % 2 else line(n, submit_s, 5_000, 64, 2))
    (folder / "dwd-2020-09-17.swf.xz").write_text("".join(dwd))
    return folder


def studied(folder: Path, processes: int = 1) -> UrgentStudy:
    with local_workers(processes) as workers:
        return study(folder, 1, Sweep(workers))


def test_the_report_holds_what_was_measured(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [
        "lab",
        "experiment",
        "urgent",
        "--traces",
        str(traces),
        "--out",
        str(out),
        "--seeds",
        "2",
        "--processes",
        "1",
    ]
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(out / "report.html")

    rows = list(csv.DictReader((out / "urgent.csv").open()))
    assert len(rows) == 2 * (2 * len(SCHEDULERS) + 2 * len(SWAP_FACTORS) - 1) + len(VARIATIONS)
    by_key = {(r["workload"], r["seed"], r["scheduler"], r["swap_factor"]): r for r in rows}
    for seed in ("0", "1"):
        ujfb = by_key["LANL-CM5", seed, "ujfb", "1"]
        assert float(ujfb["urgent_lateness"]) < 1.02
        assert float(ujfb["urgent_lateness"]) <= float(
            by_key["LANL-CM5", seed, "clearway-suspend", "1"]["urgent_lateness"]
        )
        assert all(
            float(ujfb["urgent_lateness"]) < float(by_key["LANL-CM5", seed, other, "1"]["urgent_lateness"])
            for other in ("fcfs", "ujf", "easy", "conservative")
        )
        assert float(by_key["LANL-CM5", seed, "ujfb", "40"]["urgent_lateness"]) > float(ujfb["urgent_lateness"])
        assert int(by_key["DWD", seed, "ujfb", "1"]["urgent_jobs"]) == 30

    page = (out / "report.html").read_text()
    assert "Not found, so left out: SDSC-DS-2004-2.1-cln.swf.xz, sx-ace-2019.swf.xz." in page
    headings = ("LANL-CM5 (Figure 11)", "DWD (Figure 16)", "Longer swapping times (Figure 13", "(Figure 17)")
    for heading in (*headings, "What each part does on DWD", *VARIATIONS):
        assert heading in unescape(page)
    assert not re.search(r"(src|href)=|@import|url\(", page), "it needs no other file"
    assert page.count("<svg") == page.count("</svg>") == 3 + 3 + 4 + 1
    assert "<p>Urgent jobs: 30.</p>" in page
    drawn = int(by_key["LANL-CM5", "0", "ujfb", "1"]["urgent_jobs"])
    assert f"<p>Urgent jobs in one drawing, on average: {drawn}.</p>" in page


def test_the_labels_of_neighbouring_dots_do_not_overlap() -> None:
    """A row for each, as high as its text, and no number reaches out of the picture: a digit takes 6 points of 9."""
    values = [0.0997, 0.103, 0.114, 1.008, 20.64, 155.2, 6_664.2, 9_999, 52_264.6, 152_736.4, 999_999]
    picture = chart.dots("response", [f"s{number}" for number in range(len(values))], values)
    texts = re.findall(
        r'<text [^>]*(?:transform="translate\(|x=")([\d.]+)(?: |" y=")([\d.]+)[^>]*>([\d.,e+]+)<', picture
    )
    shown = {text: (float(x), float(y)) for x, y, text in texts}
    assert [text for text in shown if text in {f"{value:,.4g}" for value in values}] == [f"{v:,.4g}" for v in values]
    rows = [shown[f"{value:,.4g}"] for value in values]
    assert all(below[1] - above[1] >= 9 for above, below in pairwise(rows))
    width = float(re.findall(r'viewBox="0 0 ([\d.]+)', picture)[0])
    assert all(shown[text][0] + 6 * len(text) <= width for text in (f"{value:,.4g}" for value in values))


def test_the_report_says_met_where_every_criterion_is(traces: Path) -> None:
    made = studied(traces)
    page = as_html(made)
    rows = re.findall(r"<tr><td>(LANL-CM5|DWD)<td>(UJFB|Clearway|Clearway-SJF)(<.*?>(met|missed))\n", page)
    assert len(rows) == 2 * 3
    names = {"UJFB": "ujfb", "Clearway": "clearway-suspend", "Clearway-SJF": "clearway-sjf"}
    for workload, title, cells, verdict in rows:
        (cell,) = made.of(workload, names[title])
        others = [made.of(workload, name)[0] for name in SCHEDULERS if name not in names.values()]
        late = cell.urgent_lateness
        near = all(
            getattr(cell, measure) <= 1.02 * getattr(made.of(workload, other)[0], measure)
            for measure in ("response_s", "slowdown")
            for other in ("easy", "conservative")
        )
        good = late <= 1.02 if workload == "LANL-CM5" else late < min(other.urgent_lateness for other in others)
        assert verdict == ("met" if good and near else "missed")
        assert ("class=misses" in cells) == (verdict == "missed")


def test_on_dwd_clearway_is_near_both_ways_of_backfilling_with_the_lowest_lateness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The criteria of the UJFB paper's Figures 16 and 17, on its own day of weather forecasts."""
    monkeypatch.setattr(urgent_study, "VARIATIONS", {})
    (dwd,) = recorded("dwd-2020-09-17.swf.xz")
    (tmp_path / dwd.name).symlink_to(dwd)
    made = studied(tmp_path)
    for name in ("clearway-suspend", "clearway-sjf"):
        (ours,) = made.of("DWD", name)
        for other in ("easy", "conservative"):
            (theirs,) = made.of("DWD", other)
            assert ours.response_s <= 1.02 * theirs.response_s
            assert ours.slowdown <= 1.02 * theirs.slowdown
        lowest = min(made.lateness("DWD", other) for other in SCHEDULERS if not other.startswith("clearway"))
        assert ours.urgent_lateness < lowest
        assert ours.above_2 <= PAPER_ABOVE_2


def test_the_same_seed_gives_the_same_cells_in_one_process_or_two(traces: Path) -> None:
    assert studied(traces).cells == studied(traces, 2).cells


def test_a_folder_without_workloads_is_one_line(tmp_path: Path) -> None:
    result = runner.invoke(
        app, ["lab", "experiment", "urgent", "--traces", str(tmp_path), "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert f"none of {urgent_study.WORKLOADS[0].file}" in result.stderr
