from __future__ import annotations

import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearway_lab.errors import TraceError
from clearway_lab.traces.swf import parse_swf, read_swf, write_swf
from clearway_lab.traces.trace import LARGEST, UNKNOWN, Trace, TraceJob
from tests.traces import recorded

LOG = """\
; Version: 2.2
; UnixStartTime: 843480031
; MaxNodes: 50
; MaxProcs: 100  (2 a node)
; Queue: 1 urgent
; Queue: 2  normal            (18hr)
    7   20  5   100   8 99.50 -1   8  300 -1  1  3  4  5  1  1 -1 -1

    8   10  5   100  -1    -1 512  4   -1 -1  5  3  4  5  2 -1 -1 -1
    9   30 -1    -1  16    -1 -1  16  300 -1  5  3  4  5  2 -1 -1 -1
   10   40  0 12.6    1 12.60 -1   1   10 -1  0 -1 -1 -1  2 -1 -1 -1
"""


def test_a_log_is_read() -> None:
    trace = parse_swf(io.StringIO(LOG), "log")
    assert [job.job_id for job in trace.jobs] == [8, 7, 10]
    asked, first, odd = trace.jobs
    assert first == TraceJob(7, 20, 100, 8, 300, 5, UNKNOWN, 1, 3, 4, 5, 1, 1)
    assert (asked.size, asked.requested_s, asked.limit_s, asked.memory_kib) == (4, UNKNOWN, 100, 512)
    assert (odd.run_s, odd.limit_s) == (13, 13), "it ran past its limit, so its limit was longer"
    assert (trace.size, trace.never_ran, trace.start_epoch_s, trace.broken) == (100, 1, 843480031, ())
    assert trace.queues == {1: "urgent", 2: "normal"}
    assert [job.urgent for job in trace.with_urgent_queues(["urgent"]).jobs] == [False, True, False]
    assert [job.urgent for job in trace.with_urgent_queues(["2"]).jobs] == [True, False, True]
    assert [job.size for job in trace.on_nodes(3).jobs] == [2, 3, 1]
    assert [job.limit_s for job in trace.with_exact_limits().jobs] == [100, 100, 13]


def test_comments_may_be_indented() -> None:
    assert parse_swf(io.StringIO(f"  ; MaxProcs: 16\n\t;comment\n{LOG}"), "log").header[:2] == (
        "MaxProcs: 16",
        "comment",
    )


def test_broken_lines_cost_themselves_alone_and_are_named() -> None:
    good = LOG.splitlines()[6]
    lines = [good, good.rsplit(maxsplit=1)[0], good.replace("20", "x" * 60, 1), good, good.replace("20", "-3", 1), "\0"]
    trace = parse_swf(lines, "log")
    assert len(trace.jobs) == 1
    assert [str(line) for line in trace.broken] == [
        "line 2: 17 fields, not 18",
        f"line 3: {'x' * 40!r} is not a number",
        "line 4: job 7 again",
        "line 5: it was submitted before the trace began",
        "line 6: 1 fields, not 18",
    ]


@pytest.mark.parametrize("word", ["9" * 400, "9" * 5_000, "1e300", "inf", "nan", "1_0", "10000000001"])
@pytest.mark.parametrize("field", [1, 3, 4, 8])
def test_a_time_or_a_size_that_nobody_can_have_recorded_breaks_its_line(word: str, field: int) -> None:
    good = LOG.splitlines()[6]
    words = good.replace("7", "6", 1).split()
    words[field] = word
    trace = parse_swf([good, " ".join(words)], "log")
    assert [job.job_id for job in trace.jobs] == [7]
    (line,) = trace.broken
    told = {f"{word[:40]!r} is not a number", "a time or a size is beyond 10,000,000,000"}
    assert line.number == 2
    assert line.why in told


@pytest.mark.parametrize("size", ["0", "-4", "many", "\u00b2", "9" * 5_000])
def test_a_header_without_a_usable_size_says_none(size: str) -> None:
    head = f"; MaxProcs: {size}\n; UnixStartTime: {'9' * 5_000}\n; Queue: {'9' * 5_000} q\n; MaxNodes: 50\n"
    trace = parse_swf(io.StringIO(head + LOG.splitlines()[6]), "log")
    assert (trace.size, trace.start_epoch_s, trace.queues, len(trace.jobs)) == (50, None, {}, 1)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(b"\xef\xbb\xbf; MaxProcs: 8\r\n" + LOG.splitlines()[6].encode() + b"\r\n")
    trace = read_swf(path)
    assert (trace.size, trace.broken, len(trace.jobs)) == (8, (), 1)


@pytest.mark.parametrize(
    ("name", "pack"),
    [("a.swf", bytes), ("a.swf.gz", gzip.compress), ("a-cln.swf.xz", lzma.compress), ("a", gzip.compress)],
)
def test_compression_is_seen_by_content(tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / name
    path.write_bytes(pack(LOG.encode()))
    assert read_swf(path).name == "a"
    assert len(read_swf(path).jobs) == 3


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"no job that ran \(0 broken lines\)"),
        (b"hello\n", r"no job that ran \(1 broken lines; line 1: 1 fields, not 18\)"),
        (gzip.compress(LOG.encode())[:-12], "end-of-stream"),
        (lzma.compress(LOG.encode())[:-20], "end-of-stream"),
        (b"\x1f\x8b" + bytes(40), "(?i)compression method|not a gzip"),
        (b"\xfd7zXZ\x00" + bytes(40), "."),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "log.swf"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=why) as error:
        read_swf(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_no_file_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_swf(tmp_path / "absent.swf")


numbers = st.integers(-1, 10**9)
jobs = st.builds(
    TraceJob,
    job_id=st.integers(0, 10**9),
    submit_s=st.integers(0, 10**9),
    run_s=st.integers(1, 10**9),
    size=st.integers(1, 10**6),
    requested_s=st.one_of(st.just(UNKNOWN), st.integers(1, 10**9)),
    wait_s=numbers,
    memory_kib=numbers,
    status=numbers,
    user=numbers,
    group=numbers,
    application=numbers,
    queue=numbers,
    partition=numbers,
)


@given(st.lists(jobs, unique_by=lambda job: job.job_id, max_size=8))
def test_what_is_written_is_read_again(written: list[TraceJob]) -> None:
    trace = Trace("log", (), header=("MaxProcs: 100",)).with_jobs(written)
    text = io.StringIO()
    write_swf(trace, text)
    text.seek(0)
    again = parse_swf(text, "log")
    assert (again.jobs, again.broken, again.size) == (trace.jobs, (), 100)


WORDS = st.one_of(
    st.integers(-2, 10**11).map(str),
    st.floats().map(str),
    st.sampled_from(["9" * 5_000, "1e400", "1_0", "\u00b2", "\u0663", "\x00", "x", ";"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a machine may stand still for seconds
@given(st.lists(st.lists(WORDS, min_size=17, max_size=19).map(" ".join), max_size=4))
def test_every_line_is_a_job_or_counted(lines: list[str]) -> None:
    trace = parse_swf(lines, "log")
    comments = sum(line.startswith(";") for line in lines)
    assert len(trace.jobs) + len(trace.broken) + trace.never_ran == len(lines) - comments
    assert len({job.job_id for job in trace.jobs}) == len(trace.jobs)
    assert all(0 <= job.submit_s <= LARGEST for job in trace.jobs)
    assert all(0 < each <= LARGEST for job in trace.jobs for each in (job.run_s, job.size, job.limit_s))


def test_a_recorded_year_is_read_whole() -> None:
    trace = read_swf(*recorded("SDSC-DS-2004-2.1-cln.swf.xz"))
    assert (len(trace.jobs) + trace.never_ran, trace.broken, trace.size) == (96_069, (), 1_664)
