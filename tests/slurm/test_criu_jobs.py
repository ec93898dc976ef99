"""CRIU under the launcher in real jobs: what images may take and who removes them, and TCP connections.

In the forky tree only, like all that needs CRIU.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clearway.cli.launcher import install
from clearway.model.claims import SaveState, parse_claims
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.criu_site import HELPER, IMAGES, criu_site

PROGRAM = "sh -c 'while [ ! -e stop.$SLURM_JOB_ID ]; do echo >>log.$SLURM_JOB_ID; sleep 0.05; done'"

# A process and its child that talk over TCP; or one that talks to a server elsewhere.
TALKS = """\
import os, socket, sys, time
job = os.environ["SLURM_JOB_ID"]
if len(sys.argv) > 1:
    line = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
else:
    server = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        far = socket.create_connection(server.getsockname())
        while said := far.recv(100):
            far.sendall(b"%d\\n" % (int(said) * 2))
        os._exit(0)
    line, _ = server.accept()
log, number = open(f"log.{job}", "a"), 0
while not os.path.exists(f"stop.{job}"):
    number += 1
    line.sendall(b"%d\\n" % number)
    print(number, int(line.recv(100)), file=log, flush=True)
    time.sleep(0.05)
sys.exit(7)
"""


@pytest.fixture
def site(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    if os.environ.get("CLEARWAY_TIER") != "slurm26":
        pytest.skip("CRIU is tried in the forky tree only (tests/run slurm26): it writes to /etc")
    if shutil.which("criu") is None or shutil.which("sudo") is None:
        skip_or_fail("the forky tree has no criu or no sudo")
    with criu_site(cluster):
        install(cluster.work / "bin")
        yield cluster


def submit(site: SlurmCluster, program: str = PROGRAM) -> str:
    script = (
        f"#!/bin/sh\nexport CLEARWAY_CRIU_HELPER={HELPER}\n"
        f"exec {site.work}/bin/clearway-run --checkpointer criu --hold 0 -- {program}\n"
    )
    options = ("--requeue", "--open-mode=append", "--output=out.%j", "--time=10")
    job_id = site.sbatch(script, *options, user="cwalice")
    site.wait_for(lambda: claims(site, job_id) and (site.work / f"log.{job_id}").exists(), 30, "the job's claim")
    return job_id


def claims(site: SlurmCluster, job_id: str) -> str:
    return site.run("squeue", "-h", "-j", job_id, "-o", "%k").stdout.strip().removeprefix("(null)")


def save(site: SlurmCluster, job_id: str) -> SaveState | None:
    """Ask for a checkpoint as the daemon does; what the job answers."""
    last = parse_claims(claims(site, job_id))
    if last is not None and last.asked is not None:  # told in whole seconds
        later = last.asked.timestamp() + 1
        site.wait_for(lambda: time.time() >= later, 5)
    asked = time.time()
    site.run("scancel", "--signal=USR1", "--batch", job_id)

    def answer() -> SaveState | None:
        said = parse_claims(claims(site, job_id))
        fresh = said is not None and said.asked is not None and said.asked.timestamp() >= int(asked)
        return said.state if said and fresh and said.state is not SaveState.SAVING else None

    return site.wait_for(answer, 30, "an answer of the job")


def images() -> list[Path]:
    return sorted(IMAGES.glob("*/*/*"))


def test_images_of_a_program_that_has_ended_are_removed(site: SlurmCluster) -> None:
    job_id = submit(site)
    assert save(site, job_id) is SaveState.SAVED
    assert len(images()) == 1
    assert (site.work / ".clearway" / job_id / "generation-000001" / "image").exists()
    (site.work / f"stop.{job_id}").touch()
    site.wait_state(job_id, "COMPLETED")
    assert images() == []
    assert not (site.work / ".clearway" / job_id).exists()


def test_a_user_may_have_no_more_than_the_limit(site: SlurmCluster) -> None:
    settings = Path("/etc/clearway/criu.conf")
    settings.write_text(f"{settings.read_text()}limit_mib=1\n")
    job_id = submit(site)
    assert save(site, job_id) is SaveState.FAILED
    said = (site.work / f"out.{job_id}").read_text()
    assert re.search(r"no checkpoint: your images take \d MiB of the 1 MiB that a user may have", said), said
    assert images() == []
    log = site.work / f"log.{job_id}"
    before = log.stat().st_size
    site.wait_for(lambda: log.stat().st_size > before, 10, "the program to go on")
    settings.write_text(settings.read_text().replace("limit_mib=1\n", "limit_mib=200\n"))
    assert save(site, job_id) is SaveState.SAVED, (site.work / f"out.{job_id}").read_text()


def test_purge_removes_what_is_old_and_nothing_else(site: SlurmCluster) -> None:
    kept = []
    for _ in range(2):
        kept.append(submit(site))
        assert save(site, kept[-1]) is SaveState.SAVED
        site.run("scancel", kept[-1])
        site.wait_state(kept[-1], "CANCELLED")
    assert len(images()) == 2, "a job that did not end well keeps its images"
    old, new = sorted(images(), key=lambda path: path.stat().st_mtime)
    long_ago = time.time() - 15 * 86_400
    os.utime(old, (long_ago, long_ago))
    done = subprocess.run([HELPER, "purge", "14"], check=True, capture_output=True, text=True)
    assert done.stdout == "ok=yes\n"
    assert images() == [new]
    assert not old.parent.exists()


def lines(site: SlurmCluster, job_id: str) -> list[list[int]]:
    return [[int(word) for word in line.split()] for line in (site.work / f"log.{job_id}").read_text().splitlines()]


def test_a_tcp_connection_within_the_program_goes_on_after_a_restart(site: SlurmCluster) -> None:
    (site.work / "talks.py").write_text(TALKS)
    job_id = submit(site, f"/usr/bin/python3 {site.work}/talks.py")
    site.wait_for(lambda: len(lines(site, job_id)) > 10, 30, "ten answers")
    assert save(site, job_id) is SaveState.SAVED
    site.run("scontrol", "requeue", job_id)
    site.wait_state(job_id, "PENDING")
    before = len(lines(site, job_id))
    time.sleep(1.1)  # started in the second of its requeue it would be lost
    site.run("scontrol", "update", f"JobId={job_id}", "StartTime=now")
    site.wait_for(lambda: len(lines(site, job_id)) > before + 10, 30, "answers after the restart")
    (site.work / f"stop.{job_id}").touch()
    site.wait_state(job_id, "FAILED")
    assert site.job(job_id)["ExitCode"] == "7:0"
    assert "restarting from" in (site.work / f"out.{job_id}").read_text()
    heard = lines(site, job_id)
    assert all(answer == 2 * number for number, answer in heard)
    # It is not held here (--hold 0): what it wrote from its image to the requeue is written again.
    assert {number for number, _ in heard} == set(range(1, max(number for number, _ in heard) + 1))


def test_a_connection_to_elsewhere_is_said_and_the_program_goes_on(site: SlurmCluster) -> None:
    (site.work / "talks.py").write_text(TALKS)
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        port = server.getsockname()[1]

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                while said := connection.recv(100):
                    connection.sendall(b"%d\n" % (int(said) * 2))

        answering = pool.submit(answer)
        job_id = submit(site, f"/usr/bin/python3 {site.work}/talks.py {port}")
        site.wait_for(lambda: len(lines(site, job_id)) > 3, 30, "answers")
        assert save(site, job_id) is SaveState.FAILED
        said = (site.work / f"out.{job_id}").read_text()
        assert f"no checkpoint: it has a TCP connection to 127.0.0.1:{port}, outside of itself" in said
        assert images() == []
        before = len(lines(site, job_id))
        site.wait_for(lambda: len(lines(site, job_id)) > before + 3, 10, "more answers")
        (site.work / f"stop.{job_id}").touch()
        site.wait_state(job_id, "FAILED")
        answering.result(timeout=10)
