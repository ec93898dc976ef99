"""Watches a cluster and the daemons' database from outside: what must never be, and what must be so in the end.

DATABASE SLURM_CONF ACTS REPORT. A process of its own that knows nothing of the daemon's code: it asks scontrol and
sacct, reads the tables (docs/reference/database.md), and is told in ACTS, a file of JSON lines, what others did
themselves; each is written before it is done. After ``over`` it judges the whole day and writes REPORT, as JSON.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import sqlalchemy

PROTECTED = "cwbob"
KEPT = ("Nice", "Priority", "ExcNodeList", "ReqNodeList", "Partition", "Requeue", "Features", "Licenses")
GONE = re.compile("COMPLETED|CANCELLED|FAILED|TIMEOUT|NODE_FAIL|DEADLINE|OUT_OF_MEMORY")
LEAVES = ("requeue", "cancel_job", "suspend")  # kinds of steps that end or stop a job's run
SECOND_S = 2.0  # Slurm and slurmdbd tell whole seconds, and not all of the same one
PASSING_S = 20.0  # what is so for no longer need not be a fault: slurmdbd is told late


def expanded(text: str) -> list[str]:
    """Of ``node[1-3,7]`` all names."""
    names: list[str] = []
    for stem, ranges, single in re.findall(r"([^,\[\]]+)\[([^\]]+)\]|([^,\[\]]+)", text):
        if single:
            names.append(single)
        for part in ranges.split(",") if ranges else ():
            first, _, last = part.partition("-")
            names += [f"{stem}{number}" for number in range(int(first), int(last or first) + 1)]
    return names


@dataclass(frozen=True)
class Run:
    """One run of a job, as sacct tells it."""

    state: str
    start: float | None
    end: float | None
    nodes: int
    ran_s: float  # without the time that it stood suspended


@dataclass
class Observer:
    database: sqlalchemy.Engine
    conf: str
    acts: Path
    faults: dict[tuple[str, str], str] = field(default_factory=dict)  # by kind and what it is about
    first: dict[str, dict[str, str]] = field(default_factory=dict)  # by job id
    last: dict[str, dict[str, str]] = field(default_factory=dict)
    done: list[dict[str, Any]] = field(default_factory=list)  # by others
    most_on_a_node: int = 1
    looks: int = 0
    blind: int = 0  # looks at which Slurm or the database did not answer
    _unexplained: dict[str, float] = field(default_factory=dict)  # restarts without an intent, and since when

    # -- what is asked ---------------------------------------------------------------------------------------------

    def slurm(self, *command: str) -> str:
        env = {**os.environ, "SLURM_CONF": self.conf, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=20, check=True).stdout

    def records(self, what: str) -> list[dict[str, str]]:
        lines = [line for line in self.slurm("scontrol", "-o", "show", what).splitlines() if re.match(r"\w+=", line)]
        parts = (re.split(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=", line.strip()) for line in lines)
        return [dict(zip(each[1::2], map(str.strip, each[2::2]), strict=True)) for each in parts]

    def rows(self, query: str, **values: object) -> list[dict[str, Any]]:
        with self.database.connect() as connection:
            found = connection.execute(sqlalchemy.text(query), values).mappings()
            return [{name: seconds(value) for name, value in row.items()} for row in found]

    def runs(self) -> dict[str, list[Run]]:
        columns = "JobIDRaw,State,Start,End,NNodes,ElapsedRaw"
        told = self.slurm("sacct", "-aXDnP", "--starttime=now-6hours", "-o", columns)
        found = defaultdict(list)
        for line in told.splitlines():
            job_id, state, start, end, nodes, ran_s = line.split("|")
            run = Run(state.split()[0], moment(start), moment(end), int(nodes or 0), float(ran_s or 0))
            found[job_id].append(run)
        return found

    def acts_on(self, job: dict[str, str]) -> Iterator[dict[str, Any]]:
        """What others did to a job, or to the whole array or heterogeneous job that it is of."""
        names = {job.get(name) for name in ("JobId", "ArrayJobId", "HetJobId")}
        return (act for act in self.done if act.get("job") in names)

    def acted(self, what: str, job_id: str) -> int:
        """How often others did so to a job."""
        return sum(act["what"] == what for act in self.acts_on(self.first.get(job_id, {"JobId": job_id})))

    def changed(self, job: dict[str, str]) -> set[str]:
        """Fields that others changed."""
        return {name for act in self.acts_on(job) for name in act.get("fields", ())}

    def fault(self, kind: str, about: str, text: str) -> None:
        if (kind, about) not in self.faults:
            print(f"{datetime.now(tz=UTC):%H:%M:%S} {kind}: {text}", flush=True)
        self.faults.setdefault((kind, about), text)

    # -- once a second ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        self.looks += 1
        jobs = [job for job in self.records("job") if "JobState" in job]
        self.done = [json.loads(line) for line in self.acts.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        on = Counter(
            chain.from_iterable(expanded(job.get("NodeList", "")) for job in jobs if job["JobState"] == "RUNNING")
        )
        self.most_on_a_node = max([self.most_on_a_node, *on.values()])
        for job in jobs:
            self.first.setdefault(job["JobId"], job)
            self.last[job["JobId"]] = job
            self.look_at(job)

    def look_at(self, job: dict[str, str]) -> None:
        job_id, state = job["JobId"], job["JobState"]
        ours = int(job["Restarts"]) - self.acted("requeue", job_id)
        told = f"job {job_id} of {job['UserId']} ({state}, Restarts={job['Restarts']}, {job.get('Reason')})"
        protected = job["UserId"].startswith(PROTECTED)
        for_once = self.first[job_id]["Requeue"] == "0" and "Requeue" not in self.changed(job)
        if (protected or for_once) and ours > 0:
            self.fault("protected", job_id, f"{told} was requeued")
        if (protected or for_once) and state in ("CANCELLED", "PREEMPTED") and not self.acted("cancel", job_id):
            self.fault("protected", job_id, f"{told} was cancelled")
        if protected and state == "SUSPENDED":
            self.fault("protected", job_id, f"{told} is suspended")
        if ours > 0 and self.intents(job_id) < ours:
            since = self._unexplained.setdefault(job_id, time.time())
            if time.time() - since > SECOND_S:
                self.fault("intent", job_id, f"{told} was requeued, and {self.intents(job_id)} intents are stored")
        else:
            self._unexplained.pop(job_id, None)

    def intents(self, job_id: str) -> int:
        return len(self.rows("SELECT step_id FROM steps WHERE job_id = :job AND kind = 'requeue'", job=job_id))

    # -- in the end ------------------------------------------------------------------------------------------------

    def judge(self) -> dict[str, Any]:
        self.look()
        self.judge_leftovers()
        self.judge_losses()
        urgent = self.judge_urgent()
        while True:  # slurmdbd is told late
            found = list(self.differences())
            if not found or time.time() - self.done[-1]["at"] > PASSING_S:
                break
            time.sleep(1)
        for about, text in found:
            self.fault("records", about, text)
        count = "SELECT count(*) AS n FROM preemptions WHERE requeued_at IS NOT NULL"
        evictions = self.rows("SELECT kind, state, outcome_code, count(*) AS n FROM evictions GROUP BY 1, 2, 3")
        return {
            "faults": [f"{kind}: {text}" for (kind, _), text in sorted(self.faults.items())],
            "looks": self.looks,
            "blind": self.blind,
            "jobs": len(self.first),
            "left": self.rows(count)[0]["n"],
            "operations": {f"{row['kind']} {row['state']} {row['outcome_code']}": row["n"] for row in evictions},
            "urgent": urgent,
            "acts": dict(Counter(act["what"] for act in self.done)),
        }

    def judge_leftovers(self) -> None:
        for row in self.rows("SELECT eviction_id, kind, state FROM evictions"):
            if row["state"] not in ("completed", "cancelled", "failed", "superseded", "proposed", "awaiting_approval"):
                self.fault("left over", f"eviction {row['eviction_id']}", f"{row} is still under way")
        for reservation in self.records("reservation"):
            self.fault("left over", reservation["ReservationName"], f"reservation {reservation}")
        for node in self.records("node"):
            if "DRAIN" in node["State"] or "clearway" in node.get("Reason", ""):
                self.fault("left over", node["NodeName"], f"{node['NodeName']} {node['State']} {node.get('Reason')}")
        for job_id, job in self.last.items():
            if not GONE.match(job["JobState"]):
                self.judge_fields(job_id, self.first[job_id], job)

    def given(self, job_id: str) -> str:
        """The commands that the daemons gave about a job, and what came of each."""
        query = "SELECT kind, result FROM steps WHERE job_id = :job AND kind <> 'event' ORDER BY step_id"
        return ", ".join(f"{step['kind']} {step['result']}" for step in self.rows(query, job=job_id))

    def judge_fields(self, job_id: str, first: dict[str, str], job: dict[str, str]) -> None:
        """As they were when it was submitted, but for what others changed."""
        changed = self.changed(job)
        given = self.given(job_id)
        told = f"job {job_id} ({job['JobState']}; commands of ours: {given or 'none'})"
        if "suspend" in given:
            changed.add("Priority")  # Slurm works it out anew when a job is resumed that was suspended by hand
        for name in KEPT:
            if name not in changed and first.get(name) != job.get(name):
                self.fault(
                    "left over", f"{job_id} {name}", f"{told} has {name}={job.get(name)}, it had {first.get(name)}"
                )
        if job.get("Reservation", "(null)") not in ("", "(null)") or job["JobState"] == "SUSPENDED":
            self.fault("left over", job_id, f"{told} has Reservation={job.get('Reservation')}")
        if "clearway" in job.get("AdminComment", ""):
            self.fault("left over", f"{job_id} AdminComment", f"{told} has AdminComment={job['AdminComment']}")
        own = [[word for word in each.get("Comment", "").split() if "clearway:" not in word] for each in (first, job)]
        if own[0] != own[1] and "Comment" not in changed:
            self.fault("left over", f"{job_id} Comment", f"{told} has the Comment {own[1]}, it had {own[0]}")

    def judge_losses(self) -> None:
        """No urgent job costs more jobs than its first plan and one lost node's."""
        query = "SELECT eviction_id, document FROM plans WHERE revision = 0"
        planned = {row["eviction_id"]: json.loads(row["document"]) for row in self.rows(query)}
        query = """SELECT e.eviction_id, e.preemptor_display_id AS preemptor, count(DISTINCT p.job_id) AS n
            FROM evictions e JOIN preemptions p ON p.eviction_id = e.eviction_id
            WHERE e.kind = 'eviction' AND p.requeued_at IS NOT NULL GROUP BY 1, 2"""
        for row in self.rows(query):
            actions = planned[row["eviction_id"]]["chosen"]["actions"]
            most = sum(action["action"] != "end" for action in actions) + self.most_on_a_node
            if row["n"] > most:
                text = (
                    f"{row['n']} jobs left for job {row['preemptor']} in eviction {row['eviction_id']}, {most} at most"
                )
                self.fault("losses", str(row["eviction_id"]), text)

    def judge_urgent(self) -> dict[str, Any]:
        """Each that nobody cancelled has run, whatever else was changed of it meanwhile."""
        asked = [act for act in self.done if act["what"] == "urgent"]
        waits, runs = [], self.runs()
        for act in asked:
            started = [run.start for run in runs.get(act["job"], ()) if run.start]
            if started:
                waits.append(min(started) - act["at"])
            elif not self.acted("cancel", act["job"]):
                seen = self.last.get(act["job"], {})
                text = f"urgent job {act['job']} ({act['asks']}) never ran: {seen.get('JobState')} {seen.get('Reason')}"
                self.fault("urgent", act["job"], text)
        waits.sort()
        late = sum(wait > 60 for wait in waits)
        median = waits[len(waits) // 2] if waits else None
        return {"asked": len(asked), "ran": len(waits), "median_wait_s": median, "later_than_60_s": late}

    def differences(self) -> Iterator[tuple[str, str]]:
        """Between what is recorded of each job that left, and what sacct says of its runs."""
        query = """SELECT eviction_id, job_id, action, state, requeued_at, vacated_at, actual_lost_node_s AS lost, note
            FROM preemptions WHERE requeued_at IS NOT NULL ORDER BY requeued_at"""
        runs, taken = self.runs(), Counter[str]()
        for row in self.rows(query):
            if row["action"] == "suspend":
                continue
            until = (row["vacated_at"] or row["requeued_at"] + 60) + SECOND_S
            about = f"{row['eviction_id']}/{row['job_id']}"
            of_job = runs.get(row["job_id"], [])
            then = [run for run in of_job if run.end and row["requeued_at"] - SECOND_S <= run.end <= until]
            text = f"{row} but sacct: {of_job}"
            back = row["state"] == "returned" and not any(run.state == "REQUEUED" for run in then)
            if (back or not then) and row["state"] != "failed":
                yield about, text
            taken[row["job_id"]] += any(run.state == "REQUEUED" for run in then)
            # What a job says of its own checkpoints is not judged here.
            comment = self.last.get(row["job_id"], {}).get("Comment", "")
            if row["action"] == "kill" and row["lost"] is not None and "clearway:" not in comment and then:
                run = then[0]
                really = run.nodes * run.ran_s
                if abs(really - row["lost"]) > run.nodes * 2 * SECOND_S + 0.05 * really:
                    told = f"{row['lost']:.0f} node-s lost are recorded, {really:.0f} by sacct"
                    yield (
                        f"{about} lost",
                        f"{told}: {text} (Comment: {comment}, commands of ours: {self.given(row['job_id'])})",
                    )
        for job_id, of_job in runs.items():
            others = self.acted("requeue", job_id)
            requeued = sum(run.state == "REQUEUED" for run in of_job)
            if requeued > taken[job_id] + others:
                yield (
                    job_id,
                    f"job {job_id} was requeued {requeued} times, {taken[job_id]} are recorded, {others} by others",
                )


def moment(text: str) -> float | None:
    return float(text) if text.isdigit() and int(text) else None


def seconds(value: Any) -> Any:
    """Times as Unix times; SQLite's are text in UTC."""
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+", value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    return value


def main(database: str, conf: str, acts: str, report: str) -> None:
    read_only = {"postgresql_readonly": True}
    observer = Observer(sqlalchemy.create_engine(database, execution_options=read_only), conf, Path(acts))
    while not any(act["what"] == "over" for act in observer.done):
        try:
            observer.look()
        except (subprocess.SubprocessError, sqlalchemy.exc.SQLAlchemyError) as error:
            observer.blind += 1
            print(f"blind: {error}", flush=True)
        time.sleep(1)
    Path(report).write_text(json.dumps(observer.judge(), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
