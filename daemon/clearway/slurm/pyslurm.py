"""Slurm through pyslurm, in a process of its own (``WorkerProcess``). Numbers name exactly one job here: scontrol and
scancel take the id of an array's last task for the whole array.
"""

import json
import math
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from clearway.model.cluster import Job, Node, Reservation, Skipped
from clearway.model.errors import (
    CycleEndedError,
    SlurmError,
    SlurmRefusedError,
    SlurmTimeoutError,
    SlurmUnavailableError,
)
from clearway.slurm import parse
from clearway.slurm import pyslurm_records as records
from clearway.slurm.base import Failures, Fence, JobChange, Unfenced
from clearway.slurm.guarded_backend import GuardedBackend
from clearway.slurm.job_changes import REQUEUES, RequeueDelay, Seen, change_list, look_one_by_one, one_by_one
from clearway.slurm.parse import FieldError
from clearway.slurm.parse.values import Unchanged
from clearway.slurm.process import ENDED, KEEP_EVERY_S, Commands, RefusedError, checked, error_for
from clearway.slurm.pyslurm_worker import LENGTH, MAX_FRAME, frame

COMMAND = (sys.executable, "-P", "-m", "clearway.slurm.pyslurm_worker")
MAX_WAIT_S = 60.0


class WorkerProcess:
    """Calls into a pyslurm worker: one at a time, each with a time limit. Safe to share between threads. One that does
    not answer in time is killed (a hung libslurm cannot be interrupted), and replaced at the next call. From the second
    failure in a row on the next start waits, up to a minute; a call within that wait fails at once.
    """

    def __init__(
        self,
        *,
        slurm_conf: str | None,
        timeout_s: float,
        command: Sequence[str] = COMMAND,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._conf = slurm_conf
        self._timeout_s = timeout_s
        self._command = tuple(command)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0  # in a row
        self._not_before = 0.0
        self._last_failure = ""
        self.fence: Fence = Unfenced()
        self.restarts = 0
        self.versions: dict[str, str] = {}

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def call(self, name: str, /, **args: object) -> Any:
        """The answer of one call. Raises SlurmError; after a time-out it is not known whether Slurm acted."""
        return self._call(name, args, lambda: self._timeout_s)

    def change(self, name: str, /, **args: object) -> None:
        """As ``call``, for one that changes something: the fence may refuse it, or give it less time."""
        self._call(name, args, lambda: min(self._timeout_s, self.fence.command_limit_s()))

    def _call(self, name: str, args: dict[str, object], limit_s: Callable[[], float]) -> Any:
        with self._lock:
            if self._process is None:
                self._start()
            value = self._exchange(name, args, limit_s())
            self._failures = 0
            return value

    def close(self) -> None:
        with self._lock:
            self._kill()

    def _start(self) -> None:
        wait_s = self._not_before - self._monotonic()
        if wait_s > 0:
            raise SlurmUnavailableError(f"pyslurm failed ({self._last_failure}); next try in {wait_s:.0f} s")
        environment = os.environ | ({} if self._conf is None else {"SLURM_CONF": self._conf})
        if self._failures:
            self.restarts += 1
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
            )
        except OSError as error:
            raise self._failed(f"the pyslurm worker cannot be started: {error}") from None
        try:
            self.versions = self._exchange("hello", {"conf": self._conf}, self._timeout_s)
        except SlurmError:
            self._kill()  # slurmctld is down, say: a worker that has not begun is of no use
            raise

    def _exchange(self, name: str, args: dict[str, object], limit_s: float) -> Any:
        process, deadline = self._process, self._monotonic() + limit_s
        assert process is not None and process.stdin and process.stdout  # noqa: S101, PT018 - for the type checker
        try:
            process.stdin.write(frame({"call": name, "args": args}))
            process.stdin.flush()
            reply = self._receive(process.stdout.fileno(), deadline)
        except TimeoutError:
            self._failed(f"{name} took longer than {limit_s:g} s")
            raise SlurmTimeoutError(f"pyslurm: {name} did not answer within {limit_s:g} s") from None
        except (OSError, EOFError, ValueError):
            status = self._wait(process)
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise self._failed(f"the worker ended in {name}, {how}") from None
        except CycleEndedError:
            self._kill()  # its answer must not be taken for that of the next call
            raise
        if "ok" in reply:
            return reply["ok"]
        raise self._error(name, reply["error"])

    def _receive(self, descriptor: int, deadline: float) -> dict[str, Any]:
        (length,) = LENGTH.unpack(self._read(descriptor, LENGTH.size, deadline))
        if length > MAX_FRAME:
            raise ValueError("an answer without end")
        reply = json.loads(self._read(descriptor, length, deadline))
        if not isinstance(reply, dict) or not ("ok" in reply or "error" in reply):
            raise ValueError("not an answer")
        return reply

    def _read(self, descriptor: int, size: int, deadline: float) -> bytes:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        data = bytearray()
        while len(data) < size:
            left_s = deadline - self._monotonic()
            if left_s <= 0:
                raise TimeoutError
            if not poll.poll(min(left_s, KEEP_EVERY_S) * 1000):
                self.fence.keep()
                continue
            part = os.read(descriptor, min(size - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def _error(self, name: str, error: dict[str, Any]) -> SlurmError:
        """The typed error for what the worker could not do; after the first two it goes on working."""
        kind, text = error.get("kind"), f"pyslurm: {name}: {error.get('text')}"
        number = error.get("errno")
        if kind == "slurm" and isinstance(number, int):
            return error_for(number, text)
        if kind == "unusable":
            return self._failed(str(error.get("text")))
        return SlurmUnavailableError(text)

    def _failed(self, why: str) -> SlurmUnavailableError:
        """End this worker, and say when the next may start: at once after the first failure, then later and later."""
        self._kill()
        self._failures += 1
        self._last_failure = why
        wait_s = 0.0 if self._failures == 1 else min(2.0 ** (self._failures - 2), MAX_WAIT_S)
        self._not_before = self._monotonic() + wait_s
        return SlurmUnavailableError(f"pyslurm: {why}")

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """The exit status of a worker that has closed its end; one that only seems to be alive is killed."""
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(OSError), process:  # its pipes are closed, which fails for what was not sent any more
                process.kill()


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
        self._unchanged = Unchanged(lambda record: record.values())

    def fenced_by(self, fence: Fence) -> None:
        super().fenced_by(fence)
        self._worker.fence = fence

    def worker_restarts(self) -> int:
        return self._worker.restarts

    def close(self) -> None:
        self._worker.close()

    def _read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Node], Sequence[Skipped], int]:  # noqa: ARG002
        found = self._worker.call("snapshot")
        reservations = found["reservations"]
        jobs, skipped = records.read_jobs(found["jobs"], self._unchanged.reader(records.read_job))
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

    def _look_all(self, job_ids: Sequence[str]) -> tuple[dict[str, Seen], Failures]:
        jobs, failures = look_one_by_one(self.job, job_ids)
        return {job_id: (job, job_id) for job_id, job in jobs.items()}, failures

    def _act_all(self, change: JobChange, targets: Sequence[str], signal: str = "") -> Failures:
        if change not in REQUEUES:
            return one_by_one(lambda target: self._act_on(change, int(target), signal), targets)
        only = ("Incomplete",) if change is JobChange.REQUEUE else ()
        argv = ["scontrol", "--oneliner", "requeue", *only, ",".join(targets)]
        return change_list(self._commands, argv, targets)

    def _act_on(self, change: JobChange, job_id: int, signal: str) -> None:
        match change:
            case JobChange.SIGNAL_BATCH | JobChange.SIGNAL_STEPS:
                steps = "batch" if change is JobChange.SIGNAL_BATCH else "children"
                self._worker.change("send_signal", job_id=job_id, name=f"SIG{signal}", steps=steps)
            case _:
                self._worker.change(change.value, job_id=job_id)

    def _give_nice(self, nice: int, targets: Sequence[str]) -> Failures:
        return one_by_one(lambda target: self._worker.change("set_nice", job_id=int(target), nice=nice), targets)

    def _set_reservation(self, target: str, reservation: str) -> None:
        self._worker.change("set_reservation", job_id=int(target), reservation=reservation)

    def _has_ended(self, error: SlurmRefusedError) -> bool:
        return isinstance(error, RefusedError) and error.errno in ENDED

    def _create(self, reservation: Reservation) -> None:
        if reservation.licenses:
            super()._create(reservation)
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
        try:
            return records.node_status(self._worker.call("node", name=node))
        except FieldError as error:
            raise SlurmUnavailableError(f"node {node} cannot be read: {error}") from None

    def _set_drained(self, node: str, reason: str | None) -> None:
        if reason is None:
            self._worker.change("undrain", name=node)
        else:
            self._worker.change("drain", name=node, reason=reason)
