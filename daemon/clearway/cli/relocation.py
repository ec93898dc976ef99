"""``clearway compact`` and ``clearway promote``: what they say, to the loop and to people."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from clearway.cli import render
from clearway.cli.asking import (
    DEFAULT_CONFIG,
    FAILED,
    ConfigOption,
    Output,
    OutputOption,
    ask,
    configuration,
    stored,
)
from clearway.cli.drain import actor
from clearway.config.configuration import Config
from clearway.model.operations import Eviction, EvictionState
from clearway.model.orders import MoveKind
from clearway.model.plan import NoPlan, Plan
from clearway.model.requests import RequestKind
from clearway.store.base import Store

_POLL_S = 0.5

WaitOption = Annotated[bool, typer.Option("--wait", help="Return when the jobs have moved.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done; do nothing.")]


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
        settings = configuration(config)
        with stored(config) as store:
            answer = dry_run(kind, settings, store)
        render.what_if(answer, output.value)
        raise typer.Exit(FAILED if isinstance(answer, NoPlan) else 0)
    quiet = output is Output.JSON
    asked = ask(request, None, config, quiet=quiet)
    failed = asked.refused
    more: dict[str, object] = {}
    if wait and asked.eviction_id is not None:
        with stored(config) as store:
            eviction = wait_until_moved(store, asked.eviction_id)
        more, failed = render.summary(eviction), eviction.state is not EvictionState.COMPLETED
        if not quiet:
            print(render.visible(eviction.outcome))
    if quiet:
        render.print_json(render.answered(asked) | more)
    raise typer.Exit(FAILED if failed else 0)


def dry_run(kind: MoveKind, config: Config, store: Store) -> Plan | NoPlan:
    """The daemon's own decision on a fresh snapshot, and nothing done."""
    from clearway.bootstrap import checkpointer_actions, open_backend  # noqa: PLC0415 - loads every backend
    from clearway.eligibility.under_way import under_way_by  # noqa: PLC0415
    from clearway.estimates.history import read_history  # noqa: PLC0415
    from clearway.model.clock import SystemClock  # noqa: PLC0415
    from clearway.relocation.controller import jobs_left  # noqa: PLC0415
    from clearway.relocation.plan import plan_moves  # noqa: PLC0415
    from clearway.telemetry.log import configure_logging  # noqa: PLC0415

    configure_logging("text", quiet=True)  # standard output is for the answer alone
    backend = open_backend(config, SystemClock())
    try:
        snapshot = backend.snapshot()
    finally:
        backend.close()
    return plan_moves(
        kind,
        snapshot,
        config,
        snapshot.taken_at,
        jobs=jobs_left(kind, store, config, snapshot.taken_at),
        actor=actor(),
        preempted=store.preemption_counts(job.job_id for job in snapshot.jobs if job.state.holds_nodes),
        under_way=under_way_by(store.open_evictions()),
        history=read_history(store, config),
        actions=checkpointer_actions(),
    )


def wait_until_moved(store: Store, eviction_id: int) -> Eviction:
    """The eviction when its jobs have arrived, or when it has ended without."""
    while True:
        eviction = store.eviction(eviction_id)
        if eviction.state.terminal:
            return eviction
        time.sleep(_POLL_S)
