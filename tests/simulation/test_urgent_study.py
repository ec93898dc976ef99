"""``clearway experiment urgent`` on a workload small enough for a test: what is injected, compared and reported."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.simulation import urgent_study
from clearway.simulation.urgent_study import SCHEDULERS, SWAP_FACTORS, study
from clearway.sweeps.base import Sweep
from clearway.sweeps.local import local_workers

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
    for n in range(400):
        submit_s = rng.randrange(7_200)
        dwd.append(line(n, submit_s, rng.randrange(30, 900), 8, 1) if n % 2 else line(n, submit_s, 5_000, 8, 2))
    (folder / "dwd-2020-09-17.swf.xz").write_text("".join(dwd))
    return folder


def test_the_report_holds_what_was_measured(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ["experiment", "urgent", "--traces", str(traces), "--out", str(out), "--seeds", "2", "--processes", "1"]
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.strip() == str(out / "report.html")

    rows = list(csv.DictReader((out / "urgent.csv").open()))
    assert len(rows) == 2 * (2 * len(SCHEDULERS) + len(SWAP_FACTORS) - 1)
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
        assert int(by_key["DWD", seed, "ujfb", "1"]["urgent_jobs"]) == 200

    page = (out / "report.html").read_text()
    assert "Not found, so left out: SDSC-DS-2004-2.1-cln.swf.xz, sx-ace-2019.swf.xz." in page
    for heading in ("LANL-CM5 (Figure 11)", "DWD (Figure 16)", "Longer swapping times (Figure 13", "(Figure 17)"):
        assert heading in page
    assert not re.search(r"(src|href)=|@import|url\(", page), "it needs no other file"
    assert page.count("<svg") == page.count("</svg>") == 3 + 3 + 3 + 1


def test_the_same_seed_gives_the_same_cells_in_one_process_or_two(traces: Path) -> None:
    found = []
    for processes in (1, 2):
        with local_workers(processes) as workers:
            found.append(study(traces, 1, Sweep(workers)).cells)
    assert found[0] == found[1]


def test_a_folder_without_workloads_is_one_line(tmp_path: Path) -> None:
    result = runner.invoke(app, ["experiment", "urgent", "--traces", str(tmp_path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert f"none of {urgent_study.WORKLOADS[0].file}" in result.stderr
