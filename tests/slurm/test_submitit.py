"""submitit from PyPI, unmodified: the daemon's signal calls its checkpoint(), and its own requeue is the only one.

submitit answers its signal (``--signal=USR2@90`` by default) by pickling what ``checkpoint()`` returns, requeueing
the job itself and exiting with -1; the next run goes on from the pickle.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.urgent import SCRIPT, let_go

pytestmark = pytest.mark.one_slurm

WHOLE = ("--exclusive", "--mem=0")
TURNS = 200  # of a second, until the test lets them hurry
CLAIM = "clearway:checkpoint=signal,signal=USR2,to=steps,requeues=self,took=3"

# What a user writes: a callable whose state is its attributes.
TRAINING = """\
import json, os, time
import submitit

class Training:
    def __init__(self, done=0, calls=0):
        self.done, self.calls = done, calls

    def __call__(self, turns, log):
        while self.done < turns:
            time.sleep(0.0 if os.path.exists(log + ".hurry") else 1.0)
            with open(log, "a") as out:
                out.write(f"{self.done + 1} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
            self.done += 1
        with open(log + ".result", "w") as out:
            json.dump({"done": self.done, "calls": self.calls}, out)
        return self.done

    def checkpoint(self, turns, log):
        return submitit.helpers.DelayedSubmission(Training(self.done, self.calls + 1), turns, log)
"""

SUBMIT = """\
import sys
import submitit
import training
work, comment, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
executor = submitit.SlurmExecutor(folder=work + "/submitit", max_num_timeout=3)
executor.update_parameters(
    time=30, ntasks_per_node=1, nodes=1, exclusive=True, mem="0", partition="batch",
    additional_parameters={"comment": comment, "requeue": True}, stderr_to_stdout=True,
)
print(executor.submit(training.Training(), turns, work + "/training.log").job_id)
"""


def submit(cluster: SlurmCluster) -> str:
    (cluster.work / "training.py").write_text(TRAINING)
    (cluster.work / "submit.py").write_text(SUBMIT)
    python = textwrap.dedent(f"""\
        export PYTHONPATH={cluster.work}:{site_packages()} PATH={SYSTEM_PATH}
        exec /usr/bin/env python3 {cluster.work}/submit.py {cluster.work} {CLAIM} {TURNS}
        """)
    told = cluster.run("sh", "-c", python, user="cwalice", timeout=60).stdout
    return told.split()[-1]


def site_packages() -> str:
    """Where submitit is installed, which its jobs need as well."""
    import cloudpickle
    import submitit
    import typing_extensions

    modules = (submitit.__file__, cloudpickle.__file__)
    folders = {str(Path(name).parents[1]) for name in modules} | {str(Path(typing_extensions.__file__).parent)}
    return ":".join(sorted(folders))


@pytest.mark.full
def test_submitit_job_saves_and_requeues_itself_when_the_daemon_asks(cluster: SlurmCluster, tmp_path: Path) -> None:
    for _ in cluster.node_names[:7]:
        other = cluster.sbatch("sleep 900", "--time=30", *WHOLE, "--output=/dev/null", user="cwbob")
        cluster.wait_state(other, "RUNNING")
    job_id = submit(cluster)
    cluster.wait_state(job_id, "RUNNING")
    log = cluster.work / "training.log"
    cluster.wait_for(lambda: log.exists() and len(log.read_text().splitlines()) >= 3, 60, "three turns")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        arguments = ("-p", "urgent", "-N1", *WHOLE, "--time=5", "--output=/dev/null")
        urgent = cluster.sbatch(SCRIPT, *arguments, user="cwalice")
        let_go(cluster, daemon, urgent)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 120, "the end of the eviction")
        (eviction,) = daemon.evictions()
        (p,) = eviction.preemptions
        assert (p.job_id, p.action, p.state) == (job_id, Action.APP_CHECKPOINT, PreemptionState.RETURNED)
        assert p.actual_lost_node_s == 0.0
        store = daemon.store()
        try:
            kinds = [step.kind for step in store.steps(eviction.eviction_id) if step.job_id == job_id]
        finally:
            store.close()
        assert kinds.count("ask_checkpoint") == 1
        assert "requeue" not in kinds
        (cluster.work / "training.log.hurry").touch()
        result = cluster.work / "training.log.result"
        cluster.wait_for(result.exists, 120, "the result of the training")
        cluster.wait_for(lambda: result.read_text().endswith("}"), 10)
        assert json.loads(result.read_text()) == {"done": TURNS, "calls": 1}
        assert cluster.job(job_id)["Restarts"] == "1"
        turns = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
        saved = [turn for turn, run in turns if not run]
        again = [turn for turn, run in turns if run]
        # None is lost and none done twice, but for one that the signal came upon between its line and its count.
        assert again[0] - 1 in (len(saved), len(saved) - 1)
        assert (saved, again) == (list(range(1, len(saved) + 1)), list(range(again[0], TURNS + 1)))
