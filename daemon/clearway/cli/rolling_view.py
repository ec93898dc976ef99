"""How rolling drains are shown: tables for people, the answers of REST for programs."""

from collections import Counter, defaultdict

from clearway.api.schemas import RollingList, RollingView
from clearway.cli.render import Columns, console, listing, print_document, table, visible, when
from clearway.model.orders import TurnState
from clearway.slurm.parse.hostlist import compress


def several(found: RollingList, output: str) -> None:
    if output == "json":
        print_document(found)
        return
    columns: Columns = {
        ">no.": lambda each: each.rolling_id,
        "state": lambda each: each.state.value,
        "nodes": lambda each: compress(turn.node for turn in each.turns),
        ">at once": lambda each: each.at_once,
        "ordered": lambda each: f"{each.created_at.astimezone():%m-%d %H:%M}",
        "turns": progress,
        "outcome": lambda each: each.outcome,
    }
    console(output).print(listing(found.items, columns) if found.items else "There are none.")


def one(found: RollingView, output: str) -> None:
    if output == "json":
        print_document(found)
        return
    out = console(output)
    reason = f": {found.reason}" if found.reason else ""
    out.print(
        visible(
            f"Rolling drain {found.rolling_id} of {len(found.turns)} node(s), {found.at_once} at once, "
            f"for {found.actor}{reason}; ordered {when(found.created_at)}."
        )
    )
    out.print(visible(f"{found.state.value}: {progress(found)}. {found.outcome}"))
    groups: defaultdict[tuple[TurnState, str, int | None], list[str]] = defaultdict(list)
    for turn in found.turns:
        groups[turn.state, turn.note, turn.drain_id].append(turn.node)
    made = table("nodes", "turn", ">drain", "why")
    for (state, note, drain_id), names in groups.items():
        made.add_row(compress(names), state.value, drain_id or "", note)
    out.print(made)


def progress(rolling: RollingView) -> str:
    """How far it is, in one line."""
    counts = Counter(turn.state for turn in rolling.turns)
    return ", ".join(f"{counts[state]} {state.value}" for state in TurnState if counts[state])
