"""``scontrol show`` of Slurm's configuration, partitions and QoS: slurmctld's version, and what preemption sorts by."""

import re

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
