"""Which of the jobs that have had an id a record is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearway.model.cluster import ClusterSnapshot, JobState, Skipped, Submission, of_one_job
from tests.builders import NOW, after, job

FIRST = Submission("ann", NOW, 0)


@pytest.mark.parametrize(
    ("later", "same"),
    [
        (FIRST, True),
        (Submission("ann", after(60), 1), True),
        (Submission("ann", NOW, 1), True),  # requeued within the second
        (Submission("ann", after(60), 0), False),
        (Submission("bob", after(60), 1), False),
        (Submission("bob", NOW, 0), False),
    ],
)
def test_a_requeue_is_the_same_job_and_a_submission_is_another(later: Submission, same: bool) -> None:
    assert FIRST.leads_to(later) is same
    assert later.leads_to(FIRST) is (later == FIRST)


def test_records_are_tied_one_to_the_next() -> None:
    """Of two jobs of one user, both requeued, each has its own."""
    old = [("old 2", Submission("ann", after(10), 2)), ("old 1", FIRST)]
    new = [("new 2", Submission("ann", after(90), 1)), ("new 1", Submission("ann", after(80), 0))]
    assert list(of_one_job(new + old, Submission("ann", after(99), 3))) == ["new 2", "new 1"]
    assert list(of_one_job(new + old, None)) == ["new 2", "new 1"]
    assert list(of_one_job(new + old, Submission("bob", after(99), 3))) == []
    assert list(of_one_job(old, Submission("ann", after(20), 3))) == ["old 2", "old 1"]


def test_a_record_that_could_not_be_read_is_not_another_job() -> None:
    known = job("5")
    unread = replace(known, user="", submit_time=after(-1e9), state=JobState.UNKNOWN)
    seen = ClusterSnapshot(taken_at=NOW, jobs=(unread,), nodes=())
    assert seen.is_another("5", known.submission)
    assert not replace(seen, skipped=(Skipped("job", "5", "cut", nodes=("n1",)),)).is_another("5", known.submission)
    assert not seen.is_another("6", known.submission)
