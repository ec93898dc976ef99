"""The command line as tests run it, beside a daemon on a simulated cluster."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from clearway.cli import asker, render
from clearway.cli.app import app
from tests.simulation.world import World

RUNNER = CliRunner()
PATIENT_S = 240.0  # of the command line, while the loop of a busy machine is on its way
PROBLEM = {
    "nodes_needed": 1,
    "max_delay_s": 10,
    "step_s": 10,
    "candidates": [{"job_id": "7", "nodes": 1, "lost_work_node_s": 5, "app_checkpoint_s": 8, "sys_checkpoint_s": None}],
}


def clearway(*arguments: object) -> Result:
    result = RUNNER.invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def one_line(text: str) -> str:
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text[:-1]


# -- a configuration and a problem file ---------------------------------------------------------------------------


class Site:
    """A simulated daemon, and the configuration file of its command line."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self._lock = threading.Lock()
        self.file = folder / "site.toml"
        self.file.write_text(f'[store]\nurl = "{world.store_url}"\n[[preemptors]]\npartition = ["urgent"]\n')

    def run(self, *arguments: object) -> Result:
        """At the time of the simulated world."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asker, "now", self.world.clock.now)
            return clearway(*arguments, "--config", self.file)

    def json(self, *arguments: object) -> Any:
        result = self.run(*arguments, "-o", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    @contextmanager
    def cycling(self, each_s: float = 0.01) -> Iterator[None]:
        """The daemon at work meanwhile: it answers requests."""
        stop = threading.Event()

        def work() -> None:
            while not stop.wait(0.02):
                self.world.tick(each_s)

        patient = partial(render.wait_for, limit_s=PATIENT_S)
        thread = threading.Thread(target=work)
        thread.start()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(render, "wait_for", patient)
                yield
        finally:
            stop.set()
            thread.join()
