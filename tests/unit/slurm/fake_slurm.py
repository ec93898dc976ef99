"""A stand-in for Slurm's commands that keeps one job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from clearway.model.cluster import Job
from clearway.model.errors import SlurmRefusedError
from clearway.slurm import parse
from clearway.slurm.cli import CliBackend
from clearway.slurm.process import Take

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
NODE = "NodeName=n1 CPUAlloc=0 CPUTot=4 RealMemory=4000 State=IDLE Partitions=batch"


@dataclass
class FakeSlurm:
    """Answers squeue from ``rows`` and scontrol from ``shown``; keeps every other command, or refuses it."""

    rows: list[dict[str, str]] = field(default_factory=list)
    shown: dict[str, str] = field(
        default_factory=lambda: {
            "node": NODE,
            "reservation": "No reservations in the system",
            "config": "SLURM_VERSION           = 26.05.5\nPreemptType             = preempt/none\n",
            "partition": "PartitionName=batch Nodes=n[1-4] PriorityJobFactor=1 PriorityTier=7 State=UP\n",
        }
    )
    refusal: str | None = None
    reads: list[Sequence[str]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    excluded: str = "n[3-4]"
    columns: Sequence[str] = parse.JOB_COLUMNS

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> str:
        if "--helpFormat" in argv:
            return " ".join(self.columns)
        if argv[0] == "squeue":
            self.reads.append(argv)
            return self._squeue(argv, env or {})
        if argv[0] == "scontrol" and "show" in argv[1:4]:
            self.reads.append(argv)
            return self.shown[argv[argv.index("show") + 1]]
        raise AssertionError(f"{argv} changes Slurm, and the fence was not asked")

    def run_in_pieces(self, argv: Sequence[str], take: Take, *, env: Mapping[str, str] | None = None) -> None:
        text = self.run(argv, env=env)
        for at in range(0, len(text), 1000):
            take(text[at : at + 1000])

    def change(self, argv: Sequence[str]) -> str:
        self.changes.append(" ".join(word for word in argv if word != "--oneliner"))
        if self.refusal:
            raise SlurmRefusedError(f"{argv[0]}: {self.refusal}")
        return ""

    def _squeue(self, argv: Sequence[str], env: Mapping[str, str]) -> str:
        rows = self.rows if "--states=all" in argv else [row for row in self.rows if row["State"] != "CANCELLED"]
        if "SQUEUE_FORMAT" in env:
            token = env["SQUEUE_FORMAT"].split("|")[1]
            return "".join(f"{row['JobID']}|{token}|{self.excluded}|{token}$\n" for row in rows)
        token = env["SQUEUE_FORMAT2"].split("|")[1]
        return "".join(
            f"|{token}|".join(row[column] for column in parse.job_columns(" ".join(self.columns))) + f"|{token}$\n"
            for row in rows
        )


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def seen(backend: CliBackend, job_id: str = "101") -> Job:
    job = backend.job(job_id)
    assert job is not None
    return job


def becomes(slurm: FakeSlurm, **changes: str) -> None:
    slurm.rows[0].update(changes)


WAITING = {"State": "PENDING", "NodeList": "", "Reason": "Priority", "StartTime": "N/A"}
REQUEUED = WAITING | {"RestartCnt": "1", "Reason": "BeginTime", "StartTime": "2026-11-21T12:00:00"}
LEAVING = {"State": "COMPLETING", "RestartCnt": "1", "StartTime": "2026-11-21T10:00:00"}
ENDED = {"State": "CANCELLED", "NodeList": "(null)"}
NEXT_RUN = {"RestartCnt": "1", "StartTime": "2026-11-21T10:00:00"}
