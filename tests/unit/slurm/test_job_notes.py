"""Words on a job: how the job is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from clearway.model.cluster import JobState
from clearway.slurm.base import Unfenced
from clearway.slurm.job_notes import JobNotes, MailSettings
from clearway.slurm.process import Commands

ROW = {
    "JobID": "7",
    "ArrayJobID": "7",
    "ArrayTaskID": "N/A",
    "HetJobID": "N/A",
    "HetJobOffset": "N/A",
    "UserName": "ann",
    "State": "PENDING",
    "NodeList": "",
    "EligibleTime": "2026-03-02T12:00:00",
    "Comment": "(null)",
}


class Squeue(Commands):
    """Answers with the columns that it is asked for."""

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: object) -> str:  # type: ignore[override]
        assert argv[0] == "squeue"
        asked = (env or {})["SQUEUE_FORMAT2"]
        columns = [each.partition(":")[0] for each in asked.split(",")]
        token = asked.rpartition("|")[2].removesuffix("$")
        return f"|{token}|".join(self.row[column] for column in columns) + f"|{token}$\n"

    row: dict[str, str] = ROW


@pytest.mark.parametrize(
    ("fields", "target"),
    [({}, "7"), ({"ArrayJobID": "5", "ArrayTaskID": "3"}, "5_3"), ({"HetJobID": "7", "HetJobOffset": "0"}, "7+0")],
)
def test_a_job_is_named_exactly(fields: dict[str, str], target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Squeue, "row", ROW | fields)
    monkeypatch.setattr("clearway.slurm.job_notes.Commands", Squeue)
    words = JobNotes(1.0, None, Unfenced()).look("7", "ann")
    assert words is not None
    assert (words.target, words.state, words.comment) == (target, JobState.PENDING, "")


def test_a_job_of_another_user_with_the_same_id_is_not_the_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written on it, and no mail goes where its owner wants mails."""
    monkeypatch.setattr("clearway.slurm.job_notes.Commands", Squeue)
    assert JobNotes(1.0, None, Unfenced()).look("7", "bob") is None
    shown = "JobId=7 JobName=x\n   UserId=ann(1001) GroupId=ann(1001)\n   MailUser=ann@there MailType=END\n"
    monkeypatch.setattr(Squeue, "run", lambda *_, **__: shown)
    notes = JobNotes(1.0, None, Unfenced())
    assert notes.mail_settings("7", "bob") is None
    assert notes.mail_settings("7", "ann") == MailSettings("ann@there", frozenset({"END"}))
