"""The machine of a replay: its nodes, and the jobs that hold them.

A scheduler acts through the methods without an underscore; ``engine`` says what each does to a job, and plays the
events.

Cost. Free nodes are a stack of numbers, taken and given back by slices; running jobs are kept sorted by expected
end. An event costs O(log jobs) and a copy of the job's node numbers, besides what the scheduler does.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from enum import Enum
from heapq import heappush

from clearway_lab.errors import SimulationError
from clearway_lab.traces.trace import TraceJob


class State(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    LEAVING = "leaving"
    SUSPENDED = "suspended"
    ENDED = "ended"


_RUNNING, _WAITING, _ENDED = State.RUNNING, State.WAITING, State.ENDED  # an enumeration's members are found slowly


class ReplayedJob:
    """A job in a replay. All times in seconds; ``index`` is its place in the order of submission.

    Written out instead of a dataclass, and without a list of its own until it has nodes: a replay makes one for
    every job of a trace.
    """

    __slots__ = (
        "begun_s",
        "done_s",
        "end_s",
        "epoch",
        "expected_end_s",
        "index",
        "job_id",
        "keeps_nodes",
        "limit_s",
        "lost_s",
        "nodes",
        "overhead_s",
        "preemptions",
        "return_s",
        "run_s",
        "saved_s",
        "size",
        "start_s",
        "state",
        "submit_s",
        "taken_s",
        "trace",
        "urgent",
    )

    def __init__(self, trace: TraceJob, index: int) -> None:
        self.trace = trace
        self.index = index
        self.job_id: int = trace.job_id
        self.submit_s: float = trace.submit_s
        self.size: int = trace.size
        self.run_s: float = trace.run_s
        self.limit_s: float = trace.limit_s
        self.urgent: bool = trace.urgent
        self.state = _WAITING
        self.nodes: Sequence[int] = ()
        self.start_s: float = -1  # of its first run
        self.taken_s: float = -1  # since when it holds the nodes of this run
        self.begun_s: float = -1  # since when it computes in this run: later than taken_s when it returns
        self.expected_end_s: float = -1  # at its limit
        self.end_s: float = -1
        self.done_s: float = 0  # work that it had when this run began
        self.return_s: float = 0  # what its next start spends before it computes
        self.lost_s: float = 0
        self.saved_s: float = 0  # work that a preemption did not cost
        self.overhead_s: float = 0
        self.preemptions = 0
        self.keeps_nodes = False
        self.epoch = 0  # events of an earlier epoch are void

    @property
    def lasts_s(self) -> float:
        """How long its next run takes by its limit: of a preempted job what is left of it, and its return."""
        return self.return_s + self.limit_s - self.done_s

    def worked_s(self, now_s: float) -> float:
        """How much of its work is done."""
        return self.done_s + max(0, now_s - self.begun_s) if self.state is State.RUNNING else self.done_s


class Machine:
    """The nodes, and the jobs that hold them. Only the methods without an underscore are a scheduler's to call."""

    def __init__(self, nodes: int, seed: int = 0) -> None:
        self.nodes = nodes
        self.seed = seed  # for what a scheduler draws
        self.now_s: float = 0
        self.free: list[int] = list(range(nodes - 1, -1, -1))  # the next to be given is the last
        self.running: list[tuple[float, int, ReplayedJob]] = []  # expected end, index, job: sorted
        self.leaving: dict[int, ReplayedJob] = {}  # by index; still on their nodes
        self.suspended: dict[int, ReplayedJob] = {}  # by index
        self.kept: dict[int, ReplayedJob] = {}  # node: the suspended job that returns to it
        self.kept_free: dict[int, None] = {}  # those of them that no job computes on, in the order they came
        self.busy_node_s: float = 0
        self._events: list[tuple[float, int, int, ReplayedJob | None]] = []  # time, index, epoch, job
        self._wakes = 0

    @property
    def used(self) -> int:
        """Nodes that a job holds; those kept for a suspended job only when another computes there."""
        return self.nodes - len(self.free) - len(self.kept_free)

    def start(self, job: ReplayedJob, *, beside: Iterable[ReplayedJob] = ()) -> None:
        """Start or resume a job now; it may use the nodes of the suspended jobs ``beside``, and takes them first.

        Raises:
            SimulationError: when it does not wait, or its nodes are not free.
        """
        free, size = self.free, job.size
        if job.state is _WAITING:
            if size <= len(free) and not self.kept_free:
                job.nodes = free[-size:]
                del free[-size:]
            else:
                self._allot(job, self.kept_for(beside))
        elif job.state is State.SUSPENDED and self.can_resume(job):
            for node in job.nodes:
                del self.kept[node], self.kept_free[node]
            del self.suspended[job.index]
        else:
            raise SimulationError(f"job {job.job_id} cannot start: it is {job.state.value}")
        job.state = _RUNNING
        now_s, done_s, index = self.now_s, job.done_s, job.index
        if job.start_s < 0:
            job.start_s = now_s
        job.taken_s = now_s
        job.begun_s = begun_s = now_s + job.return_s
        job.expected_end_s = expected_end_s = begun_s + job.limit_s - done_s
        job.epoch = epoch = job.epoch + 1
        insort(self.running, (expected_end_s, index, job))
        heappush(self._events, (begun_s + job.run_s - done_s, index, epoch, job))

    def can_resume(self, job: ReplayedJob) -> bool:
        """Whether no other job computes on the nodes of this suspended job."""
        kept_free = self.kept_free
        return all(node in kept_free for node in job.nodes)

    def kept_for(self, beside: Iterable[ReplayedJob]) -> list[int]:
        """The nodes that these suspended jobs keep and no job computes on, in the order they came."""
        if not self.kept_free:
            return []
        indexes = {job.index for job in beside}
        return [node for node in self.kept_free if self.kept[node].index in indexes]

    def preempt(
        self,
        job: ReplayedJob,
        *,
        leave_s: float = 0,
        saved_s: float | None = None,
        return_s: float = 0,
        keep_nodes: bool = False,
    ) -> None:
        """Take a running job off its nodes; see the module's text."""
        if job.state is not State.RUNNING:
            raise SimulationError(f"job {job.job_id} cannot be preempted: it is {job.state.value}")
        worked_s = job.worked_s(self.now_s)
        kept_s = worked_s if saved_s is None else saved_s
        if not 0 <= kept_s <= worked_s:
            raise SimulationError(f"job {job.job_id} cannot save {kept_s} s of work: it has done {worked_s} s")
        self._forget_running(job)
        job.overhead_s += min(self.now_s, job.begun_s) - job.taken_s + leave_s
        job.lost_s += worked_s - kept_s
        job.saved_s += max(0, kept_s - job.done_s)
        job.done_s = kept_s
        job.return_s = return_s
        job.keeps_nodes = keep_nodes
        job.preemptions += 1
        job.state = State.LEAVING
        job.epoch += 1
        self.leaving[job.index] = job
        heappush(self._events, (self.now_s + leave_s, job.index, job.epoch, job))

    def wake_at(self, time_s: float) -> None:
        self._wakes += 1
        heappush(self._events, (time_s, -1, self._wakes, None))

    def free_later(self) -> list[tuple[float, int]]:
        """Moments at which nodes become free for ordinary jobs, and how many, by the limits of the jobs; ascending.

        A node that is kept becomes free when the suspended job, back on it as soon as all others have left its
        nodes, is done.
        """
        if not self.kept and not self.leaving:
            return [(end_s, job.size) for end_s, _, job in self.running]
        coming = []
        away_s: dict[int, float] = {}  # node: when the job that computes on a kept node is expected to leave it
        kept = self.kept
        for end_s, _, job in self.running:
            ordinary = job.size
            if kept:
                for node in job.nodes:
                    if node in kept:
                        away_s[node] = end_s
                        ordinary -= 1
            if ordinary:
                coming.append((end_s, ordinary))
        for job in (*self.suspended.values(), *self.leaving.values()):
            back_s = max((away_s.get(node, self.now_s) for node in job.nodes), default=self.now_s)
            coming.append((back_s + job.return_s + job.limit_s - job.done_s, job.size))
        coming.sort()
        return coming

    def _allot(self, job: ReplayedJob, kept: list[int]) -> None:
        free = self.free
        taken = kept[: job.size]
        missing = job.size - len(taken)
        if missing > len(free):
            raise SimulationError(f"job {job.job_id} cannot start: {missing} nodes wanted, {len(free)} are free")
        for node in taken:
            del self.kept_free[node]
        if missing:
            taken += free[-missing:]
            del free[-missing:]
        job.nodes = taken

    def _give_back(self, job: ReplayedJob) -> None:
        if self.kept:
            for node in job.nodes:
                if node in self.kept:
                    self.kept_free[node] = None
                else:
                    self.free.append(node)
        else:
            self.free += job.nodes
        job.nodes = ()

    def _forget_running(self, job: ReplayedJob) -> None:
        del self.running[bisect_left(self.running, (job.expected_end_s, job.index))]

    def _end(self, job: ReplayedJob) -> None:
        now_s, taken_s, running = self.now_s, job.taken_s, self.running
        del running[bisect_left(running, (job.expected_end_s, job.index))]
        self.busy_node_s += job.size * (now_s - taken_s)
        job.overhead_s += job.begun_s - taken_s
        job.done_s = job.run_s
        job.end_s = now_s
        job.state = _ENDED
        if self.kept:
            self._give_back(job)
        else:
            self.free += job.nodes
            job.nodes = ()

    def _leave(self, job: ReplayedJob) -> None:
        del self.leaving[job.index]
        self.busy_node_s += job.size * (self.now_s - job.taken_s)
        if job.keeps_nodes:
            job.state = State.SUSPENDED
            self.suspended[job.index] = job
            self.kept |= dict.fromkeys(job.nodes, job)
            self.kept_free |= dict.fromkeys(job.nodes)
        else:
            job.state = State.WAITING
            self._give_back(job)
