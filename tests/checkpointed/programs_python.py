"""Programs of Python."""

# ruff: noqa: E501 - a script's line is one line

from __future__ import annotations

from tests.checkpointed.program import Program, python

PROGRAMS: list[Program] = [
    python(
        "Python",
        "Python with nothing else",
        """\
n = 1
for i in range(32):
    n = n * 6364136223846793005 % 2**64 + i
    step(i)
result(n)
""",
    ),
]
