"""Whatever a user can write into a job that Slurm accepts: every record is read, and other jobs are planned.

Each value of each option is tried alone; combinations, and later changes of jobs, are drawn at random from a fixed
seed. ``CLEARWAY_FUZZ=SEED:JOBS`` draws others, or more.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random

import pytest

from clearway.config.configuration import Config
from clearway.eligibility.context import PlanningContext
from clearway.model.cluster import ClusterSnapshot
from clearway.model.plan import Plan
from clearway.planning.dp.eviction_dp import EvictionDP
from clearway.preemption.detection import imagined
from clearway.preemption.plan import decide
from clearway.slurm.base import SlurmBackend
from clearway.slurm.cli import CliBackend
from clearway.slurm.pyslurm import PyslurmBackend
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.machine import missing_requirements

SEED, JOBS = map(int, os.environ.get("CLEARWAY_FUZZ", "1:100").split(":"))
NODES = 6
PATIENT_S = 60.0
PYSLURM = importlib.util.find_spec("pyslurm") is not None
TEXTS = (
    "",
    " ",
    "(null)",
    "None",
    "N/A",
    "n/a",
    "=",
    ",,,",
    "%s%n%%",
    "a b\tc",
    "x JobState=RUNNING UserId=root(0) NodeList=node[1-6]",
    "\n1|RUNNING|node1\nJobId=1 JobState=RUNNING",
    "$\n|0|",
    "\x1b[2J\x1b[31m\r\x07",
    "'; rm -rf / #\"$(id)`id`",
    "\u202edetrevni\u2028\u0085\ufeff",
    "\N{GRINNING FACE}" * 40,
    "\udcff\udc80",  # bytes that are no UTF-8
    "x" * 1_000,
    "clearway:checkpoint=signal,last=99999999999999999999,took=-1e400",
    "clearway:\n" + "a=b," * 200,
    '"},{"job_id": 1',
    "<script>alert(1)</script>",
)
NUMBERS = ("0", "1", "2", "7", "-1", "65533", "65534", "65535", "2147483647", "4294967293", "4294967294", "4294967295")
LARGE = (*NUMBERS, "4294967296", "9223372036854775807", "18446744073709551614", "1e9", "0x7fffffff", "1.5")
TIMES = (
    *("now", "now+1", "now+99999999hours", "9999-12-31T23:59:59", "1970-01-01", "2038-01-19T03:14:08", "tomorrow"),
    *("teatime", "0001-01-01T00:00:00", "now-1hours", "now+4294967295", "2106-02-07T06:28:15", "noon"),
)
LIMITS = (
    *("0", "1", "UNLIMITED", "INFINITE", "-1", "1000000-0", "49710-06:28:15", "0:30", "999999:59:59", "4294967294"),
    *("24855-03:14:07", "71582788:00", "1-0", "365-23:59:59", "4294967295", "1-99:99:99", "NOT_SET", "Partition_Limit"),
)
SIZES = ("0", "1", "100", "1K", "2G", "1T", "999999T", "4294967295", "9223372036854775807", "100.5", "0.1G", "-1")
LISTS = ("node1", "node[1-2]", "node[1,3]", "node6,node1", "ALL", "node[01-03]", "nowhere", "node[1-", "node1,,node2")
ARRAYS = (
    *("0", "0-3", "1-9:2", "1,3,5-7%2", "0-1000", "1000", "5-5", "3,1,2", "0-10:3%1", "0-999%65535", "7,7", "1-0"),
    *("0-99999", "1,2,3,4,5,6,7,8,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,45,47,49,51,53,55,57,59,61,63"),
)
GRES = (
    *("gpu", "gpu:1", "gpu:a100:2", "gpu:a100", "gpu:0", "gpu:a100:1,gpu:v100:1", "gpu:4294967295", "gpu:65536"),
    *("none", "gpu:nothing:1", "gpu:-1", "gres:gpu:1", "craynetwork:1", "gpu:1K", "gpu:a100:1,gpu:a100:1"),
)
FEATURES = (
    *("fast", "fast&slow", "fast|slow", "[fast|slow]", "fast*2&slow*1", "(fast&slow)|odd", "fast&(slow|odd)", "nope"),
    *("[fast*2&slow*1]", "fast&fast", "fast*0", "fast*99999", "fast,slow", "fast:2", "!fast", "fast&"),
)
DEPENDENCIES = (
    *(
        "singleton",
        "afterok:{job}",
        "afterany:{job}:{job}",
        "after:{job}+10",
        "afternotok:{job}?singleton",
        "expand:{job}",
    ),
    *("aftercorr:{job}", "afterok:999999", "after:{job}+4294967295", "afterok:{job},afterany:{job}", "afterok:{job}_0"),
    *("afterburstbuffer:{job}", "afterok:{job}_[0-3]", "afterok:-1", "afterok:", "singleton,singleton"),
)
LICENSES = ("matlab", "matlab:3", "matlab:11", "matlab:1,comsol:2", "matlab|comsol", "matlab:0", "none", "matlab@x:1")
OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("--job-name", "--comment", "--account", "--wckey", "--mail-user", "--qos", "--mcs-label"), TEXTS),
    **dict.fromkeys(
        ("--chdir", "--output", "--export", "--container", "--network", "--bb", "--extra-node-info"), TEXTS
    ),
    **dict.fromkeys(("--nice", "--priority", "--cpus-per-task", "--mincpus", "--ntasks-per-core", "--tmp"), LARGE),
    **dict.fromkeys(("--ntasks", "--ntasks-per-node", "--ntasks-per-socket", "--core-spec", "--thread-spec"), LARGE),
    **dict.fromkeys(("--cores-per-socket", "--sockets-per-node", "--threads-per-core", "--spread-job"), NUMBERS),
    **dict.fromkeys(("--delay-boot", "--cpus-per-gpu", "--gpus", "--gpus-per-task", "--ntasks-per-gpu"), LARGE),
    **dict.fromkeys(("--time", "--time-min"), LIMITS),
    **dict.fromkeys(("--begin", "--deadline"), TIMES),
    **dict.fromkeys(("--mem", "--mem-per-cpu", "--mem-per-gpu"), SIZES),
    **dict.fromkeys(("--nodelist", "--exclude"), LISTS),
    **dict.fromkeys(("--gres", "--gpus-per-node", "--gpus-per-socket"), GRES),
    **dict.fromkeys(("--reservation",), ("", "nothing", "a,b", *TEXTS[4:9])),
    "--nodes": ("1", "1-3", "2-2", "6", "1-999999", "0", "3-1", "1,3", "1-6:2", "1k"),
    "--switches": ("1", "1@1:00", "2@4294967295", "4294967295@0", "0", "99@UNLIMITED"),
    "--constraint": FEATURES,
    "--prefer": FEATURES,
    "--dependency": DEPENDENCIES,
    "--licenses": LICENSES,
    "--array": ARRAYS,
    "--partition": ("batch", "urgent", "batch,urgent", "urgent,batch,batch", "nowhere", ""),
    "--exclusive": ("", "user", "mcs"),
    "--signal": ("USR1", "B:USR1@50", "R:TERM@65535", "B:10@1", "KILL@99999999", "@"),
    "--mail-type": ("ALL", "NONE", "END,FAIL,ARRAY_TASKS", "TIME_LIMIT_50"),
    "--distribution": ("block", "cyclic:block:fcyclic,Pack", "arbitrary", "plane=2"),
    "--hint": ("nomultithread", "compute_bound"),
    "--cpu-freq": ("low-high:performance", "4294967295", "1-2"),
    "--open-mode": ("append", "truncate"),
    "--profile": ("all", "none", "task"),
    "--contiguous": ("",),
    "--oversubscribe": ("",),
    "--overcommit": ("",),
    "--no-requeue": ("",),
    "--reboot": ("",),
    "--hold": ("",),
}
# What an owner may change of a job that is there.
CHANGES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Comment", "JobName", "WCKey", "Account", "MailUser", "StdOut", "ClusterFeatures"), TEXTS),
    **dict.fromkeys(("Nice", "NumCPUs", "NumNodes", "MinCPUsNode", "CPUsPerTask", "MinTmpDiskNode"), LARGE),
    **dict.fromkeys(("TimeLimit", "TimeMin"), LIMITS),
    **dict.fromkeys(("StartTime", "Deadline"), TIMES),
    **dict.fromkeys(("ReqNodeList", "ExcNodeList"), LISTS),
    "Features": FEATURES,
    "Dependency": DEPENDENCIES,
    "Licenses": LICENSES,
    "Gres": GRES,
    "ArrayTaskThrottle": NUMBERS,
    "Requeue": ("0", "1", "-1", "2"),
    "Partition": ("batch", "urgent", "batch,urgent"),
    "Priority": ("0", "1", "4294967295"),
    "ReservationName": ("nothing", ""),
    "SiteFactor": NUMBERS,
}
# pyslurm reads no cluster whose GPUs the accounting does not track.
GPUS = {"node1": {"a100": 4}, "node2": {"v100": 2}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    reason = missing_requirements()
    if reason:
        skip_or_fail(reason)
    conf = ("Licenses=matlab:10,comsol:4", "MaxArraySize=1001", "MaxJobCount=50000")
    with SlurmCluster(nodes=NODES, gpus={} if PYSLURM else GPUS, extra_conf=conf) as made:
        for node, features in {"node[1-3]": "fast", "node[4-5]": "slow", "node6": "fast,slow,odd"}.items():
            made.run("scontrol", "update", f"NodeName={node}", f"AvailableFeatures={features}")
            made.run("scontrol", "update", f"NodeName={node}", f"ActiveFeatures={features}")
        yield made


class Users:
    """Submit jobs and change them; most of what they try is refused."""

    def __init__(self, cluster: SlurmCluster, draw: Random) -> None:
        self._cluster = cluster
        self._draw = draw
        self.jobs: dict[str, list[str]] = {}  # what each accepted job was given

    def some_options(self) -> list[tuple[str, str]]:
        return [(name, self._draw.choice(OPTIONS[name])) for name in self._draw.sample(sorted(OPTIONS), 3)]

    def submit(self, *options: tuple[str, str]) -> None:
        given = [self._option(name, value) for name, value in options]
        fixed = ["--parsable", "--output=/dev/null", "--time=30", "--mem=10"]
        argv = ["sbatch", *fixed, *given, "--wrap=sleep 300"]
        done = self._cluster.run(*argv, user=self._draw.choice(("cwalice", "cwbob")), check=False)
        job_id = done.stdout.strip().partition(";")[0]
        if done.returncode == 0 and job_id.isdecimal():
            self.jobs[job_id] = given

    def change(self) -> None:
        job_id = self._draw.choice(sorted(self.jobs))
        name = self._draw.choice(sorted(CHANGES))
        change = f"{name}={self._text(self._draw.choice(CHANGES[name]))}"
        if self._cluster.run("scontrol", "update", f"JobId={job_id}", change, check=False).returncode == 0:
            self.jobs[job_id].append(change)

    def _option(self, name: str, value: str) -> str:
        return f"{name}={self._text(value)}" if value else name

    def _text(self, value: str) -> str:
        return value.format(job=self._draw.choice([*self.jobs, "1"])) if "{job}" in value else value


@pytest.mark.timeout(3600)  # some thousand commands, one after another: a minute each hundred on a busy machine
@pytest.mark.fault(
    "What a user wrote into a job made its record, or all records, unreadable.", found_by="hostile input"
)
def test_whatever_users_submit_every_record_is_read(cluster: SlurmCluster) -> None:
    """And an urgent job is planned for, beside all of them: one unreadable record once kept every job from it."""
    plain = cluster.sbatch("sleep 3500", "--nodelist=node6", "--exclusive", "--requeue", "--time=60", user="cwbob")
    cluster.wait_state(plain, "RUNNING")
    users = Users(cluster, Random(SEED))
    alone = [[(name, value)] for name, values in OPTIONS.items() for value in values]
    for options in (*alone, *(users.some_options() for _ in range(JOBS))):
        users.submit(*options)
        if len(users.jobs) % 3 == 1:
            users.change()
    assert len(users.jobs) > len(alone) / 4, "much of what is tried is refused, but too much was"
    seen = read(CliBackend(now=now, slurm_conf=str(cluster.conf), timeout_s=PATIENT_S))
    told = {item.ident: (item.why, users.jobs.get(item.ident)) for item in seen.skipped}
    assert told == {}
    is_planned(seen)
    if PYSLURM:  # it reads much itself, and what it cannot read is no more to be had
        seen = read(PyslurmBackend(now=now, slurm_conf=str(cluster.conf), timeout_s=PATIENT_S))
        assert not seen.unreadable
        is_planned(seen)


def read(backend: SlurmBackend) -> ClusterSnapshot:
    try:
        return backend.snapshot()
    finally:
        backend.close()


def is_planned(seen: ClusterSnapshot) -> None:
    """For one node there is a plan: the plain job's node at least can be had."""
    config = Config.model_validate({"candidates": {"min_runtime": 0}})
    context = PlanningContext(snapshot=seen, config=config, now=seen.taken_at, preempted={})
    decision = decide(imagined(1, 600.0, ("batch",), seen.taken_at), context, EvictionDP())
    assert isinstance(decision, Plan), decision


def now() -> datetime:
    return datetime.now(UTC)
