"""What may leave for an urgent job. Frozen data; ``clearway.preemption.pledges`` makes and keeps it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pledge:
    """What may leave for an urgent job, over all plans for it: as it was planned, or approved, and for one node more.

    Eternal jobs and those that end by themselves are not counted. The next eviction for the same job goes on with what
    is left of it.
    """

    jobs: int
    lost_node_s: float  # at most: by jobs that leave without a checkpoint
    begun: bool = False  # some have left for an eviction before
    replaced: bool = False  # it has grown by what a node costs that was lost
    asks: str = ""  # why the plan has to be approved, half a sentence: more would leave than may
    after: int = 0  # ... the eviction that it would go on with
