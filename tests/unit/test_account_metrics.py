"""Who causes preemptions and who pays: counted twice, with few labels, whatever users call their accounts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.config.configuration import Config
from clearway.model.events import JobLeft
from clearway.model.operations import Operation
from clearway.telemetry.metrics import OWN, Metrics
from tests.builders import NOW, ManualClock, eviction, job, plan, preemption, urgent_job
from tests.unit.test_metrics import samples

CAUSED, SUFFERED = "clearway_caused_preemptions_total", "clearway_suffered_preemptions_total"


@pytest.fixture
def metrics() -> Metrics:
    found = Metrics(ManualClock(NOW))
    found.configured(Config.model_validate({"access": {"account_metrics": True}}))
    return found


def for_job(account: str = "storm", rule: str = "weather") -> Operation:
    return eviction(replace(plan(), rule=rule, preemptor=urgent_job(900, account=account, partitions=("urgent",))))


def leaves(metrics: Metrics, account: str, operation: Operation | None = None, partition: str = "batch") -> None:
    gone = preemption(job(101, 2, account=account), actual_lost_node_s=7_200.0)
    metrics.record(JobLeft(gone, partition, operation or for_job()))


def combinations(metrics: Metrics, name: str) -> list[str]:
    return [sample for sample in samples(metrics) if sample.startswith(name)]


def test_a_job_that_leaves_is_counted_for_its_cause_and_for_itself(metrics: Metrics) -> None:
    leaves(metrics, "physics")
    leaves(metrics, "chemistry")
    found = samples(metrics)
    assert found[f"{CAUSED}{{account=storm,partition=urgent,rule=weather}}"] == 2
    assert found["clearway_caused_lost_work_node_seconds_total{account=storm,partition=urgent,rule=weather}"] == 14_400
    assert found[f"{SUFFERED}{{account=physics,partition=batch}}"] == 1
    assert found["clearway_suffered_lost_work_node_seconds_total{account=chemistry,partition=batch}"] == 7_200


def test_what_slurm_does_not_name(metrics: Metrics) -> None:
    leaves(metrics, "", for_job("", ""), "")
    assert samples(metrics)[f"{CAUSED}{{account=none,partition=urgent,rule=none}}"] == 1
    assert samples(metrics)[f"{SUFFERED}{{account=none,partition=none}}"] == 1


def test_thousands_of_accounts_make_few_series(metrics: Metrics) -> None:
    for n in range(3_000):
        leaves(metrics, f"a{n}", for_job(f"u{n}"))
    found = samples(metrics)
    for name in (CAUSED, SUFFERED):
        assert len(combinations(metrics, name)) == OWN + 1
        assert sum(found[each] for each in combinations(metrics, name)) == 3_000, "none is lost"
    assert found[f"{SUFFERED}{{account=other,partition=batch}}"] == 3_000 - OWN
    leaves(metrics, "a0")
    assert samples(metrics)[f"{SUFFERED}{{account=a0,partition=batch}}"] == 2, "a series keeps its labels"


def test_thousands_of_partitions_make_few_series(metrics: Metrics) -> None:
    for n in range(3_000):
        leaves(metrics, "physics", partition=f"p{n}")
    assert len(combinations(metrics, SUFFERED)) == 2 * OWN + 1
    assert samples(metrics)[f"{SUFFERED}{{account=other,partition=other}}"] == 3_000 - 2 * OWN


@pytest.mark.parametrize("account", ["x" * 65, "a\nb", "a\x00", "\ud800", "\u202eevil"])
def test_an_account_that_a_user_made_up(metrics: Metrics, account: str) -> None:
    leaves(metrics, account)
    assert samples(metrics)[f"{SUFFERED}{{account=other,partition=batch}}"] == 1


def test_accounts_are_not_named_to_all_who_reach_the_api_unless_the_site_says_so() -> None:
    metrics = Metrics(ManualClock(NOW))
    for config in (None, Config()):
        if config is not None:
            metrics.configured(config)
        leaves(metrics, "physics")
        assert "physics" not in metrics.text().decode()
        assert "storm" not in metrics.text().decode()
    assert samples(metrics)[f"{CAUSED}{{account=other,partition=urgent,rule=weather}}"] == 2
