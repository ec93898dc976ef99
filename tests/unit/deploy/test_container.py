"""The container file copies what is there, and the trial's configuration and Slurm fit together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from clearway.config.configuration import load_config

ROOT = Path(__file__).parents[3]
CONTAINER = ROOT / "deploy/container"
STEPS = (CONTAINER / "Containerfile").read_text().replace("\\\n", " ")
COMPOSE: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())


def test_what_is_copied_is_there() -> None:
    for line in re.findall(r"^COPY (.*)$", STEPS, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources), line
    for installed in re.findall(r"install -\S* ?-m \d+ (deploy/\S+)", STEPS):
        assert (ROOT / installed).exists()
    assert "deploy/container/start " in STEPS


def test_what_the_wheel_is_made_of_is_copied() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    included = re.findall(r'^"((?:deploy|plugins)/[^"]+)" =', project, re.MULTILINE)
    copied = {line.split()[0] for line in re.findall(r"^COPY (.*)$", STEPS, re.MULTILINE)}
    assert {path.split("/")[0] for path in included} <= copied


def test_each_service_does_what_start_knows() -> None:
    known = re.findall(r"^(\w+)\)$", (CONTAINER / "start").read_text(), re.MULTILINE)
    ours = [each["command"] for each in COMPOSE["services"].values() if each["image"] == "clearway-trial"]
    assert ours == known


def test_one_network_so_that_the_shipped_files_are_used_as_they_are() -> None:
    services = COMPOSE["services"]
    assert all(each.get("network_mode") == "service:slurm" for name, each in services.items() if name != "slurm")
    assert all(port.startswith("127.0.0.1:") for port in services["slurm"]["ports"]), "nobody else reaches it"
    scraped = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
    assert "127.0.0.1:8642" in scraped


def test_the_daemon_accepts_the_configuration() -> None:
    config = load_config(CONTAINER / "clearway.toml")
    assert config.daemon.mode == "approve"
    partitions = re.findall(r"^PartitionName=(\w+)", (CONTAINER / "slurm.conf").read_text(), re.MULTILINE)
    assert {name for rule in config.preemptors for name in rule.partition} <= set(partitions)
    assert "SlurmUser=slurm" in (CONTAINER / "slurm.conf").read_text()
