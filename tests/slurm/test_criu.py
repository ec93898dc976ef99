"""CRIU for real: programs without any checkpoint code, saved and brought back in jobs of a real cluster.

It runs in the forky tree only: there CRIU works, and what it writes to /etc and /var/lib ends with the run.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import skip_or_fail
from tests.slurm.criu_site import HELPER, IMAGES, configure, criu_site
from tests.slurm.preempted_program import install_launcher, preempted_and_back, undisturbed

# 80 MiB that a child has filled: they are in the image, but not in the parent's resident set.
HIDDEN = """\
import mmap, os, sys, time
shared = mmap.mmap(-1, 80 << 20)
if os.fork() == 0:
    shared.write(b"x" * (80 << 20))
    os._exit(0)
os.wait()
while True:
    print(1, file=open(sys.argv[1], "a"), flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def site(cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster, with what an administrator installs for CRIU."""
    if os.environ.get("CLEARWAY_TIER") != "slurm26":
        pytest.skip("CRIU is tried in the forky tree only (tests/run slurm26): it writes to /etc")
    if shutil.which("criu") is None or shutil.which("sudo") is None:
        skip_or_fail("the forky tree has no criu or no sudo")
    with criu_site(cluster):
        install_launcher(cluster)
        yield cluster


def once_each(log: Path, steps: int) -> None:
    assert [int(line.split()[0]) for line in log.read_text().splitlines()] == list(range(steps))


# What a launcher does, in a job: `begin STEPS` starts the program, `save NAME` and `back NAME` are the driver's verbs.
# A step takes 0.05 s until it may `hurry`: it lasts for as long as it is needed, on any machine.
PRELUDE = """\
#!/bin/sh
export CLEARWAY_DIR=$PWD/dir.$SLURM_JOB_ID CLEARWAY_STATE=$PWD/state.$SLURM_JOB_ID CLEARWAY_CRIU_HELPER={helper}
mkdir -p -m 700 "$CLEARWAY_DIR" "$CLEARWAY_STATE"
driver={work}/checkpointers/criu.sh log=$CLEARWAY_DIR/log
until_file() {{ n=0; until [ -s "$1" ] || [ $n -gt 600 ]; do sleep 0.1; n=$((n + 1)); done; }}
program() {{ echo {python} {work}/program.py "$steps" 0.05 "$log" "$CLEARWAY_DIR/result"; }}
hurry() {{ touch "$log.hurry"; }}
begin() {{ steps=$1; setsid sh "$driver" start -- $(program) & pid=$!; until_file "$log"; }}
save() {{ mkdir "$CLEARWAY_DIR/$1"; sh "$driver" checkpoint "$CLEARWAY_DIR/$1" "$pid"; }}
stopped() {{ sed -n 's/^State:.//p' "/proc/$pid/status" | cut -c 1; }}
whole() {{ kill -s "$1" -- "-$pid"; }}
gone() {{ whole KILL; wait "$pid" 2>/dev/null; }}
lines() {{ wc -l <"$log"; }}
goes_on() {{ before=$(lines); n=0; until [ "$(lines)" -gt "$before" ] || [ $n -gt 99 ]; do sleep 0.3; n=$((n + 1)); done
    if [ "$(lines)" -gt "$before" ]; then echo goes-on; else echo stands-still; fi; }}
back() {{ rm -f "$CLEARWAY_STATE/restarted"; sh "$driver" restart "$CLEARWAY_DIR/$1" -- $(program); echo "code=$?"
    cat "$CLEARWAY_STATE/restarted"; }}
"""


def scenario(
    cluster: SlurmCluster, body: str, *args: str, user: str = "cwalice", timeout: float = 90
) -> tuple[str, Path]:
    """Run ``body`` as a job of this user to its end; what it printed, and its folder of generations."""
    text = PRELUDE.format(helper=HELPER, work=cluster.work, python=sys.executable) + textwrap.dedent(body)
    job_id = cluster.sbatch(text, "--output=scenario.%j", "--time=10", *args, user=user)
    cluster.wait_state(job_id, "COMPLETED", "FAILED", timeout=timeout)
    return (cluster.work / f"scenario.{job_id}").read_text(), cluster.work / f"dir.{job_id}"


def test_round_trip_twice_with_the_programs_own_exit_status(site: SlurmCluster, tmp_path: Path) -> None:
    """Saved, killed, restored, saved again from within the namespaces of the restore, killed, restored."""
    said, folder = scenario(
        site,
        """
        sh "$driver" probe
        begin 1200
        save one; stopped; gone; lines
        sh "$driver" verify "$CLEARWAY_DIR/one"
        setsid sh "$driver" restart "$CLEARWAY_DIR/one" -- $(program) & pid=$!
        until_file "$CLEARWAY_STATE/restarted"; goes_on
        save two; kill -s KILL $(cat "$CLEARWAY_STATE/criu.pid"); wait $pid; echo "killed=$?"
        hurry; back two
        """,
    )
    assert "version=4" in said
    assert said.count("size_mib=") == 2, said
    assert "\nT\n" in said
    assert "goes-on" in said
    assert "killed=137" in said
    assert said.endswith("code=7\nok=yes\n"), said
    assert (folder / "result").read_text() == undisturbed(tmp_path, 1200)
    once_each(folder / "log", 1200)
    assert IMAGES.stat().st_mode & 0o777 == 0o700


def test_a_program_is_tried_and_leaves_no_image(site: SlurmCluster) -> None:
    trial = '{work}/clearway-run --try 2 --checkpointer criu -- $(program) 2>&1; echo "status $?"'
    said, _ = scenario(site, f"steps=1200; cd $CLEARWAY_DIR; {trial.format(work=site.work)}; ls -A | grep clearway-try")
    # It has more steps than it can do within the limit of an undisturbed run.
    assert "not known: it was saved, came back and computes" in said, said
    assert said.endswith("status 2\n"), said
    assert not list(IMAGES.glob("*/*/*"))


@pytest.mark.fault("CRIU's helper refused a program one of whose children had just ended.", found_by="real cluster")
def test_a_process_that_has_ended_and_was_not_asked_for_is_in_nobodys_way(site: SlurmCluster) -> None:
    """Of a child that has ended little is left until its parent asks for its status: no root, for one."""
    said, _ = scenario(
        site,
        """
        begin() { steps=$1
            setsid sh "$driver" start -- sh -c "sleep 0 & exec $(program)" & pid=$!; until_file "$log"; }
        begin 1200; n=0
        until pgrep -r Z -u "$(id -u)" -x sleep || [ $n -gt 99 ]; do sleep 0.1; n=$((n + 1)); done
        save one; gone; hurry; back one
        """,
    )
    assert re.match(r"\d+\n", said), said
    assert said.endswith("code=7\nok=yes\n"), said


def test_root_job_needs_no_sudo(site: SlurmCluster) -> None:
    said, _ = scenario(site, "begin 1200; save one; gone; hurry; back one", user="root")
    assert said.endswith("code=7\nok=yes\n"), said


def test_called_off_the_program_goes_on_and_takes_signals(site: SlurmCluster) -> None:
    said, folder = scenario(
        site,
        """
        begin 1200; save one; whole CONT; goes_on
        kill -s TERM $pid; wait $pid; echo "term=$?"; cat "$CLEARWAY_DIR/criu.status"
        setsid sh "$driver" restart "$CLEARWAY_DIR/one" -- $(program) & pid=$!
        until_file "$CLEARWAY_STATE/restarted"; kill -s TERM $pid; wait $pid; echo "restored=$?"
        """,
    )
    assert re.search("goes-on\n(Terminated\n)?term=143\n143\n", said), said
    assert said.endswith("restored=143\n"), said
    assert not (folder / "result").exists()


def damage(site: SlurmCluster, what: str) -> str:
    """A job that is saved, waits until ``what`` was done to the image or its files, and restarts."""
    body = "begin 1200; save one; gone; touch saved; until_file damaged; sh $driver verify $CLEARWAY_DIR/one; back one"
    job_text = PRELUDE.format(helper=HELPER, work=site.work, python=sys.executable) + body
    for left in ("saved", "damaged"):
        (site.work / left).unlink(missing_ok=True)
    job_id = site.sbatch(job_text, "--output=scenario.%j", user="cwalice")
    site.wait_for((site.work / "saved").exists, 40, "the image")
    (image,) = IMAGES.glob("*/*/one")
    if what == "truncate":
        pages = max(image.glob("pages-*.img"), key=lambda path: path.stat().st_size)
        os.truncate(pages, pages.stat().st_size // 2)
    elif what == "remove the log":
        (site.work / f"dir.{job_id}" / "log").unlink()
    else:
        (image / what).unlink()
    (site.work / "damaged").write_text("yes")
    site.wait_state(job_id, "COMPLETED", "FAILED", timeout=60)
    return (site.work / f"scenario.{job_id}").read_text()


@pytest.mark.parametrize("what", ["truncate", "inventory.img", "stats-dump"])
def test_damaged_image_is_never_restored(site: SlurmCluster, what: str) -> None:
    said = damage(site, what)
    reason = "not those of its manifest" if what == "truncate" else f"not complete: no {what}"
    assert said.count(reason) >= 2, said  # by verify and by restart
    assert "code=125\nok=no" in said, said


def test_missing_log_is_said_as_the_reason(site: SlurmCluster) -> None:
    said = damage(site, "remove the log")
    assert "code=125\nok=no\nreason=" in said, said
    assert "/log" in said.rpartition("reason=")[2], said


def test_criu_killed_in_mid_dump(site: SlurmCluster) -> None:
    """By a criu that the site's path names first: the real one, which the kernel ends as a file of it gets too long."""
    folder = site.root / "killing"
    folder.mkdir()
    (folder / "criu").write_text(
        '#!/bin/sh\n[ $1 != dump ] || ulimit -f 40960\nexec /usr/sbin/criu "$@"\n'  # in 512 bytes
    )
    (folder / "criu").chmod(0o755)
    configure(site, path=str(folder))
    said, _ = scenario(site, "export BALLAST_MIB=300; begin 1200; save one; goes_on; gone")
    assert "ok=no" in said, said
    assert "exit status 153" in said, said  # 128 and SIGXFSZ
    assert said.rstrip().endswith("goes-on"), said
    assert not list(IMAGES.glob("*/*/*"))


def test_disk_full(site: SlurmCluster) -> None:
    """Once for real, in the middle of a dump, and once foreseen."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m,mode=700", "tmpfs", IMAGES], check=True)
    try:
        said, _ = scenario(
            site,
            f"""
            cat >hidden.py <<'END'
            {textwrap.indent(HIDDEN, " " * 12).strip()}
            END
            setsid sh "$driver" start -- {sys.executable} hidden.py "$log" & pid=$!
            until_file "$log"; save one; goes_on; gone
            """,
        )
        assert "ok=no" in said, said
        assert "no space: " not in said, said
        assert said.rstrip().endswith("goes-on"), said
        subprocess.run(["mount", "-o", "remount,size=8m,mode=700", IMAGES], check=True)
        said, _ = scenario(site, "begin 1200; save one; goes_on; gone")
        assert "reason=no space: 8 MiB free" in said, said
        assert said.rstrip().endswith("goes-on"), said
        assert not list(IMAGES.glob("*/*/*"))
    finally:
        subprocess.run(["umount", IMAGES], check=True)


def test_what_is_not_the_users_is_refused(site: SlurmCluster) -> None:
    _, theirs = scenario(site, "begin 1200; save one; gone")
    other = site.sbatch(
        f"{PRELUDE.format(helper=HELPER, work=site.work, python=sys.executable)}begin 1200; wait $pid", user="cwalice"
    )
    log = site.work / f"dir.{other}" / "log"
    site.wait_for(log.exists, 30, "the other job's program")
    pids = [p.name for p in Path("/proc").glob("[0-9]*") if f"dir.{other}/log".encode() in _command(p)]
    said, _ = scenario(
        site,
        f"""
        h="sudo -n {HELPER}"
        for pid in {" ".join(pids)}; do echo "theirs: $($h dump f n $pid | tr '\\n' ' ')"; done
        echo "init: $($h dump f n 1 | tr '\\n' ' ')"
        sleep 60 & echo "unprepared: $($h dump f n $! | tr '\\n' ' ')"
        setpriv --no-new-privs unshare -Ur sleep 60 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
        echo "namespace: $($h dump f n $! | tr '\\n' ' ')"; kill %1 %2
        for name in ../x .x 'a b' -x x/y; do echo "name: $($h dump f "$name" $$ | tr '\\n' ' ')"; done
        echo "purge: $($h purge 0 | tr '\\n' ' ')"
        ls {IMAGES}
        """,
        user="cwbob",
    )
    assert pids
    assert said.count("theirs: ok=no") == said.count("is not of job") - 1 == len(pids), said
    assert "init: ok=no" in said
    assert "unprepared: ok=no reason=process" in said
    assert "was not started under no_new_privs" in said
    assert "namespace: ok=no reason=process" in said
    assert said.count("name: ok=no reason=not a name") == 5, said
    assert "purge: ok=no reason=purge is for root only" in said
    assert "Permission denied" in said
    assert list(IMAGES.glob("*/*/one"))

    # Another's images cannot even be named; and outside of a job nothing is done.
    pointer = (theirs / "one" / "image").read_text().split()
    said, _ = scenario(site, f"sudo -n {HELPER} restore {' '.join(pointer)}", user="cwbob")
    assert "reason=there is no such image" in said, said
    outside = site.run("sudo", "-n", str(HELPER), "restore", *pointer, user="cwalice", check=False).stdout
    assert "reason=this is not run from within a Slurm job" in outside


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_file_swapped_for_a_link_is_not_opened_with_roots_rights(site: SlurmCluster) -> None:
    """The log becomes a link to a file of root's, of the same mode, while the image lies there."""
    secret = site.work / "secret"
    secret.write_text("root's own\n" * 1000)
    secret.chmod(0o600)
    said, folder = scenario(
        site, f"umask 077; begin 1200; save one; gone; rm $log; ln -s {secret} $log; back one; rm $log"
    )
    assert "code=125\nok=no\nreason=" in said, said
    assert "Permission denied" in said, said
    assert secret.read_text() == "root's own\n" * 1000
    assert not (folder / "result").exists()


def test_gpu_memory_is_moved_by_cuda_checkpoint(site: SlurmCluster) -> None:
    """A stand-in notes what it is asked; the device is /dev/null by another name."""
    device = Path("/dev/nvidia0")
    os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
    device.chmod(0o666)
    tool = site.work / "cuda-checkpoint"
    tool.write_text(
        "#!/bin/sh\ncase $1 in --help) echo '--action lock|checkpoint|restore|unlock';;\n"
        "--get-restore-tid) [ ! -e $CLEARWAY_DIR/worker ];;\n"
        '*) echo "$2" >>$CLEARWAY_DIR/cuda;; esac\n'
    )
    tool.chmod(0o755)
    try:
        said, folder = scenario(
            site,
            """
            export PATH=$PWD:$PATH
            begin() { steps=$1; setsid sh "$driver" start -- $(program) 7>/dev/nvidia0 & pid=$!; until_file "$log"; }
            begin 1200; touch $CLEARWAY_DIR/worker; save none; [ -e $CLEARWAY_DIR/cuda ] || echo untouched; goes_on
            rm $CLEARWAY_DIR/worker; save one; cat $CLEARWAY_DIR/cuda; whole CONT; goes_on
            n=0; until grep -q unlock $CLEARWAY_DIR/cuda || [ $n -gt 99 ]; do sleep 0.3; n=$((n + 1)); done
            whole STOP; gone
            echo restart >>$CLEARWAY_DIR/cuda; hurry; back one
            """,
        )
    finally:
        device.unlink()
    assert "no CUDA of its own: fork workers before CUDA starts\nuntouched\ngoes-on" in said, said
    assert said.endswith("code=7\nok=yes\n"), said
    calls = (folder / "cuda").read_text().split()
    cut = calls.index("restart")
    assert set(calls[:cut]) == {"lock", "checkpoint", "restore", "unlock"}
    assert set(calls[cut + 1 :]) == {"restore", "unlock"}


def test_preempted_by_a_real_urgent_job_and_restarted_on_another_node(site: SlurmCluster, tmp_path: Path) -> None:
    """No line of the program knows of checkpoints; it ends bit for bit as if nothing had happened."""
    preempted_and_back(site, tmp_path, "criu", {"CLEARWAY_CRIU_HELPER": str(HELPER)})
