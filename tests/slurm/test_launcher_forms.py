"""How scripts start a program under the launcher: its standard input, and starters that do not catch the signal."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from clearway.model.operations import EvictionState, PreemptionState
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, install_programs
from tests.slurm.urgent import SCRIPT, let_go

WHOLE = ("--exclusive", "--mem=0")
INPUTS = {
    "file": "exec RUN cat <in.txt",
    "here-document": "exec RUN python3 - <<'END'\nprint('\\n'.join(map(str, range(1, 121))))\nEND",
    "pipe": "seq 120 | RUN cat",
    "file that srun passes on": "exec RUN srun cat <in.txt",
    "pipe that srun passes on": "seq 120 | RUN srun cat",
    "option of srun": "exec RUN srun --input=in.txt cat",
    "nothing": "exec RUN sh -c 'cat; cat in.txt'",
}
OPTIONS = {
    "application": "--checkpoint-file {folder}/ck",
    "none": "--checkpointer none",
    "missing": "--checkpointer missing",
    "try": "--try 1 --checkpoint-file {folder}/ck",
}


def test_programs_read_their_input_as_without_the_launcher(cluster: SlurmCluster) -> None:
    install_programs(cluster)
    folder = cluster.folder_of("cwalice")
    lines = "".join(f"{number}\n" for number in range(1, 121))
    (folder / "in.txt").write_text(lines)
    jobs = {}
    for form, script in INPUTS.items():
        for name, options in OPTIONS.items():
            if name == "try" and form != "file":
                continue
            wanted = script.replace("cat", "sh -c 'cat; exec sleep 60'") if name == "try" else script
            run = f"{cluster.work}/clearway-run {options.format(folder=folder)} -- "
            text = f"#!/bin/bash\ncd {folder}\n{wanted.replace('RUN ', run)}\n"
            output = folder / f"{form}.{name}.out"
            arguments = ("-n1", "--mem=100", f"--output={output}", f"--error={output}.err", "--time=5")
            jobs[form, name] = cluster.sbatch(text, *arguments, user="cwalice"), output
    for (form, name), (job_id, output) in jobs.items():
        cluster.wait_state(job_id, "COMPLETED", "FAILED", timeout=120)
        said = Path(f"{output}.err").read_text()
        if name != "try":
            assert cluster.job(job_id)["JobState"] == "COMPLETED", (form, name, said)
            assert output.read_text() == lines, (form, name, said)
        else:  # it cannot be saved, and so is started once
            assert output.read_text() == lines, said
            assert "no process of the program catches USR1" in said


# Computes in steps of a tenth of a second, in a later run five more; saves itself on the signal, unless it is deaf.
PROGRAM = """\
import os, signal, sys, time
state, run = sys.argv[1], os.environ.get("SLURM_RESTART_COUNT", "0")
wanted = False
def ask(*_):
    global wanted
    wanted = True
if "deaf" not in sys.argv:
    signal.signal(signal.SIGUSR1, ask)
done = int(open(state).read()) if os.path.exists(state) else 0
end = done + 5
while run == "0" or done < end:
    done += 1
    print(done, run, flush=True)
    time.sleep(0.1)
    if wanted:
        wanted = False
        with open(state + ".new", "w") as out:
            out.write(str(done))
        os.rename(state + ".new", state)
"""
STARTERS = {
    "a script": "bash {work}/starter.sh",
    "a pipe": "sh -c 'python3 {work}/counts.py {state} | tee {state}.copy'",
    "srun": "srun bash {work}/starter.sh",
    "a script deaf": "bash {work}/starter.sh deaf",
}


@pytest.mark.parametrize("starter", STARTERS)
def test_a_program_below_a_starter_is_preempted_and_comes_back(
    cluster: SlurmCluster, tmp_path: Path, starter: str
) -> None:
    """Where a process catches the signal it is saved; where none does, the job is requeued as one that cannot be."""
    install_programs(cluster)
    folder = cluster.folder_of("cwalice")
    state, saves = folder / "state", "deaf" not in starter
    (cluster.work / "counts.py").write_text(PROGRAM)
    (cluster.work / "starter.sh").write_text(f'python3 {cluster.work}/counts.py "$STATE" "$@"\nexit $?\n')
    command = STARTERS[starter].format(work=cluster.work, state=state)
    script = textwrap.dedent(f"""\
        #!/bin/bash
        export STATE={state}
        exec {cluster.work}/clearway-run --checkpoint-file {state} -- {command}
        """)
    arguments = ("--requeue", "--open-mode=append", f"--output={folder}/out", "--time=30")
    job = cluster.sbatch(script, "-N1", *WHOLE, *arguments, user="cwalice")
    claim = "checkpoint=signal" if saves else "checkpoint=none"
    cluster.wait_for(lambda: claim in cluster.job(job).get("Comment", ""), 60, "its claim")
    others = [
        cluster.sbatch("sleep 600", "-N1", *WHOLE, "--time=30", "--output=/dev/null", user="cwbob")
        for _ in cluster.node_names[1:]
    ]
    for other in others:
        cluster.wait_state(other, "RUNNING")
    with RunningDaemon(cluster, tmp_path / "daemon") as daemon:
        arguments = ("-p", "urgent", "-N1", *WHOLE, "--time=5", "--output=/dev/null")
        urgent = cluster.sbatch(SCRIPT, *arguments, user="cwalice")
        cluster.wait_state(urgent, "RUNNING", timeout=90)
        (eviction,) = daemon.evictions()
        (planned,) = eviction.preemptions
        assert planned.job_id == job
        assert planned.action is (Action.APP_CHECKPOINT if saves else Action.KILL)
        let_go(cluster, daemon, urgent)
        cluster.wait_for(lambda: cluster.job(job)["Restarts"] == "1", 60, "its requeue")
        cluster.wait_state(job, "COMPLETED", timeout=120)
        daemon.wait_for(lambda: daemon.evictions()[0].state is EvictionState.COMPLETED, 60, "the end of the eviction")
        assert daemon.evictions()[0].preemptions[0].state is PreemptionState.RETURNED
    assert cluster.job(job)["ExitCode"] == "0:0"
    said = (folder / "out").read_text()
    steps = [tuple(map(int, line.split())) for line in said.splitlines() if line[:1].isdigit()]
    first = [step for step, run in steps if run == 0]
    second = [step for step, run in steps if run == 1]
    assert first == list(range(1, len(first) + 1))
    assert "USR1" not in said.replace("catches USR1", ""), said
    assert saves is state.exists()
    begun = int(state.read_text()) if saves else 0
    assert second == list(range(begun + 1, begun + 6))
