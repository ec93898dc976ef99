"""What ``scontrol show`` tells of a site: version, what Slurm's own preemption sorts by, licenses, power, switches."""

import re

from clearway.model.cluster import License, PowerSaving
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.hostlist import expand

_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\S+)", re.MULTILINE)
_TYPE = re.compile(r"^PreemptType\s*=\s*(\S+)", re.MULTILINE)
_TIER = re.compile(r"^PartitionName=(\S+) .*?\bPriorityTier=(\d{1,10})\b", re.MULTILINE)
_QOS = re.compile(r"^QOS=(\S+)\(\d+\)\s*$((?:\n[ \t].*)*)", re.MULTILINE)
_PRIORITY = re.compile(r"^    Priority=(\d{1,10})\s*$", re.MULTILINE)
_MODE = re.compile(r"^PreemptMode\s*=\s*(\S+)", re.MULTILINE)
_PARTITION_MODE = re.compile(r"^PartitionName=(\S+) .*?\bPreemptMode=(\S+)", re.MULTILINE)
_GRACE = re.compile(r"\bGraceTime=(\d{1,10})\b")
_PREEMPTS = re.compile(r"^    Preempt=(\S+)\s*$", re.MULTILINE)
_KEEPS = frozenset({"OFF", "GANG"})  # modes in which nothing leaves
_MOST = 0xFFFF  # Slurm sorts by one number of 32 bits, of which the number of nodes takes the lower half


def version(config: str) -> str:
    """The version of slurmctld ("24.11.5"), of ``scontrol show config``; empty where it does not say."""
    found = _VERSION.search(config)
    return found[1] if found else ""


def sorts_by_qos(config: str) -> bool:
    """Whether ``scontrol show config`` says preempt/qos; every other type sorts by partition, or not at all."""
    found = _TYPE.search(config)
    return found is not None and found[1] == "preempt/qos"


def preempts(config: str) -> bool:
    """Whether Slurm preempts jobs by itself."""
    found, mode = _TYPE.search(config), _MODE.search(config)
    return found is not None and found[1] != "preempt/none" and mode is not None and mode[1] not in _KEEPS


def preempted_partitions(partitions: str) -> dict[str, frozenset[str]]:
    """Partition to those of a lower tier whose jobs Slurm preempts for it, by preempt/partition_prio."""
    tiers = read_tiers(partitions)
    able = {name for name, mode in _PARTITION_MODE.findall(partitions) if mode not in _KEEPS}
    return {name: frozenset(other for other in able if tiers.get(other, tier) < tier) for name, tier in tiers.items()}


def longest_grace_s(records: str) -> float:
    """Of partitions or QoS: how long a job that is preempted may run on."""
    return max(map(float, _GRACE.findall(records)), default=0.0)


def preempted_qos(records: str) -> dict[str, frozenset[str]]:
    """QoS to those whose jobs Slurm preempts for it, by preempt/qos."""
    found = {name: _PREEMPTS.search(fields) for name, fields in _QOS.findall(records)}
    return {name: frozenset(others[1].split(",")) for name, others in found.items() if others}


def read_tiers(partitions: str) -> dict[str, int]:
    """Partition to tier, from ``scontrol --oneliner show partition``."""
    return {name: min(int(tier), _MOST) for name, tier in _TIER.findall(partitions)}


def read_qos_priorities(records: str) -> dict[str, int]:
    """QoS to priority, from ``scontrol show assoc_mgr flags=qos``: without a query to the accounting database."""
    found = {name: _PRIORITY.search(fields) for name, fields in _QOS.findall(records)}
    return {name: min(int(priority[1]), _MOST) for name, priority in found.items() if priority}


_NAME = re.compile(r"LicenseName=(\S+)((?: \S+)*)\s*", re.ASCII)


def read_licenses(text: str) -> dict[str, License]:
    """By name. Of a remote one the server may know of more use than Slurm: that is its deficit.

    Raises FieldError for text that is no list of licenses.
    """
    found: dict[str, License] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("No licenses configured"):
            continue
        read = _NAME.fullmatch(line)
        if read is None:
            raise FieldError(f"a license is {line[:40]!r}")
        record = dict(part.partition("=")[::2] for part in read[2].split())
        total, used, reserved, deficit = (
            fields.number(record.get(key, "0"), key) for key in ("Total", "Used", "Reserved", "LastDeficit")
        )
        found[read[1]] = License(total, used + deficit, reserved)
    return found


_OFF = frozenset({"POWERED_DOWN", "POWERING_UP", "POWER_UP"})
_GOING_OFF = frozenset({"POWER_DOWN", "POWERING_DOWN"})
_ASLEEP = _OFF | _GOING_OFF
_BESIDE = frozenset({"CLOUD", "COMPLETING", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED", "RESERVED", "IDLE"})


def read_power_saving(config: str) -> PowerSaving:
    """From ``scontrol show config``; without a ResumeProgram there is none."""
    if _value(config, "ResumeProgram") in ("", "(null)"):
        return PowerSaving()
    return PowerSaving(
        resume_s=_seconds(config, "ResumeTimeout"),
        suspend_s=_seconds(config, "SuspendTimeout"),
        hides_nodes="cloud" not in _value(config, "PrivateData").split(","),
    )


def boot_s(raw_state: str, saving: PowerSaving) -> float | None:
    """Power saving: the limits of ``scontrol show config``, and which nodes are off, or on their way.

    A node that is off is ``IDLE+POWERED_DOWN``; marked to go off, and going, ``POWER_DOWN`` and ``POWERING_DOWN``:
    until SuspendTimeout is over no job gets it; booting, ``POWERING_UP``, with ``NOT_RESPONDING`` in 22.05 (measured).
    With ``State=CLOUD`` it is shown while it is off only with ``PrivateData=cloud``; Slurm gives it to jobs all the
    same.

    Seconds until an idle node could run a job, at most; None where it is awake, or is no node for jobs.
    """
    base, *flags = raw_state.split("+")
    of_power = _ASLEEP.intersection(flags)
    if base != "IDLE" or not of_power:
        return None
    others = set(flags) - of_power - _BESIDE
    if others - ({"NOT_RESPONDING"} if "POWERING_UP" in of_power else set()):
        return None
    return saving.resume_s + (saving.suspend_s if of_power & _GOING_OFF else 0.0)


def _value(config: str, key: str) -> str:
    found = re.search(rf"^{key}\s*=\s*(\S*)", config, re.MULTILINE)
    return found[1] if found else ""


def _seconds(config: str, key: str) -> float:
    value = _value(config, key)
    return float(value) if value.isascii() and value.isdecimal() else 0.0


_LINE = re.compile(
    r"SwitchName=(?P<name>[A-Za-z0-9_.:-]{1,128}) Level=(?P<level>\d{1,4}) LinkSpeed=\d{1,10}"
    r"(?: Nodes=(?P<nodes>\S+))?(?P<below> Switches=\S+)?",
    re.ASCII,
)


def read_leaf_switches(shown: str) -> dict[str, str]:
    """The leaf switch of each node, from ``scontrol show topology`` where TopologyPlugin is topology/tree.

    The same lines in 22.05 and 26.05: ``SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[1-4]``, higher levels with
    ``Switches=`` besides. Nodes of a wrong switch would be freed in vain, so a single line that is anything else makes
    all of it unreadable: other plugins (blocks), several topologies at once, a node under two leaf switches.

    Node to leaf switch. Raises FieldError, in one line, for text that is not a tree of switches.
    """
    switch_of: dict[str, str] = {}
    seen: set[str] = set()
    for line in shown.splitlines():
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.rstrip(" "))
        if found is None:
            raise FieldError(f"{line[:80]!r} does not describe a switch")
        name = found["name"]
        if name in seen:
            raise FieldError(f"switch {name} is given twice")
        seen.add(name)
        if int(found["level"]) > 0:
            continue
        if found["below"]:
            raise FieldError(f"switch {name} is a leaf switch, and yet has switches below it")
        for node in expand(found["nodes"] or ""):
            if node in switch_of:
                raise FieldError(f"node {node} is under two leaf switches, {switch_of[node]} and {name}")
            switch_of[node] = name
    if not switch_of:
        raise FieldError("Slurm knows no leaf switch with nodes")
    return switch_of
