"""``clearway lab simulate``, run and read as programs do."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner

from clearway.cli.app import app

runner = CliRunner()


def simulated(*options: str) -> dict[str, Any]:
    """What it says as JSON."""
    result = runner.invoke(app, ["lab", "simulate", *options, "-o", "json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)
