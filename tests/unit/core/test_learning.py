"""What earlier checkpoints say about the next one: by hand-made numbers, and by what must hold for any records."""

from __future__ import annotations

import random
from math import sqrt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.config.configuration import CostsConfig, LearningConfig
from clearway.estimates.costs import NO_HISTORY, CostBasis, app_checkpoint_s, preemption_options, write_time_s
from clearway.estimates.learning import History, Requeued, application
from clearway.model.claims import CheckpointHow, Claims, Restart
from clearway.model.problem import Action
from clearway.model.records import CheckpointOutcome, CheckpointRecord, Key, RestartRecord
from clearway.walltime.remaining import quantile
from tests.builders import NOW, after, job

SAVED, FAILED, LATE, ENDED = CheckpointOutcome
# Ten nodes fill the file system: 1,000 MiB/s in all, 100 MiB/s a node.
COSTS = CostsConfig(file_system_mib_s=1_000, node_mib_s=100, app_memory_fraction=0.5, checkpoint_overhead=2)
SIGNAL = Claims(checkpoint=CheckpointHow.SIGNAL, app="solver")
DAY_S = 86_400.0


def record(write_s: float | None = 10.0, at_s: float = 0.0, **fields: Any) -> CheckpointRecord:
    """One of alice's solver, saved by itself on one node, ``at_s`` after NOW."""
    outcome = fields.get("outcome", SAVED)
    defaults: dict[str, Any] = {
        "eviction_id": 1,
        "job_id": "101",
        "run": 0,
        "user": "alice",
        "app": "solver",
        "checkpointer": "application",
        "action": Action.APP_CHECKPOINT,
        "nodes": 1,
        "asked_at": after(at_s),
        "ended_at": after(at_s),
        "outcome": SAVED,
        "predicted_s": 10.0,
        "actual_s": write_s if outcome is SAVED else None,
        "write_s": write_s,
    }
    return CheckpointRecord(**(defaults | fields))


def history(*records: CheckpointRecord, restarts: tuple[RestartRecord, ...] = (), **learning: Any) -> History:
    return History(records, restarts, LearningConfig(**learning), COSTS)


def expected_s(of: History, nodes: int = 1, **key: str) -> float | None:
    estimate = of.estimate(**({"user": "alice", "app": "solver", "checkpointer": "application"} | key), nodes=nodes)
    return None if estimate is None else estimate.checkpoint_s


# -- the estimate ----------------------------------------------------------------------------------------------


MARGIN_S = 1.0  # by default, beyond what the applications' own checkpoints took


def test_few_samples_give_their_maximum_and_many_their_quantile() -> None:
    few = [record(float(n), n) for n in (1, 9, 3)]
    assert expected_s(history(*few, quantile=0.9)) == 9 + MARGIN_S
    assert expected_s(history(*few, quantile=0.5)) == 3 + MARGIN_S
    assert expected_s(history(*(record(float(n), n) for n in range(1, 20)))) == 18 + MARGIN_S, "rank 0.9 x 20"


@pytest.mark.parametrize("share", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("known", [1, 2, 5, 9, 10, 19, 50, 200])
@pytest.mark.fault(
    "Of ten earlier checkpoints the learned time was one that the next exceeded in two of eleven cases.",
    found_by="recorded workloads",
)
def test_the_next_checkpoint_takes_no_longer_with_the_probability_that_is_configured(known: int, share: float) -> None:
    """Whatever they are drawn from: here the longest of 200 is some five times the median."""
    draw = random.Random(known)
    drawn, within = 1_000, 0
    for _ in range(drawn):
        times = [draw.lognormvariate(4, 0.6) for _ in range(known + 1)]
        expected = expected_s(history(*map(record, times[1:]), quantile=share, margin=0.0))
        within += expected is not None and times[0] <= expected
    promised = min(share, known / (known + 1))
    four_deviations = 4 * sqrt(promised * (1 - promised) / drawn)
    assert within / drawn >= promised - four_deviations
    assert within / drawn <= promised + 1 / (known + 1) + four_deviations, "no longer than it takes"


def test_more_nodes_take_longer_only_where_the_file_system_is_full() -> None:
    known = history(record(10.0, nodes=5))
    assert expected_s(known, nodes=10) == 10 + MARGIN_S, "the nodes' own bandwidth"
    assert expected_s(known, nodes=20) == 20 + MARGIN_S
    assert expected_s(known, nodes=1) == 10 + MARGIN_S, "the same data may lie on fewer nodes"
    estimate = known.estimate("alice", "solver", "application", 20)
    assert estimate is not None
    assert estimate.own


def test_without_own_records_the_median_of_all_keys_counts_once_each() -> None:
    often = [record(1.0, n, user="often") for n in range(10)]
    others = [record(30.0, user="bob"), record(50.0, user="carol", app="x")]
    assert expected_s(history(*often, *others), user="new") == 30, "not the best case, and nobody counts twice"
    assert expected_s(history(*others), user="new") is None, "too few: the model"
    assert expected_s(history(*often, *others), user="new", checkpointer="dmtcp") is None


def test_a_checkpoint_that_was_late_took_so_long_at_least() -> None:
    assert expected_s(history(record(5.0), record(40.0, 1, outcome=LATE))) == 40 + MARGIN_S
    assert expected_s(history(record(None, outcome=FAILED))) is None


def test_costs_take_what_was_measured() -> None:
    def seconds(known: History, claims: Claims = SIGNAL, memory_mib: int = 2_000) -> float | None:
        asked = job(memory_mib=memory_mib)
        return app_checkpoint_s(asked, claims, NOW, write_time_s(asked, claims, COSTS, 0, known), known)

    model_s = 2 + 2_000 * 0.5 / 100
    assert seconds(history()) == model_s
    assert seconds(history(record(77.0))) == 77 + MARGIN_S, "signal and answer are in what was measured"
    told = Claims(checkpoint=CheckpointHow.SIGNAL, app="solver", took_s=90)
    assert seconds(history(record(77.0)), told) == 92, "what the job says counts where it is longer"
    pool = [record(30.0, n, user=f"u{n}") for n in range(5)]
    assert seconds(history(*pool)) == 30
    sized = Claims(checkpoint=CheckpointHow.SIGNAL, app="solver", size_mib=400)
    assert seconds(history(*pool), sized) == 2 + 4, "its own size says more than other users' seconds"
    paced = Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=3_600, app="solver")
    assert seconds(history(record(77.0)), paced) == 77 + MARGIN_S + 2, "an hour has just passed: no wait"


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_larger_quantile_is_never_smaller(values: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert min(values) <= quantile(values, low) <= quantile(values, high) <= max(values)
    assert sum(value <= quantile(values, low) for value in values) >= low * len(values) - 1e-9


RECORDS = st.lists(
    st.builds(
        record,
        st.floats(0, 1e4),
        at_s=st.integers(0, 5),
        user=st.sampled_from(["alice", "bob"]),
        nodes=st.integers(1, 50),
        outcome=st.sampled_from(CheckpointOutcome),
        eviction_id=st.integers(1, 10**6),
    ),
    max_size=12,
    unique_by=lambda each: each.eviction_id,
)


@given(RECORDS, st.randoms(use_true_random=False), st.integers(1, 100))
def test_the_order_of_the_records_does_not_matter(records: list[CheckpointRecord], random: Any, nodes: int) -> None:
    shuffled = list(records)
    random.shuffle(shuffled)
    one, other = history(*records), history(*shuffled)
    for user in ("alice", "bob", "new"):
        key = Key(user, "solver", "application")
        assert one.estimate(*key, nodes) == other.estimate(*key, nodes)
        assert one.trusted(*key, NOW) == other.trusted(*key, NOW)
        assert one.calibration(key=key).checkpoints == other.calibration(key=key).checkpoints
    assert one.keys == other.keys


@given(st.integers(1, 64), st.integers(0, 100_000))
def test_an_empty_history_is_the_model(nodes: int, memory_mib: int) -> None:
    running = job(nodes=nodes, memory_mib=memory_mib)
    model = write_time_s(running, SIGNAL, COSTS, 4_000, NO_HISTORY)
    assert write_time_s(running, SIGNAL, COSTS, 4_000, history()) == model
    assert history().estimate("alice", "solver", "application", nodes) is None


# -- trust -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcomes", "trusted"),
    [
        pytest.param([], True, id="nothing known"),
        pytest.param([FAILED], True, id="once is no habit"),
        pytest.param([FAILED, LATE], False, id="twice in a row, whatever way"),
        pytest.param([FAILED, SAVED, FAILED], True, id="one succeeded in between"),
        pytest.param([FAILED, ENDED, FAILED], False, id="a job that ended says nothing"),
        pytest.param([SAVED, FAILED, FAILED, SAVED], True, id="it works again"),
    ],
)
def test_trust(outcomes: list[CheckpointOutcome], *, trusted: bool) -> None:
    known = history(*(record(at_s=n, outcome=outcome) for n, outcome in enumerate(outcomes)))
    assert known.trusted("alice", "solver", "application", after(60)) is trusted
    assert known.trusted("bob", "solver", "application", after(60)), "another user's is another matter"
    assert known.trusted("alice", "solver", "dmtcp", after(60)), "and so is another checkpointer"


@pytest.mark.fault(
    "An application whose jobs were saved and then began anew each time was planned as losing nothing.",
    found_by="reading",
)
@pytest.mark.parametrize(
    ("begun", "trusted"),
    [
        pytest.param([Restart.OK, Restart.OK], True, id="it goes on"),
        pytest.param([Restart.SCRATCH, Restart.OK], True, id="the newest goes on"),
        pytest.param([Restart.OK, Restart.SCRATCH], True, id="once is no habit"),
        pytest.param([Restart.SCRATCH, Restart.FALLBACK], False, id="twice in a row"),
    ],
)
def test_what_no_run_could_go_on_from_was_no_checkpoint(begun: list[Restart], *, trusted: bool) -> None:
    saved = [record(at_s=n, run=n) for n in range(len(begun))]
    common = {"job_id": "101", "user": "alice", "app": "solver", "checkpointer": "application", "nodes": 1}
    told = [RestartRecord(run=n + 1, started_at=after(n), restart=each, **common) for n, each in enumerate(begun)]
    known = history(*saved, restarts=tuple(told), forgive_after="1d")
    assert known.trusted("alice", "solver", "application", after(60)) is trusted
    assert known.trusted("alice", "solver", "application", after(DAY_S + 2))


def test_failures_are_forgiven_after_a_while_and_the_next_one_counts_at_once() -> None:
    failed = [record(at_s=n, outcome=FAILED) for n in (0, 1)]
    known = history(*failed, forgive_after="1d")
    assert not known.trusted("alice", "solver", "application", after(DAY_S))
    assert known.trusted("alice", "solver", "application", after(DAY_S + 1))
    again = history(*failed, record(at_s=DAY_S + 2, outcome=LATE), forgive_after="1d")
    assert not again.trusted("alice", "solver", "application", after(DAY_S + 3))
    assert again.failures_in_a_row("alice", "solver", "application") == 3


def test_an_untrusted_application_is_only_offered_to_be_killed() -> None:
    known = history(record(outcome=FAILED), record(at_s=1, outcome=FAILED))
    ways = preemption_options(
        job(), SIGNAL, CostBasis(now=after(2), costs=COSTS, history=known), kill=True, requeueable=True
    )
    assert [way.action for way in ways] == [Action.KILL]


def test_what_an_application_is_called() -> None:
    assert application(job(name="run.sh"), SIGNAL) == "solver"
    assert application(job(name="run.sh"), None) == "run.sh"
    assert len(application(job(name="x" * 1_000), None)) == 128


# -- calibration -----------------------------------------------------------------------------------------------


def restart(restart_s: float | None, how: Restart = Restart.OK, **fields: Any) -> RestartRecord:
    defaults: dict[str, Any] = {"checkpointer": "application", "nodes": 1, "predicted_s": 10.0}
    key = {"user": "alice", "app": "solver"}
    return RestartRecord(
        job_id="101", run=1, started_at=NOW, restart=how, restart_s=restart_s, **(key | defaults | fields)
    )


def test_calibration() -> None:
    known = history(
        record(5.0, size_mib=300.0, predicted_size_mib=100.0),
        record(10.0, 1),
        record(40.0, 2),
        record(99.0, 3, outcome=LATE),
        record(7.0, 4, checkpointer="dmtcp"),
        restarts=(restart(20.0), restart(None, Restart.SCRATCH)),
    )
    found = known.calibration(checkpointer="application")
    assert found.checkpoints == {SAVED: 3, FAILED: 0, LATE: 1, ENDED: 0}
    assert found.restarts == {Restart.OK: 1, Restart.FALLBACK: 0, Restart.SCRATCH: 1}
    assert (found.compared, found.median_ratio, found.median_size_ratio) == (3, 1.0, 3.0)
    assert found.share_within == pytest.approx(2 / 3)
    assert found.median_restart_ratio == 2
    assert known.checkpointers == ("application", "dmtcp")
    assert known.calibration().checkpoints[SAVED] == 4
    assert history().calibration().median_ratio is None
    assert known.restart_s("alice", "solver", "application", 20) == 40, "on twice as many nodes as fill the file system"


def test_the_wait_in_the_queue_is_the_median_of_jobs_of_such_a_size() -> None:
    small, large = [Requeued(1, wait_s) for wait_s in (10, 20, 30)], [Requeued(8, wait_s) for wait_s in (100, 500, 900)]
    known = History(requeued=(*small, *large), learning=LearningConfig(min_samples=3))
    assert known.queueing_s(2) == 20
    assert known.queueing_s(4) == known.queueing_s(16) == 500
    assert known.queueing_s(17) == 65, "nobody of that size came back: the median of all"
    few = History(requeued=tuple(small), learning=LearningConfig(min_samples=4))
    assert few.queueing_s(1) == 0
