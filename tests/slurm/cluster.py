"""A real Slurm cluster on this machine, for tests: own munge, own ports, own folder, nothing left behind.

Several slurmd share one host, as Debian builds them to (``slurmd -N node3``). The same code runs on Slurm
22.05 (Debian 12) and 26.05 (the forky tree of ``tests/run slurm26``). Every daemon is started in the
foreground under ``setpriv --pdeathsig KILL``, so it dies with the test run even when that is killed; job
steps, which detach from slurmd by design, are found by their SLURM_CONF and ended by process id.

It needs root: slurmd starts the jobs of several ordinary users.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

T = TypeVar("T")

PREFIX = "clearway-slurm-"
TEST_USERS = ("cwalice", "cwbob", "cwdaemon")  # two who submit, one that Clearway runs as
DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING_DAEMONS = ("slurmdbd", "mariadbd", "mariadb-install-db")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
IDLE_STATES = {"IDLE", "IDLE+PLANNED"}  # PLANNED: of an earlier plan of backfill, which plans every 30 s
# Set for up to a second between State=RESUME or UNDRAIN and the node's next answer: "*" in 22.05, a word in 26.05.
NO_ANSWER_YET = re.compile(r"\*|\+NOT_RESPONDING\b")
SLACK = 4  # times every limit, which is told for a machine that does nothing else; a wait ends as soon as it may
PORT_BLOCK = 64  # the most that one cluster needs
REPEATABLE_KEYS = {"NodeName", "NodeSet", "PartitionName", "DownNodes"}


class ClusterError(AssertionError):
    """Something the test cluster was asked to do went wrong; carries the output of the command."""


def missing_requirements(*, accounting: bool = False) -> str | None:
    """Why no cluster can be started here, in words, or None when one can."""
    if os.geteuid() != 0:
        return "needs root: slurmd starts the jobs of several users"
    wanted = DAEMONS + (ACCOUNTING_DAEMONS if accounting else ())
    missing = [name for name in wanted if shutil.which(name, path=SYSTEM_PATH) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def ensure_users(names: Sequence[str] = TEST_USERS) -> None:
    """Create the ordinary users that submit jobs in tests, where they do not exist."""
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test process may be about to create them
        for name in names:
            try:
                pwd.getpwnam(name)
            except KeyError:
                subprocess.run(["useradd", "--no-create-home", "--shell", "/bin/sh", name], check=True)


def slurm_version() -> tuple[int, int]:
    """(22, 5) or (26, 5), as ``slurmctld -V`` says."""
    text = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ClusterError(f"slurmctld -V says {text!r}")
    return int(found[1]), int(found[2])


def parse_record(line: str) -> dict[str, str]:
    """One ``scontrol -o`` line as a dictionary; values may hold spaces (Comment=, Command=)."""
    parts = re.split(r"(?:^| )([A-Za-z][A-Za-z0-9_/:]*)=", line.strip())
    return {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}


class SlurmCluster:
    """``with SlurmCluster() as cluster: cluster.sbatch("sleep 60", "-N2", user="cwalice")``.

    ``extra_conf`` takes slurm.conf lines; a ``Key=Value`` replaces the default of that key. ``accounting``
    adds MariaDB and slurmdbd, an account ``cw`` with the test users, and makes ``cwdaemon`` an operator.
    ``gpus`` names nodes that have some, by type; a GPU is an empty file, which is enough for Slurm to give it out.
    ``switches`` are leaf switches with their nodes as a host list, all under one more (topology/tree).
    CLEARWAY_KEEP=1 keeps the folder for a look at the logs.
    """

    def __init__(
        self,
        *,
        nodes: int = 8,
        cpus: int = 4,
        memory_mib: int = 4000,
        accounting: bool = False,
        kill_wait_s: int = 5,
        min_job_age_s: int = 300,
        extra_conf: Sequence[str] = (),
        gpus: Mapping[str, Mapping[str, int]] | None = None,
        switches: Mapping[str, str] | None = None,
    ) -> None:
        reason = missing_requirements(accounting=accounting)
        if reason:
            raise ClusterError(f"no Slurm cluster can be started here: {reason}")
        self.node_names = [f"node{i}" for i in range(1, nodes + 1)]
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.accounting = accounting
        self._kill_wait_s = kill_wait_s
        self._min_job_age_s = min_job_age_s
        self._extra_conf = tuple(extra_conf)
        self._gpus = gpus or {}
        self._switches = switches or {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports_kept: socket.socket | None = None
        self._waiting: dict[str, float] = {}  # requeued jobs, and since when they were seen to wait
        self.root = Path()

    # ---- life --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        _sweep_abandoned()
        ensure_users()
        # Not mkdtemp's 0700: daemons and jobs of other users work in here.
        self.root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir="/tmp"))
        self.root.chmod(0o755)
        atexit.register(self.stop)
        try:
            self._start()
        except BaseException as error:
            error.add_note(self.logs())
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End every process of this cluster and remove its folder. May be called twice."""
        atexit.unregister(self.stop)
        for process in self._processes.values():  # first all, then wait: eight slurmd end together
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        if self._ports_kept is not None:
            self._ports_kept.close()
        if self.root != Path():
            _remove(self.root)

    def _start(self) -> None:
        owners = {"munge": "munge", "state": "slurm", "log": "slurm", "spool": "root", "work": "root"}
        for name, owner in owners.items():
            (self.root / name).mkdir()
            shutil.chown(self.root / name, owner, owner)
        self.work.chmod(0o1777)  # like /tmp: every test user writes output here
        base, self._ports_kept = _free_ports(4 + len(self.node_names))
        self._ports = {"slurmctld": base, "slurmdbd": base + 1, "mariadb": base + 2, "slurmd": base + 4}
        self._start_munge()
        if self.accounting:
            self._start_accounting()
        self.conf.write_text("\n".join(self._conf_lines()) + "\n")
        if slurm_version() >= (23, 11):  # newer ones ask for a cgroup tree of their own
            (self.root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        if self._gpus:
            self._make_gpus()
        if self._switches:
            leaves = [f"SwitchName={name} Nodes={nodes}" for name, nodes in self._switches.items()]
            lines = [*leaves, f"SwitchName=top Switches={','.join(self._switches)}"]
            (self.root / "topology.conf").write_text("\n".join(lines) + "\n")
        self.start_controller(clean=True)
        for name in self.node_names:
            self.start_node(name)
        self.wait_for(self._all_idle, 60, "all nodes idle")
        if self.accounting:
            self.run("sacctmgr", "-i", "add", "account", "cw", "Description=tests", "Organization=tests")
            self.run("sacctmgr", "-i", "add", "user", ",".join(("root", *TEST_USERS)), "Account=cw")
            self.run("sacctmgr", "-i", "modify", "user", "cwdaemon", "set", "AdminLevel=Operator")

    def _make_gpus(self) -> None:
        lines = []
        for name, types in self._gpus.items():
            for gpu_type, count in types.items():
                for index in range(count):
                    (self.root / "work" / f"{name}.{gpu_type}.{index}").touch()
                files = f"{self.root}/work/{name}.{gpu_type}.[0-{count - 1}]"
                lines.append(f"NodeName={name} Name=gpu Type={gpu_type} File={files}")
        (self.root / "gres.conf").write_text("\n".join(lines) + "\n")

    def _start_munge(self) -> None:
        key = self.root / "munge" / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
        kinds = ("socket", "pid-file", "seed-file", "log-file")
        files = [f"--{kind}={self.root}/munge/munge.{kind}" for kind in kinds]
        self._spawn("munged", "munged", "--foreground", f"--key-file={key}", *files, user="munge")
        self.wait_for(self._munge_socket.exists, 10, "munge's socket")

    def _start_accounting(self) -> None:
        folder, port = self.root / "db", self._ports["mariadb"]
        folder.mkdir()
        shutil.chown(folder, "mysql", "mysql")
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", "--user=mysql"]
        _call([*install, "--skip-test-db", "--auth-root-authentication-method=normal"], timeout=60)
        sql = folder / "init.sql"
        who = "slurm@'127.0.0.1'"
        sql.write_text(f"CREATE USER {who} IDENTIFIED BY 'slurm';\nGRANT ALL ON *.* TO {who};\n")
        options = [f"--datadir={folder}/data", f"--socket={folder}/sock", f"--pid-file={folder}/pid"]
        options += ["--bind-address=127.0.0.1", f"--port={port}", f"--init-file={sql}", "--skip-name-resolve"]
        self._spawn("mariadbd", "mariadbd", "--no-defaults", *options, user="mysql")
        self.wait_for(lambda: _listens(port), 60, "MariaDB's port")
        conf = self.root / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self._munge_socket}\nDbdHost=localhost\n"
            f"DbdPort={self._ports['slurmdbd']}\nSlurmUser=slurm\nPidFile={self.root}/state/slurmdbd.pid\n"
            f"LogFile={self.root}/log/slurmdbd.log\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={port}\nStorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct\n"
        )
        conf.chmod(0o600)
        shutil.chown(conf, "slurm", "slurm")
        self._spawn("slurmdbd", "slurmdbd", "-D", user="slurm")
        self.wait_for(lambda: _listens(self._ports["slurmdbd"]), 60, "slurmdbd's port")

    def _conf_lines(self) -> Iterator[str]:
        settings = {
            "ClusterName": "clearway",
            "SlurmctldHost": "localhost(127.0.0.1)",
            "SlurmctldPort": self._ports["slurmctld"],
            "SlurmUser": "slurm",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self._munge_socket}",
            "StateSaveLocation": self.root / "state",
            "SlurmctldPidFile": self.root / "state" / "slurmctld.pid",
            "SlurmctldLogFile": self.root / "log" / "slurmctld.log",
            "SlurmdSpoolDir": f"{self.root}/spool/%n",
            "SlurmdPidFile": f"{self.root}/spool/slurmd.%n.pid",
            "SlurmdLogFile": f"{self.root}/log/slurmd.%n.log",
            "SlurmdParameters": "config_overrides",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            # With Slurm's 3 s every test would wait 3 s for its jobs to start.
            "SchedulerParameters": "batch_sched_delay=0",
            # Without a default a job takes all memory of its nodes, and nodes are never shared.
            "DefMemPerCPU": self.memory_mib // self.cpus,
            "MpiDefault": "none",
            "ReturnToService": 2,
            "KillWait": self._kill_wait_s,
            "MinJobAge": self._min_job_age_s,
            # On a busy machine a batch script is slow to start: after Slurm's 10 s its job would be requeued.
            "BatchStartTimeout": 60,
            "TreeWidth": 65000 if slurm_version() < (23, 11) else 256,
        }
        if self._switches:
            settings["TopologyPlugin"] = "topology/tree"
        if self.accounting:
            settings["AccountingStorageType"] = "accounting_storage/slurmdbd"
            settings["AccountingStorageHost"] = "localhost"
            settings["AccountingStoragePort"] = self._ports["slurmdbd"]
            settings["AccountingStoragePass"] = self._munge_socket
        repeated = []
        for line in self._extra_conf:
            key, _, value = line.partition("=")
            if key in REPEATABLE_KEYS:
                repeated.append(line)
            else:
                settings[key] = value
        yield from (f"{key}={value}" for key, value in settings.items())
        count, port = len(self.node_names), self._ports["slurmd"]
        each = (
            f"CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} ThreadsPerCore=1 "
            f"RealMemory={self.memory_mib} State=UNKNOWN"
        )
        here = "NodeHostname=localhost NodeAddr=127.0.0.1"
        if not self._gpus:
            yield f"NodeName=node[1-{count}] {here} Port=[{port}-{port + count - 1}] {each}"
        else:
            yield "GresTypes=gpu"
            for at, name in enumerate(self.node_names):
                gres = ",".join(f"gpu:{kind}:{number}" for kind, number in self._gpus.get(name, {}).items())
                yield f"NodeName={name} {here} Port={port + at} {each}" + (f" Gres={gres}" if gres else "")
        yield "PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP"
        yield "PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP"
        yield from repeated

    def _spawn(self, name: str, *argv: str, user: str | None = None) -> None:
        # setpriv sets the death signal after the change of user, which would clear it.
        who = [f"--reuid={user}", f"--regid={user}", "--init-groups"] if user else []
        command = ["setpriv", "--pdeathsig=KILL", *who, *argv]
        log = self.root / "log" / f"{name}.out"
        with log.open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command,
                env=self.env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    # ---- daemons, for tests that break them --------------------------------------------------------------

    def start_controller(self, *, clean: bool = False) -> None:
        """Start slurmctld; without ``clean`` it recovers the jobs it knew."""
        self._spawn("slurmctld", "slurmctld", "-D", *(["-c"] if clean else []), user="slurm")
        self.wait_for(self._controller_answers, 60, "an answer of slurmctld")

    def stop_controller(self, *, saved: bool = True) -> None:
        """``kill -9`` of slurmctld; jobs go on. ``saved`` waits for its state, written up to 5 s late."""
        if saved:
            file, asked = self.root / "state" / "job_state", time.time()
            self.wait_for(lambda: time.time() > asked + 6 or (file.exists() and file.stat().st_mtime > asked))
        self._end("slurmctld")

    def start_node(self, name: str) -> None:
        """Start the slurmd of one node, without waiting for it to register."""
        self._spawn(f"slurmd.{name}", "slurmd", "-D", "-N", name)

    def stop_node(self, name: str) -> None:
        """``kill -9`` of the slurmd of one node; its job steps go on."""
        self._end(f"slurmd.{name}")

    @property
    def controller_pid(self) -> int:
        """The process id of slurmctld, for tests that stop and continue it."""
        return self._processes["slurmctld"].pid

    def controller_is_up(self) -> bool:
        return "slurmctld" in self._processes and self._processes["slurmctld"].poll() is None

    def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def _controller_answers(self) -> bool:
        if not self.controller_is_up():
            raise ClusterError("slurmctld has ended")
        return "UP" in self.run("scontrol", "ping", check=False).stdout

    def _all_idle(self) -> bool:
        ended = [name for name, process in self._processes.items() if process.poll() is not None]
        if ended:
            raise ClusterError(f"ended by itself: {', '.join(ended)}")
        nodes = self.records("node")
        return len(nodes) == len(self.node_names) and all(node["State"] in IDLE_STATES for node in nodes)

    # ---- what tests use ----------------------------------------------------------------------------------

    @property
    def conf(self) -> Path:
        return self.root / "slurm.conf"

    @property
    def work(self) -> Path:
        """A folder that every test user may write to; jobs start in it and leave slurm-<id>.out there."""
        return self.root / "work"

    def folder_of(self, user: str) -> Path:
        """A new folder of this user's own; pytest's are for root alone, and are made so again by its next run."""
        folder = Path(tempfile.mkdtemp(dir=self.work))
        shutil.chown(folder, user)
        return folder

    @property
    def _munge_socket(self) -> Path:
        return self.root / "munge" / "munge.socket"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a client of this cluster, without what an outer Slurm or job has set."""
        foreign = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
        ours = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
        return ours | {"SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}

    def run(
        self, *argv: str, user: str | None = None, check: bool = True, timeout: float = 30, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a Slurm command, as ``user`` if given. With ``check`` a failure raises ClusterError."""
        env, command = self.env, list(argv)
        if user:
            command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", *argv]
            env |= {"HOME": str(self.work), "USER": user, "LOGNAME": user, "PATH": SYSTEM_PATH}
        return _call(command, timeout=timeout, check=check, env=env, cwd=self.work, stdin=stdin)

    def sbatch(self, script: str | Path, *args: str, user: str | None = None) -> str:
        """Submit a file (Path), a whole script ("#!...") or a command line; returns the job id."""
        if isinstance(script, Path):
            text = script.read_text()
        else:
            text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        submitted = self.run("sbatch", "--parsable", *args, user=user, stdin=text)
        return submitted.stdout.strip().partition(";")[0]

    def records(self, what: str, *names: str) -> list[dict[str, str]]:
        """``scontrol -o show WHAT`` (job, node, res ...) as dictionaries; none is an empty list.

        A job whose name or Comment breaks the line is shown in pieces; pieces without a JobState are left out.
        """
        shown = self.run("scontrol", "-o", "show", what, *names, check=not names)
        found = [parse_record(line) for line in shown.stdout.splitlines() if re.match(r"[A-Z]\w+=", line)]
        return [record for record in found if "JobState" in record] if what == "job" else found

    def node_state(self, name: str) -> str:
        """A node's State, whether or not it has answered since it was brought back."""
        (record,) = self.records("node", name)
        return NO_ANSWER_YET.sub("", record["State"])

    def job(self, job_id: str) -> dict[str, str]:
        """One job as ``scontrol show job`` prints it, or {} once Slurm has forgotten it."""
        found = self.records("job", job_id)
        return found[0] if found else {}

    def state(self, job_id: str) -> str:
        """The job's state, "" once Slurm has forgotten it. From squeue, which a job's own texts cannot disturb."""
        listed = self.run("squeue", "-h", "--states=all", f"--jobs={job_id}", "-o", "%T", check=False)
        return (listed.stdout.split() or [""])[0]

    def wait_state(self, job_id: str, *states: str, timeout: float = 30) -> str:
        """Wait until the job is in one of these states."""
        what = f"job {job_id} in state {' or '.join(states)}"
        return self.wait_for(lambda: (s := self.state(job_id)) in states and s, timeout, what)

    def lift_waits(self) -> None:
        """Let requeued jobs start that have waited for 1.5 s: not Slurm's two minutes, but see decision 0013."""
        now = time.monotonic()
        listed = self.run("squeue", "-h", "-t", "PENDING", "-o", "%A %r").stdout.splitlines()
        waiting = {line.split()[0] for line in listed if line.endswith("BeginTime")}
        self._waiting = {job: self._waiting.get(job, now) for job in waiting}
        rested = sorted(job for job, since in self._waiting.items() if now - since >= 1.5)
        if rested:
            self.run("scontrol", "update", f"JobId={','.join(rested)}", "StartTime=now", check=False)

    def set_admin_level(self, user: str, level: str) -> None:
        """Give a user these rights, and wait until the controller has heard of it from slurmdbd."""
        self.run("sacctmgr", "-i", "modify", "user", user, "set", f"AdminLevel={level}")
        show = ("scontrol", "-o", "show", "assoc_mgr", f"users={user}", "flags=users")
        self.wait_for(lambda: f"AdminLevel={level}" in self.run(*show).stdout, 30, f"{user} to be {level}")

    def scontrol_reservations(self) -> list[dict[str, str]]:
        """All Slurm reservations."""
        return self.records("res")

    def wait_for(self, predicate: Callable[[], T | bool | None], timeout: float = 30, what: str = "") -> T:
        """Poll until the predicate is true and return its value; ClusterError says what stayed false."""
        deadline = time.monotonic() + timeout * SLACK
        while not (value := predicate()):
            if time.monotonic() > deadline:
                raise ClusterError(f"not within {timeout * SLACK:g} s: {what or predicate}")
            time.sleep(0.05)
        return value  # type: ignore[return-value]  # what is left after `not` is a T, or True where T is bool

    def reset(self) -> None:
        """Make the cluster as it was at the start: no jobs, no reservations, every node up and idle."""
        if not self.controller_is_up():
            self.start_controller()
        os.kill(self.controller_pid, signal.SIGCONT)
        for name in self.node_names:
            if f"slurmd.{name}" not in self._processes:
                self.start_node(name)
        self.wait_for(self._cancel_all, 60, "no job left")
        for reservation in self.scontrol_reservations():
            self.run("scontrol", "delete", f"ReservationName={reservation['ReservationName']}", check=False)
        for node in self.records("node"):
            if node["State"] not in IDLE_STATES:
                self.run("scontrol", "update", f"NodeName={node['NodeName']}", "State=RESUME", check=False)
        self.wait_for(self._all_idle, 60, "all nodes idle")

    def _cancel_all(self) -> bool:
        listed = self.run("squeue", "-h", "-o", "%A %T").stdout.split()
        jobs = dict(zip(listed[::2], listed[1::2], strict=True))
        suspended = [job for job, state in jobs.items() if state == "SUSPENDED"]
        if suspended:  # a signal to a suspended job hangs
            self.run("scontrol", "resume", ",".join(suspended), check=False)
        if jobs:  # KILL first: a job that ignores TERM would cost KillWait
            self.run("scancel", "--full", "--signal=KILL", *jobs, check=False)
            self.run("scancel", *jobs, check=False)
        return not jobs

    def logs(self, lines: int = 40) -> str:
        """The last lines of every log of the cluster, for a failure report."""
        parts = []
        for path in sorted(self.root.glob("log/*")) if self.root != Path() else []:
            if path.suffix == ".out" and path.with_suffix(".log").exists():
                continue  # says the same
            if tail := path.read_text(errors="replace").splitlines()[-lines:]:
                parts.append("\n".join([f"--- {path.name}", *tail]))
        return "\n".join(parts)


def _call(
    command: Sequence[str], *, timeout: float, check: bool = True, stdin: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout * SLACK, check=False, **options
    )
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def _free_ports(count: int) -> tuple[int, socket.socket]:
    """The first of ``count`` free ports in a row, below the range that outgoing connections use.

    Its daemons listen only later, and not while a test has stopped them: until the socket is closed no other test
    cluster of this machine gets any of them, nor one in another file system.
    """
    for base in random.sample(range(10000, 32000 - PORT_BLOCK, PORT_BLOCK), 100):
        claim = socket.socket(socket.AF_UNIX)
        with suppress(OSError):  # another cluster has them
            claim.bind(f"\0clearway-test-ports-{base}")
            if not any(_listens(port) for port in range(base, base + count)):
                return base, claim
        claim.close()
    raise ClusterError(f"no {count} free ports in a row")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _processes_of(root: Path) -> Iterator[int]:
    """Job steps, jobs and clients of this cluster: who has its SLURM_CONF, and their children."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    marker = f"SLURM_CONF={root}/slurm.conf".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except (OSError, IndexError):
            continue  # it has ended meanwhile
    for pid in parents:
        line, above = [pid], parents.get(pid)
        while above and above not in line:
            line.append(above)
            above = parents.get(above)
        if os.getpid() != pid and found.intersection(line):
            yield pid


def _remove(root: Path) -> None:
    """End what still runs in this cluster folder and delete the folder."""
    deadline = time.monotonic() + 10
    while (left := list(_processes_of(root))) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # the end of a killed process takes a moment
    if not os.environ.get("CLEARWAY_KEEP"):
        shutil.rmtree(root, ignore_errors=True)


def _sweep_abandoned() -> None:
    """Clear away clusters whose test run was killed: their folder names the process that owned them."""
    for root in Path("/tmp").glob(f"{PREFIX}*"):
        owner = root.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and not os.environ.get("CLEARWAY_KEEP"):
            _remove(root)
