"""X."""

from __future__ import annotations

from tests.checkpointed.program import Program

PROGRAMS: list[Program] = []
