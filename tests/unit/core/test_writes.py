"""What is promised stays so: plans that count what others write are in time, however the file system shares."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from clearway.estimates.checkpoint_load import CheckpointLoad, CheckpointWrite, clear_after_s, may_begin, next_to_ask
from tests.builders import NOW, after

SOON_S = 1e-3  # datetimes are whole microseconds


def write(
    job_id: str, plan: int, seconds: float, file_system_s: float | None, latest: datetime, **more: object
) -> CheckpointWrite:
    return CheckpointWrite(
        job_id=job_id, seconds=seconds, latest=latest, file_system_s=file_system_s, plan=plan, **more
    )  # type: ignore[arg-type]


def seen(
    *waiting: CheckpointWrite, running: tuple[CheckpointWrite, ...] = (), complete: tuple[CheckpointWrite, ...] = ()
) -> CheckpointLoad:
    first = next_to_ask([each for each in waiting if not each.own_pace], NOW)
    return CheckpointLoad(waiting, running, complete, first)


def test_nothing_under_way_keeps_nobody_waiting() -> None:
    assert clear_after_s(seen(), NOW, 60) == 0


def test_what_is_being_written_counts_until_it_is_complete() -> None:
    running = write("1", 1, 30, 10, after(25), begun=after(-8))
    beside = write("2", 1, 20, 5, after(25), begun=after(-8))
    assert clear_after_s(seen(running=(running,)), NOW, 60) == 22
    assert clear_after_s(seen(running=(running, beside)), NOW, 60) == 27


def test_who_waits_counts_with_all_that_its_plan_takes_unless_it_has_time() -> None:
    waiting = [write("1", 1, 30, 10, after(90)), write("2", 1, 40, 5, after(90))]
    assert clear_after_s(seen(*waiting), NOW, 60) == 10 + 5 + 35
    later = [replace(each, latest=after(110)) for each in waiting]
    assert clear_after_s(seen(*later), NOW, 60) == 0, "50 s, and 60 s for the new one: it is complete by 110 s"
    assert clear_after_s(seen(*later), NOW, 61) == 50


def test_who_can_not_be_in_time_any_more_counts_no_longer() -> None:
    assert clear_after_s(seen(write("1", 1, 30, None, after(29))), NOW, 60) == 0


def test_a_job_that_saves_itself_in_its_own_time_keeps_only_what_it_writes() -> None:
    own = write("1", 1, 300, 7, after(400), own_pace=True, begun=NOW)
    assert clear_after_s(seen(running=(own,)), NOW, 60) == 7
    assert clear_after_s(seen(running=(replace(own, latest=after(310)),)), NOW, 60) == 300, "else it would be late"


def test_who_does_not_share_begins_only_where_those_who_do_stay_in_time() -> None:
    own = write("1", 1, 50, 5, after(60), own_pace=True, begun=NOW)
    serial = write("2", 2, 10, None, after(90), rate_mib_s=1.0)
    assert may_begin(serial, seen(serial, running=(own,)), 1, 1.0)
    assert not may_begin(serial, seen(serial, running=(replace(own, latest=after(59)),)), 1, 1.0)


@dataclass
class FileSystem:
    """One MiB/s, given in any order of preference to jobs that write as fast as they can; plans come at any time."""

    rng: Random
    at_s: float = 0.0
    limit: int = 1
    writes: dict[str, CheckpointWrite] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    rate: dict[str, float] = field(default_factory=dict)
    begins_s: dict[str, float] = field(default_factory=dict)  # of jobs that save themselves in their own time
    refused: int = 0

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.at_s)

    def seen(self) -> CheckpointLoad:
        every = list(self.writes.values())
        waiting = tuple(each for each in every if each.begun is None)
        return CheckpointLoad(
            waiting,
            tuple(each for each in every if each.begun is not None and each.done is None),
            tuple(each for each in every if each.done is not None),
            next_to_ask(waiting, self.now),
        )

    def plan(self, number: int) -> None:
        """One that is made only where it is in time by what it is told of the others."""
        rng = self.rng
        shares = rng.random() < 0.7
        within_s = rng.choice((20, 40, 60, 90, 150, 400))
        made = []
        alone = all(each.done is not None for each in self.writes.values())
        for place in range(rng.randint(1, 3)):
            file_system_s = float(rng.randint(1, 20))
            writing_s = file_system_s / rng.choice((0.2, 0.5, 0.5, 1.0))
            # Beside others it would write with or without a plan, which no plan can count.
            wait_s = float(rng.choice((5, 20, 60))) if shares and alone and rng.random() < 0.4 else 0.0
            job_id = f"{number}.{place}"
            made.append(
                write(
                    job_id,
                    number,
                    wait_s + writing_s,
                    file_system_s if shares else None,
                    self.now + timedelta(seconds=within_s),
                    own_pace=wait_s > 0,
                    rate_mib_s=file_system_s / writing_s,
                )
            )
            self.left[job_id], self.rate[job_id] = file_system_s, file_system_s / writing_s
            self.begins_s[job_id] = self.at_s + wait_s * rng.random()
        takes_s = sum(each.occupies_s for each in made) + max(each.seconds - each.occupies_s for each in made)
        if clear_after_s(self.seen(), self.now, within_s) + takes_s > within_s:
            self.refused += 1
            return
        self.writes |= {each.job_id: replace(each, begun=self.now) if each.own_pace else each for each in made}

    def ask(self) -> None:
        """Until nothing more may begin."""
        waiting = list(self.seen().waiting)
        self.rng.shuffle(waiting)
        for each in waiting:
            if may_begin(each, self.seen(), self.limit, 1.0):
                self.writes[each.job_id] = replace(each, begun=self.now)
                self.ask()
                return

    def serve(self, until_s: float) -> None:
        """Write until something changes, at most until then."""
        rates, room = {}, 1.0
        begun = [each for each in self.seen().running if self.begins_s[each.job_id] <= self.at_s or not each.own_pace]
        for each in self.rng.sample(begun, len(begun)):
            rates[each.job_id] = min(room, self.rate[each.job_id])
            room -= rates[each.job_id]
        own = [self.begins_s[each.job_id] for each in self.seen().running if each.own_pace]
        ends_s = [self.at_s + self.left[job_id] / rate for job_id, rate in rates.items() if rate > 1e-9]
        next_s = min([until_s, *ends_s, *(begin_s for begin_s in own if begin_s > self.at_s)])
        for job_id, rate in rates.items():
            self.left[job_id] -= rate * (next_s - self.at_s)
        self.at_s = next_s
        for job_id in rates:
            if self.left[job_id] <= 1e-9:
                done = self.writes[job_id]
                self.writes[job_id] = replace(done, done=self.now)
                assert (self.now - done.latest).total_seconds() <= SOON_S, f"{job_id} is late"


def test_nobody_is_late_who_was_promised_anything() -> None:
    promised = refused = beside = 0
    for seed in range(400):
        rng = Random(seed)
        system = FileSystem(rng, limit=rng.choice((1, 1, 2, 3)))
        for number in range(1, 9):
            system.plan(number)
            system.ask()
            until_s = system.at_s + rng.choice((0, 0, 3, 10, 40))
            while system.at_s < until_s:
                system.serve(until_s)
                system.ask()
            beside += len({each.plan for each in system.seen().running}) > 1
        for _ in range(500):
            if all(each.done is not None for each in system.writes.values()):
                break
            system.serve(system.at_s + 1_000)
            system.ask()
        assert all(each.done is not None for each in system.writes.values())
        promised += len({each.plan for each in system.writes.values()})
        refused += system.refused
    assert promised > 1_000
    assert refused > 300
    assert beside > 200, "plans write at once, not only one after another"
