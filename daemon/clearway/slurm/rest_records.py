"""Jobs and nodes of slurmrestd's JSON, in the columns of squeue and the keys of scontrol, which ``parse`` reads. All
jobs take slurmrestd a third of a second for 1,000, so it is asked the cheap way first: with the time of its last answer
(``update_time``) slurmctld says within a millisecond that nothing has changed. It compares whole seconds, and a change
may carry a time read before a lock was waited for: the question allows for two seconds, the states of all jobs
(``/jobs/state/``) are compared as well, and all is read again twice a minute.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from clearway.model.cluster import Job, JobState, Node, Reservation, Skipped
from clearway.model.errors import SlurmUnavailableError
from clearway.slurm import parse
from clearway.slurm.parse import FieldError, Row, fields, values
from clearway.slurm.parse.values import UNSET, Record, by, listed, named, number, switch, text, whole, words
from clearway.slurm.process import RefusedError
from clearway.slurm.rest_client import UNCHANGED, Document, RestClient
from clearway.slurm.site_settings import NEVER

MARGIN_S = 2
ALL_EVERY = timedelta(seconds=30)
ALL = {"flags": "ALL"}  # without DETAIL, a quarter of the answer that says nothing needed here

T = TypeVar("T", Job, Node)

# squeue's one word for a job is the first of these flags, else the base state; every other flag says nothing to it.
_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING",
)  # fmt: skip
_SHARING: tuple[list[str], ...] = ([], ["oversubscribe"])  # of `shared`; whole nodes are "none", "user" and more


def _state(record: Record, key: str) -> str:
    """``["IDLE", "DRAIN"]`` as scontrol prints it: ``IDLE+DRAIN``."""
    return "+".join(words(record, key))


def _job_word(record: Record, key: str) -> str:
    states = words(record, key)
    if not states:
        raise FieldError(f"{key} is empty")
    return next((flag for flag in _FLAGS if flag in states), states[0])


def _sharing(record: Record, key: str) -> str:
    return "NO" if words(record, key) in _SHARING else "YES"


_JOB = (
    by(text, {
        "UserName": "user_name", "Account": "account", "Partition": "partition", "QOS": "qos",
        "Reason": "state_reason", "NodeList": "nodes", "Name": "name", "Comment": "comment",
        "Reservation": "resv_name", "Dependency": "dependency", "Feature": "features", "Licenses": "licenses",
        "tres-per-node": "tres_per_node", "tres-per-job": "tres_per_job", "tres-per-socket": "tres_per_socket",
        "tres-per-task": "tres_per_task", "ReqNodes": "required_nodes", "cpus-per-tres": "cpus_per_tres",
        "mem-per-tres": "memory_per_tres", "tres-alloc": "tres_alloc_str",
    })
    | by(number, {
        "JobID": "job_id", "ArrayJobID": "array_job_id", "ArrayTaskID": "array_task_id", "NumNodes": "node_count",
        "NumCPUs": "cpus", "MinCpus": "minimum_cpus_per_node", "NumTasks": "tasks", "cpus-per-task": "cpus_per_task",
        "ReqSwitch": "required_switches", "PriorityLong": "priority", "RestartCnt": "restart_cnt",
        "HetJobID": "het_job_id", "HetJobOffset": "het_job_offset", "TimeLimit": "time_limit",
    })
    | by(values.time, {
        "StartTime": "start_time", "EndTime": "end_time", "Deadline": "deadline", "SubmitTime": "submit_time",
        "EligibleTime": "eligible_time",
    })
    | by(switch, {"Contiguous": "contiguous", "Requeue": "requeue", "BatchFlag": "batch_flag"})
    | {"State": (_job_word, "job_state"), "Exclusive": (_sharing, "shared"), "Nice": (whole, "nice")}
)  # fmt: skip
_NODE = (
    by(text, {
        "NodeName": "name", "Gres": "gres", "GresUsed": "gres_used", "Reason": "reason",
        "ReservationName": "reservation",
    })
    | by(number, {
        "CPUTot": "cpus", "CPUEfctv": "effective_cpus", "CPUAlloc": "alloc_cpus", "RealMemory": "real_memory",
        "MemSpecLimit": "specialized_memory", "AllocMem": "alloc_memory", "ThreadsPerCore": "threads",
        "Weight": "weight",
    })
    | by(listed, {"Partitions": "partitions", "ActiveFeatures": "active_features"})
    | {"State": (_state, "state")}
)  # fmt: skip
_RESERVATION = (
    by(text, {"ReservationName": "name", "Nodes": "node_list", "Users": "users"})
    | by(values.time, {"StartTime": "start_time", "EndTime": "end_time"})
    | {"Flags": (listed, "flags")}
)
# All of a record that is looked at.
JOB_KEYS = (
    *(key for _, key in _JOB.values()), "array_task_string", "array_max_tasks", "tres_req_str", "excluded_nodes",
)  # fmt: skip
NODE_KEYS = tuple(key for _, key in _NODE.values())
RESERVATION_KEYS = tuple(key for _, key in _RESERVATION.values())


def read_jobs(
    records: Sequence[object], read: Callable[[Record], Job] | None = None
) -> tuple[list[Job], list[Skipped]]:
    """All jobs of ``records``, ended ones included; ``read`` stands in for ``read_job``."""
    return fields.read_each(
        "job", named("job_id", records), read or read_job, key="id",
        may_hold_nodes=_may_hold_nodes, nodes_only=_nodes_only,
    )  # fmt: skip


def read_job(record: Record) -> Job:
    job = parse.job_from_row(job_row(record))
    limit = fields.number(number(record, "array_max_tasks"), "array_max_tasks")
    if job.array_job_id is not None and job.state is JobState.PENDING:
        job = replace(job, array_limit=limit)
    excluded = parse.expand(text(record, "excluded_nodes"))
    return replace(job, excluded_nodes=excluded) if excluded else job


def job_row(record: Record) -> Row:
    row = values.told(record, _JOB)
    if row["ArrayJobID"] in ("0", UNSET):
        row["ArrayJobID"] = row["JobID"]
    tasks, asked = text(record, "array_task_string"), text(record, "tres_req_str")
    return row | {"ArrayTaskID": tasks or row["ArrayTaskID"], "tres-alloc": row["tres-alloc"] or asked}


def read_nodes(records: Sequence[object]) -> tuple[list[Node], list[Skipped]]:
    return fields.read_each(
        "node", named("name", records), lambda each: parse.node_from_record(values.told(each, _NODE))
    )


def node_status(record: Record) -> parse.NodeStatus:
    return parse.status_from_record({"State": _state(record, "state"), "Reason": text(record, "reason")})


def read_reservations(records: Sequence[object]) -> tuple[list[Reservation], list[Skipped]]:
    return fields.read_each(
        "reservation",
        named("name", records),
        lambda each: parse.reservation_from_record(values.told(each, _RESERVATION)),
    )


def _nodes_only(record: Record) -> Job | None:
    texts = (record.get(key) for key in ("user_name", "nodes", "partition"))
    user, nodes, partition = (each if isinstance(each, str) else "" for each in texts)
    return parse.unread_job(str(record.get("job_id")), user, _word_or_none(record), nodes, partition)


def _may_hold_nodes(record: Record) -> bool:
    """False only for a job that Slurm says waits or has ended, and that has no nodes."""
    return record.get("nodes") != "" or parse.job_state(_word_or_none(record), on_nodes=False).holds_nodes


def _word_or_none(record: Record) -> str:
    try:
        return _job_word(record, "job_state")
    except FieldError:
        return ""


class Kept(Generic[T]):
    def __init__(self) -> None:
        self.found: Sequence[T] = ()
        self.skipped: Sequence[Skipped] = ()
        self._asked_with: int | None = None
        self._read_at = NEVER

    def fresh(self, now: datetime) -> bool:
        return self._asked_with is not None and timedelta(0) <= now - self._read_at < ALL_EVERY

    def changed(self, client: RestClient, path: str, key: str, *, fresh: bool, **query: str) -> Document | None:
        """All records; None where they are ``fresh``, and slurmctld says that none has changed."""
        since, self._asked_with = self._asked_with, None  # until the answer has been read as a whole
        document = client.read(path, **query, **({"update_time": since} if fresh and since else {}))
        # Of nodes it says so by the status 304, of jobs by no jobs and no time.
        none = document is UNCHANGED or (not list_of(document, key) and not whole_number(document, "last_update"))
        if not none:
            return document
        if not fresh:
            raise SlurmUnavailableError(f"slurmrestd has answered {path} with nothing, not even a time")
        self._asked_with = since
        return None

    def keep(self, document: Document, now: datetime) -> None:
        self._asked_with, self._read_at = max(1, whole_number(document, "last_update") - MARGIN_S), now


class JobReader:
    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._kept: Kept[Job] = Kept()
        self._states: list[object] = []
        self._unchanged = values.Unchanged(lambda record: map(record.get, JOB_KEYS))

    def read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Skipped], int]:
        """Jobs, those that cannot be read, and how many queries that took."""
        # Before the jobs: what changes between the two answers is then seen as a change the next time.
        states = list_of(self._client.read("/jobs/state/"), "jobs")
        fresh = self._kept.fresh(now) and states == self._states
        document = self._kept.changed(self._client, "/jobs/", "jobs", fresh=fresh, **ALL)
        if document is not None:
            jobs, self._kept.skipped = read_jobs(list_of(document, "jobs"), self._unchanged.reader(read_job))
            self._kept.found = [job for job in jobs if job.state is not JobState.ENDED]
            self._kept.keep(document, now)
            self._states = states
        return self._kept.found, self._kept.skipped, 2


class NodeReader:
    """All nodes. 24.11 answers the question for what has changed with an error, where nothing has: it is asked once."""

    def __init__(self, client: RestClient) -> None:
        self._client = client
        self._kept: Kept[Node] = Kept()
        self._tells_changes = True

    def read(self, now: datetime) -> tuple[Sequence[Node], Sequence[Skipped], int]:
        fresh = self._tells_changes and self._kept.fresh(now)
        try:
            document = self._kept.changed(self._client, "/nodes/", "nodes", fresh=fresh)
        except RefusedError:
            if not fresh:
                raise
            self._tells_changes = False
            return self.read(now)
        if document is not None:
            self._kept.found, self._kept.skipped = read_nodes(list_of(document, "nodes"))
            self._kept.keep(document, now)
        return self._kept.found, self._kept.skipped, 1


def list_of(document: Document, key: str) -> list[object]:
    found = document.get(key)
    if not isinstance(found, list):
        raise SlurmUnavailableError(f"slurmrestd's answer has no list of {key}")
    return found


def whole_number(document: Document, key: str) -> int:
    found = document.get(key)
    number = found.get("number") if isinstance(found, dict) else found
    if not isinstance(number, int) or isinstance(number, bool):
        raise SlurmUnavailableError(f"slurmrestd's answer has no {key}")
    return number
