"""Generic resources as Slurm prints them: which GPUs a job asks for, and which a node has. Measured on 22.05 and 26.05:
``gres:gpu:a100:2`` and ``gres/gpu:2`` (jobs), ``gres/gpu=1`` (per task, 26.05), ``gpu:a100:4(S:0-1),gpu:v100:2``
(nodes) and ``gpu:a100:3(IDX:0-1,3),gpu:v100:0(IDX:N/A)`` (their used ones).
"""

import re
from collections import Counter
from typing import NamedTuple

from clearway.model.cluster import Spread
from clearway.model.problem import gres_kind
from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError

Gpus = tuple[tuple[str, int], ...]


class GresAsked(NamedTuple):
    """Generic resources as a job asks for them, in four ways; "" where it does not."""

    per_node: str = ""
    per_job: str = ""
    per_socket: str = ""
    per_task: str = ""


_DETAILS = re.compile(r"\([^()]*\)")  # sockets, indices
_ITEM = re.compile(r"(?:gres[:/])?([A-Za-z_][A-Za-z0-9_]*)((?:[:=][A-Za-z0-9_.+-]+){0,2})", re.ASCII)
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*:[A-Za-z0-9_:.+-]+", re.ASCII)
_PLAIN = frozenset({"tres", "cpu", "mem", "node", "billing", "energy"})
_AMOUNT = re.compile(r"[0-9]+[KMGTPkmgtp]", re.ASCII)  # of storage, say
_MOST_DIGITS = 6


# Of these Slurm gives out parts of GPUs.
_PARTS_OF_GPUS = frozenset({"shard", "mps"})


def gpus(value: str, what: str) -> Gpus:
    """By type, in the order of types: GPUs by their own ("" where there is none), others as "fpga:TYPE" or "fpga:". Of
    those that a node has, what is written otherwise (``no_consume``, units) is passed over where it is no GPU.
    """
    return _by_type(_counted(_DETAILS.sub("", value), what, strict=False))


def gpus_asked(gres: GresAsked, *, nodes: int, tasks: int) -> Gpus | None:
    """What a job holds of each of its nodes; None where that does not follow from its request. It follows for GPUs per
    node, and for those per job or per task of a job on one node; never for parts of GPUs.
    """
    if fields.NOTHING.issuperset(gres):  # of most jobs
        return ()
    alone = nodes == 1
    # What is told, and how often a node has it; 0: that does not follow.
    scopes = zip(gres, (1, int(alone), 0, tasks if alone else 0), strict=True)
    asked = [(only, times) for told, times in scopes if (only := _gres_only(told))]
    if len(asked) != 1:
        return None if asked else ()
    only, times = asked[0]
    found = _asked(only)
    if found is None or not times or _has_parts(found):
        return None
    return tuple((name, count * times) for name, count in found)


def spread_asked(
    gres: GresAsked, *, tasks: int, cpus_per_task: int, cpus_per_gpu: str = "", memory_per_gpu: str = ""
) -> Spread | None:
    """What a waiting job asks for in all; None where its generic resources cannot be read."""
    if fields.NOTHING.issuperset(gres):
        return Spread(tasks, cpus_per_task)
    cpus, memory_mib = _of_each_gpu(cpus_per_gpu), _of_each_gpu(memory_per_gpu)
    if cpus is None or memory_mib is None:
        return None
    of_node, of_job, of_socket, of_task = (_asked(_gres_only(told)) for told in gres)
    if of_node is None or of_job is None or of_task is None or of_socket is None:
        return None
    if of_socket and (of_node or of_job or of_task):
        return None
    return Spread(
        tasks,
        cpus_per_task or int(cpus > 0),  # newer releases tell none beside processors of GPUs
        of_node or of_socket,
        of_job,
        of_task,
        per_socket=bool(of_socket),
        cpus_per_gpu=cpus,
        memory_per_gpu_mib=memory_mib,
    )


def _of_each_gpu(told: str) -> int | None:
    """Processors or MiB that come with each GPU (``gres:gpu:2``); None where that cannot be told."""
    found = _asked(told)
    if found is None or any(name for name, _ in found):
        return None
    return sum(count for _, count in found)


def wants_whole(spread: Spread | None) -> bool:
    """Whether only whole nodes are beyond doubt: parts of GPUs, and GPUs of sockets whose number is not told."""
    if spread is None:
        return False
    return spread.per_socket or _has_parts((*spread.gpus_per_node, *spread.gpus_per_job, *spread.gpus_per_task))


def without_parts(found: Gpus) -> Gpus:
    """Without what shares out GPUs: Slurm counts it beside the GPUs themselves."""
    return tuple((name, count) for name, count in found if name.partition(":")[0] not in _PARTS_OF_GPUS)


def _has_parts(found: Gpus) -> bool:
    return len(without_parts(found)) < len(found)


def _asked(gres: str) -> Gpus | None:
    try:
        found = _by_type(_counted(gres, "gres", strict=True))
    except FieldError:
        return None
    kinds = [gres_kind(name) for name, _ in found]
    mixed = any(name == gres_kind(name) and kinds.count(name) > 1 for name, _ in found)
    return None if mixed else found


def _counted(value: str, what: str, *, strict: bool) -> Counter[str]:
    found: Counter[str] = Counter()
    for item in fields.names(value):
        try:
            name, gres_type, count = _item(item, what)
        except FieldError:
            if strict or item.removeprefix("gres").lstrip(":/").startswith("gpu") or not _NAMED.match(item):
                raise
            continue
        if count:
            found[gres_type if name == "gpu" else f"{name}:{gres_type}"] += count
    return found


def _by_type(found: Counter[str]) -> Gpus:
    return tuple(sorted(found.items()))


def _gres_only(value: str) -> str:
    """Newer releases write processors and memory beside generic resources."""
    items = (item.removeprefix("tres:") for item in fields.names(value))
    return ",".join(item for item in items if re.split("[:=]", item, maxsplit=1)[0] not in _PLAIN)


def _item(item: str, what: str) -> tuple[str, str, int]:
    read = _ITEM.fullmatch(item)
    if read is None:
        raise FieldError(f"{what} holds {item[:40]!r}")
    more = re.split("[:=]", read[2])[1:]
    count = 1
    if more and more[-1].isdecimal() and more[-1].isascii():
        digits = more.pop()
        if len(digits) > _MOST_DIGITS:
            raise FieldError(f"{what} holds {item[:40]!r}")
        count = int(digits)
    if len(more) > 1 or (more and read[1] != "gpu" and _AMOUNT.fullmatch(more[0])):
        raise FieldError(f"{what} holds {item[:40]!r}")
    return read[1], more[0] if more else "", count
