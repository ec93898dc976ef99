"""What the pyslurm worker hands over, in squeue's columns and scontrol's keys; what it means is decided here. Pure."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from clearway.model.cluster import Job, JobState, Node, Reservation, Skipped, Spread
from clearway.slurm import parse
from clearway.slurm.parse import FieldError, Row, fields, values
from clearway.slurm.parse.fields import LONGEST_S
from clearway.slurm.parse.values import UNSET, Record, by, named, or_else, switch

# pyslurm's words for flags of reservations, where they are not Slurm's.
RESERVATION_FLAGS = {
    "IGNORE_RUNNING_JOBS": "IGNORE_JOBS",
    "MAINTENANCE": "MAINT",
    "PARTITION_NODES_ONLY": "PART_NODES",
    "SPECIFIC_NODES": "SPEC_NODES",
    "STATIC_NODES": "STATIC",
    "USER_DELETION": "USER_DELETE",
    "PURGE": "PURGE_COMP",
    "NO_JOB_HOLD_AFTER_END": "NO_HOLD_JOBS_AFTER",
}
_MAX_PRIORITY = 0xFFFFFFFE  # of which pyslurm says "UNLIMITED"

_text = or_else("", values.text)
_listed = or_else("", values.listed)
_number = or_else("0", values.number)
_time = or_else(UNSET, values.time)


def _count(record: Record, key: str) -> int:
    return int(_number(record, key))


def _priority(record: Record, key: str) -> str:
    return str(_MAX_PRIORITY) if isinstance(record.get(key), str) else _number(record, key)


def _time_limit(record: Record, key: str) -> str:
    return UNSET if record.get(key) is None else str(min(_count(record, key), LONGEST_S // 60))


def _sharing(record: Record, key: str) -> str:
    return "NO" if _text(record, key) in ("OK", "YES") else "YES"


_JOB = (
    by(_text, {
        "UserName": "user_name", "Account": "account", "Partition": "partition", "QOS": "qos", "State": "state",
        "Reason": "state_reason", "NodeList": "allocated_nodes", "Name": "name", "Comment": "comment",
        "Reservation": "reservation", "Dependency": "dependencies", "ReqNodes": "required_nodes",
    })
    | by(_listed, {"Feature": "constraints", "Licenses": "licenses", "tres-per-node": "gres_per_node"})
    | by(_number, {
        "JobID": "id", "ArrayJobID": "array_id", "ArrayTaskID": "array_task_id", "NumCPUs": "cpus",
        "MinCpus": "min_cpus_per_node", "NumTasks": "ntasks", "cpus-per-task": "cpus_per_task",
        "ReqSwitch": "required_switches", "RestartCnt": "requeue_count", "HetJobID": "heterogeneous_id",
        "HetJobOffset": "heterogeneous_offset",
    })
    | by(_time, {
        "StartTime": "start_time", "EndTime": "end_time", "Deadline": "deadline", "SubmitTime": "submit_time",
        "EligibleTime": "eligible_time",
    })
    | by(switch, {"Contiguous": "requires_contiguous_nodes", "Requeue": "is_requeueable", "BatchFlag": "is_batch_job"})
    | {
        "PriorityLong": (_priority, "priority"), "TimeLimit": (_time_limit, "time_limit"),
        "Nice": (values.whole, "nice"), "Exclusive": (_sharing, "resource_sharing"),
    }
)  # fmt: skip
_NOT_TOLD = dict.fromkeys(("tres-per-job", "tres-per-socket", "tres-per-task", "cpus-per-tres", "mem-per-tres"), "")
_NODE = (
    by(_text, {"NodeName": "name", "State": "state", "Reason": "reason"})
    | by(_listed, {"Partitions": "partitions", "ActiveFeatures": "active_features"})
    | by(_number, {
        "CPUTot": "total_cpus", "CPUAlloc": "allocated_cpus", "RealMemory": "real_memory", "Weight": "weight",
        "MemSpecLimit": "memory_reserved_for_system", "AllocMem": "allocated_memory",
        "ThreadsPerCore": "threads_per_core",
    })
    | {"CPUEfctv": (or_else("", values.number), "effective_cpus")}
)  # fmt: skip
_RESERVATION = (
    by(_text, {"ReservationName": "name", "Nodes": "nodes"})
    | by(_time, {"StartTime": "start_time", "EndTime": "end_time"})
    | by(_listed, {"Users": "users"})
)


def read_jobs(
    records: Sequence[Record], read: Callable[[Record], Job] | None = None
) -> tuple[list[Job], list[Skipped]]:
    """All jobs that wait or hold nodes, not those that Slurm only remembers; ``read`` stands in for ``read_job``."""
    jobs, skipped = fields.read_each(
        "job", named("id", records), read or read_job, key="id", may_hold_nodes=_may_hold_nodes, nodes_only=_nodes_only
    )
    return [job for job in jobs if job.state is not JobState.ENDED], skipped


def read_nodes(records: Sequence[Record], reservations: Sequence[Record]) -> tuple[list[Node], list[Skipped]]:
    """All nodes; ``reservations`` names those that cover them."""
    names = {node: each.name for each in read_reservations(reservations)[0] for node in each.nodes}
    return fields.read_each("node", named("name", records), lambda record: _read_node(record, names))


def read_reservations(records: Sequence[Record]) -> tuple[list[Reservation], list[Skipped]]:
    return fields.read_each("reservation", named("name", records), _read_reservation)


def _may_hold_nodes(record: Record) -> bool:
    """False only for a job that Slurm says waits or has ended, and that has no nodes."""
    if not isinstance(record.get("state"), str) or record.get("allocated_nodes"):
        return True
    return parse.job_state(record["state"], on_nodes=False).holds_nodes


def _nodes_only(record: Record) -> Job | None:
    texts = (record.get(key) or "" for key in ("user_name", "state", "allocated_nodes", "partition"))
    user, word, nodes, partition = (each if isinstance(each, str) else "" for each in texts)
    return parse.unread_job(str(record.get("id")), user, word, nodes, partition)


def _require(record: Record, key: str) -> None:
    """That the worker could read it, and that it has a name. Raises FieldError."""
    if "unreadable" in record:
        raise FieldError(_text(record, "unreadable"))
    if not record.get(key):
        raise FieldError(f"{key} is missing")


def read_job(record: Record) -> Job:
    _require(record, "id")
    job = parse.job_from_row(_job_row(record))
    spread = None if job.state.holds_nodes else _spread(record, job.spread)
    # Slurm tells the limit of an array of tasks that run as well, squeue does not.
    limit = _count(record, "array_tasks_parallel") if job.array_job_id and job.state is JobState.PENDING else 0
    return replace(
        job,
        gres=_listed(record, "gres"),
        gpus=_gpus_of_job(record, job, spread),
        exclusive=job.exclusive or parse.wants_whole(spread),
        spread=spread,
        excluded_nodes=parse.expand(_text(record, "excluded_nodes")),
        array_limit=limit,
    )


def _job_row(record: Record) -> Row:
    row = values.told(record, _JOB)
    if row["ArrayJobID"] == "0":
        row["ArrayTaskID"] = UNSET
    # pyslurm takes 0 for "nothing": task 0 comes as a job of an array without a task and without waiting tasks.
    elif waiting := _text(record, "array_tasks_waiting"):
        row["ArrayTaskID"] = waiting
    memory = {"tres-alloc": f"mem={_number(record, 'memory_mib')}M", "NumNodes": str(_num_nodes_asked(record))}
    return row | _NOT_TOLD | memory


def _num_nodes_asked(record: Record) -> int:
    """The least that a waiting job asks for; ``num_nodes`` of ``-N2-4`` may be the most."""
    counts = [count for key in ("num_nodes", "tres_nodes") if (count := _count(record, key))]
    return min(counts, default=0)


def _read_node(record: Record, reservations: dict[str, str]) -> Node:
    _require(record, "name")
    row = values.told(record, _NODE)
    if "RESERVED" in row["State"].split("+"):
        row["ReservationName"] = reservations.get(row["NodeName"], "")
    node, gpus = parse.node_from_record(row), _gpus(record, "gres")
    if not gpus:
        return node
    used = _gpus(record, "allocated_gres")
    return replace(node, gpus=gpus, alloc_gpus=None if used is None else parse.without_parts(used))


def node_status(record: Record) -> parse.NodeStatus:
    _require(record, "name")
    return parse.status_from_record(values.told(record, _NODE))


def _gpus(record: Record, key: str) -> parse.Gpus | None:
    """By type, where types are known: Slurm counts them once more without, where its accounting tracks both."""
    try:
        found = parse.gpus(_listed(record, key), key)
    except FieldError:
        return None
    others = tuple(each for each in found if ":" in each[0])
    typed = tuple((name, count) for name, count in found if name and ":" not in name)
    total = sum(count for name, count in found if not name)
    if not typed or not total:
        return found
    return tuple(sorted((*typed, *others))) if sum(count for _, count in typed) == total else None


def _spread(record: Record, found: Spread | None) -> Spread | None:
    """What is asked for per node (``found``), and in all: pyslurm tells no more."""
    tasks, cpus_per_task = _count(record, "ntasks"), _count(record, "cpus_per_task")
    if found is not None and not _listed(record, "gres_per_node") and _listed(record, "gres_of_job"):
        of_job = _gpus(record, "gres_of_job")
        if of_job is None:
            return None
        if tasks > 1 and all(count % tasks == 0 for _, count in of_job):  # it may be so many per task
            found = replace(found, gpus_per_task=tuple((name, count // tasks) for name, count in of_job))
        else:
            found = replace(found, gpus_per_job=of_job)
    if found is None or cpus_per_task:
        return found
    # pyslurm says None where processors come with GPUs, and does not say how many; they are all counted.
    gpus = replace(found, cpus_per_gpu=1).cpus_for_gpus(_num_nodes_asked(record))
    return replace(found, cpus_per_task=1, cpus_per_gpu=math.ceil(_count(record, "cpus") / gpus)) if gpus else found


def _gpus_of_job(record: Record, job: Job, spread: Spread | None) -> parse.Gpus | None:
    """On each node; None where only the number for the whole job is known, and the job is on several nodes."""
    if not job.state.holds_nodes:
        return None if spread is None else spread.gpus_on_each(max(job.num_nodes, 1))
    of_job = _listed(record, "gres_of_job")
    if not of_job or _listed(record, "gres_per_node"):
        return job.gpus
    if job.num_nodes != 1 or any(not name.removeprefix("gres/").startswith("gpu:") for name in of_job.split(",")):
        return None
    return _gpus(record, "gres_of_job")


def _read_reservation(record: Record) -> Reservation:
    _require(record, "name")
    row = values.told(record, _RESERVATION)
    flags = [RESERVATION_FLAGS.get(flag, flag) for flag in fields.names(_listed(record, "flags"))]
    return parse.reservation_from_record(row | {"Flags": ",".join(flags)})
