"""Fifty everyday programs, each to be saved and restarted: what each shows, and its text."""

from __future__ import annotations

from tests.checkpointed import programs_c, programs_languages, programs_python, programs_shell
from tests.checkpointed.program import Program

PROGRAMS: dict[str, Program] = {
    program.name: program
    for group in (programs_shell, programs_python, programs_c, programs_languages)
    for program in group.PROGRAMS
}
