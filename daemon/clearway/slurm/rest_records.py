"""slurmrestd's JSON becomes the columns of squeue and the keys of scontrol, which ``parse`` reads. Pure.

So one place decides what a job is, and two backends cannot come to differ; here is only how slurmrestd spells values:
numbers as ``{"set": .., "infinite": .., "number": ..}``, states as lists of words, times in seconds. A record with
another type in it is skipped, as in ``parse``, with the nodes that it may hold.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from clearway.model.cluster import Job, JobState, Node, Reservation, Skipped
from clearway.slurm import parse
from clearway.slurm.parse import FieldError, Row, fields
from clearway.slurm.parse.fields import LATEST

Record = Mapping[str, Any]

# squeue's one word for a job is the first of these flags, else the base state; every other flag says nothing to it.
_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING",
)  # fmt: skip
_SHARING: tuple[list[str], ...] = (
    [],
    ["oversubscribe"],
)  # of `shared`; whole nodes are "none", and there is "user" and more

_TEXTS = {
    "UserName": "user_name", "Account": "account", "Partition": "partition", "QOS": "qos", "Reason": "state_reason",
    "NodeList": "nodes", "Name": "name", "Comment": "comment", "Reservation": "resv_name", "Dependency": "dependency",
    "Feature": "features", "Licenses": "licenses", "tres-per-node": "tres_per_node", "tres-per-job": "tres_per_job",
    "tres-per-socket": "tres_per_socket", "tres-per-task": "tres_per_task", "ReqNodes": "required_nodes",
    "cpus-per-tres": "cpus_per_tres", "mem-per-tres": "memory_per_tres",
}  # fmt: skip
_NUMBERS = {
    "NumNodes": "node_count", "NumCPUs": "cpus", "MinCpus": "minimum_cpus_per_node", "NumTasks": "tasks",
    "cpus-per-task": "cpus_per_task", "ReqSwitch": "required_switches", "PriorityLong": "priority",
    "RestartCnt": "restart_cnt", "HetJobID": "het_job_id", "HetJobOffset": "het_job_offset", "TimeLimit": "time_limit",
}  # fmt: skip
_TIMES = {"StartTime": "start_time", "SubmitTime": "submit_time", "EligibleTime": "eligible_time"}
_SWITCHES = {"Contiguous": "contiguous", "Requeue": "requeue", "BatchFlag": "batch_flag"}
_OTHERS = (
    "job_id", "array_job_id", "array_task_id", "array_task_string", "array_max_tasks", "job_state", "shared",
    "tres_alloc_str", "tres_req_str", "excluded_nodes",
)  # fmt: skip
# All of a record that is looked at.
NODE_KEYS = (
    "name", "state", "cpus", "effective_cpus", "alloc_cpus", "real_memory", "specialized_memory", "alloc_memory",
    "threads", "partitions", "active_features", "gres", "gres_used", "reason", "reservation", "weight",
)  # fmt: skip
RESERVATION_KEYS = ("name", "node_list", "start_time", "end_time", "users", "flags")
JOB_KEYS = (*_OTHERS, *_TEXTS.values(), *_NUMBERS.values(), *_TIMES.values(), *_SWITCHES.values())


def job_values(record: Record) -> tuple[Any, ...]:
    """What of a job's record is looked at: while it stays the same, so does the job."""
    return tuple(record.get(key) for key in JOB_KEYS)


def read_jobs(
    records: Sequence[object], read: Callable[[Record], Job] | None = None
) -> tuple[list[Job], list[Skipped]]:
    """All jobs of ``records``, ended ones included; ``read`` stands in for ``read_job``."""
    return fields.read_each(
        "job", _named("job_id", records), read or read_job, key="id",
        may_hold_nodes=_may_hold_nodes, nodes_only=_nodes_only,
    )  # fmt: skip


def read_job(record: Record) -> Job:
    """One job. Raises FieldError for a value that cannot be read."""
    job = parse.job_from_row(job_row(record))
    limit = fields.number(_number(record, "array_max_tasks"), "array_max_tasks")
    if job.array_job_id is not None and job.state is JobState.PENDING:
        job = replace(job, array_limit=limit)
    excluded = parse.expand(_text(record, "excluded_nodes"))
    return replace(job, excluded_nodes=excluded) if excluded else job


def job_row(record: Record) -> Row:
    """The job in the columns of squeue. Raises FieldError as ``read_job``."""
    row = {column: _text(record, key) for column, key in _TEXTS.items()}
    row |= {column: _number(record, key) for column, key in _NUMBERS.items()}
    row |= {column: _time(record, key) for column, key in _TIMES.items()}
    row |= {column: _switch(record, key) for column, key in _SWITCHES.items()}
    job_id = _number(record, "job_id")
    held, asked = _text(record, "tres_alloc_str"), _text(record, "tres_req_str")
    array_id, task = _number(record, "array_job_id"), _number(record, "array_task_id")
    return row | {
        "JobID": job_id,
        "ArrayJobID": job_id if array_id in ("0", _UNSET) else array_id,
        "ArrayTaskID": _text(record, "array_task_string") or task,
        "State": _job_word(_words(record, "job_state")),
        "Exclusive": "NO" if _words(record, "shared") in _SHARING else "YES",
        "tres-alloc": held or asked,
    }


def read_nodes(records: Sequence[object]) -> tuple[list[Node], list[Skipped]]:
    return fields.read_each("node", _named("name", records), _read_node)


def node_status(record: Record) -> parse.NodeStatus:
    return parse.status_from_record({"State": _node_state(record), "Reason": _text(record, "reason")})


def _read_node(record: Record) -> Node:
    keys = {
        "NodeName": _text(record, "name"),
        "State": _node_state(record),
        "CPUTot": _number(record, "cpus"),
        "CPUEfctv": _number(record, "effective_cpus"),
        "CPUAlloc": _number(record, "alloc_cpus"),
        "RealMemory": _number(record, "real_memory"),
        "MemSpecLimit": _number(record, "specialized_memory"),
        "AllocMem": _number(record, "alloc_memory"),
        "ThreadsPerCore": _number(record, "threads"),
        "Partitions": ",".join(_words(record, "partitions")),
        "ActiveFeatures": ",".join(_words(record, "active_features")),
        "Gres": _text(record, "gres"),
        "GresUsed": _text(record, "gres_used"),
        "Reason": _text(record, "reason"),
        "ReservationName": _text(record, "reservation"),
        "Weight": _number(record, "weight"),
    }
    return parse.node_from_record(keys)


def read_reservations(records: Sequence[object]) -> tuple[list[Reservation], list[Skipped]]:
    return fields.read_each("reservation", _named("name", records), _read_reservation)


def _read_reservation(record: Record) -> Reservation:
    keys = {
        "ReservationName": _text(record, "name"),
        "Nodes": _text(record, "node_list"),
        "StartTime": _time(record, "start_time"),
        "EndTime": _time(record, "end_time"),
        "Users": _text(record, "users"),
        "Flags": ",".join(_words(record, "flags")),
    }
    return parse.reservation_from_record(keys)


def _named(key: str, records: Sequence[object]) -> list[tuple[str, Record]]:
    """Records with their keys; what is no record has none, and cannot be read."""
    found = [record if isinstance(record, dict) else {} for record in records]
    return [(str(record.get(key, "")), record) for record in found]


def _nodes_only(record: Record) -> Job | None:
    texts = (record.get(key) for key in ("user_name", "nodes", "partition"))
    user, nodes, partition = (each if isinstance(each, str) else "" for each in texts)
    return parse.unread_job(str(record.get("job_id")), user, _word_or_none(record), nodes, partition)


def _may_hold_nodes(record: Record) -> bool:
    """False only for a job that Slurm says waits or has ended, and that has no nodes."""
    return record.get("nodes") != "" or parse.job_state(_word_or_none(record), on_nodes=False).holds_nodes


def _word_or_none(record: Record) -> str:
    try:
        return _job_word(_words(record, "job_state"))
    except FieldError:
        return ""


def _job_word(states: list[str]) -> str:
    if not states:
        raise FieldError("job_state is empty")
    return next((flag for flag in _FLAGS if flag in states), states[0])


def _node_state(record: Record) -> str:
    """``["IDLE", "DRAIN"]`` as scontrol prints it: ``IDLE+DRAIN``."""
    return "+".join(_words(record, "state"))


_UNSET = "N/A"


def _text(record: Record, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise FieldError(f"{key} is {_shown(value)}, not a text")
    return value


def _words(record: Record, key: str) -> list[str]:
    value = record.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError(f"{key} is {_shown(value)}, not a list of words")
    return value


def _whole(record: Record, key: str) -> int | str:
    """The number, or Slurm's word where there is none."""
    value = record.get(key)
    if isinstance(value, dict):
        if value.get("infinite") is True:
            return "UNLIMITED"
        if value.get("set") is False:
            return _UNSET
        value = value.get("number")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise FieldError(f"{key} is {_shown(record.get(key))}, not a number")
    return value


def _number(record: Record, key: str) -> str:
    return str(_whole(record, key))


def _time(record: Record, key: str) -> str:
    seconds = _whole(record, key)
    if not isinstance(seconds, int) or seconds == 0:
        return _UNSET
    return f"{datetime.fromtimestamp(min(seconds, LATEST.timestamp()), UTC):%Y-%m-%dT%H:%M:%S}"


def _switch(record: Record, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, bool):
        raise FieldError(f"{key} is {_shown(value)}, neither true nor false")
    return str(int(value))


def _shown(value: object) -> str:
    return f"{value!r:.40}"
