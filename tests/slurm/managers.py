"""Workflow managers from PyPI, each started as its users start it: one task that runs in one Slurm job, and its result.

The driver of a tool runs outside Slurm as an ordinary user and waits for its job. It prints "result: right" once the
tool hands it the task's result; where the tool says that the task failed, it ends with another status than 0. It looks
more often than by default, so that it sees every state.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.machine import SYSTEM_PATH

USER = "cwalice"

# What docs/howto/workflow-managers.md says to set, by tool.
CLAIM = "clearway:checkpoint=signal,signal=USR2,to=steps,requeues=self"
SETTINGS = {
    "submitit": f'slurm_additional_parameters={{"comment": "{CLAIM}"}}',
    "dask": 'dask.config.set({"distributed.deploy.lost-worker-timeout": "30 days"})',
    "parsl": "retries=3",
    "reframe": '"slurm_job_cancel_reasons": []',
}
# The task: notes in which job it runs, and ends when the test lets it.
PROGRAM = """\
#!/bin/sh
echo "$SLURM_JOB_ID" >>"$(dirname "$0")/runs"
until [ -e "$(dirname "$0")/go" ]; do sleep 0.2; done
echo right
"""
TASK = """\
def task(program):
    import subprocess
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout.strip()
"""
SNAKEFILE = """\
rule all:
    input: "said.txt"
rule task:
    output: "result.txt"
    resources: runtime=20, mem_mb=500
    shell: "./program >{output}"
rule say:
    input: "result.txt"
    output: "said.txt"
    localrule: True
    shell: "echo result: $(cat {input}); cp {input} {output}"
"""
SNAKEMAKE = """\
exec snakemake --executor slurm --jobs 4 --seconds-between-status-checks 1 \\
    --slurm-init-seconds-before-status-checks 2 --latency-wait 30
"""
SUBMITIT = """\
import sys, time, submitit
executor = submitit.AutoExecutor(folder="submitit")
executor.update_parameters(timeout_min=20, slurm_partition="batch"{options})
job = executor.submit(task, sys.argv[1])
while not job.done(force_check=True):  # it asks sacct each time
    time.sleep(1)
print("result:", job.result())
"""
DASK = """\
import sys
from dask.distributed import Client
from dask_jobqueue import SLURMCluster
{before}
if __name__ == "__main__":
    with SLURMCluster(cores=1, memory="500MB", queue="batch", walltime="0:20:00") as cluster, Client(cluster) as client:
        cluster.{scale}
        print("result:", client.submit(task, sys.argv[1]).result())
"""
PARSL = """\
import os, sys
import parsl
from parsl import Config, HighThroughputExecutor, python_app
from parsl.providers import SlurmProvider
provider = SlurmProvider(
    partition="batch", walltime="00:20:00", exclusive=False, worker_init="export PATH=" + os.environ["PATH"]
)
executor = HighThroughputExecutor(
    provider=provider, max_workers_per_node=1, address="127.0.0.1", heartbeat_period=2, heartbeat_threshold=10
)
with parsl.load(Config(executors=[executor], strategy="simple"{options})):
    print("result:", python_app(task)(sys.argv[1]).result())
"""
REFRAME = """\
import os
import reframe as rfm
import reframe.utility.sanity as sn

@rfm.simple_test
class Task(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = os.environ["PWD"] + "/program"
    time_limit = "20m"
    @sanity_function
    def right(self):
        return sn.assert_eq(sn.count(sn.findall(r"^right$", self.stdout)), 1)
"""
REFRAME_SITE = """\
site_configuration = {
    "systems": [{
        "name": "here", "hostnames": [".*"],
        "partitions": [{
            "name": "batch", "scheduler": "{scheduler}", "launcher": "local", "environs": ["builtin"],
            "access": ["--partition=batch"],
            "sched_options": {"slurm_pending_job_reason_poll_freq": 1{options}},
        }],
    }],
    "environments": [{"name": "builtin", "cc": "", "cxx": "", "ftn": ""}],
}
"""
RUN_REFRAME = 'reframe -C site.py -c checks.py -r --nocolor && echo "result: right"'
EXECUTORLIB = """\
import sys
from executorlib import SlurmClusterExecutor
if __name__ == "__main__":
    with SlurmClusterExecutor(
        cache_directory="cache", resource_dict={"partition": "batch", "run_time_max": 1200, "cores": 1}
    ) as executor:
        print("result:", executor.submit(task, sys.argv[1]).result())
"""


# Slurm's commands find their configuration by a variable here, which Snakemake does not hand on to srun.
SRUN = '#!/bin/sh\nSLURM_CONF={conf} exec /usr/bin/srun "$@"\n'
# What a tool was told by them, for the tests.
ASKED = '#!/bin/sh\n/usr/bin/{name} "$@" >"$0.$$"\nstatus=$?\ntee -a "$0.told" <"$0.$$"\nrm "$0.$$"\nexit $status\n'


@dataclass(frozen=True, slots=True)
class Tool:
    requires: tuple[str, ...]
    files: Mapping[str, str]
    command: str = "exec python3 driver.py $PWD/program"
    asks: str | None = "sacct"  # by which command of Slurm's it looks at its job


def snakemake() -> Tool:
    plugin = "snakemake-executor-plugin-slurm==2.8.0"
    return Tool(("snakemake==9.27.1", plugin), {"Snakefile": SNAKEFILE}, SNAKEMAKE)


def submitit(options: str = "") -> Tool:
    return Tool(("submitit==1.5.4",), {"driver.py": TASK + SUBMITIT.replace("{options}", options)})


def dask(before: str = "", scale: str = "scale(jobs=1)") -> Tool:
    driver = TASK + DASK.replace("{before}", before).replace("{scale}", scale)
    return Tool(("dask-jobqueue==0.9.0",), {"driver.py": driver}, asks=None)


def parsl(options: str = "") -> Tool:
    return Tool(("parsl==2026.10.26",), {"driver.py": TASK + PARSL.replace("{options}", options)})


def reframe(scheduler: str = "slurm", options: str = "") -> Tool:
    site = REFRAME_SITE.replace("{scheduler}", scheduler).replace("{options}", options)
    return Tool(
        ("reframe-hpc==4.10.4",),
        {"checks.py": REFRAME, "site.py": site},
        RUN_REFRAME,
        "sacct" if scheduler == "slurm" else "squeue",
    )


def executorlib() -> Tool:
    return Tool(("executorlib[cluster]==1.11.0",), {"driver.py": TASK + EXECUTORLIB}, asks="squeue")


def install(cluster: SlurmCluster, tool: Tool) -> Path:
    """An environment with the tool alone, where the cluster's users can read it; it goes with the cluster."""
    folder = cluster.root / "tools" / tool.requires[0].partition("==")[0]
    if not folder.exists():
        (cluster.root / "tools").mkdir(exist_ok=True)
        python = shutil.which("python3", path=SYSTEM_PATH) or "python3"
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *tool.requires]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            shutil.rmtree(folder)
            if "(from versions: none)" in done.stderr:
                skip_or_fail(f"pip reaches no registry that has {tool.requires[0]}")
            pytest.fail(f"pip cannot install {tool.requires}: {done.stderr[-2_000:]}")
    return folder


class Driver:
    """``with Driver(cluster, tool) as driver``: the tool at work, in a new folder of its user's own."""

    def __init__(self, cluster: SlurmCluster, tool: Tool) -> None:
        self.cluster, self.tool = cluster, tool
        self.folder = cluster.folder_of(USER)
        self.folder.chmod(0o755)
        self._path = f"{self.folder}/bin:{install(cluster, tool)}/bin:{SYSTEM_PATH}"
        (self.folder / "bin").mkdir()
        shutil.chown(self.folder / "bin", USER)
        self._program("bin/srun", SRUN.format(conf=cluster.conf))
        for name in ("squeue", "sacct"):
            self._program(f"bin/{name}", ASKED.format(name=name))
        self._program("program", PROGRAM)
        for name, text in tool.files.items():
            (self.folder / name).write_text(text)

    def _program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def another(self, command: str) -> Driver:
        """The same user's next command in the same folder."""
        later = copy(self)
        later.tool = replace(self.tool, command=command)
        return later

    def __enter__(self) -> Self:
        env = self.cluster.env | {"HOME": str(self.folder), "USER": USER, "LOGNAME": USER, "PATH": self._path}
        env = {key: value for key, value in env.items() if not key.startswith("PYTHON")}
        command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--init-groups", "sh", "-c", self.tool.command]
        with (self.folder / "driver.out").open("wb") as out:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            error.add_note(self.said()[-4_000:] + self.told()[-1_000:])
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def said(self) -> str:
        return (self.folder / "driver.out").read_text(errors="replace")

    def told(self) -> str:
        """What Slurm's command has answered it until now."""
        file = self.folder / "bin" / f"{self.tool.asks}.told"
        return file.read_text() if file.exists() else ""

    def saw_waiting(self, job: str, already: int) -> bool:
        """Whether it was told that the job is in the queue, after the first ``already`` characters that it was told."""
        return bool(re.search(rf"^{job}\b.*\b(PD|PENDING)\b", self.told()[already:], re.MULTILINE))

    def runs(self) -> list[str]:
        """For each run of the task the job it is in."""
        file = self.folder / "runs"
        return file.read_text().split() if file.exists() else []

    def let_go(self) -> None:
        """The task may end."""
        (self.folder / "go").touch()

    def wait_runs(self, count: int) -> str:
        """The job that the task runs in, once it runs for the ``count``th time."""
        begun = self.cluster.wait_for(
            lambda: self.process.poll() is not None or len(self.runs()) >= count, 60, f"run {count} of the task"
        )
        assert begun
        assert len(self.runs()) == count, f"the driver ended with {self.process.poll()}"
        return self.runs()[-1]

    def wait_end(self) -> int:
        self.cluster.wait_for(lambda: self.process.poll() is not None, 120, "the end of the driver")
        return self.process.returncode
