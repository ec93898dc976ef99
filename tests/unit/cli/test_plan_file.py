"""``clearway plan --problem``: the fixed interface, and what it says about bad files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearway.cli.plan_file import BAD_INPUT, read_problem, run_plan_file
from clearway.cli.problem_fields import MOST_STEPS
from clearway.model.errors import ProblemFileError
from clearway.model.problem import Action, Candidate, EvictionProblem, Option


def good() -> dict[str, Any]:
    return {
        "nodes_needed": 3,
        "max_delay_s": 130,
        "step_s": 60,
        "candidates": [
            {"job_id": "a", "nodes": 2, "lost_work_node_s": 7_200, "app_checkpoint_s": None, "sys_checkpoint_s": 61},
            {"job_id": "b", "nodes": 2, "lost_work_node_s": 9, "app_checkpoint_s": 30, "sys_checkpoint_s": 31},
        ],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "problem.json"


def test_a_problem_is_read(file: Path) -> None:
    file.write_text(json.dumps(good()))
    assert read_problem(file) == EvictionProblem(
        3,
        130,
        60,
        (
            Candidate("a", 2, (Option(Action.KILL, 7_200), Option(Action.SYS_CHECKPOINT, checkpoint_s=61))),
            Candidate(
                "b",
                2,
                (
                    Option(Action.KILL, 9),
                    Option(Action.APP_CHECKPOINT, checkpoint_s=30),
                    Option(Action.SYS_CHECKPOINT, checkpoint_s=31),
                ),
            ),
        ),
    )


@pytest.mark.parametrize("planner", ["eviction-dp", "backtracking"])
def test_the_curve_is_printed_as_the_interface_says(
    file: Path, capsys: pytest.CaptureFixture[str], planner: str
) -> None:
    file.write_text(json.dumps(good()))
    assert run_plan_file(file, planner, "json") == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out) == {
        "planner": planner,
        "curve": [
            {
                "max_delay_s": 0,
                "feasible": True,
                "lost_work_node_s": 7_209,
                "checkpoint_s": 0,
                "nodes_freed": 4,
                "actions": [{"job_id": "a", "action": "kill"}, {"job_id": "b", "action": "kill"}],
            },
            {
                "max_delay_s": 60,
                "feasible": True,
                "lost_work_node_s": 7_200,
                "checkpoint_s": 60,
                "nodes_freed": 4,
                "actions": [{"job_id": "a", "action": "kill"}, {"job_id": "b", "action": "app_checkpoint"}],
            },
            {
                "max_delay_s": 120,
                "feasible": True,
                "lost_work_node_s": 9,
                "checkpoint_s": 120,
                "nodes_freed": 4,
                "actions": [{"job_id": "a", "action": "sys_checkpoint"}, {"job_id": "b", "action": "kill"}],
            },
        ],
    }


def test_what_cannot_be_freed_has_no_numbers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(good() | {"nodes_needed": 5, "max_delay_s": 0}))
    assert run_plan_file(file, "eviction-dp", "json") == 0
    assert json.loads(capsys.readouterr().out)["curve"] == [
        {
            "max_delay_s": 0,
            "feasible": False,
            "lost_work_node_s": None,
            "checkpoint_s": None,
            "nodes_freed": None,
            "actions": [],
        }
    ]


def test_the_table_names_jobs_and_units(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(good() | {"nodes_needed": 4}))
    assert run_plan_file(file, "greedy", "table") == 0
    printed = capsys.readouterr().out
    assert "Freeing 4 nodes (greedy)" in printed
    assert "node-hours" in printed


def nested(place: tuple[str | int, ...], value: object) -> str:
    case: Any = good()
    part = case
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    return json.dumps(case)


NODES = ("candidates", 1, "nodes")
LOST = ("candidates", 1, "lost_work_node_s")
APP = ("candidates", 0, "app_checkpoint_s")
JOB_ID = ("candidates", 1, "job_id")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (nested(NODES, "x"), 'candidates[1].nodes: must be a positive integer, not "x"'),
        (nested(NODES, "3"), 'candidates[1].nodes: must be a positive integer, not "3"'),
        (nested(NODES, 0), "candidates[1].nodes: must be a positive integer, not 0"),
        (nested(NODES, True), "candidates[1].nodes: must be a positive integer, not true"),
        (nested(NODES, 2.0), "candidates[1].nodes: must be a positive integer, not 2.0"),
        (nested(NODES, None), "candidates[1].nodes: must be a positive integer, not null"),
        (nested(NODES, 10**80), "candidates[1].nodes: must be at most 1000000, not a number of more than 60"),
        (nested(LOST, float("nan")), "candidates[1].lost_work_node_s: must be a number >= 0, not NaN"),
        (nested(LOST, float("inf")), "candidates[1].lost_work_node_s: must be a number >= 0, not Infinity"),
        (nested(LOST, -1), "candidates[1].lost_work_node_s: must be a number >= 0, not -1"),
        (nested(LOST, False), "candidates[1].lost_work_node_s: must be a number >= 0, not false"),
        (nested(LOST, "5"), 'candidates[1].lost_work_node_s: must be a number >= 0, not "5"'),
        (nested(LOST, 10**400), "candidates[1].lost_work_node_s: must be at most"),
        (nested(APP, 1.5), "candidates[0].app_checkpoint_s: must be an integer >= 0 or null, not 1.5"),
        (nested(APP, -1), "candidates[0].app_checkpoint_s: must be an integer >= 0 or null, not -1"),
        (nested(JOB_ID, 7), "candidates[1].job_id: must be printable text of 1 to 256 characters, not 7"),
        (nested(JOB_ID, "\n"), "candidates[1].job_id: must be printable text"),
        (nested(JOB_ID, "\ud800"), "candidates[1].job_id: must be printable text"),
        (nested(JOB_ID, "a"), 'candidates[1].job_id: "a" is already the job_id of candidates[0]'),
        (nested(("candidates", 1, "x"), 1), "candidates[1].x: is not a known field"),
        (nested(("b\n",), 1), '"b\\n": is not a known field'),
        (nested(("candidates",), {}), "candidates: must be a list, not an object"),
        (nested(("candidates", 0), 5), "candidates[0]: must be an object, not 5"),
        (nested(("step_s",), 0), "step_s: must be a positive integer, not 0"),
        (nested(("max_delay_s",), -1), "max_delay_s: must be an integer >= 0, not -1"),
        (nested(("max_delay_s",), 60 * (MOST_STEPS + 1)), "max_delay_s: must be at most 100000 times step_s"),
        ("{}", "max_delay_s: is missing"),
        ("[]", "the whole file: must be an object, not a list"),
        ("", "line 1 column 1: not JSON"),
        ("{'a': 1}", "line 1 column 2: not JSON"),
        ('{"step_s": 1, "step_s": 2}', "step_s: is given twice in one object"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5_000, "holds a number with too many digits"),
        (b"\xff\xfe{}", "not UTF-8 text (byte 0)"),
    ],
)
def test_a_bad_file_gives_one_line_that_names_the_field(
    file: Path, capsys: pytest.CaptureFixture[str], text: str | bytes, line: str
) -> None:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run_plan_file(file, "eviction-dp", "json") == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{file}: ")
    assert line in printed.err
    assert printed.err.count("\n") == 1


def test_every_missing_field_is_named(file: Path) -> None:
    assert good()["candidates"][0]
    for field in good():
        case = good()
        del case[field]
        file.write_text(json.dumps(case))
        with pytest.raises(ProblemFileError, match=f": {field}: is missing"):
            read_problem(file)
    for field in good()["candidates"][0]:
        case = good()
        del case["candidates"][1][field]
        file.write_text(json.dumps(case))
        with pytest.raises(ProblemFileError, match=rf"candidates\[1\]\.{field}: is missing"):
            read_problem(file)


def test_files_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "absent", Path("null\0byte")):
        assert run_plan_file(path, "eviction-dp", "json") == BAD_INPUT
        assert "cannot be read" in capsys.readouterr().err


def test_an_unknown_planner_and_one_that_gives_up(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(good()))
    assert run_plan_file(file, "best", "json") == BAD_INPUT
    assert "unknown planner 'best'; known are backtracking, eviction-dp, greedy" in capsys.readouterr().err
    jobs = [good()["candidates"][0] | {"job_id": str(rank)} for rank in range(201)]
    file.write_text(json.dumps(good() | {"candidates": jobs}))
    assert run_plan_file(file, "backtracking", "json") == BAD_INPUT
    assert capsys.readouterr().err == f"{file}: the backtracking planner takes at most 200 candidates\n"


def test_checkpoints_that_share_the_file_system(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save = {"action": "app_checkpoint", "checkpoint_s": 60, "file_system_s": 6, "return_node_s": 5}
    problem = {
        "nodes_needed": 2,
        "max_delay_s": 66,
        "step_s": 6,
        "candidates": [{"job_id": job_id, "nodes": 1, "options": [save]} for job_id in ("1", "2")],
    }
    file.write_text(json.dumps(problem))
    assert run_plan_file(file, "eviction-dp", "json") == 0
    last = json.loads(capsys.readouterr().out)["curve"][-1]
    assert (last["feasible"], last["checkpoint_s"], last["return_node_s"]) == (True, 12, 10)
    assert run_plan_file(file, "eviction-dp", "table") == 0
    assert "return" in capsys.readouterr().out
    save["file_system_s"] = 61
    file.write_text(json.dumps(problem))
    assert run_plan_file(file, "eviction-dp", "json") == BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("candidates[0].options[0].file_system_s: must be at most checkpoint_s (60), not 61")
