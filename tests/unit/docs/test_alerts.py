"""Each alert says what an operator needs, has a section in the how-to, and a test with promtool that lets it fire."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
PAGE = ROOT / "docs" / "howto" / "alerts.md"
SEVERITIES = ("critical", "warning", "info")
LARGE_SITE_MIB = 400  # 10,000 nodes and 50,000 waiting jobs


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "clearway.rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def sections() -> dict[str, str]:
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


each_alert = pytest.mark.parametrize("alert", sorted(rules()))


@each_alert
def test_an_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(alert: str) -> None:
    rule = rules()[alert]
    assert rule["labels"]["severity"] in SEVERITIES
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    for name in ("summary", "description"):
        assert "runbook" not in rule["annotations"][name]
    assert rule["annotations"]["description"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert ROOT / page == PAGE
    assert anchor == alert.lower()


@each_alert
def test_the_how_to_explains_it(alert: str) -> None:
    severity = rules()[alert]["labels"]["severity"]
    assert sections()[alert].strip().startswith(f"{severity.capitalize()}. ")


def test_the_how_to_explains_no_alert_that_is_gone() -> None:
    assert {name for name in sections() if name.startswith("Clearway")} == rules().keys()


@each_alert
def test_promtool_sees_it_quiet_and_firing(alert: str) -> None:
    tests = yaml.safe_load((FOLDER / "clearway.rules.test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"] if case["alertname"] == alert]
    fired = [each for case in cases for each in case["exp_alerts"]]
    assert fired
    assert {each["exp_labels"]["severity"] for each in fired} == {rules()[alert]["labels"]["severity"]}
    others = [test for test in tests if any(case["alertname"] == alert for case in test["alert_rule_test"])]
    quiet = any(not case["exp_alerts"] for case in cases)
    assert quiet or sum(len(test["input_series"]) for test in others) > len(fired), "and what does not fire beside it"


def test_the_memory_that_alerts_is_more_than_large_sites_need_and_less_than_systemd_allows() -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.read(ROOT / "deploy" / "systemd" / "clearway.service")
    assert parser["Service"]["memorymax"] == "1G"
    found = re.search(r"> (\d+)$", rules()["ClearwayMemory"]["expr"])
    assert found is not None
    limit_mib = int(found[1]) / 2**20
    assert 1.5 * LARGE_SITE_MIB <= limit_mib <= 0.75 * 1_024
    assert f"{limit_mib:.0f} MiB" in sections()["ClearwayMemory"]
