"""A name for this process that no other process has, on this host or another, now or later.

The host's name is for people: two hosts may have the same. The boot, the process namespace, the process id and its
start tell processes apart, and let a process that has ended be recognised on the same machine.
"""

import os
import re
import secrets
import socket
from pathlib import Path

_OWNER = re.compile(r"(?P<host>.*) pid (?P<pid>\d+) (?P<machine>[0-9a-f-]+\.\d+)\.(?P<start>\d+)\.[0-9a-f]+")


def own_name() -> str:
    """A new one for each call: two daemons in one process are two."""
    machine, pid = _machine(), os.getpid()
    known = f"{machine}.{_start(pid)}" if machine is not None else "unknown"
    return f"{socket.gethostname()} pid {pid} {known}.{secrets.token_hex(4)}"


def host_of(name: str) -> str:
    """The host of a process of this name."""
    return name.partition(" pid ")[0]


def certainly_gone(name: str) -> bool:
    """Whether the process of this name ran on this very machine since its boot, and has ended."""
    found = _OWNER.fullmatch(name)
    return found is not None and found["machine"] == _machine() and _start(int(found["pid"])) != found["start"]


def _machine() -> str | None:
    """The boot, and the namespace in which process ids count (a container has its own); None when not to be had."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except (OSError, ValueError):
        return None


def _start(pid: int) -> str | None:
    """When a process started, in ticks since the boot; None when there is none, or only what is left of it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
