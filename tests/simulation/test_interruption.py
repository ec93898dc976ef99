"""kill -9 of the daemon between any two of its effects, then a restart: the end is the same as without it.

What an effect is, and how the daemon is killed, is told in ``killing``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import ClassVar

from clearway.config.configuration import Config
from clearway.model.cluster import JobState
from clearway.model.notice import Channel, NoticeKind
from clearway.model.operations import EvictionState
from clearway.model.problem import Action
from clearway.simulation.jobs import Program
from tests.simulation.killing import End, Interruption, MortalDaemon, killed_everywhere, one_in
from tests.simulation.world import SAVES, World, config


def scenario(world: World) -> tuple[str, dict[str, str]]:
    jobs = {
        "saver": world.submit(
            Program(save_s=3.0, work_s=1_500), on=("n1", "n2"), num_nodes=2, ran_s=900, comment=SAVES
        ),
        "second": world.submit(Program(save_s=2.0, work_s=2_500), on=("n3",), ran_s=2_000, comment=SAVES),
        "killed": world.submit(Program(exit_s=2.0), on=("n4",), ran_s=40),
        "cancelled": world.submit(on=("n5",), ran_s=30, requeueable=False),
        "requeues": world.submit(
            Program(save_s=2.0, requeues=True, work_s=1_500), on=("n6",), ran_s=900, comment=f"{SAVES},requeues=self"
        ),
        "suspended": world.submit(on=("n7",), ran_s=800, memory_mib=1_000),
        "kept": world.submit(on=("n8",), ran_s=3_000, user="vip"),
    }
    return world.urgent(7, work_s=15.0, memory_mib=2_000), jobs


def told_of(world: World, jobs: dict[str, str], channel: Channel) -> list[str]:
    """The jobs whose owners are told by this channel that the jobs have left; one that is told twice is there twice."""
    notices = world.store.notices_due(channel, world.clock.now(), timedelta(days=1), 1_000)
    names = {job_id: name for name, job_id in jobs.items()}
    return sorted(names[each.job_id] for each in notices if each.kind is NoticeKind.LEFT)


class TestEviction(Interruption):
    every = 1
    least_effects = 100
    end: ClassVar[End] = {
        "in_time": True,
        "eviction": EvictionState.COMPLETED,
        "runs": {"saver": 2, "second": 2, "killed": 2, "cancelled": 1, "requeues": 2, "suspended": 1, "kept": 1},
        "actions": {Action.APP_CHECKPOINT, Action.KILL, Action.SUSPEND},
        "oversubscribed": [],
        "cancelled": JobState.ENDED,
        "leftovers": [],
        "saved_without_loss": True,
        "told": {
            "webhook": ["cancelled", "killed", "requeues", "saver", "second", "suspended"],
            "comment": ["killed", "requeues", "saver", "second", "suspended"],
        },
    }

    def settings(self) -> Config:
        return config(
            candidates={"min_runtime": 0, "allow_cancel": True, "allow_suspend": True, "protected_users": ["vip"]},
            notify={"webhook": {"url_file": "/none"}, "comment": True},
        )

    def play(self, world: World, daemon: MortalDaemon) -> End:
        urgent, jobs = scenario(world)
        for _ in range(500):
            daemon.tick()
            if world.started(urgent) and world.settled():
                break
        assert world.started(urgent), world.describe()
        deadline = world.eviction().plan.deadline
        return {
            "urgent_nodes": world.cluster.jobs[urgent].runs,
            "in_time": world.started(urgent) <= deadline,  # type: ignore[operator]  # asserted just above
            "states": {name: world.state(job_id) for name, job_id in jobs.items()},
            "cancelled": world.state(jobs["cancelled"]),
            "runs": {name: len(world.cluster.jobs[job_id].runs) for name, job_id in jobs.items()},
            "restarts": {name: world.cluster.jobs[job_id].job.restart_count for name, job_id in jobs.items()},
            "eviction": world.eviction().state,
            "actions": {p.action for p in world.eviction().preemptions},
            "preemptions": {p.job_id: (p.action, p.state) for p in world.eviction().preemptions},
            "leftovers": world.leftovers(),
            "told": {each.value: told_of(world, jobs, each) for each in (Channel.WEBHOOK, Channel.COMMENT)},
            "saved_without_loss": all(
                world.cluster.jobs[jobs[name]].lost_s <= 1.5 for name in ("saver", "second", "requeues", "suspended")
            ),
            "oversubscribed": world.cluster.oversubscribed,
            "delay_lifted": all(
                e.job.start_time is None or (e.job.start_time - deadline).total_seconds() < 121
                for e in world.cluster.jobs.values()
            ),
        }


def two_at_once(world: World, daemon: MortalDaemon) -> None:
    """Two urgent jobs for which one job makes room."""
    wide = world.submit(on=("n1", "n2", "n3", "n4"), num_nodes=4, ran_s=100)
    others = [world.submit(on=(f"n{number}",), ran_s=1_000) for number in range(5, 9)]
    urgent = [world.urgent(2, work_s=10.0) for _ in range(2)]
    submitted = world.clock.now()
    for _ in range(120):
        daemon.tick()
        if all(world.started(job_id) for job_id in urgent):
            break
    assert daemon.effects > 20
    for job_id in urgent:
        started = world.started(job_id)
        assert started is not None, world.describe()
        assert (started - submitted).total_seconds() <= 60
    for _ in range(60):
        daemon.tick(2.0)
    gone = [p.job_id for e in world.store.evictions() for p in e.preemptions if p.requeued_at is not None]
    assert gone == [wide], world.describe()
    assert len(world.cluster.jobs[wide].runs) == 2
    assert all(len(world.cluster.jobs[job_id].runs) == 1 for job_id in others)
    assert world.settled(), world.describe()
    assert not world.leftovers()


def test_two_urgent_jobs_planned_together_survive_a_kill_at_any_effect(make_world: Callable[..., World]) -> None:
    killed_everywhere(make_world(), two_at_once, one_in(3))
