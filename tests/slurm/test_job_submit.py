"""The example job submit script in a real slurmctld."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clearway.cli import launcher
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import missing_requirements, slurm_version

SCRIPT = Path(__file__).parents[2] / "plugins" / "slurm" / "job_submit.lua"
PLUGIN = "job_submit_lua.so"


@contextmanager
def cluster_with(script: str, nodes: int = 1) -> Iterator[SlurmCluster]:
    """A cluster with this job_submit.lua, in which @WORK@ stands for a folder that all can read."""
    reason = missing_requirements()
    if reason:
        pytest.skip(f"no Slurm here: {reason}")
    if not list(Path("/usr/lib").glob(f"*/slurm-wlm/{PLUGIN}")):
        pytest.skip(f"this Slurm {slurm_version()} comes without {PLUGIN}")
    with SlurmCluster(nodes=nodes) as cluster:
        cluster.stop_controller()
        (cluster.root / "job_submit.lua").write_text(script.replace("@WORK@", str(cluster.work)))
        with cluster.conf.open("a") as conf:
            conf.write("JobSubmitPlugins=lua\n")
        cluster.start_controller()
        yield cluster


@pytest.fixture(scope="module")
def lua_cluster() -> Iterator[SlurmCluster]:
    with cluster_with(SCRIPT.read_text()) as cluster:
        yield cluster


def comment(cluster: SlurmCluster, job_id: str) -> str:
    """As squeue prints it: in a scontrol record a Comment with an = and a blank cannot be told from other keys."""
    return cluster.run("squeue", "-h", "-o", "%k", "-j", job_id).stdout.strip()


def refusal(cluster: SlurmCluster, *args: str) -> str:
    done = cluster.run("sbatch", "--parsable", *args, user="cwalice", check=False, stdin="#!/bin/sh\nsleep 60\n")
    assert done.returncode != 0, done.stdout
    return done.stderr


def test_an_urgent_job_gets_a_max_delay(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", "-p", "urgent", "--comment=my run", user="cwalice")
    assert comment(lua_cluster, job_id) == "my run clearway:max_delay=10m"
    own = lua_cluster.sbatch("sleep 60", "-n1", "-p", "urgent", "--comment=clearway:max_delay=60", user="cwalice")
    assert comment(lua_cluster, own) == "clearway:max_delay=60"


def test_an_ordinary_job_is_left_alone(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", "--comment=clearway:checkpoint=signal", user="cwalice")
    assert comment(lua_cluster, job_id) == "clearway:checkpoint=signal"
    assert comment(lua_cluster, lua_cluster.sbatch("sleep 60", "-n1", user="cwalice")) == "(null)"


def test_a_bad_claim_is_refused_where_its_user_reads_it(lua_cluster: SlurmCluster) -> None:
    assert "for urgent jobs" in refusal(lua_cluster, "--comment=clearway:max_delay=5m")
    assert "must be a duration" in refusal(lua_cluster, "-p", "urgent", "--comment=clearway:max_delay=soon")


def test_a_claim_cannot_be_made_later(lua_cluster: SlurmCluster) -> None:
    job_id = lua_cluster.sbatch("sleep 60", "-n1", user="cwalice")
    late = lua_cluster.run(
        "scontrol", "update", f"JobId={job_id}", "Comment=clearway:max_delay=1m", user="cwalice", check=False
    )
    assert late.returncode != 0
    lua_cluster.run("scontrol", "update", f"JobId={job_id}", "Comment=clearway:state=saved", user="cwalice")
    assert comment(lua_cluster, job_id) == "clearway:state=saved"


# -- transparent checkpoints -----------------------------------------------------------------------------------

# A checkpointer whose programs can be told from programs that run without it.
DRIVER = """
case $1 in
    start) shift 2; export UNDER_CHECKPOINTER=yes; exec "$@" ;;
    restart) shift 3; export UNDER_CHECKPOINTER=again; echo ok=yes >"$CLEARWAY_STATE/restarted"; exec "$@" ;;
    checkpoint) echo saved >"$2/image"; printf 'ok=yes\nsize_mib=1\n' ;;
    *) echo ok=yes ;;
esac
"""
TELLS = """\
    #!/bin/bash
    #SBATCH --job-name=simulation
    echo "${UNDER_CHECKPOINTER:-no} $# $2"
    n=0
    [ -z "${UNDER_CHECKPOINTER:-}" ] || until squeue -h -o %k -j $SLURM_JOB_ID | grep clearway: || [ $n -ge 100 ]; do
        n=$((n + 1)); sleep 0.2
    done
    echo end
    exit 7
    """


@pytest.fixture(scope="module")
def transparent() -> Iterator[SlurmCluster]:
    script = SCRIPT.read_text()
    for old, new in (
        ("local CHECKPOINTER = nil", 'local CHECKPOINTER = "marks"'),
        ('"/usr/local/bin/clearway-run"', '"@WORK@/clearway-run"'),
        ("local INTERVALS_S = {}", "local INTERVALS_S = { long = 7200 }"),
    ):
        assert old in script
        script = script.replace(old, new)
    with cluster_with(script) as cluster:
        cluster.run("scontrol", "create", "PartitionName=long", "Nodes=ALL", "State=UP")
        launcher.install(cluster.work)
        (cluster.work / "checkpointers" / "marks.sh").write_text(DRIVER)
        yield cluster


def said(cluster: SlurmCluster, name: str, script: str, *options: str) -> list[str]:
    """The lines that a job prints; the last one is ``end``."""
    folder = cluster.work / name
    folder.mkdir()
    folder.chmod(0o777)
    job = folder / "job"
    job.write_text(textwrap.dedent(script))
    submit = ("sbatch", "-n1", f"--chdir={folder}", "--output=out", *options, str(job), "one", "two words")
    cluster.run(*submit, user="cwalice")
    end = time.monotonic() + 240
    while not (folder / "out").exists() or not (folder / "out").read_text().endswith("end\n"):
        assert time.monotonic() < end, (cluster.run("squeue").stdout, list(folder.iterdir()))
        time.sleep(0.1)
    return (folder / "out").read_text().splitlines()


def test_every_batch_job_runs_under_the_checkpointer(transparent: SlurmCluster) -> None:
    first, claim, *_ = said(transparent, "plain", TELLS)
    assert first == "yes 2 two words"
    assert "checkpoint=signal" in claim
    assert "checkpointer=marks" in claim
    assert "app=simulation" in claim
    assert "interval=" not in claim
    assert "interval=7200," in said(transparent, "at an interval", TELLS, "-p", "batch,long")[1]
    assert said(transparent, "own-words", TELLS, "--comment=clearway:checkpoint=none")[0] == "no 2 two words"
    calls = TELLS.replace("echo end", "/usr/bin/srun -n1 true; echo end")
    assert said(transparent, "srun", calls)[0] == "no 2 two words"
    assert said(transparent, "of srun", TELLS.replace("exit 7", "# srun, and $srun_runs"))[0] == "yes 2 two words"
    assert said(transparent, "own-call", TELLS.replace("exit 7", "# clearway-run"))[0] == "no 2 two words"
    python = """\
        #!/usr/bin/env python3
        import os
        print(os.environ.get("UNDER_CHECKPOINTER", "no"), "end", sep="\\n")
        """
    assert said(transparent, "python", python) == ["no", "end"]
    interactive = transparent.run("srun", "-n1", "sh", "-c", 'echo "${UNDER_CHECKPOINTER:-no}"', user="cwalice")
    assert interactive.stdout.strip() == "no"


def test_a_script_that_another_user_has_prepared_is_not_run(transparent: SlurmCluster) -> None:
    """In a folder where all may write, with the ids of the jobs to come: what the other user put there was run."""
    folder = transparent.work / "of all"
    folder.mkdir()
    folder.chmod(0o777)
    last = int(transparent.sbatch("true", "-n1", "--output=/dev/null", user="cwbob"))
    prepare = f"""cd '{folder}' && for n in $(seq {last} {last + 20}); do
        mkdir -p .clearway/$n/generation-000001 && chmod -R 777 .clearway
        printf '#!/bin/sh\\nid -un >>stolen\\necho end\\n' >.clearway/$n/script && chmod 755 .clearway/$n/script
    done"""
    transparent.run("sh", "-c", prepare, user="cwbob")
    submit = f"cd '{folder}' && exec sbatch --parsable -n1 --output=out"
    job = transparent.run("sh", "-c", submit, user="cwalice", stdin=textwrap.dedent(TELLS)).stdout.strip()
    transparent.wait_state(job, "FAILED", "COMPLETED")
    assert transparent.job(job)["ExitCode"] == "7:0"
    assert not (folder / "stolen").exists(), "a script of another user was run"
    out = (folder / "out").read_text()
    assert out.count("this job runs without checkpoints: other users can write to ") == 1, out
    assert "no 0" in out


def test_each_task_of_an_array_is_saved_and_requeued_by_itself(transparent: SlurmCluster) -> None:
    """The last task bears the id of the whole array: what it says of itself must not be said of the others."""
    folder = transparent.work / "array"
    folder.mkdir()
    folder.chmod(0o777)
    script = """\
#!/bin/bash
echo "${UNDER_CHECKPOINTER:-no} $SLURM_ARRAY_TASK_ID ${SLURM_RESTART_COUNT:-0}" >>ran
until [ -e stop ]; do sleep 0.1; done
exit $((SLURM_ARRAY_TASK_ID + 3))
"""
    array = transparent.sbatch(
        script, "-n1", "--array=0-1", "--requeue", f"--chdir={folder}", "--output=out.%a", user="cwalice"
    )

    def shown(what: str) -> dict[str, str]:
        lines = transparent.run("squeue", "-h", "-r", "-t", "all", "-j", array, "-o", f"%K|{what}").stdout.splitlines()
        return dict(line.split("|", 1) for line in lines)

    ran = folder / "ran"
    transparent.wait_for(lambda: ran.exists() and len(ran.read_text().splitlines()) == 2, 60, "both tasks to run")
    transparent.wait_for(lambda: all("checkpointer=marks" in text for text in shown("%k").values()), 60, "both claims")
    raw = shown("%A")
    assert set(raw) == {"0", "1"}
    last = next(task for task, job_id in raw.items() if job_id == array)
    other = "1" if last == "0" else "0"
    transparent.run("scancel", "--signal=USR1", "--batch", f"{array}_{last}")
    transparent.wait_for(lambda: "state=saved" in shown("%k")[last], 30, "the last task's answer")
    assert "state=" not in shown("%k")[other]
    transparent.run("scontrol", "requeue", f"{array}_{last}")
    transparent.wait_for(lambda: shown("%T")[last] == "PENDING", 30, "the requeue")
    assert shown("%T")[other] == "RUNNING"
    time.sleep(1.1)  # started in the second of its requeue it would be lost
    transparent.run("scontrol", "update", f"JobId={array}_{last}", "StartTime=now")
    transparent.wait_for(lambda: len(ran.read_text().splitlines()) == 3, 60, "the second run of one task")
    assert sorted(ran.read_text().splitlines()) == sorted(["yes 0 0", "yes 1 0", f"again {last} 1"])
    assert all((transparent.work / ".clearway" / f"{array}_{task}" / "script").exists() for task in raw)
    (folder / "stop").touch()
    transparent.wait_for(lambda: set(shown("%T").values()) == {"FAILED"}, 30, "both tasks to end")
    for task in ("0", "1"):
        job = transparent.run("scontrol", "-o", "show", "job", f"{array}_{task}").stdout
        assert f" ExitCode={int(task) + 3}:0" in job


def test_a_transparent_job_ends_with_its_own_exit_code(transparent: SlurmCluster) -> None:
    job_id = transparent.sbatch("#!/bin/sh\nexit 7\n", "-n1", f"--chdir={transparent.work}", user="cwalice")
    transparent.wait_state(job_id, "FAILED")
    assert transparent.job(job_id)["ExitCode"] == "7:0"


# -- the wake file -------------------------------------------------------------------------------------------------


def test_an_urgent_job_alone_wakes_the_daemon() -> None:
    """Its change ends the daemon's pause (tests/simulation/test_wake_file.py)."""
    script = SCRIPT.read_text()
    assert "local WAKE_FILE = nil" in script
    with cluster_with(script.replace("WAKE_FILE = nil", 'WAKE_FILE = "@WORK@/wake/file"')) as cluster:
        folder = cluster.work / "wake"
        cluster.sbatch("true", "-n1", "-p", "urgent", user="cwalice")  # taken where the folder is not there as well
        folder.mkdir()
        folder.chmod(0o777)
        cluster.sbatch("true", "-n1", user="cwalice")
        refusal(cluster, "-p", "urgent", "--comment=clearway:max_delay=soon")
        assert not (folder / "file").exists()
        cluster.sbatch("true", "-n1", "-p", "urgent", user="cwalice")
        first = (folder / "file").stat().st_mtime_ns
        cluster.sbatch("true", "-n1", "-p", "urgent", user="cwalice")
        assert (folder / "file").stat().st_mtime_ns > first
