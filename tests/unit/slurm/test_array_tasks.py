"""Tasks that squeue hides among those of their array that wait."""

from __future__ import annotations

from typing import Any

from clearway.model.cluster import Job, JobState
from clearway.slurm.kept_records import MOST_ASKED, MOST_TASKS, ArrayTasks
from tests.builders import job


def waiting(job_id: int, tasks: int, **fields: Any) -> Job:
    return job(job_id, 1, JobState.PENDING, array_job_id="9", pending_tasks=tasks, **fields)


def task(job_id: int, state: JobState = JobState.RUNNING, **fields: Any) -> Job:
    return job(job_id, 1, state, array_job_id="9", array_task_id=job_id, **fields)


def test_a_task_that_was_seen_running_is_asked_for_and_told() -> None:
    tasks = ArrayTasks()
    first = [waiting(9, 20), task(10), task(11)]
    assert tasks.to_ask(first) == ["9"], "at first, of the whole array"
    assert tasks.complete(first, [], ["9"]) == first
    then = [waiting(9, 21), task(11)]
    assert tasks.to_ask(then) == ["10"]
    hidden = task(10, JobState.PENDING)
    told = tasks.complete(then, [hidden], ["10"])
    assert [(each.job_id, each.pending_tasks) for each in told] == [("9", 20), ("11", 1), ("10", 1)]
    assert tasks.to_ask(then) == ["10"], "it stays hidden"
    ended = [waiting(9, 20), task(11)]
    assert tasks.complete(ended, [], ["10"]) == ended
    assert not tasks.to_ask(ended), "it has ended"


def test_nothing_is_asked_where_nothing_is_hidden() -> None:
    tasks = ArrayTasks()
    assert not tasks.to_ask([job(5), task(10)])
    tasks.complete([job(5), task(10)], [], [])
    assert not tasks.to_ask([job(5)]), "no task of the array waits"


def test_of_many_tasks_the_others_are_asked_for_later() -> None:
    tasks = ArrayTasks()
    running = [task(1_000 + n) for n in range(MOST_ASKED + 10)]
    tasks.complete([waiting(9, 2), *running], [], ["9"])
    asked = tasks.to_ask([waiting(9, 2)])
    assert len(asked) == MOST_ASKED
    tasks.complete([waiting(9, 2)], [], asked)
    assert len(tasks.to_ask([waiting(9, 2)])) == 10


def test_at_first_a_bounded_part_of_the_arrays_is_asked_for_in_each_cycle() -> None:
    """What users submit must not make one answer of squeue so large that no cycle ever ends."""
    tasks = ArrayTasks()
    sizes = {100 + n: 2 for n in range(MOST_ASKED)} | {1: MOST_TASKS // 2, 2: MOST_TASKS // 2, 3: MOST_TASKS + 1}
    jobs = [job(n, 1, JobState.PENDING, array_job_id=str(n), pending_tasks=size) for n, size in sizes.items()]
    turns: list[str] = []
    number = 0
    while asked := tasks.to_ask(jobs):
        assert len(asked) <= MOST_ASKED
        assert sum(sizes[int(array)] for array in asked) <= MOST_TASKS
        turns += asked
        number += 1
        tasks.complete(jobs, [], asked)
    assert sorted(map(int, turns)) == sorted(sizes.keys() - {3})
    assert number == 2


def test_what_could_not_be_asked_is_asked_again() -> None:
    tasks = ArrayTasks()
    assert tasks.to_ask([waiting(9, 20)]) == ["9"]
    assert tasks.to_ask([waiting(9, 20)]) == ["9"], "squeue had not answered"


def test_the_limit_is_remembered_where_squeue_leaves_it_out() -> None:
    tasks = ArrayTasks()
    tasks.complete([waiting(9, 5, array_limit=2)], [], [])
    (told,) = tasks.complete([waiting(9, 4)], [], [])
    assert told.array_limit == 2
    (told,) = tasks.complete([waiting(9, 1)], [], [])
    assert told.array_limit == 2
    tasks.complete([job(5)], [], [])
    (told,) = tasks.complete([waiting(9, 4)], [], [])
    assert told.array_limit == 0, "forgotten with the array"


def test_the_limit_is_read_ahead_of_what_a_user_writes() -> None:
    tasks = ArrayTasks()
    line = "JobId=9 ArrayJobId=9 ArrayTaskId=0-3 ArrayTaskThrottle={} JobName=x JobId=9 ArrayTaskThrottle=99 UserId=a\n"
    assert tasks.learn_limit(waiting(9, 4), line.format(3)).array_limit == 3
    (told,) = tasks.complete([waiting(9, 4)], [], [])
    assert told.array_limit == 3
    assert tasks.learn_limit(waiting(9, 4), "JobId=9 ArrayJobId=9 ArrayTaskId=0-3 JobName=x").array_limit == 0
