"""docs/tutorial.md, followed to the letter: each command is run against the demo, in a shell, and answers as shown."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.integration.daemon import wait_for

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial.md").read_text()
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What the reader waits for in the first terminal before the command is given.
AFTER = {
    "clearway evictions approve 1": "evictions approve 1",
    "clearway job 1005": "flood-forecast",
    "clearway evictions cancel 2": "evictions cancel 2",
}
PATIENT_S = 60.0  # four times as long on a busy machine


def commands() -> Iterator[tuple[str, str]]:
    """Each command after a $ with what the page shows as its answer."""
    for block in CONSOLE.findall(PAGE):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, answer = part.partition("\n")
            yield " ".join(command.split("   ")), answer


def shape(text: str) -> str:
    """A line without what differs from run to run: numbers, times, names of hosts and processes."""
    return " ".join(re.sub(r"\d[\w.,:-]*", "0", text).split())


class Demo:
    """The first terminal."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        programs = folder / "bin"  # as in an environment that has Clearway installed
        programs.mkdir()
        clearway = programs / "clearway"
        clearway.write_text(f"#!{sys.executable}\nfrom clearway.cli.app import main\nmain()\n")
        clearway.chmod(0o755)
        self.env = os.environ | {
            "TMPDIR": str(folder), "COLUMNS": "100", "PYTHONUNBUFFERED": "1",
            "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }  # fmt: skip
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [clearway, "simulate-cluster", *arguments], env=self.env, stdout=subprocess.PIPE, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines += iter(self._process.stdout.readline, "")

    def expect(self, words: str) -> str:
        def found() -> str:
            assert self._process.poll() is None, "".join(self.lines)
            return next((line for line in list(self.lines) if words in line), "")

        return str(wait_for(found, PATIENT_S, words))

    def give(self, command: str) -> str:
        """In the second terminal, which has read the file."""
        line = f"{self.expect('/env').strip()}; {command}"
        done = subprocess.run(
            ["sh", "-c", line], env=self.env, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_each_command_of_the_tutorial_answers_as_it_shows(tmp_path: Path, port: int) -> None:
    (start, _), (source, _), *rest = commands()
    assert start.startswith("deploy/demo ")
    assert source.startswith(". /tmp/clearway-demo-")
    problem = next(block for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if "candidates" in block)
    (tmp_path / "problem.json").write_text(problem)
    # Quicker than a reader would like; whether the urgent job starts in time is not asked here.
    arguments = start.replace("8642", str(port)).replace("--speed 30", "--speed 90").split()[1:]
    with Demo(arguments, tmp_path) as demo:
        for command, shown in rest:
            asked = command.replace("8642", str(port)).replace("problem.json", str(tmp_path / "problem.json"))
            if moment := AFTER.get(command.partition(" |")[0]):
                demo.expect(moment)
            if "drain nid" in command:
                asked = re.sub(r"nid\d+", demo.expect("clearway drain").split()[2], asked)
            answer = demo.give(asked)
            told = f"{asked}\nshown: {shown}\nanswered: {answer[:2_000]}"
            if shown.startswith("{"):
                keys = set(re.findall(r'"(\w+)":', shown))
                assert keys <= set(re.findall(r'"(\w+)":', answer)), told
                json.loads(answer)
            else:
                assert shape(shown.splitlines()[0]).partition(": ")[0] in shape(answer), told
                assert "\\n" not in answer, told
