"""What every checkpointer with a driver must do; a test class with the fixture ``checkpointer`` inherits this."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Counts, one line a number; saves itself on USR1 if it is told a file, which only checkpointer application does.
COUNTS = """\
trap '[ -z "${CLEARWAY_APPLICATION_FILE:-}" ] || {
    echo "$n" >"$CLEARWAY_APPLICATION_FILE.new"; mv "$CLEARWAY_APPLICATION_FILE.new" "$CLEARWAY_APPLICATION_FILE"
}' USR1
n=$(cat "${CLEARWAY_APPLICATION_FILE:-/dev/null}" 2>/dev/null)
n=${n:-0}
while [ ! -e "$1/stop" ]; do
    n=$((n + 1))
    echo "$n" >>"$1/counted"
    sleep 0.05
done
exit 42
"""
LIMIT_S = 120.0  # of a wait; it ends as soon as it may


@dataclass(frozen=True)
class Trial:
    """A checkpointer, what it is to be given in the environment, and a folder for the program."""

    checkpointer: Any
    environment: dict[str, str]
    folder: Path

    @property
    def program(self) -> tuple[str, ...]:
        path = self.folder / "counts.sh"
        path.write_text(COUNTS)
        return ("sh", str(path), str(self.folder))

    @property
    def counted(self) -> list[int]:
        path = self.folder / "counted"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def run(self, command: tuple[str, ...]) -> subprocess.Popen[bytes]:
        env = {**os.environ, **self.environment}
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def generation(self, number: int = 1) -> Path:
        path = Path(self.environment["CLEARWAY_DIR"]) / f"generation-{number:06d}"
        path.mkdir()
        return path


def poll(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.02)


class CheckpointerConformance:
    """The contract of ``clearway_checkpoint.driver``."""

    def test_it_says_what_it_cannot_do(self, trial: Trial) -> None:
        assert trial.checkpointer.limits
        assert all(sentence.endswith(".") for sentence in trial.checkpointer.limits)

    @pytest.mark.parametrize("code", [0, 3])
    def test_the_exit_code_comes_through(self, able: Trial, code: int) -> None:
        command = able.checkpointer.wrap(("sh", "-c", f"exit {code}"))
        assert able.run(command).wait(timeout=LIMIT_S) == code

    def test_a_program_goes_on_from_where_it_was_saved(self, able: Trial) -> None:
        first = able.run(able.checkpointer.wrap(able.program))
        try:
            poll(lambda: len(able.counted) > 10, "the program to count")
            saved = able.checkpointer.checkpoint(able.generation(), first.pid)
            assert saved.ok, saved.reason
            assert saved.took_s > 0
            at = able.counted[-1]
            able.checkpointer.go_on(first.pid)
            poll(lambda: able.counted[-1] > at + 2, "the program to go on after its checkpoint")
        finally:
            (able.folder / "stop").touch()
            assert first.wait(timeout=LIMIT_S) == 42
        able.checkpointer.end()
        generation = Path(able.environment["CLEARWAY_DIR"]) / "generation-000001"
        verified = able.checkpointer.verify(generation)
        assert verified.ok, verified.reason
        (able.folder / "stop").unlink()
        before = len(able.counted)
        later = able.run(able.checkpointer.restart(generation, able.program))
        try:
            poll(lambda: len(able.counted) > before + 3, "the restarted program to count")
            restarted = Path(able.environment["CLEARWAY_STATE"]) / "restarted"
            poll(
                lambda: restarted.exists() and restarted.read_text() != "",
                "the driver's word that the program runs again",
            )
            assert restarted.read_text().startswith("ok=yes")
        finally:
            (able.folder / "stop").touch()
            assert later.wait(timeout=LIMIT_S) == 42
        again = able.counted[before:]
        assert again[0] in range(5, at + 3), "neither from the start nor from where the first run ended"
        assert again == list(range(again[0], again[0] + len(again))), "no number is left out or counted twice"

    def test_a_truncated_image_is_refused(self, able: Trial) -> None:
        program = able.run(able.checkpointer.wrap(able.program))
        try:
            poll(lambda: len(able.counted) > 2, "the program to count")
            generation = able.generation()
            saved = able.checkpointer.checkpoint(generation, program.pid)
            assert saved.ok, saved.reason
        finally:
            (able.folder / "stop").touch()
            able.checkpointer.go_on(program.pid)
            program.wait(timeout=LIMIT_S)
        own = Path(able.environment["CLEARWAY_APPLICATION_FILE"])
        files = [own] if own.exists() else [path for path in generation.rglob("*") if path.is_file()]
        largest = max(files, key=lambda path: path.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)
        verified = able.checkpointer.verify(generation)
        assert not verified.ok
        assert verified.reason

    def test_an_unknown_generation_is_refused(self, able: Trial) -> None:
        for generation in (Path(able.environment["CLEARWAY_DIR"]) / "generation-000009", able.generation(2)):
            verified = able.checkpointer.verify(generation)
            assert not verified.ok
            assert verified.reason

    def test_a_program_that_is_not_there_cannot_be_saved(self, able: Trial) -> None:
        gone = subprocess.Popen(["true"])
        gone.wait(timeout=LIMIT_S)
        saved = able.checkpointer.checkpoint(able.generation(), gone.pid)
        assert not saved.ok
        assert saved.reason
