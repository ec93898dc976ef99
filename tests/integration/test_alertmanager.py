"""The daemon is killed, and the alert arrives: real Prometheus, real Alertmanager, the shipped files, a webhook."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import yaml

from tests.integration.alertmanager import Alertmanager, Webhook
from tests.integration.daemon import DaemonProcess, wait_for, write_config
from tests.integration.prometheus import Prometheus, require

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
CONFIG = DEPLOY / "alertmanager.yml"


def impatient_rules(folder: Path) -> Path:
    """The shipped rules, but none waits; how long each of them waits is tried by promtool."""
    path = folder / "clearway.rules.yml"
    path.write_text(re.sub(r"for: \w+", "for: 1s", (DEPLOY / "clearway.rules.yml").read_text()))
    return path


def impatient_config(webhook: Webhook) -> str:
    """The shipped configuration, but nothing is gathered before it is sent, and the webhook is ours."""
    text = re.sub(r"(group_wait|group_interval): \w+", r"\1: 1s", CONFIG.read_text())
    assert "http://127.0.0.1:9095/clearway" in text
    return text.replace("http://127.0.0.1:9095/clearway", webhook.url)


def test_the_death_of_the_daemon_arrives_at_the_webhook(tmp_path: Path) -> None:
    require("prometheus", "prometheus-alertmanager", "setpriv")
    with (
        Webhook() as webhook,
        Alertmanager(impatient_config(webhook)) as alertmanager,
        DaemonProcess(write_config(tmp_path), URGENT_FILE=str(tmp_path / "never")) as daemon,
        Prometheus(
            daemon.address.removeprefix("http://"), rules=impatient_rules(tmp_path), alertmanager=alertmanager.address
        ) as prometheus,
    ):

        def told(name: str) -> list[dict[str, object]]:
            return [alert for alert in webhook.alerts if alert["labels"]["alertname"] == name]

        wait_for(lambda: prometheus.value("clearway_lease_epoch") > 0, 60, "a daemon that acts")
        assert not told("ClearwayDown")
        daemon.signal(signal.SIGKILL)
        alert = wait_for(lambda: told("ClearwayDown"), 60, "an alert")[0]
        assert alert["status"] == "firing"
        assert alert["labels"] == {"alertname": "ClearwayDown", "cluster": "test", "severity": "critical"}
        assert alert["annotations"]["summary"] == "No Clearway daemon answers on cluster test"
        assert alert["annotations"]["runbook_url"].endswith("howto/alerts.md#clearwaydown")


def test_amtool_is_content() -> None:
    require("amtool")
    done = subprocess.run(["amtool", "check-config", str(CONFIG)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_who_hears_of_what() -> None:
    require("amtool")
    rules = yaml.safe_load((DEPLOY / "clearway.rules.yml").read_text())["groups"][0]["rules"]
    receivers = {"critical": "on-call", "warning": "mail", "info": "mail"}
    for severity in {rule["labels"]["severity"] for rule in rules}:
        command = ["amtool", "config", "routes", "test", f"--config.file={CONFIG}", f"severity={severity}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == receivers[severity]
