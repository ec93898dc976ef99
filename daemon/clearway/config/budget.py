"""The section ``[budget]``: what preemption may cost, in all and for each user, account and rule."""

from typing import Any

from clearway.config.fields import Section, key
from clearway.model.durations import Duration


def _most(what: str, whose: str, default: int | None = None) -> Any:
    meaning = f"maximum {what} in an hour for one {whose}; 0: all wait for approval; None: no limit"
    return key(default, meaning, ge=0)


def _most_lost(whose: str) -> Any:
    meaning = f"maximum node-hours lost in an hour for one {whose}; 0: no work may be lost; None: no limit"
    return key(None, meaning, ge=0, allow_inf_nan=False)


class BudgetConfig(Section):
    """What preemption may cost within any hour: in all, and for the urgent jobs of one user, account or rule.

    A plan that would exceed it waits for approval. And what follows misuse and loops.
    """

    misuse_pause: Duration = key(
        3_600.0,
        "how long nothing is planned for a user who let another job into the placement of an urgent one; 0: no pause",
    )
    cancelled_pause: Duration = key(
        3_600.0,
        "how long evictions for a user need approval, after an urgent job of the user was given up once others had "
        "left for it; 0: no pause",
    )

    jobs_per_hour: int | None = key(
        None, "maximum jobs preempted in an hour; 0: all evictions wait for approval; None: no limit", ge=0
    )
    lost_node_hours_per_hour: float | None = key(
        None, "maximum node-hours lost in an hour; 0: no work may be lost; None: no limit", ge=0, allow_inf_nan=False
    )
    user_evictions_per_hour: int | None = _most("evictions", "user", 20)
    user_jobs_per_hour: int | None = _most("jobs preempted", "user", 200)
    user_lost_node_hours_per_hour: float | None = _most_lost("user")
    account_evictions_per_hour: int | None = _most("evictions", "account")
    account_jobs_per_hour: int | None = _most("jobs preempted", "account")
    account_lost_node_hours_per_hour: float | None = _most_lost("account")
    rule_evictions_per_hour: int | None = _most("evictions", "rule")
    rule_jobs_per_hour: int | None = _most("jobs preempted", "rule")
    rule_lost_node_hours_per_hour: float | None = _most_lost("rule")
    loop_window: Duration = key(
        6 * 3_600.0,
        "how far back Clearway looks for loops, and how long evictions for a user wait for approval after one; 0: it "
        "does not look",
    )
    loop_repeats: int = key(
        3,
        "a loop: so many times the same job was preempted for the same urgent job, or so many evictions in a row made "
        "jobs leave and their urgent jobs did not start",
        ge=2,
    )
