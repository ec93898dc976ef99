"""Random schedules of faults and of what users and operators do, drawn from a seed.

A schedule is some steps, each one event and then a cycle of every daemon that can run one; at its end all faults are
over, the daemons get quiet cycles, and ``Witness`` says what should not have been. The same seed gives the same run:
``CLEARWAY_CHAOS_SEED=N tests/run unit -- tests/simulation/test_chaos.py`` plays it again and tells each event.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from clearway.drain.request import DrainRequest, UndrainRequest
from clearway.execution.lifecycle import drain_number
from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.model.operations import EvictionState
from clearway.promise.request import PromiseRequest
from tests.builders import NOW
from tests.simulation.chaos_scene import (
    BUDGET,
    CLOCK,
    DATABASE,
    FAILING,
    KILL,
    KINDS,
    NODES,
    PARTIAL,
    PEOPLE,
    PROMISES,
    PROTECT,
    SLOW,
    STOP,
    TWO,
    USERS,
    Scene,
)
from tests.simulation.chaos_witness import Outcome, Witness
from tests.simulation.chaos_world import NEVER, ChaosDaemon, ChaosWorld, Countdown
from tests.simulation.killing import CHANGES

LEASE_S = 20.0  # longer than any lease of these daemons
ACTS = ("begin_step", "finish_step", "save_eviction", "change_jobs", "requeue", "signal")


class Schedule:
    """One world, and what happens in it."""

    def __init__(self, seed: int, folder: Path, empty: Path, kinds: Collection[str] = KINDS) -> None:
        self.seed, self.kinds = seed, frozenset(kinds)
        self.random = random.Random(seed)
        self.world = ChaosWorld(folder, empty, Witness, self.random, has_server=self.random.random() < 0.7)
        self.world.meanwhile, self.world.take, self.world.between = self._meanwhile, self._take, self._between
        self.steps = self.random.randint(8, 14)
        self.nested = 0
        self.healed = False
        self.scene = Scene(self.random, self.kinds, self.world)
        self.world.daemons = [ChaosDaemon("a", self.world, self.scene.config())]
        if TWO in self.kinds and self.random.random() < 0.6:
            self.world.daemons.append(ChaosDaemon("b", self.world, self.scene.config()))
        self.scene.furnish()

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        world = self.world
        try:
            self.scene.urgent()
            while self.steps > 0:
                self._step()
            self._heal()
            self._quiet()
            world.witness.at_the_end()
            if world.witness.violations:
                world.lines += self._what_was_stored()
        finally:
            world.close()
        witness = world.witness
        return Outcome(self.seed, tuple(witness.violations), tuple(world.lines), witness.commands, witness.first_error)

    def _step(self) -> None:
        self.steps -= 1
        event = self._draw()
        self.world.log(event.__name__.strip("_"))
        event()
        self.world.advance(self.random.choice((0.5, 0.5, 1.0, 2.0, 5.0)))
        self._cycles()

    def _cycles(self) -> None:
        daemons = list(self.world.daemons)
        if self.random.random() < 0.3:
            daemons.reverse()
        for daemon in daemons:
            daemon.cycle()

    def _draw(self) -> Callable[[], None]:
        events: list[tuple[int, str, Callable[[], None]]] = [
            (4, KILL, self._arm_kill),
            (3, KILL, self._restart),
            (6, STOP, self._arm_stop),
            (2, SLOW, self._slow),
            (3, FAILING, self._fail),
            (2, FAILING, self._lose_answers),
            (2, FAILING, self._refuse_some),
            (2, PARTIAL, self._hide),
            (2, DATABASE, self._outage),
            (2, DATABASE, self._lose_commits),
            (3, "", self._mend),
            (2, CLOCK, self._step_clock),
            (3, USERS, self.scene.urgent),
            (2, USERS, self.scene.submit),
            (3, USERS, self._cancel),
            (2, USERS, self._hold),
            (2, USERS, self._requeue),
            (2, USERS, self._operator),
            (1, USERS, self._halt),
            (2, USERS, self._unhalt),
            (1, USERS, self._drain),
            (2, PROTECT, self._protect),
            (1, BUDGET, self._new_budget),
            (1, NODES, self._node_fails),
            (3, PROMISES, self._promise),
            (4, "", self._pass_time),
        ]
        weights, kinds, chosen = zip(*events, strict=True)
        on = [0 if kind and kind not in self.kinds else weight for weight, kind in zip(weights, kinds, strict=True)]
        return self.random.choices(chosen, on)[0]

    def _meanwhile(self, stopped: ChaosDaemon) -> None:
        """Play on while a daemon stands still in the middle of a call."""
        self.nested += 1
        asleep_for = self.random.randint(1, 4)
        if self.random.random() < 0.6:  # what a stop is dangerous for: another daemon has taken over, users go on
            self._let_another_take_over()
        while asleep_for > 0 and self.steps > 0 and self.nested < 4:
            asleep_for -= 1
            self._step()
        if not self.healed and self.random.random() < 0.2:
            stopped.kill_in = Countdown(-1)
        self.nested -= 1

    def _let_another_take_over(self) -> None:
        """The new leader waits until no command of the old one can be under way; then it may close what is open."""
        for seconds in (self.random.uniform(LEASE_S, 2 * LEASE_S), LEASE_S / 2):
            self.world.advance(seconds)
            self._cycles()
        if self.random.random() < 0.6:
            self._cancel_urgent()

    def _take(self, seconds: float, busy: ChaosDaemon) -> None:
        """A call that takes its time; others do not wait for it."""
        if not seconds:
            return
        self.world.advance(seconds)
        if self.nested < 4 and not self.healed:
            self.nested += 1
            for daemon in self.world.daemons:
                if daemon is not busy:
                    daemon.cycle()
            self.nested -= 1

    def _between(self, busy: ChaosDaemon) -> None:
        """What comes between two jobs of a list, as it comes between two commands."""
        if self.healed or self.nested >= 4 or self.random.random() > 0.25:
            return
        event = self.random.choice((self._cancel, self._requeue, self._hold, self._end, self._operator, self._halt))
        if USERS in self.kinds:
            self.world.log(f"meanwhile {event.__name__.strip('_')}")
            event()
        if self.random.random() < 0.3:
            self._take(self.random.choice((0.5, 3.0)), busy)

    # -- faults ----------------------------------------------------------------------------------------------------

    def _daemon(self) -> ChaosDaemon:
        return self.random.choice(self.world.daemons)

    def _arm_kill(self) -> None:
        self._daemon().kill_in = self._moment()

    def _arm_stop(self) -> None:
        self._daemon().freeze_in = self._moment()

    def _moment(self) -> Countdown:
        """Anywhere in the next cycles, or around what only a daemon does that acts."""
        call = self.random.choice(("", *ACTS))
        return Countdown(self.random.randint(0, 6 if call else 40), call)

    def _restart(self) -> None:
        for daemon in self.world.daemons:
            if not daemon.alive and not daemon.busy:
                daemon.start()

    def _slow(self) -> None:
        self._daemon().faults.slow_s = self.random.choice((0.2, 3.0, 19.0))

    def _fail(self) -> None:
        errors = (SlurmTimeoutError("no answer"), SlurmUnavailableError("down"), SlurmRefusedError("denied"))
        calls = self.random.choice((("snapshot",), ("reservations",), CHANGES, (self.random.choice(CHANGES),)))
        error = self.random.choice(errors if calls[0] in CHANGES else errors[:2])
        self.random.choice((self._daemon(), self.world)).faults.failing |= dict.fromkeys(calls, error)

    def _lose_answers(self) -> None:
        self._daemon().faults.lost_answers = self.random.randint(1, 5)

    def _refuse_some(self) -> None:
        self._daemon().faults.picky = True

    def _hide(self) -> None:
        jobs = [i for i, e in self.world.cluster.jobs.items() if e.job.state is not JobState.ENDED]
        self._daemon().faults.hidden = frozenset(self.random.sample(jobs, min(len(jobs), 2)))

    def _outage(self) -> None:
        self.random.choice((self._daemon(), self.world)).faults.database_down = True

    def _lose_commits(self) -> None:
        self._daemon().faults.lost_commits = self.random.randint(1, 3)

    def _mend(self) -> None:
        for it in (self.world, *self.world.daemons):
            it.faults.__init__(failing={})  # type: ignore[misc]

    def _step_clock(self) -> None:
        """A step of a host's clock; daemons that share a file as their database share the host."""
        ahead = timedelta(seconds=self.random.choice((0, 400, -400, 4_000)))
        for daemon in [self._daemon()] if self.world.has_server else self.world.daemons:
            daemon.clock.ahead = ahead

    def _node_fails(self) -> None:
        """Slurm takes a node out of service; the jobs on it run on."""
        name = self.random.choice(list(self.world.cluster.nodes))
        node = self.world.cluster.nodes[name]
        if node.available:
            self.world.cluster.nodes[name] = replace(node, available=False, raw_state="DOWN", reason="broken")
        elif node.reason == "broken":
            self.world.cluster.bring_back(name)

    # -- people ----------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.world.advance(self.random.choice((5.0, 30.0)))

    def _jobs(self, *states: JobState) -> list[Any]:
        return [e for e in self.world.cluster.jobs.values() if e.job.state in states]

    def _cancel(self) -> None:
        if found := self._jobs(JobState.PENDING, JobState.RUNNING):
            self._withdraw(self.random.choice(found))

    def _cancel_urgent(self) -> None:
        waiting = [e for e in self._jobs(JobState.PENDING) if "urgent" in e.job.partitions]
        if waiting:
            self.world.log("the urgent job is cancelled")
            self._withdraw(self.random.choice(waiting))
            self._cycles()

    def _withdraw(self, entry: Any) -> None:
        if entry.job.state is JobState.PENDING:
            self.world.cluster.withdraw(entry)
        else:
            self.world.cluster.end_run(entry, requeue=False)

    def _hold(self) -> None:
        """Hold a waiting job, or release it."""
        if found := self._jobs(JobState.PENDING):
            entry = self.random.choice(found)
            entry.job = replace(entry.job, priority=entry.usual_priority if entry.job.priority == 0 else 0)

    def _requeue(self) -> None:
        if found := [e for e in self._jobs(JobState.RUNNING) if e.job.can_be_requeued]:
            self.world.cluster.end_run(self.random.choice(found), requeue=True)

    def _end(self) -> None:
        if found := self._jobs(JobState.RUNNING):
            self.world.cluster.end_run(self.random.choice(found), requeue=False)

    def _ask(self, kind: str, eviction_id: int | None = None, document: str = "") -> None:
        self.world.store.add_request(kind, eviction_id, "root (command line)", self.world.clock.now(), document)  # type: ignore[arg-type]

    def _operator(self) -> None:
        open_ones = self.world.store.open_evictions()
        waiting = [e for e in open_ones if e.state is EvictionState.AWAITING_APPROVAL]
        if waiting and self.random.random() < 0.7:
            self._ask("approve", self.random.choice(waiting).eviction_id)
        elif open_ones and self.random.random() < 0.6:
            self._ask("cancel", self.random.choice(open_ones).eviction_id)
        else:
            self._ask(self.random.choice(("pause", "resume")))

    def _halt(self) -> None:
        self._ask("halt")

    def _unhalt(self) -> None:
        self._ask("unhalt")

    def _drain(self) -> None:
        names = self.random.sample(list(self.world.cluster.nodes), self.random.choice((1, 2)))
        self._ask("drain", document=DrainRequest(nodes=",".join(names)).model_dump_json())

    def _promise(self) -> None:
        """Nodes for a time that is near, and for a while that ends before the schedule does."""
        r = self.random
        at = self.world.clock.now() + timedelta(seconds=r.choice((10, 45, 90)))
        wish = PromiseRequest(
            nodes=r.choice((1, 2, 4)), partition="batch", at=at, duration_s=r.choice((60.0, 120.0)), users=("beam",)
        )
        self._ask("promise", document=wish.model_dump_json())

    def _reload(self) -> None:
        for daemon in self.world.daemons:
            daemon.reload(self.scene.config())

    def _protect(self) -> None:
        users = self.random.sample(PEOPLE, self.random.randint(0, len(PEOPLE)))
        self.scene.settings["candidates"]["protected_users"] = ["vip", *users]
        self._reload()

    def _new_budget(self) -> None:
        until = self.world.clock.now().replace(tzinfo=None)  # as SQLite keeps times: UTC
        self.world.witness.budgets.append((until, self.scene.config().budget.jobs_per_hour))
        self.scene.settings["budget"] = {"jobs_per_hour": self.random.choice((0, 1, 2, 5))}
        self._reload()

    def _end_beside_suspended(self) -> None:
        """A suspended job waits for those on its nodes, which may have a long time to go."""
        nodes = {name for e in self._jobs(JobState.SUSPENDED) for name in e.job.nodes}
        for entry in self._jobs(JobState.RUNNING):
            if nodes & set(entry.job.nodes):
                self.world.cluster.end_run(entry, requeue=False)

    def _what_was_stored(self) -> Iterator[str]:
        for entry in self.world.cluster.jobs.values():
            job = entry.job
            yield f"job {job.job_id} {job.state} {','.join(job.nodes)} prio {job.priority} {job.reservation or ''}"
        for e in reversed(self.world.store.evictions()):
            yield f"{e.kind} {e.eviction_id} {e.state} {e.placement} for {e.subject.job_id}: {e.outcome}"
            yield from (f"    job {p.job_id} {p.action} {p.state} {p.note}" for p in e.preemptions)
            for step in self.world.store.steps(e.eviction_id):
                at = (step.intended_at - NOW).total_seconds()
                yield f"    {at:7.1f} {step.kind} {step.job_id or ''} {step.result} {step.detail}"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        self.healed = True
        world = self.world
        world.log("all faults are over")
        self._mend()
        for name, node in world.cluster.nodes.items():
            if node.reason == "broken":
                world.cluster.bring_back(name)
        for daemon in world.daemons:
            daemon.clock.ahead = timedelta()
            daemon.kill_in = daemon.freeze_in = NEVER
        for entry in self._jobs(JobState.PENDING):
            if entry.job.priority == 0:
                entry.job = replace(entry.job, priority=entry.usual_priority)
        self._restart()
        self._ask("unhalt")
        self._ask("resume")

    def _quiet(self) -> None:
        """Until nothing is under way; then drained nodes are brought back."""
        world = self.world
        for daemon in world.daemons:
            daemon.errors.clear()
        for number, seconds in enumerate((2.0, 8.0, 8.0, 5.0, 10.0) + (14.0,) * 60):
            world.advance(seconds)
            leaders = [daemon for daemon in world.daemons if daemon.loop.leadership.leads]
            for daemon in leaders or world.daemons:
                daemon.cycle()
            if number < 2 or not any(daemon.loop.leadership.leads for daemon in world.daemons):
                continue
            if number > 4:
                self._end_beside_suspended()
            ours = [n.name for n in world.cluster.nodes.values() if drain_number(n.reason) is not None]
            acting = any(e.state.acting for e in world.store.open_evictions())
            if not acting and not ours:
                break
            if ours and not acting:
                self._ask("undrain", document=UndrainRequest(nodes=",".join(ours)).model_dump_json())
        for daemon in world.daemons:
            for error in daemon.errors:
                world.witness.violation(f"{daemon.name}: a quiet cycle failed: {error!r}", error)
