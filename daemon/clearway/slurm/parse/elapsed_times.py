"""Run times from Slurm's accounting: the command to ask with, and how its answer is read. Pure.

Only jobs that completed count: how long a failed or cancelled one would have taken is not known.
"""

from collections.abc import Sequence

from clearway.model.errors import WalltimeError

_FIELDS = ("JobIDRaw", "State", "ElapsedRaw")


def command(user: str, name: str, days: int) -> Sequence[str]:
    """The sacct command for the jobs of this user and name.

    Raises ``WalltimeError``: sacct would read the name as a list of names.
    """
    for what, text in (("user", user), ("name", name)):
        if not text or "," in text or not text.isprintable():
            raise WalltimeError(f"{what} {text!r:.60}: give one name, without commas")
    if not 1 <= days <= 3_650:
        raise WalltimeError(f"days must lie between 1 and 3650, not {days}")
    period = (f"--starttime=now-{days}days", "--endtime=now")
    return sacct_command(_FIELDS, f"--user={user}", f"--name={name}", *period, "--state=COMPLETED")


def read(text: str) -> list[float]:
    """Seconds that each completed job of the answer took, in its order.

    Raises ``WalltimeError``: a line is none of the command's.
    """
    found: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = line.strip().split("|")
        if len(parts) != len(_FIELDS) or not parts[2].isdecimal() or not parts[0].partition(".")[0]:
            raise WalltimeError(f"sacct, line {number}: {line!r:.60} is not {'|'.join(_FIELDS)}")
        if parts[1] == "COMPLETED" and "." not in parts[0]:
            found.append(float(parts[2]))
    return found


def sacct_command(fields: Sequence[str], *filters: str) -> Sequence[str]:
    """The command whose answer has these fields (sacct's own names), between bars, for the jobs that pass the filters.

    ``--allocations`` gives a line for each job and none for its steps; without ``--duplicates`` the last run of a
    requeued job counts.
    """
    answer = ("--allocations", "--noheader", "--parsable2", "--delimiter=|", f"--format={','.join(fields)}")
    return ("sacct", *filters, *answer)
