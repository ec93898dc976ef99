"""Slurm's commands on a test cluster, as root or one of its users, and what they answer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from clearway.slurm.parse.nodes import reason_in_force
from tests.slurm.machine import SLACK, SYSTEM_PATH, ClusterError, call

T = TypeVar("T")

BEGUN = ">begun.$SLURM_JOB_ID"  # in a script that ``wait_begun`` waits for; jobs start in ``work``

# Set for up to a second between State=RESUME or UNDRAIN and the node's next answer: "*" in 22.05, a word in 26.05.
NO_ANSWER_YET = re.compile(r"\*|\+NOT_RESPONDING\b")


def parse_record(line: str) -> dict[str, str]:
    """One ``scontrol -o`` line as a dictionary; values may hold spaces (Comment=, Command=)."""
    parts = re.split(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=", line.strip())
    return {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}


class SlurmClient:
    """What tests use of a cluster, whose files are under ``root``."""

    def __init__(self) -> None:
        self.root = Path()
        self._waiting: dict[str, float] = {}  # requeued jobs, and since when they were seen to wait

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def work(self) -> Path:
        """A folder that every test user may write to; jobs start in it and leave slurm-<id>.out there."""
        return self.root / "work"

    def folder_of(self, user: str) -> Path:
        """A new folder of this user's own; pytest's are for root alone, and are made so again by its next run."""
        folder = Path(tempfile.mkdtemp(dir=self.work))
        shutil.chown(folder, user)
        return folder

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client of this cluster, without what an outer Slurm or job has set."""
        foreign = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
        ours = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return ours | {"SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}

    def run(
        self, *argv: str, user: str | None = None, check: bool = True, timeout: float = 30, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command, as ``user`` if given. With ``check`` a failure raises ClusterError."""
        env, command = self.env, list(argv)
        if user:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv]
            env |= {"HOME": str(self.work), "USER": user, "LOGNAME": user, "PATH": SYSTEM_PATH}
        return call(command, timeout=timeout, check=check, env=env, cwd=self.work, stdin=stdin)

    def sbatch(self, script: str | Path, *args: str, user: str | None = None) -> str:
        """Submit a file (Path), a whole script ("#!...") or a command line; returns the job id."""
        if isinstance(script, Path):
            text = script.read_text()
        else:
            text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        submitted = self.run("sbatch", "--parsable", *args, user=user, stdin=text)
        return submitted.stdout.strip().partition(";")[0]

    def records(self, what: str, *names: str) -> list[dict[str, str]]:
        """``scontrol -o show WHAT`` (job, node, res ...) as dictionaries; none is an empty list.

        A job whose name or Comment breaks the line is shown in pieces. Only the piece with its JobState and its Nice is
        told: a name may say ``JobState=`` itself.
        """
        shown = self.run("scontrol", "-o", "show", what, *names, check=not names)
        found = [parse_record(line) for line in shown.stdout.splitlines() if re.match(r"[A-Z]\w+=", line)]
        return [record for record in found if record.keys() >= {"JobState", "Nice"}] if what == "job" else found

    def node_state(self, name: str) -> str:
        """A node's State, whether or not it has answered since it was brought back."""
        (record,) = self.records("node", name)
        return NO_ANSWER_YET.sub("", record["State"])

    def node_reasons(self) -> dict[str, str]:
        """Of the nodes that have one: their Reason without who and when. One that says that it is over is none."""
        found = {node["NodeName"]: node.get("Reason", "").partition(" [")[0] for node in self.records("node")}
        return {name: reason for name, reason in found.items() if reason_in_force(reason)}

    def job(self, job_id: str) -> dict[str, str]:
        """One job as ``scontrol show job`` prints it, or {} once Slurm has forgotten it."""
        found = self.records("job", job_id)  # all tasks where the id is also the array's
        return next((record for record in found if record["JobId"] == job_id), {})

    def state(self, job_id: str) -> str:
        """The job's state, "" once Slurm has forgotten it. From squeue, which a job's own texts cannot disturb."""
        listed = self.run("squeue", "-h", "--states=all", f"--jobs={job_id}", "-o", "%A %T", check=False)
        states = dict(line.split() for line in listed.stdout.splitlines())
        return states.get(job_id, "")  # of an array's last task the id is also the array's: squeue lists all of them

    def wait_state(self, job_id: str, *states: str, timeout: float = 30) -> str:
        """Wait until the job is in one of these states."""
        what = f"job {job_id} in state {' or '.join(states)}"
        return self.wait_for(lambda: (s := self.state(job_id)) in states and s, timeout, what)

    def wait_begun(self, job_id: str) -> None:
        """Wait until the script's ``BEGUN`` has run: Slurm says RUNNING before the script has set its traps."""
        self.wait_for((self.work / f"begun.{job_id}").exists, 30, f"the script of job {job_id} to begin")

    def lift_waits(self) -> None:
        """Let requeued jobs start that have waited for 1.5 s: not Slurm's two minutes, but see decision 0013."""
        now = time.monotonic()
        listed = self.run("squeue", "-h", "-t", "PENDING", "-o", "%A %r").stdout.splitlines()
        waiting = {line.split()[0] for line in listed if line.endswith("BeginTime")}
        self._waiting = {job: self._waiting.get(job, now) for job in waiting}
        rested = sorted(job for job, since in self._waiting.items() if now - since >= 1.5)
        if rested:
            self.run("scontrol", "update", f"JobId={','.join(rested)}", "StartTime=now", check=False)

    def set_admin_level(self, user: str, level: str) -> None:
        """Give a user these rights, and wait until the controller has heard of it from slurmdbd."""
        self.run("sacctmgr", "-i", "modify", "user", user, "set", f"AdminLevel={level}")
        show = ("scontrol", "-o", "show", "assoc_mgr", f"users={user}", "flags=users")
        self.wait_for(lambda: f"AdminLevel={level}" in self.run(*show).stdout, 30, f"{user} to be {level}")

    def scontrol_reservations(self) -> list[dict[str, str]]:
        """All Slurm reservations."""
        return self.records("res")

    def wait_for(self, predicate: Callable[[], T | bool | None], timeout: float = 30, what: str = "") -> T:
        """Poll until the predicate is true and return its value; ClusterError says what stayed false."""
        deadline = time.monotonic() + timeout * SLACK
        while not (value := predicate()):
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {timeout * SLACK:g} s: {what or predicate}")
            time.sleep(0.05)
        return value  # type: ignore[return-value]  # what is left after `not` is a T, or True where T is bool
