"""The dashboard: every query of every panel is evaluated in a real Prometheus that scraped the daemon."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.prometheus import Prometheus
from tests.integration.test_prometheus import prometheus

__all__ = ["prometheus"]  # the fixture

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana" / "clearway.json").read_text())
FALLBACK = " or vector(0)"
VARIABLES = {"$__rate_interval": "1m", "$__range": "5m", "$cluster": "{cluster}", "$datasource": "prometheus"}


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries() -> list[tuple[str, str]]:
    """Panel and expression of each query."""
    return [
        (f"{panel['title']}/{target['refId']}", target["expr"])
        for panel in panels()
        for target in panel.get("targets", [])
    ]


def filled(expression: str, cluster: str = ".*") -> str:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression.replace("{cluster}", cluster)


@pytest.mark.parametrize(("panel", "expression"), queries(), ids=[panel for panel, _ in queries()])
def test_every_query_answers(prometheus: Prometheus, panel: str, expression: str) -> None:
    assert expression.endswith(FALLBACK), f"{panel}: an empty panel must show 0"
    found = prometheus.query(filled(expression))
    assert found, panel
    assert "NaN" not in str(found), f"{panel}: {found}"
    real = prometheus.query(filled(expression.removesuffix(FALLBACK)))
    assert real, f"{panel}: has no data of its own after an eviction"
    assert prometheus.query(filled(expression.removesuffix(FALLBACK), "test")), f"{panel}: by the cluster's name"


@pytest.mark.parametrize(("panel", "expression"), queries(), ids=[panel for panel, _ in queries()])
def test_a_cluster_without_data_shows_zero(prometheus: Prometheus, panel: str, expression: str) -> None:
    (only,) = prometheus.query(filled(expression, "nowhere"))
    assert (panel, only["metric"], only["value"][1]) == (panel, {}, "0")


def test_lost_and_saved_node_hours_are_what_the_daemon_counted(prometheus: Prometheus) -> None:
    by_panel = dict(queries())
    saved_h = prometheus.value(filled(by_panel["Saved node-hours/A"]))
    assert saved_h == pytest.approx(prometheus.value("clearway_saved_work_node_seconds_total") / 3_600, rel=0.3)
    lost_h = prometheus.value(filled(by_panel["Lost node-hours/A"]))
    assert lost_h == pytest.approx(prometheus.value("sum(clearway_lost_work_node_seconds_total)") / 3_600, rel=0.3)


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["title"] == "Clearway"
    assert DASHBOARD["uid"] == "clearway"
    assert "id" not in DASHBOARD, "Grafana gives its own"
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["cluster"]["allValue"] == ".*"


def test_every_panel_uses_the_selectors() -> None:
    for panel in panels():
        if panel["type"] == "row":
            continue
        assert panel["targets"], panel["title"]
        for place in (panel, *panel["targets"]):
            assert place["datasource"] == {"type": "prometheus", "uid": "$datasource"}, panel["title"]
        for target in panel["targets"]:
            selectors = re.findall(r"(?:clearway|process)_\w+(\{[^}]*\})?", target["expr"])
            assert selectors, panel["title"]
            assert all('cluster=~"$cluster"' in selector for selector in selectors), target["expr"]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert grid["x"] + grid["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_dashboard_shows_what_it_should() -> None:
    shown = " ".join(expression for _, expression in queries())
    for name in (
        "clearway_open_evictions",
        "clearway_time_to_start_seconds_bucket",
        "clearway_lost_work_node_seconds_total",
        "clearway_saved_work_node_seconds_total",
        "clearway_cycle_failures_total",
        "clearway_slurm_steps_total",
        "clearway_cycle_duration_seconds_bucket",
        "clearway_last_cycle_timestamp_seconds",
    ):
        assert name in shown
