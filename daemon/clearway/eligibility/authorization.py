"""Which users may drain nodes, move jobs and approve evictions. Pure; what Slurm says of a user is passed in.

The Slurm+DMTCP paper's smigrate asks whether the user has enough privileges. These users
have: root, those that the configuration names, operators and administrators of Slurm and, where the site allows it,
users whose jobs alone are on the nodes.
"""

import re
from collections.abc import Callable, Collection

from clearway.config.access import AccessConfig
from clearway.config.configuration import DrainConfig
from clearway.model.cluster import AdminLevel, ClusterSnapshot
from clearway.model.operations import Eviction

_SUDO = re.compile(r", sudo by (\S+)\)$")  # of the command line's actors, see ``cli.asker.actor``


def user_of(actor: str) -> str:
    """The name at the beginning of "alice (command line)"; a token's name has no blanks."""
    return actor.partition(" ")[0]


def people_behind(actor: str) -> frozenset[str]:
    """The user that acts and, for root through sudo, the user behind it."""
    behind = _SUDO.search(actor)
    return frozenset({user_of(actor), *(behind.groups() if behind else ())})


def may_not_approve(actor: str, eviction: Eviction, access: AccessConfig) -> str:
    """Why this actor may not let an eviction be carried out; empty where that is allowed."""
    user = eviction.subject.user
    if access.own_approvals or user not in people_behind(actor):
        return ""
    return f"the urgent job is {user}'s own, so another operator must approve (access.own_approvals)"


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
