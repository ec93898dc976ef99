"""Which nodes a request names: names, folded host lists, ``partition=NAME`` and ``feature=NAME``. Pure."""

from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import DrainError
from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.hostlist import expand, pieces


def chosen_nodes(text: str, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """The nodes of ``node[1-3],partition=debug,feature=gpu``: all of those together, by name.

    Raises:
        DrainError: it is no such list, or names what the cluster does not have.
    """
    names: set[str] = set()
    try:
        for piece in pieces(text.replace(" ", "")):
            kind, equals, value = piece.partition("=")
            if not equals:
                found = set(expand(piece)) & snapshot.node_by_name.keys()
                unknown = sorted(set(expand(piece)) - found)
                if unknown:
                    raise DrainError(f"{unknown[0]} is not a node of this cluster")
            elif kind in ("partition", "feature"):
                found = {
                    node.name
                    for node in snapshot.nodes
                    if value in (node.partitions if kind == "partition" else node.features)
                }
            else:
                raise DrainError(f"{piece[:80]!r} is neither a host list nor partition=NAME or feature=NAME")
            if not found:
                raise DrainError(f"{piece[:80]!r} names no node of this cluster")
            names |= found
    except FieldError as error:
        raise DrainError(str(error)) from None
    return tuple(sorted(names))
