"""A site's record as files of a folder: the answers of Slurm's commands, so that it can be replayed elsewhere."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearway.model.cluster import Node, Reservation
from clearway.slurm.parse.hostlist import expand
from clearway.slurm.parse.nodes import read_nodes
from clearway_lab.errors import TraceError
from clearway_lab.site import record as site_record
from clearway_lab.site.record import Outage, SiteRecord, unix_time

JOBS, NODES = "jobs.txt", "nodes.txt"
PARTITIONS, RESERVATIONS, OUTAGES = "partitions.txt", "reservations.txt", "outages.txt"

_SACCTMGR = ("sacctmgr", "--noheader", "--parsable2", "show")
_OUTAGES = ("event", "event=node")
_TIER = re.compile(r"^PartitionName=(\S+).* PriorityTier=(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Site:
    record: SiteRecord
    nodes: tuple[Node, ...]
    tiers: Mapping[str, int]  # of partitions: those of the highest are looked at first


def commands(start: str, end: str) -> Mapping[str, Sequence[str]]:
    """What to ask Slurm, by the file that keeps the answer; all with ``site_record.ENVIRONMENT``."""
    return {
        JOBS: site_record.command(start, end),
        NODES: ("scontrol", "--oneliner", "--all", "show", "node"),
        PARTITIONS: ("scontrol", "--oneliner", "--all", "show", "partition"),
        RESERVATIONS: (*_SACCTMGR, "reservation", f"start={start}", f"end={end}", "format=Name,Start,End,NodeNames"),
        OUTAGES: (*_SACCTMGR, *_OUTAGES, f"start={start}", f"end={end}", "format=NodeName,Start,End,State"),
    }


def read_folder(folder: Path) -> dict[str, str]:
    """The answers; only jobs and nodes must be there.

    Raises:
        TraceError: when one cannot be read.
    """
    found = {}
    for name in (JOBS, NODES, PARTITIONS, RESERVATIONS, OUTAGES):
        try:
            found[name] = (folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            if name in (JOBS, NODES):
                raise TraceError(f"{folder}: {name} is missing") from None
            found[name] = ""
        except OSError as error:
            raise TraceError(f"{folder / name}: cannot be read: {error.strerror}") from None
    return found


def write_folder(folder: Path, answers: Mapping[str, str]) -> None:
    """Raises ``TraceError`` when it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in answers.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{folder}: cannot be written: {error.strerror}") from None


def read_site(answers: Mapping[str, str], name: str) -> Site:
    """Raises ``TraceError`` where no job ran, or no node is known."""
    record = site_record.read_record(answers[JOBS].split("\n"), name)
    nodes, _ = read_nodes(answers[NODES])
    if not record.jobs:
        raise TraceError(f"{name}: no job that ran ({len(record.broken):,} broken lines)")
    if not nodes:
        raise TraceError(f"{name}: scontrol knows no node")
    reservations = read_reservations(answers[RESERVATIONS])
    outages = _read_outages(answers[OUTAGES])
    tiers = {name: int(tier) for name, tier in _TIER.findall(answers[PARTITIONS])}
    return Site(replace(record, reservations=reservations, outages=outages), tuple(nodes), tiers)


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """A reservation that was changed has a line for each of its forms."""
    found = []
    for line in text.splitlines():
        name, start, end, nodes = (line.split("|") + [""] * 4)[:4]
        began, ends = unix_time(start, "Start"), unix_time(end, "End")
        if began is not None and ends is not None and nodes and not name.startswith("clearway"):
            found.append(Reservation(name=name, nodes=expand(nodes), start_time=began, end_time=ends))
    return tuple(found)


def _read_outages(text: str) -> tuple[Outage, ...]:
    """Times in which a node was down, drained or failed."""
    found = []
    for line in text.splitlines():
        node, start, end, _ = (line.split("|") + [""] * 4)[:4]
        began = unix_time(start, "Start")
        if node and began is not None:
            found.append(Outage(node, began, unix_time(end, "End")))
    return tuple(found)
