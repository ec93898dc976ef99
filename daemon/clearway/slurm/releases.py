"""What releases of Slurm do differently, in one table, and on which of them Clearway acts. What counts is slurmctld's
version (``scontrol show config``): a client may be older or newer. Each row was tried with the whole tier of its
release; ``tests/slurm/test_releases.py`` and ``test_partitions.py`` try its facts. Clearway acts between two rows too;
outside of them it only observes until ``slurm.act_on_release`` names the release.
"""

import re
from dataclasses import dataclass

_RELEASE = re.compile(r"(\d\d)\.(\d\d)(?:\.\d+)?(?:\D.*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that was tried, and its answers to questions that releases answer differently."""

    name: str
    # The column of squeue that tells whether a job shares its nodes. The newest one that squeue knows is asked for:
    # where there is Exclusive, OverSubscribe is about processors alone.
    sharing_column: str
    # Whether AllowAccounts and DenyAccounts of a partition mean the accounts below as well.
    sub_accounts: bool


TRIED = (  # the oldest first
    Release("22.05", "OverSubscribe", sub_accounts=False),
    Release("24.11", "OverSubscribe", sub_accounts=True),
    Release("26.05", "Exclusive", sub_accounts=True),
)
OLDEST, NEWEST = TRIED[0].name, TRIED[-1].name


def release_of(version: str) -> str:
    """The release of a version, "24.11" of "24.11.5"; empty for what is no version of Slurm's."""
    found = _RELEASE.fullmatch(version.strip())
    return f"{found[1]}.{found[2]}" if found else ""


def sharing_column(known: str) -> str:
    """Which one to ask squeue for; ``known`` is what ``squeue --helpFormat`` says, "" where it says nothing."""
    columns = known.split()
    return next(
        (row.sharing_column for row in reversed(TRIED) if row.sharing_column in columns), TRIED[0].sharing_column
    )


def means_sub_accounts(version: str) -> bool | None:
    """``Release.sub_accounts`` of a version; None between two rows that differ, and where no version is known."""
    release = release_of(version)
    before = [row.sub_accounts for row in TRIED if release and row.name <= release]
    after = [row.sub_accounts for row in TRIED if release and row.name >= release]
    around = {*before[-1:], *after[:1]}
    return around.pop() if len(around) == 1 else None


def only_observed(version: str, act_on_release: str | None = None) -> str:
    """Why Clearway only observes with this version ("": not known), half a sentence; empty where it acts."""
    release = release_of(version)
    if not release:
        return "slurmctld has not told its version yet (SLURM_VERSION in scontrol show config)"
    # Two digits for the year and two for the month: their order is that of the texts.
    if OLDEST <= release <= NEWEST or release == act_on_release:
        return ""
    tried = f"older than {OLDEST}, the oldest" if release < OLDEST else f"newer than {NEWEST}, the newest"
    return f'Slurm {version} is {tried} that Clearway was tried with; slurm.act_on_release = "{release}" lets it act'


def refused(version: str, act_on_release: str | None = None) -> bool:
    return bool(release_of(version) and only_observed(version, act_on_release))
