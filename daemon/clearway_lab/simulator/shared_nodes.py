"""A small machine whose nodes are shared by jobs: first come, first served, with or without moves of running jobs.

The replay behind the studies of the Slurm+DMTCP paper (its section 4): a job asks for processors, which may lie on
several nodes. A job that fits on one node gets the fullest such node, another one as few nodes as possible. With
several partitions it takes the first in which it fits at once. No job overtakes.

When no job waits, moves are planned every ``period_s``. The jobs of a plan are moved one after another: until a job's
turn it runs on, then it stands still for ``move_s`` and ends later by so much; its old and its new place are held until
its move is over. A job that ends before its turn is not moved.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clearway.relocation.moves import Host, Limits, MovePlan, Part, Resident

HOUR_S = 3_600.0


Planning = Callable[[Sequence[Host], Sequence[Resident], Limits], MovePlan]


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job as submitted."""

    job_id: str
    submit_s: float
    processors: int
    run_s: float


@dataclass(frozen=True, slots=True)
class Moving:
    """When and how jobs are moved."""

    plan: Planning
    move_s: Callable[[int], float]  # by the job's processors
    remaining_s: Callable[[float], float]  # what the planner expects, by what is true
    period_s: float = 60.0
    jobs_per_hour: int = 60


STILL = Moving(lambda _hosts, _residents, _limits: MovePlan(), lambda _: 0.0, lambda true_s: true_s)


@dataclass(slots=True)
class Usage:
    """Seconds that a node spent in each state."""

    empty_s: float = 0.0
    partly_s: float = 0.0
    full_s: float = 0.0
    held_processor_s: float = 0.0  # by jobs, or for jobs on their way

    @property
    def total_s(self) -> float:
        return self.empty_s + self.partly_s + self.full_s


@dataclass(frozen=True, slots=True)
class SharedReplay:
    """The result of a replay until its horizon."""

    usage: dict[str, Usage]  # by node
    moved_jobs: int
    stalled_processor_s: float  # that moved jobs stood still
    waited_s: tuple[float, ...]  # of the jobs that started
    finished: int


@dataclass(slots=True)
class _Running:
    request: SubmittedJob
    parts: dict[str, int]
    end_s: float
    kept: dict[str, int] = field(default_factory=dict)  # of its old place, until it has been moved

    def held(self) -> Counter[str]:
        return Counter(self.parts) + Counter(self.kept)


def replay_shared(
    requests: Sequence[SubmittedJob], partitions: Sequence[Sequence[Host]], horizon_s: float, moving: Moving = STILL
) -> SharedReplay:
    """Run until the horizon; ``partitions`` stand in the order in which a job tries them."""
    return _Replay(requests, partitions, horizon_s, moving).run()


class _Replay:
    def __init__(
        self, requests: Sequence[SubmittedJob], partitions: Sequence[Sequence[Host]], horizon_s: float, moving: Moving
    ) -> None:
        self._hosts = {host.name: host for partition in partitions for host in partition}
        self._partitions = [[host.name for host in partition] for partition in partitions]
        self._free = Counter({name: host.processors for name, host in self._hosts.items()})
        self._horizon_s = horizon_s
        self._moving = moving
        self._usage = {name: Usage() for name in self._hosts}
        self._running: dict[str, _Running] = {}
        self._waiting: list[SubmittedJob] = []
        self._events: list[tuple[float, int, str, str]] = []
        self._requests = {request.job_id: request for request in requests}
        for request in requests:
            self._push(request.submit_s, "submit", request.job_id)
        self._push(moving.period_s, "plan", "")
        self._now_s = 0.0
        self._moved_at: list[float] = []
        self._stalled_s = 0.0
        self._waits: list[float] = []
        self._finished = 0

    def _push(self, at_s: float, kind: str, job_id: str) -> None:
        # What ends at a moment gives way to what begins then, and plans see both.
        heapq.heappush(self._events, (at_s, ("end", "moved", "turn", "submit", "plan").index(kind), kind, job_id))

    def run(self) -> SharedReplay:
        while self._events and self._events[0][0] < self._horizon_s:
            at_s, _, kind, job_id = heapq.heappop(self._events)
            self._advance(at_s)
            getattr(self, f"_on_{kind}")(job_id)
            if kind != "plan":
                self._start()
        self._advance(self._horizon_s)
        return SharedReplay(self._usage, len(self._moved_at), self._stalled_s, tuple(self._waits), self._finished)

    def _advance(self, at_s: float) -> None:
        passed_s = at_s - self._now_s
        for name, usage in self._usage.items():
            usage.held_processor_s += passed_s * (self._hosts[name].processors - self._free[name])
            if self._free[name] == self._hosts[name].processors:
                usage.empty_s += passed_s
            elif self._free[name]:
                usage.partly_s += passed_s
            else:
                usage.full_s += passed_s
        self._now_s = at_s

    def _on_submit(self, job_id: str) -> None:
        self._waiting.append(self._requests[job_id])

    def _on_end(self, job_id: str) -> None:
        job = self._running.get(job_id)
        if job is None or job.end_s != self._now_s:
            return  # it was moved, and ends later
        self._free.update(job.held())
        del self._running[job_id]
        self._finished += 1

    def _start(self) -> None:
        while self._waiting:
            request = self._waiting[0]
            parts = next((found for names in self._partitions if (found := self._place(request, names))), None)
            if parts is None:
                return
            self._waiting.pop(0)
            self._free.subtract(parts)
            self._running[request.job_id] = _Running(request, parts, self._now_s + request.run_s)
            self._waits.append(self._now_s - request.submit_s)
            self._push(self._now_s + request.run_s, "end", request.job_id)

    def _place(self, request: SubmittedJob, names: Sequence[str]) -> dict[str, int] | None:
        free = {name: self._free[name] for name in names if self._free[name]}
        left = request.processors
        if sum(free.values()) < left:
            return None
        parts: dict[str, int] = {}
        while left:
            enough = [(count, name) for name, count in free.items() if count >= left]
            # The last piece goes where least is left over, those before it where most fits.
            _, node = min(enough or [(-count, name) for name, count in free.items()])
            parts[node] = min(left, free.pop(node))
            left -= parts[node]
        return parts

    def _on_plan(self, _: str) -> None:
        moving = self._moving
        self._push(self._now_s + moving.period_s, "plan", "")
        if self._waiting or any(job.kept for job in self._running.values()):
            return
        recent = sum(at_s > self._now_s - HOUR_S for at_s in self._moved_at)
        plan = moving.plan(
            tuple(self._hosts.values()),
            [self._resident(job) for _, job in sorted(self._running.items())],
            Limits(jobs=max(0, moving.jobs_per_hour - recent)),
        )
        turn_s = self._now_s
        for job_id in plan.job_ids:
            job = self._running[job_id]
            for move in (each for each in plan.moves if each.job_id == job_id):
                self._free[move.target] -= move.processors
                job.kept[move.source] = job.parts.pop(move.source)
                job.parts[move.target] = move.processors
            self._push(turn_s, "turn", job_id)
            turn_s += moving.move_s(job.request.processors)

    def _resident(self, job: _Running) -> Resident:
        return Resident(
            job_id=job.request.job_id,
            parts=tuple(Part(node, count) for node, count in sorted(job.parts.items())),
            remaining_s=self._moving.remaining_s(job.end_s - self._now_s),
            move_s=self._moving.move_s(job.request.processors),
        )

    def _on_turn(self, job_id: str) -> None:
        job = self._running.get(job_id)
        if job is None:
            return  # it ended before its turn
        move_s = self._moving.move_s(job.request.processors)
        job.end_s += move_s
        self._moved_at.append(self._now_s)
        self._stalled_s += job.request.processors * move_s
        self._push(job.end_s, "end", job_id)
        self._push(self._now_s + move_s, "moved", job_id)

    def _on_moved(self, job_id: str) -> None:
        job = self._running[job_id]
        self._free.update(job.kept)
        job.kept = {}
