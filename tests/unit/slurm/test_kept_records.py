"""What is kept of Slurm's last answer: a snapshot equals one that is made from nothing, whatever has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.cluster import JobState
from clearway.model.errors import SlurmRefusedError, SlurmTimeoutError
from clearway.slurm import kept_records, parse
from clearway.slurm.cli import CliBackend
from clearway.slurm.kept_records import Ask, JobRecords, NodeRecords
from clearway.slurm.process import Take
from tests.unit.slurm.fake_slurm import NODE, NOW, WAITING, Clock, FakeSlurm
from tests.unit.slurm.test_hostile import GOOD

CHANGES = {
    "State": ("RUNNING", "PENDING", "COMPLETED", "TELEPORTING"),
    "NodeList": ("node[1-2]", "node3", "", "node[1-"),
    "PriorityLong": ("100", "7", "many"),
    "StartTime": ("2026-11-21T09:47:28", "2026-11-21T11:00:00", "N/A", "soon"),
    "EndTime": ("2026-11-21T10:47:28", "2026-11-21T12:00:00", "NONE", "soon"),
    "Comment": ("(null)", "clearway:max_delay=60s", " PriorityLong=7", "\n101|"),
    "RestartCnt": ("0", "1", "often"),
    "NumTasks": ("1", "64"),
    "NumCPUs": ("8", "64"),
    "tres-per-job": ("N/A", "gres:gpu:8"),
    "Licenses": ("(null)", "matlab"),
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {"JobID": st.sampled_from(["101", "102", "103", "104"])},
        optional={column: st.sampled_from(values) for column, values in CHANGES.items()},
    ),
    max_size=5,
)
TEXTS = ("", "low FreeMem=5", "low FreeMem=6", "CPULoad=3 Reason=CPULoad=4")
NODES = st.lists(
    st.builds(
        "NodeName={} CPUAlloc={} CPUTot=8 CPULoad={} OS=Linux #1  RealMemory={} FreeMem={} State={} Partitions=batch "
        "LastBusyTime={} Reason={} [root@2026-03-02T12:00:07]".format,
        st.sampled_from(["n1", "n2", "n3"]),
        st.sampled_from(["0", "8"]),
        st.integers(0, 3),
        st.sampled_from(["4000", "256000", "much"]),
        st.integers(0, 3),
        st.sampled_from(["IDLE", "MIXED", "IDLE+DRAIN", "?"]),
        st.integers(0, 3),
        st.sampled_from(TEXTS),
    ),
    max_size=4,
)
ANSWERS = st.lists(st.tuples(ROWS, NODES), min_size=1, max_size=4)


def backend_of(slurm: FakeSlurm, clock: Clock) -> CliBackend:
    backend = CliBackend(now=clock, sleep=clock.sleep)
    backend._commands = slurm  # type: ignore[assignment]
    return backend


def in_pieces(text: str) -> Ask:
    """An answer as it comes: its pieces end anywhere."""
    size = 1 + len(text) % 97

    def ask(take: Take) -> None:
        for at in range(0, len(text), size):
            take(text[at : at + size])

    return ask


@given(ANSWERS)
def test_a_snapshot_equals_one_that_is_made_from_nothing(answers: list[tuple[list[dict[str, str]], list[str]]]) -> None:
    slurm, clock = FakeSlurm(), Clock()
    slurm.shown["licenses"] = "No licenses configured in Slurm."
    kept = backend_of(slurm, clock)
    assert answers
    for rows, nodes in answers:
        slurm.rows = [GOOD | row for row in rows]
        slurm.shown["node"] = "\n".join(nodes)
        found, anew = kept.snapshot(), backend_of(slurm, clock).snapshot()
        assert replace(found, queries=0) == replace(anew, queries=0)


@given(st.lists(st.tuples(ROWS, st.sampled_from(["", "7|few", "cut off"])), min_size=1, max_size=4))
def test_what_is_broken_is_told_as_if_it_was_read_for_the_first_time(
    answers: list[tuple[list[dict[str, str]], str]],
) -> None:
    kept = JobRecords()
    assert answers
    for rows, broken in answers:
        token = kept.token
        texts = [f"|{token}|".join((GOOD | row).values()) + f"|{token}$\n" for row in rows]
        if broken:
            texts.append(broken if broken == "cut off" else f"{broken}|{token}$\n")
        text = "".join(texts)
        assert kept.read(in_pieces(text), parse.JOB_COLUMNS) == parse.read_jobs(text, token)
        assert (kept.token != token) is bool(broken), "a token is trusted until a record does not add up"


@given(st.lists(NODES, min_size=1, max_size=4), st.sampled_from(["", "Nonsense", "NodeName=", "   "]))
def test_nodes_are_told_as_if_they_were_read_for_the_first_time(answers: list[list[str]], more: str) -> None:
    kept = NodeRecords()
    assert answers
    for lines in answers:
        text = "\n".join([*lines, more])
        assert kept.read(in_pieces(text)) == parse.read_nodes(text)


def test_a_record_that_has_not_changed_is_the_same_object() -> None:
    slurm, clock = FakeSlurm([GOOD | {"JobID": "101"}, GOOD | WAITING | {"JobID": "102", "NumTasks": "64"}]), Clock()
    backend = backend_of(slurm, clock)
    first = backend.snapshot()
    slurm.rows[1] |= {"StartTime": "2026-11-21T13:00:00", "EndTime": "2026-11-21T14:00:00"}  # a guess
    slurm.shown["node"] = f"{NODE} CPULoad=7.3"
    then = backend.snapshot()
    slurm.shown["node"] = f"{NODE} CPULoad=9.1"
    last = backend.snapshot()
    assert all(one is other for one, other in zip(first.jobs, last.jobs, strict=True))
    assert then.nodes[0] is last.nodes[0]


def test_nothing_is_found_anew_of_jobs_that_have_not_changed() -> None:
    slurm, clock = FakeSlurm([GOOD | {"JobID": "101"}, GOOD | WAITING | {"JobID": "102"}]), Clock()
    backend = backend_of(slurm, clock)
    first = backend.snapshot()
    assert [job.job_id for job in first.pending] == ["102"]
    then = backend.snapshot()
    assert then.jobs is first.jobs
    assert then.pending is first.pending
    slurm.rows[1] |= GOOD | {"JobID": "102"}
    last = backend.snapshot()
    assert last.jobs is not first.jobs
    assert not last.pending
    assert [job.job_id for job in last.holders] == ["101", "102"]


def test_excluded_nodes_that_a_fresh_look_found_are_in_the_next_snapshot() -> None:
    slurm, clock = FakeSlurm([GOOD | WAITING | {"JobID": "102"}]), Clock()
    backend = backend_of(slurm, clock)
    assert backend.snapshot().jobs[0].excluded_nodes == ("n3", "n4")
    slurm.excluded = "node7"
    assert backend.job("102") is not None
    assert backend.snapshot().jobs[0].excluded_nodes == ("node7",)


def test_a_token_serves_for_a_while_and_records_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_records, "_ANSWERS", 2)
    kept, tokens, jobs = JobRecords(), set(), []
    for _ in range(6):
        tokens.add(kept.token)
        text = f"|{kept.token}|".join(GOOD.values()) + f"|{kept.token}$\n"
        jobs.append(kept.read(in_pieces(text), parse.JOB_COLUMNS)[0][0])
    assert len(tokens) == 3
    assert all(job is jobs[0] for job in jobs)


def test_the_token_is_in_nothing_that_is_told_and_another_one_follows_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm, clock = FakeSlurm([GOOD | {"JobID": "101"}, GOOD | {"JobID": "102", "NumCPUs": "many"}]), Clock()
    backend = backend_of(slurm, clock)
    backend.snapshot()
    token = backend._job_records.token
    told = repr(backend.snapshot()) + repr(slurm.reads)
    assert backend._job_records.token == token
    assert token not in told

    def refuse(*_: object) -> str:
        raise SlurmRefusedError(f"Invalid job format specification: |{token}|")

    monkeypatch.setattr(slurm, "_squeue", refuse)
    with pytest.raises(SlurmRefusedError):
        backend.snapshot()
    assert backend._job_records.token != token, "the error is told"


def test_pieces_of_an_answer_that_ends_in_an_error_count_for_nothing() -> None:
    rows = [GOOD | {"JobID": job_id} for job_id in ("101", "102")]
    kept = JobRecords()
    text = "".join(f"|{kept.token}|".join(row.values()) + f"|{kept.token}$\n" for row in rows)
    known = kept.read(in_pieces(text), parse.JOB_COLUMNS)

    def cut_off(take: Take) -> None:
        take(text[: len(text) * 3 // 4].replace("node", "other"))
        raise SlurmTimeoutError("squeue did not answer within 15 s")

    with pytest.raises(SlurmTimeoutError):
        kept.read(cut_off, parse.JOB_COLUMNS)
    again = kept.read(in_pieces(text), parse.JOB_COLUMNS)
    assert again == known
    assert again[0] is known[0]
    assert len(again[0]) == 2


def test_of_a_waiting_job_with_another_priority_that_is_set() -> None:
    slurm, clock = FakeSlurm([GOOD | WAITING]), Clock()
    backend = backend_of(slurm, clock)
    (before,) = backend.snapshot().jobs
    slurm.rows[0]["PriorityLong"] = "4711"
    (after,) = backend.snapshot().jobs
    assert after == replace(before, priority=4711)
    assert (after.state, backend.snapshot().taken_at) == (JobState.PENDING, NOW)
