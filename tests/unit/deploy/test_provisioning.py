"""Nothing has to be clicked: what Grafana and Prometheus load fits together, and the how-to copies it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
GRAFANA = ROOT / "deploy" / "grafana" / "provisioning"
INSTALL = (ROOT / "docs" / "howto" / "install.md").read_text()


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_grafana_finds_prometheus() -> None:
    found = read(GRAFANA / "datasources" / "clearway.yml")
    assert found["apiVersion"] == 1
    (source,) = found["datasources"]
    assert source.keys() == {"name", "uid", "type", "access", "url", "jsonData"}
    assert (source["type"], source["access"]) == ("prometheus", "proxy")
    scraped = read(ROOT / "deploy" / "prometheus" / "prometheus.yml")["global"]["scrape_interval"]
    assert source["jsonData"] == {"timeInterval": scraped}, "$__rate_interval is made of it"


def test_grafana_loads_the_dashboard_from_where_the_how_to_puts_it() -> None:
    found = read(GRAFANA / "dashboards" / "clearway.yml")
    assert found["apiVersion"] == 1
    (provider,) = found["providers"]
    assert provider.keys() == {"name", "folder", "type", "allowUiUpdates", "updateIntervalSeconds", "options"}
    assert provider["type"] == "file"
    assert f"share/clearway/grafana/clearway.json {provider['options']['path']}/clearway.json" in INSTALL
    for kind in ("datasources", "dashboards"):
        assert f"share/clearway/grafana/provisioning/{kind}/clearway.yml /etc/grafana/provisioning/{kind}/" in INSTALL


def test_prometheus_scrapes_what_the_rules_and_the_dashboard_ask_for() -> None:
    found = read(ROOT / "deploy" / "prometheus" / "prometheus.yml")
    (job,) = found["scrape_configs"]
    assert job["job_name"] == "clearway"
    assert all("cluster" in target["labels"] for target in job["static_configs"])
    assert found["rule_files"] == ["clearway.rules.yml"]
    assert found["alerting"]["alertmanagers"]
