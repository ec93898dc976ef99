"""Nobody is preempted in silence, on a real cluster: the owner of each job that leaves is told within ten seconds.

By webhook, by mail and in the job's Comment, for each action; counted from the act's own time in the database to the
receiver's. And receivers that are down make nothing late.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from clearway.model.operations import Eviction, Preemption
from clearway.model.problem import Action
from tests.slurm.cluster import SlurmCluster
from tests.slurm.daemon import RunningDaemon, config_text, install_programs, saver_script
from tests.slurm.machine import SLACK
from tests.slurm.test_end_to_end import WHOLE, started_in_time
from tests.slurm.urgent import SCRIPT, let_go

WITHIN_S = 10 * SLACK
PROTECTED = 'protected_users = ["cwbob"]\nmin_runtime = 1\n'
WORDS = "my own words, 50% \"quoted\" 'twice'"
SENDMAIL = """#!/bin/sh
# A mail program that keeps what it is given, with the time.
file={folder}/mail.$$
{{ echo "X-Came: $(date +%s.%N)"; cat; }} > "$file.new" && mv "$file.new" "$file"
"""


class Receivers:
    """What came, by job id: the time and the notice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.posted: dict[str, tuple[float, dict[str, Any]]] = {}
        self.operators: list[dict[str, Any]] = []
        program = folder / "sendmail"
        program.write_text(SENDMAIL.format(folder=folder))
        program.chmod(0o755)

    def take(self, body: bytes) -> None:
        now = time.time()
        for each in json.loads(body)["notices"]:
            if each["kind"] == "left":
                assert each["job_id"] not in self.posted, "told twice"
                self.posted[each["job_id"]] = now, each

    def mails(self) -> dict[str, float]:
        """By the job ids that their text names."""
        found = {}
        for file in self.folder.glob("mail.*[0-9]"):
            came, text = file.read_text().split("\n", 1)
            for line in text.splitlines():
                if line.startswith("Job ") and (
                    " was preempted " in line or " was suspended " in line or " was c" in line
                ):
                    found[line.split()[1]] = float(came.removeprefix("X-Came: "))
        return found

    def addresses(self) -> set[str]:
        """Whom mails were for."""
        texts = (file.read_text() for file in self.folder.glob("mail.*[0-9]"))
        return {line.removeprefix("To: ") for text in texts for line in text.splitlines() if line.startswith("To: ")}


@contextmanager
def listening(folder: Path, port: int = 0) -> Iterator[tuple[Receivers, int]]:
    receivers = Receivers(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receivers.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield receivers, server.server_port
        finally:
            server.shutdown()
            thread.join()


def config(cluster: SlurmCluster, folder: Path, url: str, candidates: str = PROTECTED, sendmail: str = "") -> str:
    folder.mkdir(exist_ok=True)
    file = folder / "url"
    file.write_text(url)
    file.chmod(0o600)
    return config_text(
        folder,
        cluster.conf,
        candidates=candidates,
        notify="comment = true\njob_output = true",
        **{
            "notify.webhook": f'url_file = "{file}"',
            "notify.mail": f'sendmail = "{sendmail or folder.parent / "sendmail"}"\nowner = "{{user}}@example.org"',
        },
    )


def comment(cluster: SlurmCluster, job_id: str) -> str:
    return cluster.run("squeue", "-h", "--states=all", "-j", job_id, "-o", "%k").stdout.strip()


class Watch:
    """Notes when the Comments of jobs first say that they were preempted."""

    def __init__(self, cluster: SlurmCluster, job_ids: list[str]) -> None:
        self._cluster, self._job_ids = cluster, job_ids
        self.seen: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(0.2):
            listed = self._cluster.run("squeue", "-h", "--states=all", "-j", ",".join(self._job_ids), "-o", "%A %k")
            for line in listed.stdout.splitlines():
                job_id, _, text = line.partition(" ")
                if "[Clearway " in text:
                    self.seen.setdefault(job_id, time.time())


def left(eviction: Eviction) -> dict[str, Preemption]:
    return {p.job_id: p for p in eviction.preemptions if p.requeued_at is not None}


PLAIN = "while :; do sleep 0.2; done"
ACTIONS: dict[Action | str, tuple[str, tuple[str, ...], str]] = {
    Action.KILL: (PROTECTED, ("--requeue", "--mail-type=ALL", "--mail-user=own@example.net", *WHOLE), "preempted"),
    "cancel": (f"{PROTECTED}allow_cancel = true\n", ("--no-requeue", *WHOLE), "cancelled"),
    Action.APP_CHECKPOINT: (PROTECTED, ("--requeue", *WHOLE), "preempted"),
    Action.SUSPEND: (f"{PROTECTED}allow_suspend = true\nallow_kill = false\n", ("-n4", "--mem=1500"), "suspended"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_each_owner_is_told_within_ten_seconds(cluster: SlurmCluster, tmp_path: Path, action: Action | str) -> None:
    candidates, options, what = ACTIONS[action]
    install_programs(cluster)
    saves = action is Action.APP_CHECKPOINT
    script = saver_script(cluster, 600) if saves else PLAIN
    words = () if saves else ("--comment", WORDS)
    job_ids = [
        cluster.sbatch(script, *options, *words, "--time=30", "--output=out.%j", "--open-mode=append", user="cwalice")
        for _ in range(8)
    ]
    for job_id in job_ids:
        cluster.wait_state(job_id, "RUNNING")
        if saves:
            cluster.wait_for(lambda job_id=job_id: "checkpoint=signal" in comment(cluster, job_id), 60, "the claim")
            (cluster.work / f"state.{job_id}.hold").touch()  # until the warning has been seen
    with listening(tmp_path) as (receivers, port):
        text = config(cluster, tmp_path / "daemon", f"http://127.0.0.1:{port}/hook", candidates)
        with Watch(cluster, job_ids) as watch, RunningDaemon(cluster, tmp_path / "daemon", config=text) as daemon:
            size = ("--ntasks-per-node=4", "--mem=1000") if action is Action.SUSPEND else WHOLE
            urgent = cluster.sbatch(
                SCRIPT, "-p", "urgent", "-N2", *size, "--time=5", "--output=/dev/null", user="cwalice"
            )
            if saves:
                warned(cluster, daemon, job_ids)
            let_go(cluster, daemon, urgent)
            gone = left(daemon.evictions()[0])
            assert len(gone) == 2
            assert {p.action for p in gone.values()} == {Action.KILL if action == "cancel" else action}

            commented = () if action == "cancel" else gone  # Slurm takes no Comment of a job that has ended

            def all_told() -> bool:
                return set(gone) <= set(receivers.posted) & set(receivers.mails()) and set(commented) <= set(watch.seen)

            daemon.wait_for(all_told, 30, "the owners to be told")
            if saves:
                for job_id in gone:
                    daemon.wait_for(lambda job_id=job_id: "run=1," in comment(cluster, job_id), 90, "its next run")
                    output = (cluster.work / f"out.{job_id}").read_text()
                    said = (
                        "asked to save the program, at ",
                        "saved as generation 1 ",
                        "run 1 of this job: the program goes on",
                    )
                    assert [words for words in said if words not in output] == [], output
    assert set(receivers.posted) == set(receivers.mails()) == set(gone)
    assert set(watch.seen) == set(commented)
    assert receivers.addresses() == {"own@example.net" if action is Action.KILL else "cwalice@example.org"}
    for job_id, p in gone.items():
        assert p.requeued_at is not None
        act = p.requeued_at.timestamp()
        came = [receivers.posted[job_id][0], receivers.mails()[job_id], *([watch.seen[job_id]] if commented else [])]
        took_s = [at - act for at in came]
        print(f"{action} {job_id}: told after {took_s} s (webhook, mail, Comment)")
        assert max(took_s) <= WITHIN_S
        told = receivers.posted[job_id][1]
        assert told["user"] == "cwalice"
        assert told["about"]["urgent_job"] == urgent
        assert told["about"]["what"] == what
        if not commented:
            continue
        text = comment(cluster, job_id)
        assert f"[Clearway {what} for an urgent job at " in text
        assert "checkpoint=signal" in text if saves else text.startswith(f"{WORDS} [")


def warned(cluster: SlurmCluster, daemon: RunningDaemon, job_ids: list[str]) -> None:
    """Wait until the jobs that are to leave say so in their own output; then let them save themselves."""

    def asked() -> list[str]:
        return [p.job_id for e in daemon.evictions() for p in e.preemptions]

    daemon.wait_for(lambda: len(asked()) == 2, 30, "a plan")
    for job_id in asked():
        output = cluster.work / f"out.{job_id}"
        daemon.wait_for(lambda output=output: "has to leave its nodes by" in output.read_text(), 30, "the warning")
    for job_id in job_ids:
        (cluster.work / f"state.{job_id}.hold").unlink()


@contextmanager
def hanging() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield int(listener.getsockname()[1])


@pytest.mark.full
def test_receivers_that_are_down_make_nothing_late(cluster: SlurmCluster, tmp_path: Path) -> None:
    job_ids = [
        cluster.sbatch(PLAIN, "--requeue", *WHOLE, "--time=30", "--output=/dev/null", user="cwalice") for _ in range(8)
    ]
    for job_id in job_ids:
        cluster.wait_state(job_id, "RUNNING")
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nexec sleep 600\n")
    hangs.chmod(0o755)
    with hanging() as port:
        text = config(cluster, tmp_path / "daemon", f"http://127.0.0.1:{port}/hook", sendmail=str(hangs))
        daemon = RunningDaemon(cluster, tmp_path / "daemon", config=text)
        with Watch(cluster, job_ids) as watch, daemon:
            submitted = datetime.now(UTC)
            urgent = cluster.sbatch(
                SCRIPT, "-p", "urgent", "-N4", *WHOLE, "--time=5", "--output=/dev/null", user="cwalice"
            )
            started_in_time(cluster, urgent, submitted)
            let_go(cluster, daemon, urgent)
            (eviction,) = daemon.evictions()
            assert not eviction.late
            gone = left(eviction)
            daemon.wait_for(lambda: set(gone) <= set(watch.seen), 30, "the Comments")
            waiting = metric(daemon, 'clearway_notices_waiting{channel="webhook"}')
            daemon.wait_for(lambda: waiting() >= len(gone), 30, "what waits")
    for job_id, p in gone.items():
        assert p.requeued_at is not None
        assert watch.seen[job_id] - p.requeued_at.timestamp() <= WITHIN_S
    with (
        listening(tmp_path, port) as (receivers, _),
        RunningDaemon(
            cluster, tmp_path / "daemon", config=config(cluster, tmp_path / "daemon", f"http://127.0.0.1:{port}/hook")
        ) as daemon,
    ):  # what was not said outlives the daemon
        daemon.wait_for(lambda: set(gone) <= set(receivers.posted), 90, "the webhook")
        daemon.wait_for(lambda: set(gone) <= set(receivers.mails()), 90, "the mails")


def metric(daemon: RunningDaemon, name: str) -> Callable[[], float]:
    def value() -> float:
        lines = daemon.get("/metrics").text.splitlines()
        return next((float(line.split()[-1]) for line in lines if line.startswith(name)), 0.0)

    return value
