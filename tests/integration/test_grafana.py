"""The dashboard: every query is asked of a real Prometheus, with the daemon alive and after it was killed.

One daemon carries out an eviction and is then killed. Prometheus answers about any moment, so both are asked later:
``alive``, the first scrape after the eviction, and ``dead``, when nothing of the last interval came from the daemon.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.daemon import DaemonProcess, wait_for, write_config
from tests.integration.prometheus import Prometheus, require
from tests.integration.test_prometheus import RULES, make_room

DASHBOARD = json.loads((Path(__file__).parents[2] / "deploy" / "grafana" / "clearway.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
BY_TITLE = {panel["title"]: panel for panel in PANELS}
# Empty while all is well: their ``noValue`` says so.
EMPTY_WHEN_WELL = {"Alerts"}
# Have a value without a daemon, and must look ill then.
OF_THE_DEAD = {"Daemons", "Since the last cycle", "Age of the last cycle", "Alerts"}
INTERVAL_S = 10  # the last interval, when the daemon is dead


@dataclass(frozen=True)
class Moment:
    """What Prometheus knew then."""

    prometheus: Prometheus
    at: float
    interval: str

    def ask(self, expression: str, cluster: str = ".*") -> list[Any]:
        return self.prometheus.query(self.filled(expression, cluster), self.at)

    def filled(self, expression: str, cluster: str = ".*") -> str:
        variables = {"$__rate_interval": self.interval, "$__range": "5m", "$cluster": cluster}
        for name, value in variables.items():
            expression = expression.replace(name, value)
        assert "$" not in expression
        return expression


@dataclass(frozen=True)
class Moments:
    alive: Moment
    dead: Moment


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moments]:
    require("prometheus", "setpriv")
    folder = tmp_path_factory.mktemp("daemon")
    urgent = folder / "urgent"
    config = write_config(folder)
    config.write_text(config.read_text().replace("[access]\n", "[access]\naccount_metrics = true\n"))
    with (
        DaemonProcess(config, URGENT_FILE=str(urgent)) as daemon,
        Prometheus(daemon.address.removeprefix("http://"), rules=RULES) as running,
    ):
        alive_at = make_room(running, daemon.address, urgent)
        daemon.signal(signal.SIGKILL)
        noticed = 'min(timestamp(ALERTS{alertname="ClearwayDown"}))'
        alerted_at = wait_for(lambda: running.value(noticed), 60, "an alert about to fire")
        last_at = running.value("max_over_time(timestamp(clearway_cycles_total)[10m:1s])")
        dead_at = max(alerted_at, last_at + INTERVAL_S + 1.0)
        wait_for(lambda: running.value("vector(time())") > dead_at, 60, "an interval without a scrape that succeeded")
        yield Moments(Moment(running, alive_at, "1m"), Moment(running, dead_at, f"{INTERVAL_S}s"))


def queries() -> list[Any]:
    """Panel and expression of each query."""
    return [
        pytest.param(panel, target["expr"], id=f"{panel['title']}/{target['refId']}")
        for panel in PANELS
        for target in panel["targets"]
    ]


each_query = pytest.mark.parametrize(("panel", "expression"), queries())


@each_query
def test_alive_every_query_has_data(moments: Moments, panel: dict[str, Any], expression: str) -> None:
    found = moments.alive.ask(expression)
    assert "NaN" not in str(found)
    if panel["title"] in EMPTY_WHEN_WELL and not found:
        return
    assert found, "has no data of its own after an eviction"
    assert moments.alive.ask(expression, "test"), "by the cluster's name"
    assert all(series["metric"] or len(found) == 1 for series in found), "no nameless series beside others"


@each_query
def test_dead_no_query_has_a_healthy_value(moments: Moments, panel: dict[str, Any], expression: str) -> None:
    found = moments.dead.ask(expression)
    if "$__range" in expression:  # what happened in the time range stays true, but must not look like health
        if panel["type"] == "stat":
            assert "green" not in {color(panel, float(series["value"][1])) for series in found}
        return
    if panel["title"] not in OF_THE_DEAD:
        assert found == []
        return
    assert found, "says that the daemon is dead"
    if panel["type"] == "stat" and panel["title"] != "Since the last cycle":
        assert {color(panel, float(series["value"][1])) for series in found} == {"red"}


def color(panel: dict[str, Any], value: float) -> str:
    """As Grafana colours a number: by the words for it, or by the highest threshold below it."""
    defaults = panel["fieldConfig"]["defaults"]
    for mapping in defaults.get("mappings", []):
        if f"{value:g}" in mapping["options"]:
            return str(mapping["options"][f"{value:g}"]["color"])
    steps = [step for step in defaults["thresholds"]["steps"] if step["value"] is None or step["value"] <= value]
    return str(steps[-1]["color"])


@pytest.mark.parametrize("title", ["Since the last cycle", "Age of the last cycle"])
def test_the_age_of_the_last_cycle_grows_after_death(moments: Moments, title: str) -> None:
    """Once it was 0 then."""
    panel = BY_TITLE[title]
    (then,), (now,) = (moment.ask(panel["targets"][0]["expr"]) for moment in (moments.alive, moments.dead))
    age_s = float(now["value"][1])
    assert age_s >= INTERVAL_S
    assert float(then["value"][1]) < 20
    if panel["type"] == "stat":
        assert color(panel, 121) == "red"
        # Much later Prometheus still knows it, for a day.
        late = Moment(moments.dead.prometheus, moments.dead.at + 3_600, "1m")
        (hour,) = late.ask(panel["targets"][0]["expr"])
        assert color(panel, float(hour["value"][1])) == "red"


@pytest.mark.fault(
    "Panels showed the last numbers of a daemon whose loop hangs as if they were of now.", found_by="reading"
)
def test_a_daemon_whose_loop_hangs_shows_nothing_as_if_it_were_now(tmp_path: Path) -> None:
    """It answers Prometheus, with what its last cycle saw: two hours ago, all was well."""
    require("promtool")
    about_cycles = [
        target["expr"]
        for panel in PANELS
        for target in panel["targets"]
        if panel["type"] == "stat" and "$__range" not in target["expr"] and panel["title"] not in OF_THE_DEAD
        if panel["title"] != "Mode"  # what is configured
    ]
    assert len(about_cycles) > 8
    names = sorted({name for each in about_cycles for name in re.findall(r"clearway_\w+", each)})
    labels = 'cluster="c",instance="a",state="proposed",kind="used"'
    values = {"clearway_last_cycle_timestamp_seconds": "60", "clearway_lease_epoch": "1"}
    frozen = [{"series": f"{name}{{{labels}}}", "values": f"{values.get(name, '0')}x120"} for name in names]
    moment = Moment(None, 0.0, "1m")  # type: ignore[arg-type]  # it only fills in the variables
    cases = [
        {"expr": f"count({moment.filled(each)})", "eval_time": at, "exp_samples": [{"value": 1, "labels": "{}"}][:seen]}
        for each in about_cycles
        if not re.search('state="awaiting|placing', each)  # the series are those of proposals
        for at, seen in (("2m", 1), ("2h", 0))
    ]
    test = {"interval": "1m", "input_series": frozen, "promql_expr_test": cases}
    path = tmp_path / "hung.test.yml"
    path.write_text(yaml.safe_dump({"rule_files": [], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alive_the_first_row_looks_well(moments: Moments) -> None:
    for title in ("Daemons", "Daemon that acts", "Commands to Slurm", "Mode"):
        found = moments.alive.ask(BY_TITLE[title]["targets"][0]["expr"])
        assert {color(BY_TITLE[title], float(series["value"][1])) for series in found} <= {"green", "blue"}, title
    (mode,) = moments.alive.ask(BY_TITLE["Mode"]["targets"][0]["expr"])
    (words,) = BY_TITLE["Mode"]["fieldConfig"]["defaults"]["mappings"]
    assert words["options"][mode["value"][1]]["text"] == "automatic"


@each_query
def test_a_cluster_without_daemons_shows_nothing(moments: Moments, panel: dict[str, Any], expression: str) -> None:
    assert moments.alive.ask(expression, "nowhere") == [], panel["title"]


def test_lost_and_saved_node_hours_are_what_the_daemon_counted(moments: Moments) -> None:
    for title, metric in (
        ("Lost node-hours", "clearway_lost_work_node_seconds_total"),
        ("Saved node-hours", "clearway_saved_work_node_seconds_total"),
    ):
        (shown,), (counted,) = (
            moments.alive.ask(expression) for expression in (BY_TITLE[title]["targets"][0]["expr"], f"sum({metric})")
        )
        assert float(shown["value"][1]) == pytest.approx(float(counted["value"][1]) / 3_600, rel=0.3)


def test_who_caused_and_who_paid_are_counted_from_the_first(moments: Moments) -> None:
    """A series that begins with its first count has no increase for Prometheus."""
    (cause,) = moments.alive.ask(BY_TITLE["Who causes preemptions"]["targets"][0]["expr"])
    assert cause["metric"].keys() == {"rule", "account", "partition"}
    assert cause["metric"]["partition"] == "urgent"
    assert float(cause["value"][1]) == pytest.approx(6, rel=0.3)
    paid = moments.alive.ask(BY_TITLE["Who pays for them"]["targets"][0]["expr"])
    assert sum(float(series["value"][1]) for series in paid) == pytest.approx(6, rel=0.3)


@pytest.mark.parametrize("mark", DASHBOARD["annotations"]["list"], ids=lambda mark: mark["name"])
def test_marks(moments: Moments, mark: dict[str, Any]) -> None:
    expression = mark["target"]["expr"]
    found = {name: bool(getattr(moments, name).ask(expression)) for name in ("alive", "dead")}
    assert found["alive"] is (mark["name"] in ("Evictions end", "Jobs have to leave"))
    if mark["name"] == "Daemon does not answer":
        assert found["dead"]
    for label in re.findall(r"\{\{(\w+)\}\}", mark["titleFormat"]):
        for moment in (moments.alive, moments.dead):
            assert all(label in series["metric"] for series in moment.ask(expression))
