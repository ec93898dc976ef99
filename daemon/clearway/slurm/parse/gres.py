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
    told = (per_node, per_job, per_socket, per_task)
    if fields.NOTHING.issuperset(told):  # of most jobs
        return ()
    scopes = [_gres_only(text) for text in told]
    if not any(scopes):
        return ()
    on_node, of_job, of_socket, of_task = scopes
    try:
        if any(_item(item, "gres")[0] != "gpu" for scope in scopes for item in fields.names(scope)):
            return None
        if on_node and not (of_socket or of_job or of_task):
            found = gpus(on_node, "gres per node")
        elif of_job and not (on_node or of_socket or of_task) and nodes == 1:
            found = gpus(of_job, "gres per job")
        elif of_task and not (on_node or of_socket or of_job) and nodes == 1 and tasks:
            found = tuple((name, count * tasks) for name, count in gpus(of_task, "gres per task"))
        else:
            return None
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
