"""``clearway lab simulate --config``: a site's accounted jobs under its own configuration, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearway.cli.app import app
from clearway_lab.site import files as site_files
from clearway_lab.site.record import ENVIRONMENT
from tests.unit.cli.simulating import runner, simulated

BEGIN_S = 1_700_000_000
URGENT = '[[preemptors]]\nname = "forecast"\nqos = ["high"]\nmax_delay = "10m"\n'
GOES_AT_ONCE = "[candidates]\nmin_runtime = 0\n"
LINE = 200  # s after the beginning, when the urgent job comes


def line(
    job: int, user: str, qos: str, submit_s: int, start_s: int, run_s: int, *,
    nodes: str = "n1", count: int = 1, partition: str = "batch", comment: str = "", tres: str = "cpu=4",
    state: str = "COMPLETED", reservation: str = "",
) -> str:  # fmt: skip
    submit, start, end = (BEGIN_S + at for at in (submit_s, start_s, start_s + run_s))
    times = f"{submit}|{submit}|{start}|{end}|{run_s}|{run_s // 60 + 60}"
    held = f"{tres},mem=4000M,node={count},billing=4"
    return (
        f"{job}|{user}|phys|{partition}|{qos}|{state}|{times}|{count}|{nodes}|100|{reservation}||{held}|{held}"
        f"|{comment}|run\n"
    )


def node(name: str, partitions: str = "batch,fast", gres: str = "") -> str:
    return (
        f"NodeName={name} Arch=x86_64 CPUTot=4 CPUAlloc=0 RealMemory=4000 AllocMem=0 State=IDLE ThreadsPerCore=1 "
        f"Partitions={partitions} Weight=1{gres}\n"
    )


# One job ends first, so that the replay begins; two others have a node each, with hours to go.
FIRST = line(1, "ann", "normal", -100, -90, 90, nodes="n3")
RUNNING = line(2, "ann", "normal", -5_000, -5_000, 20_000) + line(3, "bob", "normal", -600, -600, 20_000, nodes="n2")
COMES = line(9, "eve", "high", LINE, 14_400, 300, nodes="n2")


def site(tmp_path: Path, jobs: str, nodes: str = node("n1") + node("n2"), **others: str) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    for name, text in {"jobs": jobs, "nodes": nodes, **others}.items():
        (folder / f"{name}.txt").write_text(text)
    return folder


def config(tmp_path: Path, text: str = URGENT) -> str:
    path = tmp_path / "clearway.toml"
    path.write_text(f'{text}\n[store]\nurl = "sqlite:///{tmp_path}/none.sqlite"\n')
    return str(path)


def replayed(tmp_path: Path, folder: Path, text: str = URGENT) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The runs by name, and the cases of the report."""
    made = simulated(str(folder), "--config", config(tmp_path, text))
    return {run["name"]: run for run in made["runs"]}, made["report"]["cases"]


def test_the_job_that_loses_least_leaves_and_the_record_stands_beside(tmp_path: Path) -> None:
    runs, (case,) = replayed(tmp_path, site(tmp_path, FIRST + RUNNING + COMES))
    assert runs["recorded"]["urgent_wait_s"]["mean"] == 14_400 - LINE
    assert runs["Slurm alone"]["urgent_wait_s"]["mean"] == pytest.approx(15_000 - LINE, abs=2)
    assert runs["Slurm alone"]["late"] == 1
    clearway = runs["with Clearway"]
    assert clearway["late"] == 0
    assert clearway["urgent_wait_s"]["mean"] < 30
    assert (clearway["preempted_jobs"], clearway["preemptions"]) == (1, 1)
    assert clearway["lost_node_h"] == pytest.approx((600 + LINE) / 3_600, abs=0.01)  # bob's, which is younger
    assert [job["user"] for job in case["jobs"]] == ["bob"]
    assert case["ending"] == "served"


def test_a_job_that_saves_itself_loses_nothing_and_does_no_work_twice(tmp_path: Path) -> None:
    saves = RUNNING.replace(
        "||cpu=4,mem=4000M,node=1,billing=4|cpu=4,mem=4000M,node=1,billing=4|",
        "||cpu=4,mem=4000M,node=1,billing=4|cpu=4,mem=4000M,node=1,billing=4|clearway:checkpoint=signal,took=20s",
        1,
    )
    runs, (case,) = replayed(tmp_path, site(tmp_path, FIRST + saves + COMES))
    assert [(job["user"], job["action"]) for job in case["jobs"]] == [("ann", "app_checkpoint")]
    assert runs["with Clearway"]["lost_node_h"] < 0.001  # it computes until it is requeued
    assert runs["with Clearway"]["urgent_wait_s"]["mean"] == pytest.approx(25, abs=10)
    assert case["jobs"][0]["actual_checkpoint_s"] == pytest.approx(22, abs=3)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ('[candidates]\nprotected_users = ["bob"]\n', ["ann"]),
        ("[candidates]\nmin_runtime = 1000\n", ["ann"]),
        ('[candidates]\nprotected_qos = ["normal"]\n', []),
        ("[budget]\njobs_per_hour = 0\n", []),
        ("[budget]\nlost_node_hours_per_hour = 0.1\n", []),
    ],
)
def test_guards_and_budgets_are_believed(settings: str, expected: list[str], tmp_path: Path) -> None:
    runs, cases = replayed(tmp_path, site(tmp_path, FIRST + RUNNING + COMES), URGENT + settings)
    left = [job["user"] for case in cases for job in case["jobs"] if job["pays"] and case["acted"]]
    assert left == expected
    assert runs["with Clearway"]["preempted_jobs"] == len(expected)


def test_only_nodes_of_the_partition_serve(tmp_path: Path) -> None:
    jobs = FIRST + RUNNING + COMES.replace("|batch|", "|fast|")
    _, (case,) = replayed(tmp_path, site(tmp_path, jobs, node("n1") + node("n2", "batch")))
    assert [job["user"] for job in case["jobs"]] == ["ann"]


def test_on_shared_nodes_all_jobs_of_one_node_leave(tmp_path: Path) -> None:
    half = {"tres": "cpu=2"}
    shared = "".join(line(2 + n, user, "normal", -600, -600, 20_000, **half) for n, user in enumerate(("ann", "bob")))
    shared = shared.replace("mem=4000M", "mem=2000M")
    jobs = FIRST + shared + line(4, "cid", "normal", -7_000, -7_000, 30_000, nodes="n2") + COMES
    _, (case,) = replayed(tmp_path, site(tmp_path, jobs))
    assert sorted(job["user"] for job in case["jobs"]) == ["ann", "bob"]  # 1,600 node-seconds, against 7,200


def test_a_node_that_was_down_is_no_place_and_one_that_came_back_is(tmp_path: Path) -> None:
    down = f"n2|{BEGIN_S - 10_000}|{BEGIN_S + 1_000}|DOWN\n"
    jobs = FIRST + RUNNING.splitlines(keepends=True)[0] + COMES
    settings = URGENT + '[candidates]\nprotected_users = ["ann"]\n'
    runs, _ = replayed(tmp_path, site(tmp_path, jobs, outages=down), settings)
    assert runs["Slurm alone"]["urgent_wait_s"]["mean"] == pytest.approx(1_000 - LINE, abs=1)
    assert runs["with Clearway"]["preempted_jobs"] == 0


def test_nodes_of_a_reservation_are_for_its_jobs(tmp_path: Path) -> None:
    reserved = f"beam|{BEGIN_S - 10}|{BEGIN_S + 2_000}|n2\n"
    inside = line(5, "cid", "normal", 50, 60, 100, nodes="n2", reservation="beam")
    jobs = FIRST + RUNNING.splitlines(keepends=True)[0] + inside + COMES
    settings = URGENT + '[candidates]\nprotected_users = ["ann"]\n'
    runs, _ = replayed(tmp_path, site(tmp_path, jobs, reservations=reserved), settings)
    assert runs["Slurm alone"]["urgent_wait_s"]["mean"] == pytest.approx(2_000 - LINE, abs=1)
    assert runs["Slurm alone"]["other_wait_s"]["largest"] == 0


def test_a_case_is_replayed_as_it_was_when_the_job_came(tmp_path: Path) -> None:
    # cid's job ran twice: by then only its second run matters, which loses less than any other.
    before = line(5, "cid", "normal", -900, -900, 500, nodes="n3", state="REQUEUED")
    again = line(5, "cid", "normal", -400, 100, 20_000, nodes="n3")
    nodes = node("n1") + node("n2") + node("n3")
    folder = site(tmp_path, FIRST + RUNNING + before + again + COMES, nodes)
    made = simulated(str(folder), "--config", config(tmp_path), "--job", "9")
    (case,) = made["report"]["cases"]
    assert [job["user"] for job in case["jobs"]] == ["bob"]  # cid's was preempted before: it may run 120 s undisturbed
    made = simulated(str(folder), "--config", config(tmp_path, URGENT + GOES_AT_ONCE), "--job", "9")
    (case,) = made["report"]["cases"]
    assert [job["user"] for job in case["jobs"]] == ["cid"]
    (urgent,) = made["urgent"]
    assert (urgent["job_id"], urgent["recorded_wait_s"]) == ("9", 14_400 - LINE)
    assert urgent["wait_s"] < 30
    assert case["lost_node_s"] == pytest.approx(LINE - 100, abs=10)
    result = runner.invoke(app, ["lab", "simulate", str(folder), "--config", config(tmp_path), "--job", "77"])
    assert (result.exit_code, result.stderr) == (2, "clearway: site: no job 77 that ran\n")


def test_people_get_tables_and_a_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    folder = site(tmp_path, FIRST + RUNNING + COMES + "broken\n" + line(7, "x", "normal", 0, 10, 10, partition="gone"))
    result = runner.invoke(app, ["lab", "simulate", str(folder), "--config", config(tmp_path), "--report", str(page)])
    assert result.exit_code == 0, result.stderr
    assert "site: 5 jobs on 2 nodes" in result.stdout
    for row in ("recorded", "Slurm alone", "with Clearway", "served", "plans: 1, for urgent jobs: 1"):
        assert row in result.stdout
    assert "\\n" not in result.stdout  # lines are lines
    assert "line 5" in result.stderr
    assert "1 jobs fit no partition's nodes" in result.stderr
    assert "<svg" in page.read_text()


def fake_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")


def test_a_period_is_asked_of_slurm_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = site(tmp_path, FIRST + RUNNING + COMES), tmp_path / "asked"
    told = f'printf "%s\\n" "${{0##*/}}" "$@" "$SLURM_TIME_FORMAT" >> "{asked}"'
    fake_slurm(
        tmp_path, monkeypatch, sacct=f"{told}; cat {folder}/jobs.txt", scontrol=f"{told}; cat {folder}/nodes.txt",
        sacctmgr=told,
    )  # fmt: skip
    kept = tmp_path / "kept"
    options = ("--config", config(tmp_path))
    made = simulated("--from-sacct", "2026-01-01", "2026-07-01", *options, "--save", str(kept))
    words = [word for command in site_files.commands("2026-01-01", "2026-07-01").values() for word in (*command, "%s")]
    assert asked.read_text().splitlines() == words
    assert ENVIRONMENT["SLURM_TIME_FORMAT"] == "%s"
    assert made["trace"] == "2026-01-01 to 2026-07-01"
    again = simulated(str(kept), *options)
    assert json.dumps(made["runs"]) == json.dumps(again["runs"])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", "a to b: no job that ran (0 broken lines)"),
        ("echo 'sacct: error: Invalid time specification: a' >&2; exit 1", "Invalid time specification: a"),
    ],
)
def test_what_sacct_refuses_is_one_line(
    script: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, monkeypatch, sacct=script, sacctmgr="exit 0", scontrol="exit 0")
    result = runner.invoke(app, ["lab", "simulate", "--from-sacct", "a", "b", "--config", config(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the configuration has no [[preemptors]]: no job is urgent"),
        (URGENT.replace("high", "low"), "none of 4 jobs is urgent by the [[preemptors]] rules"),
        (f'{URGENT}[planning]\nplanner = "x"\n', "unknown planner 'x'"),
        ("[[preemptors]]\n", "give partition, qos, account or user"),
    ],
)
def test_what_cannot_be_answered_is_one_line(text: str, expected: str, tmp_path: Path) -> None:
    folder = site(tmp_path, FIRST + RUNNING + COMES)
    result = runner.invoke(app, ["lab", "simulate", str(folder), "--config", config(tmp_path, text)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "give either"),
        (("x.swf", "--from-sacct", "a", "b"), "give either"),
        (("--from-sacct", "a", "b"), "--from-sacct needs"),
        (("x", "--config", "c", "--save", "y"), "--save needs"),
        (("x", "--report", "y"), "need --config"),
        (("x", "--job", "5"), "need --config"),
        (("x.txt", "--config", "c", "--scheduler", "easy"), "go only"),
        (("x.txt", "--config", "c", "--nodes", "4"), "go only"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...], expected: str) -> None:
    result = runner.invoke(app, ["lab", "simulate", *options])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
