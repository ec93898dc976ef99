"""``clearway lab experiment all``: one index that leads to every report, names what is absent, and stands alone."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.commands.reports import Entry, index_page
from clearway_lab.studies import compaction
from clearway_lab.studies import cosim as cosim_study
from clearway_lab.studies import stochastic as walltime_study
from clearway_lab.sweeps.local import Sweep, local_workers


def test_every_experiment_is_in_the_index_and_absent_workloads_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = cosim_study.study(seeds=1, patience_s=0)
    monkeypatch.setattr(cosim_study, "study", lambda *_, **__: few)
    monkeypatch.setattr(walltime_study, "study", of_uniform)
    monkeypatch.setattr("clearway_lab.commands.experiment._DAYS", 1)
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    result = CliRunner().invoke(
        app, ["lab", "experiment", "all", "--traces", str(traces), "--out", str(out), "--processes", "2"]
    )
    assert result.exit_code == 2, "four experiments have no workloads"
    assert result.stdout.splitlines()[-1] == str(out / "index.html")
    for name in ("drain", "promises", "urgent", "realtime"):
        assert f"clearway: experiment {name}: {traces}: none of " in result.stderr

    page = (out / "index.html").read_text()
    HTMLParser().feed(page)
    assert page.count("Not made: ") == 4
    links = re.findall(r'href="([^"]+)"', page)
    assert links == [f"{name}/report.html" for name in ("cosim", "stochastic", "compaction")]
    for link in links:
        report = (out / link).read_text()
        assert not re.search(r"(src|href)=|@import|url\(", report), "a report needs no other file"
        assert report.startswith("<!doctype html>")
        assert '<meta name=viewport content="width=device-width' in report, "it can be read on a telephone"
        assert "table{display:block;overflow-x:auto" in report, "a wide table does not make the page wide"
        HTMLParser().feed(report)
    losses = max(few.losses[-1])
    assert f"loses up to {losses:,.0f} node-hours more" in page
    assert "14 of 14 numbers" in page


def of_uniform(sweep: Sweep) -> walltime_study.StochasticStudy:
    rows = sweep(walltime_study.of_distribution, [("uniform",)], str)
    return walltime_study.StochasticStudy(tuple(rows[0][0]), {"uniform": 1}, ())


def test_what_can_be_asked_of_no_experiment_is_refused_before_any(tmp_path: Path) -> None:
    asked = ["lab", "experiment", "all", "--traces", str(tmp_path), "--out", str(tmp_path / "out"), "--jobs", "2"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2
    assert result.stderr == "clearway: experiment all: --jobs needs --cluster slurm\n"
    assert list((tmp_path / "out").iterdir()) == []


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['matplotlib'] = None; from clearway.cli.app import main; main()"
    asked = [sys.executable, "-c", code, "lab", "experiment", "cosim", "--out", str(tmp_path / "out")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    needed = "reports need matplotlib: install .* 'matplotlib>=3.9' into Clearway's environment"
    extra = rf"{re.escape(sys.prefix)} \(pip install 'clearway\[lab\]'\) \(matplotlib is missing\)\n"
    assert re.fullmatch(rf"clearway: experiment cosim: {needed} {extra}", done.stderr)


def test_text_from_a_folder_cannot_become_markup() -> None:
    page = index_page([Entry("drain", missing="<script>x</script>: none")])
    assert "<script>" not in page


def test_compaction_and_drains_are_told_in_numbers_of_the_studies() -> None:
    with local_workers(1) as workers:
        made = compaction.study(1, Sweep(workers))
    before, after = (made.shares(1, moves, 75)[1] for moves in ("none", "compaction"))
    assert compaction.found(made) == [
        f"At 75 % load, moves bring the share of partly used nodes from {before:.0f} % to {after:.0f} %."
    ]
    assert after < before
