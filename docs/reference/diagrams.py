#!/usr/bin/env python3
"""Writes the state diagrams into docs/explanation/architecture.md: ``.venv/bin/python docs/reference/diagrams.py``.

They are made from ``clearway.execution.progress``; tests/unit/docs fails while the page differs from the tables.
``generate.py`` runs this as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from clearway.execution.progress import OPERATIONS, PREEMPTIONS
from clearway.model.operations import EvictionState, OperationKind, PreemptionState

PAGE = Path(__file__).parent.parent / "explanation" / "architecture.md"
NAMES = {
    OperationKind.EVICTION: "states of an eviction",
    OperationKind.DRAIN: "states of a drain",
    OperationKind.RELOCATION: "states of a relocation",
    OperationKind.PROMISE: "states of a promise",
}
OF_JOBS = "states of a preemption"
# In which states an operation of each kind is stored first, and why.
FIRST_STATES: Mapping[OperationKind, Mapping[EvictionState, str]] = {
    OperationKind.EVICTION: {
        EvictionState.PROPOSED: "mode observe",
        EvictionState.AWAITING_APPROVAL: "mode approve, or over budget",
        EvictionState.PLACING: "mode automatic",
    },
    OperationKind.DRAIN: {EvictionState.SCHEDULED: "begins later", EvictionState.PLACING: "begins at once"},
    OperationKind.RELOCATION: {
        EvictionState.PROPOSED: "mode observe",
        EvictionState.AWAITING_APPROVAL: "mode approve",
        EvictionState.PLACING: "mode automatic, or asked for",
    },
    OperationKind.PROMISE: {EvictionState.SCHEDULED: "asked for"},
}


def diagram(first: Mapping[StrEnum, str], table: Mapping[StrEnum, Mapping[StrEnum, str]]) -> str:
    """A Mermaid state diagram; an arrow to the end leads from each state that nothing follows."""
    steps = [(before, after, why) for before, found in table.items() for after, why in found.items()]
    ends = dict.fromkeys(after for _, after, _ in steps if not table.get(after))
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"    [*] --> {state.value}: {why}" for state, why in first.items()]
    lines += [f"    {before.value} --> {after.value}: {why}" for before, after, why in steps]
    lines += [f"    {state.value} --> [*]" for state in ends]
    return "\n".join([*lines, "```"])


def diagrams() -> dict[str, str]:
    """By the name in the marker."""
    made = {name: diagram(FIRST_STATES[kind], OPERATIONS[kind]) for kind, name in NAMES.items()}
    return made | {OF_JOBS: diagram({PreemptionState.PLANNED: "chosen by a plan"}, PREEMPTIONS)}


def with_diagrams(text: str) -> str:
    """The page with all diagrams as they are now.

    Raises:
        ValueError: a marker is missing; the message says which.
    """
    for name, made in diagrams().items():
        marker = re.compile(rf"(<!-- generated: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        if marker.search(text) is None:
            raise ValueError(f"{PAGE.name} has no part between <!-- generated: {name} --> and <!-- end -->")
        text = marker.sub(lambda found, made=made: f"{found[1]}{made}\n{found[2]}", text)
    return text


def main() -> None:
    PAGE.write_text(with_diagrams(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")


if __name__ == "__main__":
    main()
