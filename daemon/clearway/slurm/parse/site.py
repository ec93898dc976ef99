"""What ``scontrol show`` tells of a site: version, Slurm's own preemption, licenses, power, switches, and limits.

Limits: one line for each association and QoS (measured on 22.05.8): ``GrpTRES=cpu=12(2),mem=N(2000)`` is a limit of 12
processors of which 2 are in use, and no limit on memory. Memory is in MiB, time in minutes. What each user and account
has of a QoS stands behind it: `` User Limits= 1001={MaxJobsPU=2(1) ... MaxTRESPU=cpu=8(2)}``, with the user's name
before the number in 24.11 and 26.05. A user without a job in the QoS is not listed; a job that waits is enough.
"""

import re
from collections.abc import Iterator, Mapping

from clearway.model.limits import Association, Cap, Caps, LimitKind, Partition, Qos
from clearway.model.site import ClusterIdentity, License, PowerSaving, Vouched
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError, setting
from clearway.slurm.parse.hostlist import expand

_TIER = re.compile(r"^PartitionName=(\S+) .*?\bPriorityTier=(\d{1,10})\b", re.MULTILINE)
_QOS = re.compile(r"^QOS=(\S+)\(\d+\)\s*$((?:\n[ \t].*)*)", re.MULTILINE)
_PRIORITY = re.compile(r"^    Priority=(\d{1,10})\s*$", re.MULTILINE)
_PARTITION_MODE = re.compile(r"^PartitionName=(\S+) .*?\bPreemptMode=(\S+)", re.MULTILINE)
_GRACE = re.compile(r"\bGraceTime=(\d{1,10})\b")
_OVER_TIME = re.compile(r"^PartitionName=(\S+) .*?\bOverTimeLimit=(\S+)", re.MULTILINE)
_PREEMPTS = re.compile(r"^    Preempt=(\S+)\s*$", re.MULTILINE)
_KEEPS = frozenset({"", "OFF", "GANG"})  # modes in which nothing leaves
_MOST = 0xFFFF  # Slurm sorts by one number of 32 bits, of which the number of nodes takes the lower half


def version(config: str) -> str:
    return setting(config, "SLURM_VERSION")


def sorts_by_qos(config: str) -> bool:
    """Whether ``scontrol show config`` says preempt/qos; every other type sorts by partition, or not at all."""
    return setting(config, "PreemptType") == "preempt/qos"


def preempts(config: str) -> bool:
    return setting(config, "PreemptType") not in ("", "preempt/none") and setting(config, "PreemptMode") not in _KEEPS


def preempted_partitions(partitions: str) -> dict[str, frozenset[str]]:
    """Partition to those of a lower tier whose jobs Slurm preempts for it, by preempt/partition_prio."""
    tiers = read_tiers(partitions)
    able = {name for name, mode in _PARTITION_MODE.findall(partitions) if mode not in _KEEPS}
    return {name: frozenset(other for other in able if tiers.get(other, tier) < tier) for name, tier in tiers.items()}


def longest_grace_s(records: str) -> float:
    return max(map(float, _GRACE.findall(records)), default=0.0)


def over_time(config: str) -> int | None:
    """OverTimeLimit of ``scontrol show config`` in seconds; see ``over_time_s``."""
    return over_time_s(setting(config, "OverTimeLimit"))


def over_time_s(value: str) -> int | None:
    """Of OverTimeLimit, in minutes; None where jobs may run on as long as they like."""
    return None if value == "UNLIMITED" else 60 * int(value) if value.isascii() and value.isdecimal() else 0


def read_over_times(partitions: str) -> dict[str, int | None]:
    """Partition to its own OverTimeLimit in seconds, of those that have one; see ``over_time_s``."""
    return {name: over_time_s(value) for name, value in _OVER_TIME.findall(partitions) if value != "NONE"}


def preempted_qos(records: str) -> dict[str, frozenset[str]]:
    """QoS to those whose jobs Slurm preempts for it, by preempt/qos."""
    found = {name: _PREEMPTS.search(fields) for name, fields in _QOS.findall(records)}
    return {name: frozenset(others[1].split(",")) for name, others in found.items() if others}


def read_tiers(partitions: str) -> dict[str, int]:
    return {name: min(int(tier), _MOST) for name, tier in _TIER.findall(partitions)}


def read_qos_priorities(records: str) -> dict[str, int]:
    """QoS to priority, from ``scontrol show assoc_mgr flags=qos``: without a query to the accounting database."""
    found = {name: _PRIORITY.search(fields) for name, fields in _QOS.findall(records)}
    return {name: min(int(priority[1]), _MOST) for name, priority in found.items() if priority}


_NAME = re.compile(r"LicenseName=(\S+)((?: \S+)*)\s*", re.ASCII)


def read_licenses(text: str) -> dict[str, License]:
    """By name. Of a remote one the server may know of more use than Slurm: that is its deficit. Raises FieldError."""
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
    if setting(config, "ResumeProgram") in ("", "(null)"):
        return PowerSaving()
    return PowerSaving(
        resume_s=_seconds(config, "ResumeTimeout"),
        suspend_s=_seconds(config, "SuspendTimeout"),
        hides_nodes="cloud" not in setting(config, "PrivateData").split(","),
    )


def boot_s(raw_state: str, saving: PowerSaving) -> float | None:
    """Seconds until an idle node that power saving has off could run a job, at most; None where it is no such node. Off
    is ``IDLE+POWERED_DOWN``; marked to go off, and going, ``POWER_DOWN`` and ``POWERING_DOWN``: no job gets it until
    SuspendTimeout is over; booting, ``POWERING_UP``, with ``NOT_RESPONDING`` in 22.05 (measured).
    """
    base, *flags = raw_state.split("+")
    of_power = _ASLEEP.intersection(flags)
    if base != "IDLE" or not of_power:
        return None
    others = set(flags) - of_power - _BESIDE
    if others - ({"NOT_RESPONDING"} if "POWERING_UP" in of_power else set()):
        return None
    return saving.resume_s + (saving.suspend_s if of_power & _GOING_OFF else 0.0)


def _seconds(config: str, key: str) -> float:
    value = setting(config, key)
    return float(value) if value.isascii() and value.isdecimal() else 0.0


_LINE = re.compile(
    r"SwitchName=(?P<name>[A-Za-z0-9_.:-]{1,128}) Level=(?P<level>\d{1,4}) LinkSpeed=\d{1,10}"
    r"(?: Nodes=(?P<nodes>\S+))?(?P<below> Switches=\S+)?",
    re.ASCII,
)


def read_leaf_switches(shown: str) -> dict[str, str]:
    """Node to leaf switch, from ``scontrol show topology`` of topology/tree, alike in 22.05 and 26.05. Nodes of a wrong
    switch would be freed in vain, so a single line that is anything else (blocks, several topologies at once, a node
    under two leaf switches) makes all of it unreadable (FieldError).
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


_NAME_AND_ID = re.compile(r"([^(]+)(?:\((\d{1,10})\))?")
_CAP = re.compile(r"(N|\d{1,20})(?:\((\d{1,20})(?:\.\d*)?\))?")
_OF_ONE = re.compile(r"(?:[^\s={}()]+\()?([^\s={}()]+)\)?=\{([^{}]*)\}")

_RESOURCES = {
    "GrpTRES": LimitKind.GROUP,
    "GrpTRESMins": LimitKind.GROUP_MINUTES,
    "GrpTRESRunMins": LimitKind.GROUP_RUN_MINUTES,
    "MaxTRESPJ": LimitKind.JOB,
    "MaxTRESPN": LimitKind.NODE,
    "MaxTRESMinsPJ": LimitKind.JOB_MINUTES,
    "MinTRESPJ": LimitKind.LEAST,
    "MaxTRESPU": LimitKind.USER,
    "MaxTRESPA": LimitKind.ACCOUNT,
    "MaxTRESRunMinsPU": LimitKind.USER_RUN_MINUTES,
    "MaxTRESRunMinsPA": LimitKind.ACCOUNT_RUN_MINUTES,
}
_SINGLE = {
    "GrpJobs": (LimitKind.GROUP, "jobs"),
    "GrpWall": (LimitKind.GROUP, "wall"),
    "MaxJobs": (LimitKind.USER, "jobs"),
    "MaxJobsPU": (LimitKind.USER, "jobs"),
    "MaxJobsPA": (LimitKind.ACCOUNT, "jobs"),
    "MaxWallPJ": (LimitKind.JOB, "wall"),
}


def enforcement(config: str) -> frozenset[str]:
    """The words of AccountingStorageEnforce in ``scontrol show config``, in lower case."""
    return frozenset(setting(config, "AccountingStorageEnforce").lower().split(",")) - {""}


def read_vouched(config: str, partitions: str) -> Vouched:
    """From ``scontrol show config`` and ``-o show partition``.

    Measured on 22.05: without ``associations`` a user without an association may give any account, with slurmdbd or
    not, and without ``qos`` any QoS; with them a submission and an update are refused alike. Slurm adds
    ``associations`` to every other word but ``nojobs`` and ``nosteps``.
    """
    enforced = enforcement(config) if setting(config, "AccountingStorageType").endswith("slurmdbd") else frozenset()
    accounts, qos = "associations" in enforced, {"associations", "qos"} <= enforced
    chooses: dict[str, str] = {}
    for name, each in read_partitions(partitions).items():
        words = {
            "AllowAccounts": not accounts and each.allow_accounts is not None,
            "DenyAccounts": not accounts and bool(each.deny_accounts),
            "AllowQos": not qos and each.allow_qos is not None,
            "DenyQos": not qos and bool(each.deny_qos),
        }
        if found := [word for word, is_so in words.items() if is_so]:
            chooses[name] = ", ".join(found)
    return Vouched(accounts=accounts, qos=qos, partitions=chooses)


_HOST = re.compile(r"^SlurmctldHost\[\d+\]\s*= (\S+)\s*$", re.MULTILINE)


def read_identity(config: str) -> ClusterIdentity | None:
    """From ``scontrol show config``; None where it does not say."""
    name, state = setting(config, "ClusterName"), setting(config, "StateSaveLocation")
    hosts = tuple(host.partition("(")[0] for host in _HOST.findall(config))
    return ClusterIdentity(name, state, hosts) if name and state and hosts else None


def read_associations(text: str) -> list[Association]:
    """The associations of ``scontrol -o show assoc_mgr``. Raises FieldError: a limit that is missed binds unseen."""
    return [_association(fields.record(line)) for line in text.splitlines() if line.startswith("ClusterName=")]


def read_qos(text: str) -> dict[str, Qos]:
    found = [_qos(line) for line in text.splitlines() if line.startswith("QOS=")]
    return {qos.name: qos for qos in found}


def read_qos_flags(text: str) -> dict[str, frozenset[str]]:
    """QoS to flags in lower case, from ``sacctmgr -nP show qos format=name,flags``."""
    lines = (line.split("|") for line in text.splitlines())
    return {parts[0]: frozenset(fields.names(parts[1].lower())) for parts in lines if len(parts) == 2}


def read_partitions(text: str) -> dict[str, Partition]:
    records = (fields.record(line) for line in text.splitlines() if line.startswith("PartitionName="))
    return {record["PartitionName"]: _partition(record) for record in records}


def _association(record: Mapping[str, str]) -> Association:
    user, uid = _named(record.get("UserName", ""))
    return Association(
        account=record.get("Account", ""),
        user=user,
        uid=uid,
        partition=record.get("Partition", ""),
        parent=_named(record.get("ParentAccount", ""))[0],
        caps=dict(_caps(record)),
        least_priority=_least_priority(record),
        run_minutes=_used(record.get("GrpTRESRunMins", "")),
    )


def _qos(line: str) -> Qos:
    own, _, rest = line.partition(" Account Limits=")
    accounts, _, users = rest.partition(" User Limits=")
    record = fields.record(own)
    return Qos(
        name=_named(record["QOS"])[0],
        caps=dict(_caps(record)),
        users={int(uid): caps for uid, caps in _of_each(users) if uid.isdecimal()},
        accounts=dict(_of_each(accounts)),
        least_priority=_least_priority(record),
        run_minutes=_used(record.get("GrpTRESRunMins", "")),
    )


def _of_each(text: str) -> Iterator[tuple[str, Caps]]:
    for name, values in _OF_ONE.findall(text):
        yield name, dict(_caps(fields.record(values)))


def _caps(record: Mapping[str, str]) -> Iterator[tuple[tuple[LimitKind, str], Cap]]:
    for key, value in record.items():
        if key in _SINGLE:
            if value and (cap := _cap(value, key)) is not None:
                yield _SINGLE[key], cap
        elif key in _RESOURCES:
            for resource, amount in fields.tres(value).items():
                if (cap := _cap(amount, f"{key} {resource}")) is not None:
                    yield (_RESOURCES[key], resource), cap


def _cap(value: str, what: str) -> Cap | None:
    found = _CAP.fullmatch(value)
    if found is None:
        raise FieldError(f"{what} is {value[:40]!r}, not a limit")
    return None if found[1] == "N" else Cap(int(found[1]), int(found[2] or 0))


def _used(value: str) -> dict[str, int]:
    found = {resource: _CAP.fullmatch(amount) for resource, amount in fields.tres(value).items()}
    return {resource: int(cap[2]) for resource, cap in found.items() if cap and cap[2]}


def _least_priority(record: Mapping[str, str]) -> int:
    value = record.get("MinPrioThresh", "")
    return fields.number(value, "MinPrioThresh") if value else 0


def _named(value: str) -> tuple[str, int | None]:
    """``cwalice(1001)`` as ("cwalice", 1001)."""
    found = _NAME_AND_ID.fullmatch(value)
    return (found[1], int(found[2]) if found[2] else None) if found else ("", None)


def _partition(record: Mapping[str, str]) -> Partition:
    return Partition(
        name=record["PartitionName"],
        state=record.get("State", "UP"),
        qos=fields.text(record.get("QoS", "")),
        max_nodes=_most(record, "MaxNodes"),
        min_nodes=fields.number(record.get("MinNodes", "0"), "MinNodes"),
        max_time_s=fields.duration_s(record.get("MaxTime", "UNLIMITED"), "MaxTime"),
        max_cpus_per_node=_most(record, "MaxCPUsPerNode"),
        max_memory_mib=_most(record, "MaxMemPerNode"),
        allow_accounts=_names(record, "AllowAccounts"),
        deny_accounts=_names(record, "DenyAccounts") or frozenset(),
        allow_qos=_names(record, "AllowQos"),
        deny_qos=_names(record, "DenyQos") or frozenset(),
        allow_groups=_names(record, "AllowGroups"),
        allow_alloc_nodes="" if record.get("AllocNodes", "ALL") == "ALL" else record["AllocNodes"],
        root_only=record.get("RootOnly") == "YES",
        reservations_only=record.get("ReqResv") == "YES",
        weighted="TRESBillingWeights" in record,
    )


def _most(record: Mapping[str, str], key: str) -> int | None:
    value = record.get(key, "UNLIMITED")
    return None if value == "UNLIMITED" else fields.number(value, key)


def _names(record: Mapping[str, str], key: str) -> frozenset[str] | None:
    value = fields.text(record.get(key, ""))
    return None if not value or value == "ALL" else frozenset(value.split(","))
