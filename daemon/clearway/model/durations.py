"""Durations as people write them: ``90``, ``90s``, ``10m``, ``1h30m``, ``2d``; job_submit.lua reads the same. Pure."""

import re
from string import whitespace
from typing import Annotated

from pydantic import BeforeValidator, Field

_UNITS_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_PARTS = re.compile(r"([0-9]{1,9})([dhms])")
_LONGEST_S = 10 * 365 * 86_400


def parse_duration_s(text: object) -> float:
    """Seconds of a duration; a bare number counts seconds. Raises ``ValueError``: a sentence on what was wrong."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        seconds = float(min(text, 2 * _LONGEST_S))  # TOML's integers may be too large for a float
    elif isinstance(text, str) and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,6})?", text.strip(whitespace)):
        seconds = float(text)
    elif isinstance(text, str) and re.fullmatch(r"([0-9]{1,9}[dhms])+", text.strip(whitespace)):
        parts = _PARTS.findall(text.strip(whitespace))
        units = [unit for _, unit in parts]
        if sorted(units, key="dhms".index) != units or len(set(units)) != len(units):
            raise ValueError(f"a duration names each unit once, largest first, not {text!r:.60}")
        seconds = float(sum(int(number) * _UNITS_S[unit] for number, unit in parts))
    else:
        raise ValueError(f"must be a duration such as 90s, 10m or 1h30m, not {text!r:.60}")
    if not 0 <= seconds <= _LONGEST_S:  # refuses NaN as well
        raise ValueError("a duration lies between 0 and ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """The two largest units: 1h30m, 4m05s, 12s, 0.4s."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f}s"
    rest = round(seconds)
    if rest < 60:
        return f"{rest}s"
    if rest < 3_600:
        return f"{rest // 60}m{rest % 60:02d}s"
    if rest < 86_400:
        return f"{rest // 3_600}h{rest % 3_600 // 60:02d}m"
    return f"{rest // 86_400}d{rest % 86_400 // 3_600:02d}h"


Duration = Annotated[float, BeforeValidator(parse_duration_s), Field(description="seconds, or 90s, 10m, 1h30m")]
