"""Whether a daemon leads, in which mode, and what waits: as the database has it, so that any machine can say it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from clearway.api import schemas as s
from clearway.api import views
from clearway.api.status_schemas import StatusView
from clearway.config.configuration import DaemonConfig
from clearway.execution.breaker import BREAKER
from clearway.execution.gate import Gate
from clearway.model.operations import Operation
from clearway.store.base import BACKEND, PAUSED, STATUS, Store

MOST_WAITING = 100


def read_status(
    store: Store, now: datetime, config: DaemonConfig, operations: Sequence[Operation] | None = None
) -> StatusView:
    """``now`` counts where the database has no clock of its own; ``operations``: the open ones, where they are known.

    Raises:
        StoreError: when the database does not answer.
    """
    now = store.server_time() or now
    kept: dict[str, Any] = store.get_value(STATUS) or {}
    beat, newest = store.sign_of_life(), next(iter(store.leaders(limit=1)), None)
    age_s = None if beat is None else max(0.0, (now - beat).total_seconds())
    # A lease that is over lets no daemon act, and one that lives renews it three times as often.
    leads = newest is not None and newest.ended is None and age_s is not None and age_s <= config.lease
    ended_at = None if newest is None or newest.ended_at is None else newest.ended_at
    found = store.open_evictions() if operations is None else operations
    return StatusView(
        running=leads,
        not_running_since=None if leads else ended_at or beat,
        mode=kept.get("mode"),
        leader=newest.owner if leads and newest is not None else None,
        last_heartbeat=beat,
        heartbeat_age_s=age_s,
        backend=store.get_value(BACKEND),
        backend_why=kept.get("backend_why", ""),
        slurm_version=kept.get("slurm_version", ""),
        only_observes=kept.get("only_observes", ""),
        paused=bool(store.get_value(PAUSED)),
        stopped=(store.get_value(BREAKER) or {}).get("stopped", ""),
        halted=Gate(store, config.halt_file).closed(),
        waiting_preemptors=kept.get("waiting_preemptors", 0),
        waiting=tuple(_waiting(each, now) for each in kept.get("waiting", ())),
        left_to_slurm=kept.get("left_to_slurm", {}),
        open_evictions=tuple(views.eviction_summary(each, s.EvictionSummary) for each in found),
        rolling_drains=tuple(views.view(s.RollingView, each, each.order) for each in store.open_rolling_drains()),
    )


def _waiting(kept: dict[str, Any], now: datetime) -> s.PreemptorView:
    left_s = (datetime.fromisoformat(kept["deadline"]) - now).total_seconds()
    return s.PreemptorView.model_validate(kept | {"left_s": left_s})
