"""The WCJS paper's simulations: workloads, the study on a small trace, its report."""

from __future__ import annotations

import csv
import io
import lzma
import random
from pathlib import Path

import pytest

from clearway_lab.errors import SimulationError, TraceError
from clearway_lab.simulator.cluster_view import BATCH, SHORT, URGENT, names_of
from clearway_lab.studies import realtime as realtime_study
from clearway_lab.studies.chart import ticks
from clearway_lab.studies.realtime import APPROACHES, PERCENTS, as_csv, as_html, bounded_slowdown, replayed, study
from clearway_lab.studies.realtime_workloads import (
    PARTITIONS,
    SHORT_PARTITION_S,
    random_log,
    some_of_all,
    with_beam_time_jobs,
    with_short_partition,
)
from clearway_lab.sweeps.local import Sweep, local_workers
from clearway_lab.traces.swf import read_swf, write_swf
from clearway_lab.traces.trace import Trace, TraceJob
from tests.traces import recorded


def trace(count: int = 60) -> Trace:
    rng = random.Random(1)
    jobs = [
        TraceJob(number, 60 * number, rng.randint(300, 9_000), 512 * rng.choice((1, 2, 4, 16, 48)), requested_s=10_000)
        for number in range(1, count + 1)
    ]
    return Trace("small", tuple(jobs))


def test_a_share_of_the_jobs_is_urgent() -> None:
    drawn = some_of_all(trace(), 20, seed=3)
    assert sum(job.urgent for job in drawn.jobs) == 12
    assert drawn == some_of_all(trace(), 20, seed=3) != some_of_all(trace(), 20, seed=4)
    short = some_of_all(trace(), 20, seed=3, shorter_than_s=5_400)
    assert all(job.run_s < 5_400 for job in short.jobs if job.urgent)
    with pytest.raises(SimulationError, match="small: 30 jobs are to be urgent, only 0 are short enough"):
        some_of_all(trace(), 50, seed=3, shorter_than_s=10)


def test_beam_time_jobs_come_beside_the_others() -> None:
    whole = trace()
    more = [job for job in with_beam_time_jobs(whole, 50, 1, [12.5, 700], 512).jobs if job.urgent]
    assert len(more) == 30
    for job in more:
        assert job.run_s in (12, 700)
        assert job.run_s <= job.requested_s <= 2 * job.run_s + 1
        assert 512 * job.size in PARTITIONS
        assert 0 <= job.submit_s <= max(other.submit_s for other in whole.jobs)
    assert len({job.job_id for job in with_beam_time_jobs(whole, 50, 1, [5], 512).jobs}) == 90


def test_random_logs_have_the_papers_sizes() -> None:
    logs = [random_log(seed) for seed in range(20)]
    assert all(sum(job.urgent for job in log) == 2 and len(log) == 7 for log in logs)
    assert {512 * job.size for log in logs for job in log} == {512, 1_024, 2_048, 4_096, 8_192}


def test_short_batch_jobs_are_sent_to_a_partition_of_their_own() -> None:
    limits = {1: SHORT_PARTITION_S, 2: SHORT_PARTITION_S + 1, 3: 60}
    jobs = [TraceJob(number, 0, 30, 1, requested_s=limit, urgent=number == 3) for number, limit in limits.items()]
    assert [names_of(job).partition for job in with_short_partition(jobs)] == [SHORT, BATCH, URGENT]


def test_checkpoints_count_as_delay() -> None:
    """A job alone on the machine: whatever its checkpoints take is wait, and the baseline has none."""
    alone = [TraceJob(1, 0, 36_000, 1, requested_s=36_000)]
    (plain,) = replayed(alone, "baseline")
    (saving,) = replayed(alone, "WCJS application 10 %")
    assert bounded_slowdown(plain) == 1
    assert saving.job.run_s == 36_000
    assert saving.wait_s == 7 * 512  # 10 % of the limit has time for seven
    assert bounded_slowdown(saving) == pytest.approx(1 + 7 * 512 / 36_000)


@pytest.fixture
def small_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> realtime_study.RealtimeStudy:
    with lzma.open(tmp_path / "mira-2018-wk1.swf.xz", "wt") as file:
        write_swf(trace(), file)
    (tmp_path / realtime_study.BEAM_TIMES).write_text("300\n650.5\n")
    monkeypatch.setattr(realtime_study, "LOGS", 2)
    with local_workers(2) as workers:
        return study(tmp_path, 1, Sweep(workers))


def test_every_cell_is_there_and_the_report_tells_what_is_not(small_study: realtime_study.RealtimeStudy) -> None:
    assert len(small_study.cells) == 3 * len(PERCENTS) * len(APPROACHES)
    assert small_study.absent == ("mira-2018-wk2.swf.xz",)
    assert small_study.change("week 1", 10, "baseline", "urgent") == 0
    for cell in small_study.cells:
        urgent = sum(group.jobs for (kind, name), group in cell.groups.items() if (kind, name) == ("urgent", "all"))
        batch = sum(group.jobs for (kind, name), group in cell.groups.items() if (kind, name) == ("batch", "all"))
        extra = urgent if cell.way == "beam time" else 0
        assert urgent == round(60 * cell.percent / 100)
        assert urgent + batch == 60 + extra
    page = as_html(small_study)
    assert "Not found, so left out: mira-2018-wk2.swf.xz" in page
    assert "http" not in page
    (sentence,) = (each for each in realtime_study.found(small_study) if "left out" in each)
    assert sentence == "Not found, so left out: mira-2018-wk2.swf.xz."
    for section in page.split("<h3>")[1:]:
        assert section.index("Boxes: 25 % to 75 %") < section.index("<svg"), "the colours are named beside each figure"
    rows = list(csv.DictReader(io.StringIO(as_csv(small_study))))
    assert len(rows) == sum(len(cell.groups) for cell in small_study.cells)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0387, 11.2, [0.1, 1, 10]),
        (1, 10.4, [1, 2, 5, 10]),
        (1, 2.25, [1, 1.5, 2]),
        (1, 1.35, [1, 1.1, 1.2, 1.3]),
        (1, 1.05, [1, 1.05]),
    ],
)
def test_an_axis_has_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


def test_a_folder_without_the_weeks_is_named(tmp_path: Path) -> None:
    none = r"none of mira-2018-wk1\.swf\.xz, mira-2018-wk2\.swf\.xz"
    with local_workers(1) as workers, pytest.raises(TraceError, match=none):
        study(tmp_path, 1, Sweep(workers))


def of_logs(name: str) -> tuple[float, float]:
    """Mean slowdowns of the batch and the urgent jobs of the random logs (Table 3)."""
    done = [each for seed in range(realtime_study.LOGS) for each in replayed(random_log(seed), name, 16)]
    batch, urgent = ([each.slowdown for each in done if each.job.urgent == kind] for kind in (False, True))
    return sum(batch) / len(batch), sum(urgent) / len(urgent)


def test_patient_clearway_is_better_than_weighted_cost_on_the_random_logs() -> None:
    ours, theirs = of_logs(realtime_study.PATIENT), of_logs("WCJS just in time")
    assert ours[0] < theirs[0]
    assert ours[1] < theirs[1]


def test_room_for_short_jobs_halves_the_distance_to_the_optimum() -> None:
    """The optimum has 1.62 and 1.10, patient Clearway 1.86 and 1.24."""
    batch, urgent = of_logs(realtime_study.SMALL_FIRST)
    assert batch <= (1.62 + 1.86) / 2
    assert urgent <= (1.10 + 1.24) / 2


def test_room_for_short_jobs_is_better_for_all_in_either_order() -> None:
    patient, short = of_logs(realtime_study.PATIENT), of_logs(realtime_study.ROOM_FOR_SHORT)
    theirs, small = of_logs(realtime_study.WCJS_SMALL_FIRST), of_logs(realtime_study.SMALL_FIRST)
    for kind in (0, 1):
        assert short[kind] < patient[kind]
        assert small[kind] < theirs[kind]


def test_clearway_is_better_than_weighted_cost_on_a_week_of_mira() -> None:
    """Both ways, and as far from the baseline as it is to be: urgent slowdowns at least 40 % down, batch 5 % up."""
    week = read_swf(*recorded("mira-2018-wk1.swf.xz")).on_nodes(512)
    means: dict[tuple[str, bool], float] = {}
    for name in ("baseline", "WCJS just in time", "Clearway"):
        done = [each for seed in range(3) for each in replayed(some_of_all(week, 10, seed).jobs, name)]
        for urgent in (True, False):
            slowdowns = [bounded_slowdown(outcome) for outcome in done if outcome.job.urgent == urgent]
            means[name, urgent] = sum(slowdowns) / len(slowdowns)
    assert means["Clearway", True] < min(means["WCJS just in time", True], 0.6 * means["baseline", True])
    assert means["Clearway", False] < min(means["WCJS just in time", False], 1.05 * means["baseline", False])
