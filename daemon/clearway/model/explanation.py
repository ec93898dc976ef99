"""What else could have been decided, and what that would have cost. Frozen data."""

from dataclasses import dataclass

from clearway.model.plan import Choice, Cost


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Of one plan; the jobs in the order of their ids."""

    cost: Cost  # of the plan itself
    alternatives: tuple[Alternative, ...]
    later: tuple[Later, ...]
    rules: tuple[RuleOutcome, ...]
    complete: bool  # whether there was time for everything
