"""Slurm's commands with a list of jobs, and which job each line of their errors is about.

When one of a list fails, the others are done and the exit status is 1 (measured on 22.05, 24.11 and 26.05).
"""

import re
from collections.abc import Sequence

from clearway.model.errors import SlurmError, SlurmTimeoutError
from clearway.slurm.base import Failures
from clearway.slurm.process import Commands, error_from

# scontrol of a job, scontrol of an array's task, scancel; of 22.05 and later releases.
_ABOUT = (
    re.compile(r".+ for job (\d+(?:_\d+)?)"),
    re.compile(r"(\d+_\d+): .+"),
    re.compile(r"Kill job error on job id (\d+(?:_\d+)?): .+"),
)


def change_list(commands: Commands, argv: Sequence[str], targets: Sequence[str]) -> Failures:
    """Give a command that names all of these jobs; what it said of those that it was not done for, by target.

    What cannot be told apart is said of all.
    """
    try:
        commands.change(argv)
    except SlurmError as error:
        told = {} if isinstance(error, SlurmTimeoutError) or len(targets) == 1 else _told_apart(argv[0], error, targets)
        return told or dict.fromkeys(targets, error)
    return {}


def _told_apart(command: str, error: SlurmError, targets: Sequence[str]) -> dict[str, SlurmError]:
    """By target; empty where a line is about none of them."""
    known, found = set(targets), dict[str, SlurmError]()
    for line in str(error).removeprefix(f"{command}: ").split("; "):
        about = next((match[1] for pattern in _ABOUT if (match := pattern.fullmatch(line))), None)
        if about not in known:
            return {}
        found[about] = error_from(command, line, 1)
    return found
