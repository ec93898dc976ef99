"""The simulated backend: the protocol over ``simulation.cluster``, for the demo, for replays and for quick tests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from clearway.model.clock import Clock
from clearway.model.cluster import AdminLevel, ClusterSnapshot, Job, JobState, Node, Reservation
from clearway.model.errors import AlreadyGoneError, JobNotRunningError, SlurmRefusedError
from clearway.model.limits import Limits, Partition
from clearway.model.site import ClusterIdentity, License, Topology, Vouched
from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import SimulatedJob
from clearway.simulation.scheduler import in_use, partition_shuts_out
from clearway.simulation.updates import set_nice
from clearway.slurm.base import Failures, Fence, JobChange, Unfenced
from clearway.slurm.job_changes import one_by_one, require_ended_by_itself, require_unchanged
from clearway.slurm.releases import NEWEST


class SimulatedBackend:
    """Answers like Slurm; every call first plays the cluster up to the clock's time.

    ``before_change`` is called with the name of each change that the fence has let through, and how long it may take.
    """

    name = "simulated"

    def __init__(self, cluster: SimulatedCluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._fence: Fence = Unfenced()
        self.before_change: Callable[[str, float], None] = lambda _call, _limit_s: None
        self.slurm_version = f"{NEWEST}.0"  # the release that it answers like
        self.vouched = Vouched(accounts=True, qos=True)
        self.identity: ClusterIdentity | None = None
        self._seen: dict[str, tuple[Node, Node]] = {}  # a node as the cluster has it, and as it was last shown

    def available(self) -> str | None:
        return None

    def fenced_by(self, fence: Fence) -> None:
        self._fence = fence

    def _may(self, call: str) -> None:
        """Raises ``CycleEndedError`` when this change must not be made (any more)."""
        self.before_change(call, self._fence.command_limit_s())

    def snapshot(self) -> ClusterSnapshot:
        cluster = self._now()
        active = [each for each in cluster.reservations.values() if each.start_time <= cluster.now]
        reserved = {name: each.name for each in active for name in each.nodes}
        nodes = tuple(self._shown(node, reserved.get(name)) for name, node in cluster.nodes.items())
        jobs = tuple(entry.job for entry in cluster.jobs.values())
        return ClusterSnapshot(
            taken_at=cluster.now,
            jobs=jobs,
            nodes=nodes,
            queries=2,
            topology=self._topology(jobs),
            slurm_version=self.slurm_version,
            vouched=self.vouched,
            cluster=self.identity,
            licenses=self._licenses(jobs),
        )

    def _licenses(self, jobs: Sequence[Job]) -> Mapping[str, License]:
        running = [job for job in jobs if job.state.holds_nodes]
        return {name: License(total, in_use(running, name)) for name, total in self._cluster.licenses.items()}

    def job(self, job_id: str) -> Job | None:
        entry = self._now().jobs.get(job_id)
        return entry.job if entry else None

    def look_at(self, job_ids: Sequence[str], *, whole: bool = False) -> tuple[Mapping[str, Job], Failures]:  # noqa: ARG002
        jobs = self._now().jobs
        return {job_id: jobs[job_id].job for job_id in job_ids if job_id in jobs}, {}

    def change_jobs(self, change: JobChange, jobs: Sequence[Job], signal: str = "") -> Failures:
        by_id = {job.job_id: job for job in jobs}

        def act(job_id: str) -> None:
            match change:
                case JobChange.START_NOW:
                    self.start_now(job_id)
                case JobChange.SIGNAL_BATCH | JobChange.SIGNAL_STEPS:
                    self.signal(by_id[job_id], signal, batch_only=change is JobChange.SIGNAL_BATCH)
                case _:
                    getattr(self, change.value)(by_id[job_id])

        return one_by_one(act, by_id)

    def requeue(self, job: Job) -> None:
        self._may("requeue")
        entry = self._of_run(job)
        if entry.job.state in (JobState.COMPLETING, JobState.PENDING):
            raise AlreadyGoneError(f"job {job.job_id} is {entry.job.raw_state} already")
        if not entry.job.requeueable:
            raise SlurmRefusedError(f"job {job.job_id}: Requested operation is presently disabled")
        if not entry.job.batch:
            raise SlurmRefusedError(f"job {job.job_id}: Only batch jobs are accepted or processed")
        if entry.job.state is JobState.SUSPENDED:
            self._cluster.resume(entry)
        self._cluster.end_run(entry, requeue=True)

    def run_again(self, job: Job) -> None:
        self._may("requeue")
        entry = self._now().jobs.get(job.job_id)
        if entry is None:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        if entry.job.state in (JobState.COMPLETING, JobState.PENDING):
            raise AlreadyGoneError(f"job {job.job_id} is {entry.job.raw_state} already")
        require_ended_by_itself(entry.job, job)
        entry.ended_at, entry.job = None, replace(entry.job, restart_count=entry.job.restart_count + 1)
        self._cluster.wait_again(entry, self._cluster.rules.requeue_delay_s)

    def cancel(self, job: Job) -> None:
        self._may("cancel")
        entry = self._of_run(job)
        require_unchanged(entry.job, job)
        if entry.job.state is JobState.PENDING and job.state is JobState.PENDING:
            self._cluster.withdraw(entry)
        elif entry.job.state in (JobState.COMPLETING, JobState.PENDING):
            raise AlreadyGoneError(f"job {job.job_id} is {entry.job.raw_state} already")
        else:
            self._cluster.end_run(entry, requeue=False)

    def _of_run(self, job: Job) -> SimulatedJob:
        """The job, in the run that was decided on or on its way out of it."""
        entry = self._now().jobs.get(job.job_id)
        if entry is None or entry.job.state is JobState.ENDED:
            raise JobNotRunningError(f"job {job.job_id} has ended")
        if entry.job.state not in (JobState.COMPLETING, JobState.PENDING) and entry.job.run != job.run:
            raise JobNotRunningError(f"job {job.job_id} is in another run")
        return entry

    def signal(self, job: Job, signal: str, *, batch_only: bool) -> None:  # noqa: ARG002 - programs hear any signal
        self._may("signal")
        entry = self._now().jobs.get(job.job_id)
        if entry is None or entry.job.state is not JobState.RUNNING or entry.job.run != job.run:
            raise JobNotRunningError(f"job {job.job_id} is not in the run that should be signalled")
        self._cluster.signalled(entry)

    def start_now(self, job_id: str) -> None:
        self._may("start_now")
        entry = self._entry(job_id)
        if entry.job.state is not JobState.PENDING:
            raise SlurmRefusedError(f"job {job_id}: Job is no longer pending execution")
        if partition_shuts_out(self._cluster, entry.job) == "PartitionInactive":
            raise SlurmRefusedError(f"job {job_id}: Requested partition configuration not available now")
        entry.job = replace(entry.job, eligible_time=self._cluster.now, reason="Priority")
        self._cluster.schedule()

    def set_nice(self, wanted: Mapping[str, tuple[int, int]]) -> Failures:
        def give(job_id: str) -> None:
            self._may("set_nice")
            entry, (nice, instead_of) = self._now().jobs.get(job_id), wanted[job_id]
            if entry is None or entry.job.state is JobState.ENDED or entry.job.nice != instead_of:
                return
            if entry.job.priority == 0:
                raise SlurmRefusedError(f"job {job_id} is held")
            set_nice(entry, nice)
            self._cluster.schedule()

        return one_by_one(give, wanted)

    def attach(self, job_id: str, reservation: str) -> None:
        self._may("attach")
        entry = self._entry(job_id)
        if entry.job.reservation not in (None, reservation):
            raise SlurmRefusedError(f"job {job_id} asks for reservation {entry.job.reservation} by now")
        if reservation not in self._cluster.reservations:
            raise SlurmRefusedError(f"job {job_id}: Requested reservation is invalid")
        entry.job = replace(entry.job, reservation=reservation)
        self._cluster.schedule()

    def detach(self, job_id: str, reservation: str) -> None:
        self._may("detach")
        entry = self._now().jobs.get(job_id)
        if entry is not None and entry.job.reservation == reservation:
            entry.job = replace(entry.job, reservation=None)

    def set_partitions(self, job_id: str, partitions: tuple[str, ...], instead_of: tuple[str, ...]) -> None:
        self._may("set_partitions")
        entry = self._now().jobs.get(job_id)
        if entry is None or entry.job.state is not JobState.PENDING or entry.job.partitions != instead_of:
            return
        entry.job = replace(entry.job, partitions=partitions)
        self._cluster.schedule()

    def reservations(self) -> tuple[Reservation, ...]:
        return tuple(self._now().reservations.values())

    def limits(self, jobs: Sequence[Job]) -> Limits:
        """As the test has set them, else none."""
        partitions = {name for node in self._cluster.nodes.values() for name in node.partitions}
        unlimited = {name: Partition(name=name) for name in partitions | {name for j in jobs for name in j.partitions}}
        limits = self._cluster.limits
        return replace(limits, partitions=unlimited | dict(limits.partitions))

    def create_reservation(self, reservation: Reservation) -> None:
        self._may("create_reservation")
        cluster = self._now()
        existing = cluster.reservations.get(reservation.name)
        if existing is not None and set(existing.nodes) != set(reservation.nodes):
            raise SlurmRefusedError(f"reservation {reservation.name}: Reservation name is already in use")
        self._known(reservation.nodes)
        start, end = reservation.start_time, reservation.end_time
        beside = [r for r in cluster.reservations.values() if r.start_time < end and start < r.end_time]
        taken = {name for r in beside if r.name != reservation.name for name in r.nodes}
        if taken & set(reservation.nodes):
            raise SlurmRefusedError(f"reservation {reservation.name}: Requested nodes are busy")
        cluster.reservations[reservation.name] = reservation

    def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None:
        self._may("update_reservation")
        self._known(nodes)
        self._change(name, nodes=nodes)

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        self._may("extend_reservation")
        self._change(name, end_time=end_time)

    def _change(self, name: str, **fields: Any) -> None:
        reservations = self._now().reservations
        if name not in reservations:
            raise SlurmRefusedError(f"reservation {name}: Requested reservation is invalid")
        reservations[name] = replace(reservations[name], **fields)

    def delete_reservation(self, name: str) -> None:
        self._may("delete_reservation")
        cluster = self._now()
        if any(e.job.reservation == name and e.job.state.holds_nodes for e in cluster.jobs.values()):
            raise SlurmRefusedError(f"reservation {name}: Requested reservation is in use")
        cluster.reservations.pop(name, None)

    def drain(self, node: str, reason: str) -> None:
        self._may("drain")
        found = self._node(node)
        if found.reason and found.reason != reason:
            raise SlurmRefusedError(f"node {node} was not drained by Clearway: {found.reason}")
        self._cluster.nodes[node] = replace(found, available=False, raw_state="IDLE+DRAIN", reason=reason)

    def undrain(self, node: str, reason: str) -> None:
        self._may("undrain")
        found = self._node(node)
        if found.drained and found.reason != reason:
            raise SlurmRefusedError(f"node {node} was not drained by Clearway: {found.reason}")
        if found.drained:
            self._cluster.bring_back(node)
        elif found.reason == reason:
            self._cluster.nodes[node] = replace(found, reason="")

    def power_down(self, node: str) -> None:
        self._may("power_down")
        found = self._node(node)
        self._cluster.nodes[node] = replace(found, available=False, raw_state="IDLE+POWERED_DOWN")

    def suspend(self, job: Job) -> None:
        self._may("suspend")
        entry = self._of_run(job)
        if entry.job.state is JobState.RUNNING:
            self._cluster.suspend(entry)

    def resume(self, job: Job) -> None:
        self._may("resume")
        entry = self._of_run(job)
        if entry.job.state is JobState.SUSPENDED:
            self._cluster.resume(entry)

    def admin_level(self, user: str) -> AdminLevel:
        return self._cluster.admin_levels.get(user, AdminLevel.NONE)

    def close(self) -> None:
        """Nothing to release."""

    def _shown(self, node: Node, reservation: str | None) -> Node:
        alloc_cpus, alloc_gpus = self._cluster.free.alloc_cpus(node), self._cluster.free.alloc_gpus(node)
        source, shown = self._seen.get(node.name, (None, node))
        state = (reservation, alloc_cpus, alloc_gpus)
        if source is not node or (shown.reservation, shown.alloc_cpus, shown.alloc_gpus) != state:
            shown = replace(node, reservation=reservation, alloc_cpus=alloc_cpus, alloc_gpus=alloc_gpus)
            self._seen[node.name] = (node, shown)
        return shown

    def _topology(self, jobs: Sequence[Job]) -> Topology:
        """As of a cluster with topology/tree where it has switches; shown only to a caller that asks for it."""
        if not any(job.switches == 1 and job.state is JobState.PENDING for job in jobs):
            return Topology()
        if not self._cluster.switch_of:
            return Topology(unknown="this cluster has no switches")
        return Topology(self._cluster.switch_of, unknown="")

    def _now(self) -> SimulatedCluster:
        self._cluster.advance(self._clock.now())
        return self._cluster

    def _entry(self, job_id: str) -> SimulatedJob:
        entry = self._now().jobs.get(job_id)
        if entry is None:
            raise SlurmRefusedError(f"job {job_id}: Invalid job id specified")
        return entry

    def _known(self, nodes: Iterable[str]) -> None:
        if not self._cluster.nodes.keys() >= set(nodes):
            raise SlurmRefusedError("Invalid node name specified")

    def _node(self, name: str) -> Node:
        found = self._now().nodes.get(name)
        if found is None:
            raise SlurmRefusedError(f"node {name}: Invalid node name specified")
        return found
