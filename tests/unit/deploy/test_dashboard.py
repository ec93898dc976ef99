"""The dashboard as code: clearway.json is what the script makes, fits Grafana's schema, and explains itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jsonschema
import pytest

FOLDER = Path(__file__).parents[3] / "deploy" / "grafana"
SCHEMA = json.loads((Path(__file__).parent / "grafana.schema.json").read_text())
DASHBOARD = json.loads((FOLDER / "clearway.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
UNITS = {  # of Grafana: what a description calls them
    "none": r"Number of|Node-hours|Ratio|No unit|Times|\bno unit",
    "s": "Seconds",
    "bytes": "Bytes",
    "percentunit": "Share",
    "ops": "Times per second",
}

each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def complaints(dashboard: dict[str, Any]) -> Iterator[str]:
    """What Grafana's types do not allow."""
    parts = [("dashboard", dashboard)]
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        custom = panel["fieldConfig"]["defaults"].get("custom")
        own = {"options": panel["options"]} | ({} if custom is None else {"custom": custom})
        parts.append((panel["type"], own))
    for name, part in parts:
        for error in jsonschema.Draft7Validator(SCHEMA[name]).iter_errors(part):
            yield f"{name} {list(error.absolute_path)}: {error.message}"


def test_the_dashboard_is_what_the_script_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import make_dashboard  # type: ignore[import-not-found]

    made = make_dashboard.text()
    assert (FOLDER / "clearway.json").read_text() == made, "run deploy/grafana/make_dashboard.py"


def test_grafana_knows_every_key_of_it() -> None:
    assert list(complaints(DASHBOARD)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("refreshing",), "30s"),
        (("graphTooltip",), 7),
        (("panels", 1, "gridPosition"), {}),
        (("panels", 1, "options", "textMode"), "loud"),
        (("panels", 1, "fieldConfig", "defaults", "thresholds", "mode"), "relative"),
        (("panels", -1, "fieldConfig", "defaults", "custom", "drawStyle"), "ink"),
        (("templating", "list", 0, "type"), "guess"),
    ],
)
def test_the_schema_finds_what_grafana_would_ignore(path: tuple[Any, ...], value: Any) -> None:
    broken = deepcopy(DASHBOARD)
    part: Any = broken
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert list(complaints(broken))


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert (DASHBOARD["uid"], DASHBOARD["title"]) == ("clearway", "Clearway")
    assert "id" not in DASHBOARD, "Grafana gives its own"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["cluster"]["allValue"] == ".*"
    assert variables["page"]["type"] == "textbox"


def test_the_first_row_says_whether_it_is_alive() -> None:
    row, *panels = DASHBOARD["panels"][:7]
    assert row["title"] == "Is it alive?"
    titles = {panel["title"]: panel for panel in panels}
    assert titles.keys() >= {"Daemons", "Daemon that acts", "Mode", "Since the last cycle"}
    assert {panel["gridPos"]["y"] for panel in panels} == {1}


@each_panel
def test_a_panel_says_what_it_is_its_unit_and_what_zero_means(panel: dict[str, Any]) -> None:
    text = panel["description"]
    assert re.search(UNITS[panel["fieldConfig"]["defaults"]["unit"]], text), text
    assert re.search(r"\b0\b", text), text
    assert text.endswith(".")
    assert panel["fieldConfig"]["defaults"]["noValue"], "what is shown where there is no data"


@each_panel
def test_no_panel_makes_a_zero_of_nothing_or_shows_what_was(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        assert "vector(" not in target["expr"]
        assert target["instant"] is (panel["type"] != "timeseries"), "the last value of a range outlives the daemon"
    if panel["type"] == "stat":
        lowest = panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]
        assert lowest["color"] != "green", "a panel without data looks well"
        assert panel["options"]["textMode"] != "name", "Grafana shows the words for no data as a value, not as a name"
    if panel["type"] == "timeseries":
        assert panel["fieldConfig"]["defaults"]["custom"]["spanNulls"] is False, "a gap is a gap"


@each_panel
def test_every_panel_uses_the_selectors(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for place in (panel, *panel["targets"]):
        assert place["datasource"] == {"type": "prometheus", "uid": "$datasource"}
    for target in panel["targets"]:
        selectors = re.findall(r"(?:clearway_|process_|ALERTS|up\b)\w*(\{[^}]*\})?", target["expr"])
        assert selectors
        assert all('cluster=~"$cluster"' in selector for selector in selectors), target["expr"]


def test_panels_link_to_the_daemons_own_page() -> None:
    links = [link for panel in PANELS for link in panel.get("links", ())] + DASHBOARD["links"]
    assert len(links) > 10
    assert all(link["url"].startswith("${page}/") for link in links)
    page = (FOLDER.parents[1] / "daemon" / "clearway" / "web" / "static" / "app.js").read_text()
    for link in links:
        path = link["url"].removeprefix("${page}/").removeprefix("#/")
        assert not path or f'path: "{path}"' in page, link["url"]


def test_evictions_are_marked() -> None:
    marks = {mark["name"]: mark["target"]["expr"] for mark in DASHBOARD["annotations"]["list"]}
    assert "clearway_evictions_total" in marks["Evictions end"]
    for mark in DASHBOARD["annotations"]["list"]:
        assert mark["target"]["expr"].endswith("> 0"), "Grafana marks only what is more than 0"
        assert 'cluster=~"$cluster"' in mark["target"]["expr"]


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
    shown = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    for name in (
        "up{",
        "clearway_lease_epoch",
        "clearway_mode",
        "clearway_open_evictions",
        "clearway_time_to_start_seconds_bucket",
        "clearway_lost_work_node_seconds_total",
        "clearway_saved_work_node_seconds_total",
        "clearway_caused_preemptions_total",
        "clearway_suffered_lost_work_node_seconds_total",
        "clearway_cycle_failures_total",
        "clearway_slurm_steps_total",
        "clearway_cycle_duration_seconds_bucket",
        "clearway_last_cycle_timestamp_seconds",
    ):
        assert name in shown
