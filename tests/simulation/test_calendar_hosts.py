"""Two hosts that take turns with different files: an older or missing one never takes back what a newer one made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from clearway.model.events import CalendarRead, Event, fan_out
from clearway.model.operations import Promise
from clearway.promise.calendar_controller import AGAIN
from tests.simulation.promised import ask_to_cancel
from tests.simulation.world import World, config


@dataclass
class Hosts:
    """``a`` and ``b``, each with a file of its own; one daemon at a time has the lease."""

    world: World
    folder: Path
    reads: list[CalendarRead] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.world.clock.now()

    def file(self, host: str) -> Path:
        return self.folder / f"{host}.ics"

    def put(
        self, host: str, events: Mapping[str, str], written_s: float, version: Mapping[str, str] | None = None
    ) -> None:
        """``events``: by UID when (s from the beginning on), and how many nodes; ``written_s``: when, likewise."""
        text = "".join(
            self._event(uid, *each.split(" for "), (version or {}).get(uid, "")) for uid, each in events.items()
        )
        file = self.file(host)
        file.write_text(f"BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{text}END:VCALENDAR\r\n")
        at = self.start.timestamp() + written_s
        os.utime(file, (at, at))

    def _event(self, uid: str, in_s: str, nodes: str, version: str) -> str:
        at = self.start + timedelta(seconds=float(in_s))
        return (
            f"BEGIN:VEVENT\r\nUID:{uid}\r\nDTSTART:{at.astimezone(UTC):%Y%m%dT%H%M%SZ}\r\nDURATION:PT10M\r\n{version}"
            f"DESCRIPTION:nodes: {nodes}\\npartition: batch\\nusers: beam\r\nEND:VEVENT\r\n"
        )

    def lead(self, host: str) -> str:
        """A daemon of this host is started and looks at its file; what it complains of."""
        self.world.store.close()
        self.world.config = config(promises={"hold": "300s", "calendar": str(self.file(host)), "calendar_ahead": "30d"})
        self.world.start_daemon(owner=f"{host} pid 1 unknown", emit=fan_out(self.world.observer, self._hear))
        self.reads.clear()
        # The other one's lease, and what is looked at again after a while.
        self.world.run_until(lambda: bool(self.reads), AGAIN.total_seconds(), 5)
        return "; ".join(self.reads[-1].complaints)

    def _hear(self, event: Event) -> None:
        if isinstance(event, CalendarRead):
            self.reads.append(event)

    def promises(self) -> dict[str, Promise]:
        """Those that have not ended."""
        return {e.order.event: e for e in self.world.store.open_evictions() if isinstance(e, Promise)}

    def nodes(self) -> dict[str, int]:
        return {uid: e.order.nodes for uid, e in self.promises().items()}


@pytest.fixture
def hosts(make_world: Callable[..., World], tmp_path: Path) -> Hosts:
    return Hosts(make_world(config=config()), tmp_path)


def test_an_older_file_changes_nothing_and_a_newer_one_is_followed(hosts: Hosts) -> None:
    hosts.put("a", {"x": "9000 for 2"}, -300)
    hosts.put("b", {"x": "9000 for 2"}, -300)
    assert (hosts.lead("a"), hosts.lead("b")) == ("", "")
    hosts.put("a", {"x": "9000 for 3", "y": "9900 for 1"}, -200)
    assert hosts.lead("a") == ""
    assert hosts.nodes() == {"x": 3, "y": 1}
    told = hosts.lead("b")
    assert f"{hosts.file('b')}: it is older than the one that was followed on a" in told
    assert f"touch {hosts.file('b')}" in told
    assert hosts.nodes() == {"x": 3, "y": 1}
    hosts.put("b", {"x": "9000 for 4"}, -100)  # which leaves out y, that this host has never had
    told = hosts.lead("b")
    number = hosts.promises()["y"].eviction_id
    assert told == (
        f"promise {number} is for event y, which the file on b has never had: it stays "
        f"(clearway promise --cancel {number})"
    )
    assert hosts.nodes() == {"x": 4, "y": 1}
    ask_to_cancel(hosts.world, hosts.promises()["y"])
    hosts.world.tick()
    assert hosts.nodes() == {"x": 4}


def test_what_a_newer_file_took_out_an_older_one_does_not_bring_back(hosts: Hosts) -> None:
    hosts.put("b", {"x": "9000 for 2", "y": "9900 for 1"}, -300)
    hosts.put("a", {"x": "9000 for 2", "y": "9900 for 1"}, -300)
    assert (hosts.lead("b"), hosts.lead("a")) == ("", "")
    hosts.put("a", {"x": "9000 for 2"}, -200)
    assert hosts.lead("a") == ""
    assert hosts.nodes() == {"x": 2}
    assert "it is older" in hosts.lead("b")
    assert hosts.nodes() == {"x": 2}


def test_a_missing_file_withdraws_nothing(hosts: Hosts) -> None:
    hosts.put("a", {"x": "9000 for 2"}, -300)
    assert hosts.lead("a") == ""
    assert "No such file" in hosts.lead("b")
    assert hosts.nodes() == {"x": 2}
    hosts.file("a").unlink()
    assert "No such file" in hosts.lead("a")
    assert hosts.nodes() == {"x": 2}


def test_the_second_host_withdraws_what_is_taken_out_of_its_own_file(hosts: Hosts) -> None:
    for host in "ab":
        hosts.put(host, {"x": "9000 for 2", "y": "9900 for 1"}, -300)
        assert hosts.lead(host) == ""
    hosts.put("b", {"x": "9000 for 2"}, -200)
    assert hosts.lead("b") == ""
    assert hosts.nodes() == {"x": 2}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("SEQUENCE:3\r\n", "SEQUENCE:2\r\nLAST-MODIFIED:20300101T000000Z\r\n"),
        ("LAST-MODIFIED:20270201T000000Z\r\n", "LAST-MODIFIED:20270131T235959Z\r\n"),
        ("SEQUENCE:1\r\n", ""),
    ],
)
def test_an_older_version_in_a_newer_file_is_not_taken(hosts: Hosts, new: str, old: str) -> None:
    hosts.put("a", {"x": "9000 for 3", "y": "9900 for 1"}, -300, {"x": new})
    assert hosts.lead("a") == ""
    version = {"x": old or "SEQUENCE:0\r\n"}
    hosts.put("b", {"x": "9000 for 2", "y": "9900 for 2"}, -200, version)
    told = hosts.lead("b")
    assert told == "event of UID x: an older version than was followed before; what is promised for it stays"
    assert hosts.nodes() == {"x": 3, "y": 2}
    hosts.put("b", {"x": "9000 for 4", "y": "9900 for 2"}, -100, {"x": new})
    assert hosts.lead("b") == ""
    assert hosts.nodes() == {"x": 4, "y": 2}


def test_an_older_version_that_is_cancelled_withdraws_nothing(hosts: Hosts) -> None:
    hosts.put("a", {"x": "9000 for 3"}, -300, {"x": "SEQUENCE:3\r\n"})
    assert hosts.lead("a") == ""
    hosts.put("b", {"x": "9000 for 3"}, -200, {"x": "SEQUENCE:2\r\nSTATUS:CANCELLED\r\n"})
    assert "an older version" in hosts.lead("b")
    assert hosts.nodes() == {"x": 3}
    hosts.put("b", {"x": "9000 for 3"}, -100, {"x": "SEQUENCE:4\r\nSTATUS:CANCELLED\r\n"})
    assert hosts.lead("b") == ""
    assert hosts.nodes() == {}
