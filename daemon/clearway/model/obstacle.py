"""Why a waiting job is left to Slurm: a code for programs and metrics, and a sentence for people. Frozen data."""

from dataclasses import dataclass
from enum import StrEnum


class ObstacleCode(StrEnum):
    """The kinds of obstacles; each is a label of a metric, so they stay few."""

    HELD = "held"
    OTHER_REASON = "other_reason"  # it does not wait for what leaving jobs give back
    RESERVATION = "reservation"  # it asks for one that is not Clearway's
    ARRAY = "array"  # none of its tasks may start yet
    HETEROGENEOUS = "heterogeneous"  # not all of its components can be planned for
    GRES = "gres"  # what it asks of each node does not follow from its generic resources
    CONSTRAINT = "constraint"  # of its features
    LICENSES = "licenses"
    REQUIRED_NODES = "required_nodes"  # more of them than it asks for in all
    SWITCHES = "switches"  # the leaf switches are not known


@dataclass(frozen=True, slots=True)
class Obstacle:
    """``why`` is a sentence without its end."""

    code: ObstacleCode
    why: str
