"""A user's rights, from Slurm's accounting: neither squeue nor pyslurm's records show them."""

from clearway.model.cluster import AdminLevel
from clearway.model.errors import SlurmRefusedError
from clearway.slurm.guards import checked
from clearway.slurm.process import Commands


def admin_level(commands: Commands, user: str) -> AdminLevel:
    """``NONE`` also for a user that the accounting does not know, and where there is no accounting."""
    try:
        told = commands.run(
            ["sacctmgr", "--noheader", "--parsable2", "show", "user", checked(user), "format=AdminLevel"]
        )
    except SlurmRefusedError:
        return AdminLevel.NONE
    word = told.strip().lower()
    return AdminLevel(word) if word in set(AdminLevel) else AdminLevel.NONE
