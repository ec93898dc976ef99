"""docs/explanation/fifty-programs.md is made from what was recorded, and the record holds nothing that went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.checkpointed.page import PAGE, render
from tests.checkpointed.program import Program
from tests.checkpointed.programs import PROGRAMS
from tests.checkpointed.record import RECORD

FEWEST = 50
SAVED = 40  # by one checkpointer at least


def recorded() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    return record


def outcomes() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, row in recorded()["programs"].items():
        for way, outcome in row["ways"].items():
            yield name, way, outcome


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text() == render(recorded()), "run python -m tests.checkpointed.table --page"


def test_every_program_was_tried_with_every_checkpointer() -> None:
    record = recorded()
    assert len(PROGRAMS) >= FEWEST
    assert record["programs"].keys() == PROGRAMS.keys()
    assert any(way.startswith("DMTCP 4.") for way in record["versions"])
    assert any(way.startswith("CRIU") for way in record["versions"])
    assert [name for name, row in record["programs"].items() if row["ways"].keys() != record["versions"].keys()] == []


@pytest.mark.parametrize("kind", ["wrong", "hung", "lost", "ended before", "refused at the request"])
def test_nothing_went_wrong(kind: str) -> None:
    assert [(name, way) for name, way, outcome in outcomes() if outcome["kind"] == kind] == []


def test_no_step_was_done_twice() -> None:
    went_on = [(name, way, each) for name, way, each in outcomes() if each["saves"] and each["kind"] != "lost"]
    assert went_on
    assert [(name, way, each["repeated"]) for name, way, each in went_on if each["repeated"]] == []


def test_what_is_refused_is_refused_with_a_reason() -> None:
    assert [
        (name, way) for name, way, each in outcomes() if each["kind"].startswith("refused") and not each["line"]
    ] == []


def test_a_trial_says_what_then_happens() -> None:
    """One whose undisturbed runs differ, or which is at the limit of what can be saved, may be "not known"."""
    wrong = {"saved": "no:", "refused before": "yes"}
    assert [(name, way) for name, way, each in outcomes() if each["trial"].startswith(wrong[each["kind"]])] == []


def test_a_step_of_slurm_is_refused_before_it_starts() -> None:
    assert {each["kind"] for name, _, each in outcomes() if name == "srun in a script"} == {"refused before"}


def test_most_are_saved() -> None:
    saved = {name for name, _, outcome in outcomes() if outcome["kind"] == "saved"}
    assert len(saved) >= SAVED


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_says_what_it_shows(program: Program) -> None:
    assert program.shows
    assert not program.shows.endswith(".")
    text = " ".join([program.command, *program.files.values()])
    assert "steps" in text
    assert "result" in text
