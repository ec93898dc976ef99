"""What was taken from jobs lately, and for whom: for limits of users, accounts and rules, and to notice loops."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select

from clearway.model.operations import EvictionState, OperationKind, PreemptionState
from clearway.model.outcome import OutcomeCode
from clearway.model.taking import Loop, Taking
from clearway.store.tables import EVICTIONS, PREEMPTIONS

_ACTING = [state for state in EvictionState if state.acting]
_INTENDED = [state for state in PreemptionState if state.cancellable]
_OF_URGENT_JOBS = EVICTIONS.c.kind == OperationKind.EVICTION, PREEMPTIONS.c.eternal.is_not(True)
_JOINED = EVICTIONS.join(PREEMPTIONS, EVICTIONS.c.eviction_id == PREEMPTIONS.c.eviction_id)


def takings(connection: Connection, since: datetime) -> tuple[Taking, ...]:
    """One for each eviction that made jobs leave since then, or intends to; eternal jobs are there to be preempted."""
    left, lost = PREEMPTIONS.c, func.coalesce(PREEMPTIONS.c.actual_lost_node_s, PREEMPTIONS.c.predicted_lost_node_s)
    counted = or_(left.requeued_at >= since, and_(EVICTIONS.c.state.in_(_ACTING), left.state.in_(_INTENDED)))
    who = EVICTIONS.c.eviction_id, EVICTIONS.c.preemptor_user, EVICTIONS.c.preemptor_account, EVICTIONS.c.rule
    query = select(*who, lost.label("lost")).select_from(_JOINED).where(*_OF_URGENT_JOBS, counted)
    found: defaultdict[int, list[Any]] = defaultdict(list)
    for row in connection.execute(query):
        found[row.eviction_id].append(row)
    return tuple(
        Taking(
            user=rows[0].preemptor_user,
            account=rows[0].preemptor_account,
            rule=rows[0].rule or "",
            jobs=len(rows),
            lost_node_s=sum(float(row.lost or 0.0) for row in rows),
        )
        for rows in found.values()
    )


def loops(connection: Connection, since: datetime, repeats: int) -> tuple[Loop, ...]:
    """The same job again and again for the same urgent job; evictions in a row that made jobs leave for nothing.

    A user who has urgent jobs every hour is none: a job and a user have limits of their own for that.
    """
    user, urgent, job_id = EVICTIONS.c.preemptor_user, EVICTIONS.c.preemptor_job_id, PREEMPTIONS.c.job_id
    times = func.count().label("times")
    pairs = (
        select(user, urgent, job_id, times)
        .select_from(_JOINED)
        .where(*_OF_URGENT_JOBS, PREEMPTIONS.c.requeued_at >= since)
        .group_by(user, urgent, job_id)
        .having(times >= repeats)
        .order_by(user, urgent, job_id)
    )
    found = [
        Loop(row.preemptor_user, f"job {row.job_id} was preempted {row.times} times for job {row.preemptor_job_id}")
        for row in connection.execute(pairs)
    ]
    made_jobs_leave = (
        select(PREEMPTIONS.c.job_id)
        .where(PREEMPTIONS.c.eviction_id == EVICTIONS.c.eviction_id, PREEMPTIONS.c.requeued_at.is_not(None))
        .exists()
    )
    last = (
        select(EVICTIONS.c.eviction_id, user, EVICTIONS.c.started_at, EVICTIONS.c.outcome_code)
        .where(EVICTIONS.c.kind == OperationKind.EVICTION, EVICTIONS.c.finished_at >= since, made_jobs_leave)
        .order_by(EVICTIONS.c.finished_at.desc(), EVICTIONS.c.eviction_id.desc())
        .limit(repeats)
    )
    rows = connection.execute(last).all()
    in_vain = [row for row in rows if row.started_at is None and row.outcome_code is OutcomeCode.TOO_LATE]
    if len(in_vain) == repeats:
        users = {row.preemptor_user for row in in_vain}
        numbers = ", ".join(str(row.eviction_id) for row in reversed(in_vain))
        why = f"evictions {numbers} made jobs leave, and no urgent job started"
        found.append(Loop(users.pop() if len(users) == 1 else None, why))
    return tuple(found)
