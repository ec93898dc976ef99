"""Whose turn it is to be planned for, where one cycle has not time for all that wait. Pure.

Users take turns, so that a hundred jobs of one user do not keep another user's job waiting. Of one user's jobs those
come first that were not looked at yet, by their deadlines, then the one that was looked at longest ago. A job that
could not be served before is therefore looked at again after all others, and never instead of them.
"""

from collections import defaultdict
from collections.abc import Sequence

from clearway.model.plan import Preemptor

_NEVER = -1
LATER = "its turn comes in one of the next cycles: planning has taken its time in this one"


class Turns:
    """Who was looked at when; what is not stored of it only costs somebody a turn."""

    def __init__(self) -> None:
        self._count = 0
        self._jobs: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._told: dict[str, str] = {}

    def in_order(self, waiting: Sequence[Preemptor]) -> list[Preemptor]:
        """All of them, the next one first; ``waiting`` is in the order of deadlines."""
        jobs: defaultdict[str, list[Preemptor]] = defaultdict(list)
        for each in waiting:
            jobs[each.job.user].append(each)
        self._jobs = {each.job.job_id: self._jobs[each.job.job_id] for each in waiting if each.job.job_id in self._jobs}
        self._told = {each.job.job_id: self._told[each.job.job_id] for each in waiting if each.job.job_id in self._told}
        self._users = {user: at for user, at in self._users.items() if user in jobs}
        users = sorted(jobs, key=lambda user: self._users.get(user, _NEVER))  # stable: else by their first deadlines
        rounds = [
            (number, place, each)
            for place, user in enumerate(users)
            for number, each in enumerate(sorted(jobs[user], key=lambda one: self._jobs.get(one.job.job_id, _NEVER)))
        ]
        return [each for _, _, each in sorted(rounds, key=lambda one: one[:2])]

    def had(self, preemptor: Preemptor, why: str) -> None:
        """It was this one's turn; ``why``: why it has no plan all the same."""
        self._count += 1
        self._told[preemptor.job.job_id] = why or LATER
        self._jobs[preemptor.job.job_id] = self._users[preemptor.job.user] = self._count

    def missed(self, preemptor: Preemptor) -> None:
        """Its turn came to nothing, because of others: it is the first of its user's jobs again."""
        self._jobs.pop(preemptor.job.job_id, None)

    def last_told(self, preemptor: Preemptor) -> str:
        """Why it had no plan when it was its turn last: where that is unlikely to have changed, people want to know."""
        return self._told.get(preemptor.job.job_id, LATER)
