"""Nodes and reservations, as ``scontrol -o show`` prints them: one line each, ``Key=Value`` separated by blanks. A
node's Reason is free text (health checks put job names into it), so of every key the first occurrence counts, and
Slurm's own fields come before Reason; a name that appears twice is skipped.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from clearway.model.cluster import Node, Reservation, Skipped
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError, Reading
from clearway.slurm.parse.gres import Gpus, gpus, without_parts
from clearway.slurm.parse.hostlist import expand

T = TypeVar("T", Node, Reservation)

_REASON = re.compile(r"(?:^| )Reason=(.*?) \[[^\[\]@]*@[^\[\]]*\]", re.DOTALL)
_OVER = re.compile(r"clearway[^:]* is over")  # what stands after a colon is the operator's own
_STATE = re.compile(r"([A-Z_]+)([*#~!%$@^\-]?)((?:\+[A-Z_]+)*)")

# Flags that do not keep a job from starting once the node is empty. Anything else does, unknown ones included.
_HARMLESS = frozenset({"CLOUD", "COMPLETING", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "PLANNED", "RESERVED"})
_USABLE = frozenset({"IDLE", "MIXED", "ALLOCATED", "COMPLETING"})
_DRAIN = frozenset({"DRAIN", "DRAINED", "DRAINING"})


@dataclass(frozen=True, slots=True)
class NodeStatus:
    drained: bool
    reason: str


def _reason(line: str) -> str:
    found = _REASON.search(line)
    return found[1].strip() if found else fields.text(fields.record(line).get("Reason", ""))


def over(reason: str) -> str:
    """What stands for our Reason where nothing clears it, as in 24.11.5 without slurmdbd: not even an empty one."""
    return f"{reason.partition(':')[0]} is over"


def reason_in_force(reason: str) -> str:
    return "" if _OVER.fullmatch(reason) else reason


def _flags(state: str) -> tuple[str, frozenset[str]]:
    """``IDLE*+DRAIN`` as ("IDLE", {"*", "DRAIN"}); a state that does not read as one has no base."""
    found = _STATE.fullmatch(state)
    if found is None:
        return "", frozenset()
    symbols = {found[2]} - {"", "-"}  # "-" is PLANNED: backfill has plans for it
    return found[1], frozenset(symbols | set(found[3].split("+")) - {""})


def node_status(line: str) -> NodeStatus:
    return status_from_record(fields.record(line) | {"Reason": _reason(line)})


def status_from_record(record: Mapping[str, str]) -> NodeStatus:
    base, flags = _flags(record.get("State", ""))
    return NodeStatus(drained=base in _DRAIN or bool(flags & _DRAIN), reason=reason_in_force(record.get("Reason", "")))


def node_from_record(record: Mapping[str, str]) -> Node:
    """One node, from its keys; Reason is without who gave it and when. Raises FieldError for what cannot be read."""
    base, flags = _flags(record.get("State", ""))
    if not base:
        raise FieldError(f"State is {record.get('State', '')[:40]!r}")
    reserved = record.get("ReservationName", record.get("Reservation", ""))
    memory_mib = int(fields.size_mib(record.get("RealMemory", ""), "RealMemory"))
    if "MemSpecLimit" in record:  # memory that the node keeps to itself
        memory_mib -= int(fields.size_mib(record["MemSpecLimit"], "MemSpecLimit"))
    gpus, used = _gpus(record, "Gres") or (), _gpus(record, "GresUsed")
    return Node(
        name=record["NodeName"],
        available=base in _USABLE and flags <= _HARMLESS,
        raw_state=record["State"],
        cpus=fields.number(record.get("CPUEfctv") or record.get("CPUTot", ""), "CPUTot"),
        memory_mib=max(memory_mib, 0),
        partitions=fields.names(record.get("Partitions", "")),
        alloc_cpus=fields.number(record.get("CPUAlloc", "0"), "CPUAlloc"),
        alloc_memory_mib=int(fields.size_mib(record.get("AllocMem", "0"), "AllocMem")),
        gpus=gpus,
        alloc_gpus=(used and without_parts(used)) if gpus else (),  # 26.05 says nothing of nodes that have none
        cpus_per_core=max(1, fields.number(record.get("ThreadsPerCore", "1"), "ThreadsPerCore")),
        features=fields.names(record.get("ActiveFeatures", "")),
        reason=reason_in_force(record.get("Reason", "")),
        reservation=fields.text(reserved) if reserved or "RESERVED" in flags else None,
        weight=fields.number(record.get("Weight", "1"), "Weight"),
    )


def _gpus(record: Mapping[str, str], key: str) -> Gpus | None:
    """None where it is absent or cannot be read: the node then has none, or their use is not known."""
    try:
        return gpus(record[key], key) if key in record else None
    except FieldError:
        return None


def reservation_from_record(record: Mapping[str, str]) -> Reservation:
    start_time = fields.time(record.get("StartTime", ""), "StartTime")
    end_time = fields.time(record.get("EndTime", ""), "EndTime")
    if start_time is None or end_time is None:
        raise FieldError("StartTime or EndTime is missing")
    return Reservation(
        name=record["ReservationName"],
        nodes=expand(record.get("Nodes", "")),
        start_time=start_time,
        end_time=end_time,
        users=fields.names(record.get("Users", "")),
        flags=fields.names(record.get("Flags", "")),
    )


def read_nodes(text: str) -> tuple[list[Node], list[Skipped]]:
    return fields.together("node", [read_node(line) for line in node_lines(text)])


def node_lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line and not line.isspace()]


def read_node(line: str) -> Reading[Node]:
    def read(told: str) -> Node:
        return node_from_record(fields.record(told) | {"Reason": _reason(told)})

    return _read_line(line, "node", "NodeName", read)


def read_reservations(text: str) -> tuple[list[Reservation], list[Skipped]]:
    """All reservations of ``scontrol -o show reservation``; "No reservations in the system" is none."""
    lines = (line for line in text.split("\n") if line.strip() and not line.startswith("No reservations in the system"))

    def read(line: str) -> Reservation:
        return reservation_from_record(fields.record(line))

    return fields.together("reservation", [_read_line(e, "reservation", "ReservationName", read) for e in lines])


def _read_line(line: str, kind: str, key: str, read: Callable[[str], T]) -> Reading[T]:
    """What does not begin with its name has its whole text as the key, which is no name."""
    name = re.match(rf"{key}=(\S+)", line)
    if name is None:
        return f"\n{line}", None, Skipped(kind, line[:20], f"the line does not begin with {key}=")
    return fields.read_one(kind, name[1], line, read)
