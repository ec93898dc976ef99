"""General candidates and shared nodes in a problem file, and the schema that is shipped for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from clearway.cli.plan_file import BAD_INPUT, read_problem, run_plan_file
from clearway.model.errors import ProblemFileError
from clearway.model.problem import Action, Amounts, Candidate, EvictionProblem, Needs, NodeResources, Option
from docs.reference.problem_schema import FILE as SCHEMA_FILE
from docs.reference.problem_schema import problem_schema


def shared() -> dict[str, Any]:
    return {
        "needs": {"nodes": 2, "gpus_per_node": 4, "cores_per_node": 8, "features": ["fast"]},
        "max_delay_s": 120,
        "step_s": 60,
        "nodes": {
            "n1": {"gpus": 8, "cores": 64, "memory_mib": 1000, "features": ["fast"]},
            "n2": {"gpus_by_type": {"a100": 8}, "cores": 64, "features": ["fast"], "held": {"gpus": 1}},
            "n3": {"gpus": 8, "cores": 64},
        },
        "candidates": [
            {
                "job_id": "7",
                "node_names": ["n1", "n2"],
                "holds": {"gpus": 5, "cores": 8},
                "options": [
                    {"action": "kill", "lost_work_node_s": 70.5},
                    {
                        "action": "app_checkpoint",
                        "checkpoint_s": 50,
                        "file_system_s": 20,
                        "ready_s": 60,
                        "return_node_s": 9,
                    },
                ],
            },
            {
                "job_id": "8",
                "node_names": ["n2", "n3"],
                "holds_by_node": {"n2": {"gpus_by_type": {"a100": 2}}, "n3": {"cores": 64}},
                "lost_work_node_s": 3,
                "app_checkpoint_s": None,
                "sys_checkpoint_s": 60,
            },
            {"job_id": "9", "node_names": ["n3"], "options": [{"action": "end", "ready_s": 90}]},
        ],
    }


def general() -> dict[str, Any]:
    kill = {"action": "kill", "lost_work_node_s": 5}
    return {
        "nodes_needed": 2,
        "max_delay_s": 60,
        "step_s": 60,
        "candidates": [
            {"job_id": "1", "node_names": ["a", "b"], "options": [kill]},
            {"job_id": "2", "node_names": ["b"], "options": [{**kill, "lost_work_node_s": 1}]},
            {"job_id": "3", "nodes": 1, "options": [{"action": "suspend", "ready_s": 30}]},
        ],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "problem.json"


def test_nodes_needs_and_what_jobs_hold_are_read(file: Path) -> None:
    file.write_text(json.dumps(shared()))
    a100 = (("a100", 8),)
    assert read_problem(file) == EvictionProblem(
        nodes_needed=2,
        max_delay_s=120,
        step_s=60,
        candidates=(
            Candidate(
                "7",
                2,
                (
                    Option(Action.KILL, 70.5),
                    Option(Action.APP_CHECKPOINT, checkpoint_s=50, ready_s=60, return_node_s=9, file_system_s=20),
                ),
                ("n1", "n2"),
                (Amounts(8, gpus=(("", 5),)), Amounts(8, gpus=(("a100", 5),))),
            ),
            Candidate(
                "8",
                2,
                (Option(Action.KILL, 3), Option(Action.SYS_CHECKPOINT, checkpoint_s=60)),
                ("n2", "n3"),
                (Amounts(gpus=(("a100", 2),)), Amounts(64)),
            ),
            Candidate("9", 1, (Option(Action.END, ready_s=90),), ("n3",)),
        ),
        needs=Needs(Amounts(8, gpus=(("", 4),)), features=("fast",)),
        nodes=(
            NodeResources("n1", Amounts(64, 1000, (("", 8),)), features=("fast",)),
            NodeResources("n2", Amounts(64, 0, a100), Amounts(gpus=(("a100", 1),)), ("fast",)),
            NodeResources("n3", Amounts(64, 0, (("", 8),))),
        ),
    )


def test_a_job_that_leaves_enough_of_a_node_stays(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(json.dumps(shared()))
    assert run_plan_file(file, "eviction-dp", "json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["exact"] is True
    assert answer["gap"] == 0
    assert [(point["lost_work_node_s"], point["nodes_freed"]) for point in answer["curve"]] == [
        (70.5, 2),
        (0, 2),
        (0, 2),
    ]
    assert answer["curve"][2]["actions"] == [{"job_id": "7", "action": "app_checkpoint"}]


@pytest.mark.parametrize("planner", ["eviction-dp", "backtracking"])
def test_nodes_that_jobs_share_whole_need_no_description(
    file: Path, capsys: pytest.CaptureFixture[str], planner: str
) -> None:
    file.write_text(json.dumps(general()))
    assert run_plan_file(file, planner, "json") == 0
    curve = json.loads(capsys.readouterr().out)["curve"]
    assert [point["lost_work_node_s"] for point in curve] == [6, 5]


def test_slurms_rule_goes_by_the_priority_that_a_candidate_tells(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def chosen(**priorities: int) -> list[str]:
        document = general() | {"nodes_needed": 1}
        for candidate in document["candidates"][1:]:
            candidate["options"] = [{"action": "kill", "lost_work_node_s": 5}]
            candidate["preempt_priority"] = priorities["named" if "node_names" in candidate else "counted"]
        document["candidates"][0]["preempt_priority"] = 10
        file.write_text(json.dumps(document))
        assert run_plan_file(file, "slurm-default", "json") == 0
        return [each["job_id"] for each in json.loads(capsys.readouterr().out)["curve"][0]["actions"]]

    assert chosen(named=30, counted=20) == ["1"]
    assert chosen(named=20, counted=5) == ["3"]


def _set(keys: tuple[int | str, ...], value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


def _drop(keys: tuple[int | str, ...]) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        del document[keys[-1]]

    return change


SEEN_BY_SCHEMA = [
    (_set(("needs", "nodes"), 0), "needs.nodes: must be a positive integer, not 0"),
    (_set(("needs", "gpus_per_node"), "8"), 'needs.gpus_per_node: must be an integer >= 0, not "8"'),
    (_set(("needs", "contiguous"), 1), "needs.contiguous: must be true or false, not 1"),
    (_set(("needs", "features"), ["x", 3]), f"needs.features[1]: must be {'printable text'}"),
    (
        _set(("needs", "gpus_per_node_by_type"), {"a100": -1}),
        "needs.gpus_per_node_by_type.a100: must be an integer >= 0",
    ),
    (_set(("nodes", "n1", "gpu"), 1), "nodes.n1.gpu: is not a known field"),
    (_set(("nodes", "n1"), 8), "nodes.n1: must be an object, not 8"),
    (_set(("nodes", "n1", "cores"), 10**13), "nodes.n1.cores: must be at most 1000000000000"),
    (_drop(("nodes",)), "nodes: is missing"),
    (_set(("nodes_needed",), 2), "nodes_needed: must not be given beside needs"),
    (
        _set(("candidates", 0, "lost_work_node_s"), 1),
        "candidates[0].lost_work_node_s: must not be given beside options",
    ),
    (_drop(("candidates", 1, "sys_checkpoint_s")), "candidates[1].sys_checkpoint_s: is missing"),
    (
        _set(("candidates", 0, "options"), []),
        "candidates[0].options: must be a list of at least one option, not a list",
    ),
    (
        _set(("candidates", 0, "options", 0, "action"), "stop"),
        "candidates[0].options[0].action: must be one of end, kill, app_checkpoint, sys_checkpoint, suspend, not",
    ),
    (_set(("candidates", 0, "options", 1, "ready_s"), -1), "candidates[0].options[1].ready_s: must be an integer >= 0"),
    (_drop(("candidates", 0, "node_names")), "candidates[0].node_names: is missing"),
    (_set(("candidates", 0, "nodes"), 2), "candidates[0].nodes: must not be given beside node_names"),
    (
        _set(("candidates", 2, "preempt_priority"), -1),
        "candidates[2].preempt_priority: must be an integer >= 0, not -1",
    ),
    (_set(("candidates", 0, "holds"), {"gpus": 1.5}), "candidates[0].holds.gpus: must be an integer >= 0, not 1.5"),
    (_set(("candidates", 0, "remaining_s"), -1), "candidates[0].remaining_s: must be an integer >= 0 or null, not -1"),
    (_set(("candidates", 0, "ran_s"), None), "candidates[0].ran_s: must be an integer >= 0, not null"),
    (_set(("needs",), None), "needs: must be an object, not null"),
    (_set(("candidates", 0, "holds_by_node"), {}), "candidates[0].holds_by_node: must not be given beside holds"),
    (
        _set(("candidates", 0, "job_id"), "7\u202e"),
        "candidates[0].job_id: must be printable text of 1 to 256 characters",
    ),
    (
        _set(("candidates", 1, "holds_by_node", "\n"), {}),
        "candidates[1].holds_by_node: a key must be printable text of 1 to 256 characters, not",
    ),
    (_set(("candidates", 0, "node_names", 1), "n1"), 'candidates[0].node_names[1]: "n1" is named twice'),
    (
        _set(("candidates", 2, "options", 0, "checkpoint_s"), 1),
        "candidates[2].options[0].checkpoint_s: must be 0 for end",
    ),
    (_set(("nodes", "n2", "gpus"), 1), "nodes.n2.gpus: must not be given beside gpus_by_type"),
]
SEEN_BY_READER = [  # what a schema cannot say
    (_set(("candidates", 0, "node_names", 1), "n9"), 'candidates[0].node_names[1]: "n9" is not among nodes'),
    (_set(("candidates", 0, "holds", "gpus"), 9), 'candidates[0].holds.gpus: must be at most what node "n1" has (8)'),
    (
        _set(("candidates", 1, "holds_by_node", "n2"), {"gpus_by_type": {"h100": 1}}),
        'candidates[1].holds_by_node.n2.gpus_by_type.h100: must be at most what node "n2" has (0), not 1',
    ),
    (
        _set(("candidates", 0, "options", 1, "file_system_s"), 51),
        "candidates[0].options[1].file_system_s: must be at most checkpoint_s (50), not 51",
    ),
    (_drop(("candidates", 1, "holds_by_node", "n3")), "candidates[1].holds_by_node.n3: is missing"),
    (
        _set(("needs", "required_nodes"), ["n1", "n2", "n3"]),
        "needs.required_nodes: 3 certain nodes, but needs.nodes is 2",
    ),
    (_set(("nodes", "n2", "gpus_by_type"), {"a100": 4, "h100": 4}), "nodes.n2.held.gpus: must be given by type"),
    (_set(("needs", "required_nodes"), ["n1", "x"]), 'needs.required_nodes[1]: "x" is not among nodes'),
    (_set(("candidates", 1, "job_id"), "7"), 'candidates[1].job_id: "7" is already the job_id of candidates[0]'),
]


@pytest.mark.parametrize(("change", "line"), [*SEEN_BY_SCHEMA, *SEEN_BY_READER])
def test_what_is_wrong_is_told_in_one_line_with_its_place(
    file: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Any], None], line: str
) -> None:
    document = shared()
    change(document)
    file.write_text(json.dumps(document))
    assert run_plan_file(file, "eviction-dp", "json") == BAD_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith(f"{file}: {line}")


def test_what_only_shared_nodes_know_is_refused_without_them(file: Path) -> None:
    for change, line in (
        (_set(("nodes",), {}), "needs: is missing, and nodes is given"),
        (_set(("candidates", 0, "holds"), {"gpus": 1}), r"candidates\[0\].holds: must not be given without needs"),
        (_set(("candidates", 2, "holds"), {}), r"candidates\[2\].holds: must not be given without node_names"),
    ):
        document = general()
        change(document)
        file.write_text(json.dumps(document))
        with pytest.raises(ProblemFileError, match=line):
            read_problem(file)


def test_a_schema_refuses_without_needs_what_only_shared_nodes_know() -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    for change in (
        _set(("candidates", 0, "holds"), {"gpus": 1}),
        _set(("candidates", 0, "holds_by_node"), {"a": {}}),
        _set(("candidates", 2, "holds"), {}),
        _set(("needs",), None),
    ):
        document = general()
        change(document)
        assert not validator.is_valid(document)


def test_zero_gpus_of_a_type_hold_no_node(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = {
        "needs": {"nodes": 1},
        "nodes": {"n1": {"gpus_by_type": {"a100": 1}, "held": {"gpus_by_type": {"a100": 0}}}},
        "max_delay_s": 0,
        "step_s": 60,
        "candidates": [],
    }
    file.write_text(json.dumps(document))
    assert run_plan_file(file, "eviction-dp", "json") == 0
    assert json.loads(capsys.readouterr().out)["curve"][0]["feasible"] is True


def test_rules_go_by_the_times_that_candidates_tell(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def chosen(planner: str) -> list[str]:
        assert run_plan_file(file, planner, "json") == 0
        return [each["job_id"] for each in json.loads(capsys.readouterr().out)["curve"][0]["actions"]]

    times = {
        "1": {"ran_s": 300, "remaining_s": 50},
        "2": {"ran_s": 200, "remaining_s": 90, "waited_s": 9_000},
        "3": {"ran_s": 100, "remaining_s": 80, "waited_s": 10},
        "4": {"ran_s": 400, "remaining_s": 70, "waited_s": 0},
    }
    kill = {"action": "kill", "lost_work_node_s": 5}
    candidates = [{"job_id": job_id, "nodes": 1, "options": [kill], **told} for job_id, told in times.items()]
    file.write_text(json.dumps({"nodes_needed": 1, "max_delay_s": 0, "step_s": 1, "candidates": candidates}))
    assert chosen("youngest-first") == chosen("youngest-prune") == ["3"]
    assert chosen("ujfb") == ["2"]
    assert chosen("weighted-cost") == ["3"]  # 1.06 x 1.56; 1 and 4 are almost done: 1.86 and 1.85
    del candidates[3]["remaining_s"]  # no time limit: the longest of all
    file.write_text(json.dumps({"nodes_needed": 1, "max_delay_s": 0, "step_s": 1, "candidates": candidates}))
    assert chosen("ujfb") == ["4"]


def test_how_far_a_plan_is_proven_is_told_wherever_nodes_have_names(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for document in (general(), shared()):
        file.write_text(json.dumps(document))
        for planner, proof in (("eviction-dp", (True, 0)), ("greedy", (False, None))):
            assert run_plan_file(file, planner, "json") == 0
            answer = json.loads(capsys.readouterr().out)
            assert (answer["exact"], answer["gap"]) == proof


def test_so_many_candidates_that_memory_would_not_do_are_refused(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = general()
    document["candidates"] = [{**document["candidates"][2], "job_id": str(number)} for number in range(20_001)]
    file.write_text(json.dumps(document))
    assert run_plan_file(file, "eviction-dp", "json") == BAD_INPUT
    assert capsys.readouterr().err == f"{file}: candidates: must hold at most 20000\n"


def test_the_shipped_schema_is_that_of_the_reader() -> None:
    assert SCHEMA_FILE.read_text() == problem_schema()


def test_the_schema_takes_and_refuses_what_the_reader_does() -> None:
    schema = json.loads(SCHEMA_FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    paper = general() | {
        "candidates": [
            {"job_id": "a", "nodes": 2, "lost_work_node_s": 7, "app_checkpoint_s": None, "sys_checkpoint_s": 61}
        ]
    }
    for document in (shared(), general(), paper):
        assert list(validator.iter_errors(document)) == []
    for change, line in SEEN_BY_SCHEMA:
        document = shared()
        change(document)
        assert not validator.is_valid(document), line


def test_the_examples_in_the_documentation_have_the_answers_shown(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[3] / "docs/howto/problem-files.md").read_text()
    examples = [block.split("```")[0] for block in page.split("```json\n")[1:]]
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text()))
    answers = [block.split("```")[0] for block in page.split("```\n$ clearway plan ")[1:]]
    assert len(examples) == len(answers) == 2
    monkeypatch.setenv("COLUMNS", "100")
    for example, shown in zip(examples, answers, strict=True):
        file.write_text(example)
        assert read_problem(file).candidates
        assert validator.is_valid(json.loads(example))
        command, expected = shown.split("\n", 1)
        output = "json" if "--output json" in command else "table"
        assert run_plan_file(file, "eviction-dp", output) == 0
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == expected.splitlines()
