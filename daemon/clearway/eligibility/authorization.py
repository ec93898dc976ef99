"""Who may drain nodes. Pure; what Slurm says of a user is passed in.

The Slurm+DMTCP paper's smigrate asks whether the user has enough privileges. Here: root, those that the
configuration names, whom Slurm calls an operator or administrator and, where the site lets them, users on whose nodes
nobody else's job is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from clearway.config.configuration import DrainConfig
from clearway.model.cluster import AdminLevel, ClusterSnapshot


def user_of(actor: str) -> str:
    """The name at the beginning of "alice (command line)"; a token's name has no blanks."""
    return actor.partition(" ")[0]


def may_not_drain(
    actor: str,
    nodes: Collection[str],
    snapshot: ClusterSnapshot,
    config: DrainConfig,
    admin_level: Callable[[str], AdminLevel],
) -> str:
    """Why this actor may not drain these nodes; empty when he may. Slurm is asked only when nothing else decides."""
    user = user_of(actor)
    if user == "root" or user in config.operators:
        return ""
    if config.owners:
        jobs = [snapshot.jobs_on.get(name, ()) for name in nodes]
        if all(jobs) and not snapshot.unreadable and all(job.user == user for there in jobs for job in there):
            return ""
    if admin_level(user) is not AdminLevel.NONE:
        return ""
    only = " and not all jobs there are his" if config.owners else ""
    return f"{user} is neither an operator nor an administrator of Slurm, nor named in drain.operators{only}"


def may_not_move(actor: str, config: DrainConfig, admin_level: Callable[[str], AdminLevel]) -> str:
    """Why this actor may not have jobs of everybody moved; empty when he may."""
    user = user_of(actor)
    if user == "root" or user in config.operators or admin_level(user) is not AdminLevel.NONE:
        return ""
    return f"{user} is neither an operator nor an administrator of Slurm, nor named in drain.operators"
