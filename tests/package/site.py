"""What a site has before Clearway comes: Slurm, four nodes, users, a partition for urgent jobs; on Debian 12 slurmdbd.

Debian 13's slurmdbd ends at its start: it cannot read what Debian 13's MariaDB answers. So 13 is the site without one.
"""

from __future__ import annotations

import os

from tests.package.machine import Machine

NODES = 4
CONF = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdSpoolDir=/var/lib/slurm/slurmd.%n
SlurmdPidFile=/run/slurmd.%n.pid
SlurmdLogFile=/var/log/slurm/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=batch_sched_delay=0
DefMemPerCPU=1000
MpiDefault=none
ReturnToService=2
KillWait=20
BatchStartTimeout=60
NodeName=node[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-17004] CPUs=4 Boards=1 SocketsPerBoard=1 \
CoresPerSocket=4 ThreadsPerCore=1 RealMemory=4000 State=UNKNOWN
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP
"""
ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
"""
DBD = """\
AuthType=auth/munge
DbdHost=localhost
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurmdbd/slurmdbd.pid
"""
NODE_UNIT = """\
[Unit]
After=slurmctld.service munge.service
[Service]
ExecStart=/usr/sbin/slurmd -D -N %i
KillMode=process
Delegate=yes
"""


def has_slurmdbd(machine: Machine) -> bool:
    return machine.suite == "bookworm"


def daemon_user(machine: Machine) -> str:
    """Without slurmdbd Slurm has no operators, and the daemon runs as SlurmUser."""
    return "clearway" if has_slurmdbd(machine) else "slurm"


def begin(machine: Machine) -> None:
    """Start it, and wait until all nodes are idle."""
    machine.run("useradd -m alice; useradd -m ursula")
    machine.run("install -d -o slurm -g slurm /var/log/slurm /var/lib/slurm/slurmctld")
    # slurmdbd resolves no address where loopback is the only network.
    machine.run("ip link add site type veth peer name rest; ip link set rest up")
    machine.run("ip addr add 192.0.2.1/24 dev site; ip link set site up")
    (machine.root / "etc/munge/munge.key").write_bytes(os.urandom(128))
    machine.run("chown munge:munge /etc/munge/munge.key; chmod 400 /etc/munge/munge.key; systemctl restart munge")
    machine.write("/etc/slurm/slurm.conf", CONF + (ACCOUNTING if has_slurmdbd(machine) else ""))
    if machine.suite != "bookworm":  # newer ones ask for a cgroup tree of their own
        machine.write("/etc/slurm/cgroup.conf", "CgroupPlugin=disabled\n")
    machine.write("/etc/systemd/system/slurmd@.service", NODE_UNIT)
    machine.run("systemctl daemon-reload; systemctl disable --now slurmd")
    if has_slurmdbd(machine):
        _start_slurmdbd(machine)
    machine.run("systemctl restart slurmctld")
    machine.run("systemctl start " + " ".join(f"slurmd@node{number}" for number in range(1, NODES + 1)))
    machine.wait_for(lambda: machine.says("sinfo -h -N -p batch -t idle -o %N").count("node") == NODES, "idle nodes")
    if has_slurmdbd(machine):
        machine.run("sacctmgr -i add account research; sacctmgr -i add user alice,ursula Account=research")


def _start_slurmdbd(machine: Machine) -> None:
    machine.wait_for(lambda: machine.run("mariadb -e 'SELECT 1'", check=False).returncode == 0, "MariaDB")
    machine.run("mariadb -e \"CREATE USER slurm@localhost IDENTIFIED BY 'slurm'; GRANT ALL ON *.* TO slurm@localhost\"")
    machine.write("/etc/slurm/slurmdbd.conf", DBD)
    machine.run("chown slurm: /etc/slurm/slurmdbd.conf; chmod 600 /etc/slurm/slurmdbd.conf")
    machine.run("systemctl restart slurmdbd")
    machine.wait_for(lambda: machine.run("sacctmgr -n show cluster", check=False).returncode == 0, "slurmdbd")


def submit(machine: Machine, command: str, *options: str, user: str = "alice") -> str:
    """Its job id."""
    script = f"printf '#!/bin/sh\\n%s\\n' '{command}' | sbatch --parsable -o /dev/null {' '.join(options)}"
    return machine.says(script, user=user, folder="/tmp")


def state(machine: Machine, job_id: str) -> str:
    return machine.says(f"squeue -h -t all -j {job_id} -o %T")


def events(machine: Machine) -> str:
    return machine.run("journalctl -u clearway --no-pager | tail -n 60", check=False).stdout
