"""``clearway simulate-cluster``: the daemon at work on a simulated cluster (Theta) and clock, step by step."""

import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console, Group
from rich.text import Text

from clearway import bootstrap
from clearway.api.logins import Tokens, new_token
from clearway.api.schemas import WholePlanView
from clearway.api.views import plan_view
from clearway.cli import render
from clearway.cli.asker import actor
from clearway.cli.evictions import curve_table, verdict_table
from clearway.config.configuration import Mode
from clearway.eligibility.authorization import user_of
from clearway.model.clock import ScaledClock
from clearway.model.cluster import JobState
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError
from clearway.model.operations import Eviction, EvictionState, Operation, PreemptionState
from clearway.model.problem import Action, Candidate
from clearway.model.requests import Role
from clearway.service import server
from clearway.simulation import theta
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import Program
from clearway.telemetry.log import configure_logging


class DemoFiles:
    """Files in a folder that is this user's alone, and goes when the demo ends."""

    def __init__(self, folder: Path, port: int, mode: Mode) -> None:
        self._folder = folder
        user = user_of(actor())
        self._token, entry = new_token(user, Role.ADMIN, None)
        self.tokens = _private(folder / "tokens", entry.line + "\n")
        self.config = theta.demo_config(folder, user, port, mode)

    def write(self, address: str) -> Path:
        """The file to source, for the daemon that listens at this address."""
        config = self._folder / "clearway.toml"
        document = self.config.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        document["api"]["port"] = urlsplit(address).port  # 0 took any free one
        config.write_text(toml(document))
        # Over REST the daemon's own clock counts: it stands still while a plan waits for approval.
        exports = {"CLEARWAY_CONFIG": str(config), "CLEARWAY_URL": address, "CLEARWAY_TOKEN": self._token}
        exports["API"] = f"{address}/api/v1"
        lines = [f"export {name}={shlex.quote(value)}" for name, value in exports.items()]
        programs = Path(sys.executable).parent
        if (programs / "clearway").exists():  # this one, wherever another is installed
            lines.append(f"export PATH={shlex.quote(str(programs))}:$PATH")
        return _private(self._folder / "env", "\n".join(lines) + "\n")


def _private(file: Path, text: str) -> Path:
    file.touch(mode=0o600)
    file.write_text(text)
    return file


def toml(document: Mapping[str, Any]) -> str:
    """Tables of plain values, and lists of such tables. What JSON writes of them, TOML reads."""
    lines = []
    for name, content in document.items():
        tables, head = (content, f"[[{name}]]") if isinstance(content, list) else ([content], f"[{name}]")
        for table in tables:
            lines += [head, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


_LIMIT_S = 50.0  # of real time at 60 simulated seconds a second; --once promises to end within a minute
_LOOK_EVERY_S = 0.05


def run(*, once: bool, speed: float, port: int, seed: int, mode: Mode = Mode.AUTOMATIC) -> int:
    """Exit status 0 when the urgent job really started in time and every other job came back."""
    if mode is Mode.OBSERVE or (once and mode is Mode.APPROVE):
        raise ConfigError("the demo's mode is automatic or approve; with --once, which ends by itself, it is automatic")
    out = render.console()
    configure_logging("text", quiet=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended either way, it stops its server and its files
    good = False
    start = datetime.now(UTC).replace(microsecond=0)
    clock = ScaledClock(start, speed)
    cluster = theta.demo_cluster(start, seed)
    with tempfile.TemporaryDirectory(prefix="clearway-demo-") as folder:
        files = DemoFiles(Path(folder), port, mode)
        backend = SimulatedBackend(cluster, clock)
        daemon = bootstrap.build(files.config, origin="demo", backend=backend, clock=clock)
        service = server.Service(daemon.loop, daemon.metrics, Tokens(files.tokens))
        with server.background(service):
            try:
                story = Story(out, daemon, cluster, clock, speed, mode)
                good = story.tell(service.address, files.write(service.address))
                if not once:
                    story.go_on()
            except KeyboardInterrupt:
                out.print("Interrupted.")
    return 0 if good else 1


@dataclass
class Story:
    out: Console
    daemon: bootstrap.Daemon
    cluster: SimulatedCluster
    clock: ScaledClock
    speed: float
    mode: Mode = Mode.AUTOMATIC
    _limit: float = 0.0  # of the monotonic clock
    _urgent: str = ""  # the urgent job that was submitted last
    _told: dict[str, PreemptionState] = field(default_factory=dict)
    _if_killed: dict[str, float] = field(default_factory=dict)  # node-seconds, by job, of the first plan that chose it

    def tell(self, address: str, env: Path) -> bool:
        out, cluster = self.out, self.cluster
        running = cluster.running()
        busy = sum(entry.job.num_nodes for entry in running)
        out.print(Text("Clearway on a simulated cluster", style="bold"))
        out.print(
            f"{len(cluster.nodes):,} nodes, {busy:,} of them busy with {len(running)} jobs "
            f"(like Scenario-3 of the CoSim paper); one second here is {format_duration(self.speed)} there."
        )
        out.print(f"Page: {address}/   REST API: {address}/api/v1/openapi.json", soft_wrap=True)
        self._offer(
            f". {env}",
            "clearway status",
            "clearway evictions list",
            'curl -s -H "Authorization: Bearer $CLEARWAY_TOKEN" $API/preemptors',
            where="In a second terminal, the first of these sets CLEARWAY_URL, CLEARWAY_TOKEN and API:",
        )
        self._set_limit()
        urgent = self._submit("tsunami-forecast", theta.NODES_NEEDED)
        self._pace()
        if not self._until(lambda: bool(self.daemon.store.evictions(limit=1))):
            return self._fail("no plan was made")
        eviction = self._newest()
        shown = plan_view(eviction.plan, WholePlanView)
        out.print(Group("", curve_table(shown.curve, shown.chosen), "", verdict_table(shown.verdicts, {}), ""))
        if self.mode is Mode.APPROVE and not self._is_approved():
            return False
        started = self._until(lambda: cluster.jobs[urgent].job.state is not JobState.PENDING, self._progress)
        if not started:
            return self._fail("the urgent job did not start")
        start = cluster.jobs[urgent].job.start_time or self.clock.now()
        margin_s = (eviction.plan.deadline - start).total_seconds()
        when = f"{format_duration(abs(margin_s))} {'before its deadline.' if margin_s >= 0 else 'TOO LATE.'}"
        starts = f"Job {urgent} starts on its {theta.NODES_NEEDED:,} nodes, {when}"
        self._step(start, Text(starts, style="bold green"))
        back = self._until(lambda: self._newest().state.terminal, self._progress)
        final = self._newest()
        away = sum(p.state not in (PreemptionState.RETURNED, PreemptionState.ENDED) for p in final.preemptions)
        returned = f"{away} not back yet" if away else "All jobs are back"
        lost = f"{render.node_hours(final.actual_lost_node_s)} node-hours lost"
        killed_all = render.node_hours(self.killing_would_lose(p.job_id for p in final.preemptions))
        told = f"{lost}; requeueing the same jobs without checkpoints would have lost {killed_all}."
        self._step(self.clock.now(), f"{returned}: {told}")
        why = what_failed(margin_s, over=back, away=away)
        return not why or self._fail(why)

    def go_on(self) -> None:
        """Until Ctrl-C: another urgent job where jobs are approved, and what comes of operations that are asked for."""
        nodes = next((job.job.nodes for job in self.cluster.running() if "=signal" in job.job.comment), ())
        if self.mode is Mode.APPROVE:
            self._submit("flood-forecast", theta.NODES_NEEDED // 4)
        if nodes:
            self._offer(f"clearway drain {nodes[0]} --wait", f"clearway undrain {nodes[0]}", where="Empty a node:")
        self.out.print("\nThe REST API stays up; Ctrl-C ends it.")
        seen: dict[int, EvictionState] = {self._newest().eviction_id: self._newest().state}
        while True:
            for operation in reversed(self.daemon.store.evictions(limit=5)):
                number, state = operation.eviction_id, operation.state
                if seen.get(number) is not state and (number in seen or not state.terminal):
                    self._step(self.clock.now(), f"{operation.kind.value.capitalize()} {number}: {state.value}.")
                    if state is EvictionState.AWAITING_APPROVAL:
                        self._offer(f"clearway evictions cancel {number}", f"clearway evictions approve {number}")
                seen[number] = state
            self._pace()
            time.sleep(_LOOK_EVERY_S)

    def _is_approved(self) -> bool:
        """Wait until the eviction is approved; whether it was not cancelled. No time passes, so no plan gets old."""
        asked = None
        self.clock.run_at(0.0)
        while (newest := self._newest()).state in {EvictionState.AWAITING_APPROVAL, EvictionState.SUPERSEDED}:
            if newest.state is EvictionState.AWAITING_APPROVAL and asked != newest.eviction_id:
                asked = newest.eviction_id
                self._step(self.clock.now(), f"Eviction {asked} waits for approval; the clock stands still meanwhile.")
                self._offer(f"clearway evictions show {asked}", f"clearway evictions approve {asked}")
            time.sleep(_LOOK_EVERY_S)
        self._pace()
        self._set_limit()
        if newest.state in {EvictionState.CANCELLING, EvictionState.CANCELLED}:
            self._step(self.clock.now(), "It was cancelled. Clearway leaves the urgent job to Slurm.")
            return False
        self._step(newest.state_since or self.clock.now(), "It was approved.")
        return True

    def _pace(self) -> None:
        """A person decides at the pace of real time; the rest goes quicker. Drains go on meanwhile."""
        # A plan for approval is made at that pace too: on a busy machine it would be out of date before it is seen.
        newest = self.daemon.store.evictions(limit=5)
        waits = any(e.state is EvictionState.AWAITING_APPROVAL for e in newest)
        planned = any(isinstance(e, Eviction) and e.preemptor.job_id == self._urgent for e in newest)
        decides = waits or (self.mode is Mode.APPROVE and not planned)
        self.clock.run_at(1.0 if decides else self.speed)

    def _set_limit(self) -> None:
        self._limit = time.monotonic() + _LIMIT_S * max(1.0, 60.0 / self.speed)

    def _offer(self, *commands: str, where: str = "In the second terminal:") -> None:
        self.out.print(Text("\n".join([where, *(f"    {command}" for command in commands), ""])), soft_wrap=True)

    def _submit(self, name: str, nodes: int) -> str:
        now = self.clock.now()
        self.cluster.advance(now)
        job_id = self.cluster.submit(
            Program(work_s=theta.URGENT_WORK_S, exit_s=1.0),
            num_nodes=nodes,
            partitions=("urgent",),
            user="ursula",
            name=name,
            priority=1_000,
        )
        self._step(now, f"Job {job_id} ({name}) needs {nodes:,} nodes within 15 minutes.")
        self._urgent = job_id
        return job_id

    def _newest(self) -> Operation:
        newest = self.daemon.store.evictions(limit=1)[0]
        self.remember(newest.plan.problem.candidates)
        return newest

    def remember(self, candidates: Iterable[Candidate]) -> None:
        """Keep what killing each job would lose: a later plan does not have those that have left for an earlier one."""
        for candidate in candidates:
            lost = [option.lost_work_node_s for option in candidate.options if option.action is Action.KILL]
            self._if_killed.setdefault(candidate.job_id, sum(lost))

    def killing_would_lose(self, job_ids: Iterable[str]) -> float:
        """Node-seconds that requeueing these jobs without a checkpoint would have lost when they were chosen."""
        return sum(self._if_killed.get(job_id, 0.0) for job_id in job_ids)

    def _progress(self) -> None:
        words = {
            PreemptionState.CHECKPOINTING: "saves itself",
            PreemptionState.VACATING: "leaves its nodes",
            PreemptionState.SUSPENDED: "is suspended in memory",
            PreemptionState.QUEUED: "waits in the queue",
            PreemptionState.HELD: "is held in the queue",
            PreemptionState.RETURNED: "runs again",
            PreemptionState.ENDED: "has ended",
            PreemptionState.SPARED: "is spared after all",
            PreemptionState.FAILED: "could not be preempted",
        }
        for p in self._newest().preemptions:
            if p.state is not self._told.get(p.job_id) and p.state in words:
                text = f"Job {p.job_id} ({p.job.num_nodes} nodes) {words[p.state]}."
                self._step(p.state_since or self.clock.now(), text)
            self._told[p.job_id] = p.state

    def _until(self, done: Callable[[], bool], each_time: Callable[[], None] = lambda: None) -> bool:
        while time.monotonic() < self._limit:
            finished = done()
            each_time()
            if finished:
                return True
            time.sleep(_LOOK_EVERY_S)
        return False

    def _step(self, at: datetime, text: str | Text) -> None:
        line = Text().append(f"{at.astimezone():%H:%M:%S}  ", style="dim")
        self.out.print(line.append_text(text if isinstance(text, Text) else Text(text)))

    def _fail(self, why: str) -> bool:
        self.out.print(Text(f"Failed: {why}.", style="bold red"))
        return False


def what_failed(margin_s: float, *, over: bool, away: int) -> str:
    """Why the demo is no success; ``margin_s`` is from the start to the deadline, ``away`` counts jobs."""
    if margin_s < 0:
        return "the urgent job started after its deadline (is this machine very busy? try --speed 20)"
    if away:
        return "not all preempted jobs came back"
    return "" if over else "the eviction was not over in time"
