"""The store on SQLAlchemy: SQLite by default, PostgreSQL or MariaDB through the URL.

One transaction a call, durable when it returns; the daemon's loop, the REST threads and other processes may use one
database at the same time. Nothing is remembered between calls but plans that were parsed already: they never change.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from clearway.model.errors import StoreError, UnknownEvictionError
from clearway.model.notice import Notice
from clearway.model.operations import EvictionState, O, Operation, OperationKind
from clearway.model.plan import OperationPlan
from clearway.model.records import CheckpointRecord, RestartRecord, StepLog
from clearway.store import (
    document_rows,
    eviction_rows,
    history_rows,
    migrate,
    notice_rows,
    plan_rows,
    preemption_rows,
    request_rows,
    rows,
)
from clearway.store.base import CycleState, Judgement
from clearway.store.database import open_database
from clearway.store.lease_rows import LeasedStore, method
from clearway.store.plan_rows import PlanRows
from clearway.store.tables import EVICTIONS, KEPT_VALUES, PLANS, REQUESTS, ROLLING_DRAINS
from clearway.store.types import UtcDateTime

_OPEN = [state for state in EvictionState if not state.terminal]
_TERMINAL = [state for state in EvictionState if state.terminal]
_MARK_BYTES = 6  # no user can guess it, and no other database has the same


@lru_cache(maxsize=8)
def _cycle_query(names: tuple[str, ...]) -> Select[Any]:
    """See ``cycle_state``. To make the statement takes longer than to execute it."""
    return select(
        *preemption_rows.usage_queries(bindparam("usage_since", type_=UtcDateTime())),
        select(REQUESTS.c.request_id).where(REQUESTS.c.handled_at.is_(None)).exists(),
        select(ROLLING_DRAINS.c.rolling_id).where(ROLLING_DRAINS.c.state.in_(document_rows.OPEN_ROLLING)).exists(),
        *(select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == name).scalar_subquery() for name in names),
    )


class SqlStore(LeasedStore):
    """Implements ``store.base.Store``. Opening it brings the schema up to date."""

    def __init__(self, url: str) -> None:
        super().__init__(open_database(url))
        self._plans = PlanRows()
        self._versions: dict[int, int] = {}  # of open evictions, as the cycle has read or written them
        try:
            migrate.upgrade(self._database)
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where the data lies, without password: for logs and errors."""
        return self._database.shown_url

    def close(self) -> None:
        self._database.engine.dispose()

    # Evictions

    def create_eviction(
        self, eviction: O, judgement: Judgement[O] | None = None, tell: Callable[[O], Sequence[Notice]] | None = None
    ) -> O:
        with self._leading() as connection:
            if judgement is not None:
                eviction = judgement.of(preemption_rows.usage_since(connection, judgement.since))
            if not eviction.mark:
                eviction = replace(eviction, mark=secrets.token_hex(_MARK_BYTES))
            result = connection.execute(insert(EVICTIONS).values(rows.eviction_values(eviction)))
            eviction_id = rows.new_id(result)
            plan = self._plans.add(connection, eviction_id, eviction.revision, eviction.plan)
            preemption_rows.write(connection, eviction_id, eviction.preemptions)
            created = replace(eviction, eviction_id=eviction_id)
            if tell is not None:
                notice_rows.add(connection, tell(created))
        self._plans.keep(plan)
        self._versions[eviction_id] = 0
        return created

    def save_eviction(
        self, eviction: Operation, notices: Sequence[Notice] = (), log: StepLog | None = None
    ) -> tuple[int, ...]:
        """Writes only what differs from what is stored: after a step that is one row or two.

        Stores the plan of a new revision; a plan that is stored is never changed, nor is an eviction that has ended.
        """
        eviction_id, revision = eviction.eviction_id, eviction.revision
        plan = and_(PLANS.c.eviction_id == EVICTIONS.c.eviction_id, PLANS.c.revision == revision)
        query = select(EVICTIONS, PLANS.c.made_at).outerjoin(PLANS, plan).where(EVICTIONS.c.eviction_id == eviction_id)
        with self._leading() as connection:
            stored = connection.execute(query).one_or_none()
            if stored is None:
                raise UnknownEvictionError(f"no eviction {eviction_id}")
            if self._versions.get(eviction_id, stored.version) != stored.version:
                raise StoreError(f"eviction {eviction_id} was changed by another writer meanwhile")
            if stored.made_at is not None and stored.made_at != eviction.plan.made_at:
                raise StoreError(
                    f"eviction {eviction_id} has another plan of revision {revision}: "
                    "a plan made anew needs a new revision"
                )
            changes = rows.changed(rows.eviction_values(eviction), stored)
            if stored.made_at is None:
                self._plans.add(connection, eviction_id, revision, eviction.plan)
            written = preemption_rows.write(connection, eviction_id, eviction.preemptions)
            notice_rows.add(connection, notices)
            begun = () if log is None else eviction_rows.write_steps(connection, eviction_id, log)
            if not changes and not written:
                return begun
            if stored.state.terminal:
                raise StoreError(f"eviction {eviction_id} is {stored.state.value}: what has ended is not changed")
            same = and_(EVICTIONS.c.eviction_id == eviction_id, EVICTIONS.c.version == stored.version)
            changes["version"] = stored.version + 1
            if connection.execute(update(EVICTIONS).where(same).values(changes)).rowcount != 1:
                raise StoreError(f"eviction {eviction_id} was changed by another writer just now")
        self._versions[eviction_id] = stored.version + 1
        return begun

    def eviction(self, eviction_id: int) -> Operation:
        with self._database.reading() as connection:
            found = self._operations(connection, select(EVICTIONS).where(EVICTIONS.c.eviction_id == eviction_id))
        if not found:
            raise UnknownEvictionError(f"no eviction {eviction_id}")
        return found[0]

    def open_evictions(self) -> tuple[Operation, ...]:
        with self._database.reading() as connection:
            return self._open_evictions(connection)

    def _open_evictions(self, connection: Connection) -> tuple[Operation, ...]:
        query = select(EVICTIONS).where(EVICTIONS.c.state.in_(_OPEN)).order_by(EVICTIONS.c.eviction_id)
        evictions = self._operations(connection, query, remember=True)
        self._plans.keep_only({(each.eviction_id, each.revision) for each in evictions})
        return evictions

    def cycle_state(self, usage_since: datetime, names: Sequence[str]) -> CycleState:
        """Two statements while nothing is under way and no request waits; a transaction costs one more.

        The first is one row of scalar subqueries: tables that are empty, as they mostly are, are not asked again.
        """
        with self._database.reading() as connection:
            row = connection.execute(_cycle_query(tuple(names)), {"usage_since": usage_since}).one()
            usage, (has_requests, has_rolling, *documents) = row[:4], row[4:]
            found = zip(names, documents, strict=True)
            return CycleState(
                operations=self._open_evictions(connection),
                rolling_drains=document_rows.open_rolling(connection) if has_rolling else (),
                requests=request_rows.pending(connection) if has_requests else (),
                values={name: json.loads(document) for name, document in found if document is not None},
                usage=preemption_rows.usage_of(*usage),
            )

    def evictions(
        self,
        *,
        states: Sequence[EvictionState] | None = None,
        kind: OperationKind | None = None,
        user: str | None = None,
        job: str | None = None,
        own: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[Operation, ...]:
        query = select(EVICTIONS).order_by(EVICTIONS.c.eviction_id.desc()).limit(limit).offset(offset)
        if states is not None:
            query = query.where(EVICTIONS.c.state.in_(states))
        if kind is not None:
            query = query.where(EVICTIONS.c.kind == kind)
        query = query.where(*preemption_rows.concerning(user=user, job=job, own=own))
        with self._database.reading() as connection:
            return self._operations(connection, query)

    involvements = method(preemption_rows.involvements)

    def plans(self, eviction_id: int) -> tuple[OperationPlan, ...]:
        with self._database.reading() as connection:
            return self._plans.of_eviction(connection, eviction_id)

    successor = method(eviction_rows.successor)
    forget_plans = method(eviction_rows.forget_plans, writes=True)
    explain_plan = method(plan_rows.write_explanation, writes=True)
    explanation = method(plan_rows.newest_explanation)
    explanations = method(plan_rows.newest_explanations)
    unexplained = method(plan_rows.unexplained)

    def _operations(
        self, connection: Connection, query: Select[Any], *, remember: bool = False
    ) -> tuple[Operation, ...]:
        """Those that a query for rows of evictions finds, each with its plan and preemptions.

        ``remember``: plans are taken from memory and kept there, and rows must not be changed by others from now on.
        """
        found = connection.execute(query).all()
        if remember:
            self._versions = {row.eviction_id: row.version for row in found}
        if not found:
            return ()
        plans = {
            row.eviction_id: plan
            for row in found
            if remember and (plan := self._plans.known(row.eviction_id, row.revision)) is not None
        }
        missing = {row.eviction_id: row.kind for row in found if row.eviction_id not in plans}
        if missing:
            plans |= self._plans.read(connection, missing, remember=remember)
        for row in found:
            if row.eviction_id not in plans:
                raise StoreError(f"eviction {row.eviction_id} has no stored plan of revision {row.revision}")
        preemptions = preemption_rows.read(connection, [row.eviction_id for row in found])
        return tuple(rows.eviction_from(row, plans[row.eviction_id], preemptions[row.eviction_id]) for row in found)

    # Steps

    begin_step = method(eviction_rows.begin_step, writes=True)
    finish_step = method(eviction_rows.finish_step, writes=True)
    add_event = method(eviction_rows.add_event, writes=True)
    steps = method(eviction_rows.steps)

    # Requests

    add_request = method(request_rows.add, writes=True, anybody=True)
    pending_requests = method(request_rows.pending)
    finish_request = method(request_rows.finish, writes=True)
    request = method(request_rows.find)

    # The audit trail

    audit = method(request_rows.audit, writes=True, anybody=True)
    audit_keeping = method(request_rows.audit_keeping, writes=True, anybody=True)
    audit_trail = method(request_rows.audit_trail)
    check_audit = method(request_rows.check_audit)

    create_rolling_drain = method(document_rows.ALL_ROLLING.add, writes=True)
    save_rolling_drain = method(document_rows.ALL_ROLLING.save, writes=True)
    rolling_drain = method(document_rows.ALL_ROLLING.find)
    open_rolling_drains = method(document_rows.open_rolling)
    rolling_drains = method(document_rows.newest_rolling)

    create_save_test = method(document_rows.ALL_TESTS.add, writes=True)
    keep_save_test = method(document_rows.ALL_TESTS.save, writes=True)
    save_test = method(document_rows.ALL_TESTS.find)
    save_tests_since = method(document_rows.save_tests_since)
    save_tests_of = method(document_rows.save_tests_of)

    keep_case = method(document_rows.ALL_CASES.keep, writes=True)
    open_cases = method(document_rows.open_cases)
    cases_since = method(document_rows.cases_since)

    # What preemption has cost so far

    preemption_counts = method(preemption_rows.counts)
    usage_since = method(preemption_rows.usage_since)
    takings = method(preemption_rows.takings)
    loops = method(preemption_rows.loops)
    moved_since = method(preemption_rows.moved_since)

    # What must be told

    add_notices = method(notice_rows.add, writes=True)
    notices_due = method(notice_rows.due)
    begin_notices = method(notice_rows.begin, writes=True)
    postpone_notices = method(notice_rows.postpone, writes=True)
    notices_said = method(notice_rows.said, writes=True)
    give_up_notices = method(notice_rows.give_up, writes=True)
    overdue_notices = method(notice_rows.overdue)
    messages_between = method(notice_rows.messages_between)
    waiting_notices = method(notice_rows.waiting)
    prune_notices = method(notice_rows.prune, writes=True)

    # What was learned

    record_checkpoint = method(history_rows.write, writes=True)
    record_restart = method(history_rows.write, writes=True)
    record_runs = method(history_rows.write_runs, writes=True)
    checkpoint_history = method(partial(history_rows.newest, kind=CheckpointRecord))
    restart_history = method(partial(history_rows.newest, kind=RestartRecord))
    runs_of = method(history_rows.read_runs)
    requeued = method(preemption_rows.requeued)

    # Small values

    get_value = method(request_rows.kept_value)
    halted_by = method(request_rows.halted_by)

    def set_value(self, key: str, value: object) -> None:
        with self._database.errors():
            document = json.dumps(value, allow_nan=False)
        try:
            self._set_document(key, document)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            self._set_document(key, document)  # another process made the row in between: now there is one to update

    def _set_document(self, key: str, document: str) -> None:
        with self._leading() as connection:
            query = update(KEPT_VALUES).where(KEPT_VALUES.c.name == key).values(document=document)
            if connection.execute(query).rowcount == 0:
                connection.execute(insert(KEPT_VALUES).values(name=key, document=document))

    # Retention

    prune_superseded = method(eviction_rows.prune_superseded, writes=True)
    size_bytes = method(eviction_rows.size_bytes)

    def prune(self, before: datetime) -> int:
        finished = func.coalesce(EVICTIONS.c.finished_at, EVICTIONS.c.state_since)
        old = (
            select(EVICTIONS.c.eviction_id)
            .where(EVICTIONS.c.state.in_(_TERMINAL), finished < before)
            .limit(eviction_rows.PRUNED_AT_ONCE)
        )
        pruned = 0
        while True:
            with self._leading() as connection:
                ids = connection.execute(old).scalars().all()
                eviction_rows.forget(connection, ids)
            pruned += len(ids)
            if len(ids) < eviction_rows.PRUNED_AT_ONCE:
                break
        with self._leading() as connection:
            connection.execute(delete(REQUESTS).where(REQUESTS.c.handled_at < before))
            history_rows.prune(connection, before)
            for each in (document_rows.ALL_ROLLING, document_rows.ALL_TESTS, document_rows.ALL_CASES):
                each.prune(connection, before)
        return pruned
