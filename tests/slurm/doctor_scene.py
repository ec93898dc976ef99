"""What the tests of `clearway init` and `clearway doctor` look at: a configuration of its own beside a real Slurm.

Two small clusters, whose slurm.conf never changes while they run: one as it should be, and one whose configuration has
every fault of its kind. (From Slurm 24.11 on, slurmd takes `scontrol reconfigure` by starting itself anew, and one that
comes right after another may end it.)
"""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from tests.slurm.cluster import SlurmCluster

CONFIG = """\
[daemon]
poll_interval = 1
halt_file = "{state}/halt"
[slurm]
conf = "{conf}"
[store]
url = "sqlite:///{state}/clearway.sqlite"
[api]
port = {port}
[[preemptors]]
name = "urgent"
partition = ["urgent"]
"""
BAD = ("fault", "advice")
ODD_CONF = [
    "KillWait=30",
    "Epilog=/bin/true",
    "JobRequeue=0",
    "PreemptExemptTime=00:10:00",
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=hot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9",
]


@dataclass
class Scene:
    """A configuration of its own beside a cluster. What ``undo`` holds is done when the test ends."""

    cluster: SlurmCluster
    folder: Path
    port: int
    undo: ExitStack
    empty_database: Path
    options: list[str] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "clearway.toml"

    def configure(self, before: str = "", after: str = "") -> None:
        text = CONFIG.format(state=self.folder, conf=self.cluster.conf, port=self.port)
        assert before in text
        self.file.write_text(text.replace(before, after) if before else text + after)

    def database(self) -> str:
        """The URL of one that the daemon has made its tables in."""
        shutil.copyfile(self.empty_database, self.folder / "clearway.sqlite")
        return f"sqlite:///{self.folder}/clearway.sqlite"

    def ask(self) -> dict[str, Any]:
        """What the doctor says as JSON; its exit status fits."""
        said = run("doctor", "-c", self.file, "-o", "json", *self.options)
        answer = dict(json.loads(said.stdout))
        assert said.exit_code == (0 if answer["good"] else 1)
        return answer

    def alarms(self) -> dict[str, tuple[str, str]]:
        """By the name of the check: the state and all that is said of it."""
        found = self.ask()["findings"]
        return {f["check"]: (f["state"], f"{f['what']} -> {f['remedy']}") for f in found if f["state"] in BAD}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def made(
    cluster: SlurmCluster, tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    with ExitStack() as undo:
        scene = Scene(cluster, cluster.work / tmp_path.name, free_port(), undo, empty_database)
        scene.folder.mkdir()
        scene.folder.chmod(0o777)
        scene.configure()
        yield scene


def look(found: dict[str, tuple[str, str]], check: str, state: str, says: str) -> None:
    assert check in found, found
    assert found[check][0] == state
    assert says in found[check][1]
    assert "-> " in found[check][1]
    assert not found[check][1].endswith("-> ")
