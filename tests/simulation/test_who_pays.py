"""Who causes preemptions and who pays, as the daemon counts it: for urgent jobs, drains and moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clearway.config.configuration import Config
from clearway.model.events import fan_out
from clearway.telemetry.metrics import Metrics
from tests.simulation.drains import drain, now, saver
from tests.simulation.moving_jobs import ask, moving, serial
from tests.simulation.world import World, config


def counted(world: World) -> Metrics:
    metrics = Metrics(world.clock)
    metrics.configured(Config.model_validate({"access": {"account_metrics": True}}))
    world.start_daemon(emit=fan_out(world.observer, metrics.record))
    return metrics


def series(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """By rule (of causes), account and partition."""
    return {
        tuple(
            sample.labels[label] for label in ("rule", "account", "partition") if label in sample.labels
        ): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if sample.name == f"clearway_{name}_total"
    }


def test_an_urgent_job(make_world: Callable[..., World]) -> None:
    rule = {"name": "weather", "partition": ["urgent"], "max_delay": "60s"}
    world = make_world(config=config(preemptors=[rule]))
    metrics = counted(world)
    for number in range(1, 9):
        world.submit(on=(f"n{number}",), ran_s=100.0 * number, account="physics" if number < 3 else "chemistry")
    urgent = world.urgent(2, account="storm")
    world.run_until(lambda: world.started(urgent), 120)
    assert series(metrics, "caused_preemptions") == {("weather", "storm", "urgent"): 2}
    assert series(metrics, "suffered_preemptions") == {("physics", "batch"): 2}
    (lost_node_s,) = series(metrics, "caused_lost_work_node_seconds").values()
    assert lost_node_s >= 300
    assert series(metrics, "suffered_lost_work_node_seconds") == {("physics", "batch"): pytest.approx(lost_node_s)}


def test_a_drain(make_world: Callable[..., World]) -> None:
    world = make_world()
    metrics = counted(world)
    saver(world, "n1", account="physics")
    begun = drain(world, "n1")
    world.run_until(lambda: now(world, begun).started_at is not None, 60)
    assert series(metrics, "caused_preemptions") == {("drain", "none", "none"): 1}
    assert series(metrics, "suffered_preemptions") == {("physics", "batch"): 1}


def test_a_move(make_world: Callable[..., World]) -> None:
    world = make_world(config=moving())
    metrics = counted(world)
    for node in ("n1", "n2"):
        serial(world, node, account="physics")
    world.tick()
    assert ask(world)[1] is not None
    world.run_until(world.settled)
    assert series(metrics, "caused_preemptions") == {("compaction", "none", "none"): 1}
    assert series(metrics, "suffered_preemptions") == {("physics", "batch"): 1}
