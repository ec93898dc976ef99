"""What plans are made from. Frozen data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from clearway.config.configuration import Config
from clearway.eligibility.under_way import UnderWay
from clearway.estimates.costs import BY_ITSELF, NO_HISTORY
from clearway.estimates.learning import History
from clearway.model.cluster import ClusterSnapshot, Reservation
from clearway.model.limits import Limits
from clearway.model.problem import Action
from clearway.model.report import Attempt, unguarded


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningContext:
    """All that a plan is made from, apart from what it is for and the planner that makes it."""

    snapshot: ClusterSnapshot
    config: Config
    now: datetime
    preempted: Mapping[str, int] = field(default_factory=dict)  # earlier preemptions by job_id
    under_way: UnderWay = field(default_factory=UnderWay)
    history: History = NO_HISTORY
    actions: Mapping[str, Action] = field(default_factory=lambda: BY_ITSELF)  # by checkpointer that jobs may name
    limits: Limits | None = None  # on the jobs that are planned for; None: not looked at, for a question "what if"
    reservations: tuple[Reservation, ...] = ()  # all that Slurm knows, where a plan is to be carried out
    attempt: Attempt = unguarded  # what looks at one running job goes through it
    begins_in_s: float = 0.0  # from ``now`` until a plan is begun, as measured: it is missing for what the plan takes
