"""What the pyslurm worker hands over (plain dictionaries) becomes the product's records. Pure.

The worker passes on numbers and words as pyslurm gives them; what they mean is decided here, where it can be tested
without pyslurm. A record that cannot be read becomes a ``Skipped``, as in ``parse``.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar

from clearway.model.cluster import Job, JobState, Node, Reservation, Skipped, Spread
from clearway.slurm import parse
from clearway.slurm.parse import FieldError, fields
from clearway.slurm.parse.fields import LATEST, LONGEST_S

Record = Mapping[str, Any]
T = TypeVar("T", Job, Node, Reservation)

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
_MAX_PRIORITY = 0xFFFFFFFE


def read_jobs(records: Sequence[Record]) -> tuple[list[Job], list[Skipped]]:
    """All jobs that wait or hold nodes; ended ones, which Slurm remembers for a while, are left out."""
    jobs, skipped = _read("job", "id", records, read_job, _nodes_only)
    return [job for job in jobs if job.state is not JobState.ENDED], skipped


def read_nodes(records: Sequence[Record], reservations: Sequence[Record]) -> tuple[list[Node], list[Skipped]]:
    """All nodes; ``reservations`` names those that cover them."""
    names = {node: each.name for each in read_reservations(reservations)[0] for node in each.nodes}
    return _read("node", "name", records, lambda record: _read_node(record, names))


def read_reservations(records: Sequence[Record]) -> tuple[list[Reservation], list[Skipped]]:
    return _read("reservation", "name", records, _read_reservation)


def _nodes_only(record: Record) -> Job | None:
    texts = (record.get(key) or "" for key in ("user_name", "state", "allocated_nodes", "partition"))
    user, word, nodes, partition = (each if isinstance(each, str) else "" for each in texts)
    return parse.unread_job(str(record.get("id")), user, word, nodes, partition)


def read_job(record: Record) -> Job:
    """One job. Raises FieldError for a value that cannot be read."""
    if "unreadable" in record:
        raise FieldError(_text(record, "unreadable"))
    job_id = _number(record, "id")
    if job_id < 1:
        raise FieldError(f"id is {job_id}")
    word = _text(record, "state")
    state, nodes = parse.state_and_nodes(word, _text(record, "allocated_nodes"))
    submit_time = _time(record, "submit_time")
    if submit_time is None:
        raise FieldError("submit_time is missing")
    num_nodes = len(nodes) if state.holds_nodes and nodes else _num_nodes_asked(record)
    array_id, task_id, tasks = _array(record)
    het_job_id, het_job_offset = _het_job(record)
    spread = None if state.holds_nodes else _spread(record)
    return Job(
        job_id=str(job_id),
        user=_text(record, "user_name"),
        state=state,
        raw_state=word,
        partitions=fields.names(_text(record, "partition")),
        num_nodes=num_nodes,
        submit_time=submit_time,
        name=_text(record, "name"),
        account=_text(record, "account"),
        qos=_text(record, "qos"),
        reason=_text(record, "state_reason") or "None",
        eligible_time=_time(record, "eligible_time"),
        # For a waiting job it is the scheduler's guess, which changes; a run has a start.
        start_time=None if state is JobState.PENDING else _time(record, "start_time"),
        time_limit_s=_time_limit_s(record),
        nodes=nodes if state.holds_nodes else (),
        cpus=_number(record, "cpus"),
        memory_mib=math.ceil(_number(record, "memory_mib") / max(num_nodes, 1)),
        comment=_text(record, "comment"),
        batch=_flag(record, "is_batch_job"),
        requeueable=_flag(record, "is_requeueable"),
        restart_count=_number(record, "requeue_count"),
        priority=_priority(record),
        reservation=_text(record, "reservation") or None,
        dependency=_text(record, "dependencies"),
        features=",".join(_texts(record, "constraints")),
        licenses=",".join(_texts(record, "licenses")),
        gres=",".join(_texts(record, "gres")),
        gpus=_gpus_of_job(record, num_nodes, spread, on_nodes=state.holds_nodes),
        exclusive=_text(record, "resource_sharing") not in ("OK", "YES") or parse.wants_whole(spread),
        spread=spread,
        required_nodes=parse.expand(_text(record, "required_nodes")),
        excluded_nodes=parse.expand(_text(record, "excluded_nodes")),
        contiguous=_flag(record, "requires_contiguous_nodes"),
        switches=_number(record, "required_switches"),
        cpus_per_node=_number(record, "min_cpus_per_node"),
        even_cpus=parse.even_cpus(_number(record, "ntasks"), _number(record, "cpus_per_task"), num_nodes),
        array_job_id=array_id,
        array_task_id=task_id,
        pending_tasks=tasks,
        # Slurm tells it of tasks that run as well, squeue does not.
        array_limit=_number(record, "array_tasks_parallel") if array_id and state is JobState.PENDING else 0,
        het_job_id=het_job_id,
        het_job_offset=het_job_offset,
    )


def _time_limit_s(record: Record) -> int | None:
    """None: there is none."""
    return None if record.get("time_limit") is None else min(_number(record, "time_limit") * 60, LONGEST_S)


def _priority(record: Record) -> int:
    """Pyslurm says "UNLIMITED" for the highest of all."""
    return _MAX_PRIORITY if isinstance(record.get("priority"), str) else _number(record, "priority")


def _het_job(record: Record) -> tuple[str | None, int | None]:
    """The heterogeneous job that it is a part of, and which."""
    het_id = _number(record, "heterogeneous_id")
    return (str(het_id), _number(record, "heterogeneous_offset")) if het_id else (None, None)


def _array(record: Record) -> tuple[str | None, int | None, int]:
    """Array, task, and the number of tasks that the record stands for.

    pyslurm takes 0 for "nothing": task 0 comes as a job of an array without a task and without waiting tasks.
    """
    array_id = _number(record, "array_id")
    if not array_id:
        return None, None, 1
    waiting = _text(record, "array_tasks_waiting")
    if not waiting:
        return str(array_id), _number(record, "array_task_id"), 1
    tasks = fields.count_tasks(waiting, "array_tasks_waiting")
    return str(array_id), int(waiting) if waiting.isdecimal() else None, tasks


def _num_nodes_asked(record: Record) -> int:
    """The least that a waiting job asks for; ``num_nodes`` of ``-N2-4`` may be the most."""
    counts = [count for key in ("num_nodes", "tres_nodes") if (count := _number(record, key))]
    return min(counts, default=0)


def _read_node(record: Record, reservations: Mapping[str, str]) -> Node:
    if "unreadable" in record:
        raise FieldError(_text(record, "unreadable"))
    name, state = _text(record, "name"), _text(record, "state")
    meaning = _meaning(state)
    gpus = _gpus(record, "gres") or ()
    return Node(
        name=name,
        available=meaning.available,
        raw_state=state,
        cpus=_number(record, "effective_cpus") or _number(record, "total_cpus"),
        memory_mib=max(_number(record, "real_memory") - _number(record, "memory_reserved_for_system"), 0),
        partitions=_texts(record, "partitions"),
        alloc_cpus=_number(record, "allocated_cpus"),
        alloc_memory_mib=_number(record, "allocated_memory"),
        gpus=gpus,
        alloc_gpus=_gpus_used(record) if gpus else (),
        cpus_per_core=max(1, _number(record, "threads_per_core")),
        features=_texts(record, "active_features"),
        reason=parse.reason_in_force(_text(record, "reason")),
        reservation=reservations.get(name, "") if meaning.reservation is not None else None,
        weight=_number(record, "weight"),
    )


def _gpus(record: Record, key: str) -> parse.Gpus | None:
    """By type, where types are known: Slurm counts them once more without, where its accounting tracks both."""
    try:
        found = parse.gpus(",".join(_texts(record, key)), key)
    except FieldError:
        return None
    others = tuple(each for each in found if ":" in each[0])
    typed = tuple((name, count) for name, count in found if name and ":" not in name)
    total = sum(count for name, count in found if not name)
    if not typed or not total:
        return found
    return tuple(sorted((*typed, *others))) if sum(count for _, count in typed) == total else None


def _gpus_used(record: Record) -> parse.Gpus | None:
    used = _gpus(record, "allocated_gres")
    return None if used is None else parse.without_parts(used)


def _spread(record: Record) -> Spread | None:
    """What is asked for per node, and in all: pyslurm tells no more."""
    per_node = ",".join(_texts(record, "gres_per_node"))
    tasks, cpus_per_task = _number(record, "ntasks"), _number(record, "cpus_per_task")
    found = parse.spread_asked(parse.GresAsked(per_node), tasks=tasks, cpus_per_task=cpus_per_task)
    if found is not None and not per_node and _texts(record, "gres_of_job"):
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
    return replace(found, cpus_per_task=1, cpus_per_gpu=math.ceil(_number(record, "cpus") / gpus)) if gpus else found


def _gpus_of_job(record: Record, num_nodes: int, spread: Spread | None, *, on_nodes: bool) -> parse.Gpus | None:
    """On each node; None where only the number for the whole job is known, and the job is on several nodes."""
    per_node, of_job = ",".join(_texts(record, "gres_per_node")), _texts(record, "gres_of_job")
    if spread is not None:
        return spread.gpus_on_each(max(num_nodes, 1))
    if not on_nodes:
        return None
    if per_node or not of_job:
        return parse.gpus_asked(parse.GresAsked(per_node), nodes=num_nodes, tasks=0)
    if num_nodes != 1 or any(not name.removeprefix("gres/").startswith("gpu:") for name in of_job):
        return None
    return _gpus(record, "gres_of_job")


@lru_cache(maxsize=256)
def _meaning(state: str) -> Node:
    """What a state means, in words that scontrol and pyslurm share: one place knows them, ``parse``."""
    nodes, skipped = parse.read_nodes(f"NodeName=any State={state} CPUTot=0 RealMemory=0")
    if skipped:
        raise FieldError(skipped[0].why)
    return nodes[0]


def _read_reservation(record: Record) -> Reservation:
    if "unreadable" in record:
        raise FieldError(_text(record, "unreadable"))
    start_time, end_time = _time(record, "start_time"), _time(record, "end_time")
    if start_time is None or end_time is None:
        raise FieldError("start_time or end_time is missing")
    return Reservation(
        name=_text(record, "name"),
        nodes=parse.expand(_text(record, "nodes")),
        start_time=start_time,
        end_time=end_time,
        users=_texts(record, "users"),
        flags=tuple(RESERVATION_FLAGS.get(flag, flag) for flag in _texts(record, "flags")),
    )


def _read(
    kind: str,
    key: str,
    records: Sequence[Record],
    read: Callable[[Record], T],
    nodes_only: Callable[[Record], T | None] = lambda _: None,
) -> tuple[list[T], list[Skipped]]:
    """Each record once; of two with the same id neither can be trusted. ``nodes_only`` as in ``fields.read_each``."""
    good: list[T] = []
    skipped: list[Skipped] = []
    counts = Counter(str(record.get(key)) for record in records)
    for record in records:
        ident = str(record.get(key))[:80]
        try:
            _check_ident(record, key, counts)
            good.append(read(record))
        except FieldError as error:
            rest = nodes_only(record) if counts[str(record.get(key))] == 1 else None
            if rest is not None:
                good.append(rest)
            holds = _may_hold_nodes(kind, record)
            skipped.append(Skipped(kind, ident, str(error), holds, getattr(rest, "nodes", ())))
    return good, skipped


def _check_ident(record: Record, key: str, counts: Counter[str]) -> None:
    if not record.get(key):
        raise FieldError(f"{key} is missing")
    if counts[str(record[key])] > 1:
        raise FieldError("two records have this id")


def _may_hold_nodes(kind: str, record: Record) -> bool:
    """False only for a job that Slurm says waits or has ended, and that has no nodes."""
    if kind != "job" or not isinstance(record.get("state"), str) or record.get("allocated_nodes"):
        return True
    return parse.job_state(record["state"], on_nodes=False).holds_nodes


def _text(record: Record, key: str) -> str:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise FieldError(f"{key} is {str(value)[:40]!r}, not a text")
    return value or ""


def _texts(record: Record, key: str) -> tuple[str, ...]:
    value = record.get(key)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError(f"{key} is {str(value)[:40]!r}, not a list of texts")
    return tuple(value)


def _number(record: Record, key: str) -> int:
    """A whole number; pyslurm says None for 0."""
    value = record.get(key)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FieldError(f"{key} is {str(value)[:40]!r}, not a number")
    return value


def _flag(record: Record, key: str) -> bool:
    value = record.get(key)
    if not isinstance(value, bool):
        raise FieldError(f"{key} is {str(value)[:40]!r}, neither true nor false")
    return value


def _time(record: Record, key: str) -> datetime | None:
    seconds = _number(record, key)
    return datetime.fromtimestamp(min(seconds, LATEST.timestamp()), UTC) if seconds else None
