"""Rare situations that chaos schedules must come into, named by what is stored and by what the witness saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.chaos_world import ChaosWorld


# Of steps: kind, result, and how their operation ended.
_STEPS = {
    "ask_checkpoint": {"ok": "cancelled completed failed"},
    "attach": {"ok": "cancelled completed failed"},
    "cancel_job": {"ok": "completed"},
    "create_placement": {"error": "cancelled completed", "ok": "cancelled completed failed"},
    "delete_placement": {"error": "cancelled", "ok": "cancelled completed failed", "unfinished": "cancelled"},
    "detach": {"ok": "cancelled completed failed"},
    "drain": {"ok": "cancelled completed"},
    "event": {"ok": "cancelled completed failed"},
    "extend_placement": {"ok": "completed"},
    "first_in_queue": {"ok": "completed"},
    "move_placement": {"ok": "cancelled completed failed"},
    "requeue": {"ok": "cancelled completed failed"},
    "resume": {"ok": "cancelled completed"},
    "run_again": {"ok": "cancelled completed"},
    "start_now": {"ok": "cancelled completed failed"},
    "suspend": {"ok": "cancelled completed"},
    "undrain": {"ok": "cancelled completed"},
    "usual_priority": {"ok": "completed"},
}
_JOBS = {
    "app_checkpoint": "ended planned queued returned spared vacated",
    "end": "ended planned returned spared",
    "kill": "ended planned queued returned spared vacated",
    "suspend": "ended planned returned",
}  # that were chosen, by their action
_OPERATIONS = {
    "eviction": (
        "awaiting_approval None",
        "awaiting_approval needs_approval",
        "cancelled called_off",
        "cancelled cancelled",
        "cancelled pointless",
        "completed started",
        "failed pointless",
        "failed too_late",
        "superseded superseded",
    ),
    "drain": ("cancelled not_possible", "completed empty"),
    "promise": (
        "cancelled cancelled",
        "completed kept",
        "completed kept_late",
        "failed not_kept",
        "scheduled scheduled",
    ),
}  # state and outcome
_CHANGED_WHILE = "awaiting_approval cancelled cancelling placing preempting returning started starting superseded"
_CLIMATES = ("deaf", "epilogs", "fair", "hangs", "prologs", "slow", "slow database", "slow plans")
# A daemon is killed, or loses its lease, between an intent and what comes of it.
_INTERRUPTED = (
    "killed, create_placement intended",
    "killed, requeue intended",
    "leaves after 1 freed nodes were lost",
    "leaves after 2 freed nodes were lost",
)

REQUIRED: tuple[str, ...] = (
    *(
        f"step {kind} {result} {end}"
        for kind, by in _STEPS.items()
        for result, ends in by.items()
        for end in ends.split()
    ),
    *(f"job {action} {state}" for action, states in _JOBS.items() for state in states.split()),
    *(f"{kind} {end}" for kind, ends in _OPERATIONS.items() for end in ends),
    *(f"urgent job changed while {state}" for state in _CHANGED_WHILE.split()),
    *(f"climate {name}" for name in _CLIMATES),
    *_INTERRUPTED,
)


def situations(world: ChaosWorld, climate: str) -> frozenset[str]:
    """Of one schedule: each step by its result and its operation's end, and what happened beside them."""
    ask = world.witness._ask
    found = {f"climate {climate}"}
    for kind, result, state in ask(
        "SELECT DISTINCT s.kind, s.result, e.state FROM steps s JOIN evictions e ON e.eviction_id = s.eviction_id"
    ):
        found.add(f"step {kind} {result or 'unfinished'} {state}")
    for action, state in ask("SELECT DISTINCT action, state FROM preemptions"):
        found.add(f"job {action} {state}")
    for kind, state, code in ask("SELECT DISTINCT kind, state, outcome_code FROM evictions"):
        found.add(f"{kind} {state} {code}")
    return frozenset(found | world.witness.situations)
