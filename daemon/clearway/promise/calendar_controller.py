"""Keeps the promises beside the calendar file: made and withdrawn until they begin, changed until nodes are held.

Each promise knows its event (``PromiseOrder.event``), so that the daemon may die between any two of them: the next look
finds what is left to do. A file that cannot be used or is older than one before, or an event that is not understood,
changes nothing (``CalendarMemory``).

A file is not understood within a cycle: that may take seconds. It is given to a reader, and what is done by its answer
is done in a later cycle. Each promise that is made, changed or withdrawn is a commit: of a thousand, each cycle does
what a fifth of a second is enough for.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.model.errors import ConfigError, RequestError
from clearway.model.events import CalendarRead, Emit
from clearway.model.operations import EvictionState, OperationKind, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.promise.calendar import MOST_PROMISES, uid_of
from clearway.promise.calendar_file import CALENDAR, CalendarFile, CalendarMemory, Look, begin, stamp
from clearway.promise.calendar_reader import CalendarReader
from clearway.promise.controller import ENDING, PromiseController, partition_of
from clearway.promise.request import PromiseRequest
from clearway.store.repository import Store

AGAIN = timedelta(minutes=10)  # a file that has not changed is looked at again: time goes on, and room may have come
ACTOR = "clearway"
_CYCLE_S = 0.2  # for what is done by its answer
_GONE = "Its event is in the calendar no more"


class _NoTimeLeft(Exception):  # noqa: N818 - the next cycle does the rest
    pass


@dataclass(slots=True, kw_only=True)
class CalendarController:
    store: Store
    operations: OpenOperations
    executor: Executor
    promises: PromiseController
    reader: CalendarReader
    emit: Emit
    host: str  # whose file it is
    monotonic: Callable[[], float]
    _look: Look | None = field(default=None, init=False)  # whose answer is waited for, or followed
    _found: CalendarFile | None = field(default=None, init=False)  # the answer
    _ends_s: float = field(default=0.0, init=False)
    _seen: tuple[int, ...] | None = field(default=None, init=False)
    _again_at: datetime | None = field(default=None, init=False)

    def follow(self, context: CycleContext) -> None:
        """Look at the file where it has changed, or ten minutes have passed; do what it asks for once that is known."""
        file = context.config.promises.calendar
        if file is None or context.nothing_begun:
            return
        seen, now = stamp(file), context.now
        if self._look is None and seen == self._seen and self._again_at is not None and now < self._again_at:
            return
        try:
            if self._look is None or self._look.outdated(now, AGAIN):
                self._found = None
                self._look = begin(file, context.config.promises, now, self.reader)
            seen = self._look.seen
            self._found = self._found or self._look.answer(self.reader)
            if self._found is None:
                return
            self._ends_s = self.monotonic() + _CYCLE_S
            complaints = self._follow(file, self._found, context)
        except _NoTimeLeft:
            return
        except ConfigError as error:
            complaints = [f"{error}; promises stay as they are"]
        self._look = self._found = None
        self.emit(CalendarRead(tuple(complaints)))
        self._seen, self._again_at = seen, now + AGAIN

    def _follow(self, file: Path, read: CalendarFile, context: CycleContext) -> list[str]:
        """What cannot be followed."""
        memory = CalendarMemory.of(self.store.get_value(CALENDAR))
        if older := memory.why_older(read):
            return [f"{file}: it {older}; promises stay as they are (if it is meant: touch {file})"]
        held = {e.order.event: e for e in self.operations.all() if isinstance(e, Promise) and e.order.event}
        known = memory.after(read, self.host, {uid_of(key) for key in (*held, *read.contents.wanted)})
        if known != memory:
            self.store.set_value(CALENDAR, known.stored())  # before anything is done by it
        outdated = memory.outdated(read)
        complaints = [*read.contents.complaints, *map(_outdated, sorted(outdated))]
        complaints += self._withdraw(held, read, outdated, memory, context)
        ended: dict[str, PromiseOrder] | None = None
        for key, wish in sorted(read.contents.wanted.items(), key=lambda each: (each[1].at, each[0])):
            context.alive()
            if uid_of(key) in outdated:
                continue
            if key not in held and ended is None:
                ended = self._ended()
                self._ends_s = self.monotonic() + _CYCLE_S  # that was long, and nothing was done
            try:
                if self._keep(key, wish, held.get(key), (ended or {}).get(key), context):
                    self._look_at_clock()
            except RequestError as error:
                complaints.append(f"event {wish.reason or 'without a summary'} (UID {key}): {error}")
        return complaints

    def _withdraw(
        self,
        held: dict[str, Promise],
        read: CalendarFile,
        outdated: frozenset[str],
        memory: CalendarMemory,
        context: CycleContext,
    ) -> list[str]:
        """First of all: the nodes may be wanted for another event. What stays because this host never had its event."""
        strange: list[str] = []
        for key, e in held.items():
            uid = uid_of(key)
            if key in read.contents.wanted or uid in read.contents.unclear | outdated:
                continue
            if e.order.until <= context.now or e.order.at > read.until or e.state in ENDING:
                continue  # ``calendar_ahead`` may have been longer when it was made
            if uid not in read.contents.uids and not memory.taken_out(uid, self.host, read):
                why = f"is for event {key}, which the file on {self.host} has never had"
                strange.append(f"promise {e.eviction_id} {why}: it stays ({_to_cancel(e)})")
            elif e.started_at is None:
                self.executor.cancel(e, context.now, Outcome(OutcomeCode.WITHDRAWN, _GONE))
                self._look_at_clock()
            else:
                self._tell(e, f"{_GONE}, but it has begun", context.now)
        return strange

    def _keep(
        self, key: str, wish: PromiseRequest, held: Promise | None, ended: PromiseOrder | None, context: CycleContext
    ) -> bool:
        """Whether anything was done. Raises ``RequestError`` where it cannot be promised."""
        order = wish.order(partition_of(wish, context.snapshot), ACTOR, event=key)
        if order == (ended if held is None else held.order):
            return False
        if held is None:
            wish.check_times(context.now)
            self.promises.make(order, context)
        elif held.state is EvictionState.SCHEDULED:
            wish.check_times(context.now)
            self.promises.change(held, order, context)
            self.store.add_event(held.eviction_id, None, context.now, "Its event in the calendar has changed.")
        elif held.state not in ENDING:
            what = f"Its event in the calendar has changed ({_shown(order)}), but nodes are held already"
            self._tell(held, what, context.now)
        return True

    def _look_at_clock(self) -> None:
        """After something was done, so that each cycle comes further. Raises ``_NoTimeLeft``."""
        if self.monotonic() >= self._ends_s:
            raise _NoTimeLeft

    def _tell(self, e: Promise, what: str, now: datetime) -> None:
        """Once, of a promise that stays as it is."""
        text = f"{what}: it stays as it is ({_to_cancel(e)})."
        if all(step.detail != text for step in self.store.steps(e.eviction_id)):
            self.store.add_event(e.eviction_id, None, now, text)

    def _ended(self) -> dict[str, PromiseOrder]:
        """What has been promised for events and is over or cancelled: that is not promised again.

        An event that comes back into the calendar is.
        """
        newest = self.store.evictions(kind=OperationKind.PROMISE, limit=2 * MOST_PROMISES)
        found: dict[str, PromiseOrder] = {}
        for e in reversed(newest):
            if not isinstance(e, Promise) or not e.order.event:
                continue
            if e.outcome_code is OutcomeCode.WITHDRAWN:
                found.pop(e.order.event, None)
            else:
                found[e.order.event] = e.order
        return found


def _to_cancel(e: Promise) -> str:
    return f"clearway promise --cancel {e.eviction_id}"


def _outdated(uid: str) -> str:
    return f"event of UID {uid}: an older version than was followed before; what is promised for it stays"


def _shown(order: PromiseOrder) -> str:
    return f"{order.nodes} nodes from {order.at:%Y-%m-%d %H:%M} to {order.until:%Y-%m-%d %H:%M} UTC"
