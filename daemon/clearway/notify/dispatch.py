"""The outbox: what is put into it, and what says what it holds.

The cycle only stores notices, in the transaction of the change that they tell of. A thread for each channel says them,
so that a receiver that is down delays no other, and no cycle.

Each notice is said at least once, and seldom twice: that it is about to be said is stored before (only the daemon that
leads can), and that it was said afterwards. After a crash in between it is said again under the same ``id``. Failures
are tried again later and later, until ``notify.give_up_after``; where the clock was set back, at once.

Several notices for one user that wait at the same time go into one message. Beyond ``notify.messages_per_hour`` they
wait, for ``notify.digest_every`` at most, and are put together.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from clearway.config.notify import NotifyConfig
from clearway.execution.restraints import EVERYBODY, UserPause
from clearway.model.clock import Clock
from clearway.model.errors import ClearwayError, CycleEndedError, HaltedError, LeaseLostError
from clearway.model.notice import ABOUT_JOBS, Channel, Notice, NoticeKind, Waiting
from clearway.model.operations import Operation
from clearway.notify.changes import notices_of, operators_notices, shown_time
from clearway.notify.sending import NotYetError, Sender, UndeliverableError, UndeliveredError, UnwantedError
from clearway.store.repository import Store
from clearway.telemetry.families import Families
from clearway.telemetry.log import get_logger

ON_THE_JOB = frozenset({Channel.COMMENT, Channel.OUTPUT})  # commands to Slurm, one for each notice
_AT_ONCE = 200  # notices of a round
_LOOK_EVERY_S = 5.0
_SOONEST, _LATEST = timedelta(seconds=5), timedelta(minutes=15)  # between two attempts
_NOT_YET = timedelta(seconds=1)
_NOT_YET_TIMES = 30
_LEAST_TIMES = 3  # it is tried, however old it is: a clock that was set forward makes everything old
_HOUR = timedelta(hours=1)
_LAST_S = 5.0
_NONE_WAIT = Waiting(0, None)


class Bell:
    """Wakes every thread that waits for it; one that was not waiting just then does not miss it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._rung = 0

    def ring(self) -> None:
        with self._changed:
            self._rung += 1
            self._changed.notify_all()

    def wait(self, heard: int, timeout_s: float) -> int:
        """Until it was rung more than ``heard`` times, or the time is over; how often it was rung by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._rung > heard, timeout_s)
            return self._rung


class Outbox:
    """Implements ``execution.open_operations.Outbox`` under one configuration: the notices that it has switched on."""

    def __init__(self, config: NotifyConfig, store: Store, bell: Bell) -> None:
        webhook, slack, mail = config.webhook, config.slack, config.mail
        by_webhook, by_slack = webhook.url_file is not None, slack.url_file is not None
        self._wanted = {  # of what is about jobs, and of what is for operators
            Channel.WEBHOOK: (by_webhook and webhook.owners, by_webhook and webhook.operators),
            Channel.SLACK: (by_slack and slack.owners, by_slack and slack.operators),
            Channel.MAIL: (mail.on and mail.owners != "none", mail.on and bool(mail.operators)),
            Channel.COMMENT: (config.comment, False),
            Channel.OUTPUT: (config.job_output, False),
        }
        self._any = any(map(any, self._wanted.values()))
        self._store = store
        self._bell = bell

    def notices(
        self, before: Operation | None, after: Operation, given: AbstractSet[str], now: datetime
    ) -> Sequence[Notice]:
        return self._those_wanted(notices_of(before, after, given, now)) if self._any else ()

    def stored(self) -> None:
        self._bell.ring()

    def loop_found(self, user: str, pause: UserPause, now: datetime) -> None:
        """Operators are told of it; while it lasts it is found again, and told once."""
        facts = {"until": shown_time(pause.until), "what": "all users" if user == EVERYBODY else user}
        key = f"loop {user[:100]} {pause.until:%Y%m%d}: {pause.why}"[:250]
        self._tell_operators(NoticeKind.LOOP, key, {"why": pause.why, **facts}, now)

    def stopped(self, why: str, now: datetime) -> None:
        """Operators are told that nothing is begun any more."""
        self._tell_operators(NoticeKind.STOPPED, f"stopped {now:%Y%m%dT%H%M%S}", {"why": why}, now)

    def _tell_operators(self, kind: NoticeKind, key: str, facts: Mapping[str, str], now: datetime) -> None:
        found = self._those_wanted(operators_notices(kind, key, {**facts, "at": shown_time(now)}, now))
        if found and self._store.add_notices(found):
            self._bell.ring()

    def _those_wanted(self, notices: Iterator[Notice]) -> tuple[Notice, ...]:
        return tuple(each for each in notices if self._wanted[each.channel][each.kind not in ABOUT_JOBS])


class Leader(Protocol):
    """As ``service.leadership`` has it. Any thread may ask."""

    closed: Callable[[], str]  # why no command may be given to Slurm now; "" where one may

    @property
    def leads(self) -> bool: ...

    @property
    def observes(self) -> bool: ...


class NotesFence:
    """Implements ``slurm.base.Fence`` for words on jobs: another daemon's words must not be written over."""

    def __init__(self, leader: Leader, limit_s: float) -> None:
        self._leader = leader
        self._limit_s = limit_s

    def keep(self) -> None:
        """The loop renews the lease."""

    def command_limit_s(self) -> float:
        if why := self._leader.closed():
            raise HaltedError(why)
        if not self._leader.leads or self._leader.observes:
            raise LeaseLostError("this daemon does not hold the lease, or has only just taken it over")
        return self._limit_s


class Courier:
    """Says what is due on one channel. ``round`` is one look at the outbox; ``run`` repeats it."""

    def __init__(self, channel: Channel, store: Store, clock: Clock, metrics: Families, leader: Leader) -> None:
        self.channel = channel
        self.sender: Sender | None = None  # None: the channel is off
        self.config = NotifyConfig()
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._leader = leader
        self._log = get_logger().bind(channel=channel.value)
        self._failing = False

    def run(self, bell: Bell, stopping: threading.Event) -> None:
        heard = 0
        while not stopping.is_set():
            try:
                pause_s = self.round()
            except (Exception, CycleEndedError) as error:  # noqa: BLE001 - as in ``loop.run``: the next round must come
                self._log.error("notices are not said now", error=f"{type(error).__name__}: {error}")
                pause_s = _LOOK_EVERY_S
            heard = bell.wait(heard, pause_s)

    def round(self) -> float:
        """Say what is due; for how long nothing will be, in seconds, unless something new is stored.

        Raises ``StoreError, LeaseLostError``: what is not stored as said will be said again.
        """
        sender, config = self.sender, self.config
        if sender is None or not self._leader.leads or (self.channel in ON_THE_JOB and self._leader.closed()):
            self._show(_NONE_WAIT)
            return _LOOK_EVERY_S
        now = self._clock.now()
        before = now - timedelta(seconds=config.give_up_after)
        if ids := self._store.overdue_notices(self.channel, before, _LEAST_TIMES, config.most_waiting):
            self._give_up(ids, "waited for too long, or too many waited")
        pause_s = _LOOK_EVERY_S
        longest = max(_LATEST, timedelta(seconds=config.digest_every))
        due = self._store.notices_due(self.channel, now, longest, _AT_ONCE)
        for group in _groups(due, apart=self.channel in ON_THE_JOB):
            if not self._its_turn(group, config, now):
                continue
            failure = self._say(sender, group)
            if failure is NotYetError:
                pause_s = _NOT_YET.total_seconds()
            if failure is UndeliveredError:
                break  # the receiver may be down: the others wait for it as well
        self._show(self._store.waiting_notices().get(self.channel, _NONE_WAIT))
        return pause_s

    def _show(self, waiting: Waiting) -> None:
        self._metrics.set("notices_waiting", waiting.count, self.channel.value)
        oldest = waiting.oldest.timestamp() if waiting.oldest is not None else 0.0
        self._metrics.set("notices_oldest_timestamp_seconds", oldest, self.channel.value)

    def _its_turn(self, group: Sequence[Notice], config: NotifyConfig, now: datetime) -> bool:
        """Whether these may be said now; else they are put off until they can be put together."""
        if self.channel in ON_THE_JOB:
            return True
        sent = self._store.messages_between(self.channel, group[0].user, now - _HOUR, now)
        # What came within one period comes due together: at its next whole multiple.
        first_s, every_s = min(now, *(each.created_at for each in group)).timestamp(), config.digest_every
        digest_at = datetime.fromtimestamp((first_s // every_s + 1) * every_s, UTC)
        if sent < config.messages_per_hour or now >= digest_at:
            return True
        self._store.postpone_notices(_ids(group), digest_at, "put together with later ones")
        return False

    def _say(self, sender: Sender, group: Sequence[Notice]) -> type[ClearwayError] | None:
        """What kept them from being said; None: they were said."""
        now, ids = self._clock.now(), _ids(group)
        attempts = max(each.attempts for each in group)
        again_at = now + min(_LATEST, _SOONEST * 2 ** min(attempts, 10))
        self._store.begin_notices(ids, again_at)
        try:
            sender.send(group, now)
        except NotYetError as error:
            if attempts >= _NOT_YET_TIMES:
                self._give_up(ids, str(error))
            else:
                self._store.postpone_notices(ids, now + _NOT_YET, str(error))
            return NotYetError
        except UnwantedError as error:
            self._store.give_up_notices(ids, now, str(error))
            return UnwantedError
        except UndeliverableError as error:
            self._give_up(ids, str(error))
            return UndeliverableError
        except UndeliveredError as error:
            self._store.postpone_notices(ids, again_at, str(error))
            self._metrics.add("messages_failed", 1, self.channel.value)
            if not self._failing:
                self._log.warning("notices cannot be said, and are tried again", why=str(error))
            self._failing = True
            return type(error)
        self._store.notices_said(ids, self._clock.now())
        self._metrics.add("messages_sent", 1, self.channel.value)
        if self._failing:
            self._log.info("notices can be said again")
        self._failing = False
        return None

    def _give_up(self, ids: Sequence[int], why: str) -> None:
        self._store.give_up_notices(ids, self._clock.now(), why)
        self._metrics.add("notices_given_up", len(ids), self.channel.value)
        self._log.warning("notices are given up", count=len(ids), why=why)


def _ids(group: Sequence[Notice]) -> tuple[int, ...]:
    return tuple(each.notice_id for each in group)


def _groups(due: Sequence[Notice], *, apart: bool) -> list[Sequence[Notice]]:
    """What goes into one message: all for one user; ``apart``: each by itself. The oldest first."""
    groups = defaultdict[str | int, list[Notice]](list)
    for each in due:
        groups[each.notice_id if apart else each.user].append(each)
    return [sorted(group, key=lambda each: each.notice_id) for group in groups.values()]


class Dispatcher:
    """All couriers of a daemon. A configuration is opened first, which may fail, and then taken."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        metrics: Families,
        bell: Bell,
        leader: Leader,
        senders: Callable[[NotifyConfig], Mapping[Channel, Sender]],
    ) -> None:
        self._bell = bell
        self._senders = senders
        self._stopping = threading.Event()
        self._couriers = {each: Courier(each, store, clock, metrics, leader) for each in Channel}
        self._threads: list[threading.Thread] = []

    def open(self, config: NotifyConfig) -> Callable[[], None]:
        """What takes it over. Raises ``ConfigError`` where a secret cannot be used; the configuration before stays."""
        return partial(self._take, config, self._senders(config))

    def _take(self, config: NotifyConfig, senders: Mapping[Channel, Sender]) -> None:
        for channel, courier in self._couriers.items():
            courier.config, courier.sender = config, senders.get(channel)
        if senders and not self._threads:
            for channel, courier in self._couriers.items():
                run = partial(courier.run, self._bell, self._stopping)
                self._threads.append(threading.Thread(target=run, name=f"clearway-{channel}", daemon=True))
            for thread in self._threads:
                thread.start()
        self._bell.ring()

    def stop(self) -> None:
        """What is being said just now may be said again by the next daemon."""
        self._stopping.set()
        self._bell.ring()
        for thread in self._threads:
            thread.join(_LAST_S)
