"""A real Slurm cluster on this machine, for tests: own munge, own ports, own folder, nothing left behind.

Several slurmd share one host, as Debian builds them to (``slurmd -N node3``). The same code runs on Slurm
22.05 (Debian 12), 24.11 and 26.05 (the trees of ``tests/run slurm24`` and ``slurm26``). Every daemon is started in the
foreground under ``setpriv --pdeathsig KILL``, so it dies with the test run even when that is killed; job
steps, which detach from slurmd by design, are found by their SLURM_CONF and ended by process id.

It needs root: slurmd starts the jobs of several ordinary users.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from clearway.slurm.parse import over
from tests.slurm.machine import (
    PREFIX,
    TEST_USERS,
    ClusterError,
    call,
    ensure_users,
    free_ports,
    listens,
    make_gpus,
    missing_requirements,
    remove_cluster,
    slurm_version,
    sweep_abandoned,
)
from tests.slurm.rest_server import RestServer

IDLE_STATES = {"IDLE", "IDLE+PLANNED"}  # PLANNED: of an earlier plan of backfill, which plans every 30 s
REPEATABLE_KEYS = {"NodeName", "NodeSet", "PartitionName", "DownNodes"}


class SlurmCluster(RestServer):
    """``with SlurmCluster() as cluster: cluster.sbatch("sleep 60", "-N2", user="cwalice")``.

    ``extra_conf`` takes slurm.conf lines; a ``Key=Value`` replaces the default of that key. ``accounting``
    adds MariaDB and slurmdbd, an account ``cw`` with the test users, and makes ``cwdaemon`` an operator.
    ``gpus`` names nodes that have some, by type; a GPU is an empty file, which is enough for Slurm to give it out.
    Other generic resources stand among them as "nvme:" and are only counted.
    ``switches`` are leaf switches with their nodes as a host list, all under one more (topology/tree).
    ``tokens``: `scontrol token` makes them (auth/jwt), with a key that only slurmctld reads.
    ``rest``: a slurmrestd of its own user beside it, which takes such tokens on a Unix socket (``rest_socket``); by
    default where CLEARWAY_BACKEND says that tests use it.
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
        tokens: bool = False,
        rest: bool = os.environ.get("CLEARWAY_BACKEND") == "rest",
    ) -> None:
        reason = missing_requirements(accounting=accounting, rest=rest)
        if reason:
            raise ClusterError(f"no Slurm cluster can be started here: {reason}")
        super().__init__()
        self.node_names = [f"node{i}" for i in range(1, nodes + 1)]
        self.cpus = cpus
        self.memory_mib = memory_mib
        self.accounting = accounting
        self._kill_wait_s = kill_wait_s
        self._min_job_age_s = min_job_age_s
        self._extra_conf = tuple(extra_conf)
        self._gpus = gpus or {}
        self._switches = switches or {}
        self._tokens = tokens or rest
        self._rest = rest
        self._first_job_id = 1
        self._ports_kept: socket.socket | None = None

    # ---- life --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        sweep_abandoned()
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
            remove_cluster(self.root)

    def _start(self) -> None:
        owners = {"munge": "munge", "state": "slurm", "log": "slurm", "spool": "root", "work": "root"}
        for name, owner in owners.items():
            (self.root / name).mkdir()
            shutil.chown(self.root / name, owner, owner)
        self.work.chmod(0o1777)  # like /tmp: every test user writes output here
        base, self._ports_kept = free_ports(4 + len(self.node_names))
        self._ports = {"slurmctld": base, "slurmdbd": base + 1, "mariadb": base + 2, "slurmd": base + 4}
        self.rest_port = base + 3
        self.start_munge()
        if self.accounting:
            self._start_accounting()
        self.conf.write_text("\n".join(self._conf_lines()) + "\n")
        if slurm_version() >= (23, 11):  # newer ones ask for a cgroup tree of their own
            (self.root / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
        if self._gpus:
            make_gpus(self.root, self._gpus)
        if self._switches:
            leaves = [f"SwitchName={name} Nodes={nodes}" for name, nodes in self._switches.items()]
            lines = [*leaves, f"SwitchName=top Switches={','.join(self._switches)}"]
            (self.root / "topology.conf").write_text("\n".join(lines) + "\n")
        if self._tokens:
            self._jwt_key.write_bytes(os.urandom(32))
            self._jwt_key.chmod(0o600)
            shutil.chown(self._jwt_key, "slurm", "slurm")
        self.start_controller(clean=True)
        for name in self.node_names:
            self.start_node(name)
        self.wait_for(self._all_idle, 60, "all nodes idle")
        if self._rest:
            self.start_rest()
        if self.accounting:
            self.run("sacctmgr", "-i", "add", "account", "cw", "Description=tests", "Organization=tests")
            self.run("sacctmgr", "-i", "add", "user", ",".join(("root", *TEST_USERS)), "Account=cw")
            self.run("sacctmgr", "-i", "modify", "user", "cwdaemon", "set", "AdminLevel=Operator")

    def start_munge(self) -> None:
        key = self.root / "munge" / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
        kinds = ("socket", "pid-file", "seed-file", "log-file")
        files = [f"--{kind}={self.root}/munge/munge.{kind}" for kind in kinds]
        self._spawn("munged", "munged", "--foreground", f"--key-file={key}", *files, user="munge")
        self.wait_for(self._munge_socket.exists, 10, "munge's socket")

    def _start_accounting(self) -> None:
        (folder := self.root / "db").mkdir()
        shutil.chown(folder, "mysql", "mysql")
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={folder}/data", f"--tmpdir={folder}"]
        call([*install, "--user=mysql", "--skip-test-db", "--auth-root-authentication-method=normal"], timeout=60)
        sql, who = folder / "init.sql", "slurm@'127.0.0.1'"
        sql.write_text(f"CREATE USER {who} IDENTIFIED BY 'slurm';\nGRANT ALL ON *.* TO {who};\n")
        self.start_mariadb(f"--init-file={sql}")
        conf = self.root / "slurmdbd.conf"
        conf.write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={self._munge_socket}\nDbdHost=localhost\n"
            f"DbdPort={self._ports['slurmdbd']}\nSlurmUser=slurm\nPidFile={self.root}/state/slurmdbd.pid\n"
            f"LogFile={self.root}/log/slurmdbd.log\nStorageType=accounting_storage/mysql\nStorageHost=127.0.0.1\n"
            f"StoragePort={self._ports['mariadb']}\nStorageUser=slurm\nStoragePass=slurm\nStorageLoc=slurm_acct\n"
        )
        conf.chmod(0o600)
        shutil.chown(conf, "slurm", "slurm")
        self.start_slurmdbd()

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
        if self._tokens:
            settings["AuthAltTypes"] = "auth/jwt"
            settings["AuthAltParameters"] = f"jwt_key={self._jwt_key}"
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
            yield f"GresTypes={','.join({'gpu', *(k[:-1] for each in self._gpus.values() for k in each if ':' in k)})}"
            for at, name in enumerate(self.node_names):
                counts = self._gpus.get(name, {}).items()
                gres = ",".join(f"{kind}{number}" if ":" in kind else f"gpu:{kind}:{number}" for kind, number in counts)
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
                command, env=self.env, cwd="/", stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    @property
    def _munge_socket(self) -> Path:
        return self.root / "munge" / "munge.socket"

    @property
    def _jwt_key(self) -> Path:
        return self.root / "state" / "jwt.key"

    # ---- daemons, for tests that break them --------------------------------------------------------------

    def start_controller(self, *, clean: bool = False) -> None:
        """Start slurmctld; without ``clean`` it recovers the jobs it knew, and gives no id again that it has forgotten.

        Users' files are named after jobs: the next job of an id would find those of another user, or of another run.
        """
        if not clean:
            self._first_job_id += 1_000
            kept = re.sub(r"^FirstJobId=.*\n", "", self.conf.read_text(), flags=re.MULTILINE)
            self.conf.write_text(f"{kept}FirstJobId={self._first_job_id}\n")
        # 26.05 with slurmdbd does not start without the file of what was used, which it first writes after minutes.
        how = ["-c"] if clean else ["-i"] if self.accounting else []
        self._spawn("slurmctld", "slurmctld", "-D", *how, user="slurm")
        self.wait_for(self._controller_answers, 60, "an answer of slurmctld")

    def stop_controller(self, *, saved: bool = True) -> None:
        """``kill -9`` of slurmctld; jobs go on. ``saved``: once its file has what is so now.

        It writes up to 5 s late, and a new file may hold what was so before: hence the mark. At times there is none.
        """
        jobs = self.run("squeue", "-h", "-t", "RUNNING,SUSPENDED,PENDING", "-o", "%A").stdout.split() if saved else []
        if jobs:
            file, mark = str(self.root / "state" / "job_state"), f"saved-at-{time.time_ns()}"
            self.run("scontrol", "update", f"JobId={min(jobs, key=int)}", f"AdminComment={mark}")
            self.wait_for(lambda: self.run("grep", "-sq", mark, file, check=False).returncode == 0, 30, "its file")
        self.end("slurmctld")

    def start_mariadb(self, *more: str) -> None:
        folder, port = self.root / "db", self._ports["mariadb"]
        options = [f"--datadir={folder}/data", f"--socket={folder}/sock", f"--pid-file={folder}/pid"]
        options += ["--bind-address=127.0.0.1", f"--port={port}", "--skip-name-resolve", f"--tmpdir={folder}", *more]
        self._spawn("mariadbd", "mariadbd", "--no-defaults", *options, user="mysql")
        self.wait_for(lambda: listens(port), 60, "MariaDB's port")

    def start_slurmdbd(self) -> None:
        self._spawn("slurmdbd", "slurmdbd", "-D", user="slurm")
        self.wait_for(lambda: listens(self._ports["slurmdbd"]), 60, "slurmdbd's port")

    def start_node(self, name: str) -> None:
        """Start the slurmd of one node, without waiting for it to register."""
        self._spawn(f"slurmd.{name}", "slurmd", "-D", "-N", name)

    def stop_node(self, name: str) -> None:
        """``kill -9`` of the slurmd of one node; its job steps go on."""
        self.end(f"slurmd.{name}")

    def pid_of(self, name: str) -> int:
        """The process id of one daemon, for tests that stop and continue it."""
        return self._processes[name].pid

    def controller_is_up(self) -> bool:
        return "slurmctld" in self._processes and self._processes["slurmctld"].poll() is None

    def end(self, name: str) -> None:
        """``kill -9`` of one daemon, by the name that it was started under, such as slurmdbd."""
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

    # ---- for the next test ---------------------------------------------------------------------------------

    def reset(self) -> None:
        """Make the cluster as it was at the start: no jobs, no reservations, every node up and idle."""
        if not self.controller_is_up():
            self.start_controller()
        os.kill(self.pid_of("slurmctld"), signal.SIGCONT)
        for name in self.node_names:
            if f"slurmd.{name}" not in self._processes:
                self.start_node(name)
        self.wait_for(self._cancel_all, 60, "no job left")
        self.wait_for(self._delete_reservations, 60, "no reservation left")
        brought_back: set[str] = set()  # asked again a node would be waited for again
        self.wait_for(lambda: self._bring_back(brought_back) or self._all_idle(), 60, "all nodes idle")
        for name in self.node_reasons():  # 24.11 without slurmdbd clears none
            self.run("scontrol", "update", f"NodeName={name}", f"Reason={over('clearway test')}")

    def _delete_reservations(self) -> bool:
        """Slurm refuses as long as a job is on its way out of one."""
        left = self.scontrol_reservations()
        for reservation in left:
            self.run("scontrol", "delete", f"ReservationName={reservation['ReservationName']}", check=False)
        return not left

    def _bring_back(self, already: set[str]) -> None:
        """Those that are drained, or down for a while: also one that goes down only now."""
        for node in self.records("node"):
            if re.search("DOWN|DRAIN|FAIL", node["State"]) and node["NodeName"] not in already:
                done = self.run("scontrol", "update", f"NodeName={node['NodeName']}", "State=RESUME", check=False)
                already.update([node["NodeName"]] * (done.returncode == 0))

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
