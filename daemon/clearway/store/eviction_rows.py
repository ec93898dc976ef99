"""The rows of evictions, of their preemptions and of their steps, and what is found out from them.

Costs, counts, loops, the operations of one job, and evictions that are deleted.
"""

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
    text,
    update,
)

from clearway.estimates.learning import Requeued
from clearway.model.cluster import Job, Submission, of_one_job
from clearway.model.errors import StoreError
from clearway.model.notice import Notice
from clearway.model.operations import EvictionState, Operation, OperationKind, Preemption, PreemptionState, Subject
from clearway.model.orders import MoveKind
from clearway.model.outcome import OutcomeCode
from clearway.model.problem import Action
from clearway.model.records import Involvement, Loop, NewStep, StepLog, StepRecord, Taking, Usage
from clearway.store import rows
from clearway.store.plan_rows import forget_parts, parts_named
from clearway.store.record_rows import add_notices
from clearway.store.tables import EVICTIONS, EXPLANATIONS, PLANS, PREEMPTIONS, STEPS

PRUNED_AT_ONCE = 100  # evictions a transaction: others may write in between
_REQUEUED = 200  # older ones would hardly change a median
_IDS_A_QUERY = 500  # databases limit the parameters of a statement
_EVENT = "event"
_QUEUED = (Action.KILL, Action.APP_CHECKPOINT, Action.SYS_CHECKPOINT)  # a suspended job keeps its nodes
_TERMINAL = [state for state in EvictionState if state.terminal]
_ACTING = [state for state in EvictionState if state.acting]
_FREES_NODES = [state for state in EvictionState if state.before_start]
_INTENDED = [state for state in PreemptionState if state.cancellable]
_COUNTED = PREEMPTIONS.c.eternal.is_not(True)  # eternal jobs are there to be preempted
_LOST_NODE_S = func.coalesce(PREEMPTIONS.c.actual_lost_node_s, PREEMPTIONS.c.predicted_lost_node_s)
_OF_URGENT_JOBS = EVICTIONS.c.kind == OperationKind.EVICTION, _COUNTED
_JOINED = EVICTIONS.join(PREEMPTIONS, EVICTIONS.c.eviction_id == PREEMPTIONS.c.eviction_id)


def preemptions(
    connection: Connection, eviction_ids: Sequence[int], *which: ColumnElement[bool]
) -> dict[int, list[Row[Any]]]:
    """Each eviction's rows in their order; an eviction without any has an empty list."""
    found: dict[int, list[Row[Any]]] = {eviction_id: [] for eviction_id in eviction_ids}
    query = select(PREEMPTIONS).where(PREEMPTIONS.c.eviction_id.in_(eviction_ids), *which)
    for row in connection.execute(query.order_by(PREEMPTIONS.c.eviction_id, PREEMPTIONS.c.position)):
        found[row.eviction_id].append(row)
    return found


def write_preemptions(connection: Connection, eviction_id: int, wanted: Sequence[Preemption]) -> bool:
    """Make the stored rows equal to these preemptions; whether any was not.

    Rows that change in the same columns (a whole plan that moves on together) go in one statement.
    """
    stored = preemptions(connection, [eviction_id])[eviction_id]
    added: list[rows.Values] = []
    by_columns: defaultdict[tuple[str, ...], list[rows.Values]] = defaultdict(list)
    for position, preemption in enumerate(wanted):
        values = rows.preemption_values(preemption)
        if position >= len(stored):
            added.append(values | {"eviction_id": eviction_id, "position": position})
        elif changes := rows.changed(values, stored[position]):
            by_columns[tuple(changes)].append(changes | {"at_position": position})
    own, at = PREEMPTIONS.c.eviction_id == eviction_id, PREEMPTIONS.c.position
    for columns, parameters in by_columns.items():
        statement = update(PREEMPTIONS).where(own, at == bindparam("at_position"))
        connection.execute(statement.values({name: bindparam(name) for name in columns}), parameters)
    if added:
        connection.execute(insert(PREEMPTIONS), added)
    if gone := len(wanted) < len(stored):
        connection.execute(delete(PREEMPTIONS).where(own, at >= len(wanted)))
    return bool(by_columns or added or gone)


def keep_loss(connection: Connection, ended: Operation, notices: Sequence[Notice]) -> None:
    """What jobs have lost shows when they go on, which may be after the end of the operation that they left for."""
    write_preemptions(connection, ended.eviction_id, ended.preemptions)
    values = {"actual_lost_node_s": ended.actual_lost_node_s}
    connection.execute(update(EVICTIONS).where(EVICTIONS.c.eviction_id == ended.eviction_id).values(values))
    add_notices(connection, notices)


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


_LEFT = PREEMPTIONS.c
_OF_LEAVING = (_LEFT.user, _LEFT.submit_time, _LEFT.restarts)
_OF_SERVED = (EVICTIONS.c.preemptor_user, EVICTIONS.c.preemptor_submit_time, EVICTIONS.c.preemptor_restarts)


def preemption_counts(connection: Connection, jobs: Iterable[Job]) -> dict[str, int]:
    """How often each job has passed its point of no return, by its id; jobs without any are absent."""
    by_id = {job.job_id: job.submission for job in jobs}
    wanted, of_id = sorted(by_id), defaultdict[str, list[tuple[bool, Submission]]](list)
    for start in range(0, len(wanted), _IDS_A_QUERY):
        query = select(_LEFT.job_id, _LEFT.requeued_at.is_not(None), *_OF_LEAVING)
        query = query.where(_LEFT.job_id.in_(wanted[start : start + _IDS_A_QUERY]))
        for job_id, left, *seen in connection.execute(query.order_by(_LEFT.eviction_id.desc(), _LEFT.position.desc())):
            of_id[job_id].append((bool(left), Submission(*seen)))
    counts = {job_id: sum(of_one_job(seen, by_id[job_id])) for job_id, seen in of_id.items()}
    return {job_id: count for job_id, count in counts.items() if count}


def usage_since(connection: Connection, since: datetime, without: int = 0) -> Usage:
    """Preemptions past their point of no return since then, the work they lost, and what is intended."""
    return usage_of(*connection.execute(select(*usage_queries(since, without))).one())


def usage_queries(since: datetime | BindParameter[datetime], without: int = 0) -> tuple[ScalarSelect[Any], ...]:
    """Jobs and lost work, and the same of what is intended, as columns of one row, for ``usage_of``.

    The predicted figure counts until the actual one is known. ``without``: an operation whose intentions do not count.
    """
    intended = (
        EVICTIONS.c.state.in_(_FREES_NODES),
        PREEMPTIONS.c.state.in_(_INTENDED),
        PREEMPTIONS.c.requeued_at.is_(None),
        PREEMPTIONS.c.action != Action.END,
        PREEMPTIONS.c.eviction_id != without,
        _COUNTED,
    )
    have_left = PREEMPTIONS.c.requeued_at >= since, _COUNTED
    shall_be_lost = func.sum(PREEMPTIONS.c.predicted_lost_node_s)
    return (
        select(func.count()).select_from(PREEMPTIONS).where(*have_left).scalar_subquery(),
        select(func.sum(_LOST_NODE_S)).where(*have_left).scalar_subquery(),
        select(func.count()).select_from(_JOINED).where(*intended).scalar_subquery(),
        select(shall_be_lost).select_from(_JOINED).where(*intended).scalar_subquery(),
    )


def usage_of(jobs: int, lost_node_s: float | None, intended_jobs: int, intended_lost_node_s: float | None) -> Usage:
    """From the values of ``usage_queries``, where a sum over no rows is None."""
    return Usage(int(jobs), float(lost_node_s or 0.0), int(intended_jobs), float(intended_lost_node_s or 0.0))


def moved_since(connection: Connection, kind: MoveKind, since: datetime) -> int:
    """Jobs moved for this that have passed their point of no return since then.

    Such moves have a planner's name of their own in their plan, and an eviction of theirs has one plan.
    """
    query = (
        select(func.count())
        .select_from(PREEMPTIONS.join(PLANS, PREEMPTIONS.c.eviction_id == PLANS.c.eviction_id))
        .where(PLANS.c.planner == kind.value, PREEMPTIONS.c.requeued_at >= since)
    )
    return int(connection.execute(query).scalar_one())


def takings(connection: Connection, since: datetime) -> tuple[Taking, ...]:
    """One for each eviction for an urgent job that made jobs leave since then, or intends to."""
    left = PREEMPTIONS.c
    counted = or_(left.requeued_at >= since, and_(EVICTIONS.c.state.in_(_ACTING), left.state.in_(_INTENDED)))
    who = EVICTIONS.c.preemptor_user, EVICTIONS.c.preemptor_account, EVICTIONS.c.rule
    query = select(*who, func.count(), func.sum(_LOST_NODE_S)).select_from(_JOINED).where(*_OF_URGENT_JOBS, counted)
    return tuple(
        Taking(user=user, account=account, rule=rule or "", jobs=jobs, lost_node_s=float(lost_node_s))
        for user, account, rule, jobs, lost_node_s in connection.execute(query.group_by(EVICTIONS.c.eviction_id, *who))
    )


def loops(connection: Connection, since: datetime, repeats: int) -> tuple[Loop, ...]:
    """The same job so often for the same urgent job; so many evictions in a row that made jobs leave for nothing.

    A user who has urgent jobs every hour is none: a job and a user have limits of their own for that.
    """
    user, urgent, job_id = EVICTIONS.c.preemptor_user, EVICTIONS.c.preemptor_job_id, PREEMPTIONS.c.job_id
    times = func.count().label("times")
    pairs = (
        select(user, urgent, job_id, times)
        .select_from(_JOINED)
        .where(*_OF_URGENT_JOBS, PREEMPTIONS.c.requeued_at >= since)
        .group_by(user, urgent, job_id, PREEMPTIONS.c.user)
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
    in_vain = [
        row for row in connection.execute(last) if row.started_at is None and row.outcome_code is OutcomeCode.TOO_LATE
    ]
    if len(in_vain) == repeats:
        users = {row.preemptor_user for row in in_vain}
        numbers = ", ".join(str(row.eviction_id) for row in reversed(in_vain))
        why = f"evictions {numbers} made jobs leave, and no urgent job started"
        found.append(Loop(users.pop() if len(users) == 1 else None, why))
    return tuple(found)


_INVOLVED = rows.columns_of(Involvement, EVICTIONS, but_for=["rule"])


def _serves(job: str) -> ColumnElement[bool]:
    return or_(EVICTIONS.c.preemptor_job_id == job, EVICTIONS.c.preemptor_display_id == job)


def _leaves(job: str) -> ColumnElement[bool]:
    return or_(PREEMPTIONS.c.job_id == job, PREEMPTIONS.c.display_id == job)


def _leaving(*conditions: ColumnElement[bool]) -> Select[Any]:
    return select(PREEMPTIONS.c.eviction_id).where(*conditions)


def concerning(*, user: str | None, job: str | None, own: str | None) -> Iterator[ColumnElement[bool]]:
    """The conditions on evictions that serve a job of this user, or this job, or that such a job leaves for."""
    known = [] if own is None else [PREEMPTIONS.c.user == own]
    ids = EVICTIONS.c.eviction_id
    if own is not None:
        yield or_(EVICTIONS.c.preemptor_user == own, ids.in_(_leaving(*known)))
    if user is not None:
        yield or_(EVICTIONS.c.preemptor_user == user, ids.in_(_leaving(PREEMPTIONS.c.user == user, *known)))
    if job is not None:
        yield or_(_serves(job), ids.in_(_leaving(_leaves(job), *known)))


def involvements(
    connection: Connection,
    job: str,
    *,
    seen: Job | None = None,
    own: str | None = None,
    limit: int = 10,
    offset: int = 0,
) -> tuple[Involvement, ...]:
    """What operations have to do with a job (by either form of its id), newest first.

    ``seen``: as it is in the queue; None: it is not there, and that of the newest record is meant.
    """
    served, left = [_serves(job)], [_leaves(job)]
    if own is not None:
        served.append(EVICTIONS.c.preemptor_user == own)
        left.append(PREEMPTIONS.c.user == own)
    records = [
        (eviction_id, Submission(*each))
        for eviction_id, *each in (
            *connection.execute(select(EVICTIONS.c.eviction_id, *_OF_SERVED).where(*served)),
            *connection.execute(select(_LEFT.eviction_id, *_OF_LEAVING).where(*left)),
        )
    ]
    records.sort(key=lambda record: (record[0], record[1].restarts, record[1].at), reverse=True)
    ids = list(dict.fromkeys(of_one_job(records, None if seen is None else seen.submission)))[offset : offset + limit]
    query = select(EVICTIONS).where(EVICTIONS.c.eviction_id.in_(ids))
    found = connection.execute(query.order_by(EVICTIONS.c.eviction_id.desc())).all()
    preemptees = preemptions(connection, [row.eviction_id for row in found], *left)
    return tuple(_involvement(row, preemptees[row.eviction_id]) for row in found)


def _involvement(row: Row[Any], preemptees: Sequence[Row[Any]]) -> Involvement:
    job_id, display_id = row.preemptor_job_id, row.preemptor_display_id or row.preemptor_job_id
    return Involvement(
        **rows.fields_of(row, _INVOLVED),
        rule=row.rule or "",
        subject=Subject(job_id, display_id, row.preemptor_user, row.preemptor_account),
        preemption=rows.preemption_from(preemptees[-1]) if preemptees else None,
    )


def write_steps(connection: Connection, eviction_id: int, log: StepLog) -> tuple[int, ...]:
    """Returns the ids of the steps that the log begins, in their order; raises ``StoreError`` for an unknown step."""
    for step in log.ended:
        finish_step(connection, step.step_id, log.at, step.result, step.detail)
    if not log.begun:
        return ()
    values = [
        {"eviction_id": eviction_id, "job_id": step.job_id, "kind": step.kind, "intended_at": log.at}
        | {"finished_at": log.at if step.kind == _EVENT else None, "result": "ok" if step.kind == _EVENT else ""}
        | {"detail": step.detail}
        for step in log.begun
    ]
    statement = insert(STEPS).returning(STEPS.c.step_id, sort_by_parameter_order=True)
    return tuple(int(step_id) for step_id in connection.execute(statement, values).scalars())


def begin_step(
    connection: Connection, eviction_id: int, job_id: str | None, kind: str, at: datetime, detail: str = ""
) -> int:
    """The intent of an act, stored before the act."""
    return write_steps(connection, eviction_id, StepLog(at=at, begun=(NewStep(job_id, kind, detail),)))[0]


def finish_step(connection: Connection, step_id: int, at: datetime, result: str, detail: str = "") -> None:
    """What has become of the act; an empty detail leaves what was said when the step began."""
    values = {"finished_at": at, "result": result} | ({"detail": detail} if detail else {})
    if connection.execute(update(STEPS).where(STEPS.c.step_id == step_id).values(values)).rowcount != 1:
        raise StoreError(f"no step {step_id}")


def add_event(connection: Connection, eviction_id: int, job_id: str | None, at: datetime, detail: str) -> None:
    begin_step(connection, eviction_id, job_id, _EVENT, at, detail)


def steps(connection: Connection, eviction_id: int) -> tuple[StepRecord, ...]:
    query = select(STEPS).where(STEPS.c.eviction_id == eviction_id).order_by(STEPS.c.step_id)
    return tuple(rows.record_from(StepRecord, row) for row in connection.execute(query))


_SIZE = {
    "sqlite": "SELECT (page_count - freelist_count) * page_size "
    "FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
    "postgresql": "SELECT pg_database_size(current_database())",
    "mysql": "SELECT SUM(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()",
}


def forget_plans(connection: Connection, eviction_id: int, before_revision: int) -> None:
    """Delete the plans that a proposal had before, with their explanations: nothing was done for them."""
    parts = parts_named(connection, PLANS.c.eviction_id == eviction_id, PLANS.c.revision < before_revision)
    for table in (EXPLANATIONS, PLANS):
        old = table.c.eviction_id == eviction_id, table.c.revision < before_revision
        connection.execute(delete(table).where(*old))
    forget_parts(connection, parts)


def successor(connection: Connection, eviction_id: int) -> int | None:
    """The next eviction that was planned for the same preemptor; None: there is none."""
    this = EVICTIONS.alias()
    query = (
        select(EVICTIONS.c.eviction_id, *_OF_SERVED, this.c.preemptor_submit_time, this.c.preemptor_restarts)
        .join(this, and_(*(EVICTIONS.c[name] == this.c[name] for name in ("preemptor_job_id", "preemptor_user"))))
        .where(this.c.eviction_id == eviction_id, EVICTIONS.c.eviction_id > eviction_id)
        .where(EVICTIONS.c.kind == OperationKind.EVICTION)
        .order_by(EVICTIONS.c.eviction_id)
        .limit(1)
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    number, user, at, restarts, *before = found
    return int(number) if Submission(user, *before).leads_to(Submission(user, at, restarts)) else None


def newest_begun(connection: Connection, preemptor_job_id: str) -> int | None:
    """The newest eviction for a preemptor of this id that jobs have left for; None: there is none."""
    left = EVICTIONS.c.eviction_id.in_(_leaving(PREEMPTIONS.c.requeued_at.is_not(None)))
    same = EVICTIONS.c.kind == OperationKind.EVICTION, EVICTIONS.c.preemptor_job_id == preemptor_job_id
    found: int | None = connection.execute(select(func.max(EVICTIONS.c.eviction_id)).where(*same, left)).scalar_one()
    return found


def prune_superseded(connection: Connection, before: datetime) -> int:
    """Delete evictions that were put aside before then; how many went, a bounded number a call."""
    return _forget(connection, EVICTIONS.c.state == EvictionState.SUPERSEDED, EVICTIONS.c.finished_at < before)


def prune_ended(connection: Connection, before: datetime) -> int:
    """Likewise those that have ended."""
    finished_at = func.coalesce(EVICTIONS.c.finished_at, EVICTIONS.c.state_since)
    return _forget(connection, EVICTIONS.c.state.in_(_TERMINAL), finished_at < before)


def _forget(connection: Connection, *which: ColumnElement[bool]) -> int:
    ids = connection.execute(select(EVICTIONS.c.eviction_id).where(*which).limit(PRUNED_AT_ONCE)).scalars().all()
    if ids:
        parts = parts_named(connection, PLANS.c.eviction_id.in_(ids))
        connection.execute(delete(EVICTIONS).where(EVICTIONS.c.eviction_id.in_(ids)))
        forget_parts(connection, parts)
    return len(ids)


def size_bytes(connection: Connection) -> int:
    """What the database holds: on SQLite without the pages that are free again."""
    kind = "mysql" if connection.dialect.name in ("mysql", "mariadb") else connection.dialect.name
    return int(connection.execute(text(_SIZE[kind])).scalar_one() or 0)
