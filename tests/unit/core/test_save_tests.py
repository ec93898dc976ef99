"""Which tests of saving may begin, and what is told of one that has ended well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clearway.execution.save_tests import AGAIN_AFTER, MOST_AT_ONCE, looked_at, why_not_again
from clearway.model.records import SaveTest, SaveTestEnd
from tests.builders import NOW, after, job

SAVED = "clearway:run=0,checkpoint=signal,state=saved,asked={at},last={at},took=3,size_mib=2048,generation=4"


def save_test(job_id: str = "101", user: str = "ann", **fields: Any) -> SaveTest:
    of = job(job_id, user=user)
    common: dict[str, Any] = {
        "request_id": 1,
        "job": of,
        "actor": user,
        "asked_at": NOW,
        "latest": after(100),
        "expected_s": 20.0,
    }
    return SaveTest(**(common | fields))


def test_how_many_at_once() -> None:
    assert "tested already" in why_not_again("101", "ann", [save_test()], NOW)
    assert "one at a time" in why_not_again("102", "ann", [save_test()], NOW)
    assert why_not_again("102", "bob", [save_test()], NOW) == ""
    many = [save_test(str(number), f"user{number}") for number in range(MOST_AT_ONCE)]
    assert f"{MOST_AT_ONCE} jobs" in why_not_again("102", "bob", many, NOW)


def test_how_soon_again() -> None:
    ended = replace(save_test(), end=SaveTestEnd.SAVED, ended_at=after(30))
    assert "ask again in 9m00s" in why_not_again("101", "ann", [ended], after(60))
    assert why_not_again("101", "ann", [ended], NOW + AGAIN_AFTER) == ""
    assert why_not_again("102", "ann", [ended], after(60)) == ""
    refused = replace(ended, end=SaveTestEnd.NOT_ASKED, ended_at=NOW)
    assert why_not_again("101", "ann", [refused], after(60)) == "", "the job got no signal"
    unknown = replace(refused, ended_at=after(100))
    assert "ask again" in why_not_again("101", "ann", [unknown], after(120)), "it may have got one"


@pytest.mark.parametrize(
    ("more", "restartable", "told"),
    [
        (",checkpointer=dmtcp", True, "the launcher has verified it with dmtcp, and a restart would begin with it"),
        ("", None, "whether the program starts from it only the program knows"),
    ],
)
def test_what_is_told_of_a_checkpoint(more: str, restartable: bool | None, told: str) -> None:
    test = save_test(asked=True)
    at = int(after(10).timestamp())
    seen = replace(test.job, comment=SAVED.format(at=at) + more)
    found = looked_at(test, seen, after(12))
    assert (found.end, found.took_s, found.size_mib, found.generation) == (SaveTestEnd.SAVED, 3, 2_048, 4)
    assert found.restartable is restartable
    assert found.sentence.startswith("job 101 saved itself in 3s, 2,048 MiB, generation 4; ")
    assert told in found.sentence


def test_a_job_of_which_slurm_knows_no_state_is_waited_for() -> None:
    test = save_test(asked=True)
    for state in ("unknown", "suspended"):
        assert looked_at(test, replace(test.job, state=type(test.job.state)(state)), after(12)) == test
    assert looked_at(test, None, after(12)).end is SaveTestEnd.LEFT
