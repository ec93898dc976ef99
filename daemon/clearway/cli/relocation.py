"""``clearway compact`` and ``clearway promote``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.options import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    Output,
    OutputOption,
    ask,
    configuration,
    poll_until,
    stored,
)
from clearway.model.operations import EvictionState, Operation
from clearway.model.orders import MoveKind
from clearway.model.plan import NoPlan
from clearway.model.requests import RequestKind
from clearway.store.base import Store

WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the jobs have moved.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def compact(
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move jobs off the emptiest nodes onto others that are partly used, so that whole nodes become empty."""
    _move(RequestKind.COMPACT, MoveKind.COMPACTION, config, output, wait=wait, dry=dry_run)


def promote(
    wait: WaitOption = False,
    dry_run: DryRunOption = False,
    config: ConfigOption = DEFAULT_CONFIG,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move jobs from lower-ranked nodes to free higher-ranked ones, and off scarce nodes that they do not need."""
    _move(RequestKind.PROMOTE, MoveKind.PROMOTION, config, output, wait=wait, dry=dry_run)


def _move(request: RequestKind, kind: MoveKind, config: Path, output: Output, *, wait: bool, dry: bool) -> None:
    if dry:
        from clearway.cli import dry_run  # noqa: PLC0415 - the other commands start quicker without

        with stored(config) as store:
            answer = dry_run.moves(kind, configuration(config), store)
        render.what_if(answer, output.value)
        raise typer.Exit(FAILED if isinstance(answer, NoPlan) else 0)
    quiet = output is Output.JSON
    asked = ask(request, None, config, quiet=quiet)
    failed = asked.refused
    more: dict[str, object] = {}
    if wait and asked.eviction_id is not None:
        with stored(config) as store:
            eviction = poll_until(partial(_arrived, store, asked.eviction_id))
        more, failed = render.summary(eviction), eviction.state is not EvictionState.COMPLETED
        if not quiet:
            print(render.visible(eviction.outcome))
    if quiet:
        render.print_json(render.answered(asked) | more)
    raise typer.Exit(FAILED if failed else 0)


def _arrived(store: Store, eviction_id: int) -> Operation | None:
    """The eviction when its jobs have arrived, or when it has ended without."""
    eviction = store.eviction(eviction_id)
    return eviction if eviction.state.terminal else None
