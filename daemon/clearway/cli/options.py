"""What many commands have in common: which configuration, and how to print."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = Path("/etc/clearway/clearway.toml")
FAILED = 1


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


ConfigOption = Annotated[
    Path, typer.Option("--config", "-c", envvar="CLEARWAY_CONFIG", help="Configuration file (TOML).")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print it.")]
