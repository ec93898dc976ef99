"""How rolling drains are shown: tables for people, JSON for programs."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from clearway.cli.render import console, print_json, table, visible, when
from clearway.drain.rolling import Preview, progress
from clearway.model.durations import format_duration
from clearway.model.rolling import RollingDrain, TurnState
from clearway.slurm.parse.hostlist import compress


def several(found: Sequence[RollingDrain], output: str) -> None:
    if output == "json":
        print_json([summary(each) for each in found])
        return
    made = table("no.", "state", "nodes", "at once", "ordered", "turns", "outcome", right=("no.", "at once"))
    for each in found:
        made.add_row(
            str(each.rolling_id),
            each.state.value,
            compress(each.order.nodes),
            str(each.at_once),
            f"{each.created_at.astimezone():%m-%d %H:%M}",
            progress(each),
            each.outcome,
        )
    console().print(made if found else "There are none.")


def one(found: RollingDrain, output: str) -> None:
    if output == "json":
        turns = [
            {"node": turn.node, "state": turn.state.value, "drain_id": turn.drain_id or None, "note": turn.note}
            for turn in found.turns
        ]
        print_json(summary(found) | {"turns": turns})
        return
    out = console()
    reason = f": {found.order.reason}" if found.order.reason else ""
    out.print(
        visible(
            f"Rolling drain {found.rolling_id} of {len(found.turns)} node(s), {found.at_once} at once, "
            f"for {found.order.actor}{reason}; ordered {when(found.created_at)}."
        )
    )
    out.print(visible(f"{found.state.value}: {progress(found)}. {found.outcome}"))
    groups: defaultdict[tuple[TurnState, str, int], list[str]] = defaultdict(list)
    for turn in found.turns:
        groups[turn.state, turn.note, turn.drain_id].append(turn.node)
    made = table("nodes", "turn", "drain", "why", right=("drain",))
    for (state, note, drain_id), names in groups.items():
        made.add_row(compress(names), state.value, str(drain_id or ""), note)
    out.print(made)


def preview(found: Preview, output: str) -> None:
    if output == "json":
        print_json(
            {
                "batches": [
                    {"nodes": list(batch.nodes), "jobs": batch.jobs, "checkpoint_s": batch.checkpoint_s}
                    for batch in found.batches
                ],
                "skipped": dict(found.skipped),
            }
        )
        return
    made = table("batch", "nodes", "jobs", "saving takes", right=("batch", "jobs", "saving takes"))
    for number, batch in enumerate(found.batches, 1):
        made.add_row(str(number), compress(batch.nodes), str(batch.jobs), format_duration(batch.checkpoint_s))
    out = console()
    out.print(made if found.batches else "No node could be emptied.")
    for name, why in found.skipped:
        out.print(visible(f"Skipped: {name}: {why}."))


def summary(each: RollingDrain) -> dict[str, Any]:
    return {
        "rolling_id": each.rolling_id,
        "state": each.state.value,
        "nodes": compress(each.order.nodes),
        "at_once": each.at_once,
        "actor": each.order.actor,
        "reason": each.order.reason,
        "created_at": each.created_at.isoformat(),
        "progressed_at": each.progressed_at.isoformat() if each.progressed_at else None,
        "finished_at": each.finished_at.isoformat() if each.finished_at else None,
        "turns_by_state": {state.value: len(each.nodes(state)) for state in TurnState},
        "outcome": each.outcome,
    }
