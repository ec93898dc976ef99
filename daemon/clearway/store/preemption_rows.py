"""The rows of ``preemptions``, and what is found out from them: costs, counts, loops, and the operations of one job."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    and_,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    union,
    update,
)

from clearway.estimates.learning import Requeued
from clearway.model.operations import EvictionState, OperationKind, Preemption, PreemptionState, Subject, Usage
from clearway.model.orders import MoveKind
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.records import Involvement, Loop, Taking
from clearway.store import rows
from clearway.store.tables import EVICTIONS, PLANS, PREEMPTIONS

_REQUEUED = 200  # older ones would hardly change a median
_IDS_A_QUERY = 500  # databases limit the parameters of a statement
_FREES_NODES = tuple(state for state in EvictionState if state.before_start)
_QUEUED = (Action.KILL, Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT)  # a suspended job keeps its nodes


def read(connection: Connection, eviction_ids: Sequence[int]) -> dict[int, list[Row[Any]]]:
    """Each eviction's rows in their order; an eviction without any has an empty list."""
    query = (
        select(PREEMPTIONS)
        .where(PREEMPTIONS.c.eviction_id.in_(eviction_ids))
        .order_by(PREEMPTIONS.c.eviction_id, PREEMPTIONS.c.position)
    )
    found: dict[int, list[Row[Any]]] = {eviction_id: [] for eviction_id in eviction_ids}
    for row in connection.execute(query):
        found[row.eviction_id].append(row)
    return found


def requeued(connection: Connection) -> tuple[Requeued, ...]:
    """Preemptees that came back from the queue, newest first: as many as planning uses."""
    columns = PREEMPTIONS.c
    query = (
        select(columns.num_nodes, columns.vacated_at, columns.returned_at)
        .where(columns.state == PreemptionState.RETURNED, columns.action.in_(_QUEUED))
        .order_by(columns.requeued_at.desc(), columns.eviction_id, columns.position)
        .limit(_REQUEUED)
    )
    return tuple(
        Requeued(nodes, max(0.0, (back - gone).total_seconds()))
        for nodes, gone, back in connection.execute(query)
        if gone is not None and back is not None
    )


def counts(connection: Connection, job_ids: Iterable[str]) -> dict[str, int]:
    wanted = sorted(set(job_ids))
    found: dict[str, int] = {}
    for start in range(0, len(wanted), _IDS_A_QUERY):
        some = wanted[start : start + _IDS_A_QUERY]
        query = (
            select(PREEMPTIONS.c.job_id, func.count())
            .where(PREEMPTIONS.c.job_id.in_(some), PREEMPTIONS.c.requeued_at.is_not(None))
            .group_by(PREEMPTIONS.c.job_id)
        )
        found.update((job_id, int(count)) for job_id, count in connection.execute(query))
    return found


def usage_since(connection: Connection, since: datetime, without: int = 0) -> Usage:
    return usage_of(*connection.execute(select(*usage_queries(since, without))).one())


def usage_queries(since: datetime | BindParameter[datetime], without: int = 0) -> tuple[ScalarSelect[Any], ...]:
    """Jobs and lost work, and the same of what is intended, as columns of one row, for ``usage_of``.

    The predicted figure counts until the actual one is known. Eternal jobs are there to be preempted. ``without``: an
    operation whose intentions do not count.
    """
    intended = (
        EVICTIONS.c.state.in_(_FREES_NODES),
        PREEMPTIONS.c.state.in_((PreemptionState.PLANNED, PreemptionState.CHECKPOINTING)),
        PREEMPTIONS.c.requeued_at.is_(None),
        PREEMPTIONS.c.action != Action.END,
        PREEMPTIONS.c.eternal.is_not(True),
        PREEMPTIONS.c.eviction_id != without,
    )
    both = PREEMPTIONS.join(EVICTIONS, PREEMPTIONS.c.eviction_id == EVICTIONS.c.eviction_id)
    shall_leave = select(func.count()).select_from(both).where(*intended).scalar_subquery()
    shall_be_lost = select(func.sum(PREEMPTIONS.c.predicted_lost_node_s)).select_from(both).where(*intended)
    counted = PREEMPTIONS.c.requeued_at >= since, PREEMPTIONS.c.eternal.is_not(True)
    lost = func.coalesce(PREEMPTIONS.c.actual_lost_node_s, PREEMPTIONS.c.predicted_lost_node_s)
    jobs = select(func.count()).select_from(PREEMPTIONS).where(*counted).scalar_subquery()
    have_been_lost = select(func.sum(lost)).where(*counted).scalar_subquery()
    return jobs, have_been_lost, shall_leave, shall_be_lost.scalar_subquery()


def usage_of(jobs: int, lost_node_s: float | None, intended_jobs: int, intended_lost_node_s: float | None) -> Usage:
    """From the values of ``usage_queries``, where a sum over no rows is None."""
    return Usage(int(jobs), float(lost_node_s or 0.0), int(intended_jobs), float(intended_lost_node_s or 0.0))


def moved_since(connection: Connection, kind: MoveKind, since: datetime) -> int:
    """Such moves have a planner's name of their own in their plan, and an eviction of theirs has one plan."""
    query = (
        select(func.count())
        .select_from(PREEMPTIONS.join(PLANS, PREEMPTIONS.c.eviction_id == PLANS.c.eviction_id))
        .where(PLANS.c.planner == kind.value, PREEMPTIONS.c.requeued_at >= since)
    )
    return int(connection.execute(query).scalar_one())


def write(connection: Connection, eviction_id: int, preemptions: Sequence[Preemption]) -> bool:
    """Make the stored rows equal to these preemptions; whether any was not.

    Rows that change in the same columns (a whole plan that moves on together) go in one statement.
    """
    stored = read(connection, [eviction_id])[eviction_id]
    added: list[rows.Values] = []
    by_columns: defaultdict[tuple[str, ...], list[rows.Values]] = defaultdict(list)
    for position, preemption in enumerate(preemptions):
        values = rows.preemption_values(preemption)
        if position >= len(stored):
            added.append(values | {"eviction_id": eviction_id, "position": position})
        elif changes := rows.changed(values, stored[position]):
            by_columns[tuple(changes)].append(changes | {"at_position": position})
    for columns, parameters in by_columns.items():
        statement = (
            update(PREEMPTIONS)
            .where(PREEMPTIONS.c.eviction_id == eviction_id, PREEMPTIONS.c.position == bindparam("at_position"))
            .values({name: bindparam(name) for name in columns})
        )
        connection.execute(statement, parameters)
    if added:
        connection.execute(insert(PREEMPTIONS), added)
    if len(preemptions) < len(stored):
        connection.execute(
            delete(PREEMPTIONS).where(
                PREEMPTIONS.c.eviction_id == eviction_id, PREEMPTIONS.c.position >= len(preemptions)
            )
        )
    return bool(by_columns or added) or len(preemptions) < len(stored)


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


_COLUMNS = (
    "eviction_id", "kind", "mode", "state", "state_since", "created_at", "deadline", "started_at", "finished_at",
    "outcome",
)  # fmt: skip


def serves(job: str) -> ColumnElement[bool]:
    return or_(EVICTIONS.c.preemptor_job_id == job, EVICTIONS.c.preemptor_display_id == job)


def leaves(job: str) -> ColumnElement[bool]:
    return or_(PREEMPTIONS.c.job_id == job, PREEMPTIONS.c.display_id == job)


def leaving(*conditions: ColumnElement[bool]) -> Select[Any]:
    return select(PREEMPTIONS.c.eviction_id).where(*conditions)


def concerning(*, user: str | None, job: str | None, own: str | None) -> Iterator[ColumnElement[bool]]:
    known = [] if own is None else [PREEMPTIONS.c.user == own]
    ids = EVICTIONS.c.eviction_id
    if own is not None:
        yield or_(EVICTIONS.c.preemptor_user == own, ids.in_(leaving(*known)))
    if user is not None:
        yield or_(EVICTIONS.c.preemptor_user == user, ids.in_(leaving(PREEMPTIONS.c.user == user, *known)))
    if job is not None:
        yield or_(serves(job), ids.in_(leaving(leaves(job), *known)))


def involvements(
    connection: Connection, job: str, *, own: str | None = None, limit: int = 10, offset: int = 0
) -> tuple[Involvement, ...]:
    served, left = [serves(job)], [leaves(job)]
    if own is not None:
        served.append(EVICTIONS.c.preemptor_user == own)
        left.append(PREEMPTIONS.c.user == own)
    ids = union(select(EVICTIONS.c.eviction_id).where(*served), leaving(*left)).subquery()
    query = (
        select(EVICTIONS)
        .where(EVICTIONS.c.eviction_id.in_(select(ids.c.eviction_id)))
        .order_by(EVICTIONS.c.eviction_id.desc())
        .limit(limit)
        .offset(offset)
    )
    found = connection.execute(query).all()
    mine = (
        select(PREEMPTIONS)
        .where(PREEMPTIONS.c.eviction_id.in_([row.eviction_id for row in found]), *left)
        .order_by(PREEMPTIONS.c.eviction_id, PREEMPTIONS.c.position)
    )
    own_rows = {row.eviction_id: row for row in connection.execute(mine)} if found else {}
    return tuple(
        Involvement(
            **rows.fields_of(row, _COLUMNS),
            rule=row.rule or "",
            subject=Subject(
                row.preemptor_job_id,
                row.preemptor_display_id or row.preemptor_job_id,
                row.preemptor_user,
                row.preemptor_account,
            ),
            preemption=rows.preemption_from(mine_) if (mine_ := own_rows.get(row.eviction_id)) is not None else None,
        )
        for row in found
    )
