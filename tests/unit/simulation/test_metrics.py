from __future__ import annotations

import pytest

from clearway_lab.simulator.engine import Outcome, Replay
from clearway_lab.simulator.measures import Categories, measure
from clearway_lab.studies.injection import BUSY, PERIOD_S, TSUNAMI, urgent_jobs
from clearway_lab.traces.trace import Trace, TraceJob


def outcome(
    number: int, size: int, run_s: int, wait_s: float, *, urgent: bool = False, lost_s: float = 0, saved_s: float = 0
) -> Outcome:
    job = TraceJob(number, 100, run_s, size, urgent=urgent)
    return Outcome(job, 100 + wait_s, 100 + wait_s + run_s, lost_s, saved_s, 0.0, int(lost_s + saved_s > 0))


def test_measures_by_their_definitions() -> None:
    outcomes = (
        outcome(1, 2, 100, 300),  # slowdown 4; bounded below: 400 s are less than the bound of 600 s
        outcome(2, 50, 7_201, 7_201),  # 2
        outcome(3, 1, 10_000, 0, lost_s=3_600),
        outcome(4, 4, 600, 60, urgent=True),  # 1.1
        outcome(5, 4, 60, 60, urgent=True, saved_s=900),  # 2
    )
    busy_node_s = sum(each.job.size * (each.job.run_s + each.lost_s) for each in outcomes)
    found = measure(Replay("rule", 96, outcomes, (), busy_node_s))
    assert found.urgent_lateness == pytest.approx(2.0)
    assert {name: count for name, (count, _) in found.jobs.items()} == {
        "all": 5,
        "regular": 3,
        "urgent": 2,
        "narrow-short": 1,
        "narrow-long": 1,
        "wide-long": 1,
    }
    _, regular = found.jobs["regular"]
    assert regular["slowdown"].mean == pytest.approx((4 + 2 + 1) / 3)
    assert regular["slowdown"].median == pytest.approx(2)
    assert regular["bounded_slowdown"].mean == pytest.approx((1 + 2 + 1) / 3)
    assert (regular["wait_s"].largest, regular["response_s"].largest) == (7_201, 14_402)
    assert found.utilisation - found.productive_utilisation == pytest.approx(3_600 / (96 * 14_402))
    assert (found.lost_node_h, found.saved_node_h, found.preemptions, found.preempted_jobs) == (1, 1, 2, 2)
    assert found.preemptions_per_job == pytest.approx(0.4)


def test_the_categories_of_mira_are_the_wcjs_papers() -> None:
    of = Categories.of_machine(49_152)
    names = [of.name(outcome(1, size, run_s, 0)) for size, run_s in ((4_096, 7_200), (4_608, 7_200), (512, 7_201))]
    assert names == ["narrow-short", "wide-short", "narrow-long"]


def test_urgent_jobs_come_once_a_period_and_only_when_the_machine_is_busy() -> None:
    nodes, day_s = 1_000, 86_400
    # 60 days: 80 % in use on days 2 to 4 and 31 to 33, 50 % on all others
    jobs = [TraceJob(1, 0, 60 * day_s, 500), TraceJob(2, 2 * day_s, 3 * day_s, 300)]
    jobs += [TraceJob(3, 31 * day_s, 3 * day_s, 300), TraceJob(4, 59 * day_s, 60, 1)]
    trace = Trace("made", tuple(jobs))
    seen = set()
    for seed in range(30):
        first, second = urgent_jobs(trace, nodes, seed)
        assert 2 * day_s <= first.submit_s < 5 * day_s
        assert 31 * day_s <= second.submit_s < 34 * day_s
        assert second.submit_s // PERIOD_S == first.submit_s // PERIOD_S + 1
        for each in (first, second):
            assert each.urgent
            assert (each.size, each.run_s) in TSUNAMI
            seen.add(each.size)
        assert (first.job_id, second.job_id) == (5, 6)
        assert urgent_jobs(trace, nodes, seed) == (first, second)
    assert seen == {128, 256, 512}
    assert urgent_jobs(trace, int(800 / BUSY) + 1, 0) == ()
