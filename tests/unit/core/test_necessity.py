"""Whether Slurm's own preemption may start an urgent job: what it says of itself, and what the nodes say."""

from __future__ import annotations

import pytest

from clearway.model.cluster import Job, JobState, PreemptPriorities
from clearway.model.plan import Preemptor
from clearway.preemption.proposals import slurm_preempts
from clearway.slurm.parse import site
from tests.builders import after, job, node, snapshot, urgent_job

PARTITIONS = """\
PartitionName=batch GraceTime=0 Nodes=n[1-4] PriorityTier=1 OverSubscribe=NO PreemptMode=REQUEUE State=UP
PartitionName=slow GraceTime=90 Nodes=n[1-4] PriorityTier=1 OverSubscribe=NO PreemptMode=GANG,SUSPEND State=UP
PartitionName=standing GraceTime=0 Nodes=n[1-4] PriorityTier=1 OverSubscribe=NO PreemptMode=OFF State=UP
PartitionName=top GraceTime=0 Nodes=n[1-4] PriorityTier=9 OverSubscribe=NO PreemptMode=REQUEUE State=UP
"""
QOS = """\
QOS=normal(1)
    GraceTime=30
    Preempt=
    Priority=0
QOS=high(2)
    Preempt=normal,low
    Priority=9
"""


def test_what_slurm_says() -> None:
    found = site.preempted_partitions(PARTITIONS)
    assert found["top"] == {"batch", "slow"}
    assert not found["batch"]
    assert not found["standing"]
    assert site.longest_grace_s(PARTITIONS) == 90
    assert site.preempted_qos(QOS) == {"high": {"normal", "low"}}


@pytest.mark.parametrize(
    ("kind", "mode", "does"),
    [
        ("preempt/partition_prio", "REQUEUE", True),
        ("preempt/qos", "GANG,SUSPEND", True),
        ("preempt/qos", "OFF", False),
        ("preempt/partition_prio", "GANG", False),
        ("preempt/none", "REQUEUE", False),
    ],
)
def test_whether_slurm_preempts(kind: str, mode: str, does: bool) -> None:
    config = f"PreemptMode             = {mode}\nPreemptType             = {kind}\nPreemptExemptTime       = 00:00:00\n"
    assert site.preempts(config) is does


PRIORITIES = PreemptPriorities(preempts=site.preempted_partitions(PARTITIONS))


def preemptor(of: Job) -> Preemptor:
    return Preemptor(of, "urgent", 60, after(60))


@pytest.mark.parametrize(
    ("on_nodes", "wanted", "exclusive", "does"),
    [
        (["batch", "standing"], 1, True, True),
        (["batch", "standing"], 2, True, False),
        (["batch", "batch"], 2, True, True),
        (["batch+standing"], 1, True, False),
        (["batch+standing"], 1, False, True),  # a part of a node, which one of them leaves
        (["standing"], 1, False, False),
    ],
)
def test_whether_it_could_start_this_job(on_nodes: list[str], wanted: int, exclusive: bool, does: bool) -> None:
    jobs, nodes = [], []
    for number, partitions in enumerate(on_nodes):
        name = f"n{number}"
        nodes.append(node(name, partitions=("batch", "top")))
        jobs += [job(f"{number}{at}", (name,), partitions=(each,)) for at, each in enumerate(partitions.split("+"))]
    urgent = urgent_job("9", wanted, partitions=("top",), exclusive=exclusive)
    assert slurm_preempts(preemptor(urgent), snapshot([*jobs, urgent], nodes, preempt_priorities=PRIORITIES)) is does
    assert not slurm_preempts(preemptor(urgent), snapshot([*jobs, urgent], nodes))


def test_a_job_on_its_way_out_counts_as_gone() -> None:
    leaving = job("1", ("n1",), JobState.COMPLETING, partitions=("standing",))
    urgent = urgent_job("9", 1, partitions=("top",))
    nodes = [node("n1", partitions=("top",))]
    assert slurm_preempts(preemptor(urgent), snapshot([leaving, urgent], nodes, preempt_priorities=PRIORITIES))


def test_by_qos() -> None:
    priorities = PreemptPriorities(of_qos=True, preempts=site.preempted_qos(QOS))
    assert priorities.takes(job("1", qos="normal"), urgent_job(qos="high"))
    assert not priorities.takes(job("1", qos="high"), urgent_job(qos="high"))
    assert not priorities.takes(job("1", qos="high"), urgent_job(qos="normal"))
