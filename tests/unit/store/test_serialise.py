"""Decisions survive the way to text and back, in full, and across versions of the program."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from clearway.model.cluster import Job
from clearway.model.errors import StoreError
from clearway.model.plan import Curve, CurvePoint, Plan
from clearway.model.problem import EvictionProblem
from clearway.store.rows import dump, load
from tests.builders import job, plan
from tests.integration.store.strategies import record


@settings(max_examples=50, deadline=None)
@given(record(Plan))
def test_a_plan_comes_back_as_it_was(original: Plan) -> None:
    text = dump(original)
    assert load(Plan, text) == original
    assert "\n" not in text


@pytest.mark.parametrize("kind", [Job, EvictionProblem, Curve])
def test_its_parts_come_back_too(kind: Any) -> None:
    decision = plan()
    original = {Job: decision.preemptor, EvictionProblem: decision.problem, Curve: decision.curve}[kind]
    assert load(kind, dump(original)) == original


def test_infinity_is_not_lost() -> None:
    curve = Curve("greedy", (CurvePoint(0, True, float("inf")),))
    assert load(Curve, dump(curve)) == curve


def test_what_cannot_be_read_again_is_refused_when_written() -> None:
    fraction: Any = 1.5
    point = replace(plan().chosen, checkpoint_s=fraction)
    with pytest.raises(StoreError, match=r"CurvePoint cannot be written as JSON: .*checkpoint_s"):
        dump(point)


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(StoreError, match="Job cannot be written as JSON"):
        dump(job(name="caf\udce9"))


def test_fields_of_other_versions() -> None:
    """A field that was added since has its default, one that was removed is passed over."""
    document = json.loads(dump(job(comment="kept")))
    del document["licenses"]
    document["gone"] = 7
    assert load(Job, json.dumps(document)) == job(comment="kept", licenses="")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "stored Job cannot be read: document: Invalid JSON"),
        ("null", "stored Job cannot be read: it is null"),
        ('{"job_id": "1"}', "stored Job cannot be read: user: Field required"),
    ],
)
def test_a_damaged_document_says_where(text: str, message: str) -> None:
    with pytest.raises(StoreError) as caught:
        load(Job, text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
