"""The rows of ``kept_values``: small JSON values by name."""

import json
from typing import Any

from sqlalchemy import Connection, select

from clearway.store.tables import KEPT_VALUES


def value(connection: Connection, name: str) -> Any:
    """None when absent."""
    document = connection.execute(select(KEPT_VALUES.c.document).where(KEPT_VALUES.c.name == name)).scalar_one_or_none()
    return None if document is None else json.loads(document)
