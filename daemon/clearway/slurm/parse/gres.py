"""Generic resources as Slurm prints them: which GPUs a job asks for, and which a node has.

Measured on 22.05 and 26.05: ``gres:gpu:a100:2`` and ``gres/gpu:2`` (jobs), ``gres/gpu=1`` (per task, 26.05),
``gpu:a100:4(S:0-1),gpu:v100:2`` (nodes) and ``gpu:a100:3(IDX:0-1,3),gpu:v100:0(IDX:N/A)`` (their used ones).
"""

import re
from collections import Counter

from clearway.slurm.parse import fields
from clearway.slurm.parse.fields import FieldError

Gpus = tuple[tuple[str, int], ...]

_DETAILS = re.compile(r"\([^()]*\)")  # sockets, indices
_ITEM = re.compile(r"(?:gres[:/])?([A-Za-z_][A-Za-z0-9_]*)((?:[:=][A-Za-z0-9_.+-]+){0,2})", re.ASCII)
_PLAIN = frozenset({"tres", "cpu", "mem", "node", "billing", "energy"})
_MOST_DIGITS = 6


def gpus(value: str, what: str) -> Gpus:
    """GPUs by type in the order of types, those without number included once; "" is the type of those without one.

    Other generic resources are passed over. Raises FieldError for text that is no list of generic resources.
    """
    found: Counter[str] = Counter()
    for item in fields.names(_DETAILS.sub("", value)):
        name, gpu_type, count = _item(item, what)
        if name == "gpu" and count:
            found[gpu_type] += count
    return tuple(sorted(found.items()))


def gpus_asked(per_node: str, per_job: str, per_socket: str, per_task: str, *, nodes: int, tasks: int) -> Gpus | None:
    """What a job asks for on, or holds of, each of its nodes; None where that does not follow from its request.

    It follows for GPUs per node, and for those per job or per task of a job on one node. Of resources that share out
    GPUs (``shard``, ``mps``), and of any that is no GPU, nothing is known here.
    """
    if fields.NOTHING.issuperset((per_node, per_job, per_socket, per_task)):  # of most jobs
        return ()
    alone = nodes == 1
    # What is told, and how often a node has it; 0: that does not follow.
    scopes = ((per_node, 1), (per_job, int(alone)), (per_socket, 0), (per_task, tasks if alone else 0))
    asked = [(gres, times) for told, times in scopes if (gres := _gres_only(told))]
    if len(asked) != 1:
        return None if asked else ()
    gres, times = asked[0]
    try:
        if not times or any(_item(item, "gres")[0] != "gpu" for item in fields.names(gres)):
            return None
        found = tuple((name, count * times) for name, count in gpus(gres, "gres"))
    except FieldError:
        return None
    mixed = len(found) > 1 and any(not name for name, _ in found)
    return None if mixed else found


def _gres_only(value: str) -> str:
    """Newer releases write processors and memory beside generic resources."""
    items = (item.removeprefix("tres:") for item in fields.names(value))
    return ",".join(item for item in items if re.split("[:=]", item, maxsplit=1)[0] not in _PLAIN)


def _item(item: str, what: str) -> tuple[str, str, int]:
    """Name, type and number of one item."""
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
    if len(more) > 1:
        raise FieldError(f"{what} holds {item[:40]!r}")
    return read[1], more[0] if more else "", count
