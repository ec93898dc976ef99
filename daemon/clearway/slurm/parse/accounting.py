"""The sacct command: a line for each job, its fields between bars. Pure.

``--allocations`` gives a line for each job and none for its steps; without ``--duplicates`` the last run of a requeued
job counts.
"""

from collections.abc import Sequence


def sacct_command(fields: Sequence[str], *filters: str) -> Sequence[str]:
    """The command whose answer has these fields (sacct's own names) for the jobs that pass the filters."""
    answer = ("--allocations", "--noheader", "--parsable2", "--delimiter=|", f"--format={','.join(fields)}")
    return ("sacct", *filters, *answer)
