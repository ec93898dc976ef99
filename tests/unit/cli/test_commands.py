"""The commands, as an operator gives them: what they print, and their exit status."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from clearway import __version__
from clearway.cli import render
from clearway.cli.app import app
from clearway.model.operations import EvictionState
from clearway.simulation.jobs import Program
from tests.simulation.world import SAVES, World, config

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


def test_version() -> None:
    result = clearway("--version")
    assert (result.exit_code, result.stdout) == (0, f"clearway {__version__}\n")


def test_a_good_configuration(tmp_path: Path) -> None:
    file = tmp_path / "good.toml"
    file.write_text('[[preemptors]]\nqos = ["urgent"]\n')
    result = clearway("check-config", file)
    assert result.exit_code == 0
    assert one_line(result.stdout) == f"{file}: good (observe mode, 1 rule for urgent jobs)"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[daemon]\nmode = 'auto'", "daemon.mode"),
        ("[daemon]\nmod = 1", "daemon.mod: unknown key"),
        ("[[preemptors]]\nname = 'x'", "preemptors.0"),
        ("[planning]\nplanner = 'best'", "planning.planner: unknown planner 'best'"),
        ("[planning", "not valid TOML"),
        ('"\\u001B[31m" = 1', "unknown key"),
        ("\udcff", "cannot be read"),
    ],
    ids=["value", "key", "rule", "planner", "TOML", "escape", "binary"],
)
def test_a_bad_configuration_names_the_key(tmp_path: Path, text: str, key: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    for arguments in (("check-config", file), ("status", "--config", file), ("serve", "--config", file)):
        if key.startswith("planning") and arguments[0] != "check-config":
            continue
        result = clearway(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        line = one_line(result.stderr)
        assert line.startswith(f"clearway: {file}: ")
        assert key in line
        assert line.isprintable()


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_a_configuration_that_is_not_there(tmp_path: Path, name: str) -> None:
    result = clearway("check-config", tmp_path / name)
    assert result.exit_code == 2
    assert "cannot be read" in one_line(result.stderr)


def test_a_problem_file(tmp_path: Path) -> None:
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    for planner in ("eviction-dp", "greedy", "backtracking"):
        result = clearway("plan", "--problem", file, "--planner", planner, "-o", "json")
        assert result.exit_code == 0
        assert result.stderr == ""
        answer = json.loads(result.stdout)
        assert list(answer) == ["planner", "curve"]
        assert answer["planner"] == planner
        assert answer["curve"] == [
            {
                "max_delay_s": 0,
                "feasible": True,
                "lost_work_node_s": 5,
                "checkpoint_s": 0,
                "nodes_freed": 1,
                "actions": [{"job_id": "7", "action": "kill"}],
            },
            {
                "max_delay_s": 10,
                "feasible": True,
                "lost_work_node_s": 0,
                "checkpoint_s": 10,
                "nodes_freed": 1,
                "actions": [{"job_id": "7", "action": "app_checkpoint"}],
            },
        ]


def as_bytes(**changes: object) -> bytes:
    return json.dumps(PROBLEM | changes).encode()


CANDIDATE: dict[str, Any] = PROBLEM["candidates"][0]  # type: ignore[index]  # a list, above
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "truncated": (as_bytes()[:-20], "not JSON"),
    "empty": (b"", "line 1 column 1"),
    "wrong type": (as_bytes(nodes_needed="4"), "nodes_needed: must be an integer"),
    "a fraction": (as_bytes(step_s=1.5), "step_s: must be a positive integer"),
    "NaN": (as_bytes(max_delay_s=float("nan")), "max_delay_s: must be an integer"),
    "NaN lost": (
        as_bytes(candidates=[CANDIDATE | {"lost_work_node_s": float("nan")}]),
        "candidates[0].lost_work_node_s",
    ),
    "huge": (as_bytes(max_delay_s=10**30), "max_delay_s: must be at most"),
    "digits": (as_bytes().replace(b'"nodes_needed": 1', b'"nodes_needed": ' + b"1" * 5_000), "too many digits"),
    "duplicate id": (as_bytes(candidates=[CANDIDATE, CANDIDATE]), "candidates[1].job_id"),
    "missing": (b"{}", "nodes_needed: is missing"),
    "unknown": (as_bytes(node_count=1), "node_count: is not a known field"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "not UTF-8 text"),
    "deep": (b"[" * 100_000, "nested too deeply"),
    "deep objects": (b'{"a":' * 100_000, "nested too deeply"),
    "escape": (as_bytes(candidates=[CANDIDATE | {"job_id": "\x1b[31m"}]), "candidates[0].job_id"),
    "escape in a key": (as_bytes(**{"\x1b[31m": 1}), "is not a known field"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_problem_file_gives_one_line(tmp_path: Path, name: str) -> None:
    content, field = BAD_FILES[name]
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    result = clearway("plan", "--problem", file, "-o", "json")
    assert result.exit_code == 2
    assert result.stdout == ""
    line = one_line(result.stderr)
    assert field in line
    assert line.isprintable()


@pytest.mark.parametrize("name", ["absent.json", "."])
def test_a_problem_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    result = clearway("plan", "--problem", tmp_path / name, "-o", "json")
    assert result.exit_code == 2
    assert "cannot be read" in one_line(result.stderr)


@pytest.mark.parametrize("name", ["truncated", "NaN", "deep", "binary", "digits"])
def test_the_installed_program_never_shows_a_traceback(tmp_path: Path, name: str) -> None:
    content, field = BAD_FILES[name]
    file = tmp_path / "bad.json"
    file.write_bytes(content)
    program = [sys.executable, "-c", "from clearway.cli.app import main; main()"]
    done = subprocess.run(
        [*program, "plan", "--problem", str(file), "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert field in one_line(done.stderr)


def test_the_installed_program_answers(tmp_path: Path) -> None:
    program = [str(Path(sys.executable).with_name("clearway"))]
    file = tmp_path / "problem.json"
    file.write_text(json.dumps(PROBLEM))
    done = subprocess.run(
        [*program, "plan", "--problem", file, "-o", "json"], capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["curve"]) == 2
    bad = tmp_path / "bad.toml"
    bad.write_text("[daemon]\nmode = 'auto'\n")
    done = subprocess.run([*program, "check-config", bad], capture_output=True, check=False, timeout=240)
    assert done.returncode == 2
    assert b"daemon.mode" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "--problem", "x", "--nodes", "4"),
        ("plan", "--nodes", "0"),
        ("plan", "--nodes", "4", "--max-delay", "soon"),
        ("evictions", "show", "first"),
        ("evictions", "list", "--state", "lost"),
        ("evictions", "list", "--limit", "0"),
        ("status", "-o", "xml"),
        ("simulate-cluster", "--speed", "0"),
    ],
    ids=" ".join,
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    result = clearway(*arguments)
    assert result.exit_code == 2
    assert result.stderr
    assert "Traceback" not in result.stderr


_FOUR_NODES = """
from datetime import UTC, datetime

import clearway.bootstrap
from clearway.cli.app import app
from clearway.model.cluster import ClusterSnapshot, Node


class FourEmptyNodes:
    def __init__(self, **_):
        pass

    def available(self):
        return None

    def snapshot(self):
        same = {"available": True, "raw_state": "IDLE", "cpus": 4, "memory_mib": 8, "partitions": ("all",)}
        nodes = [Node(name=f"n{n}", **same) for n in range(4)]
        return ClusterSnapshot(taken_at=datetime.now(UTC), jobs=(), nodes=tuple(nodes))

    def close(self):
        pass


load = clearway.bootstrap.plugins.load
clearway.bootstrap.plugins.load = lambda group, name: FourEmptyNodes if "backends" in group else load(group, name)
app()
"""


@pytest.mark.parametrize("arguments", [("plan", "--nodes", "2"), ("drain", "n1", "--dry-run")], ids=" ".join)
def test_standard_output_is_the_answer_alone(
    arguments: tuple[str, ...], make_world: Callable[..., World], tmp_path: Path
) -> None:
    """In a process of its own, where nobody has said where logs go."""
    make_world()  # its store is a database that the daemon has made
    settings = tmp_path / "clearway.toml"
    settings.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store-0.sqlite"\n')
    command = [sys.executable, "-c", _FOUR_NODES, *arguments, "--config", str(settings), "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=240, text=True)
    assert json.loads(done.stdout), done.stderr


# -- evictions in a store -----------------------------------------------------------------------------------------


class Site:
    """A simulated daemon, and the configuration file of its command line."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self._lock = threading.Lock()
        self.file = folder / "site.toml"
        self.file.write_text(f'[store]\nurl = "{world.store_url}"\n[[preemptors]]\npartition = ["urgent"]\n')

    def run(self, *arguments: object) -> Result:
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


@pytest.fixture
def site(make_world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setenv("COLUMNS", "200")
    world = make_world(config=config("approve"))
    for number in range(1, 9):
        world.submit(Program(save_s=3.0), on=(f"n{number}",), ran_s=100 * number, comment=SAVES if number > 4 else "")
    world.urgent(2)
    world.tick()
    return Site(world, tmp_path)


def test_status(site: Site) -> None:
    found = site.json("status")
    assert found["backend"] == "simulated"
    assert found["paused"] is False
    assert [e["state"] for e in found["open_evictions"]] == ["awaiting_approval"]
    shown = site.run("status").stdout
    assert "Slurm through simulated" in shown
    assert "awaiting" in shown


def test_status_before_the_daemon_has_run(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/none.sqlite"\n')
    result = clearway("status", "--config", file)
    assert result.exit_code == 1
    assert "has the daemon run yet?" in one_line(result.stderr)
    assert not (tmp_path / "none.sqlite").exists(), "asking creates no database"


def test_list(site: Site) -> None:
    for state, count in (("all", 1), ("planned", 1), ("active", 0), ("past", 0)):
        found = site.json("evictions", "list", "--state", state)
        assert len(found) == count, state
    (only,) = site.json("evictions", "list")
    assert only["eviction_id"] == 1
    assert only["mode"] == "approve"
    assert only["nodes_needed"] == 2
    assert only["user"] == "ursula"
    assert "ursula" in site.run("evictions", "list").stdout
    assert site.run("evictions", "list", "--state", "past").stdout == "There are none.\n"


def test_show(site: Site) -> None:
    found = site.json("evictions", "show", 1)
    assert {verdict["job_id"] for verdict in found["verdicts"]} == {str(number) for number in range(1, 9)}
    assert all(verdict["reason"] and verdict["code"] for verdict in found["verdicts"])
    assert len(found["placement_nodes"]) == 2
    assert [p["state"] for p in found["preemptions"]] == ["planned", "planned"]
    assert found["curve"][0]["max_delay_s"] == 0
    shown = site.run("evictions", "show", 1).stdout
    for text in ("Trade-off", "Every job, with the reason", "What was done", "<- chosen"):
        assert text in shown


def test_explain(site: Site) -> None:
    early = site.run("explain", 1)
    assert early.exit_code == 1
    assert "eviction 1 is not explained yet" in one_line(early.stderr)
    assert "no eviction 99" in one_line(site.run("explain", 99).stderr)

    site.world.loop.explain(float("inf"))
    found = site.json("explain", 1)
    assert {each["job_id"] for each in found["alternatives"]} == {str(number) for number in range(1, 9)}
    assert [rule["rule"] for rule in found["rules"]] == [
        "slurm-default",
        "youngest-first",
        "youngest-prune",
        "loss-per-node-prune",
    ]
    # There is no time to save anything: the two jobs go that ran for 100 s and 200 s, which Slurm's own rule does too.
    assert found["cost"]["lost_work_node_s"] == pytest.approx(300, abs=5)
    assert found["rules"][0]["more_lost_work_node_s"] == 0
    assert (found["exact"], found["gap_ratio"], found["complete"]) == (True, 0.0, True)
    shown = site.run("explain", 1).stdout
    for text in (
        "Why these jobs",
        "Why not the other jobs",
        "What simple rules would have lost",
        "slurm-default",
        "<- chosen",
    ):
        assert text in shown


def test_an_eviction_that_does_not_exist(site: Site) -> None:
    for arguments in (("show", 99), ("approve", 99), ("cancel", 99)):
        result = site.run("evictions", *arguments)
        assert result.exit_code == 1
        assert "no eviction 99" in one_line(result.stderr)


def test_numbers_that_no_database_holds_are_refused(site: Site) -> None:
    for arguments in (
        ("explain",),
        ("evictions", "show"),
        ("evictions", "approve"),
        ("evictions", "cancel"),
        ("rolling", "show"),
        ("rolling", "cancel"),
    ):
        result = site.run(*arguments, 10**20)
        assert result.exit_code == 2
        assert "2147483647" in result.stderr


def test_approve_and_then_cancel(site: Site) -> None:
    with site.cycling(each_s=0.0):  # or the eviction may be over before it is cancelled
        result = site.run("evictions", "approve", 1)
        assert (result.exit_code, result.stdout) == (0, "approved\n")
        again = site.run("evictions", "approve", 1)
        assert again.exit_code == 1
        assert again.stdout.startswith("refused: eviction 1 is ")
        result = site.run("evictions", "cancel", 1)
        assert (result.exit_code, result.stdout) == (0, "cancelled\n")
    site.world.run_until(site.world.settled, limit_s=900, every_s=2)
    (found,) = site.json("evictions", "list", "--state", "past")
    assert found["state"] == EvictionState.CANCELLED
    assert "(command line)" in found["outcome"]
    assert not site.world.leftovers()


def test_pause_and_resume(site: Site) -> None:
    with site.cycling():
        assert site.run("pause").stdout == "paused\n"
        assert site.json("status")["paused"] is True
        assert "Paused: nothing new is begun." in site.run("status").stdout
        assert site.run("resume").stdout == "resumed\n"
    assert site.json("status")["paused"] is False


def test_a_daemon_that_does_not_answer(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = render.wait_for
    monkeypatch.setattr(render, "wait_for", lambda answer: real(answer, limit_s=0.2))
    result = site.run("pause")
    assert result.exit_code == 1
    assert "the daemon has not answered yet" in one_line(result.stderr)
    assert len(site.world.store.pending_requests()) == 1
