from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from clearway.cli.app import app
from clearway_lab.errors import TraceError
from clearway_lab.traces.sacct import command, parse_sacct, read_sacct
from clearway_lab.traces.trace import LARGEST, UNKNOWN, Names

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
        "line 9: '2023-11-14T22:15:00' is not a Unix time (sacct tells those with SLURM_TIME_FORMAT=%s)",
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


def test_a_job_of_two_periods_counts_once() -> None:
    """Months that were asked for one by one overlap in the jobs that ran across midnight."""
    trace = parse_sacct((ANSWER + ANSWER).splitlines(), "site")
    assert [job.job_id for job in trace.jobs] == [102, 101, 103]
    assert [str(line) for line in trace.broken if "again" in line.why] == [
        "line 10: job 101 again",
        "line 11: job 102 again",
        "line 12: job 103 again",
    ]


WORDS = st.one_of(
    st.integers(-2, 10**11).map(str),
    st.sampled_from(["", "Unknown", "None", "UNLIMITED", "x", "9" * 5_000, "\u00b2", "\u0663", "\x00", "2026-01-01"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may stand still for seconds
@given(st.lists(st.lists(WORDS, min_size=12, max_size=14).map("|".join), max_size=4))
def test_every_line_is_a_job_or_counted(lines: list[str]) -> None:
    trace = parse_sacct(lines, "site")
    assert len(trace.jobs) + len(trace.broken) + trace.never_ran == len(lines)
    assert len({job.job_id for job in trace.jobs}) == len(trace.jobs)
    assert all(LARGEST >= each > 0 for job in trace.jobs for each in (job.run_s, job.size, job.limit_s))


@pytest.mark.parametrize("word", ["9" * 400, "9" * 5_000, "10000000001"])
@pytest.mark.parametrize("field", [0, 5, 6, 7, 8, 9, 10])
def test_a_number_that_sacct_cannot_have_told_breaks_its_line(word: str, field: int) -> None:
    words = ANSWER.splitlines()[0].split("|")
    words[field] = word
    trace = parse_sacct(["|".join(words)], "site")
    assert not trace.jobs
    most = "166,666,666" if field == 9 else "10,000,000,000"  # minutes
    assert [str(line) for line in trace.broken] == [f"line 1: {word[:40]!r} is beyond {most}"]


def test_dates_in_place_of_unix_times_are_told(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text("1|u|a|p|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:00:10|2026-01-01T00:01:00|50|10|1|q|n\n")
    with pytest.raises(TraceError, match=r"line 1: '2026-01-01T00:00:00' is not a Unix time \(.*SLURM_TIME_FORMAT=%s"):
        read_sacct(path)


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_an_answer_may_be_compressed(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_bytes(compress(ANSWER.encode()))
    assert len(read_sacct(path).jobs) == 3


def test_a_compression_that_is_not_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt.zst"
    path.write_bytes(b"\x28\xb5\x2f\xfd\x04\x00")
    with pytest.raises(TraceError, match="it is compressed with zstd, which is not read: unpack it with zstd -d first"):
        read_sacct(path)


def test_it_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "jobs.txt"
    path.write_text(ANSWER)
    options = ["lab", "simulate", str(path), "--sacct", "--nodes", "4", "--scheduler", "fcfs", "-o", "json"]
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
