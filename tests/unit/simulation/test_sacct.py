from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway.errors import TraceError
from clearway.simulation.sacct import command, parse_sacct, read_sacct
from clearway.simulation.trace import UNKNOWN, Names

ANSWER = """\
101|bob|phys|batch|COMPLETED|1700000100|1700000160|1700000460|300|10|4|normal|relax
102|alice|bio|urgent|CANCELLED by 1000|1700000000|1700000010|1700000020|10|UNLIMITED|2|high|now|at once
103|alice|bio|batch|FAILED|1700000200|1700000300|1700000301|1|Partition_Limit|1|normal|fail
104|bob|phys|batch|PENDING|1700000200|Unknown|Unknown|0|10|1|normal|x
105|bob|phys|batch|RUNNING|1700000200|1700000300|Unknown|500|10|1|normal|x
106|bob|phys|batch|CANCELLED|1700000200|1700000300|1700000300|0|10|1|normal|x

107|bob|phys|batch|COMPLETED|1700000200|1700000300|1700000301|1|10|1
108|bob|phys|batch|COMPLETED|2023-11-14T22:15:00|1700000300|1700000301|1|10|1|normal|x
"""


def test_an_answer_becomes_a_trace() -> None:
    trace = parse_sacct(ANSWER.splitlines(), "site")
    assert (trace.start_epoch_s, trace.never_ran) == (1_700_000_000, 3)
    assert [str(line) for line in trace.broken] == [
        "line 8: 11 fields, not 13",
        "line 9: '2023-11-14T22:15:00' is not a number",
    ]
    cancelled, completed, failed = trace.jobs
    assert [job.job_id for job in trace.jobs] == [102, 101, 103]
    assert (completed.submit_s, completed.wait_s, completed.run_s, completed.size) == (100, 60, 300, 4)
    assert [job.requested_s for job in trace.jobs] == [UNKNOWN, 600, UNKNOWN]
    assert [job.status for job in trace.jobs] == [5, 1, 0]
    assert (cancelled.user, completed.user, failed.user) == (1, 2, 1)
    assert cancelled.names == Names("alice", "bio", "urgent", "high", "now|at once")
    assert trace.queues == {1: "batch", 2: "urgent"}
    assert [job.urgent for job in trace.with_urgent_queues(["urgent"]).jobs] == [True, False, False]


def test_it_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(ANSWER)
    options = ["simulate", str(path), "--sacct", "--nodes", "4", "--scheduler", "fcfs", "-o", "json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.stderr
    made = json.loads(result.stdout)
    assert (made["trace"], made["jobs"], made["never_ran"], len(made["broken_lines"])) == ("jobs", 3, 3, 2)
    assert made["schedulers"][0]["jobs"]["all"]["wait_s"]["largest"] == 200


@pytest.mark.parametrize(
    "content", ["", "104|bob|phys|batch|PENDING|1700000200|Unknown|Unknown|0|10|1|normal|x\n", "sacct: error\n"]
)
def test_an_answer_without_jobs_is_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(content)
    with pytest.raises(TraceError, match="no job that ran") as error:
        read_sacct(path)
    assert "\n" not in str(error.value)


def test_the_documented_command_is_the_one_that_is_read() -> None:
    page = (Path(__file__).parents[3] / "docs/howto/simulate.md").read_text()
    text = page.replace("\\\n  ", "").replace("'", "")
    assert " ".join(command("2026-01-01", "2026-07-01")) in text
