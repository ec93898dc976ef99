"""``scontrol show`` of Slurm's configuration, partitions and QoS: slurmctld's version, and what preemption sorts by."""

import re

_VERSION = re.compile(r"^SLURM_VERSION\s*=\s*(\S+)", re.MULTILINE)
_TYPE = re.compile(r"^PreemptType\s*=\s*(\S+)", re.MULTILINE)
_TIER = re.compile(r"^PartitionName=(\S+) .*?\bPriorityTier=(\d{1,10})\b", re.MULTILINE)
_QOS = re.compile(r"^QOS=(\S+)\(\d+\)\s*$((?:\n[ \t].*)*)", re.MULTILINE)
_PRIORITY = re.compile(r"^    Priority=(\d{1,10})\s*$", re.MULTILINE)
_MOST = 0xFFFF  # Slurm sorts by one number of 32 bits, of which the number of nodes takes the lower half


def version(config: str) -> str:
    """The version of slurmctld ("24.11.5"), of ``scontrol show config``; empty where it does not say."""
    found = _VERSION.search(config)
    return found[1] if found else ""


def sorts_by_qos(config: str) -> bool:
    """Whether ``scontrol show config`` says preempt/qos; every other type sorts by partition, or not at all."""
    found = _TYPE.search(config)
    return found is not None and found[1] == "preempt/qos"


def read_tiers(partitions: str) -> dict[str, int]:
    """Partition to tier, from ``scontrol --oneliner show partition``."""
    return {name: min(int(tier), _MOST) for name, tier in _TIER.findall(partitions)}


def read_qos_priorities(records: str) -> dict[str, int]:
    """QoS to priority, from ``scontrol show assoc_mgr flags=qos``: without a query to the accounting database."""
    found = {name: _PRIORITY.search(fields) for name, fields in _QOS.findall(records)}
    return {name: min(int(priority[1]), _MOST) for name, priority in found.items() if priority}
