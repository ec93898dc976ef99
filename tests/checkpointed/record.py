"""The record of what was tried: one JSON file, written after each program."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

from tests.checkpointed.program import Program
from tests.checkpointed.programs import PROGRAMS
from tests.checkpointed.trial import Outcome, Undisturbed

RECORD = Path(__file__).with_name("recorded.json")


@dataclasses.dataclass(frozen=True)
class Record:
    """Results of one run are put beside those of earlier ones."""

    path: Path
    lock: threading.Lock

    def read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {"machine": {}, "versions": {}, "programs": {}}
        held: dict[str, Any] = json.loads(self.path.read_text())
        return held

    def has(self, name: str, way: str) -> bool:
        return way in self.read()["programs"].get(name, {}).get("ways", {})

    def made(self, machine: dict[str, str], versions: dict[str, str]) -> None:
        with self.lock:
            held = self.read()
            held["machine"] = machine
            held["versions"] |= versions
            self._write(held)

    def undisturbed(self, program: Program, base: Undisturbed) -> None:
        with self.lock:
            held = self.read()
            row = held["programs"].setdefault(program.name, {"ways": {}})
            row["undisturbed"] = {"seconds": round(base.seconds, 1), "steps": len(base.steps)}
            self._write(held)

    def outcome(self, program: Program, way: str, outcome: Outcome) -> None:
        with self.lock:
            held = self.read()
            held["programs"][program.name]["ways"][way] = dataclasses.asdict(outcome)
            self._write(held)

    def _write(self, held: dict[str, Any]) -> None:
        order = list(PROGRAMS)
        held["programs"] = {name: held["programs"][name] for name in order if name in held["programs"]}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(held, indent=1) + "\n")
        new.replace(self.path)
