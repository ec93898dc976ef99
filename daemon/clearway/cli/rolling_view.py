"""How rolling drains are shown: tables for people, JSON for programs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from clearway.cli.render import Columns, console, listing, picked, print_json, table, visible, when
from clearway.drain.rolling import Preview, progress
from clearway.model.durations import format_duration
from clearway.model.rolling import RollingDrain, TurnState
from clearway.slurm.parse.hostlist import compress


def several(found: Sequence[RollingDrain], output: str) -> None:
    if output == "json":
        print_json([summary(each) for each in found])
        return
    columns: Columns = {
        ">no.": lambda each: each.rolling_id,
        "state": lambda each: each.state.value,
        "nodes": lambda each: compress(each.order.nodes),
        ">at once": lambda each: each.at_once,
        "ordered": lambda each: f"{each.created_at.astimezone():%m-%d %H:%M}",
        "turns": progress,
        "outcome": lambda each: each.outcome,
    }
    console().print(listing(found, columns) if found else "There are none.")


def one(found: RollingDrain, output: str) -> None:
    if output == "json":
        turns = [
            picked(turn, "node", "state") | {"drain_id": turn.drain_id or None, "note": turn.note}
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
    made = table("nodes", "turn", ">drain", "why")
    for (state, note, drain_id), names in groups.items():
        made.add_row(compress(names), state.value, drain_id or "", note)
    out.print(made)


def preview(found: Preview, output: str) -> None:
    if output == "json":
        print_json({"batches": [asdict(batch) for batch in found.batches], "skipped": dict(found.skipped)})
        return
    made = table(">batch", "nodes", ">jobs", ">saving takes")
    for number, batch in enumerate(found.batches, 1):
        made.add_row(number, compress(batch.nodes), batch.jobs, format_duration(batch.checkpoint_s))
    out = console()
    out.print(made if found.batches else "No node could be emptied.")
    for name, why in found.skipped:
        out.print(visible(f"Skipped: {name}: {why}."))


def summary(each: RollingDrain) -> dict[str, Any]:
    return {
        **picked(each, "rolling_id", "state"),
        "nodes": compress(each.order.nodes),
        "at_once": each.at_once,
        **picked(each.order, "actor", "reason"),
        **picked(each, "created_at", "progressed_at", "finished_at"),
        "turns_by_state": {state: len(each.nodes(state)) for state in TurnState},
        "outcome": each.outcome,
    }
