"""The commands, as an operator gives them: what they print, and their exit status."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearway import __version__
from clearway.cli import options
from tests.simulation.world import World
from tests.unit.cli.running import PROBLEM, clearway, one_line


def test_version() -> None:
    result = clearway("--version")
    assert (result.exit_code, result.stdout) == (0, f"clearway {__version__}\n")


@pytest.mark.parametrize("words", [(), ("evictions",), ("evictions", "approve"), ("drain",), ("walltime", "plan")])
def test_every_command_explains_itself(words: tuple[str, ...]) -> None:
    short, long = clearway(*words, "-h"), clearway(*words, "--help")
    assert short.exit_code == long.exit_code == 0
    assert short.stdout == long.stdout
    assert "Usage: " in short.stdout


def test_commands_are_listed_by_use() -> None:
    """They were listed in the order of the modules that hold them."""
    lines = clearway("--help").stdout.splitlines()
    sections = [line.rstrip(":") for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert sections == ["Options", *options.USES]
    named = {words.split()[0]: line for line, words in enumerate(lines) if words.startswith("  ") and words[2] != " "}
    where = {use: lines.index(f"{use}:") for use in options.USES}
    for command, use in {"status": options.LOOK, "evictions": options.LOOK, "pause": options.DECIDE}.items():
        later = [line for line in where.values() if line > where[use]]
        assert where[use] < named[command] < min(later), command


def test_a_shell_can_complete_commands(tmp_path: Path) -> None:
    script = tmp_path / "clearway"
    script.write_text("from clearway.cli.app import main\nmain()\n")
    asked = {"_CLEARWAY_COMPLETE": "complete_bash", "COMP_WORDS": "clearway ev", "COMP_CWORD": "1"}
    command = [sys.executable, str(script)]
    result = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["evictions"], result.stderr


def test_a_good_configuration(tmp_path: Path) -> None:
    file = tmp_path / "good.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/new.sqlite"\n[[preemptors]]\nqos = ["urgent"]\n')
    result = clearway("check-config", file)
    assert not (tmp_path / "new.sqlite").exists()
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
    store = f'\n[store]\nurl = "sqlite:///{tmp_path}/store.sqlite"\n' if text.endswith("'") else ""
    file.write_bytes((text + store).encode(errors="surrogateescape"))
    for arguments in (("check-config", file), ("status", "--config", file), ("serve", "--config", file)):
        if key.startswith("planning") and arguments[0] == "status":
            continue
        result = clearway(*arguments)
        assert result.exit_code == 2
        assert result.stdout == ""
        line = one_line(result.stderr)
        assert line.startswith(f"clearway: {file}: ")
        assert key in line
        assert line.isprintable()


@pytest.mark.parametrize("command", [("check-config",), ("serve", "--config")])
def test_everything_that_would_be_refused_is_found_at_once(tmp_path: Path, command: tuple[str, ...]) -> None:
    """check-config called it good, and serve told of one after another, the database with a traceback."""
    (tmp_path / "tokens").write_text("ann operator never sha256:" + 64 * "0" + "\n")
    (tmp_path / "tokens").chmod(0o644)
    file = tmp_path / "site.toml"
    file.write_text(
        f"""
        [planning]
        planner = "best"
        [slurm]
        conf = "{tmp_path}/slurm.conf"
        [store]
        url = "sqlite:///{tmp_path}/none/store.sqlite"
        [api]
        host = "no such host"
        token_file = "{tmp_path}/tokens"
        certificate = "{tmp_path}/cert.pem"
        certificate_key = "{tmp_path}/key.pem"
        [access]
        jwks_file = "{tmp_path}/keys"
        """
    )
    result = clearway(*command, file)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = [line.removeprefix(f"clearway: {file}: ") for line in result.stderr.splitlines()]
    found = [line.split(": ")[0] for line in lines]
    assert found == ["planning.planner", "slurm.conf", "store.url", "api.token_file", "access.jwks_file", "api"]
    assert not (tmp_path / "none").exists()


def test_each_wrong_key_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text('[daemon]\nmode = "x"\n[planning]\nsteps = 0\n')
    result = clearway("check-config", file)
    assert result.exit_code == 2
    assert [line.split(": ")[2] for line in result.stderr.splitlines()] == ["daemon.mode", "planning.steps"]


@pytest.mark.parametrize("command", [("status",), ("evictions", "list"), ("pause",), ("backup", "x"), ("verify",)])
def test_a_state_folder_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """It was a traceback."""

    def closed(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    file = tmp_path / "site.toml"
    file.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store.sqlite"\n')
    monkeypatch.setattr(Path, "exists", closed)
    result = clearway(*command, "--config", file)
    assert result.exit_code in (1, 3)
    assert "Permission denied; run it as the daemon's user" in one_line(result.stderr)


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
    "missing": (b"{}", "max_delay_s: is missing"),
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
import ctypes
from datetime import UTC, datetime

import clearway.bootstrap
from clearway.cli.app import main
from clearway.model.cluster import ClusterSnapshot, Node


class FourEmptyNodes:
    def __init__(self, **_):
        pass

    def available(self):
        return None

    def snapshot(self):
        ctypes.CDLL(None).puts(b"as a solver does")
        same = {"available": True, "raw_state": "IDLE", "cpus": 4, "memory_mib": 8, "partitions": ("all",)}
        nodes = [Node(name=f"n{n}", **same) for n in range(4)]
        return ClusterSnapshot(taken_at=datetime.now(UTC), jobs=(), nodes=tuple(nodes))

    def close(self):
        pass


load = clearway.bootstrap.plugins.load
clearway.bootstrap.plugins.load = lambda group, name: FourEmptyNodes if "backends" in group else load(group, name)
main()
"""


@pytest.mark.parametrize("arguments", [("plan", "--nodes", "2"), ("drain", "n1", "--dry-run")], ids=" ".join)
def test_standard_output_is_the_answer_alone(
    arguments: tuple[str, ...], make_world: Callable[..., World], tmp_path: Path
) -> None:
    """In a process of its own, where nobody has said where logs go, nor what a library prints."""
    make_world()  # its store is a database that the daemon has made
    settings = tmp_path / "clearway.toml"
    settings.write_text(f'[store]\nurl = "sqlite:///{tmp_path}/store-0.sqlite"\n')
    command = [sys.executable, "-c", _FOUR_NODES, *arguments, "--config", str(settings), "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=240, text=True)
    assert json.loads(done.stdout), done.stderr
