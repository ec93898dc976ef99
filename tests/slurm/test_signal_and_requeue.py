"""What users' scripts have already: --signal and --requeue, and a handler that saves. Nothing is added to them.

Each form is preempted by a real urgent job, and goes on from its own checkpoint. A handler ends the job, as Slurm's own
would at its time limit, requeues it, or lets it go on.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon
from tests.slurm.machine import SYSTEM_PATH
from tests.slurm.test_job_submit import SCRIPT, cluster_with, comment
from tests.slurm.urgent import SCRIPT as URGENT
from tests.slurm.urgent import let_go

pytestmark = pytest.mark.one_slurm

TURNS = 400

# Turns of a second, until the test lets them hurry; what SAVES and ENDS do differs from tool to tool.
PROGRAM = """\
import os, signal, subprocess, sys, time
turns, name = int(sys.argv[1]), sys.argv[2]
state, asked = name + ".state", []
done = int(open(state).read()) if os.path.exists(state) else 0
def save():
    with open(state + ".new", "w") as out:
        out.write(str(done))
    os.rename(state + ".new", state)
def heard(number, frame):
    asked.append(number)
    {AT_ONCE}
signal.signal(signal.SIG{NAME}, heard)
while done < turns:
    end = time.monotonic() + 1.0
    while time.monotonic() < end and not os.path.exists(name + ".hurry"):
        time.sleep(0.05)
    with open(name + ".log", "a") as out:
        out.write(f"{done + 1} {os.environ.get('SLURM_RESTART_COUNT', '0')}\\n")
    done += 1
    if asked:
        {BETWEEN}
with open(name + ".result", "w") as out:
    out.write("done")
"""
REQUEUES = 'subprocess.call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]])'

# script, signal's name, what the handler does at once, and what is done between two turns after it.
FORMS = {
    # A shell's trap that passes the signal on and waits: the script ends with the program's status.
    "bash": (
        (
            "#SBATCH --signal=B:USR1@20\n"
            "trap 'kill -USR1 $child; wait $child' USR1\n"
            "/usr/bin/python3 {program} {turns} {name} &\nchild=$!\nwait $child\n"
        ),
        ("USR1", "pass", "save(); sys.exit(0)"),
    ),
    # The same with a status of its own, as after a save that is to be seen.
    "bash, exit 85": (
        (
            "#SBATCH --signal=B:USR1@20\n"
            "trap 'kill -USR1 $child; wait $child; exit 85' USR1\n"
            "/usr/bin/python3 {program} {turns} {name} &\nchild=$!\nwait $child\n"
        ),
        ("USR1", "pass", "save(); sys.exit(1)"),
    ),
    # The site pattern that is found most: save, and requeue by hand.
    "bash, scontrol requeue": (
        (
            "#SBATCH --signal=B:USR1@20\n"
            "trap 'kill -USR1 $child; wait $child; scontrol requeue $SLURM_JOB_ID' USR1\n"
            "/usr/bin/python3 {program} {turns} {name} &\nchild=$!\nwait $child\n"
        ),
        ("USR1", "pass", "save(); sys.exit(0)"),
    ),
    # The program is the batch shell itself, saves itself, and goes on.
    "exec": (
        "#SBATCH --signal=B:TERM@10\nexec /usr/bin/python3 {program} {turns} {name}\n",
        ("TERM", "pass", "save(); asked.clear()"),
    ),
    # Tasks of srun; Hugging Face's trainer saves on SIGTERM and stops.
    "Hugging Face": (
        "#SBATCH --signal=TERM@30\nsrun /usr/bin/python3 {program} {turns} {name}\n",
        ("TERM", "pass", "save(); sys.exit(0)"),
    ),
    # Lightning's handler saves, requeues, and computes on until Slurm ends it.
    "Lightning": (
        "#SBATCH --signal=SIGUSR1@90\nsrun /usr/bin/python3 {program} {turns} {name}\n",
        ("USR1", f"save(); {REQUEUES}", "asked.clear()"),
    ),
    # submitit's saves, requeues, and ends with -1.
    "submitit": (
        "#SBATCH --signal=USR2@90\nsrun --unbuffered /usr/bin/python3 {program} {turns} {name}\n",
        ("USR2", f"save(); {REQUEUES}; sys.exit(-1)", "pass"),
    ),
}


@pytest.fixture(scope="module")
def marking() -> Iterator[SlurmCluster]:
    with cluster_with(SCRIPT.read_text(), nodes=len(FORMS)) as cluster:
        yield cluster


def submitted(cluster: SlurmCluster, form: str) -> tuple[str, Path]:
    lines, (signal, at_once, between) = FORMS[form]
    name = cluster.work / form.replace(" ", "_").replace(",", "")
    program = name.with_suffix(".py")
    program.write_text(PROGRAM.replace("{NAME}", signal).replace("{AT_ONCE}", at_once).replace("{BETWEEN}", between))
    options = f"#!/bin/bash\n#SBATCH --requeue\n#SBATCH --open-mode=append\n#SBATCH --output={name}.out\n"
    script = options + lines.format(program=program, turns=TURNS, name=name)
    script = script.replace("\ntrap", f"\nexport PATH={SYSTEM_PATH}\ntrap").replace(
        "\nsrun", f"\nexport PATH={SYSTEM_PATH}\nsrun"
    )
    told = cluster.run(
        "sbatch", "--parsable", "-n1", "--time=30", "--exclusive", "--mem=0", user="cwalice", stdin=script
    )
    job_id = told.stdout.strip()
    cluster.wait_state(job_id, "RUNNING")
    return job_id, name


@pytest.mark.full
def test_each_form_goes_on_from_its_own_checkpoint(
    marking: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(marking.conf))
    jobs = {form: submitted(marking, form) for form in FORMS}
    assert all("clearway:checkpoint=signal,signal=" in comment(marking, job_id) for job_id, _ in jobs.values())
    with RunningDaemon(marking, tmp_path / "daemon") as daemon:
        arguments = ("-p", "urgent", f"-N{len(FORMS)}", "--exclusive", "--mem=0", "--time=5", "--output=/dev/null")
        urgent = marking.sbatch(URGENT, *arguments, "--comment=clearway:max_delay=10m", user="cwalice")
        daemon.wait_for(lambda: marking.job(urgent)["JobState"] == "RUNNING", 300, "the urgent job")
        let_go(marking, daemon, urgent)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 150, "the end of the eviction")
        left = {p.job_id: (p.action, p.state) for p in daemon.evictions()[0].preemptions}
        expected = (Action.APP_CHECKPOINT, PreemptionState.RETURNED)
        assert left == dict.fromkeys((job_id for job_id, _ in jobs.values()), expected)
        for _, name in jobs.values():
            Path(f"{name}.hurry").touch()
        for form, (job_id, name) in jobs.items():
            marking.wait_for(Path(f"{name}.result").exists, 60, f"{form}: {Path(f'{name}.out').read_text()}")
            marking.wait_state(job_id, "COMPLETED")
    for form, (job_id, name) in jobs.items():
        assert marking.job(job_id)["Restarts"] == "1", form
        turns = [tuple(map(int, line.split())) for line in Path(f"{name}.log").read_text().splitlines()]
        first = [turn for turn, run in turns if not run]
        again = [turn for turn, run in turns if run]
        assert first == list(range(1, len(first) + 1)), form
        assert 1 < again[0] <= len(first) + 1, f"{form} went on from what it had saved"
        assert again == list(range(again[0], TURNS + 1)), form


def test_the_mark_is_made_by_slurms_own_options(marking: SlurmCluster) -> None:
    script = textwrap.dedent("""\
        #!/bin/bash
        #SBATCH --signal=B:USR1@20 --requeue
        true
        """)
    held = ("--parsable", "-n1", "--hold")
    marked = marking.run("sbatch", *held, user="cwalice", stdin=script).stdout.strip()
    assert comment(marking, marked) == "clearway:checkpoint=signal,signal=USR1,to=batch,grace=20"
    plain = marking.run("sbatch", *held, "--no-requeue", user="cwalice", stdin=script).stdout.strip()
    assert comment(marking, plain) == "(null)"
    submit = "SBATCH_SIGNAL=USR2@5 exec sbatch --parsable -n1 --hold"
    by_environment = marking.run("sh", "-c", submit, user="cwalice", stdin=script).stdout.strip()
    assert comment(marking, by_environment) == "clearway:checkpoint=signal,signal=USR2,to=steps,grace=5"
    marking.run("scancel", marked, plain, by_environment)
