"""Why a plan is as it is, and what would change it. Frozen data."""

from dataclasses import dataclass

from clearway.model.plan import Choice, Cost, Curve


@dataclass(frozen=True, slots=True)
class Alternative:
    """The best plan that does with one candidate what the plan did not."""

    job_id: str
    choice: Choice  # what the plan does with it: chosen or spared
    known: bool  # False: there was no time to find out
    cost: Cost | None  # None: no such plan frees the nodes in time


@dataclass(frozen=True, slots=True)
class Later:
    """What a longer delay would allow."""

    max_delay_s: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class RuleOutcome:
    """What a simple rule would have done; ``cost`` None: it finds no plan in time."""

    rule: str
    cost: Cost | None
    unsaved_nodes: int = 0  # of jobs that leave without a checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Of one plan; the jobs in the order of their ids."""

    cost: Cost  # of the plan itself
    alternatives: tuple[Alternative, ...]
    later: tuple[Later, ...]
    rules: tuple[RuleOutcome, ...]
    complete: bool  # whether there was time for everything
    curve: Curve | None = None  # of the plan, with further deadlines; None: there was no time for it
