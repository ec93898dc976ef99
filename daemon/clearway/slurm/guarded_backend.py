"""What the real backends do alike: changes look at the job or the node just before, and can be repeated. Slurm itself
would requeue a completed job, which runs a second time, or wait forever to signal one that does not run. No client can
close the gap between look and act. So the requeue is ``scontrol requeue Incomplete``, for which slurmctld looks again
(measured on 22.05, 24.11 and 26.05); pyslurm cannot ask for it.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from clearway.eligibility.node_usage import licenses_of
from clearway.model.cluster import AdminLevel, ClusterSnapshot, Job, Node, Reservation, Skipped
from clearway.model.errors import SlurmError, SlurmRefusedError
from clearway.model.limits import Limits
from clearway.model.site import PowerSaving
from clearway.slurm.base import Fence
from clearway.slurm.job_changes import JobChanges, RequeueDelay
from clearway.slurm.kept_records import LeastNodes
from clearway.slurm.parse import NodeStatus, compress, node_status, over
from clearway.slurm.parse.site import boot_s
from clearway.slurm.process import Commands, checked
from clearway.slurm.site_settings import ConfigReader, LimitReader, TopologyReader, licenses_now


class GuardedBackend(JobChanges):
    def __init__(self, now: Callable[[], datetime], commands: Commands, requeue_delay: RequeueDelay) -> None:
        self._now = now
        self._commands = commands
        self._requeue_delay = requeue_delay
        self._config = ConfigReader()
        self._topology = TopologyReader()
        self._limits = LimitReader()
        self._least_nodes = LeastNodes()
        self._skipped_reservations: tuple[Skipped, ...] = ()  # part of the next snapshot
        self._before: ClusterSnapshot | None = None

    def fenced_by(self, fence: Fence) -> None:
        self._commands = replace(self._commands, fence=fence)

    def available(self) -> str | None:
        try:
            self.snapshot()
        except SlurmError as error:
            return str(error)
        return None

    @abstractmethod
    def _read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Node], Sequence[Skipped], int]:
        """All jobs that hold nodes or wait, all nodes, what could not be read, and how many queries that took."""

    @abstractmethod
    def reservations(self) -> tuple[Reservation, ...]: ...

    def snapshot(self) -> ClusterSnapshot:
        taken_at = self._now()
        jobs, nodes, skipped, queries = self._read(taken_at)
        self._requeue_delay.saw_all(jobs)
        config, config_queries = self._config, self._config.read(self._commands.run, taken_at)
        topology, topology_queries = self._topology.read(self._commands.run, jobs, taken_at)
        licenses, license_queries = licenses_now(self._commands.run, jobs)
        snapshot = ClusterSnapshot(
            taken_at=taken_at,
            jobs=self._least_nodes.of(jobs, nodes, config.over_times),
            nodes=tuple(_with_boot(node, config.power) for node in nodes),
            skipped=(*skipped, *self._skipped_reservations),
            queries=queries + config_queries + topology_queries + license_queries,
            preempt_priorities=config.preemption,
            topology=topology,
            licenses=licenses,
            slurm_version=config.version,
            power_saving=config.power,
            vouched=config.vouched,
            cluster=config.cluster,
        )
        snapshot.take_indexes(self._before)
        self._before = snapshot
        return snapshot

    def limits(self, jobs: Sequence[Job]) -> Limits:
        found = self._limits.read(self._commands.run, jobs, self._now())
        if found.partitions:
            self._config.has_heard(self._limits.over_times)
        return found

    def create_reservation(self, reservation: Reservation) -> None:
        if reservation.end_time <= self._now():
            raise SlurmRefusedError(f"reservation {reservation.name} would end at {reservation.end_time}, in the past")
        if not reservation.users or not reservation.nodes:
            raise SlurmRefusedError(f"reservation {reservation.name} needs users and nodes")
        if licenses_of(reservation.licenses) is None:
            raise SlurmRefusedError(f"{reservation.licenses[:80]!r} are not licenses that Slurm takes")
        for name in (reservation.name, *reservation.users, *reservation.nodes, *reservation.flags):
            checked(name)
        try:
            self._create(reservation)
        except SlurmRefusedError:
            # Slurm reports an overlap, not that the name exists.
            existing = {item.name: set(item.nodes) for item in self.reservations()}
            if existing.get(reservation.name) != set(reservation.nodes):
                raise

    def update_reservation(self, name: str, nodes: tuple[str, ...]) -> None:
        if not nodes:
            raise SlurmRefusedError(f"reservation {name} needs nodes")
        self._move(checked(name), tuple(map(checked, nodes)))

    def delete_reservation(self, name: str) -> None:
        try:
            self._delete(checked(name))
        except SlurmRefusedError:
            if any(item.name == name for item in self.reservations()):
                raise

    def drain(self, node: str, reason: str) -> None:
        status = self._node_status(checked(node))
        if status.reason and status.reason != reason:
            raise SlurmRefusedError(f"node {node} has another reason: {status.reason[:120]}")
        if not status.drained:
            self._set_drained(node, reason)

    def undrain(self, node: str, reason: str) -> None:
        status = self._node_status(checked(node))
        if status.drained:
            if status.reason != reason:
                raise SlurmRefusedError(f"node {node} was drained for another reason: {status.reason[:120]}")
            self._set_drained(node, None)
            status = self._node_status(node)
        if status == NodeStatus(drained=False, reason=reason):
            self._set_reason(node, over(reason))

    def power_down(self, node: str) -> None:
        self._change("update", f"NodeName={checked(node)}", "State=POWER_DOWN")

    def admin_level(self, user: str) -> AdminLevel:
        """From Slurm's accounting: neither squeue nor pyslurm's records show it."""
        try:
            query = ["sacctmgr", "--noheader", "--parsable2", "show", "user", checked(user), "format=AdminLevel"]
            word = self._commands.run(query).strip().lower()
        except SlurmRefusedError:
            return AdminLevel.NONE
        return AdminLevel(word) if word in set(AdminLevel) else AdminLevel.NONE

    # By Slurm's commands, where a backend has nothing else.

    def _create(self, reservation: Reservation) -> None:
        now = self._now()
        start = "now"
        if reservation.start_time > now:  # the commands have UTC as their local time
            start = reservation.start_time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        seconds = (reservation.end_time - max(now, reservation.start_time)).total_seconds()
        command = ["create", "reservation", f"ReservationName={reservation.name}"]
        command += [f"StartTime={start}", f"Duration={max(1, math.ceil(seconds / 60))}"]  # minutes; 0 would have no end
        command += [f"Users={','.join(reservation.users)}", f"Nodes={compress(reservation.nodes)}"]
        command += [f"Flags={','.join(reservation.flags)}"] if reservation.flags else []
        command += [f"Licenses={reservation.licenses}"] if reservation.licenses else []
        self._change(*command)

    def _move(self, reservation: str, nodes: tuple[str, ...]) -> None:
        self._change("update", f"ReservationName={reservation}", f"Nodes={compress(nodes)}")

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        # A duration counts from the reservation's start, which only Slurm knows; an end is in its local time.
        local = end_time.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        self._change("update", f"ReservationName={checked(name)}", f"EndTime={local}")

    def _delete(self, reservation: str) -> None:
        self._change("delete", f"ReservationName={reservation}")

    def _node_status(self, node: str) -> NodeStatus:
        return node_status(self._scontrol("show", "node", node))

    def _set_drained(self, node: str, reason: str | None) -> None:
        # Not RESUME, which would also bring back a node that is DOWN.
        changes = ("State=UNDRAIN",) if reason is None else ("State=DRAIN", f"Reason={reason}")
        self._change("update", f"NodeName={node}", *changes)

    def _set_reason(self, node: str, reason: str) -> None:
        self._change("update", f"NodeName={node}", f"Reason={reason}")

    def _scontrol(self, *arguments: str) -> str:
        return self._commands.run(["scontrol", "--oneliner", *arguments])

    def _change(self, *arguments: str) -> None:
        self._commands.change(["scontrol", "--oneliner", *arguments])


def _with_boot(node: Node, saving: PowerSaving) -> Node:
    found = None if node.available or not saving.resume_s else boot_s(node.raw_state, saving)
    return node if found is None else replace(node, boot_s=found)
