"""What one eviction has taken from jobs, and for whom; and what looks like a loop. Frozen data."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """Jobs that have left within the hour, or are intended to, and the work that this loses (node-seconds)."""

    user: str  # of the urgent job, like the next two
    account: str
    rule: str
    jobs: int
    lost_node_s: float


@dataclass(frozen=True, slots=True)
class Loop:
    """Jobs leave again and again without an end to it; ``user`` is None where it concerns several users."""

    user: str | None
    why: str  # half a sentence
