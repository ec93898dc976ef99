"""The rows of ``steps``: intents, what became of them, and events."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from clearway.model.errors import StoreError
from clearway.model.steps import EndedStep, NewStep, StepLog, StepRecord
from clearway.store import rows
from clearway.store.tables import STEPS

_EVENT = "event"


def write(connection: Connection, eviction_id: int, log: StepLog) -> tuple[int, ...]:
    """Store what the log says; returns the ids of the steps that it begins, in their order.

    Raises:
        StoreError: there is no such step.
    """
    for step in log.ended:
        _finish(connection, step, log.at)
    return _begin(connection, eviction_id, log.begun, log.at)


def _begin(connection: Connection, eviction_id: int, steps: Sequence[NewStep], at: datetime) -> tuple[int, ...]:
    if not steps:
        return ()
    values = [
        {
            "eviction_id": eviction_id,
            "job_id": step.job_id,
            "kind": step.kind,
            "intended_at": at,
            "finished_at": at if step.kind == _EVENT else None,
            "result": "ok" if step.kind == _EVENT else "",
            "detail": step.detail,
        }
        for step in steps
    ]
    statement = insert(STEPS).returning(STEPS.c.step_id, sort_by_parameter_order=True)
    return tuple(int(step_id) for step_id in connection.execute(statement, values).scalars())


def _finish(connection: Connection, step: EndedStep, at: datetime) -> None:
    values: dict[str, Any] = {"finished_at": at, "result": step.result}
    if step.detail:
        values["detail"] = step.detail
    done = connection.execute(update(STEPS).where(STEPS.c.step_id == step.step_id).values(values))
    if done.rowcount != 1:
        raise StoreError(f"no step {step.step_id}")


def begin(
    connection: Connection, eviction_id: int, job_id: str | None, kind: str, at: datetime, detail: str = ""
) -> int:
    return _begin(connection, eviction_id, [NewStep(job_id, kind, detail)], at)[0]


def finish(connection: Connection, step_id: int, at: datetime, result: str, detail: str = "") -> None:
    """An empty detail leaves what was said when the step began."""
    _finish(connection, EndedStep(step_id, result, detail), at)


def add_event(connection: Connection, eviction_id: int, job_id: str | None, at: datetime, detail: str) -> None:
    _begin(connection, eviction_id, [NewStep(job_id, _EVENT, detail)], at)


def of_eviction(connection: Connection, eviction_id: int) -> tuple[StepRecord, ...]:
    """In the order in which they began."""
    query = select(STEPS).where(STEPS.c.eviction_id == eviction_id).order_by(STEPS.c.step_id)
    return tuple(rows.record_from(StepRecord, row) for row in connection.execute(query))
