"""Single values, host lists and states."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.cluster import JobState
from clearway.slurm import parse
from clearway.slurm.parse import fields


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
        ("N/A", None),
        ("0:00", 0),
        ("10:00", 600),
        ("1:02:03", 3723),
        ("2-03:04:05", 183_845),
        ("1-00", 86_400),
        ("90", 5400),
        ("INVALID", None),  # of sbatch --time=1000000-0
        ("900000000-00:00:00", fields.LONGEST_S),
    ],
)
def test_duration(text: str, seconds: int | None) -> None:
    assert fields.duration_s(text, "TimeLimit") == seconds


@pytest.mark.parametrize("text", ["x", "1:2:3:4", "-5", "1-", "10:00 ", "\u0661\u0660:00", "9" * 30])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(parse.FieldError, match="TimeLimit"):
        fields.duration_s(text, "TimeLimit")


def test_time() -> None:
    assert fields.time("2026-11-21T09:47:28", "StartTime") == datetime(2026, 11, 21, 9, 47, 28, tzinfo=UTC)
    assert fields.time("Unknown", "StartTime") is None
    for text in ("13434-12-20T21:40:00", "9999-12-31T23:59:59", "99999999999-01-01T00:00:00"):
        assert fields.time(text, "EligibleTime") == fields.LATEST, "a user's --begin: sums with it stay dates"
    for text in ("21 Nov 09:47", "2026-W47-6", "2026-11-31T09:47:28", "2026-11-21T09:47:28+01:00"):
        with pytest.raises(parse.FieldError, match="StartTime"):
            fields.time(text, "StartTime")


@pytest.mark.parametrize(("text", "mib"), [("1000M", 1000), ("2G", 2048), ("1.50G", 1536), ("512K", 0.5), ("7", 7)])
def test_size(text: str, mib: float) -> None:
    assert fields.size_mib(text, "mem") == mib


@pytest.mark.parametrize("text", ["", "M", "-1M", "1Q", "nan", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(parse.FieldError, match="mem"):
        fields.size_mib(text, "mem")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("node7", ("node7",)),
        ("node[1-3,07],gpu", ("node1", "node2", "node3", "node07", "gpu")),
        ("x[1-2]y[3-4]", ("x1y3", "x1y4", "x2y3", "x2y4")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("rack[1-2]-node-a.example", ("rack1-node-a.example", "rack2-node-a.example")),
        ("n[1-2],n2", ("n1", "n2")),
    ],
)
def test_expand(text: str, hosts: tuple[str, ...]) -> None:
    assert parse.expand(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "n[1-2",
        "n1-2]",
        "n[[1]]",
        "n[a-b]",
        "n[3-1]",
        "n[]",
        "n[1--2]",
        "a,,b",
        ",",
        "n1 n2",
        "n;m",
        "n[1-99999999]",
        "n[1-60000,1-60000]",
        "n[1-400]m[1-400]",
        "n[\u0661-\u0663]",
    ],
)
def test_what_is_no_host_list(text: str) -> None:
    with pytest.raises(parse.FieldError, match="host list"):
        parse.expand(text)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ((), ""),
        (("node3", "node1", "node2"), "node[1-3]"),
        (("node1", "node3"), "node[1,3]"),
        (("node1",), "node1"),
        (("n08", "n09", "gpu"), "gpu,n[08-09]"),
        (("n0", "n1"), "n[0-1]"),
        (("a-1", "a-2"), "a-[1-2]"),
    ],
)
def test_compress(hosts: tuple[str, ...], text: str) -> None:
    assert parse.compress(hosts) == text


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,6}[0-9]{0,4}(\.[a-z][0-9]{1,3})?", fullmatch=True)


@given(st.sets(NAMES, max_size=40))
def test_compress_and_expand_round_trip(hosts: set[str]) -> None:
    assert set(parse.expand(parse.compress(hosts))) == hosts


@given(st.text(alphabet="n[]0123456789,-ab. ", max_size=40))
def test_expand_of_anything_is_names_or_an_error(text: str) -> None:
    try:
        hosts = parse.expand(text, limit=1000)
    except parse.FieldError:
        return
    assert len(hosts) <= 1000
    assert all(host and not set(host) & set("[], ") for host in hosts)


@pytest.mark.parametrize(
    ("word", "on_nodes", "state"),
    [
        ("RUNNING", True, JobState.RUNNING),
        ("REQUEUED", False, JobState.PENDING),
        ("REQUEUED", True, JobState.COMPLETING),
        ("REQUEUE_HOLD", False, JobState.PENDING),
        ("RESV_DEL_HOLD", False, JobState.PENDING),
        ("RESIZING", True, JobState.UNKNOWN),
        ("SIGNALING", True, JobState.UNKNOWN),
        ("STAGE_OUT", True, JobState.UNKNOWN),
        ("STOPPED", True, JobState.UNKNOWN),
        ("REVOKED", False, JobState.ENDED),  # of a federated job: another cluster has started it
        ("EXPEDITING", True, JobState.UNKNOWN),
        ("running", True, JobState.UNKNOWN),
        ("", False, JobState.UNKNOWN),
        ("NODE_FAIL", False, JobState.ENDED),
        ("OUT_OF_MEMORY", False, JobState.ENDED),
    ],
)
def test_job_state(word: str, on_nodes: bool, state: JobState) -> None:
    assert parse.job_state(word, on_nodes=on_nodes) is state


def node_line(state: str, extra: str = "") -> str:
    return f"NodeName=n1 CPUAlloc=0 CPUTot=4 RealMemory=4000 State={state} Partitions=batch {extra}"


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("IDLE", True),
        ("MIXED", True),
        ("ALLOCATED+COMPLETING", True),
        ("MIXED+PLANNED", True),
        ("IDLE-", True),
        ("IDLE+CLOUD", True),
        ("IDLE+DYNAMIC_NORM", True),
        ("IDLE+RESERVED", True),
        ("IDLE+DRAIN", False),
        ("MIXED+DRAIN", False),
        ("IDLE*", False),
        ("IDLE+NOT_RESPONDING", False),
        ("DOWN*", False),
        ("DOWN", False),
        ("IDLE~", False),
        ("IDLE+CLOUD+POWERED_DOWN", False),
        ("IDLE+CLOUD+POWERING_UP", False),
        ("IDLE+REBOOT_REQUESTED", False),
        ("IDLE@", False),
        ("ALLOCATED$", False),
        ("IDLE+MAINTENANCE+RESERVED", False),
        ("IDLE+FAIL", False),
        ("MIXED+INVALID_REG", False),
        ("IDLE+BLOCKED", False),
        ("IDLE+SOMETHING_NEW", False),
        ("FUTURE", False),
        ("UNKNOWN", False),
    ],
)
def test_node_available(state: str, available: bool) -> None:
    (node,), skipped = parse.read_nodes(node_line(state))
    assert skipped == []
    assert (node.available, node.raw_state) == (available, state)


def test_node_memory_without_what_slurm_keeps() -> None:
    (node,), _ = parse.read_nodes(node_line("IDLE", "CPUEfctv=3 MemSpecLimit=500"))
    assert (node.cpus, node.memory_mib) == (3, 3500)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("NodeName=n1 State=idle? RealMemory=1 CPUTot=1", "State"),
        ("NodeName=n1 RealMemory=1 CPUTot=1", "State"),
        ("NodeName=n1 State=IDLE RealMemory=x CPUTot=1", "RealMemory"),
        ("NodeName=n1 State=IDLE RealMemory=1", "CPUTot"),
        ("something else", "NodeName"),
    ],
)
def test_a_node_that_cannot_be_read_is_skipped(line: str, why: str) -> None:
    nodes, (skipped,) = parse.read_nodes(f"{line}\n{node_line('IDLE').replace('n1', 'n2')}\n")
    assert [node.name for node in nodes] == ["n2"]
    assert skipped.kind == "node"
    assert why in skipped.why


def test_two_nodes_of_one_name_are_skipped() -> None:
    nodes, skipped = parse.read_nodes("\n".join([node_line("IDLE"), node_line("DOWN"), node_line("IDLE")]))
    assert nodes == []
    assert {item.ident for item in skipped} == {"n1"}


def test_a_reservation_that_cannot_be_read_is_skipped() -> None:
    text = "ReservationName=a StartTime=x EndTime=2026-11-21T10:00:00 Nodes=n1\n"
    found, (skipped,) = parse.read_reservations(text)
    assert found == []
    assert (skipped.kind, skipped.ident) == ("reservation", "a")
