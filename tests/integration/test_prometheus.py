"""A real Prometheus scrapes a daemon that carried out an eviction; every alert rule is evaluated there."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from clearway.config.configuration import Config
from clearway.doctor import daemon_checks
from clearway.doctor.case import Asked, Case, Result, State
from tests.integration.daemon import DaemonProcess, get, wait_for, write_config
from tests.integration.prometheus import Prometheus, require

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = PROMETHEUS / "clearway.rules.yml"
_LAST_COMPARISON = re.compile(r"^(.*)\s(?:==|!=|>=|<=|>|<)\s[-+0-9.e]+$", re.DOTALL)


def alert_rules() -> dict[str, str]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def make_room(running: Prometheus, address: str, urgent: Path) -> float:
    """Let the daemon make room for an urgent job; when Prometheus has seen the end of it.

    Asked about is the moment of the first scrape after it: rates of the last minute are those of the eviction, however
    long the tests take, and a scrape that comes too late or fails cannot change what was known then.
    """
    wait_for(lambda: running.value("clearway_cycles_total") > 0, what="a first scrape")
    urgent.with_suffix(".new").write_text("6")  # more than can save themselves: something is lost as well
    urgent.with_suffix(".new").rename(urgent)
    wait_for(lambda: get(f"{address}/api/v1/evictions/1").json().get("state") == "completed", 30, "an eviction")
    ended = 'timestamp(clearway_evictions_total{result="completed"} > 0)'
    return float(wait_for(lambda: running.value(ended), what="a scrape after it"))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Has seen the daemon before, while and after it made room for an urgent job."""
    require("prometheus", "setpriv")
    folder = tmp_path_factory.mktemp("daemon")
    urgent = folder / "urgent"
    with (  # in a process of its own: an alert judges its memory
        DaemonProcess(write_config(folder), URGENT_FILE=str(urgent)) as daemon,
        Prometheus((address := daemon.address).removeprefix("http://"), rules=RULES) as running,
    ):
        running.at = make_room(running, address, urgent)
        yield running


def test_what_the_eviction_left_behind(prometheus: Prometheus) -> None:
    value = prometheus.value
    assert value('clearway_evictions_total{result="completed"}') == 1
    assert value('clearway_preemptor_starts_total{result="in_time"}') == 1
    assert value("sum(clearway_preemptions_total)") == 6
    assert value("sum(increase(clearway_preemptions_total[5m]))") > 5
    assert value('clearway_lost_work_node_seconds_total{action="kill"}') > 0
    assert value("clearway_saved_work_node_seconds_total") > 1_000
    assert value("clearway_time_to_start_seconds_count") == 1
    assert value("clearway_deadlines_missed_total") == 0
    assert value("sum(clearway_cycle_failures_total)") == 0
    assert value('clearway_budget_jobs{kind="limit"}') == 100


def test_prometheus_takes_every_line(prometheus: Prometheus) -> None:
    # Of the last scrape alone: on a busy machine one may be late.
    wait_for(lambda: [each["health"] for each in prometheus.get("targets")["activeTargets"]] == ["up"], what="a scrape")
    assert prometheus.value('scrape_samples_scraped{job="clearway"}') > 100
    names = set(prometheus.get("label/__name__/values"))
    kinds = prometheus.get("metadata")
    counters = {name for name, meta in kinds.items() if name.startswith("clearway_") and meta[0]["type"] == "counter"}
    assert counters
    assert all(name.endswith("_total") for name in counters)
    assert counters <= names


def test_labels_have_few_values(prometheus: Prometheus) -> None:
    """No job id, no user name: not the ones of this run, and no label that could hold one."""
    for name in prometheus.get("labels"):
        values = set(prometheus.get(f"label/{name}/values"))
        assert not values & {"alice", "ursula"} | {str(n) for n in range(1, 10)} & values, name
    assert prometheus.value('count({job="clearway", __name__=~"clearway_.*"})') < 400


@pytest.mark.parametrize("alert", sorted(alert_rules()))
def test_every_alert_has_data_to_judge(prometheus: Prometheus, alert: str) -> None:
    """The rule is valid, does not fire, and what it compares exists: a metric that is misspelt would never fire."""
    expression = alert_rules()[alert]
    assert prometheus.query(expression) == [], "nothing is wrong with this daemon"
    compared = _LAST_COMPARISON.match(expression)
    assert compared is not None, "an alert compares something with a number"
    judged = re.sub(r"^absent\((.*)\)$", r"\1", compared[1])
    assert prometheus.query(judged), f"no data: {judged}"


def asked_by_doctor(address: str) -> Result:
    return daemon_checks.prometheus(Case(Config(), Asked(prometheus=address), "clearway"))


def test_doctor_sees_that_it_is_scraped(prometheus: Prometheus) -> None:
    found = wait_for(lambda: (r := asked_by_doctor(prometheus.address)).state is State.OK and r, what="a scrape")
    assert found.what == f"{prometheus.address} scrapes 1 daemon"


@pytest.mark.parametrize(
    ("job", "what", "remedy"),
    [("clearway", "its last scrape failed", "the target must be"), ("other", "no target with job", "clearway files")],
)
def test_doctor_sees_that_it_is_not_scraped(job: str, what: str, remedy: str) -> None:
    require("prometheus", "setpriv")
    with Prometheus("127.0.0.1:9", job=job) as running:
        wait_for(lambda: running.query("up"), what="a scrape")
        found = asked_by_doctor(running.address)
    assert found.state is State.FAULT
    assert what in found.what
    assert remedy in found.remedy


def test_doctor_knows_what_is_no_prometheus() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.handle_request).start()
        found = asked_by_doctor(f"http://127.0.0.1:{server.server_port}/")
    assert found.state is State.FAULT
    assert "does not answer as Prometheus does" in found.what


def test_prometheus_itself_has_loaded_the_rules(prometheus: Prometheus) -> None:
    def evaluated() -> list[Any]:
        (group,) = prometheus.get("rules")["groups"]
        rules: list[Any] = group["rules"]
        # Pending for a moment is no alert yet: on a busy machine a scrape may fail.
        return rules if all((rule["health"], rule["state"]) == ("ok", "inactive") for rule in rules) else []

    rules = wait_for(evaluated, what="an evaluation of every rule")
    assert {rule["name"] for rule in rules} == set(alert_rules())


@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", "clearway.rules.yml"],
        ["test", "rules", "clearway.rules.test.yml"],
        ["check", "config", "prometheus.yml"],
    ],
    ids=" ".join,
)
def test_promtool_is_content(command: list[str]) -> None:
    require("promtool")
    done = subprocess.run(["promtool", *command], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
