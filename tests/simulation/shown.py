"""An eviction as the command line prints it."""

from __future__ import annotations

from clearway.api import views
from clearway.cli import evictions, explain, render
from tests.simulation.world import World


def show(world: World, eviction_id: int, output: str) -> None:
    eviction = world.store.eviction(eviction_id)
    found = views.eviction_view(eviction, world.store)
    if output == "json":
        render.print_document(found)
    else:
        evictions.eviction(found, views.verdict_views(eviction), (), output)


def show_explanation(world: World, eviction_id: int, output: str) -> None:
    eviction, explanation = world.store.eviction(eviction_id), world.store.explanation(eviction_id)
    assert explanation is not None
    told = views.explanation_view(eviction_id, eviction.plan, explanation)
    explain.show(views.eviction_view(eviction, world.store), told, output)
