"""A site's record as files of a folder: the answers of Slurm's commands, so that it can be replayed elsewhere."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearway.model.cluster import Node
from clearway.model.errors import TraceError
from clearway.slurm.parse.nodes import read_nodes
from clearway_lab.site import record as site_record
from clearway_lab.site.record import SiteRecord

JOBS, NODES = "jobs.txt", "nodes.txt"
PARTITIONS, RESERVATIONS, OUTAGES = "partitions.txt", "reservations.txt", "outages.txt"

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
        RESERVATIONS: site_record.reservations_command(start, end),
        OUTAGES: site_record.outages_command(start, end),
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
    reservations = site_record.read_reservations(answers[RESERVATIONS])
    outages = site_record.read_outages(answers[OUTAGES])
    tiers = {name: int(tier) for name, tier in _TIER.findall(answers[PARTITIONS])}
    return Site(replace(record, reservations=reservations, outages=outages), tuple(nodes), tiers)
