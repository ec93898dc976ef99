"""Which job of a list each line of Slurm's errors is about; the lines are those of Slurm 22.05."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.slurm.base import JobChange
from clearway.slurm.cli import CliBackend
from clearway.slurm.job_changes import change_list
from clearway.slurm.process import Commands
from tests.unit.slurm.fake_slurm import FakeSlurm, seen
from tests.unit.slurm.test_hostile import GOOD

TARGETS = ("1", "10", "11_9", "999999")


class Failing(Commands):
    error: SlurmError

    def change(self, argv: Sequence[str]) -> str:  # noqa: ARG002 - as the commands have it
        raise self.error


def told(error: SlurmError, targets: Sequence[str] = TARGETS) -> dict[str, str]:
    commands = Failing()
    object.__setattr__(commands, "error", error)
    return {target: str(each) for target, each in change_list(commands, ["scontrol"], targets).items()}


def test_lines_of_scontrol_and_scancel() -> None:
    disabled, unknown = (
        "Requested operation is presently disabled for job 10",
        "Invalid job id specified for job 999999",
    )
    found = told(SlurmRefusedError(f"scontrol: {disabled}; {unknown}; 11_9: Invalid job id specified"))
    assert found.keys() == {"10", "11_9", "999999"}
    assert found["10"] == f"scontrol: {disabled}"
    killed = "Kill job error on job id 10: Invalid job id specified"
    assert told(SlurmRefusedError(f"scontrol: {killed}")) == {"10": f"scontrol: {killed}"}


@pytest.mark.parametrize(
    "error",
    [
        SlurmRefusedError("scontrol: Job has already finished for job 10; slurm_suspend error: No error"),
        SlurmRefusedError("scontrol: Invalid job id specified for job 7"),  # none of ours
        SlurmUnavailableError("scontrol: Unable to contact slurm controller (connect failure)"),
        SlurmTimeoutError("scontrol did not answer within 15 s"),
    ],
)
def test_what_cannot_be_told_apart_is_said_of_all(error: SlurmError) -> None:
    assert told(error) == dict.fromkeys(TARGETS, str(error))


@pytest.mark.parametrize(
    ("change", "command"),
    [
        (JobChange.REQUEUE, "scontrol requeue Incomplete {commas}"),
        (JobChange.CANCEL, "scancel {spaces}"),
        (JobChange.SUSPEND, "scontrol suspend {commas}"),
        (JobChange.SIGNAL_BATCH, "scancel --signal=USR1 --batch {spaces}"),
    ],
)
def test_two_hundred_jobs_take_one_look_and_one_command(
    backend: CliBackend, slurm: FakeSlurm, change: JobChange, command: str
) -> None:
    ids = [str(number) for number in range(201, 401)]
    slurm.rows[:] = [GOOD | {"JobID": job_id, "ArrayJobID": job_id} for job_id in ids]
    jobs = [seen(backend, ids[0])]
    jobs += [each for each in backend.snapshot().jobs if each.job_id != ids[0]]
    slurm.reads.clear()
    assert backend.change_jobs(change, sorted(jobs, key=lambda job: job.job_id), "USR1") == {}
    assert len(slurm.reads) == 1
    assert slurm.changes == [command.format(commas=",".join(ids), spaces=" ".join(ids))]
