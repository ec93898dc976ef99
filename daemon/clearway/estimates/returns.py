"""When a preempted job is expected to run again. Pure."""

from datetime import datetime, timedelta

from clearway.estimates.learning import History
from clearway.model.operations import Preemption, PreemptionState


def runs_again(p: Preemption, until: datetime | None, history: History, now: datetime) -> tuple[datetime | None, str]:
    """The expected time and what it goes by, as a sentence; None and the sentence where it is not known.

    Both are empty where the job has not left, runs again, or is over. ``until``: when the job that it left for has
    ended at the latest, which a suspended job waits for.
    """
    if p.state is PreemptionState.SUSPENDED:
        if until is None:
            return None, "It goes on when the job that it was suspended for has ended."
        return until, "It goes on when the job that it was suspended for has ended, at its time limit at the latest."
    if not p.on_its_way:
        return None, ""
    since = p.vacated_at or p.requeued_at or now
    waits_s = history.queueing_s(max(1, p.job.num_nodes))
    if not waits_s:
        return None, "Too few preempted jobs have come back so far to say how long that takes."
    expected = since + timedelta(seconds=waits_s)
    if expected <= now:
        return None, "It waits for its turn, and has waited longer than most preempted jobs did."
    return expected, "By the median wait of preempted jobs of about as many nodes."
