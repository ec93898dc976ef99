"""Keeps the promises beside the calendar file: made and withdrawn until they begin, changed until nodes are held.

Each promise knows its event (``PromiseOrder.event``), so that the daemon may die between any two of them: the next look
finds what is left to do. A file that cannot be used or is older than one before, or an event that is not understood,
changes nothing (``CalendarMemory``).

A file is not understood within a cycle: that may take seconds. It is given to a reader, and what is done by its answer
is done in a later cycle. Each promise that is made, changed or withdrawn is a commit: of a thousand, each cycle does
what a fifth of a second is enough for.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from clearway.config.configuration import PromisesConfig
from clearway.config.plugins import how_to_install
from clearway.config.trusted_files import read_trusted
from clearway.execution.cycle_context import CycleContext
from clearway.execution.executor import Executor
from clearway.execution.open_operations import OpenOperations
from clearway.model.errors import ConfigError, RequestError
from clearway.model.events import CalendarRead, Emit
from clearway.model.operations import EvictionState, OperationKind, Promise
from clearway.model.orders import PromiseOrder
from clearway.model.outcome import Outcome, OutcomeCode
from clearway.promise.calendar import MOST_PROMISES, CalendarContents, Version, uid_of
from clearway.promise.calendar_reader import WAITS_S, CalendarReader
from clearway.promise.controller import ENDING, PromiseController, partition_of
from clearway.promise.request import PromiseRequest
from clearway.store.repository import Store

AGAIN = timedelta(minutes=10)  # a file that has not changed is looked at again: time goes on, and room may have come
ACTOR = "clearway"
CALENDAR = "calendar"  # the name of the value in the store
_LARGEST = 1024 * 1024  # bytes
_MOST_HOSTS = 8  # containers may have a new name each time
_CYCLE_S = 0.2  # for what is done by an answer
_GONE = "Its event is in the calendar no more"
_NEVER = datetime.min.replace(tzinfo=UTC)


class _NoTimeLeft(Exception):  # noqa: N818 - the next cycle does the rest
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFile:
    contents: CalendarContents
    modified: datetime  # when the file was last written; a time to come counts as now
    digest: str  # SHA-256 of its text
    until: datetime  # up to when its events were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a reader was given, and at which time: its answer holds for no other text, and for no other time."""

    file: Path
    seen: tuple[int, ...]  # its stamp, from before it was taken
    digest: str
    now: datetime
    until: datetime

    def outdated(self, now: datetime) -> bool:
        """Whether its answer is of no use any more. Raises ``ConfigError``: the file cannot be taken."""
        if not self.now <= now <= self.now + AGAIN:
            return True
        return stamp(self.file) != self.seen and _taken(self.file)[1] != self.digest

    def answer(self, reader: CalendarReader) -> CalendarFile | None:
        """None: there is none yet. Raises ``ConfigError``, one line that names the file, where it cannot be used."""
        try:
            contents = reader.answer()
        except ConfigError as error:
            raise ConfigError(f"{self.file}: {error}") from None
        if contents is None:
            return None
        written = datetime.fromtimestamp(self.seen[0] / 1e9, UTC) if self.seen else self.now
        return CalendarFile(contents=contents, modified=min(written, self.now), digest=self.digest, until=self.until)


def begin(file: Path, config: PromisesConfig, now: datetime, reader: CalendarReader) -> Look:
    """Raises ``ConfigError``, one line that names the file, where it cannot be taken."""
    seen = stamp(file)  # before it is read: a file that is replaced meanwhile counts as older than it is, for one look
    text, digest = _taken(file)
    if find_spec("icalendar") is None:
        raise ConfigError(f"{file}: promises.calendar needs icalendar: {how_to_install('calendar')}")
    try:
        reader.begin(text, now, config.calendar_ahead)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
    until = now + timedelta(seconds=config.calendar_ahead)
    return Look(file=file, seen=seen, digest=digest, now=now, until=until)


def read_file(file: Path, config: PromisesConfig, now: datetime) -> CalendarFile:
    """For those who wait, some seconds at most. Raises ``ConfigError``, one line that names the file."""
    reader = CalendarReader(WAITS_S)
    try:
        found = begin(file, config, now, reader).answer(reader)
    finally:
        reader.close()
    if found is None:
        raise ConfigError(f"{file}: there is no answer from its reader")
    return found


def stamp(file: Path) -> tuple[int, ...]:
    """Another one where the file is another; empty where there is none."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _taken(file: Path) -> tuple[str, str]:
    """Its text, without the mark of its encoding that some programs begin it with, and the digest of that."""
    text = read_trusted(file, "the calendar", secret=False, folders=True, largest=_LARGEST, encoding="utf-8")
    text = text.removeprefix("\ufeff")
    return text, sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarMemory:
    """What is remembered of the calendar, so that an older copy of it takes nothing back.

    Two hosts that take turns may have different files, and a file may be put back from a backup. So the database keeps
    when the newest file that was followed was written, the newest version of each event, and which host's file has had
    which events. Older files and older versions change nothing. What a file lacks withdraws a promise only on a host
    whose file has had it: then it was taken out.
    """

    modified: datetime = _NEVER  # of the newest file that was followed
    digest: str = ""
    host: str = ""  # that followed it
    versions: Mapping[str, Version] = field(default_factory=dict)  # the newest, by the key of the event
    had: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by host: UIDs that its file has had

    @classmethod
    def of(cls, stored: Any) -> Self:
        """``stored``: what the store has by the name of ``CALENDAR``, None included."""
        return cls() if stored is None else TypeAdapter(cls).validate_python(stored)

    def stored(self) -> dict[str, object]:
        return asdict(self) | {"modified": self.modified.isoformat()}

    def why_older(self, file: CalendarFile) -> str:
        """Half a sentence; empty where the file is the newest that is known."""
        if file.digest == self.digest or file.modified >= self.modified:
            return ""
        when = f"{_shown(file.modified)}, not {_shown(self.modified)}"
        return f"is older than the one that was followed on {self.host} ({when})"

    def outdated(self, file: CalendarFile) -> frozenset[str]:
        """UIDs of events of which the file has an older version than was followed before."""
        versions = file.contents.versions
        return frozenset(
            uid_of(key) for key, known in self.versions.items() if key in versions and _older(versions[key], known)
        )

    def after(self, file: CalendarFile, host: str, followed: Collection[str]) -> Self:
        """``followed``: UIDs of events that are promised or asked for; no others are remembered."""
        versions = {key: known for key, known in self.versions.items() if uid_of(key) in followed}
        for key, version in file.contents.versions.items():
            if uid_of(key) in followed and not (key in versions and _older(version, versions[key])):
                versions[key] = version
        own = tuple(sorted({*self.had.get(host, ()), *file.contents.uids} & set(followed)))
        others = [(name, uids) for name, uids in self.had.items() if name != host]
        return replace(
            self,
            modified=max(self.modified, file.modified),
            digest=file.digest,
            host=host,
            versions=versions,
            had=dict([*others[1 - _MOST_HOSTS :], (host, own)]),
        )


def _older(version: Version, known: Version) -> bool:
    """By its SEQUENCE, then by its LAST-MODIFIED where both have one."""
    if version[0] != known[0]:
        return version[0] < known[0]
    return bool(version[1] and known[1]) and version[1] < known[1]


def _shown(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


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
            if self._look is None or self._look.outdated(now):
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
        complaints = [*read.contents.complaints, *self._withdraw(held, read, memory, context)]
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
        self, held: dict[str, Promise], read: CalendarFile, memory: CalendarMemory, context: CycleContext
    ) -> list[str]:
        """First of all: the nodes may be wanted for another event. What stays, as the file is older or another one."""
        outdated, had = memory.outdated(read), memory.had.get(self.host, ())
        why = "an older version than was followed before; what is promised for it stays"
        strange = [f"event of UID {uid}: {why}" for uid in sorted(outdated)]
        for key, e in held.items():
            uid = uid_of(key)
            if key in read.contents.wanted or uid in read.contents.unclear | outdated:
                continue
            if e.order.until <= context.now or e.order.at > read.until or e.state in ENDING:
                continue  # ``calendar_ahead`` may have been longer when it was made
            if uid not in read.contents.uids and uid not in had:
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
        """Whether anything was done. Raises ``RequestError``."""
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
            asked = f"{order.nodes} nodes from {order.at:%Y-%m-%d %H:%M} to {order.until:%Y-%m-%d %H:%M} UTC"
            what = f"Its event in the calendar has changed ({asked}), but nodes are held already"
            self._tell(held, what, context.now)
        return True

    def _look_at_clock(self) -> None:
        """After something was done, so that each cycle comes further."""
        if self.monotonic() >= self._ends_s:
            raise _NoTimeLeft

    def _tell(self, e: Promise, what: str, now: datetime) -> None:
        """Once, of a promise that stays as it is."""
        text = f"{what}: it stays as it is ({_to_cancel(e)})."
        if all(step.detail != text for step in self.store.steps(e.eviction_id)):
            self.store.add_event(e.eviction_id, None, now, text)

    def _ended(self) -> dict[str, PromiseOrder]:
        """What is over or cancelled, which is not promised again unless its event came back."""
        newest = self.store.evictions(kind=OperationKind.PROMISE, limit=2 * MOST_PROMISES)
        last = {e.order.event: e for e in reversed(newest) if isinstance(e, Promise) and e.order.event}
        return {event: e.order for event, e in last.items() if e.outcome_code is not OutcomeCode.WITHDRAWN}


def _to_cancel(e: Promise) -> str:
    return f"clearway promise --cancel {e.eviction_id}"
