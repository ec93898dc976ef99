"""Room at a promised time, in a replay: EASY backfilling around nodes that are promised for later.

A promise is an urgent job of the trace whose time is known before: ``submit_s`` is the promised time, ``size`` the
number of nodes, and its limit how long they are promised for. From ``hold_s`` before that time on no job starts that by
its limit would have to leave: one that ends in time may use the promised nodes, and one that does not may use the
others. The promise counts nodes, it names none, as all nodes of a replay are alike.

The running jobs that stand in the way at that time are chosen by ``planning``: ends are counted, and of the
others those leave that lose the least work. How they leave is a ``Leaving``:

- ``STAY``: none does; the promised job waits. With a long ``hold_s`` this is a reservation of Slurm's own.
- ``REQUEUE``: they are requeued at the promised time and repeat their work.
- ``SAVE_IN_TIME``: they are saved as late as possible, such that all images are written by the promised time.
- ``SAVE_THEN``: they are saved from the promised time on; that is what reacting without a loss can do.

With ``hold_s`` 0, nothing happens before the promised time.

Cost. Far from promises, that of EASY. Within ``hold_s`` of one, each event takes a pass over the queue, with a pass
over the plan of free nodes for each job that fits. A promise takes two or three solutions of the eviction problem.
"""

from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from itertools import takewhile
from math import ceil

from clearway.model.plan import PlannedAction
from clearway.model.problem import Action, Candidate, EvictionProblem, Option
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway_lab.schedulers.conservative import Profile
from clearway_lab.schedulers.easy import Easy
from clearway_lab.simulator.checkpoint_models import CheckpointModel, JustInTime, NoCheckpoints, Storage
from clearway_lab.simulator.machine import Machine, ReplayedJob
from clearway_lab.traces.trace import TraceJob


class Leaving(StrEnum):
    STAY = "stay"
    REQUEUE = "requeue"
    SAVE_IN_TIME = "save in time"
    SAVE_THEN = "save then"


class Promised(Easy):
    name = "promised"

    def __init__(self, promises: Iterable[TraceJob], *, hold_s: int, leaving: Leaving, storage: Storage) -> None:
        """``promises`` are the urgent jobs of the trace."""
        super().__init__()
        self.coming = sorted(promises, key=lambda job: (job.submit_s, job.job_id))
        self.hold_s = hold_s
        self.leaving = leaving
        self.storage = storage
        self.model: CheckpointModel = NoCheckpoints() if leaving is Leaving.REQUEUE else JustInTime(storage)
        self.due: list[ReplayedJob] = []  # promised jobs whose time has come and that wait
        self.asked: set[int] = set()  # ids of promises to come for which jobs are being saved
        self.gone_s: dict[int, float] = {}  # by index: when a job that leaves has left

    def begin(self, machine: Machine) -> None:
        super().begin(machine)
        self.longest_s = self._write_s(machine.nodes) + self.storage.transfer_s(1)
        self.early_s = self.longest_s if self.leaving is Leaving.SAVE_IN_TIME else 0
        for promise in self.coming:
            machine.wake_at(promise.submit_s - self.hold_s)
            machine.wake_at(promise.submit_s - self.early_s)

    def submitted(self, job: ReplayedJob) -> None:
        if job.urgent:
            self.coming = [promise for promise in self.coming if promise.job_id != job.job_id]
            self.due.append(job)
        else:
            super().submitted(job)

    def returned(self, job: ReplayedJob) -> None:
        del self.gone_s[job.index]
        super().returned(job)

    def schedule(self) -> None:
        now_s = self.machine.now_s
        self._start_due()
        for job in self.due:
            if not self.machine.leaving and self.leaving is not Leaving.STAY:
                within_s = 0 if self.leaving is Leaving.REQUEUE else self.longest_s
                self._preempt(self.chosen(job.trace, within_s))
        self._start_due()
        for promise in self.coming:
            if promise.submit_s - self.early_s > now_s:
                break
            if self.leaving is Leaving.SAVE_IN_TIME and promise.job_id not in self.asked:
                self._make_room_late(promise)
        held = [job.trace for job in self.due]
        held += takewhile(lambda promise: promise.submit_s - self.hold_s <= now_s, self.coming)
        if held:
            self._start_around(held)
            self.seen = 0  # EASY looks at all of the queue anew
        else:
            super().schedule()

    def _start_due(self) -> None:
        while self.due and self.due[0].size <= len(self.machine.free):
            self.machine.start(self.due.pop(0))
            self.seen = 0

    def _start_around(self, held: Iterable[TraceJob]) -> None:
        """EASY in a plan of the nodes that are free by limits: the first job that must wait keeps its place in it."""
        machine = self.machine
        now_s = machine.now_s
        ends = [(end_s, job.size) for end_s, _, job in machine.running]
        ends += [(self.gone_s[job.index], job.size) for job in machine.leaving.values()]
        profile = Profile(now_s, len(machine.free), sorted(ends))
        for promise in held:
            from_s = max(now_s, promise.submit_s)
            profile.take(from_s, from_s + promise.limit_s, promise.size)
        waits: list[ReplayedJob] = []
        for job in self.queue:
            fits = job.size <= len(machine.free)
            if waits and not fits:
                waits.append(job)
                continue
            left_s = job.return_s + job.limit_s - job.done_s
            start_s = profile.earliest(job.size, left_s)
            if fits and start_s <= now_s:
                machine.start(job)
            else:
                waits.append(job)
                if len(waits) > 1:
                    continue
            profile.take(start_s, start_s + left_s, job.size)
        self.renew(waits)

    def _make_room_late(self, promise: TraceJob) -> None:
        """Have jobs saved for a time to come, once all that is left of it is needed for their images."""
        now_s = self.machine.now_s
        chosen = self.chosen(promise, promise.submit_s - now_s)
        if not chosen:
            return
        last_s = promise.submit_s - self.storage.transfer_s(1) - sum(each.checkpoint_s for each in chosen)
        if now_s < last_s:
            self.machine.wake_at(last_s)  # until then jobs may end
            return
        self.asked.add(promise.job_id)
        self._preempt(chosen)

    def _preempt(self, chosen: Iterable[PlannedAction]) -> None:
        machine = self.machine
        by_id = {str(job.job_id): job for _, _, job in machine.running}
        for job in [by_id[each.job_id] for each in chosen]:
            departure = self.model.departure(job, machine.now_s)
            machine.preempt(job, **asdict(departure))
            self.gone_s[job.index] = machine.now_s + departure.leave_s

    def chosen(self, promise: TraceJob, within_s: float) -> list[PlannedAction]:
        """The jobs that must leave for room in so many seconds, at the least loss; none where that cannot be."""
        machine = self.machine
        there = len(machine.free) + sum(job.size for job in machine.leaving.values())
        needed = promise.size - there
        if needed <= 0:
            return []
        requeue = self.leaving is Leaving.REQUEUE
        last_s = 0 if requeue else self.storage.transfer_s(1)  # until the last image is written
        max_delay_s = max(0, int(within_s) - last_s)
        candidates = []
        for end_s, _, job in machine.running:
            if job.urgent:
                continue
            options = []
            if end_s - machine.now_s <= within_s:
                options.append(Option(Action.END, ready_s=min(end_s - machine.now_s, max_delay_s)))
            elif requeue:
                options.append(Option(Action.KILL, lost_work_node_s=job.size * job.worked_s(machine.now_s)))
            else:
                options.append(
                    Option(
                        Action.SYS_CHECKPOINT,
                        checkpoint_s=self._write_s(job.size),
                        return_node_s=job.size * self.storage.transfer_s(job.size),
                    )
                )
            candidates.append(Candidate(str(job.job_id), job.size, tuple(options)))
        point = EvictionDP().solve(EvictionProblem(needed, max_delay_s, 1, tuple(candidates))).choose()
        return [] if point is None else [each for each in point.actions if each.action is not Action.END]

    def _write_s(self, size: int) -> int:
        """With the whole file system."""
        storage = self.storage
        return ceil(size * storage.unit_nodes * storage.node_gib / storage.file_system_gib_s)
