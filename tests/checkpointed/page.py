"""The page that shows the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "fifty-programs.md"


def render(record: dict[str, Any]) -> str:
    return str(record)
