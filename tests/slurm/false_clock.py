"""A false wall clock for a daemon (libfaketime), which a test moves while the daemon runs; its monotonic clock is true.

Commands that the daemon gives to Slurm have the true time: it keeps the library out of their environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)

# libfaketime 0.9.10 fails every clock_nanosleep where the monotonic clock is true.
_SLEEP = """\
import select, time
time.sleep = lambda seconds: select.select((), (), (), seconds)
"""


class FalseClock:
    """``folder`` is one of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(_SLEEP)
        self.set(0)

    def set(self, ahead_s: int) -> None:
        """So far ahead of the true time from now on; behind it if negative."""
        new = self._folder / "offset.new"
        new.write_text(f"{ahead_s:+d}\n")
        new.rename(self._folder / "offset")

    @property
    def env(self) -> dict[str, str]:
        """What a process goes by it with."""
        return {
            "LD_PRELOAD": str(LIBRARY),
            "FAKETIME_TIMESTAMP_FILE": str(self._folder / "offset"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": os.pathsep.join([str(self._folder), *sys.path]),
        }
