"""``clearway drain``: what it says, to the loop and to people."""

from __future__ import annotations

import os
import pwd
import time
from datetime import UTC, datetime, timedelta

from clearway.bootstrap import checkpointer_actions, open_backend, open_planner
from clearway.config.configuration import Config
from clearway.drain.plan import plan_drain
from clearway.drain.request import DrainRequest
from clearway.drain.rolling import Preview, preview
from clearway.drain.selection import chosen_nodes
from clearway.eligibility.under_way import under_way_by
from clearway.execution.node_hold import not_ours_to_drain
from clearway.model.clock import SystemClock
from clearway.model.cluster import ClusterSnapshot
from clearway.model.durations import parse_duration_s
from clearway.model.errors import DrainError
from clearway.model.operations import Operation
from clearway.model.orders import DrainOrder
from clearway.model.plan import DrainPlan, NoPlan
from clearway.model.rolling import RollingDrain
from clearway.store.base import Store
from clearway.telemetry.log import configure_logging

_POLL_S = 0.5


def actor() -> str:
    """Who runs this: by the process itself, which nobody can set, and only with root's rights by what sudo says."""
    user = _user_name(os.getuid())
    behind = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    return f"{user} (command line{f', sudo by {behind}' if behind else ''})"


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def point_in_time(text: str, now: datetime) -> datetime:
    """``30m`` from now on, ``18:30`` (the next one here) or ``2026-03-01T18:30``.

    Raises:
        ValueError: it is none of these.
    """
    try:
        return now + timedelta(seconds=parse_duration_s(text))
    except ValueError:
        pass
    try:
        clock = datetime.strptime(text, "%H:%M")  # noqa: DTZ007 - a time of this machine's day
    except ValueError:
        clock = None
    try:
        if clock is None:
            found = datetime.fromisoformat(text)
            return (found if found.tzinfo is not None else found.astimezone()).astimezone(UTC)
    except ValueError:
        raise ValueError(f"must be a duration (30m), a time (18:30) or a date, not {text[:40]!r}") from None
    today = now.astimezone().replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
    return (today if today > now else today + timedelta(days=1)).astimezone(UTC)


def dry_run(config: Config, store: Store, wish: DrainRequest) -> DrainPlan | NoPlan:
    """The daemon's own decision on a fresh snapshot, and nothing done."""
    wish.check_times(datetime.now(UTC))
    snapshot = _fresh(config)
    order = wish.order(chosen_nodes(wish.nodes, snapshot), actor())
    why = not_ours_to_drain(order.nodes, snapshot)
    if why:
        raise DrainError(why)
    return _decide(order, snapshot, config, store)


def dry_run_rolling(config: Config, store: Store, wish: DrainRequest) -> Preview:
    """The batches, if the cluster stayed as it is."""
    wish.check_times(datetime.now(UTC))
    snapshot = _fresh(config)
    order = wish.order(chosen_nodes(wish.nodes, snapshot), actor())
    return preview(order, wish.rolling or 1, snapshot, lambda each: _decide(each, snapshot, config, store))


def _fresh(config: Config) -> ClusterSnapshot:
    configure_logging("text", quiet=True)  # standard output is for the answer alone
    backend = open_backend(config, SystemClock())
    try:
        return backend.snapshot()
    finally:
        backend.close()


def _decide(order: DrainOrder, snapshot: ClusterSnapshot, config: Config, store: Store) -> DrainPlan | NoPlan:
    return plan_drain(
        order,
        snapshot,
        config,
        open_planner(config),
        snapshot.taken_at,
        under_way=under_way_by(store.open_evictions()),
        actions=checkpointer_actions(),
    )


def wait_until_empty(store: Store, eviction_id: int) -> Operation:
    """The drain when its nodes are empty, or when it has ended without."""
    while True:
        eviction = store.eviction(eviction_id)
        if eviction.started_at is not None or eviction.state.terminal:
            return eviction
        time.sleep(_POLL_S)


def wait_until_over(store: Store, rolling_id: int) -> RollingDrain:
    """The rolling drain when the turn of its last node is over, or when it was cancelled."""
    while True:
        rolling = store.rolling_drain(rolling_id)
        if rolling is None:
            raise DrainError(f"no rolling drain {rolling_id}")
        if rolling.state.terminal:
            return rolling
        time.sleep(_POLL_S)
