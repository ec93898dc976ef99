"""The store on SQLAlchemy: SQLite by default, PostgreSQL or MariaDB through the URL.

One transaction a call, durable when it returns; the daemon's loop, the REST threads and other processes may use one
database at the same time. Nothing is remembered between calls but plans that were parsed already: they never change.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Generic

from sqlalchemy import Connection, Select, and_, bindparam, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from clearway.model.errors import StoreError, UnknownEvictionError
from clearway.model.notice import Notice
from clearway.model.operations import EvictionState, O, Operation, OperationKind
from clearway.model.orders import RollingDrain
from clearway.model.plan import OperationPlan
from clearway.model.records import CheckpointRecord, RestartRecord, StepLog, Usage
from clearway.model.requests import OperatorRequest
from clearway.store import eviction_rows, migrate, plan_rows, record_rows, request_rows, rows
from clearway.store.database import UtcDateTime, open_database
from clearway.store.lease_rows import LeasedStore, method
from clearway.store.record_rows import ALL_CASES, ALL_ROLLING, ALL_TESTS
from clearway.store.tables import EVICTIONS, KEPT_VALUES, PLANS, REQUESTS, ROLLING_DRAINS

_OPEN = [state for state in EvictionState if not state.terminal]
_MARK_BYTES = 6  # no user can guess it, and no other database has the same


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """What a cycle starts from; all of it as it was at one moment."""

    operations: tuple[Operation, ...]  # those that are open, by id
    rolling_drains: tuple[RollingDrain, ...]  # those that are open, by id
    requests: tuple[OperatorRequest, ...]  # those that are not handled yet, by id
    values: Mapping[str, Any]  # small values by name; one that was never stored is absent
    usage: Usage


@dataclass(frozen=True, slots=True)
class Judgement(Generic[O]):
    """How an operation shall be stored, by what preemption costs in the very transaction that stores it."""

    since: datetime  # from when costs count
    of: Callable[[Usage], O]


@lru_cache(maxsize=8)
def _cycle_query(names: tuple[str, ...]) -> Select[Any]:
    """See ``cycle_state``. To make the statement takes longer than to execute it."""
    return select(
        *eviction_rows.usage_queries(bindparam("usage_since", type_=UtcDateTime())),
        select(REQUESTS.c.request_id).where(REQUESTS.c.handled_at.is_(None)).exists(),
        select(ROLLING_DRAINS.c.rolling_id).where(ROLLING_DRAINS.c.state.in_(record_rows.OPEN_ROLLING)).exists(),
        *(select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == name).scalar_subquery() for name in names),
    )


class Store(LeasedStore):
    """What the daemon asks of its database. Opening it brings the schema up to date.

    Raises ``StoreError`` when the database cannot be used.

    What changes anything raises ``LeaseLostError``, and writes nothing, once this object was asked for the lease and
    does not hold it (any more); but for what ``anybody`` may write.

    Records that are kept for learning: the same one again replaces the first (and is not new: False), and those read
    are the newest of each key (a bounded number), newest first.

    ``own`` is the user to whom the jobs of others are not known: only what concerns that user is found.
    """

    def __init__(self, url: str) -> None:
        super().__init__(open_database(url))
        self._plans = plan_rows.PlanRows()
        self._versions: dict[int, int] = {}  # of open evictions, as the cycle has read or written them
        try:
            migrate.upgrade(self._database)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._database.engine.dispose()

    def create_eviction(
        self, eviction: O, judgement: Judgement[O] | None = None, tell: Callable[[O], Sequence[Notice]] | None = None
    ) -> O:
        """Store plan, problem, curve, reasons and preemptions; returns it with its id and mark.

        With a ``judgement`` it is stored as that has it: two plans cannot both count on the same rest of a budget.
        What ``tell`` says of the operation as stored must be told: it is stored in the same transaction.
        """
        with self._leading() as connection:
            if judgement is not None:
                eviction = judgement.of(eviction_rows.usage_since(connection, judgement.since))
            if not eviction.mark:
                eviction = replace(eviction, mark=secrets.token_hex(_MARK_BYTES))
            result = connection.execute(insert(EVICTIONS).values(rows.eviction_values(eviction)))
            eviction_id = rows.new_id(result)
            plan = self._plans.add(connection, eviction_id, eviction.revision, eviction.plan)
            eviction_rows.write_preemptions(connection, eviction_id, eviction.preemptions)
            created = replace(eviction, eviction_id=eviction_id)
            if tell is not None:
                record_rows.add_notices(connection, tell(created))
        self._plans.keep(plan)
        self._versions[eviction_id] = 0
        return created

    def save_eviction(
        self, eviction: Operation, notices: Sequence[Notice] = (), log: StepLog | None = None
    ) -> tuple[int, ...]:
        """Store where an eviction and its preemptions stand (added preemptions and a new plan included).

        ``notices`` must be told of it, and are stored in the same transaction; so is the ``log`` of its steps. Returns
        the ids of the steps that this begins, in their order.
        Raises ``StoreError`` for one that has ended, or that another writer has changed since ``cycle_state``.

        Writes only what differs from what is stored: after a step that is one row or two. A plan that is stored is
        never changed.
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
            written = eviction_rows.write_preemptions(connection, eviction_id, eviction.preemptions)
            record_rows.add_notices(connection, notices)
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
        """Raises ``UnknownEvictionError``."""
        with self._database.reading() as connection:
            found = self._operations(connection, select(EVICTIONS).where(EVICTIONS.c.eviction_id == eviction_id))
        if not found:
            raise UnknownEvictionError(f"no eviction {eviction_id}")
        return found[0]

    def open_evictions(self) -> tuple[Operation, ...]:
        """All that are not in a terminal state, by id."""
        with self._database.reading() as connection:
            return self._open_evictions(connection)

    def _open_evictions(self, connection: Connection) -> tuple[Operation, ...]:
        query = select(EVICTIONS).where(EVICTIONS.c.state.in_(_OPEN)).order_by(EVICTIONS.c.eviction_id)
        evictions = self._operations(connection, query, remember=True)
        self._plans.keep_only({(each.eviction_id, each.revision) for each in evictions})
        return evictions

    def cycle_state(self, usage_since: datetime, names: Sequence[str]) -> CycleState:
        """Everything that each cycle asks for, in one transaction; ``names`` are those of small values.

        Two statements while nothing is under way and no request waits; a transaction costs one more. The first is one
        row of scalar subqueries: tables that are empty, as they mostly are, are not asked again.
        """
        with self._database.reading() as connection:
            row = connection.execute(_cycle_query(tuple(names)), {"usage_since": usage_since}).one()
            usage, (has_requests, has_rolling, *documents) = row[:4], row[4:]
            found = zip(names, documents, strict=True)
            return CycleState(
                operations=self._open_evictions(connection),
                rolling_drains=record_rows.open_rolling_drains(connection) if has_rolling else (),
                requests=request_rows.pending_requests(connection) if has_requests else (),
                values={name: json.loads(document) for name, document in found if document is not None},
                usage=eviction_rows.usage_of(*usage),
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
        """Newest first; ``user``: those that serve a job of this user, or that such a job leaves for.

        ``job``: likewise of a job, by either form of its id.
        """
        query = select(EVICTIONS).order_by(EVICTIONS.c.eviction_id.desc()).limit(limit).offset(offset)
        if states is not None:
            query = query.where(EVICTIONS.c.state.in_(states))
        if kind is not None:
            query = query.where(EVICTIONS.c.kind == kind)
        query = query.where(*eviction_rows.concerning(user=user, job=job, own=own))
        with self._database.reading() as connection:
            return self._operations(connection, query)

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
        plans = self._plans.present(connection, found, remember=remember)
        preemptions = eviction_rows.preemptions(connection, [row.eviction_id for row in found])
        return tuple(rows.eviction_from(row, plans[row.eviction_id], preemptions[row.eviction_id]) for row in found)

    def plans(self, eviction_id: int) -> tuple[OperationPlan, ...]:
        with self._database.reading() as connection:
            return self._plans.of_eviction(connection, eviction_id)

    keep_loss = method(eviction_rows.keep_loss, writes=True)
    involvements = method(eviction_rows.involvements)
    successor = method(eviction_rows.successor)
    newest_begun = method(eviction_rows.newest_begun)
    forget_plans = method(eviction_rows.forget_plans, writes=True)
    explain_plan = method(plan_rows.write_explanation, writes=True)
    explanation = method(plan_rows.newest_explanation)
    explanations = method(plan_rows.newest_explanations)
    unexplained = method(plan_rows.unexplained)

    begin_step = method(eviction_rows.begin_step, writes=True)
    finish_step = method(eviction_rows.finish_step, writes=True)
    add_event = method(eviction_rows.add_event, writes=True)
    steps = method(eviction_rows.steps)

    # Requests and their answers are appended to the audit trail; ``audit_keeping`` is for standbys too.
    add_request = method(request_rows.add_request, writes=True, anybody=True)
    check_number = method(request_rows.check_number)
    pending_requests = method(request_rows.pending_requests)
    finish_request = method(request_rows.finish_request, writes=True)
    request = method(request_rows.request)
    halted_by = method(request_rows.halted_by)
    audit = method(request_rows.audit, writes=True, anybody=True)
    audit_keeping = method(request_rows.audit_keeping, writes=True, anybody=True)
    audit_trail = method(request_rows.audit_trail)
    check_audit = method(request_rows.check_audit)

    create_rolling_drain = method(ALL_ROLLING.add, writes=True)
    save_rolling_drain = method(ALL_ROLLING.save, writes=True)
    rolling_drain = method(ALL_ROLLING.find)
    open_rolling_drains = method(record_rows.open_rolling_drains)
    rolling_drains = method(record_rows.rolling_drains)

    # Tests of saving: the intent is stored first, then what has come of it.
    create_save_test = method(ALL_TESTS.add, writes=True)
    keep_save_test = method(ALL_TESTS.save, writes=True)
    save_test = method(ALL_TESTS.find)
    save_tests_since = method(record_rows.save_tests_since)
    save_tests_of = method(record_rows.save_tests_of)

    keep_case = method(ALL_CASES.keep, writes=True)
    open_cases = method(record_rows.open_cases)
    cases_since = method(record_rows.cases_since)

    # What preemption has cost.
    preemption_counts = method(eviction_rows.preemption_counts)
    usage_since = method(eviction_rows.usage_since)
    takings = method(eviction_rows.takings)
    loops = method(eviction_rows.loops)
    moved_since = method(eviction_rows.moved_since)

    # What must be told.
    add_notices = method(record_rows.add_notices, writes=True)
    notices_due = method(record_rows.notices_due)
    begin_notices = method(record_rows.begin_notices, writes=True)
    postpone_notices = method(record_rows.postpone_notices, writes=True)
    notices_said = method(record_rows.notices_said, writes=True)
    give_up_notices = method(record_rows.give_up_notices, writes=True)
    overdue_notices = method(record_rows.overdue_notices)
    messages_between = method(record_rows.messages_between)
    waiting_notices = method(record_rows.waiting_notices)
    prune_notices = method(record_rows.prune_notices, writes=True)

    # What is kept for learning.
    record_checkpoint = method(record_rows.record, writes=True)
    record_restart = method(record_rows.record, writes=True)
    record_runs = method(record_rows.record_runs, writes=True)
    checkpoint_history = method(partial(record_rows.newest_records, kind=CheckpointRecord))
    restart_history = method(partial(record_rows.newest_records, kind=RestartRecord))
    runs_of = method(record_rows.runs_of)
    requeued = method(eviction_rows.requeued)

    get_value = method(request_rows.kept_value)
    _set_value = method(request_rows.keep_value, writes=True)

    def set_value(self, key: str, value: object) -> None:
        """A small JSON value; see ``get_value``."""
        try:
            self._set_value(key, value)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            self._set_value(key, value)  # another process made the row in between: now there is one to update

    _note = method(request_rows.keep_value, writes=True, anybody=True)

    def try_to_write(self, at: datetime) -> None:
        """Raises ``StoreError`` where the database takes no write: it is locked, full, read-only or does not answer."""
        try:
            self._note("written", at.isoformat())
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise  # else another process made the row just then: it can be written

    prune_superseded = method(eviction_rows.prune_superseded, writes=True)
    _prune_ended = method(eviction_rows.prune_ended, writes=True)
    size_bytes = method(eviction_rows.size_bytes)

    def prune(self, before: datetime) -> int:
        """Delete what ended before then, with all that hangs on it, but nothing of the audit trail.

        Returns how many evictions went.
        """
        pruned = some = self._prune_ended(before)
        while some == eviction_rows.PRUNED_AT_ONCE:
            some = self._prune_ended(before)
            pruned += some
        with self._leading() as connection:
            connection.execute(delete(REQUESTS).where(REQUESTS.c.handled_at < before))
            record_rows.prune(connection, before)
        return pruned
