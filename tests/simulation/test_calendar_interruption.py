"""kill -9 of the daemon at every effect while it follows a calendar, to the end of its promises: the end is the same.

What an effect is, and how the daemon is killed, is told in ``killing``. A copy of the world in which the daemon has
been killed goes on with a calendar file of its own: its name is relative to the current folder.
"""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pytest

from clearway.config.configuration import Config
from clearway.model.operations import EvictionState, Promise
from clearway.model.outcome import OutcomeCode
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon
from tests.simulation.world import NOW, SAVES, World, config

FILE = Path("beam.ics")
# From so many seconds after the beginning on the calendar says, by UID: when (likewise), and how many nodes.
SEASON = {
    0: {"kept": (150, 1), "changed": (300, 2), "deleted": (160, 1), "far": (900, 2)},
    8: {"kept": (150, 3), "changed": (170, 1), "far": (900, 2), "late": (180, 1)},
    16: {"kept": (150, 3), "changed": (170, 1), "late": (180, 1)},
}


class TestCalendar(Interruption):
    least_effects = 80
    end: ClassVar[End] = {
        "promises": {
            "kept": (EvictionState.COMPLETED, OutcomeCode.KEPT, 3),
            "changed": (EvictionState.COMPLETED, OutcomeCode.KEPT, 1),
            "deleted": (EvictionState.CANCELLED, OutcomeCode.WITHDRAWN, 1),
            "far": (EvictionState.CANCELLED, OutcomeCode.WITHDRAWN, 2),
            "late": (EvictionState.COMPLETED, OutcomeCode.KEPT, 1),
        },
        "each": 1,
        "left": [],
    }

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "calendar"
        folder.mkdir()
        monkeypatch.chdir(folder)

    def settings(self) -> Config:
        promises = {"hold": "60s", "spare": "10s", "calendar": str(FILE)}
        return config(promises=promises, execution={"kill_allowance": "6s"})

    def play(self, world: World, daemon: MortalDaemon) -> End:
        """The events follow each other closely; on one node a job saves itself, on another one ends by itself."""
        world.submit(Program(save_s=3, work_s=5_000), on=("n1",), ran_s=900, comment=SAVES)
        world.submit(Program(work_s=5_000), on=("n2",), ran_s=10, time_limit_s=60)
        process = os.getpid()
        for _ in range(900):
            if os.getpid() != process:  # a copy of the world
                process = os.getpid()
                own = Path(f"killed-{process}")
                own.mkdir()
                os.chdir(own)
            passed_s = (world.clock.now() - NOW).total_seconds()
            self._write(max(since for since in SEASON if since <= passed_s))
            daemon.tick(1.0)
            if passed_s > max(SEASON) and not world.store.open_evictions():
                break
        else:
            raise AssertionError(world.describe())
        promises = [e for e in world.store.evictions(limit=100) if isinstance(e, Promise)]
        return {
            "promises": {e.order.event: (e.state, e.outcome_code, e.order.nodes) for e in promises},
            "each": max(Counter(e.order.event for e in promises).values()),
            "left": world.leftovers(),
        }

    def _write(self, since: int) -> None:
        """As it is from ``since`` on; written only where it is another one."""
        events = "".join(
            f"BEGIN:VEVENT\r\nUID:{uid}\r\nDTSTART:{NOW + timedelta(seconds=at_s):%Y%m%dT%H%M%SZ}\r\nDURATION:PT2M\r\n"
            f"DESCRIPTION:nodes: {nodes}\\nusers: beam\\npartition: batch\r\nEND:VEVENT\r\n"
            for uid, (at_s, nodes) in SEASON[since].items()
        )
        text = f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{events}END:VCALENDAR\r\n"
        if FILE.exists() and FILE.read_bytes() == text.encode():
            return
        FILE.write_bytes(text.encode())
        at = (NOW + timedelta(seconds=since)).timestamp()
        os.utime(FILE, (at, at))
