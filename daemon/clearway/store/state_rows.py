"""What a cycle starts from, beside its open operations: one statement for all of it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from clearway.model.operations import Usage
from clearway.store.preemption_rows import usage_of, usage_queries
from clearway.store.rolling_rows import OPEN
from clearway.store.tables import KEPT_VALUES, REQUESTS, ROLLING_DRAINS


@dataclass(frozen=True, slots=True)
class Summary:
    """Small values by name, the cost of preemption so far, and whether there is more to read."""

    values: Mapping[str, Any]
    usage: Usage
    has_requests: bool
    has_rolling_drains: bool


def read_summary(connection: Connection, since: datetime, names: Sequence[str]) -> Summary:
    """One row of scalar subqueries: tables that are empty, as they mostly are, are then not asked again."""
    documents = [select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == name).scalar_subquery() for name in names]
    row = connection.execute(
        select(
            *usage_queries(since),
            select(REQUESTS.c.request_id).where(REQUESTS.c.handled_at.is_(None)).exists(),
            select(ROLLING_DRAINS.c.rolling_id).where(ROLLING_DRAINS.c.state.in_(OPEN)).exists(),
            *documents,
        )
    ).one()
    jobs, lost_node_s, has_requests, has_rolling, *found = row
    return Summary(
        {name: json.loads(document) for name, document in zip(names, found, strict=True) if document is not None},
        usage_of(jobs, lost_node_s),
        bool(has_requests),
        bool(has_rolling),
    )
