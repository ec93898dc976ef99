"""Who may make a job urgent, by what Slurm checks; and the one cluster that a database belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from clearway.model.cluster import JobState
from clearway.model.errors import ClusterError
from clearway.model.operations import EvictionState
from clearway.model.records import CLUSTER, STATUS
from clearway.model.site import ClusterIdentity, Vouched
from clearway.simulation.backend import SimulatedBackend
from clearway.simulation.jobs import Program
from tests.simulation.bad_days import busy
from tests.simulation.world import World, config

MakeWorld = Callable[..., World]
RULES = [{"account": ["vip"], "max_delay": "60s"}, {"partition": ["urgent"], "user": ["otto"], "max_delay": "60s"}]
PROD = ClusterIdentity("prod", "/var/spool/slurmctld", ("ctl1", "ctl2"))


def test_an_account_that_slurm_does_not_check_makes_no_job_urgent(make_world: MakeWorld) -> None:
    world = make_world(config=config(preemptors=RULES))
    world.backend.vouched = Vouched()
    jobs = busy(world, Program(work_s=1e6, save_s=3.0))
    liar = world.urgent(1, account="vip")
    for _ in range(20):
        report = world.tick()
    assert {world.state(job) for job in jobs} == {JobState.RUNNING}
    assert world.store.evictions() == ()
    assert report.refused_rules.startswith("rule 1 makes no job urgent: Slurm does not check the account")
    assert world.store.get_value(STATUS)["refused_rules"] == report.refused_rules
    other = world.urgent(1, user="otto", account="vip")
    world.run_until(lambda: world.started(other) is not None)
    assert world.store.evictions()[0].plan.rule == "rule 2"
    world.backend.vouched = Vouched(accounts=True)
    world.run_until(lambda: world.started(liar) is not None)


def test_a_site_that_stops_checking_ends_what_has_not_begun(make_world: MakeWorld) -> None:
    """No job has left yet: the plan is called off, as its job is urgent by no rule any more."""
    world = make_world(config=config(mode="approve", preemptors=RULES))
    busy(world, Program(work_s=1e6, save_s=3.0))
    world.urgent(1, account="vip")
    world.run_until(lambda: bool(world.store.open_evictions()))
    assert world.eviction().state is EvictionState.AWAITING_APPROVAL
    world.backend.vouched = Vouched()
    world.run_until(lambda: not world.store.open_evictions())


def test_where_any_account_is_taken_a_new_one_is_no_new_budget(make_world: MakeWorld) -> None:
    world = make_world(config=config(budget={"account_jobs_per_hour": 2}))
    world.backend.vouched = Vouched()
    busy(world, Program(work_s=1e6, save_s=3.0))
    for number in range(3):
        world.urgent(1, account=f"name{number}", work_s=3_000.0)
        world.tick()
    told = [e.why for e in world.store.open_evictions() if e.state is EvictionState.AWAITING_APPROVAL]
    assert told == ["3 jobs within an hour would be for account name2, 2 are allowed"]


# -- one database, one cluster ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [replace(PROD, name="test"), replace(PROD, state="/srv/state"), replace(PROD, hosts=("head",))],
    ids=["another name", "another state", "other controllers"],
)
def test_a_database_belongs_to_one_cluster(make_world: MakeWorld, other: ClusterIdentity) -> None:
    """The same ids are other jobs there: neither does a daemon of another cluster act, nor does it keep the lease."""
    world = make_world()
    world.backend.identity = PROD
    jobs = busy(world, Program(work_s=1e6, save_s=3.0))
    world.tick()
    assert world.store.get_value(CLUSTER)["name"] == "prod"
    world.loop.leadership.release()
    stranger = SimulatedBackend(world.cluster, world.clock)
    stranger.identity = other
    world.start_daemon(backend=stranger)
    world.urgent(1)
    for _ in range(3):
        with pytest.raises(ClusterError, match=r"the database belongs to cluster prod .* after a renaming or a move"):
            world.tick()
    assert {world.state(job) for job in jobs} == {JobState.RUNNING}
    assert not world.loop.leadership.leads
    backup_gone = SimulatedBackend(world.cluster, world.clock)
    backup_gone.identity = replace(PROD, hosts=("ctl2",))
    world.start_daemon(backend=backup_gone)
    world.tick()
    assert world.loop.leadership.leads
