"""Jobs, as ``squeue`` prints them in columns of our choice.

Not ``squeue --json`` (measured with 1,900 jobs on Slurm 22.05): 240-490 ms and 6 MB against 30 ms and 0.6 MB; the
columns have kept their names where JSON changed; and one job name that is not UTF-8 makes the whole document invalid.
ExcNodeList alone is asked for separately. It cannot be forged: every column ends in a separator with a random token
made for this call; a record whose columns do not add up is skipped.
"""

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from clearway.model.cluster import Job, JobState, Skipped, Spread
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.gres import Gpus, GresAsked, gpus_asked, spread_asked, wants_whole
from clearway.slurm.parse.hostlist import expand
from clearway.slurm.releases import sharing_column

JOB_COLUMNS = (
    "JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset", "UserName", "Account", "Partition", "QOS",
    "State", "Reason", "NumNodes", "NodeList", "NumCPUs", "MinCpus", "NumTasks", "cpus-per-task", "OverSubscribe",
    "TimeLimit", "StartTime", "EndTime", "Deadline", "SubmitTime", "EligibleTime", "Name", "Comment", "Reservation",
    "Dependency",
    "Feature", "Licenses", "tres-per-node", "tres-per-job", "tres-per-socket", "tres-per-task", "cpus-per-tres",
    "mem-per-tres", "tres-alloc", "ReqNodes", "Contiguous", "ReqSwitch", "PriorityLong", "Nice", "Requeue",
    "RestartCnt", "BatchFlag",
)  # fmt: skip

TARGET_COLUMNS = ("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "HetJobOffset")  # of these ``job_target`` is made
_EXCLUSIVE = "Exclusive"  # instead of OverSubscribe, where squeue knows it

Row = dict[str, str]


def job_columns(known: str) -> tuple[str, ...]:
    """The columns to ask for; ``known`` is what ``squeue --helpFormat`` says, "" where it says nothing."""
    sharing = sharing_column(known)
    return tuple(sharing if column == "OverSubscribe" else column for column in JOB_COLUMNS)


_ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED",  # of a federated job that another cluster has started
    "TIMEOUT",
)  # fmt: skip
# squeue prints one word a job; flags win over the base state. Words that are not here are UNKNOWN.
_STATES = {
    "CONFIGURING": JobState.CONFIGURING,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.SUSPENDED,
    "COMPLETING": JobState.COMPLETING,
    **dict.fromkeys(("PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUED"), JobState.PENDING),
    **dict.fromkeys(_ENDED, JobState.ENDED),
}

# The words for a job that others may share its nodes with; any other, unknown ones included, means whole nodes.
_SHARING = frozenset({"OK", "YES"})
_JOB_ID = re.compile(r"[1-9]\d{0,17}", re.ASCII)
_PLAIN_RESOURCES = re.compile(r"(?:tres:)?(?:cpu|mem|node|billing|energy)\b.*")


def job_state(word: str, *, on_nodes: bool) -> JobState:
    """What Slurm's state word means; a job said to wait while it has nodes is still on its way out."""
    state = _STATES.get(word, JobState.UNKNOWN)
    return JobState.COMPLETING if state is JobState.PENDING and on_nodes else state


def job_format(token: str, columns: tuple[str, ...] = JOB_COLUMNS) -> str:
    """The value for ``squeue --Format`` (or SQUEUE_FORMAT2): width 0 prints a value whole, a suffix follows it."""
    return f":|{token}|,".join(columns) + f":|{token}$"


def excluded_nodes_format(token: str) -> str:
    """The value for ``squeue --format`` (or SQUEUE_FORMAT): job id and excluded nodes."""
    return f"%A|{token}|%x|{token}$"


def split_records(text: str, token: str) -> tuple[list[str], list[Skipped]]:
    *records, rest = text.split(record_separator(token))
    return records, cut_record(rest)


def record_separator(token: str) -> str:
    return f"|{token}$"


def cut_record(rest: str) -> list[Skipped]:
    return [Skipped("job", rest.strip()[:20], "the output ends inside a record")] if rest.strip() else []


def split_columns(record: str, token: str) -> list[str]:
    return record.removeprefix("\n").split(f"|{token}|")


def split_rows(text: str, token: str, columns: tuple[str, ...] = JOB_COLUMNS) -> tuple[list[Row], list[Skipped]]:
    """Records and their columns; what does not have exactly these columns is skipped."""
    rows: list[Row] = []
    records, skipped = split_records(text, token)
    for record in records:
        values = split_columns(record, token)
        if len(values) == len(columns):
            rows.append(dict(zip(columns, values, strict=True)))
        else:
            skipped.append(_of_other_columns(values, columns))
    return rows, skipped


def _of_other_columns(values: Sequence[str], columns: Sequence[str]) -> Skipped:
    return Skipped("job", values[0][:20], f"{len(values)} columns instead of {len(columns)}")


def read_jobs(text: str, token: str, columns: tuple[str, ...] = JOB_COLUMNS) -> tuple[list[Job], list[Skipped]]:
    """All jobs that ``squeue`` printed with ``job_format(token, columns)``; of two records with one id none counts."""
    records, cut = split_records(text, token)
    jobs, skipped = fields.together("job", [read_record(record, token, columns) for record in records], key="id")
    return jobs, cut + skipped


def read_record(record: str, token: str, columns: tuple[str, ...] = JOB_COLUMNS) -> fields.Reading[Job]:
    """One job of ``read_jobs``. What has other columns has its whole text as the key, which is no job's."""
    values = split_columns(record, token)
    if len(values) != len(columns):
        return f"\n{record}", None, _of_other_columns(values, columns)
    row = dict(zip(columns, values, strict=True))

    def nodes_only(row: Row) -> Job | None:
        return unread_job(row["JobID"], row["UserName"], row["State"], row["NodeList"], row["Partition"])

    return fields.read_one("job", row["JobID"], row, job_from_row, _may_hold_nodes, nodes_only)


def _may_hold_nodes(row: Row) -> bool:
    """False only for a job that Slurm says waits or has ended, and that has no nodes."""
    return bool(fields.text(row["NodeList"])) or job_state(row["State"], on_nodes=False).holds_nodes


def unread_job(job_id: str, user: str, word: str, hostlist: str, partition: str) -> Job | None:
    """What stands for a job of which no more can be read than its nodes; None where not even these can be."""
    try:
        nodes = expand(hostlist)
    except FieldError:
        return None
    if not nodes or not _JOB_ID.fullmatch(job_id):
        return None
    return Job(
        job_id=job_id,
        user=user,
        state=JobState.UNKNOWN,
        raw_state=word,
        partitions=fields.names(partition),
        num_nodes=len(nodes),
        submit_time=datetime.fromtimestamp(0, UTC),
        nodes=nodes,
        batch=False,
        requeueable=False,
        gpus=None,
    )


def job_from_row(row: Row) -> Job:
    if not _JOB_ID.fullmatch(row["JobID"]):
        raise FieldError(f"JobID is {row['JobID'][:40]!r}")
    nodes, word = expand(row["NodeList"]), row["State"]
    state = job_state(word, on_nodes=bool(nodes))
    if not nodes and state in (JobState.RUNNING, JobState.SUSPENDED, JobState.CONFIGURING):
        raise FieldError(f"the job is {word[:40]} but has no nodes")
    on_nodes = state.holds_nodes
    submit_time = fields.time(row["SubmitTime"], "SubmitTime")
    if submit_time is None:
        raise FieldError("SubmitTime is missing")
    allocated = fields.tres(row["tres-alloc"])
    num_nodes = _num_nodes(row, state, nodes, allocated)
    tasks = _optional(row["NumTasks"], "NumTasks")
    cpus_per_task = _optional(row["cpus-per-task"], "cpus-per-task")
    gres = GresAsked(*(row[f"tres-per-{scope}"] for scope in ("node", "job", "socket", "task")))
    of_gpu = {"cpus_per_gpu": row["cpus-per-tres"], "memory_per_gpu": row["mem-per-tres"]}
    spread = None if on_nodes else spread_asked(gres, tasks=tasks, cpus_per_task=cpus_per_task, **of_gpu)
    task_id, pending_tasks, array_limit = _array(row["ArrayTaskID"])
    het_job_id, het_job_offset = _het_job(row)
    limit_s = fields.duration_s(row["TimeLimit"], "TimeLimit")
    shares = row[_EXCLUSIVE] == "NO" if _EXCLUSIVE in row else row["OverSubscribe"] in _SHARING
    return Job(
        job_id=row["JobID"],
        user=row["UserName"],
        state=state,
        raw_state=word,
        partitions=fields.names(row["Partition"]),
        num_nodes=num_nodes,
        submit_time=submit_time,
        name=row["Name"],
        account=fields.text(row["Account"]),
        qos=fields.text(row["QOS"]),
        reason=row["Reason"] or "None",
        eligible_time=fields.time(row["EligibleTime"], "EligibleTime"),
        # For a waiting job it is the scheduler's guess, which changes; a run has a start.
        start_time=None if state is JobState.PENDING else fields.time(row["StartTime"], "StartTime"),
        time_limit_s=limit_s,
        end_time=_end_time(row, state, limit_s),
        deadline=fields.time(row["Deadline"], "Deadline"),
        nodes=nodes if on_nodes else (),
        cpus=fields.number(row["NumCPUs"], "NumCPUs"),
        memory_mib=_memory_mib(allocated, num_nodes),
        comment="" if row["Comment"] == "(null)" else row["Comment"],
        batch=fields.flag(row["BatchFlag"], "BatchFlag"),
        requeueable=fields.flag(row["Requeue"], "Requeue"),
        restart_count=fields.number(row["RestartCnt"], "RestartCnt"),
        priority=fields.number(row["PriorityLong"], "PriorityLong"),
        nice=fields.signed(row["Nice"], "Nice"),
        reservation=fields.text(row["Reservation"]) or None,
        dependency=fields.text(row["Dependency"]),
        features=fields.text(row["Feature"]),
        licenses=fields.text(row["Licenses"]),
        gres=_beside_processors(gres),
        gpus=_gpus(gres, spread, num_nodes, tasks, on_nodes=on_nodes),
        exclusive=not shares or wants_whole(spread),
        spread=spread,
        required_nodes=expand(row["ReqNodes"]),
        contiguous=fields.flag(row["Contiguous"], "Contiguous"),
        switches=fields.number(row["ReqSwitch"], "ReqSwitch"),
        even_cpus=even_cpus(tasks, cpus_per_task, num_nodes),
        cpus_per_node=fields.number(row["MinCpus"], "MinCpus"),
        # A job that is no array task has its own id in ArrayJobID.
        array_job_id=row["ArrayJobID"] if fields.text(row["ArrayTaskID"]) else None,
        array_task_id=task_id,
        pending_tasks=pending_tasks,
        array_limit=array_limit,
        het_job_id=het_job_id,
        het_job_offset=het_job_offset,
    )


def _end_time(row: Row, state: JobState, limit_s: int | None) -> datetime | None:
    """Of a waiting job it is a guess; where there is no limit Slurm means a year, and squeue alone says NONE."""
    return None if state is JobState.PENDING or limit_s is None else fields.time(row["EndTime"], "EndTime")


def _het_job(row: Row) -> tuple[str | None, int | None]:
    het_job_id = fields.text(row["HetJobID"])
    if het_job_id in ("", "0"):
        return None, None
    return het_job_id, fields.number(row["HetJobOffset"], "HetJobOffset")


def even_cpus(tasks: int, cpus_per_task: int, nodes: int) -> int:
    """Processors on each node when the tasks are spread evenly: what a node needs for its share; 0: not known."""
    return math.ceil(tasks / max(nodes, 1)) * cpus_per_task


def _gpus(gres: GresAsked, spread: Spread | None, nodes: int, tasks: int, *, on_nodes: bool) -> Gpus | None:
    """On each of its nodes; of a waiting job an even share."""
    if on_nodes:
        return gpus_asked(gres, nodes=nodes, tasks=tasks)
    return None if spread is None else spread.gpus_on_each(max(nodes, 1))


def _optional(value: str, what: str) -> int:
    return fields.number(value, what) if fields.text(value) else 0


def job_target(row: Row) -> str:
    """How to name exactly this job to scontrol and scancel. The last task of an array to start gets the id of the array
    itself, and ``scontrol requeue`` of that number requeues every task (measured); ``1909_4`` is one task,
    ``1909_[7-199:2]`` the tasks that still wait. The first component of a heterogeneous job has the id of the whole
    job: ``1909+0`` is that component alone.
    """
    het_job_id = fields.text(row["HetJobID"])
    if het_job_id and het_job_id != "0":
        return f"{het_job_id}+{row['HetJobOffset']}"
    tasks = fields.text(row["ArrayTaskID"]).partition("%")[0]
    if not tasks:
        return row["JobID"]
    return f"{row['ArrayJobID']}_{tasks}" if tasks.isdecimal() else f"{row['ArrayJobID']}_[{tasks}]"


def read_excluded_nodes(text: str, token: str) -> tuple[dict[str, tuple[str, ...]], list[Skipped]]:
    rows, skipped = split_rows(text, token, ("JobID", "ExcNodes"))
    excluded: dict[str, tuple[str, ...]] = {}
    for row in rows:
        try:
            excluded[row["JobID"]] = expand(row["ExcNodes"])
        except FieldError as error:
            skipped.append(Skipped("job", row["JobID"][:20], str(error)))
    return excluded, skipped


def _array(value: str) -> tuple[int | None, int, int]:
    """Task, waiting tasks, limit: ``7-199:2%3,201`` is (None, 98, 3); ``4`` is (4, 1, 0); "N/A" is (None, 1, 0)."""
    tasks, _, limit = fields.text(value).partition("%")
    if not tasks:
        return None, 1, 0
    count = fields.count_tasks(tasks, "ArrayTaskID")
    return int(tasks) if tasks.isdecimal() else None, count, fields.number(limit, "ArrayTaskID") if limit else 0


def _num_nodes(row: Row, state: JobState, nodes: tuple[str, ...], allocated: dict[str, str]) -> int:
    """On nodes: their number. Waiting: the least that it asks for; of ``-N2-4`` squeue prints the most."""
    if state.holds_nodes and nodes:
        return len(nodes)
    count = fields.number(row["NumNodes"], "NumNodes")
    return min(count, fields.number(allocated["node"], "TRES node")) if "node" in allocated else count


def _memory_mib(allocated: dict[str, str], num_nodes: int) -> int:
    """Memory of one node; jobs with uneven nodes are taken as even."""
    if "mem" not in allocated:
        return 0
    return math.ceil(fields.size_mib(allocated["mem"], "TRES mem") / max(num_nodes, 1))


def _beside_processors(gres: GresAsked) -> str:
    """All that is asked for beside processors and memory (newer releases write --cpus-per-task there)."""
    items = (item for value in gres for item in fields.names(value))
    return ",".join(item for item in items if not _PLAIN_RESOURCES.fullmatch(item))
