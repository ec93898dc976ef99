"""The one place that wires concrete classes together."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from clearway.config import plugins
from clearway.config.configuration import Config
from clearway.drain.controller import DrainController
from clearway.drain.lifecycle import DrainLifecycle
from clearway.drain.rolling import RollingController
from clearway.estimates.costs import BY_ITSELF
from clearway.estimates.history import HistoryKeeper
from clearway.execution.commands import Commander
from clearway.execution.cycle_context import Impossible, PlanningBasis, PlanningTime
from clearway.execution.executor import Executor
from clearway.execution.job_batch import CheckpointTurns, Pace
from clearway.execution.losses import LossKeeper
from clearway.execution.open_operations import OpenOperations
from clearway.execution.restraints import Breaker, Gate, Quarantine, Suppression, UserPauses
from clearway.execution.save_tests import SaveTestController
from clearway.model.clock import Clock, SystemClock
from clearway.model.errors import ClusterError, ConfigError, SlurmError
from clearway.model.events import fan_out
from clearway.model.operations import Drain, Eviction, Promise, Relocation
from clearway.model.problem import Action
from clearway.model.records import CLUSTER
from clearway.notify.dispatch import Dispatcher, NotesFence, Outbox
from clearway.notify.sending import open_senders
from clearway.planning.base import Planner
from clearway.preemption.controller import PreemptionController
from clearway.preemption.lifecycle import EvictionLifecycle
from clearway.preemption.proposals import Proposals, SilentNodes
from clearway.promise.calendar_controller import CalendarController
from clearway.promise.calendar_reader import CalendarReader
from clearway.promise.controller import PromiseController
from clearway.promise.lifecycle import PromiseLifecycle
from clearway.relocation.controller import RelocationController
from clearway.relocation.lifecycle import RelocationLifecycle
from clearway.service.cycle import Cycle, Parts
from clearway.service.leadership import Leadership, host_of, own_name
from clearway.service.loop import Explainer, Loop
from clearway.service.requests import RequestHandler
from clearway.slurm.base import SlurmBackend
from clearway.slurm.identity import SlurmIdentity
from clearway.slurm.job_notes import JobNotes
from clearway.store.cluster import identity_of, stranger
from clearway.store.repository import Store
from clearway.telemetry.log import LogLines, get_logger
from clearway.telemetry.metrics import Metrics
from clearway.telemetry.report import CaseKeeper

AUTO = ("pyslurm", "cli")  # what slurm.backend = "auto" tries, the one that is preferred first
_LOGIN_S = 5.0  # a caller waits for it
_OTHER_CONFIGURATION = "another configuration holds from the next cycle on"


@dataclass(frozen=True)
class Daemon:
    """Everything that ``clearway serve`` runs."""

    loop: Loop
    store: Store
    metrics: Metrics
    identity: SlurmIdentity | None  # None: a simulated cluster, or one without Slurm's commands
    dispatcher: Dispatcher


def build(
    config: Config,
    *,
    origin: str,
    backend: SlurmBackend | None = None,
    clock: Clock | None = None,
    store: Store | None = None,
    calendar_waits_s: float = 0.0,
) -> Daemon:
    """A daemon for this configuration; ``origin`` is its file, for messages.

    ``calendar_waits_s``: how long a cycle waits for a calendar to be read, where no time of ours is gone by.
    Raises ``ClearwayError`` when a part of it cannot be had.
    """
    clock = clock or SystemClock()
    if not config.preemptors:
        get_logger().warning("no [[preemptors]] rule is configured: no job will ever be urgent", file=origin)
    identity = None if backend is not None else open_identity(config, clock)
    store = store or Store(config.store.url)
    try:
        why = ""
        if backend is None:
            backend, why = choose_backend(config, clock)
            keep_to_one_cluster(store, backend)
        metrics = Metrics(clock, backend=backend.name, checkpointers=plugins.names(plugins.CHECKPOINTERS))
        if restarts := getattr(backend, "worker_restarts", None):
            metrics.restarts = restarts
        emit = fan_out(metrics.record, LogLines(clock, store.steps).write)
        parts = Parts(
            backend=backend,
            store=store,
            planner=open_planner(config),
            clock=clock,
            emit=emit,
            history=HistoryKeeper(store, emit),
            owner=own_name(),
            checkpointers=checkpointer_actions(),
            backend_why=why,
            calendar_reader=CalendarReader(calendar_waits_s),
        )
    except BaseException:
        store.close()
        raise
    loop = new_loop(config, parts)
    return Daemon(loop, store, metrics, identity, open_dispatcher(loop, metrics))


def open_dispatcher(loop: Loop, metrics: Metrics) -> Dispatcher:
    """What tells owners and operators; on a simulated cluster the jobs themselves say nothing."""
    parts, config, leadership = loop.parts, loop.config, loop.leadership
    fence = NotesFence(leadership, config.daemon.lease / 2)
    simulated = parts.backend.name == "simulated"
    notes = None if simulated else JobNotes(config.slurm.timeout, _conf(config), fence)
    senders = partial(open_senders, notes=notes)
    return Dispatcher(parts.store, parts.clock, metrics, parts.bell, leadership, senders)


def new_loop(config: Config, parts: Parts) -> Loop:
    """A loop that has not run a cycle yet."""
    return Loop(parts, config, assemble, Explainer(parts.store, parts.planner, parts.clock, parts.emit))


def assemble(config: Config, parts: Parts, leadership: Leadership) -> Cycle:
    """Everything that a cycle needs under this configuration."""
    backend, store, emit, clock = parts.backend, parts.store, parts.emit, parts.clock
    outbox = Outbox(config.notify, store, parts.bell)
    operations = OpenOperations(store, outbox)
    suppression, pauses = Suppression(store), UserPauses(store, outbox.loop_found)
    breaker = Breaker(store, outbox.stopped)
    quarantine = Quarantine(clock, emit)
    basis = PlanningBasis(
        planner=parts.planner,
        operations=operations,
        history=parts.history,
        actions=parts.checkpointers,
        time=PlanningTime(clock),
        impossible=Impossible(),
        attempt=quarantine.attempt_job,
    )
    silent = SilentNodes()
    reload_waits = lambda: _OTHER_CONFIGURATION if parts.reload_waits.is_set() else ""  # noqa: E731 - asked each time
    gate = Gate(store, config.daemon.halt_file, (reload_waits,))
    leadership.closed = gate.closed
    executor = Executor(
        commander=Commander(backend, store, emit, timedelta(seconds=config.execution.placement_grace)),
        store=store,
        operations=operations,
        config=config.execution,
        lifecycles={
            Eviction: EvictionLifecycle(basis, silent),
            Drain: DrainLifecycle(basis),
            Relocation: RelocationLifecycle(),
            Promise: PromiseLifecycle(basis),
        },
        emit=emit,
        learn=parts.history.add_checkpoint,
        gate=gate,
        pace=Pace(clock.monotonic),
        checkpoints=CheckpointTurns(config, parts.history.history),
    )
    drains = DrainController(backend=backend, store=store, operations=operations, executor=executor)
    rolling = RollingController(
        store=store, operations=operations, drains=drains, executor=executor, quarantine=quarantine, emit=emit
    )
    relocation = RelocationController(
        backend=backend, store=store, operations=operations, executor=executor, emit=emit, basis=basis
    )
    promises = PromiseController(backend=backend, operations=operations, basis=basis, quarantine=quarantine, emit=emit)
    preemption = PreemptionController(
        backend=backend,
        operations=operations,
        suppression=suppression,
        pauses=pauses,
        executor=executor,
        proposals=Proposals(operations, executor, pauses, basis),
        basis=basis,
        quarantine=quarantine,
        clock=clock,
        emit=emit,
        silent=silent,
    )
    requests = RequestHandler(
        store=store,
        operations=operations,
        suppression=suppression,
        pauses=pauses,
        breaker=breaker,
        executor=executor,
        drains=drains,
        rolling=rolling,
        relocation=relocation,
        promises=promises,
        save_tests=SaveTestController(backend, store, basis, gate),
        quarantine=quarantine,
        leadership=leadership,
        emit=emit,
        monotonic=clock.monotonic,
    )
    calendar = CalendarController(
        store=store,
        operations=operations,
        executor=executor,
        promises=promises,
        reader=parts.calendar_reader,
        emit=emit,
        host=host_of(parts.owner),
        monotonic=clock.monotonic,
    )
    return Cycle(
        parts=parts,
        config=config,
        leadership=leadership,
        operations=operations,
        suppression=suppression,
        pauses=pauses,
        breaker=breaker,
        executor=executor,
        drains=drains,
        rolling=rolling,
        preemption=preemption,
        relocation=relocation,
        promises=promises,
        calendar=calendar,
        requests=requests,
        quarantine=quarantine,
        gate=gate,
        basis=basis,
        cases=CaseKeeper(store, operations),
        losses=LossKeeper(store, operations, parts.emit),
    )


def checkpointer_actions() -> Mapping[str, Action]:
    """What the registered checkpointers are to planning, by name; one that cannot be loaded is left out, and told."""
    actions = dict(BY_ITSELF)
    for name in plugins.names(plugins.CHECKPOINTERS):
        try:
            actions[name] = plugins.load(plugins.CHECKPOINTERS, name).action
        except ConfigError as error:
            get_logger().warning("a checkpointer is not used", checkpointer=name, why=str(error))
    return actions


def open_planner(config: Config) -> Planner:
    planner: Planner = plugins.load(plugins.PLANNERS, config.planning.planner)()
    return planner


def open_backend(config: Config, clock: Clock) -> SlurmBackend:
    """As ``choose_backend``, for those that do not tell why it is this one."""
    return choose_backend(config, clock)[0]


def choose_backend(config: Config, clock: Clock) -> tuple[SlurmBackend, str]:
    """The backend, and why this one and none of those that were asked before it.

    Raises ``ConfigError`` when it cannot be used; the message says why.
    """
    wanted, slurm = config.slurm.backend, config.slurm
    unusable: list[str] = []
    for name in AUTO if wanted == "auto" else (wanted,):
        options = {"url": slurm.rest_url, "auth": slurm.rest_auth, "token_file": slurm.rest_token_file}
        backend: SlurmBackend = plugins.load(plugins.BACKENDS, name)(
            now=clock.now, slurm_conf=_conf(config), timeout_s=slurm.timeout, **(options if name == "rest" else {})
        )
        why_not = backend.available()
        if why_not is None:
            why = "; ".join([f'slurm.backend is "{wanted}"', *unusable])
            get_logger().info("talking to Slurm", backend=name, why=why)
            if (cannot := getattr(backend, "cannot", None)) and (actions := cannot()):
                get_logger().warning("Slurm cannot be asked to do everything", not_done="; ".join(actions))
            return backend, why
        backend.close()
        unusable.append(f"{name} cannot be used: {why_not}")
    raise ConfigError("slurm.backend: " + "; ".join(unusable))


def _conf(config: Config) -> str | None:
    return str(config.slurm.conf) if config.slurm.conf else None


def open_identity(config: Config, clock: Clock) -> SlurmIdentity:
    """Who Slurm's users are; the commands answer whatever the backend is."""
    return SlurmIdentity(now=clock.now, slurm_conf=_conf(config), timeout_s=min(config.slurm.timeout, _LOGIN_S))


def keep_to_one_cluster(store: Store, backend: SlurmBackend) -> None:
    """Raises ``ClusterError``: also a daemon that would stand by must be of the database's cluster.

    A Slurm that does not answer is asked again in each cycle.
    """
    with suppress(SlurmError):
        if why := stranger(identity_of(store.get_value(CLUSTER)), backend.snapshot().cluster):
            raise ClusterError(why)


def open_store(config: Config) -> Store:
    """The database alone, for the command line.

    Raises ``ConfigError`` when a SQLite file does not exist: asking a question must not create a database.
    """
    must_exist(config.store.url)
    return Store(config.store.url)


def must_exist(url: str) -> None:
    """Raises ``ConfigError`` for a SQLite file that is not there, or that this user cannot look for."""
    if not url.startswith("sqlite:///"):
        return
    try:
        if not Path(url.removeprefix("sqlite:///")).exists():
            raise ConfigError(f"store.url: {url}: no such database; has the daemon run yet?")
    except OSError as error:  # the folder of the daemon's state is its user's alone
        why = f"{error.strerror}; run it as the daemon's user"
        raise ConfigError(f"store.url: {url}: cannot be looked for: {why}") from None
