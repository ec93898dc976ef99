"""A stand-in for Slurm's commands that answers for a large cluster, and the daemon's cycles on it.

The commands print what is written in files beforehand. A cycle's time is the processor time of the daemon's process,
which neither waits for the stand-in nor for others on the machine. Every node has a job, or as many of them as there
are running jobs; the records have the length of real ones.
"""

from __future__ import annotations

import json
import math
import re
import stat
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from clearway import bootstrap
from clearway.config.configuration import Config
from clearway.model.clock import SystemClock
from clearway.service.loop import undisturbed
from clearway.slurm import parse
from clearway.slurm.cli import CliBackend
from clearway.telemetry.log import configure_logging

URGENT_NODES = 64
PAUSES = 5  # between cycles, for each that is measured
# As the format of each call asks: the answer of all jobs is made once for a token, and written anew with a change.
SQUEUE = r"""#!/bin/sh
cd {folder}
case "$*" in
    --version) echo "slurm 24.11.5"; exit ;;
    --helpFormat) cat columns.txt; exit ;;
esac
format=${{SQUEUE_FORMAT2:-$SQUEUE_FORMAT}}
token=${{format#*|}}
token=${{token%%|*}}
file=jobs.txt
[ -n "$SQUEUE_FORMAT2" ] || file=excluded.txt
case "$*" in
    *--jobs=*)
        ids=${{*##*--jobs=}}
        ids=$(echo "$ids" | sed 's/,/\\|/g')
        exec sed -n "/^\($ids\)|/s/@/$token/gp" $file ;;
esac
[ -n "$SQUEUE_FORMAT2" ] || exec sed "s/@/$token/g" $file
[ -e answer.$token ] || sed "s/@/$token/g" $file > answer.$token
exec cat answer.$token
"""
SCONTROL = r"""#!/bin/sh
cd {folder}
case "$*" in
    *"show node"*) exec cat nodes.txt ;;
    *"show config"*) echo "SLURM_VERSION           = 24.11.5"; echo "PreemptType             = preempt/none" ;;
    *"show partition"*) cat partitions.txt ;;
    *"show reservation"*) echo "No reservations in the system" ;;
esac
"""
PARTITION = "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Nodes=n[1-{nodes}] MaxNodes=UNLIMITED \
MaxTime=UNLIMITED MinNodes=0 PriorityJobFactor=1 PriorityTier={tier} State=UP TotalNodes={nodes} QoS=N/A\n"
NODE = (
    "NodeName=n{number} Arch=x86_64 CoresPerSocket=64  CPUAlloc={used} CPUEfctv=128 CPUTot=128 CPULoad={load} "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) GresDrain=N/A NodeAddr=n{number} "
    "NodeHostName=n{number} Port=0 Version=24.11.5 OS=Linux 6.1.0-26-amd64 #1 SMP  "
    "RealMemory=256000 AllocMem={memory} FreeMem={free} "
    "Sockets=2 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A "
    "Partitions=batch,urgent  BootTime=2026-03-02T12:00:01 SlurmdStartTime=2026-03-02T12:00:01 "
    "LastBusyTime=2026-03-02T12:00:01 ResumeAfterTime=None CfgTRES=cpu=128,mem=256000M,billing=128 "
    "AllocTRES=cpu={used},mem={memory}M CurrentWatts=0 AveWatts=0 \n"
)
NOTHING = dict.fromkeys(parse.JOB_COLUMNS, "N/A") | {
    "Reservation": "(null)", "Dependency": "(null)", "Feature": "(null)", "Licenses": "(null)", "ReqNodes": "",
    "Contiguous": "0", "ReqSwitch": "0", "Requeue": "1", "RestartCnt": "0", "BatchFlag": "1", "OverSubscribe": "NO",
    "NumTasks": "1", "cpus-per-task": "1", "MinCpus": "1", "QOS": "normal", "TimeLimit": "1-00:00:00",
    "Comment": "(null)", "Reason": "None", "Nice": "0",
}  # fmt: skip


class LargeSlurm:
    """The stand-in's files in a folder; ``change`` changes records of each kind."""

    def __init__(self, folder: Path, nodes: int, running: int, pending: int) -> None:
        self.folder = folder
        self.urgent: list[str] = []
        self._turn = 0
        self._nodes = [self._node(number, busy=number <= running) for number in range(1, nodes + 1)]
        wide = max(1, nodes // max(running, 1))
        self._running = [self._runs(index, 1 + index * wide % nodes, wide) for index in range(running)]
        self._pending = [self._waits(index) for index in range(pending)]
        (folder / "columns.txt").write_text(" ".join(parse.JOB_COLUMNS))
        tiers = {"batch": 1, "urgent": 1}
        text = "".join(PARTITION.format(name=name, tier=tier, nodes=nodes) for name, tier in tiers.items())
        (folder / "partitions.txt").write_text(text)
        jobs = [*self._running, *self._pending]
        (folder / "excluded.txt").write_text("".join(f"{job['JobID']}|@||@$\n" for job in jobs))
        for name, script in {"squeue": SQUEUE, "scontrol": SCONTROL, "scancel": SCONTROL, "sacctmgr": SCONTROL}.items():
            file = folder / name
            file.write_text(script.format(folder=folder))
            file.chmod(file.stat().st_mode | stat.S_IXUSR)
        self.write()

    def write(self) -> None:
        rows = ("|@|".join(row.values()) + "|@$\n" for row in (*self._running, *self._pending))
        jobs = "".join((*self.urgent, *rows))
        (self.folder / "jobs.txt").write_text(jobs)
        for answer in self.folder.glob("answer.*"):
            answer.write_text(jobs.replace("@", answer.suffix[1:]))
        (self.folder / "nodes.txt").write_text("".join(self._nodes))

    def change(self, records: int) -> None:
        """So many of each kind, every time others; what changes is of no weight for a decision."""
        for _ in range(records):
            self._turn += 1
            if self._running:
                self._running[self._turn % len(self._running)]["Comment"] = (
                    f"clearway:checkpoint=signal,size_mib={self._turn}"
                )
            if self._pending:
                self._pending[self._turn % len(self._pending)]["PriorityLong"] = str(self._turn)
            at = self._turn % len(self._nodes)
            self._nodes[at] = re.sub("CPULoad=[0-9.]+", f"CPULoad={self._turn}", self._nodes[at])
        self.write()

    def age(self) -> None:
        """As when Slurm has worked out all priorities again."""
        for number, row in enumerate(self._pending):
            row["PriorityLong"] = str(int(row["PriorityLong"]) + 1 + number % 3)
        self.write()

    def submit_urgent(self) -> None:
        row = self._waits(len(self._pending) + len(self.urgent)) | {"Partition": "urgent", "UserName": "ursula"}
        row |= {"NumNodes": str(URGENT_NODES), "NumCPUs": str(128 * URGENT_NODES), "NumTasks": str(URGENT_NODES)}
        row |= {"tres-alloc": f"cpu={128 * URGENT_NODES},mem=1000M,node={URGENT_NODES},billing=64"}
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        row |= {"SubmitTime": now, "EligibleTime": now}
        self.urgent.append("|@|".join(row.values()) + "|@$\n")
        self.write()

    @staticmethod
    def _node(number: int, *, busy: bool) -> str:
        used, memory, state = (128, 128_000, "ALLOCATED") if busy else (0, 0, "IDLE")
        return NODE.format(number=number, used=used, load=0.5 + number % 100, memory=memory, free=number, state=state)

    @staticmethod
    def _runs(index: int, first: int, wide: int) -> dict[str, str]:
        started = f"2026-03-{1 + index % 28:02}T{index % 24:02}:{index % 60:02}:00"
        job_id = str(1_000_000 + index)
        return NOTHING | {
            "JobID": job_id, "ArrayJobID": job_id, "UserName": f"user{index % 211}", "Account": f"account{index % 37}",
            "Partition": "batch", "State": "RUNNING", "NumNodes": str(wide), "NumCPUs": str(128 * wide),
            "NodeList": f"n{first}" if wide == 1 else f"n[{first}-{first + wide - 1}]", "StartTime": started,
            "SubmitTime": started, "EligibleTime": started, "Name": f"solver-{index % 977}", "PriorityLong": "100",
            "tres-alloc": f"cpu={128 * wide},mem={125 * wide}G,node={wide},billing={128 * wide}",
            "TimeLimit": "UNLIMITED",
            "Comment": "clearway:checkpoint=signal,size_mib=4000" if index % 4 else "(null)",
        }  # fmt: skip

    @staticmethod
    def _waits(index: int) -> dict[str, str]:
        nodes, job_id = 1 + index % 64, str(2_000_000 + index)
        submitted = f"2026-03-{1 + index % 28:02}T{index % 24:02}:{index % 60:02}:{index % 59:02}"
        return NOTHING | {
            "JobID": job_id, "ArrayJobID": job_id, "UserName": f"user{index % 211}", "Account": f"account{index % 37}",
            "Partition": "batch", "State": "PENDING", "Reason": "Priority", "NumNodes": str(nodes), "NodeList": "",
            "NumCPUs": str(128 * nodes), "SubmitTime": submitted, "EligibleTime": submitted, "PriorityLong": "100",
            "Name": f"solver-{index % 977}",
            "tres-alloc": f"cpu={128 * nodes},mem={125 * nodes}G,node={nodes},billing=1",
        }  # fmt: skip


class Daemon:
    """The whole loop on the stand-in, with metrics and log, without REST: a process of its own, whose memory counts."""

    def __init__(self, slurm: LargeSlurm, *words: str) -> None:
        self.slurm = slurm
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.large_slurm", str(slurm.folder), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def cycle(self) -> Cycled:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("cycle\n")
        self._process.stdin.flush()
        return Cycled(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


@dataclass(frozen=True)
class Cycled:
    """What one cycle took: seconds of the daemon's processor time, and its memory at most so far."""

    seconds: float
    memory_mib: float
    jobs: int
    nodes: int
    under_way: int


def run_daemon(folder: Path) -> None:
    """A cycle for each line that is read."""
    clock = SystemClock()
    config = Config.model_validate(
        {
            "daemon": {"mode": "automatic"},
            "store": {"url": f"sqlite:///{folder}/store.sqlite"},
            "preemptors": [{"partition": ["urgent"], "max_delay": "10m"}],
            "planning": {"time_per_cycle": 60},
        }
    )
    configure_logging("text", quiet=True)
    backend = CliBackend(now=clock.now, bin_dir=str(folder), timeout_s=120)
    loop = bootstrap.build(config, origin="benchmark", backend=backend, clock=clock).loop
    loop.settle()
    for _ in sys.stdin:
        with undisturbed():
            begin = time.process_time()
            report = loop.cycle()
            spent = time.process_time() - begin
        loop.settle()  # as ``Loop.run`` does, between two cycles
        for _ in range(PAUSES):
            loop.look_ahead(math.inf)
        size = (len(report.snapshot.jobs), len(report.snapshot.nodes), len(report.open_evictions))
        print(json.dumps(asdict(Cycled(spent, _most_mib(), *size))), flush=True)


def _most_mib() -> float:
    """Memory of this process at most so far; what getrusage tells begins with that of the process that started it."""
    (told,) = re.findall(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(told) / 1024


def split_s(folder: Path) -> float:
    """The yardstick: seconds of processor time for reading the same text and splitting it, nothing else."""
    *_, answer = folder.glob("answer.*")
    begin = time.process_time()
    cells = sum(line.count("|") for line in answer.read_bytes().decode().split("$\n"))
    lines = (folder / "nodes.txt").read_bytes().decode().split("\n")
    spent = time.process_time() - begin
    assert cells
    assert lines
    return spent


if __name__ == "__main__":
    run_daemon(Path(sys.argv[1]))
