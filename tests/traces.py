"""Recorded workloads, which are no part of this repository: they lie beside it, or where CLEARWAY_TRACES says.

A test without its workload is skipped, and ``tests/run`` counts those. Where the tier is required and there is such a
folder, or one was named, a missing file is a failure.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

NAMED = os.environ.get("CLEARWAY_TRACES")
FOLDER = Path(NAMED or Path(__file__).parents[2] / "shared/traces")
ABSENT = "no recorded workload"  # tests/run looks for these words


def recorded(*names: str) -> tuple[Path, ...]:
    """Their paths; else the test that asks is skipped, or fails where they must be there."""
    absent = next((name for name in names if not (FOLDER / name).exists()), None)
    if absent is not None:
        why = f"{ABSENT} {absent} in {FOLDER} (CLEARWAY_TRACES may name another folder)"
        required = "unit" in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").replace(",", " ").split()
        if required and (NAMED or FOLDER.is_dir()):
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return tuple(FOLDER / name for name in names)
