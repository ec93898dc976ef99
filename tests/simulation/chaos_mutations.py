"""Parts of the daemon taken back one at a time: chaos schedules must find each within so many seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from clearway.eligibility import exemption, options
from clearway.execution import executor, job_batch, restraints
from clearway.preemption import lifecycle
from clearway.service.leadership import Leadership
from clearway.simulation.backend import SimulatedBackend
from clearway.slurm.base import Failures
from clearway.store import lease_rows
from tests.simulation.chaos_witness import Outcome


@dataclass(frozen=True)
class Mutation:
    """``found_by``: kinds of violations that are counted; (): any."""

    apply: Callable[[pytest.MonkeyPatch], None]
    found_by: tuple[str, ...] = ()

    def is_found(self, outcome: Outcome) -> bool:
        if not self.found_by:
            return bool(outcome.violations)
        return not outcome.kinds.isdisjoint(self.found_by)


def _no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lease_rows, "require", lambda _connection, _epoch: None)
    patch.setattr(Leadership, "command_limit_s", lambda _: 7.5)


def _no_breaker(patch: pytest.MonkeyPatch) -> None:
    """Jobs leave as often as their nodes are lost."""
    patch.setattr(restraints.Breaker, "look", lambda *_: None)


def _no_pledge(patch: pytest.MonkeyPatch) -> None:
    """Each new plan for the same job may cost as much again, as often as nodes are lost: else the breaker hides it."""
    _no_breaker(patch)
    patch.setattr(lifecycle, "over_pledge", lambda *_, **__: "")
    pledged = lifecycle.pledged
    patch.setattr(lifecycle, "pledged", lambda *args, **more: replace(pledged(*args, **more), asks=""))


def _never_looks_again(patch: pytest.MonkeyPatch) -> None:
    """Once an urgent job is placed, nothing of it is compared with the plan any more."""
    patch.setattr(lifecycle, "_in_vain", lambda _e, _cycle: None)
    patch.setattr(lifecycle, "_changed_ask", lambda _e, _cycle: "")
    patch.setattr(lifecycle.EvictionLifecycle, "in_vain", lambda _self, _e, _cycle: "")


def _ends_as_planned(patch: pytest.MonkeyPatch) -> None:
    """An end that has moved is noticed at the deadline."""
    patch.setattr(executor, "moved_ends", lambda *_: {})


def _all_come_back(patch: pytest.MonkeyPatch) -> None:
    """Neither deadlines nor what partitions allow are known of jobs that run."""
    for module in (exemption, options):
        patch.setattr(module, "past_deadline", lambda *_: "")
    patch.setattr(exemption, "why_no_return", lambda *_: "")


def _as_was_intended(patch: pytest.MonkeyPatch) -> None:
    """What did not come to pass stays in the records."""
    times = job_batch.times
    patch.setattr(job_batch, "times", lambda p, step, *more: times(p, replace(step, void=False), *more))


def _nothing_is_put_back(patch: pytest.MonkeyPatch) -> None:
    give = SimulatedBackend.set_nice

    def only_given(self: SimulatedBackend, wanted: Mapping[str, tuple[int, int]]) -> Failures:
        return give(self, {job_id: nices for job_id, nices in wanted.items() if nices[0] < 0})

    patch.setattr(SimulatedBackend, "set_nice", only_given)


MUTATIONS = {
    "no fence": Mutation(_no_fence),
    "no breaker": Mutation(_no_breaker, ("breaker",)),
    "no pledge": Mutation(_no_pledge, ("promise",)),
    "never looks again": Mutation(_never_looks_again, ("in vain",)),
    "ends as planned": Mutation(_ends_as_planned, ("ends",)),
    "all come back": Mutation(_all_come_back, ("return",)),
    "nothing is put back": Mutation(_nothing_is_put_back),
    "records as intended": Mutation(_as_was_intended, ("records",)),
}
