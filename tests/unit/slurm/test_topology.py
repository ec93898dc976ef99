"""Leaf switches: what ``scontrol show topology`` prints, hostile text, and how often it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.cluster import Job, JobState
from clearway.model.errors import SlurmRefusedError
from clearway.model.site import Topology
from clearway.slurm.parse import FieldError
from clearway.slurm.parse.site import read_leaf_switches
from clearway.slurm.site_settings import TOPOLOGY_AGAIN_S, TOPOLOGY_EVERY_S, TopologyReader
from tests.builders import job, urgent_job

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)

# As 22.05.8 and 26.05.5 print it for two leaf switches and one above them.
SHOWN = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[1-4]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=node[5-8]
SwitchName=top Level=1 LinkSpeed=1 Nodes=node[1-8] Switches=leaf[1-2]
"""
LEAVES = {f"node{at}": "leaf1" if at < 5 else "leaf2" for at in range(1, 9)}


def test_the_leaf_switch_of_each_node() -> None:
    assert read_leaf_switches(SHOWN) == LEAVES
    assert read_leaf_switches("\n" + SHOWN.replace("\n", " \n")) == LEAVES
    assert read_leaf_switches("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=a,b[08-09]\n") == dict.fromkeys(
        ("a", "b08", "b09"), "s1"
    )


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("", "no leaf switch"),
        ("No topology information available\n", "does not describe a switch"),
        ("SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n", "no leaf switch"),
        ("SwitchName=leaf1 Level=0 LinkSpeed=1\n", "no leaf switch"),
        ("SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=(null)\n", "no leaf switch"),
        ("BlockName=b1 BlockIndex=0 Nodes=node[1-4] BlockSize=4\n", "does not describe a switch"),
        (SHOWN + "BlockName=b1 BlockIndex=0 Nodes=node[1-4] BlockSize=4\n", "does not describe a switch"),
        (SHOWN.replace("node[5-8]", "node[4-8]", 1), "node4 is under two leaf switches, leaf1 and leaf2"),
        (SHOWN + SHOWN, "leaf1 is given twice"),
        (SHOWN.replace("Level=0", "Level=-1"), "does not describe a switch"),
        (SHOWN.replace("Level=0", "Level=0x0"), "does not describe a switch"),
        (SHOWN.replace("LinkSpeed=1", "LinkSpeed=1 Level=1", 1), "does not describe a switch"),
        (SHOWN.replace("leaf1", "lea\x1b[31mf1", 1), "does not describe a switch"),
        (SHOWN.replace("leaf1", "leaf1 Level=0", 1), "does not describe a switch"),
        (SHOWN.replace("leaf1", "l" * 200, 1), "does not describe a switch"),
        (SHOWN.replace("node[1-4]", "node[1-4", 1), "brackets"),
        (SHOWN.replace("node[1-4]", "node[1-9999999]", 1), "host list"),
        (SHOWN.replace("node[1-4]", "node[4-1]", 1), "host list"),
        (SHOWN.replace("node[1-4]", "node1;rm", 1), "host list"),
        ("SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n1 Switches=s2\n", "leaf switch, and yet has switches"),
        (SHOWN[:40], "does not describe a switch"),
        ('{"switches": []}', "does not describe a switch"),
    ],
)
def test_what_is_no_tree_of_switches_is_not_guessed_at(shown: str, why: str) -> None:
    with pytest.raises(FieldError, match=why) as raised:
        read_leaf_switches(shown)
    assert str(raised.value).isprintable()


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for shown in (text, SHOWN + text, SHOWN.replace("leaf1", text, 1)):
        try:
            found = read_leaf_switches(shown)
        except FieldError:
            continue
        assert found
        assert found.items() >= {k: v for k, v in LEAVES.items() if v == "leaf2"}.items()


class Scontrol:
    def __init__(self) -> None:
        self.shown, self.asked = SHOWN, 0

    def __call__(self, argv: Sequence[str]) -> str:
        assert list(argv) == ["scontrol", "show", "topology"]
        self.asked += 1
        if not self.shown:
            raise SlurmRefusedError("scontrol: no")
        return self.shown


ASKS = urgent_job(switches=1)


@pytest.mark.parametrize(
    "jobs",
    [[], [urgent_job()], [job(switches=1)], [job(state=JobState.ENDED, switches=1)]],
    ids=["no job", "no switches", "it runs", "it has ended"],
)
def test_nothing_is_asked_while_no_waiting_job_wants_few_switches(jobs: list[Job]) -> None:
    scontrol = Scontrol()
    assert TopologyReader().read(scontrol, jobs, NOW) == (Topology(), 0)
    assert scontrol.asked == 0


def test_it_is_read_anew_every_five_minutes() -> None:
    scontrol, reader = Scontrol(), TopologyReader()
    assert reader.read(scontrol, [ASKS], NOW) == (Topology(LEAVES, ""), 1)
    scontrol.shown = SHOWN.replace("leaf", "rack")
    for later_s in (1, TOPOLOGY_EVERY_S - 1):
        assert reader.read(scontrol, [ASKS], NOW + timedelta(seconds=later_s)) == (Topology(LEAVES, ""), 0)
    found, queries = reader.read(scontrol, [ASKS], NOW + timedelta(seconds=TOPOLOGY_EVERY_S))
    assert (found.switch_of["node1"], queries, scontrol.asked) == ("rack1", 1, 2)


@pytest.mark.parametrize("shown", ["", "No topology information available"], ids=["refused", "no topology"])
def test_what_cannot_be_read_is_not_known_and_asked_for_again_after_a_minute(shown: str) -> None:
    scontrol, reader = Scontrol(), TopologyReader()
    reader.read(scontrol, [ASKS], NOW)
    scontrol.shown = shown
    later = NOW + timedelta(seconds=TOPOLOGY_EVERY_S)
    found, queries = reader.read(scontrol, [ASKS], later)
    assert (found.switch_of, queries) == ({}, 1)  # what was known before is not believed any longer
    assert found.unknown.startswith("scontrol show topology: ")
    scontrol.shown = SHOWN
    assert reader.read(scontrol, [ASKS], later + timedelta(seconds=TOPOLOGY_AGAIN_S - 1)) == (found, 0)
    assert reader.read(scontrol, [ASKS], later + timedelta(seconds=TOPOLOGY_AGAIN_S)) == (Topology(LEAVES, ""), 1)
