"""Limits: ``scontrol -o show assoc_mgr flags=assoc,qos``, ``scontrol -o show partition`` and the configuration.

One line for each association and QoS (measured on 22.05.8): ``GrpTRES=cpu=12(2),mem=N(2000)`` is a limit of 12
processors of which 2 are in use, and no limit on memory. Memory is in MiB, time in minutes. What each user and account
has of a QoS stands behind it: `` User Limits= 1001={MaxJobsPU=2(1) ... MaxTRESPU=cpu=8(2)}``, with the user's name
before the number in 24.11 and 26.05. A user without a job in the QoS is not listed; a job that waits is enough.
"""

import re
from collections.abc import Iterator, Mapping

from clearway.model.limits import Association, Cap, Caps, LimitKind, Partition, Qos
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError

_KEY = re.compile(r"(?:^| )([A-Za-z][A-Za-z0-9_/]*)=")
_ENFORCE = re.compile(r"^AccountingStorageEnforce\s*=\s*(\S+)", re.MULTILINE)
_NAMED = re.compile(r"([^(]+)(?:\((\d{1,10})\))?")
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
    found = _ENFORCE.search(config)
    return frozenset(found[1].lower().split(",")) if found else frozenset()


def read_associations(text: str) -> list[Association]:
    """The associations of ``scontrol -o show assoc_mgr``. Raises FieldError: a limit that is missed binds unseen."""
    return [_association(_record(line)) for line in text.splitlines() if line.startswith("ClusterName=")]


def read_qos(text: str) -> dict[str, Qos]:
    """The QoS of ``scontrol -o show assoc_mgr`` by name. Raises FieldError."""
    found = [_qos(line) for line in text.splitlines() if line.startswith("QOS=")]
    return {qos.name: qos for qos in found}


def read_qos_flags(text: str) -> dict[str, frozenset[str]]:
    """QoS to flags in lower case, from ``sacctmgr -nP show qos format=name,flags``."""
    lines = (line.split("|") for line in text.splitlines())
    return {parts[0]: frozenset(fields.names(parts[1].lower())) for parts in lines if len(parts) == 2}


def read_partitions(text: str) -> dict[str, Partition]:
    """The partitions of ``scontrol -o show partition`` by name. Raises FieldError."""
    records = (_record(line) for line in text.splitlines() if line.startswith("PartitionName="))
    return {record["PartitionName"]: _partition(record) for record in records}


def _record(line: str) -> dict[str, str]:
    parts = _KEY.split(line.strip())
    return {key: value.strip() for key, value in zip(parts[1::2], parts[2::2], strict=True)}


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
    record = _record(own)
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
        yield name, dict(_caps(_record(values)))


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
    found = _NAMED.fullmatch(value)
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
