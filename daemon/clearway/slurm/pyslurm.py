"""Slurm through pyslurm, which lives in a process of its own (``pyslurm_process``).

Two queries read everything, a third names the reservations when a node is in one. Two of ``scontrol``, every ten
minutes, read the order of Slurm's own preemption; one more reads the switches while a waiting job asks for one.
Numbers name exactly one job here: scontrol and scancel take the id of an array's last task for the whole array.
"""

import math
from collections.abc import Callable, Sequence
from datetime import datetime

from clearway.model.cluster import Job, Node, Reservation, Skipped
from clearway.model.errors import SlurmError, SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse
from clearway.slurm import pyslurm_records as records
from clearway.slurm.base import Failures, Fence
from clearway.slurm.guarded_backend import GuardedBackend
from clearway.slurm.job_changes import Act, change_list
from clearway.slurm.parse import FieldError
from clearway.slurm.process import ENDED, Commands, RefusedError, checked
from clearway.slurm.pyslurm_process import COMMAND, WorkerProcess
from clearway.slurm.requeue_delay import RequeueDelay

_PYSLURM_FLAGS = {ours: theirs for theirs, ours in records.RESERVATION_FLAGS.items()}


class PyslurmBackend(GuardedBackend):
    """The ``pyslurm`` backend. ``now`` returns aware UTC; ``timeout_s`` limits each call."""

    name = "pyslurm"

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        slurm_conf: str | None = None,
        timeout_s: float = 20.0,
        command: Sequence[str] = COMMAND,
    ) -> None:
        # The commands are for what pyslurm does not tell, and for the one that it cannot give (requeue).
        super().__init__(now, Commands(timeout_s=timeout_s, slurm_conf=slurm_conf), RequeueDelay(now=now))
        self._worker = WorkerProcess(slurm_conf=slurm_conf, timeout_s=timeout_s, command=command)

    def fenced_by(self, fence: Fence) -> None:
        super().fenced_by(fence)
        self._worker.fence = fence

    def worker_restarts(self) -> int:
        """How often the worker had to be replaced, because it hung or crashed."""
        return self._worker.restarts

    def available(self) -> str | None:
        """Why this backend cannot be used now, in one line; None when it can."""
        try:
            self.snapshot()
        except SlurmError as error:
            return str(error)
        return None

    def close(self) -> None:
        self._worker.close()

    def _read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Node], Sequence[Skipped], int]:  # noqa: ARG002
        found = self._worker.call("snapshot")
        reservations = found["reservations"]
        jobs, skipped = records.read_jobs(found["jobs"])
        nodes, skipped_nodes = records.read_nodes(found["nodes"], reservations or [])
        return jobs, nodes, skipped + skipped_nodes, 2 if reservations is None else 3

    def job(self, job_id: str) -> Job | None:
        if not job_id.isdecimal() or not job_id.isascii():
            raise SlurmRefusedError(f"{job_id!r} is not a job id")
        record = self._worker.call("job", job_id=int(job_id))
        if record is None:
            return None
        try:
            return records.read_job(record)
        except FieldError as error:
            raise SlurmUnavailableError(f"job {job_id} cannot be read: {error}") from None

    def reservations(self) -> tuple[Reservation, ...]:
        found, skipped = records.read_reservations(self._worker.call("reservations"))
        self._skipped_reservations = tuple(skipped)
        return tuple(found)

    def _look(self, job_id: str) -> tuple[Job, str] | None:
        current = self.job(job_id)
        return None if current is None else (current, job_id)

    def _act_all(self, act: Act, targets: Sequence[str], value: str = "") -> Failures:
        if act is not Act.REQUEUE:
            return super()._act_all(act, targets, value)
        argv = ["scontrol", "--oneliner", "requeue", "Incomplete", ",".join(targets)]
        return change_list(self._commands, argv, targets)

    def _act(self, act: Act, target: str, value: str = "") -> None:
        call, arguments = act.name.lower(), dict[str, object]()
        if act in (Act.SIGNAL_BATCH, Act.SIGNAL_STEPS):
            steps = "batch" if act is Act.SIGNAL_BATCH else "children"
            call, arguments = "send_signal", {"name": f"SIG{value}", "steps": steps}
        elif act is Act.SET_PRIORITY:
            arguments = {"priority": int(value)}
        elif act is Act.SET_RESERVATION:
            arguments = {"reservation": value}
        self._worker.change(call, job_id=int(target), **arguments)

    def _has_ended(self, error: SlurmRefusedError) -> bool:
        return isinstance(error, RefusedError) and error.errno in ENDED

    def _create(self, reservation: Reservation) -> None:
        if reservation.licenses:
            self._create_by_command(reservation)
            return
        self._worker.change(
            "create_reservation",
            name=reservation.name,
            nodes=parse.compress(reservation.nodes),
            users=list(reservation.users),
            flags=[_PYSLURM_FLAGS.get(flag, flag) for flag in reservation.flags],
            start_time=int(reservation.start_time.timestamp()),
            end_time=math.ceil(reservation.end_time.timestamp()),
        )

    def _move(self, reservation: str, nodes: tuple[str, ...]) -> None:
        self._worker.change("update_reservation", name=reservation, nodes=parse.compress(nodes))

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        self._worker.change("extend_reservation", name=checked(name), end_time=math.ceil(end_time.timestamp()))

    def _delete(self, reservation: str) -> None:
        self._worker.change("delete_reservation", name=reservation)

    def _node_status(self, node: str) -> parse.NodeStatus:
        nodes, skipped = records.read_nodes([self._worker.call("node", name=node)], [])
        if skipped:
            raise SlurmUnavailableError(f"node {node} cannot be read: {skipped[0].why}")
        return parse.NodeStatus(parse.node_status(f"State={nodes[0].raw_state}").drained, nodes[0].reason)

    def _set_drained(self, node: str, reason: str | None) -> None:
        if reason is None:
            self._worker.change("undrain", name=node)
        else:
            self._worker.change("drain", name=node, reason=reason)
