"""A shared file system, by numbers worked out by hand and by what must hold for any writers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.simulation.cluster import SimulatedCluster
from clearway.simulation.jobs import FileSystem, Program, fair_rates
from tests.builders import NOW, after, node


def test_rates_worked_out_by_hand() -> None:
    assert fair_rates({}, 10) == {}
    assert fair_rates({"a": 4, "b": 9, "c": 1}, 100) == {"a": 4, "b": 9, "c": 1}
    assert fair_rates({"a": 4, "b": 9, "c": 1}, 9) == {"a": 4, "b": 4, "c": 1}
    assert fair_rates({"a": 4, "b": 9, "c": 1}, 3) == {"a": 1, "b": 1, "c": 1}


@given(st.dictionaries(st.text(max_size=2), st.floats(0.01, 100), min_size=1), st.floats(0.1, 500))
def test_sharing_is_fair_and_never_idle(greatest: dict[str, float], bandwidth: float) -> None:
    rates = fair_rates(greatest, bandwidth)
    assert sum(rates.values()) == pytest.approx(min(bandwidth, sum(greatest.values())))
    most = max(rates.values())
    assert all(rate == pytest.approx(min(greatest[name], most)) for name, rate in rates.items())


def test_a_write_that_begins_later_slows_the_others() -> None:
    """100 MiB each at up to 8 of 10 MiB/s: 5 s alone, then 5 MiB/s each; 40 MiB + 12 s, then 8 MiB/s for the rest."""
    system = FileSystem(NOW, 10)
    system.begin("1", 100, 8, NOW)
    assert system.next_end() == after(12.5)
    system.begin("2", 100, 8, after(5))
    assert system.next_end() == after(17)
    system.advance(after(17))
    assert system.complete == ("1",)
    system.forget("1")
    assert system.next_end() == after(22)
    system.advance(after(22))
    assert system.complete == ("2",)


def test_a_job_that_leaves_writes_no_more() -> None:
    cluster = SimulatedCluster(now=NOW, file_system_mib_s=10)
    cluster.add_nodes([node("n1"), node("n2")])
    program = Program(save_mib=100, save_mib_s=10)
    stays, leaves = (cluster.jobs[cluster.submit(program, on=(name,), ran_s=60)] for name in ("n1", "n2"))
    for entry in (stays, leaves):
        cluster.signalled(entry)
    cluster.advance(after(4))
    cluster.end_run(leaves, requeue=True)
    cluster.advance(after(11))
    assert stays.saved_s == 0
    cluster.advance(after(12))
    assert stays.saved_s == 72, "20 MiB in 4 s, 80 MiB in 8 s"
    assert leaves.saved_s == 0
