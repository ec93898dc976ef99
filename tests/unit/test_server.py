"""What a running daemon takes over of a configuration that changed."""

from __future__ import annotations

from typing import Any

import pytest

from clearway.config.configuration import Config, Mode
from clearway.service.server import reloaded


def config(**sections: dict[str, Any]) -> Config:
    return Config.model_validate(sections)


def test_policy_is_taken_over() -> None:
    wanted = config(
        daemon={"mode": "automatic", "poll_interval": "9s"},
        candidates={"min_runtime": "1h"},
        budget={"jobs_per_hour": 3},
        costs={"node_mib_s": 7},
        planning={"steps": 10},
        execution={"late_checkpoint": "kill"},
    )
    taken, fixed = reloaded(Config(), wanted)
    assert taken == wanted
    assert taken.daemon.mode is Mode.AUTOMATIC
    assert fixed == ()


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"daemon": {"log_format": "json"}}, "daemon.log_format"),
        ({"planning": {"planner": "greedy"}}, "planning.planner"),
        ({"slurm": {"backend": "cli"}}, "slurm"),
        ({"store": {"url": "sqlite:////elsewhere"}}, "store"),
        ({"api": {"port": 1}}, "api"),
    ],
)
def test_what_needs_a_restart_stays_and_is_named(sections: dict[str, Any], key: str) -> None:
    taken, fixed = reloaded(Config(), config(**sections))
    assert taken == Config()
    assert fixed == (key,)
