"""The observer of the mixed day (tests/slurm/observer.py) finds each kind of fault, on a day written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy

from tests.slurm.observer import Observer, expanded

TABLES = (
    "CREATE TABLE evictions (eviction_id INTEGER, kind TEXT, state TEXT, outcome_code TEXT, preemptor_display_id TEXT)",
    """CREATE TABLE preemptions (eviction_id INTEGER, job_id TEXT, action TEXT, state TEXT, requeued_at TEXT,
        vacated_at TEXT, actual_lost_node_s REAL, note TEXT)""",
    "CREATE TABLE steps (step_id INTEGER PRIMARY KEY, job_id TEXT, kind TEXT, result TEXT)",
    "CREATE TABLE plans (eviction_id INTEGER, revision INTEGER, document TEXT)",
)
PLAN = json.dumps({"chosen": {"actions": [{"job_id": "7", "action": "kill"}]}})
BEGIN_S = 1_736_928_000  # 2025-01-15 08:00
NODE = "NodeName=node1 State=IDLE Reason="


@dataclass
class Site(Observer):
    """A job that left for an urgent one and is back, as Slurm and the database tell it."""

    jobs: dict[str, str] = field(default_factory=dict)
    node: str = NODE
    reservation: str = ""
    accounted: str = ""

    def slurm(self, *command: str) -> str:
        if command[0] == "sacct":
            return self.accounted
        return {"job": "\n".join(self.jobs.values()), "node": self.node, "reservation": self.reservation}[command[-1]]

    def tell(self, job_id: str, state: str = "RUNNING", user: str = "cwalice", **fields: str) -> None:
        told = {"JobId": job_id, "UserId": f"{user}(1)", "JobState": state, "Restarts": "0", "Requeue": "1"}
        told |= {"Nice": "5", "Comment": "mine", "Reason": "None", "NodeList": "node1"} | fields
        self.jobs[job_id] = " ".join(f"{name}={value}" for name, value in told.items())

    def act(self, what: str, job: str = "", **more: object) -> None:
        with self.acts.open("a") as acts:
            acts.write(json.dumps({"at": float(BEGIN_S), "what": what, "job": job} | more) + "\n")

    def change(self, statement: str) -> None:
        with self.database.begin() as connection:
            connection.execute(sqlalchemy.text(statement))

    def let_go(self, *job_ids: str) -> None:
        """As the first, but suspended."""
        for job_id in job_ids:
            as_it = "requeued_at, vacated_at, 0, '' FROM preemptions WHERE job_id = '7'"
            self.change(f"INSERT INTO preemptions SELECT 1, '{job_id}', 'suspend', state, {as_it}")

    def kinds(self) -> set[str]:
        self.judge()
        return {kind for kind, _ in self.faults}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(sqlalchemy.create_engine(f"sqlite:///{tmp_path}/day"), "", tmp_path / "acts")
    for statement in TABLES:
        site.change(statement)
    site.tell("7")
    site.tell("8", user="cwbob")
    site.tell("9", "COMPLETED")
    site.tell("6", Requeue="0")
    site.act("urgent", "9", asks="a node")
    site.look()
    site.change("INSERT INTO steps VALUES (1, '7', 'requeue', 'done')")
    site.change("INSERT INTO evictions VALUES (1, 'eviction', 'completed', 'started', '9')")
    site.change(f"INSERT INTO plans VALUES (1, 0, '{PLAN}')")
    times = "'2025-01-15 08:00:00.000000', '2025-01-15 08:00:03.000000'"
    site.change(f"INSERT INTO preemptions VALUES (1, '7', 'kill', 'returned', {times}, 100, '')")
    site.accounted = "\n".join((
        f"7|REQUEUED|{BEGIN_S - 98}|{BEGIN_S + 2}|1|100",
        f"7|RUNNING|{BEGIN_S + 60}|Unknown|1|0",
        f"9|COMPLETED|{BEGIN_S + 4}|{BEGIN_S + 50}|1|46",
    ))  # fmt: skip
    site.tell("7", Restarts="1")
    return site


def test_a_good_day_has_no_fault(site: Site) -> None:
    found = site.judge()
    assert found["faults"] == []
    assert (found["left"], found["urgent"]["ran"], found["urgent"]["median_wait_s"]) == (1, 1, 4.0)


FAULTS: dict[str, tuple[str, Callable[[Site], None]]] = {
    "a protected job was requeued": ("protected", lambda site: site.tell("8", user="cwbob", Restarts="1")),
    "a job that cannot be requeued was": ("protected", lambda site: site.tell("6", Requeue="0", Restarts="1")),
    "a protected job is suspended": ("protected", lambda site: site.tell("8", "SUSPENDED", user="cwbob")),
    "a protected job was cancelled": ("protected", lambda site: site.tell("8", "CANCELLED", user="cwbob")),
    "more jobs left than were planned": ("losses", lambda site: site.let_go("21", "22", "23", "24")),
    "an eviction is under way": ("left over", lambda site: site.change("UPDATE evictions SET state = 'returning'")),
    "a reservation stays": ("left over", lambda site: setattr(site, "reservation", "ReservationName=clearway_1_ab")),
    "a node stays drained": ("left over", lambda site: setattr(site, "node", NODE.replace("IDLE", "IDLE+DRAIN"))),
    "a job has another Nice": ("left over", lambda site: site.tell("7", Restarts="1", Nice="0")),
    "a job lost its Comment": ("left over", lambda site: site.tell("7", Restarts="1", Comment="")),
    "a job is in a reservation": ("left over", lambda site: site.tell("7", Restarts="1", Reservation="clearway_1_ab")),
    "an urgent job never ran": ("urgent", lambda site: site.act("urgent", "10", asks="a node")),
    "a record of a job that never left": (
        "records",
        lambda site: setattr(site, "accounted", site.accounted.replace("REQUEUED", "COMPLETED")),
    ),
    "a requeue that is not recorded": (
        "records",
        lambda site: setattr(site, "accounted", f"{site.accounted}\n8|REQUEUED|{BEGIN_S}|{BEGIN_S + 9}|1|9"),
    ),
    "a loss that was another": (
        "records",
        lambda site: site.change("UPDATE preemptions SET actual_lost_node_s = 900"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_each_fault_is_found(site: Site, what: str) -> None:
    kind, do = FAULTS[what]
    do(site)
    assert kind in site.kinds()


def test_a_requeue_without_an_intent_is_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.slurm.observer.SECOND_S", -1.0)
    site.change("DELETE FROM steps")
    assert site.kinds() == {"intent"}


def test_what_others_did_is_no_fault(site: Site) -> None:
    site.act("requeue", "8")
    site.act("change", "6", fields=["Requeue"])
    site.change("INSERT INTO steps VALUES (2, '6', 'requeue', 'done')")
    site.tell("6", Requeue="1", Restarts="1")
    site.act("change", "7", fields=["Nice", "Comment"])
    site.act("urgent", "10", asks="a node")
    site.act("cancel", "10")
    site.tell("8", user="cwbob", Restarts="1")
    site.tell("7", Restarts="1", Nice="0", Comment="other")
    site.accounted += f"\n8|REQUEUED|{BEGIN_S}|{BEGIN_S + 9}|1|9"
    assert site.kinds() == set()


def test_host_lists() -> None:
    assert expanded("node[1-3,7],login") == ["node1", "node2", "node3", "node7", "login"]
    assert expanded("") == []
