"""Which cluster a database belongs to. Job ids of two clusters are alike and mean other jobs."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from clearway.model.audit import Audited, AuditKind
from clearway.model.records import CLUSTER
from clearway.model.site import ClusterIdentity
from clearway.store import request_rows
from clearway.store.backup import refuse
from clearway.store.database import Database
from clearway.store.migrate import alone


def identity_of(kept: Any) -> ClusterIdentity | None:
    """As the value was stored; None: the database belongs to no cluster yet."""
    return None if kept is None else ClusterIdentity(kept["name"], kept["state"], tuple(kept["hosts"]))


def stored(identity: ClusterIdentity) -> dict[str, Any]:
    return asdict(identity) | {"hosts": list(identity.hosts)}


def stranger(owner: ClusterIdentity | None, seen: ClusterIdentity | None) -> str:
    """Why this cluster must not use a database of that owner, one line; empty: it may, or one of them is not known."""
    if owner is None or seen is None or owner.is_same(seen):
        return ""
    remedy = "give each cluster a database of its own (store.url); after a renaming or a move: clearway adopt"
    return f"the database belongs to {owner}, and Slurm here is {seen}: {remedy}"


def adopt(
    database: Database, seen: ClusterIdentity, now: datetime, *, actor: str, force: bool
) -> ClusterIdentity | None:
    """Give the database to this cluster; returns whose it was.

    Raises ``StoreError``: a daemon leads, or, without ``force``, operations have not ended.
    """
    with alone(database) as connection:
        refuse(connection, now, force=force)
        return _give(connection, seen, now, actor)


def _give(connection: Connection, seen: ClusterIdentity, now: datetime, actor: str) -> ClusterIdentity | None:
    owner = identity_of(request_rows.kept_value(connection, CLUSTER))
    request_rows.keep_value(connection, CLUSTER, stored(seen))
    about = {"to": str(seen), "from": "" if owner is None else str(owner)}
    request_rows.audit(connection, Audited(at=now, actor=actor, kind=AuditKind.ADOPTED, about=about))
    return owner
