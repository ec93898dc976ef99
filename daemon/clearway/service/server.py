"""Keeps a daemon running: the loop in a thread of its own, the REST API in the main one, signals and systemd. SIGTERM
and SIGINT let the cycle finish and close everything; SIGHUP has configuration and tokens read again. Handlers only set
flags, which the HTTP server's clock looks at: a handler may interrupt anything, even the writing of a log line.
"""

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import clearway
from clearway.api.app import create_app
from clearway.api.context import Context, Probe, Pulse, Refusals
from clearway.api.logins import Entry, Logins, Tokens
from clearway.api.reading_routes import shown
from clearway.config.configuration import Config
from clearway.model.audit import Audited, AuditKind, AuditRow
from clearway.model.clock import Clock
from clearway.model.errors import ClearwayError, ConfigError, StoreError
from clearway.notify.dispatch import Dispatcher
from clearway.service.listening import HttpServer, known_hosts, listen
from clearway.service.loop import Loop
from clearway.slurm.identity import SlurmIdentity
from clearway.store.repository import Store
from clearway.telemetry.log import get_logger
from clearway.telemetry.metrics import Metrics
from clearway.web import page

_NEED_RESTART = ("daemon.log_format", "planning.planner", "slurm", "store", "api")
_LAST_CYCLE_S = 90.0  # that the last cycle may take: a call to Slurm has a time limit of its own
_PASSWORD = re.compile(r"(?<=//)([^:/@]*):.*@")
_HASH_SHOWN = len("sha256:") + 12

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConfigurationRecord:
    """What the audit trail has of a daemon's configuration and tokens: each change, with old and new values. The last
    values are kept in the database, so that a change shows that was made while the daemon did not run. Of a token the
    beginning of its hash is told, of the database's URL no password. Every method raises ``StoreError`` where it cannot
    be recorded: then nothing may be taken over.
    """

    store: Store
    clock: Clock
    owner: str  # the daemon's name

    def started(self, config: Config, tokens: Iterable[Entry]) -> AuditRow:
        about = {"version": clearway.__version__, "mode": config.daemon.mode.value}
        return self._record(AuditKind.START, config, tokens, about)

    def changed(self, config: Config, tokens: Iterable[Entry]) -> None:
        self._record(AuditKind.CONFIGURATION, config, tokens, {})

    def refused(self, why: str) -> None:
        self.store.audit(self._audited(AuditKind.CONFIGURATION_REFUSED, {"why": why}))

    def halted(self, why: str) -> None:
        """The stop switch as the daemon sees it; ``why`` empty: it is gone. A file for it names nobody."""
        self.store.audit(self._audited(AuditKind.HALT, {"halted": why}))

    def _audited(self, kind: AuditKind, about: Values) -> Audited:
        return Audited(at=self.clock.now(), actor=self.owner, kind=kind, about=about)

    def _record(self, kind: AuditKind, config: Config, tokens: Iterable[Entry], about: Values) -> AuditRow:
        key = f"configuration {self.owner}"
        kept, values = self.store.get_value(key), flat(config, tokens)
        changes = differences(flat(Config(), ()) if kept is None else kept, values)
        return self.store.audit_keeping(self._audited(kind, about | {"changes": changes}), key, values)


def flat(config: Config, tokens: Iterable[Entry]) -> Values:
    found: Values = {}
    for section, values in config.model_dump(mode="json").items():
        if isinstance(values, dict):
            found |= {f"{section}.{name}": value for name, value in values.items()}
        else:
            found[section] = values
    found["store.url"] = _PASSWORD.sub(r"\1:***@", str(found["store.url"]).partition("?")[0])
    for entry in tokens:
        found[f"token {entry.digest[:_HASH_SHOWN]}"] = entry.line.rpartition(" ")[0]
    return found


def differences(old: Values, new: Values) -> dict[str, list[Any]]:
    return {
        key: [old.get(key), new.get(key)]
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) or (key in old) != (key in new)
    }


class Notifier:
    """The sd_notify protocol: one datagram to $NOTIFY_SOCKET, nothing without it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        address = (os.environ if environment is None else environment).get("NOTIFY_SOCKET", "")
        # A leading @ stands for the zero byte of Linux's abstract namespace.
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def ready(self, status: str = "") -> None:
        self._send("READY=1", status)

    def beat(self, status: str = "") -> None:
        self._send("WATCHDOG=1", status)

    def reloading(self) -> None:
        """Must be followed by ``ready``. systemd 253 and newer wait for ever without the monotonic time."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, state: str, status: str = "") -> None:
        if not self._address:
            return
        message = f"{state}\nSTATUS={status.splitlines()[0]}" if status else state
        kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
            sender.sendto(message.encode(), self._address)


class Service:
    """One daemon at work. ``run`` returns when it has been told to ``stop``, or when its loop has died."""

    def __init__(
        self,
        loop: Loop,
        metrics: Metrics,
        tokens: Tokens,
        *,
        slurm: SlurmIdentity | None = None,
        read_config: Callable[[], Config] | None = None,
        notifier: Notifier | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._loop = loop
        self._metrics = metrics
        self._logins = Logins(tokens, lambda: loop.config, loop.parts.clock, slurm)
        self._record = ConfigurationRecord(loop.parts.store, loop.parts.clock, loop.parts.owner)
        self._config = loop.config
        self._read_config = read_config
        self._notifier = notifier or Notifier({})
        self._dispatcher = dispatcher
        self._log = get_logger()
        self._stopping = threading.Event()
        self._reload_asked = False
        self._loop_died = False
        self._halted = ""  # what the audit trail says of the stop switch
        self.ready = threading.Event()
        self.pulse = Pulse(loop.parts.clock)
        self._listener = listen(self._config.api)
        context = api_context(loop, pulse=self.pulse, logins=self._logins, metrics=metrics)
        self._feed = context.feed
        app = create_app(context, known_hosts(self._config.api))
        page.mount(app)
        self._http = HttpServer(app, self._on_tick, self._feed, self._listener.tls)
        self._worker = threading.Thread(target=self._work, name="clearway-loop", daemon=True)
        metrics.configured(self._config)
        metrics.leads = lambda: loop.leadership.leads

    @property
    def address(self) -> str:
        return self._listener.address

    def run(self) -> int:
        take_notices = self._open_notices(self._config)
        row = self._record.started(self._config, self._logins.entries)
        self._log.info("audit trail", entries=row.sequence, head=row.hash)
        take_notices()
        self._worker.start()
        try:
            self._http.run(sockets=[self._listener.socket])
        finally:
            stopped = self._shut_down()
        return 0 if stopped and not self._loop_died else 1

    def run_until_signal(self) -> int:
        with self.signals():
            return self.run()

    def stop(self) -> None:
        """Any thread and any signal handler may call this."""
        self._stopping.set()
        self._loop.wake()
        self._http.should_exit = True

    @contextlib.contextmanager
    def signals(self) -> Iterator[None]:
        def handle(number: int, _: FrameType | None) -> None:
            if number == signal.SIGHUP:
                self._reload_asked = True
            else:
                self.stop()

        with contextlib.ExitStack() as before:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                before.callback(signal.signal, number, signal.signal(number, handle))
            yield

    def _work(self) -> None:
        try:
            self._loop.run(self._stopping, self._beat, self._notifier.beat)
        finally:
            self._loop_died = not self._stopping.is_set()
            self._http.should_exit = True  # without its loop the daemon is of no use: let systemd start another

    def _beat(self) -> None:
        self.pulse.beat()
        self._notifier.beat(self._status())
        if (report := self._loop.report) is None:
            return
        self._feed.look(lambda: (self._config.daemon.mode, self._unexplained(), shown(report)))
        if report.halted != self._halted:
            with contextlib.suppress(StoreError):  # then after the next cycle
                self._record.halted(report.halted)
                self._halted = report.halted

    def _unexplained(self) -> tuple[int, ...] | None:
        """None while the database does not answer: that is a change as well."""
        with contextlib.suppress(StoreError):
            return self._loop.explainer.unexplained(self._loop.parts.clock.now())
        return None

    def _open_notices(self, config: Config) -> Callable[[], None]:
        return (lambda: None) if self._dispatcher is None else self._dispatcher.open(config.notify)

    def _status(self) -> str:
        report, mode = self._loop.report, self._config.daemon.mode.value
        if report is None:
            return f"{mode}, no cycle yet"
        acting = sum(1 for eviction in report.open_evictions if eviction.state.acting)
        mode = f"only observes: {report.only_observes}" if report.only_observes else mode
        state = report.halted or ("paused" if report.paused else "standby" if report.standby else mode)
        return f"{state}, {len(report.waiting)} job(s) waiting for room, {acting} eviction(s) under way"

    def _on_tick(self) -> None:
        if not self.ready.is_set():
            if self._listener.in_the_clear:
                self._log.warning("tokens travel in the clear: set api.certificate", address=self.address)
            self._log.info("serving", address=self.address, mode=self._config.daemon.mode.value)
            self._notifier.ready(self._status())
            self.ready.set()
        if self._reload_asked:
            self._reload_asked = False
            self._reload()

    def _reload(self) -> None:
        self._notifier.reloading()
        try:
            if self._read_config is None:
                raise ConfigError("this daemon was started without a configuration file")  # noqa: TRY301 - one way out
            wanted = self._read_config()
            entries, take_over = self._logins.reload(wanted.access)
            self._listener.reload()
            taken, fixed = reloaded(self._config, wanted)
            take_notices = self._open_notices(taken)
            self._record.changed(taken, entries)
        except (ConfigError, StoreError) as error:
            self._log.error("configuration not reloaded, the old one stays", error=str(error))
            with contextlib.suppress(StoreError):
                self._record.refused(str(error))
        else:
            self._config = taken
            self._loop.reconfigure(self._config)
            take_over()
            take_notices()
            self._metrics.configured(self._config)
            mode = self._config.daemon.mode.value
            self._log.info("configuration reloaded", mode=mode, needs_restart=",".join(fixed) or None)
        self._notifier.ready(self._status())

    def _shut_down(self) -> bool:
        self.stop()
        self._notifier.stopping()
        self._log.info("stopping")
        self._worker.join(_LAST_CYCLE_S)
        if self._worker.is_alive():
            self._log.error("the last cycle does not end; stopping without it")
            return False
        self._listener.close()
        if self._dispatcher is not None:
            self._dispatcher.stop()
        parts = self._loop.parts
        closing: dict[str, Callable[[], None]] = {
            "lease": self._loop.leadership.release,
            "calendar": parts.calendar_reader.close,
            "backend": parts.backend.close,
            "database": parts.store.close,
        }
        for what, act in closing.items():
            try:
                act()
            except ClearwayError as error:
                self._log.warning("not closed in order", what=what, error=str(error))
        self._log.info("stopped")
        return True


def api_context(loop: Loop, *, pulse: Pulse, logins: Logins, metrics: Metrics) -> Context:
    parts = loop.parts
    return Context(
        report=lambda: loop.report,
        config=lambda: loop.in_force,
        planner=parts.planner,
        checkpointers=parts.checkpointers,
        store=parts.store,
        clock=parts.clock,
        pulse=pulse,
        logins=logins,
        metrics=metrics,
        refusals=Refusals(parts.store, parts.clock, partial(metrics.add, "refused_logins", 1)),
        history=lambda: parts.history.history(loop.config),
        runs=parts.history.runs,
        wake=loop.wake,
        leads=lambda: loop.leadership.leads,
        in_cycle=lambda: loop.in_cycle,
        backend=parts.backend.name,
        probe=Probe(lambda: parts.store.try_to_write(parts.clock.now())),
    )


@contextlib.contextmanager
def background(service: Service) -> Iterator[Service]:
    thread = threading.Thread(target=service.run, name="clearway-http", daemon=True)
    thread.start()
    service.ready.wait(30)
    try:
        yield service
    finally:
        service.stop()
        thread.join()


def reloaded(old: Config, wanted: Config) -> tuple[Config, tuple[str, ...]]:
    """What a running daemon can take over of another configuration, and the keys that need a restart."""
    taken, fixed = wanted, []
    for key in _NEED_RESTART:
        section, _, name = key.partition(".")
        asked, kept = getattr(wanted, section), getattr(old, section)
        if name:
            kept = asked.model_copy(update={name: getattr(kept, name)})
        if kept != asked:
            fixed.append(key)
            taken = taken.model_copy(update={section: kept})
    return taken, tuple(fixed)
