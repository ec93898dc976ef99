"""``clearway simulate --config``: a site's accounted jobs under its own configuration, on cases worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clearway.cli.app import app
from clearway.simulation.traces.sacct import command
from tests.unit.cli.simulating import runner, simulated

BEGIN_S = 1_700_000_000


def line(job: int, user: str, qos: str, submit_s: int, run_s: int, nodes: int = 2, name: str = "run") -> str:
    submit, start = BEGIN_S + submit_s, BEGIN_S + submit_s + 5
    times = f"{submit}|{start}|{start + run_s}|{run_s}|{run_s // 60 + 60}"
    return f"{job}|{user}|phys|batch|COMPLETED|{times}|{nodes}|{qos}|{name}\n"


# Two jobs hold all four nodes for 10,000 s, one since 2,000 s and one since 1,400 s when an urgent one comes.
RECORD = line(1, "ann", "normal", 0, 10_000) + line(2, "bob", "normal", 600, 10_000)
RECORD += line(3, "eve", "high", 2_000, 300, name="a|b")
URGENT = '[[preemptors]]\nname = "forecast"\nqos = ["high"]\nmax_delay = "10m"\n'


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.txt"
    path.write_text(RECORD)
    return path


def config(tmp_path: Path, text: str = URGENT) -> str:
    path = tmp_path / "clearway.toml"
    path.write_text(text)
    return str(path)


def runs(made: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in made["runs"]}


def test_each_rule_is_answered_for(record: Path, tmp_path: Path) -> None:
    made = simulated(str(record), "--sacct", "--config", config(tmp_path), "--nodes", "4")
    assert (made["jobs"], made["nodes"], made["urgent_jobs"]) == (3, 4, {"forecast": 1})
    found = runs(made)
    rules = ["slurm-default", "youngest-first", "youngest-prune", "loss-per-node-prune"]
    assert list(found) == ["easy", "urgent first", "clearway", *rules]
    for name in ("easy", "urgent first"):  # the first job ends 8,000 s later
        assert found[name]["planner"] is None
        assert (found[name]["urgent_wait_s"]["mean"], found[name]["late"]) == (8_000, 1)
        assert (found[name]["lost_node_h"], found[name]["preempted_jobs"]) == (0, 0)
        assert found[name]["other_wait_s"]["largest"] == 0
    assert found["clearway"]["planner"] == "eviction-dp"
    for name in ("clearway", *rules):
        assert (found[name]["urgent_wait_s"]["largest"], found[name]["late"]) == (0, 0)
        assert (found[name]["preempted_jobs"], found[name]["preemptions"]) == (1, 1)
    for name in ("clearway", "youngest-first"):  # the younger one begins again when the urgent one has ended
        assert found[name]["lost_node_h"] == pytest.approx(2 * 1_400 / 3_600)
        assert found[name]["other_wait_s"]["largest"] == pytest.approx(1_400 + 300)


@pytest.mark.parametrize(
    "guard",
    ['protected_users = ["bob"]', 'protected_qos = ["low"]', "min_runtime = 1900", 'protected_accounts = ["chem"]'],
)
def test_the_sites_own_guards_hold(guard: str, tmp_path: Path) -> None:
    record = tmp_path / "jobs.txt"
    record.write_text(RECORD.replace("|bob|phys|batch", "|bob|chem|batch").replace("|2|normal|run\n3", "|2|low|run\n3"))
    text = f"{URGENT}[candidates]\n{guard}\n"
    made = simulated(str(record), "--sacct", "--config", config(tmp_path, text), "--nodes", "4")
    clearway = runs(made)["clearway"]
    assert clearway["urgent_wait_s"]["largest"] == 0
    assert clearway["lost_node_h"] == pytest.approx(2 * 2_000 / 3_600)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ('partition = ["batch"]', 3),
        ('account = ["phys"]\nuser = ["eve"]', 1),
        ('partition = ["batch"]\njob_name = ["a?b"]', 1),
        ('user = ["ann", "eve"]', 2),
    ],
)
def test_the_rules_say_who_is_urgent(condition: str, matches: int, record: Path, tmp_path: Path) -> None:
    text = f'[[preemptors]]\n{condition}\n[[preemptors]]\nname = "said"\npartition = ["batch"]\ncomment = true\n'
    made = simulated(str(record), "--sacct", "--config", config(tmp_path, text), "--nodes", "4")
    assert made["urgent_jobs"] == {"rule 1": matches, "said": 0}
    assert any("comment = true matches no job" in limit for limit in made["limits"])
    assert (runs(made)["clearway"]["other_wait_s"] is None) == (matches == 3)


def test_people_get_a_table_and_what_is_not_known(record: Path, tmp_path: Path) -> None:
    text = f"{URGENT}[candidates]\nallow_suspend = true\n[budget]\njobs_per_hour = 1\n"
    options = ["simulate", str(record), "--sacct", "--config", config(tmp_path, text), "--nodes", "4"]
    result = runner.invoke(app, options)
    assert result.exit_code == 0, result.stderr
    assert "jobs: 3 jobs on 4 nodes; urgent: 1 by forecast" in result.stdout
    assert "clearway plans by eviction-dp" in result.stdout
    rows = {row.split("  ")[0]: row.split()[-7:] for row in result.stdout.splitlines()}
    assert rows["easy"] == ["133", "133", "133", "1", "0.0", "0.0", "0"]
    assert rows["youngest-first"] == ["0.0", "0.0", "0.0", "0", "14.2", "0.8", "1"]
    for known in ("loses its work", "no job is suspended", "[budget] is not kept"):
        assert known in result.stderr


def fake_sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool = tmp_path / "bin" / "sacct"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")


def test_a_period_is_asked_of_sacct(record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = tmp_path / "asked"
    fake_sacct(
        tmp_path, monkeypatch, f'printf "%s\\n" sacct "$@" "$SLURM_TIME_FORMAT" > "{asked}"; exec cat "{record}"'
    )
    sinfo = tmp_path / "bin" / "sinfo"
    sinfo.write_text("#!/bin/sh\nprintf 'n%s\\n' 1 2 3 1 4 2\n")  # two of them in two partitions
    sinfo.chmod(0o755)
    made = simulated("--from-sacct", "2026-01-01", "2026-07-01", "--config", config(tmp_path))
    assert asked.read_text().splitlines() == [*command("2026-01-01", "2026-07-01"), "%s"]
    of_file = simulated(str(record), "--sacct", "--config", config(tmp_path), "--nodes", "4")
    assert made["trace"] == "2026-01-01 to 2026-07-01"
    assert made["runs"] == of_file["runs"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", "sacct, a to b: no job that ran (0 broken lines)"),
        ("echo 'sacct: error: Invalid time specification: a' >&2; exit 1", "Invalid time specification: a"),
    ],
)
def test_what_sacct_refuses_is_one_line(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sacct(tmp_path, monkeypatch, script)
    result = runner.invoke(app, ["simulate", "--from-sacct", "a", "b", "--config", config(tmp_path), "--nodes", "4"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        (URGENT, (), "does not say how large the machine is; give --nodes"),
        ("", ("--nodes", "4"), "the configuration has no [[preemptors]]: no job is urgent"),
        (URGENT.replace("high", "low"), ("--nodes", "4"), "none of 3 jobs is urgent by the [[preemptors]] rules"),
        (URGENT, ("--nodes", "1"), "jobs: no job fits 1 nodes; the smallest asks for 2"),
        (f'{URGENT}[planning]\nplanner = "x"\n', ("--nodes", "4"), "unknown planner 'x'"),
        ("[[preemptors]]\n", ("--nodes", "4"), "give partition, qos, account or user"),
    ],
)
def test_what_cannot_be_answered_is_one_line(
    text: str, options: tuple[str, ...], expected: str, record: Path, tmp_path: Path
) -> None:
    result = runner.invoke(app, ["simulate", str(record), "--sacct", "--config", config(tmp_path, text), *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "give either"),
        (("x.swf", "--from-sacct", "a", "b"), "give either"),
        (("--from-sacct", "a", "b"), "--from-sacct needs"),
        (("x.swf", "--config", "c"), "needs --sacct"),
        (("x.txt", "--sacct", "--config", "c", "--scheduler", "easy"), "go only"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], expected: str) -> None:
    result = runner.invoke(app, ["simulate", *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
