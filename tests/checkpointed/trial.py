"""One program with one checkpointer: started, saved, ended as at a requeue, started again; and what became of it."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.checkpointed.job import Job, awaited
from tests.checkpointed.program import Program

LIMIT_S = 120.0  # of one program with one checkpointer
ANSWER_S = 60.0  # of one request
TRY_S = 2
TRY_LIMIT_S = 200.0  # three runs, and one of them may hang
YES = "yes"  # the word of a trial that finds that a program can be saved
SAVES = 2
FEW = 6  # with fewer steps than this a program is asked by time
PLAIN = "this job runs without checkpoints: "
UNFIT = "this job cannot be saved as it is: "
REFUSED = "no checkpoint: "
ANEW = "starting anew"


@dataclass(frozen=True)
class Way:
    """A checkpointer in one version."""

    key: str
    version: str
    checkpointer: str
    tools: str = ""
    program: Path | None = None

    @classmethod
    def dmtcp(cls, folder: Path) -> Way:
        said = _output([str(folder / "dmtcp_launch"), "--version"])
        version = said.splitlines()[0].rpartition(" ")[2]
        return cls(f"DMTCP {version}", version, "dmtcp", tools=str(folder))

    @classmethod
    def criu(cls, program: Path) -> Way:
        said = re.search(r"Version: (\S+)", _output([str(program), "--version"]))
        version = said[1] if said else "unknown"
        return cls(f"CRIU {version}", version, "criu", program=program)


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout


@dataclass(frozen=True)
class Undisturbed:
    status: int
    seconds: float
    result: str
    output: str
    errors: str
    steps: list[str]

    @property
    def sound(self) -> bool:
        return self.result != "" and len(self.steps) > 0


@dataclass
class Outcome:
    kind: str = ""  # saved, refused before, refused at the request, wrong, hung, lost, ended before
    line: str = ""  # the launcher's
    saves: int = 0
    repeated: int = 0
    missing: int = 0
    differs: list[str] = field(default_factory=list)
    save_s: list[float] = field(default_factory=list)
    restart_s: list[float] = field(default_factory=list)
    image_mib: int = 0
    trial: str = ""
    errors: str = ""

    def line_for_people(self) -> str:
        shown = {name: value for name, value in dataclasses.asdict(self).items() if value and name != "kind"}
        return f"{self.kind}: {shown}"


def prepare(program: Program, job: Job) -> None:
    for name, text in program.files.items():
        (job.work / name).write_text(text)
    if program.build:
        subprocess.run(["sh", "-ec", program.build], cwd=job.work, check=True, timeout=120, capture_output=True)


def undisturbed(program: Program, folder: Path, launcher: Path) -> Undisturbed:
    job = Job(folder, launcher)
    prepare(program, job)
    began = time.monotonic()
    try:
        job.start(f"exec {program.command}", **program.env)
        awaited(job.ended, LIMIT_S)
        status = job.status() if job.ended() else -1
        seconds = time.monotonic() - began
    finally:
        job.end()
    done = Undisturbed(status, seconds, job.text("work/result"), job.text("out"), job.text("err"), job.steps())
    shutil.rmtree(folder, ignore_errors=True)
    return done


def command(program: Program, way: Way, launcher: Path, *more: str) -> str:
    words = [str(launcher / "clearway-run"), *more, "--checkpointer", way.checkpointer]
    if program.site_wide:
        return f"exec {' '.join(words)} --script $PWD/program --"
    return f"exec {' '.join(words)} -- {program.command}"


def tried(program: Program, way: Way, base: Undisturbed, folder: Path, launcher: Path) -> Outcome:
    outcome = Outcome(trial=_try(program, way, folder / "try", launcher))
    job = Job(folder / "job", launcher, way.tools, way.program)
    prepare(program, job)
    try:
        _live(program, way, base, job, outcome)
    finally:
        job.end()
    _judge(base, job, outcome)
    return outcome


def _try(program: Program, way: Way, folder: Path, launcher: Path) -> str:
    """The verdict of ``clearway-run --try``: "yes", or its line."""
    job = Job(folder, launcher, way.tools, way.program)
    prepare(program, job)
    try:
        job.start(command(program, way, launcher, "--try", str(TRY_S)), **program.env)
        if not awaited(job.ended, TRY_LIMIT_S):
            return "hung"
        if job.status() == 0:
            return YES
        verdicts = [line for line in job.said() if line.startswith(("no: ", "not known: "))]
        return _anywhere(verdicts[-1] if verdicts else job.text("err")[-200:], job)
    finally:
        job.end()


def _live(program: Program, way: Way, base: Undisturbed, job: Job, outcome: Outcome) -> None:
    end = time.monotonic() + LIMIT_S
    line = command(program, way, job.launcher)
    while True:
        before = len(job.steps())
        job.start(line, **program.env)
        if job.run:
            outcome.restart_s += _went_on(program, base, job, before, end)
        share = (job.run + 1) / (SAVES + 1)
        # Nobody asks a job that does not offer to be saved: not yet, or not any more.
        awaited(lambda: _looked_at(job) or job.ended(), min(20, end - time.monotonic()))
        if job.run >= SAVES or not _reached(program, base, job, share, end) or _plain(job):
            break
        if job.pairs().get("checkpoint") == "none":  # so nobody asks it
            break
        if not _saved(job, outcome, end):
            break
        job.requeue()
    if not awaited(job.ended, end - time.monotonic()):
        outcome.kind = "hung"
        return
    status = job.status()
    if status != base.status:
        outcome.differs.append(f"status {status} instead of {base.status}")


def _went_on(program: Program, base: Undisturbed, job: Job, before: int, end: float) -> list[float]:
    """How long it took to the next step; nothing where there was none, or where a step says nothing."""
    if _by_time(program, base):
        return []
    began = time.monotonic()
    if not awaited(lambda: len(job.steps()) > before or job.ended(), min(30, end - began)):
        return []
    return [round(time.monotonic() - began, 1)]


def _by_time(program: Program, base: Undisturbed) -> bool:
    return len(base.steps) < FEW or program.by_time


def _looked_at(job: Job) -> bool:
    return job.pairs().get("checkpoint") == "signal" or any(line.startswith((PLAIN, UNFIT)) for line in job.said())


def _plain(job: Job) -> bool:
    return any(line.startswith(PLAIN) for line in job.said())


def _reached(program: Program, base: Undisturbed, job: Job, share: float, end: float) -> bool:
    """Waits until the program is as far as this; false where it has ended before."""
    if _by_time(program, base):
        until = time.monotonic() + base.seconds / (SAVES + 1)
        awaited(lambda: job.ended() or time.monotonic() > until, min(30, end - time.monotonic()))
    else:
        wanted = len(base.steps) * share
        awaited(lambda: job.ended() or len(job.steps()) >= wanted, min(45, end - time.monotonic()))
    return not job.ended()


def _saved(job: Job, outcome: Outcome, end: float) -> bool:
    """Asks, and waits for the answer."""
    asked = time.monotonic()
    refusals = _refusals(job)
    since = int(time.time())
    job.ask()

    def says_saved() -> bool:
        pairs = job.pairs()
        return pairs.get("state") == "saved" and int(pairs.get("asked", "0")) >= since

    awaited(lambda: says_saved() or _refusals(job) > refusals or job.ended(), min(ANSWER_S, end - time.monotonic()))
    if not says_saved():
        return False
    outcome.saves += 1
    outcome.save_s.append(round(time.monotonic() - asked, 1))
    outcome.image_mib = max(outcome.image_mib, int(job.pairs().get("size_mib", "0")))
    return True


def _anywhere(text: str, job: Job) -> str:
    """Without folders, which are others each time."""
    for folder in (str(job.folder), str(job.launcher)):
        text = text.replace(folder, ".").replace(folder[1:], ".")  # CRIU leaves the first stroke out
    return text


def _refusals(job: Job) -> int:
    # One that ends while it is asked has not been refused: the trial was late.
    return sum(line.startswith(REFUSED) and not line.endswith(": the program has ended") for line in job.said())


def _judge(base: Undisturbed, job: Job, outcome: Outcome) -> None:
    said = job.said()
    told = [line for line in said if line.startswith((PLAIN, UNFIT, REFUSED, "cannot restart", "no checkpoint to"))
            or ANEW in line or " ended the program: " in line]  # fmt: skip
    outcome.line = " / ".join(_anywhere(line, job) for line in told)
    steps, should = Counter(job.steps()), Counter(base.steps)
    outcome.repeated, outcome.missing = (steps - should).total(), (should - steps).total()
    if job.text("work/result") != base.result:
        outcome.differs.append("result")
    if job.text("out") != base.output:
        outcome.differs.append("output")
    anew = any(ANEW in line for line in said)
    if outcome.kind == "hung":
        pass
    elif anew:
        outcome.kind = "lost"
    elif outcome.differs or outcome.missing:
        outcome.kind = "wrong"
    elif _plain(job):
        outcome.kind = "refused before"
    elif _refusals(job):
        outcome.kind = "refused at the request"
    elif outcome.saves:
        outcome.kind = "saved"
    elif any(line.startswith(UNFIT) for line in said):
        outcome.kind = "refused before"
    else:
        outcome.kind = "ended before"
    if outcome.kind in {"hung", "lost", "wrong", "ended before"}:
        outcome.errors = _anywhere(job.text("err"), job)[-1500:]
