"""Records what a real Slurm prints, for the table tests in tests/unit/slurm. To be run for a new release.

    .venv/bin/python -m tests.slurm.record                             Slurm 22.05 of Debian 12
    tests/slurm/chroot/run trixie python -m tests.slurm.record         Slurm 24.11
    tests/slurm/chroot/run forky python -m tests.slurm.record          Slurm 26.05, with pyslurm

It starts a cluster, puts a job into every state that one machine can produce, and writes the answers to
tests/unit/slurm/recorded/<release>/, one for each command that a reader of Clearway's reads. Job names say what each
job is there for. What differs from one recording to the next (times, load, the machine) is made the same.
``tests/slurm/test_releases.py`` compares the keys of live answers with the recorded ones.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clearway.model.errors import SlurmRefusedError
from clearway.slurm import parse
from clearway.slurm.process import Commands
from clearway.slurm.pyslurm import WorkerProcess
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import slurm_version

RECORDED = Path(__file__).parent.parent / "unit" / "slurm" / "recorded"
TOKEN = "recorded"
BEGAN = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # when every recording begins, by the times in it
_TIME = re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d")
_OF_THE_MACHINE = re.compile(r"\b(BootTime|CPULoad|FreeMem|OS|Port|NodeHostName)=(?:\S+(?: (?![A-Z]\w*=)\S+)*)")
_CONFIG_LINES = re.compile(r"^(?:SLURM_VERSION|PreemptType|PrivateData) .*\n", re.MULTILINE)
_EPOCH_KEYS = re.compile(r"(?:_time|^last_busy)$")
FORGED = 'x\nJobId=9 JobState=RUNNING UserId=root(0) NodeList=node8 |guess|0|"},{"job_id": 9'
DEAF = "trap '' TERM; while :; do sleep 1; done"

HET = """#!/bin/sh
#SBATCH --job-name=het -n1 -w node1 --mem=100 -t 1:00:00
#SBATCH hetjob
#SBATCH -N2 -w node[2-3] --ntasks-per-node=1 --mem=100 -t 1:00:00
sleep 3600
"""


def _job(cluster: SlurmCluster, name: str, *args: str, script: str = "sleep 3600", user: str = "cwalice") -> str:
    small = [] if any(arg.startswith(("--mem", "--exclusive")) for arg in args) else ["--mem=100"]
    limit = [] if any(arg.startswith("-t") for arg in args) else ["-t", "1:00:00"]
    return cluster.sbatch(script, "-o", "/dev/null", f"--job-name={name}", *small, *limit, *args, user=user)


def _raw_name(cluster: SlurmCluster) -> str:
    """A job whose name is not UTF-8; only bytes can say that."""
    argv: list[str | bytes] = ["sbatch", "--parsable", "-o", "/dev/null", "-t", "10", "--mem=100"]
    argv += [b"--job-name=raw\xff\xfe\x01", "--wrap", "sleep 3600"]
    done = subprocess.run(argv, env=cluster.env, cwd=cluster.work, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _fill(cluster: SlurmCluster) -> None:
    """Nodes 1-3: shared, 2 and 3 drained; 4: maintenance; 5-6: one whole job; 7: reserved; 8: down."""
    run = cluster.run
    run("scontrol", "update", "NodeName=node1", "AvailableFeatures=big,fast", "ActiveFeatures=big")
    array = _job(cluster, "array", "--array=1-4%2", "-n1", "-w", "node1", "-x", "node[2,4-5]")
    cluster.wait_for(lambda: len(cluster.records("job", array)) > 1, 20, "array tasks")
    _job(cluster, "all-started", "--array=7-8", "-n1", "-w", "node1")
    multi = _job(
        cluster, "multi", "-N2", "--exclusive", "--mem=0", "-w", "node[5-6]", "--contiguous", "-t", "2-3:04:05"
    )
    cluster.wait_state(multi, "RUNNING")
    _job(cluster, FORGED, "-n1", "-w", "node2", f"--comment={FORGED}")
    _raw_name(cluster)
    _job(cluster, "no-requeue", "-n1", "-w", "node2", "--no-requeue", "--licenses=matlab:2", user="cwbob")
    suspended = _job(cluster, "suspended", "-n1", "-w", "node3")
    cluster.wait_state(suspended, "RUNNING")
    run("scontrol", "suspend", suspended)
    het = cluster.sbatch(HET, "-o", "/dev/null", user="cwbob")
    cluster.wait_state(het, "RUNNING", timeout=90)

    waiting = ["-N8", "--exclusive"]
    _job(cluster, "pending", "-N2-4", "-c2", "--mem-per-cpu=500", "-p", "batch,urgent", "-x", "node[1-3]", "-H")
    _job(cluster, "dependent", *waiting, "-d", f"afterok:{multi}", "--comment=clearway:max_delay=10m")
    _job(cluster, "big-array", "--array=1-800:3%5", "-H")
    _job(cluster, "features", "-N1", "-H", "-C", "big", "-t", "UNLIMITED")
    requeued = _job(cluster, "requeued", "-n1", "-w", "node4")
    held = _job(cluster, "requeue-hold", "-n1", "-w", "node4")
    special = _job(cluster, "special-exit", "-n1", "-w", "node4")
    for job_id in (requeued, held, special):
        cluster.wait_state(job_id, "RUNNING")
    run("scontrol", "requeue", requeued)
    run("scontrol", "requeuehold", held)
    run("scontrol", "requeuehold", "State=SpecialExit", special)
    for job_id in (requeued, held, special):
        cluster.wait_state(job_id, "PENDING", "REQUEUE_HOLD", "SPECIAL_EXIT")
    cancelled = _job(cluster, "cancelled", "-n1")
    cluster.wait_state(cancelled, "RUNNING")
    run("scancel", cancelled)
    cluster.wait_state(cancelled, "CANCELLED")

    resv = ["StartTime=now", "Duration=60", "Flags=IGNORE_JOBS,FLEX", "Nodes=node7", "Users=root,cwbob"]
    run("scontrol", "create", "reservation", "ReservationName=clearway-1", *resv)
    maint = ["StartTime=now", "Duration=60", "Flags=MAINT,IGNORE_JOBS", "Nodes=node4", "Users=root"]
    run("scontrol", "create", "reservation", "ReservationName=maintenance", *maint)
    attached = _job(cluster, "attached", *waiting, "-H", user="cwbob")
    run("scontrol", "update", f"JobId={attached}", "ReservationName=clearway-1")
    cluster.stop_node("node8")  # else it would register again at once
    run("scontrol", "update", "NodeName=node8", "State=DOWN", "Reason=no light")
    reason = "job x State=IDLE\nNodeName=node1 State=DOWN CPUTot=1 RealMemory=1"
    run("scontrol", "update", "NodeName=node3", "State=DRAIN", f"Reason={reason}")
    run("scontrol", "update", "NodeName=node2", "State=DRAIN", "Reason=clearway:compaction")
    cluster.wait_for(lambda: "RESERVED" in cluster.records("node", "node7")[0]["State"], 30, "node7 reserved")

    # Those that do not stay as they are come last.
    killed = _job(cluster, "completing", "-n1", "-w", "node1", script=DEAF)
    leaving = _job(cluster, "requeue-completing", "-n1", "-w", "node1", script=DEAF)
    for job_id in (killed, leaving):
        cluster.wait_state(job_id, "RUNNING")
    # Before the others: nothing starts on a node where a job is completing.
    _job(cluster, "slow-start", "-n1", "-w", "node1")
    cluster.wait_for(lambda: _word(cluster, "slow-start") == "CONFIGURING", 20, "a configuring job")
    run("scancel", killed)
    run("scontrol", "requeue", leaving)


def _word(cluster: SlurmCluster, name: str) -> str:
    listed = cluster.run("squeue", "-h", "-t", "all", f"--name={name}", "-o", "%T").stdout.split()
    return listed[0] if listed else ""


def _plain(text: str, began: datetime) -> str:
    """The same text of a machine without load, at a time that every recording has."""

    def shifted(found: re.Match[str]) -> str:
        at = datetime.fromisoformat(found[0]).replace(tzinfo=UTC)
        return (at - began + BEGAN).strftime("%Y-%m-%dT%H:%M:%S")

    return _OF_THE_MACHINE.sub(r"\1=0", _TIME.sub(shifted, text))


def _plain_record(record: Any, began: datetime) -> Any:
    """The same for what pyslurm's worker hands over: numbers of seconds and texts."""
    if isinstance(record, dict):
        shift = int((BEGAN - began).total_seconds())
        return {
            key: value + shift if _EPOCH_KEYS.search(key) and isinstance(value, int) else _plain_record(value, began)
            for key, value in record.items()
        }
    if isinstance(record, list):
        return [_plain_record(each, began) for each in record]
    return record


def _write(commands: Commands, folder: Path, began: datetime) -> None:
    def record(name: str, argv: Sequence[str], env: dict[str, str] | None = None) -> str:
        try:
            answer = commands.run(argv, env=env)
        except SlurmRefusedError:
            if name != "columns.txt":
                raise
            answer = ""  # a release that does not tell
        kept = "".join(_CONFIG_LINES.findall(answer)) if name == "config.txt" else _plain(answer, began)
        (folder / name).write_text(kept, errors="replace", newline="")
        return answer

    columns = parse.job_columns(record("columns.txt", ["squeue", "--helpFormat"]))
    squeue = ["squeue", "--all", "--local", "--noheader"]
    jobs = {"SQUEUE_FORMAT2": parse.job_format(TOKEN, columns)}
    record("jobs.txt", [*squeue, "--noconvert", "--states=all"], jobs)
    record("excluded.txt", [*squeue, "--states=PENDING"], {"SQUEUE_FORMAT": parse.excluded_nodes_format(TOKEN)})
    record("nodes.txt", ["scontrol", "-o", "-d", "show", "node"])
    record("reservations.txt", ["scontrol", "-o", "show", "reservation"])
    record("partitions.txt", ["scontrol", "-o", "show", "partition"])
    record("config.txt", ["scontrol", "show", "config"])
    record("topology.txt", ["scontrol", "show", "topology"])


def _write_pyslurm(conf: Path, folder: Path, began: datetime) -> None:
    """What pyslurm's worker hands over of the very same cluster."""
    worker = WorkerProcess(slurm_conf=str(conf), timeout_s=60.0)
    try:
        answer = _plain_record(worker.call("snapshot"), began)
    finally:
        worker.close()
    lines = [json.dumps({kind: each}, sort_keys=True) for kind, each_of in answer.items() for each in each_of or []]
    (folder / "pyslurm.jsonl").write_text("\n".join(lines) + "\n")


def main() -> None:
    release = "{}.{:02d}".format(*slurm_version())
    folder = RECORDED / release
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        prolog = Path(scratch) / "prolog"
        prolog.write_text('#!/bin/sh\n[ "$SLURM_JOB_NAME" != slow-start ] || sleep 10\n')
        prolog.chmod(0o755)
        Path(scratch).chmod(0o755)
        extra = ["Licenses=matlab:5", "SchedulerParameters=bf_interval=1", f"PrologSlurmctld={prolog}"]
        leaves = {"leaf1": "node[1-4]", "leaf2": "node[5-8]"}
        # Slurm's commands print the machine's local time.
        began = datetime.now().replace(microsecond=0, tzinfo=UTC)  # noqa: DTZ005
        with SlurmCluster(cpus=8, extra_conf=extra, kill_wait_s=20, switches=leaves) as cluster:
            _fill(cluster)
            _write(Commands(slurm_conf=str(cluster.conf)), folder, began)
            if importlib.util.find_spec("pyslurm"):
                _write_pyslurm(cluster.conf, folder, began)
    sys.stdout.write(f"recorded Slurm {release} in {folder}\n")


if __name__ == "__main__":
    main()
