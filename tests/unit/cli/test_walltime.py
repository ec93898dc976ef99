"""``clearway walltime plan``: its JSON, its table, and one clear line for what cannot be planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli import walltime
from clearway.cli.app import app
from clearway.store.repository import Store
from tests.builders import after
from tests.integration.store.test_history import RUN

runner = CliRunner()


def planned(*options: str) -> dict[str, object]:
    result = runner.invoke(app, ["walltime", "plan", "-o", "json", *options])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_json_has_the_form_that_programs_rely_on() -> None:
    made = planned("--distribution", "uniform:low=1,high=20", "--chunks", "100")
    assert list(made) == ["strategy", "expected_cost", "omniscient_cost", "sequence"]
    assert made["strategy"] == "dyn-prog-count"
    assert made["omniscient_cost"] == pytest.approx(10.5 * 3_600)
    assert all(list(request) == ["request_s", "checkpoint", "milestone_s"] for request in made["sequence"])
    assert made["sequence"][-1]["milestone_s"] == 20 * 3_600
    assert made["sequence"][-1]["checkpoint"] is False


def test_samples_are_planned_for_exactly(tmp_path: Path) -> None:
    """The introduction's times in minutes: a checkpoint at 40 alone costs 39.74, less than its 41.54."""
    file = tmp_path / "times"
    file.write_text("# minutes\n" + "20\n" * 66 + "\n" + "40\n" * 26 + "80 # long\n" * 8)
    options = ["--distribution", f"samples:{file}", "--unit", "m", "--checkpoint-s", "420", "--restart-s", "420"]
    made = planned(*options)
    assert [(each["request_s"], each["checkpoint"]) for each in made["sequence"]] == [
        (20 * 60, False),
        (47 * 60, True),
        (47 * 60, False),
    ]
    assert made["expected_cost"] == pytest.approx(39.74 * 60)
    every = planned(*options, "--strategy", "all-ckpt")
    assert [each["request_s"] for each in every["sequence"]] == [27 * 60, 34 * 60, 47 * 60]
    assert every["expected_cost"] == pytest.approx(42.32 * 60)


@pytest.mark.parametrize("strategy", ["dyn-prog-count", "all-ckpt", "no-ckpt", "all-ckpt-per", "no-ckpt-per"])
def test_every_strategy(strategy: str) -> None:
    made = planned("--distribution", "exponential:rate=1.0", "--strategy", strategy, "--chunks", "30")
    inner = {request["checkpoint"] for request in made["sequence"][:-1]}
    assert made["strategy"] == strategy
    assert inner == {"all": {True}, "no-": {False}}.get(strategy[:3], inner)


def test_the_table_is_for_people() -> None:
    result = runner.invoke(app, ["walltime", "plan", "--distribution", "lognormal:mu=3.0,sigma=0.5", "--chunks", "500"])
    assert result.exit_code == 0
    for words in ("Walltime requests, in turn", "expected cost", "Jobs that last longer", "100.00%"):
        assert words in result.stdout


def test_the_table_says_how_well_samples_are_fitted(tmp_path: Path) -> None:
    file = tmp_path / "times"
    file.write_text("3\n5\n")
    result = runner.invoke(app, ["walltime", "plan", "--distribution", f"samples:{file}"])
    assert "too few samples" in result.stdout
    assert "longer than all of them is not covered" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "there are no samples"), ("5\n-3\n", "line 2"), ("x\n", "not a number"), ("0\n0\n", "all samples are 0")],
)
def test_bad_samples_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "times"
    file.write_text(text)
    result = runner.invoke(app, ["walltime", "plan", "--distribution", f"samples:{file}"])
    assert result.exit_code == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not result.stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--distribution", "uniform:low=9,high=2"),
        ("--distribution", "samples:/nowhere"),
        ("--distribution", "sacct:user=ann"),
        ("--distribution", "sacct:user=ann,name=a,name=b"),
        ("--distribution", "sacct:user=ann,name=fit,days=x"),
        ("--distribution", "history:user=ann,name="),
        ("--distribution", "history:user=ann,name=fit,days=3"),
        ("--distribution", "history:user=ann,name=fit", "--config", "/nowhere"),
        ("--distribution", "exponential:rate=1", "--checkpoint-s=-5"),
        ("--distribution", "exponential:rate=1", "--restart-s", "nan"),
        ("--distribution", "exponential:rate=1", "--alpha", "0"),
        ("--distribution", "exponential:rate=1", "--epsilon", "0"),
        ("--distribution", "exponential:rate=1", "--epsilon", "1e-9"),
        ("--distribution", "exponential:rate=1", "--chunks", "0"),
        ("--distribution", "exponential:rate=1", "--chunks", "999999999"),
        ("--distribution", "exponential:rate=1", "--checkpoint-s", "0"),
    ],
)
def test_what_cannot_be_planned_is_one_line(options: tuple[str, ...]) -> None:
    result = runner.invoke(app, ["walltime", "plan", *options])
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("clearway: walltime plan: ")


def test_it_gives_up_rather_than_let_somebody_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walltime, "LONGEST_S", -1.0)
    result = runner.invoke(app, ["walltime", "plan", "--distribution", "exponential:rate=1", "--chunks", "100"])
    assert result.exit_code == 2
    assert "not done within -1 s" in result.stderr


def test_samples_of_the_daemon(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    store = Store(url)
    store.record_runs([replace(RUN, job_id=str(number), ended_at=after(60 * number)) for number in (1, 2, 4)])
    store.close()
    config = tmp_path / "clearway.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    options = ["-c", str(config), "--strategy", "no-ckpt"]
    made = planned("--distribution", "history:user=a,name=solver", *options)
    assert made["omniscient_cost"] == pytest.approx(140.0)
    unknown = runner.invoke(app, ["walltime", "plan", "--distribution", "history:user=b,name=solver", *options])
    assert unknown.stderr == ("clearway: walltime plan: history: no job 'solver' of user 'b' has been seen to end\n")


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("#SBATCH -n1 --array=1-5", [], "fit.sh, line 2: a chain is one job and no array"),
        ("#SBATCH --export=NONE", [], "fit.sh, line 2: the job needs an environment variable"),
        ("", ["-t", "5"], "-t: a chain sets its own time limits"),
        ("", ["--array=1-2"], "--array=1-2: a chain"),
        ("", ["--export=HOME"], "--export=HOME: the job needs"),
    ],
)
def test_what_cannot_be_a_chain_is_refused(tmp_path: Path, script: str, arguments: list[str], message: str) -> None:
    path = tmp_path / "fit.sh"
    path.write_text(f"#!/bin/sh\n{script}\nexec clearway-run -- true\n")
    options = ["--distribution", "uniform:low=1,high=2", "--chunks", "10", "--chains", str(tmp_path / "chains")]
    result = runner.invoke(app, ["walltime", "submit", *options, "--", *arguments, str(path)])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "chains").exists()


def test_without_slurm_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = ["--distribution", "uniform:low=1,high=2", "--chunks", "10", "--chains", str(tmp_path / "chains")]
    result = runner.invoke(app, ["walltime", "submit", *options, "--", "--wrap=clearway-run -- true"])
    assert result.exit_code == 1
    assert result.stderr == "clearway: walltime submit: sbatch: No such file or directory\n"
    assert list((tmp_path / "chains").iterdir()) == []


def test_a_damaged_chain_is_a_line_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # and Slurm does not answer
    for name, text in (("a", "state=dancing"), ("b", "state=ended\nrequest=1\nasked_cs=1\nsaved_cs=0\ncode=3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "plan").write_text("100 no\n")
        (tmp_path / name / "state").write_text(text)
    result = runner.invoke(app, ["walltime", "status", "--chains", str(tmp_path), "-o", "json"])
    assert result.exit_code == 0
    assert [row["state"] for row in json.loads(result.stdout)] == [
        "damaged: state is 'dancing'",
        "failed: exit status 3",
    ]
    assert "Slurm does not say" in result.stderr
