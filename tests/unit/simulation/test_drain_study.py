"""How long nodes take to become empty: worked figures on a small machine, and the report."""

from __future__ import annotations

import csv
import io
import lzma
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.config import plugins
from clearway.walltime.remaining import quantile
from clearway_lab.schedulers import GROUP
from clearway_lab.simulator.engine import replay
from clearway_lab.simulator.machine import Machine
from clearway_lab.studies.drain import DRAIN, REQUEUE, WAIT, Course, DrainStudy, as_csv, emptied, sampled, table, ways
from clearway_lab.traces.swf import write_swf
from clearway_lab.traces.trace import Trace, TraceJob

AT_S = 100
WRITE_S = 4_096 / 1_000 + 2  # 4 GiB from each node at once, and the overhead of a checkpoint
EXIT_S = 10.0  # execution.kill_allowance


def job(job_id: int, size: int, run_s: int, limit_s: int, submit_s: int = 0) -> TraceJob:
    return TraceJob(job_id=job_id, submit_s=submit_s, run_s=run_s, size=size, requested_s=limit_s)


def seen_at(jobs: list[TraceJob], chosen: set[int], way: str, image_gib: int = 0, nodes: int = 4) -> Course:
    """The machine is looked at when a job comes at ``AT_S`` that has to wait."""
    found = []

    def look(machine: Machine) -> None:
        if machine.now_s == AT_S:
            found.append(emptied(machine, frozenset(chosen), way, image_gib))

    late = job(99, nodes, 1, 1, AT_S)
    replay([*jobs, late], nodes, plugins.load(GROUP, "easy")(), observe=look)
    (course,) = found
    return course


TWO = [job(1, 2, 1_000, 2_000), job(2, 2, 400, 500)]  # on nodes 0 and 1, and 2 and 3


def test_waiting_lasts_as_long_as_the_longest_job() -> None:
    course = seen_at(TWO, {1, 2}, WAIT)
    assert course == Course(
        empty_s=900, idle_node_h=pytest.approx(600 / 3_600), jobs=0, still_node_h=0, repeated_node_h=0
    )
    assert seen_at(TWO, {2, 3}, WAIT).idle_node_h == 0


def test_a_drain_lasts_as_long_as_its_checkpoints() -> None:
    course = seen_at(TWO, {1, 2}, DRAIN, 4)
    assert course.jobs == 2
    assert course.empty_s == pytest.approx(2 * WRITE_S + EXIT_S)
    assert course.idle_node_h == pytest.approx(WRITE_S / 3_600)  # the first node's, while the second job is saved
    assert course.still_node_h == pytest.approx(2 * 2 * 2 * WRITE_S / 3_600)
    assert course.repeated_node_h == 0
    assert seen_at(TWO, {0}, DRAIN, 64).empty_s == pytest.approx(65_536 / 1_000 + 2 + EXIT_S)


def test_a_requeue_repeats_what_was_done() -> None:
    course = seen_at(TWO, {1, 2}, REQUEUE)
    assert (course.jobs, course.empty_s, course.still_node_h) == (2, EXIT_S, 0)
    assert course.repeated_node_h == pytest.approx((2 + 2) * AT_S / 3_600)


def test_who_ends_before_its_turn_is_not_moved() -> None:
    jobs = [job(1, 2, 1_000, 2_000), job(2, 2, AT_S + 3, 500)]
    course = seen_at(jobs, {0, 1, 2, 3}, DRAIN, 4)
    turns = {1: WRITE_S + EXIT_S, 2: 2 * WRITE_S + EXIT_S}
    assert course.empty_s == pytest.approx(turns[course.jobs])
    assert course.idle_node_h == pytest.approx(2 * (course.empty_s - 3) / 3_600)


def test_idle_nodes_are_empty_already() -> None:
    course = seen_at([job(1, 3, 1_000, 2_000)], {2, 3}, WAIT)
    assert (course.empty_s, course.idle_node_h) == (900, 0.25)


def test_the_same_seed_looks_at_the_same_moments() -> None:
    jobs = [job(number, 1 + number % 3, 50 + 37 * number % 400, 600, 20 * number) for number in range(1, 200)]
    first, again = (sampled(jobs, "small", 4, moments=10) for _ in range(2))
    assert first == again
    assert first != sampled(jobs, "small", 4, seed=1, moments=10)
    moments = {sample.at_s for sample in first}
    assert 5 <= len(moments) <= 10
    assert {(sample.nodes, sample.way, sample.image_gib) for sample in first} == {
        (nodes, *way) for nodes in (1, 4) for way in ways()
    }
    by_way = {way: [s.course for s in first if (s.way, s.image_gib) == way] for way in ways()}
    assert all(course.empty_s > 0 for course in by_way[WAIT, 0])  # a busy node was chosen
    assert all(course.repeated_node_h == course.still_node_h == 0 for course in by_way[WAIT, 0])
    for small, large in zip(by_way[DRAIN, 4], by_way[DRAIN, 64], strict=True):
        assert small.empty_s <= large.empty_s


def test_quantiles() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [quantile(values, share) for share in (0.2, 0.5, 0.9, 1.0)] == [1, 3, 5, 5]


def test_the_command_writes_a_report(tmp_path: Path) -> None:
    jobs = tuple(job(number, 1 + number % 90, 500, 600, 20 * number) for number in range(1, 100))
    with lzma.open(tmp_path / "KTH-SP2-1996-2.1-cln.swf.xz", "wt") as out:
        write_swf(Trace("small", jobs), out)
    command = [
        "lab",
        "experiment",
        "drain",
        "--traces",
        str(tmp_path),
        "--out",
        str(tmp_path / "out"),
        "--processes",
        "1",
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert re.search(r"Not found, so left out: .*LANL-CM5", page)
    assert page.index("Each bar is a row of the table") < page.index("<svg"), "the figure is explained before it comes"
    assert "http" not in page
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "drain.csv").read_text())))
    assert {row["nodes"] for row in rows} == {"1", "5", "16"}
    assert page.count("<tr><td>KTH-SP2<td>1<td>waiting<td>") == 1
    nothing = CliRunner().invoke(app, [*command[:4], str(tmp_path / "out"), *command[5:]])
    assert nothing.exit_code == 2
    assert "none of KTH-SP2" in nothing.stderr


def test_the_table_says_what_the_samples_say() -> None:
    jobs = [job(number, 2, 300, 600, 20 * number) for number in range(1, 50)]
    made = DrainStudy(tuple(sampled(jobs, "small", 4, moments=5)), 0, ())
    rows = table(made)
    assert len(rows) == len(ways()) * 2
    assert [row[2] for row in rows[:4]] == ["waiting", "drain, 4 GiB a node", "drain, 64 GiB a node", "requeue"]
    waited, drained = made.of("small", 1, WAIT), made.of("small", 1, DRAIN, 64)
    assert [row[6] for row in rows[:2]] == ["", "100%"]
    quicker = sum(d.empty_s < w.empty_s for d, w in zip(drained, waited, strict=True))
    assert 0 < quicker < len(waited)  # some of the jobs end sooner than their images are written
    assert rows[2][6] == f"{quicker / len(waited):.0%}"
    assert float(rows[0][7]) == round(sum(course.idle_node_h for course in waited) / len(waited), 1)
    assert len(as_csv(made).splitlines()) == 1 + len(made.samples)
