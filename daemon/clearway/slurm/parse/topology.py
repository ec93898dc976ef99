"""The leaf switch of each node, from ``scontrol show topology`` where TopologyPlugin is topology/tree.

The same lines in 22.05 and 26.05: ``SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=node[1-4]``, higher levels with
``Switches=`` besides. Nodes of a wrong switch would be freed in vain, so a single line that is anything else makes
all of it unreadable: other plugins (blocks), several topologies at once, a node under two leaf switches.
"""

import re

from clearway.slurm.parse.fields import FieldError
from clearway.slurm.parse.hostlist import expand

_LINE = re.compile(
    r"SwitchName=(?P<name>[A-Za-z0-9_.:-]{1,128}) Level=(?P<level>\d{1,4}) LinkSpeed=\d{1,10}"
    r"(?: Nodes=(?P<nodes>\S+))?(?P<below> Switches=\S+)?",
    re.ASCII,
)


def read_leaf_switches(shown: str) -> dict[str, str]:
    """Node to leaf switch. Raises FieldError, in one line, for text that is not a tree of switches."""
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
