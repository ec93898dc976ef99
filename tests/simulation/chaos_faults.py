"""What goes wrong in a chaos schedule: with the daemons, with what they ask, and with nodes."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError, SlurmUnavailableError
from clearway.simulation.jobs import Ills
from clearway.simulation.updates import update_node
from tests.simulation.chaos_changes import Changes
from tests.simulation.chaos_world import CHANGES, ChaosDaemon, Countdown

ACTS = ("begin_step", "finish_step", "save_eviction", "change_jobs", "requeue", "signal")


class Troubles(Changes):
    """Each event is one fault; ``_mend`` ends those that can be ended at any time."""

    def _daemon(self) -> ChaosDaemon:
        return self.random.choice(self.world.daemons)

    def _arm_kill(self) -> None:
        self._daemon().kill_in = self._moment()

    def _arm_stop(self) -> None:
        self._daemon().freeze_in = self._moment()

    def _moment(self) -> Countdown:
        """Anywhere in the next cycles, or around what only a daemon does that acts, most of all once it has said so."""
        if self.random.random() < 0.4:
            return Countdown(self.random.choice((1, 2, 4, 6)), "begin_step")
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
        if not self.healed:
            self.world.faults.slow_s = self.scene.climate.slow_s

    def _step_clock(self) -> None:
        """A step of a host's clock; daemons that share a file as their database share the host."""
        ahead = timedelta(seconds=self.random.choice((0, 400, -400, 4_000)))
        self.world.witness.clock_was_set = True
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

    def _node_dies(self) -> None:
        """It answers no more: Slurm itself requeues its jobs, or calls them failed."""
        up = [name for name, node in self.world.cluster.nodes.items() if node.available]
        if up:
            name = self.random.choice(up)
            self.world.log(f"node {name} dies")
            self.world.witness.lost_nodes.add(name)
            update_node(self.world.cluster, name, "DOWN", "Not responding")

    def _begin_climate(self) -> None:
        """What is wrong for the whole run."""
        world, climate = self.world, self.scene.climate
        world.cluster.ills = climate.ills
        world.faults.slow_s, world.deaf = climate.slow_s, climate.deaf
        world.plan_s, world.store_s = climate.plan_s, climate.store_s

    def _end_climate(self) -> None:
        world = self.world
        world.cluster.ills = Ills()
        world.plan_s = world.store_s = world.deaf = 0.0
