"""The process that pyslurm lives in: ``python -P -m clearway.slurm.pyslurm_worker``. Only this module imports pyslurm.
libslurm holds the interpreter's lock through every call, can hang for half a minute and can abort the process: here
that does no harm. Requests and answers are JSON, each behind its length in four bytes; at the end of the input the
worker ends. It decides nothing. pyslurm is GPL-2.0-only; nothing of it is copied here.
"""

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

LENGTH = struct.Struct(">I")
MAX_FRAME = 512 * 1024 * 1024
INVALID_JOB_ID = 2017  # Slurm's ESLURM_INVALID_JOB_ID

_JOB_FIELDS = (
    "id", "array_id", "array_task_id", "array_tasks_waiting", "array_tasks_parallel",
    "heterogeneous_id", "heterogeneous_offset", "state",
    "state_reason", "partition", "account", "qos", "num_nodes", "allocated_nodes", "cpus", "min_cpus_per_node",
    "ntasks", "cpus_per_task", "resource_sharing", "required_switches", "time_limit", "start_time", "end_time",
    "deadline", "submit_time", "eligible_time", "reservation", "constraints", "licenses", "required_nodes",
    "excluded_nodes", "requires_contiguous_nodes", "priority", "nice", "is_requeueable", "requeue_count",
    "is_batch_job",
)  # fmt: skip
# Free text of users: bytes that are no UTF-8 must not make the whole record unreadable.
_JOB_TEXTS = ("name", "comment")
_NODE_FIELDS = (
    "name", "state", "total_cpus", "effective_cpus", "allocated_cpus", "weight", "real_memory",
    "memory_reserved_for_system", "allocated_memory", "threads_per_core", "partitions", "active_features",
)  # fmt: skip
_RESERVATION_FIELDS = ("name", "nodes", "users", "start_time", "end_time")
_ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "TIMEOUT",
)  # fmt: skip
_NEEDED = ("Job", "Jobs", "JobSubmitDescription", "Node", "Nodes", "Reservation", "Reservations", "ReservationFlags")


class UnusableError(Exception):
    """pyslurm cannot be used at all; trying again does not help."""


class _Zero(int):
    """pyslurm takes a 0 for nothing."""

    def __bool__(self) -> bool:
        return True


class _Empty(str):
    """An empty text that pyslurm sends: it takes "" for "do not change this", and asks by truth and first letter."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, _: object) -> str:
        return " "


def _of_job(method: str) -> Callable[["Calls", int], None]:
    def call(self: "Calls", job_id: int) -> None:
        getattr(self._pyslurm.Job(job_id), method)()

    return call


class Calls:
    """What the worker can be asked; each public method is a call, its arguments come from the request."""

    def __init__(self) -> None:
        self._pyslurm: Any = None

    def hello(self, conf: str | None) -> dict[str, str]:
        """Load pyslurm and read the configuration. Without one libslurm ends this process."""
        # Else the import itself reads the configuration, and tries for a minute where there is none.
        os.environ["PYSLURM_DISABLE_AUTO_INIT"] = "1"
        try:
            import pyslurm  # noqa: PLC0415 - the one place
        except ImportError as error:
            raise UnusableError(f"pyslurm cannot be imported: {error}") from None
        missing = [name for name in _NEEDED if not hasattr(pyslurm, name)]
        if missing:
            raise UnusableError(f"pyslurm {pyslurm.__version__} has no {', '.join(missing)}")
        pyslurm.slurm_init(conf)
        config = pyslurm.slurmctld.Config.load()
        gres = [f"gres/{kind}" for kind in config.gres_types]
        if untracked := [name for name in gres if name not in config.accounting_storage_tres]:
            # It drops --gpus and its like, and only the tracked resources of a job tell of them too.
            raise UnusableError(
                f"pyslurm does not show which jobs ask for {', '.join(untracked)}: add it to AccountingStorageTRES"
            )
        self._pyslurm = pyslurm
        return {"pyslurm": str(pyslurm.__version__)}

    def snapshot(self) -> dict[str, Any]:
        """Jobs that wait or hold nodes, all nodes, and reservations if a node is in one."""
        jobs = [job for job in self._pyslurm.Jobs.load().values() if not _has_ended(job)]
        nodes = [_node(node) for node in self._pyslurm.Nodes.load().values()]
        reserved = any("RESERVED" in str(node.get("state")) for node in nodes)
        return {
            "jobs": [_job(job) for job in jobs],
            "nodes": nodes,
            "reservations": self.reservations() if reserved else None,
        }

    def job(self, job_id: int) -> dict[str, Any] | None:
        try:
            job = self._pyslurm.Job.load(job_id)
        except self._pyslurm.RPCError as error:
            if error.errno == INVALID_JOB_ID:
                return None
            raise
        except KeyError:  # an array's task that has ended beside one that runs: it misses the steps of the other
            job = None
        if job is None or job.id != job_id:  # asked for an array, Slurm sends all of it, and pyslurm keeps the first
            job = self._pyslurm.Jobs.load().get(job_id)
        return None if job is None else _job(job)

    def node(self, name: str) -> dict[str, Any]:
        return _node(self._pyslurm.Node.load(name))

    def reservations(self) -> list[dict[str, Any]]:
        return [_reservation(item) for item in self._pyslurm.Reservations.load().values()]

    cancel = _of_job("cancel")
    suspend = _of_job("suspend")
    resume = _of_job("unsuspend")

    def send_signal(self, job_id: int, name: str, steps: str) -> None:
        self._pyslurm.Job(job_id).send_signal(name, steps=steps)

    def start_now(self, job_id: int) -> None:
        self._modify(job_id, begin_time=int(time.time()))

    def set_nice(self, job_id: int, nice: int) -> None:
        self._modify(job_id, nice=nice or _Zero())

    def set_reservation(self, job_id: int, reservation: str) -> None:
        self._modify(job_id, reservations=reservation or _Empty())

    def _modify(self, job_id: int, **changes: object) -> None:
        self._pyslurm.Job(job_id).modify(self._pyslurm.JobSubmitDescription(**changes))

    def create_reservation(
        self, name: str, nodes: str, users: list[str], flags: list[str], start_time: int, end_time: int
    ) -> None:
        start = max(int(time.time()), start_time)
        # pyslurm takes a duration of less than a minute for none.
        end = max(end_time, start + 60)
        reservation = self._pyslurm.Reservation(name, nodes=nodes, users=users, start_time=start, end_time=end)
        known = self._pyslurm.ReservationFlags.__members__
        unknown = [flag for flag in flags if flag not in known]
        if unknown:
            raise ValueError(f"pyslurm knows no reservation flag {', '.join(unknown)}")
        reservation.flags = self._pyslurm.ReservationFlags.from_list(flags)
        reservation.create()

    def update_reservation(self, name: str, nodes: str) -> None:
        self._pyslurm.Reservation(name).modify(self._pyslurm.Reservation(nodes=nodes))

    def extend_reservation(self, name: str, end_time: int) -> None:
        self._pyslurm.Reservation(name).modify(self._pyslurm.Reservation(end_time=end_time))

    def delete_reservation(self, name: str) -> None:
        self._pyslurm.Reservation(name).delete()

    def drain(self, name: str, reason: str) -> None:
        self._pyslurm.Node(name).modify(self._pyslurm.Node(state="DRAIN", reason=reason))

    def undrain(self, name: str) -> None:
        self._pyslurm.Node(name).modify(self._pyslurm.Node(state="UNDRAIN"))


def _has_ended(job: Any) -> bool:
    """Whether Slurm only remembers the job; when in doubt, the job is passed on."""
    try:
        return job.state in _ENDED
    except Exception:  # noqa: BLE001 - the record will say what it was
        return False


def _job(job: Any) -> dict[str, Any]:
    record = _record(job, _JOB_FIELDS)
    for field in _JOB_TEXTS:
        try:
            record[field] = getattr(job, field)
        except UnicodeDecodeError:
            record[field] = None
    try:
        record["user_name"] = _user_name(job.user_id)
        record["dependencies"] = _dependencies(job.dependencies)
        tres = job.allocated_tres or job.requested_tres
        record["memory_mib"] = tres.mem.count if tres and tres.mem else None
        asked = job.requested_tres
        record["tres_nodes"] = asked.node.count if asked and asked.node else None
        record["gres_per_node"] = _counted(getattr(job, "gres_per_node", None))
        record["gres_of_job"] = _counted(asked.gres if asked else None)
        record["gres"] = sorted({*(getattr(job, "gres_per_node", None) or ()), *(asked.gres if asked else ())})
    except Exception as error:  # noqa: BLE001 - as in _record
        record["unreadable"] = f"{type(error).__name__}: {error}"
    return record


def _node(node: Any) -> dict[str, Any]:
    record = _record(node, _NODE_FIELDS)
    try:
        record["reason"] = node.reason
    except UnicodeDecodeError:
        record["reason"] = "(not UTF-8)"  # certainly not ours
    try:
        record["gres"] = _counted(node.configured_gres)
        record["allocated_gres"] = _counted(node.allocated_gres)
    except Exception as error:  # noqa: BLE001 - as in _record
        record["unreadable"] = f"{type(error).__name__}: {error}"
    return record


def _counted(gres: dict[str, int] | None) -> list[str]:
    return [f"{name}:{count}" for name, count in (gres or {}).items()]


def _reservation(reservation: Any) -> dict[str, Any]:
    record = _record(reservation, _RESERVATION_FIELDS)
    try:
        record["flags"] = [flag.name for flag in reservation.flags]
    except ValueError:  # flags that this pyslurm does not know
        record["flags"] = ["UNKNOWN"]
    return record


def _record(thing: Any, fields: Iterable[str]) -> dict[str, Any]:
    """The attributes by name. One that cannot be read marks the record, and spoils no other record."""
    record: dict[str, Any] = {}
    for field in fields:
        try:
            record[field] = getattr(thing, field)
        except Exception as error:  # noqa: BLE001 - pyslurm parses on access, and any parser may fail
            record["unreadable"] = f"{field}: {type(error).__name__}: {error}"
    return record


@lru_cache(maxsize=4096)
def _user_name(user_id: int | None) -> str:
    import pwd  # noqa: PLC0415 - only on a machine with users

    if user_id is None:
        return ""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def _dependencies(found: dict[str, Any] | None) -> str:
    """As one text, "afterok:7,singleton": only what the job waits for matters."""
    if not found:
        return ""
    parts = [f"{kind}:{':'.join(map(str, jobs))}" for kind, jobs in found.items() if jobs and isinstance(jobs, list)]
    return ",".join([*parts, "singleton"] if found.get("singleton") else parts) or "unknown"


def frame(value: object) -> bytes:
    data = json.dumps(value, separators=(",", ":")).encode()
    return LENGTH.pack(len(data)) + data


def answer(calls: Calls, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out one request. Every error is an answer too."""
    try:
        call: Callable[..., Any] = getattr(calls, request["call"])
        return {"ok": call(**request["args"])}
    except UnusableError as error:
        return {"error": {"kind": "unusable", "text": str(error)}}
    except Exception as error:  # noqa: BLE001 - it belongs to the daemon, not into a traceback
        number = getattr(error, "errno", None)
        if type(error).__name__ == "RPCError":
            return {"error": {"kind": "slurm", "errno": number, "text": str(error)}}
        return {"error": {"kind": "bug", "text": f"{type(error).__name__}: {error}"}}


def main() -> None:
    # Ctrl-C and systemd's TERM go to the whole group; the daemon decides when its worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # libslurm and its plugins may print: answers have a descriptor of their own, and standard output is the log.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    calls = Calls()
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        request = json.loads(requests.read(LENGTH.unpack(head)[0]))
        answers.write(frame(answer(calls, request)))
        answers.flush()
    sys.stdout.flush()
    # Without libslurm's own clean-up, which can hang or crash too.
    os._exit(0)


if __name__ == "__main__":
    main()
