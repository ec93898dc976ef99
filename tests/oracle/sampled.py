"""Which of the random problems a run tries: all with ``tests/run --full``, otherwise a share that the commit chooses.

The seeds never change, so they say something new only where the planners, what these plan, or the oracle have changed:
then an eighth of the blocks is tried, otherwise a tenth. Another commit tries others; ``CLEARWAY_ORACLE_SHARE``, as
``python -m tests.oracle.sampled`` prints it, tries the same ones again.
"""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import pytest

VARIABLE = "CLEARWAY_ORACLE_SHARE"
ROOT = Path(__file__).parents[2]
SOURCES = ("daemon/clearway/planning", "daemon/clearway/model", "daemon/clearway_lab/baselines.py", "tests/oracle")
RECENT = 10  # commits: what lands at once is seldom more
DRAWN = {"block", "seed"}  # parameters of tests
CHANGED, UNCHANGED = 8, 10  # one block in so many


@dataclass(frozen=True, slots=True)
class Share:
    """One block in ``of``; ``turn`` says which."""

    of: int
    turn: int = 0

    def has(self, place: int) -> bool:
        return (place + self.turn) % self.of == 0

    def __str__(self) -> str:
        return f"{self.of}:{self.turn}"


def share() -> Share:
    """What this run tries. The first process that asks git decides, and those that it starts go by that."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(Share(1) if os.environ.get("CLEARWAY_FULL") else _by_commit())
    of, turn = os.environ[VARIABLE].split(":")
    return Share(int(of), int(turn))


def _by_commit() -> Share:
    commit = _git("rev-parse", "HEAD")
    if commit is None:
        return Share(CHANGED)
    same = _git("diff", "--quiet", f"HEAD~{RECENT}", "--", *SOURCES) is not None
    new = _git("ls-files", "--others", "--exclude-standard", "--", *SOURCES)
    of = UNCHANGED if same and not new else CHANGED
    return Share(of, crc32(commit.encode()) % of)


def _git(*arguments: str) -> str | None:
    """What git says; None where it fails, is absent, or says that there is a difference."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def left_out(items: Iterable[pytest.Item], of: Share) -> set[pytest.Item]:
    """Of the tests of a ``block`` of problems, or of one ``seed``, those that this run does not try.

    Of each shape, one in so many; of the next shape it begins with another.
    """
    shapes: dict[str, int] = {}
    seen: Counter[tuple[str, str]] = Counter()
    found = set()
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if "oracle" in item.path.parts and not DRAWN.isdisjoint(parameters):
            shape = str([value for name, value in parameters.items() if name not in DRAWN])
            group = (item.nodeid.partition("[")[0], shape)
            if not of.has(seen[group] + shapes.setdefault(shape, len(shapes))):
                found.add(item)
            seen[group] += 1
    return found


if __name__ == "__main__":
    print(share())
