"""``clearway lab simulate``: its JSON, its table, and one clear line for what cannot be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearway.cli.app import app
from clearway.config import plugins
from clearway_lab.schedulers import GROUP
from clearway_lab.studies.injection import urgent_jobs
from clearway_lab.traces.swf import read_swf
from tests.unit.cli.simulating import runner, simulated

LOG = """\
; MaxProcs: 8
; Queue: 1 daily
; Queue: 2 now
1 0 -1 3600 6 -1 -1 6 7200 -1 1 1 1 1 1 -1 -1 -1
2 10 -1 600 4 -1 -1 4 600 -1 1 1 1 1 2 -1 -1 -1
3 20 -1 1800 2 -1 -1 2 1800 -1 1 1 1 1 1 -1 -1 -1
4 30 -1 -1 2 -1 -1 2 1800 -1 5 1 1 1 1 -1 -1 -1
5 40 -1 60 9 -1 -1 9 60 -1 1 1 1 1 1 -1 -1 -1
oops
"""


SACCT = """\
101|bob|phys|batch|COMPLETED|1700000100|1700000160|1700000460|300|10|4|normal|relax
102|alice|bio|urgent|CANCELLED by 1000|1700000000|1700000010|1700000020|10|UNLIMITED|2|high|now
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_the_json_has_the_form_that_programs_rely_on(log: Path) -> None:
    made = simulated(str(log), "--scheduler", "fcfs, easy")
    assert list(made) == ["trace", "jobs", "never_ran", "broken_lines", "too_large", "nodes", "schedulers"]
    assert (made["nodes"], made["never_ran"], made["too_large"]) == (8, 1, 1)
    assert made["broken_lines"] == [{"line": 9, "why": "1 fields, not 18"}]
    fcfs, easy = made["schedulers"]
    assert fcfs["jobs"]["all"]["count"] == 3
    assert fcfs["jobs"]["all"]["wait_s"]["mean"] == pytest.approx((0 + 3_590 + 3_580) / 3)
    assert easy["jobs"]["all"]["wait_s"]["mean"] == pytest.approx((0 + 3_590 + 0) / 3)
    assert easy["jobs"]["all"]["slowdown"]["largest"] == pytest.approx(4_190 / 600)
    assert easy["jobs"]["all"]["bounded_slowdown"]["p5"] == pytest.approx(1.0)
    assert easy["utilisation"] == pytest.approx((6 * 3_600 + 4 * 600 + 2 * 1_800) / (8 * 4_200))
    assert easy["urgent_lateness"] is None


def test_urgent_jobs_of_a_queue_are_told_apart(log: Path) -> None:
    made = simulated(str(log), "--scheduler", "ujfb", "--urgent-queue", "now", "--exact-limits")
    ujfb = made["schedulers"][0]
    assert ujfb["jobs"]["urgent"]["count"] == 1
    assert 1 < ujfb["urgent_lateness"] < 602.1 / 600
    assert (ujfb["preemptions"], ujfb["lost_node_h"]) == (1, 0)
    assert ujfb["saved_node_h"] == pytest.approx(6 * 10 / 3_600)
    assert ujfb["productive_utilisation"] < ujfb["utilisation"]


def test_what_sacct_answered_is_saved_as_swf(tmp_path: Path) -> None:
    answer, saved = tmp_path / "jobs.txt", tmp_path / "jobs.swf"
    answer.write_text(SACCT)
    first = simulated(str(answer), "--sacct", "--nodes", "4", "--save-swf", str(saved))
    again = simulated(str(saved), "--nodes", "4")
    assert first["jobs"] == again["jobs"] == 2
    assert "alice" not in saved.read_text()
    assert first["schedulers"] == again["schedulers"]


@pytest.mark.parametrize(("file", "why"), [("none/log.swf", "No such file or directory"), ("log.swf", "File exists")])
def test_a_record_that_cannot_be_saved_is_one_line(log: Path, file: str, why: str) -> None:
    result = runner.invoke(app, ["lab", "simulate", str(log), "--save-swf", str(log.parent / file)])
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].endswith(f"{file}: {why}")
    assert not result.stdout
    assert log.read_text() == LOG


def test_the_same_seed_gives_the_same_bytes(log: Path) -> None:
    options = ["lab", "simulate", str(log), "--scheduler", ",".join(plugins.names(GROUP)), "-o", "json"]
    options += ["--inject-urgent", "--nodes", "600", "--seed", "5"]
    assert runner.invoke(app, options).stdout_bytes == runner.invoke(app, options).stdout_bytes


def test_the_table_is_for_people_and_says_what_was_left_out(log: Path) -> None:
    result = runner.invoke(app, ["lab", "simulate", str(log), "--processors-per-node", "2", "--scheduler", "easy"])
    assert result.exit_code == 0
    assert "log: 3 jobs, 4 nodes; means, times in hours" in result.stdout
    assert result.stderr.splitlines() == [
        "clearway: log: line 9: 1 fields, not 18; left out",
        "clearway: log: 1 jobs never ran; left out",
        "clearway: log: 1 jobs are larger than 4 nodes; left out",
    ]


def test_a_number_is_whole_or_seen_to_be_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job of one second waits for three others of 40 days: its slowdown of ten millions fits 80 columns."""
    path = tmp_path / "log.swf"
    lines = [f"{n} 0 -1 3456000 8 {'-1 ' * 9}1 -1 -1 -1\n" for n in (1, 2, 3)]
    path.write_text("; MaxProcs: 8\n" + "".join(lines) + f"4 0 -1 1 8 {'-1 ' * 9}2 -1 -1 -1\n")
    shown = {}
    for columns in ("80", "65"):
        monkeypatch.setenv("COLUMNS", columns)
        options = ["lab", "simulate", str(path), "--scheduler", "clearway-suspend,fcfs", "--urgent-queue", "1"]
        result = runner.invoke(app, options)
        assert result.exit_code == 0, result.stderr
        assert all(len(line) <= int(columns) for line in result.stdout.splitlines())
        shown[columns] = [line.split() for line in result.stdout.splitlines() if line.startswith("fcfs")]
    whole = ["fcfs", "regular", "1", "2,880", "2,880", "10,368,001", "10,368,001", "17,280"]
    assert shown["80"][0] == whole
    cut = shown["65"][0]
    assert cut != whole
    assert all(got == want or got.endswith("\u2026") for got, want in zip(cut, whole, strict=True))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--scheduler", "esay"], "unknown scheduler 'esay'; known are clearway, "),
        (["--urgent-queue", "never"], "no job is in the queue never; there are 1 (daily), 2 (now)"),
        (["--urgent-queue", "\u00b2"], "no job is in the queue \u00b2; there are 1 (daily), 2 (now)"),
        (["--inject-urgent"], "no urgent job to inject fits 8 nodes: the smallest asks for 128 processors"),
        (["--nodes", "1"], "log: no job fits 1 nodes; the smallest asks for 2"),
        (["--nodes", "999999999999"], "a machine of 999,999,999,999 nodes is not replayed: 20,000,000 at most"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(log: Path, options: list[str], why: str) -> None:
    result = runner.invoke(app, ["lab", "simulate", str(log), *options])
    assert result.exit_code == 2
    *left_out, last = result.stderr.splitlines()
    assert why in last
    assert all(line.endswith("; left out") for line in left_out)
    assert not result.stdout


@pytest.mark.parametrize(("scheduler", "wait_s"), [("clearway", 512), ("weighted-cost", 1_201 + 512)])
def test_an_image_is_that_of_as_many_nodes_as_the_trace_says(tmp_path: Path, scheduler: str, wait_s: int) -> None:
    """16 GiB a node at 32 MiB/s take 512 s, on 64 nodes too; an urgent job may wait for a tenth of its 6,000 s."""
    path = tmp_path / "log.swf"
    regular = "1 0 -1 36000 64 -1 -1 64 36000 -1 1 1 1 1 1 -1 -1 -1\n"
    path.write_text("; MaxProcs: 64\n" + regular + "2 1000 -1 600 64 -1 -1 64 6000 -1 1 1 1 1 2 -1 -1 -1\n")
    (made,) = simulated(str(path), "--scheduler", scheduler, "--urgent-queue", "2")["schedulers"]
    assert (made["preemptions"], made["lost_node_h"]) == (1, 0)
    assert made["jobs"]["urgent"]["wait_s"]["mean"] == wait_s
    # The regular job has been away for the urgent one's 600 s, and was written and read for 512 s each.
    assert made["jobs"]["regular"]["wait_s"]["mean"] == 600 + 2 * 512


def test_a_queue_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("".join(line for line in LOG.splitlines(keepends=True) if "Queue" not in line))
    result = runner.invoke(app, ["lab", "simulate", str(path), "--urgent-queue", "now"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "clearway: no job is in the queue now; there are 1, 2\n"


def test_a_scheduler_that_is_named_twice_is_asked_once(log: Path) -> None:
    made = simulated(str(log), "--scheduler", "easy, fcfs,easy")
    assert [each["scheduler"] for each in made["schedulers"]] == ["easy", "fcfs"]


def test_jobs_beyond_the_calendar_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    lines = (f"{n} 0 -1 9000000000 8 -1 -1 8 9000000000 -1 1 1 1 1 2 -1 -1 -1\n" for n in range(1, 15))
    path.write_text("; MaxProcs: 8\n" + "".join(lines))
    names = ",".join(plugins.names(GROUP))
    options = ["lab", "simulate", str(path), "--scheduler", names, "--urgent-queue", "2", "--processes", "1"]
    result = runner.invoke(app, options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "clearway: the jobs take longer than 100,000,000,000 s\n"


def test_injected_jobs_ask_for_nodes_where_the_machine_has_nodes(tmp_path: Path) -> None:
    """A day on which half of 32 nodes of 16 processors is held twice over: urgent jobs are of 8, 16 or 32 nodes."""
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 512\n" + "".join(f"{n} 0 -1 86400 256 {'-1 ' * 12}-1\n" for n in range(1, 5)))
    drawn = set()
    for seed in range(8):
        trace = read_swf(path).on_nodes(16)
        (job,) = urgent_jobs(trace, 32, seed, 16)
        drawn.add((job.size, job.run_s))
        options = ["--inject-urgent", "--seed", str(seed), "--processors-per-node", "16", "--scheduler", "easy"]
        made = simulated(str(path), *options)["schedulers"][0]
        assert (made["nodes"], made["jobs"]["urgent"]["count"]) == (32, 1)
        asked_node_s = 4 * 16 * 86_400 + job.size * job.run_s
        end_s = asked_node_s / 32 / made["productive_utilisation"]
        assert end_s == pytest.approx(2 * 86_400 + job.run_s), "the busy machine lets it in at an end only"
    assert drawn <= {(8, 600), (16, 390), (32, 240)}
    assert len(drawn) > 1


def test_a_trace_without_a_size_needs_one(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text("".join(line for line in LOG.splitlines(keepends=True) if "MaxProcs" not in line))
    result = runner.invoke(app, ["lab", "simulate", str(path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "does not say how large the machine is; give --nodes" in result.stderr
