"""``clearway-run --try`` in a real job: whether the program can be saved where it would run."""

from __future__ import annotations

import pytest

from clearway.cli import launcher
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import install_programs

pytestmark = pytest.mark.one_slurm

PROGRAM = """\
n=$(cat try.state 2>/dev/null || echo 0)
trap 'echo $n >try.state.new; mv try.state.new try.state' USR1
while [ $n -lt 80 ]; do n=$((n + 1)); sleep 0.1; done
"""


def test_a_program_is_tried_where_it_would_run(cluster: SlurmCluster) -> None:
    install_programs(cluster)
    work = cluster.work
    launcher.install(work)
    program, output = work / "counts.sh", work / "try.out"
    program.write_text("#!/bin/bash\n" + PROGRAM)
    program.chmod(0o755)
    script = f"""\
#!/bin/sh
export CLEARWAY_CHECKPOINTERS={work}/checkpointers
{work}/clearway-run --try 2 --checkpoint-file try.state -- {program}
echo "status $?"
{work}/clearway-run --try 2 --checkpoint-file try.state -- sleep 30
echo "status $?"
"""
    job = cluster.sbatch(script, "--output=try.out", "--time=5", "--comment=mine", user="cwalice")
    cluster.wait_state(job, "COMPLETED", timeout=180)
    said = output.read_text()
    assert "this program can be saved here, with --checkpointer application" in said, said
    assert [line for line in said.splitlines() if line.startswith("status")] == ["status 0", "status 1"], said
    assert "it cannot be saved here: no process of the program catches USR1" in said
    assert cluster.job(job)["Comment"] == "mine"
