"""Random schedules of faults and of what users and operators do, drawn from a seed.

A schedule is some steps, each one event and then a cycle of every daemon that can run one; at its end all faults are
over, the daemons get quiet cycles, and ``Witness`` says what should not have been. The same seed gives the same run:
``CLEARWAY_CHAOS_SEED=N tests/run unit -- tests/simulation/test_chaos.py`` plays it again and tells each event.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path

from clearway.drain.request import UndrainRequest
from clearway.execution.lifecycle import drain_number
from clearway.model.cluster import JobState
from tests.builders import NOW
from tests.simulation.chaos_faults import Troubles
from tests.simulation.chaos_scene import (
    BUDGET,
    CHANGES,
    CLOCK,
    DATABASE,
    FAILING,
    KILL,
    KINDS,
    NODES,
    PARTIAL,
    PROMISES,
    PROTECT,
    SLOW,
    STOP,
    TWO,
    USERS,
    Scene,
)
from tests.simulation.chaos_situations import situations
from tests.simulation.chaos_witness import Outcome, Witness
from tests.simulation.chaos_world import NEVER, ChaosDaemon, ChaosWorld, Countdown

LAST_BY = 15  # quiet cycles until an urgent job runs for which there is room
CYCLES_ALONE = 30
LEASE_S = 20.0  # longer than any lease of these daemons


class Schedule(Troubles):
    """One world, and what happens in it."""

    def __init__(self, seed: int, folder: Path, empty: Path, kinds: Collection[str] = KINDS) -> None:
        self.seed, self.kinds = seed, frozenset(kinds)
        self.random = random.Random(seed)
        self.world = ChaosWorld(folder, empty, Witness, self.random, has_server=self.random.random() < 0.7)
        self.world.meanwhile, self.world.take, self.world.between = self._meanwhile, self._take, self._between
        self.world.beside_a_step = self._beside_a_step
        self.steps = self.random.randint(8, 14)
        self.nested = 0
        self.healed = False
        self.scene = Scene(self.random, self.kinds, self.world)
        self.world.daemons = [ChaosDaemon("a", self.world, self.scene.config())]
        if TWO in self.kinds and self.random.random() < 0.6:
            self.world.daemons.append(ChaosDaemon("b", self.world, self.scene.config()))
        self.scene.furnish()
        self._begin_climate()

    # -- playing ---------------------------------------------------------------------------------------------------

    def play(self) -> Outcome:
        world = self.world
        try:
            self.scene.urgent()
            while self.steps > 0:
                self._step()
            if self.scene.climate.loses_nodes:
                self._go_on_alone()
            self._heal()
            self._quiet()
            world.witness.at_the_end()
            found = situations(world, self.scene.climate.name)
            if world.witness.violations:
                world.lines += self._what_was_stored()
        finally:
            world.close()
        witness = world.witness
        return Outcome(
            self.seed,
            tuple(witness.violations),
            tuple(world.lines),
            witness.commands,
            frozenset(witness.kinds_found),
            found,
            witness.first_error,
        )

    def _go_on_alone(self) -> None:
        """Node after node could be lost for one urgent job, were nothing else the matter."""
        self._mend()
        self._all_as_usual()
        for daemon in self.world.daemons:
            daemon.clock.ahead = timedelta()
            daemon.kill_in = daemon.freeze_in = NEVER
        self._restart()
        self._ask("unhalt")
        self._ask("resume")
        self.scene.fill()
        self.scene.urgent()
        for _ in range(CYCLES_ALONE):
            self.world.advance(self.random.choice((1.0, 2.0, 20.0)))
            self._cycles()

    def _step(self) -> None:
        self.steps -= 1
        event = self._draw()
        self.world.log(event.__name__.strip("_"))
        event()
        self.world.advance(self.random.choice((0.5, 1.0, 2.0, 5.0, 8.0)))
        self._cycles()

    def _cycles(self) -> None:
        daemons = list(self.world.daemons)
        if self.random.random() < 0.3:
            daemons.reverse()
        for daemon in daemons:
            daemon.cycle()

    def _draw(self) -> Callable[[], None]:
        events: list[tuple[int, str, Callable[[], None]]] = [
            (6, KILL, self._arm_kill),
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
            (6, USERS, self.scene.urgent),
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
            (1, NODES, self._node_dies),
            (4, CHANGES, self._change_job),
            (4, CHANGES, self._extend),
            (5, CHANGES, self._change_urgent),
            (1, CHANGES, self._change_partition),
            (1, CHANGES, self._change_node),
            (3, PROMISES, self._promise),
            (3, "", self._pass_time),
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
        if CHANGES in self.kinds and self.random.random() < 0.4:
            event = self._change_urgent
        if USERS in self.kinds:
            self.world.log(f"meanwhile {event.__name__.strip('_')}")
            event()
        if self.random.random() < 0.3:
            self._take(self.random.choice((0.5, 3.0)), busy)

    def _beside_a_step(self) -> None:
        if CHANGES in self.kinds and not self.healed and self.random.random() < 0.05:
            self._change_urgent()

    def _end_beside_suspended(self) -> None:
        """A suspended job waits for those on its nodes, which may have a long time to go."""
        nodes = {name for e in self._jobs(JobState.SUSPENDED) for name in e.job.nodes}
        for entry in self._jobs(JobState.RUNNING):
            if nodes & set(entry.job.nodes):
                self._end_by_hand(entry, requeue=False)

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
        world = self.world
        world.witness.nodes_as_told()
        self.healed = True
        world.log("all faults are over")
        self._mend()
        self._end_climate()
        self._all_as_usual()
        for daemon in world.daemons:
            daemon.clock.ahead = timedelta()
            daemon.kill_in = daemon.freeze_in = NEVER
        self._restart()
        self._ask("unhalt")
        self._ask("resume")

    def _quiet(self) -> None:
        """Until nothing is under way and the last urgent job runs; then drained nodes are brought back."""
        world, last = self.world, self.scene.last_urgent()
        for daemon in world.daemons:
            daemon.errors.clear()
        for number, seconds in enumerate((2.0, 8.0, 8.0, 5.0, 10.0) + (14.0,) * 60):
            world.advance(seconds)
            self._quiet_cycle()
            if number > 4:
                self._end_beside_suspended()
            if number >= 2 and self._has_leader() and self._is_over(last, number):
                break
        world.witness.judge_last(last, self.scene.config())
        for daemon in world.daemons:
            for error in daemon.errors:
                world.witness.violation(f"{daemon.name}: a quiet cycle failed: {error!r}", error)

    def _quiet_cycle(self) -> None:
        leaders = [daemon for daemon in self.world.daemons if daemon.loop.leadership.leads]
        for daemon in leaders or self.world.daemons:
            daemon.cycle()
        self.world.witness.look_for_idle_placements()
        self.world.witness.look_for_ended_by_signal()

    def _has_leader(self) -> bool:
        return any(daemon.loop.leadership.leads for daemon in self.world.daemons)

    def _is_over(self, last: str, number: int) -> bool:
        """Nothing is under way, and nobody waits who should not. Nodes that a drain keeps are asked back."""
        world = self.world
        if any(e.state.acting for e in world.store.open_evictions()):
            return False
        if ours := [n.name for n in world.cluster.nodes.values() if drain_number(n.reason) is not None]:
            self._ask("undrain", document=UndrainRequest(nodes=",".join(ours)).model_dump_json())
            return False
        waits = (job := world.job(last)) is not None and job.state is JobState.PENDING and number < LAST_BY
        return not waits and not world.witness.urgent_jobs_with_room()
