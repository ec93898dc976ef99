"""Which users may drain nodes and move jobs. Pure; what Slurm says of a user is passed in.

The Slurm+DMTCP paper's smigrate asks whether the user has enough privileges. These users
have: root, those that the configuration names, operators and administrators of Slurm and, where the site allows it,
users whose jobs alone are on the nodes.
"""

from collections.abc import Callable, Collection

from clearway.config.configuration import DrainConfig
from clearway.model.cluster import AdminLevel, ClusterSnapshot


def user_of(actor: str) -> str:
    """The name at the beginning of "alice (command line)"; a token's name has no blanks."""
    return actor.partition(" ")[0]


def may_not_move(actor: str, config: DrainConfig, admin_level: Callable[[str], AdminLevel]) -> str:
    """Why this actor may not have the jobs of all users moved; empty where that is allowed."""
    user = user_of(actor)
    if user == "root" or user in config.operators or admin_level(user) is not AdminLevel.NONE:
        return ""
    return f"{user} is neither an operator nor an administrator of Slurm, nor named in drain.operators"


def may_not_drain(
    actor: str,
    nodes: Collection[str],
    snapshot: ClusterSnapshot,
    config: DrainConfig,
    admin_level: Callable[[str], AdminLevel],
) -> str:
    """Why this actor may not drain these nodes; empty where that is allowed. Slurm is asked last."""
    if not config.owners:
        return may_not_move(actor, config, admin_level)
    user, jobs = user_of(actor), [snapshot.jobs_on.get(name, ()) for name in nodes]
    if all(jobs) and not snapshot.unreadable and all(job.user == user for there in jobs for job in there):
        return ""
    why = may_not_move(actor, config, admin_level)
    return f"{why}, nor the owner of all jobs on these nodes" if why else ""
