"""Who asks, and what that person or program may do."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """From the least to the most; each one may do what those before it may."""

    USER = "user"  # known, and no more: own jobs, and what Slurm lets every user see
    VIEWER = "viewer"  # sees the jobs of all users
    OPERATOR = "operator"  # approves, cancels, pauses, resumes, drains
    ADMIN = "admin"  # reads the audit trail

    @property
    def rank(self) -> int:
        return tuple(Role).index(self)

    def includes(self, other: "Role") -> bool:
        return self.rank >= other.rank


@dataclass(frozen=True, slots=True)
class Identity:
    """``name`` is a user of the cluster or the name of a token; it is stored as the actor of what is asked.

    An asker without any name has none: such an identity only reads, and only where the site allows it.
    """

    name: str
    role: Role

    @property
    def anonymous(self) -> bool:
        return not self.name
