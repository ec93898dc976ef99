"""A cluster as sites have them: power saving, a prolog and an epilog, and Slurm's own preemption in one partition."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from clearway.slurm.parse import expand
from tests.slurm.cluster import SlurmCluster

RESUME_S, SUSPEND_S = 25, 2
_OFF = re.compile("POWER(ED|ING)_DOWN")
# Slurm preempts for ``top`` by itself; Clearway makes room for jobs in ``urgent``.
CONF = (
    f"ResumeTimeout={RESUME_S}",
    f"SuspendTimeout={SUSPEND_S}",
    "SuspendTime=86400",  # only what a test switches off
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "RebootProgram=/bin/true",
    "MaxNodeCount=16",  # with dynamic ones
    "PartitionName=top Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100",
    "PartitionName=graceful Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=6",
    "PartitionName=standing Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=OFF",
    "PartitionName=left Nodes=node[1-2] MaxTime=10 State=UP PriorityTier=1",
    "PartitionName=right Nodes=node[3-4] MaxTime=INFINITE State=UP PriorityTier=1",
    "PartitionName=forced Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 OverSubscribe=FORCE:2",
    "SlurmctldParameters=enable_configless",
    "NodeName=future1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=9 CPUs=4 RealMemory=4000 State=FUTURE",
)
POWER = '#!/bin/sh\nmkdir -p {orders}\nprintf "%s\\n" "$1" > {orders}/new.$$ && mv {orders}/new.$$ {orders}/{what}.$$\n'
# Whatever a test writes into the file is done on the node, as root.
SCRIPT = '#!/bin/sh\n[ -e {file} ] && . {file}\nexit "${{status:-0}}"\n'


class SiteCluster(SlurmCluster):
    """``prolog`` and ``epilog`` are shell commands of the site; a switched-off node's slurmd ends, and boots again."""

    def __init__(self, *, nodes: int = 4, extra_conf: Sequence[str] = ()) -> None:
        super().__init__(nodes=nodes, extra_conf=(*CONF, *extra_conf))
        self._over = threading.Event()
        self._room = threading.Thread(target=self._machine_room, daemon=True)

    def _start(self) -> None:
        orders = self.root / "orders"
        orders.mkdir()
        orders.chmod(0o777)
        files = {"suspend": POWER, "resume": POWER, "prolog": SCRIPT, "epilog": SCRIPT}
        for what, text in files.items():
            script = self.root / f"{what}.sh"
            script.write_text(text.format(what=what, orders=orders, file=self.root / f"{what}.do"))
            script.chmod(0o755)
        keys = {"suspend": "SuspendProgram", "resume": "ResumeProgram", "prolog": "Prolog", "epilog": "Epilog"}
        self._extra_conf = (*self._extra_conf, *(f"{key}={self.root}/{what}.sh" for what, key in keys.items()))
        self._room.start()
        super()._start()

    def _conf_lines(self) -> Iterator[str]:
        yield f"SlurmdPort={self._dynamic_port}"  # of dynamic nodes; all others have ports of their own
        yield from super()._conf_lines()

    @property
    def _dynamic_port(self) -> int:
        return self._ports["slurmd"] + len(self.node_names)

    @property
    def port(self) -> int:
        """Of slurmctld."""
        return self._ports["slurmctld"]

    def add_dynamic(self, name: str) -> None:
        """A node that no configuration names: its slurmd says what it is."""
        conf = f"CPUs={self.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={self.cpus} ThreadsPerCore=1"
        conf += f" RealMemory={self.memory_mib}"
        self._spawn(f"slurmd.{name}", "slurmd", "-D", "-b", "-Z", "-N", name, "--conf", conf)
        self.wait_for(lambda: self.power_state(name).startswith("IDLE"), 30, f"{name} to appear")

    def remove_dynamic(self, name: str) -> None:
        self.stop_node(name)
        self.run("scontrol", "delete", f"NodeName={name}")

    def stop(self) -> None:
        self._over.set()
        super().stop()

    def reset(self) -> None:
        for what in ("prolog", "epilog"):
            (self.root / f"{what}.do").unlink(missing_ok=True)
        super().reset()

    def prolog(self, commands: str) -> None:
        (self.root / "prolog.do").write_text(commands + "\n")

    def epilog(self, commands: str) -> None:
        (self.root / "epilog.do").write_text(commands + "\n")

    def switch_off(self, name: str) -> None:
        self.run("scontrol", "update", f"NodeName={name}", "State=POWER_DOWN")
        self.wait_for(lambda: _OFF.search(self.power_state(name)) is not None, 30, f"{name} to go off")

    def power_state(self, name: str) -> str:
        return next((node["State"] for node in self.records("node") if node["NodeName"] == name), "")

    def _all_idle(self) -> bool:
        for node in self.records("node"):
            if _OFF.search(node["State"]):
                self.run("scontrol", "update", f"NodeName={node['NodeName']}", "State=POWER_UP", check=False)
        return super()._all_idle()

    def start_node(self, name: str) -> None:
        # -b: it has just booted, which slurmctld asks of a node that it has switched on.
        self._spawn(f"slurmd.{name}", "slurmd", "-D", "-b", "-N", name)

    def _machine_room(self) -> None:
        """Carries out what Slurm orders, as root: SuspendProgram and ResumeProgram run as SlurmUser."""
        while not self._over.wait(0.1):
            for order in sorted(self.root.glob("orders/[rs]*.*"), key=lambda path: path.stat().st_mtime_ns):
                names = expand(order.read_text().strip())
                order.unlink()
                for name in names:
                    if order.name.startswith("suspend"):
                        self._switched_off(name)
                    elif f"slurmd.{name}" not in self._processes:
                        self.start_node(name)

    def _switched_off(self, name: str) -> None:
        with suppress(KeyError, ProcessLookupError):
            os.kill(self._processes[f"slurmd.{name}"].pid, signal.SIGTERM)
            self.stop_node(name)
