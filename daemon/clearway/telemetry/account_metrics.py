"""Who causes preemptions, and who pays for them, for Prometheus: by rule, account and partition.

A site may have thousands of accounts, and where Slurm enforces none, users invent them. So each family has at most
``2 * OWN + 1`` combinations of labels: the first ``OWN`` as they are, then as many with the account ``other``, and one
that is ``other`` throughout. Which come first is by time: a counter must not change its labels. Whoever reaches the
API can read metrics, so accounts are named only where ``access.account_metrics`` says so.
"""

from functools import singledispatchmethod

from clearway.config.configuration import Config
from clearway.model.events import Event, JobLeft
from clearway.model.operations import Eviction, Operation, Relocation
from clearway.telemetry.families import Families

OWN = 100  # combinations of labels that keep their account
OTHER, NONE = "other", "none"
_LONGEST = 64  # characters of a value


class AccountMetrics:
    """Counts each job that leaves twice: for what it left for, and for itself."""

    def __init__(self, families: Families) -> None:
        self._families = families
        self._named = False
        self._causes, self._payers = _Bound(), _Bound()

    def configured(self, config: Config) -> None:
        """From now on, accounts have their names or not."""
        self._named = config.access.account_metrics

    @singledispatchmethod
    def record(self, event: Event) -> None:
        """Count one event; types that are not registered below change nothing here."""

    @record.register
    def _left(self, event: JobLeft) -> None:
        lost_node_s = event.preemption.actual_lost_node_s or 0.0
        rule, account, partition = _cause(event.operation)
        cause = self._causes.within((rule, self._name(account), partition), account=1)
        payer = self._payers.within((self._name(event.preemption.job.account), event.partition), account=0)
        self._families.add("caused_preemptions", 1, *cause)
        self._families.add("caused_lost_work_node_seconds", lost_node_s, *cause)
        self._families.add("suffered_preemptions", 1, *payer)
        self._families.add("suffered_lost_work_node_seconds", lost_node_s, *payer)

    def _name(self, account: str) -> str:
        return account if self._named else OTHER


def _cause(operation: Operation) -> tuple[str, str, str]:
    """Rule, account and partition of the job that others leave for; drains and moves are rules of their own."""
    match operation:
        case Eviction():
            job = operation.preemptor
            return operation.plan.rule, job.account, job.partitions[0] if job.partitions else ""
        case Relocation():
            return operation.order.kind.value, "", ""
        case _:
            return operation.kind.value, "", ""


class _Bound:
    """Lets few combinations of labels through, and the same ones ever after."""

    def __init__(self) -> None:
        self._own: set[tuple[str, ...]] = set()
        self._shared: set[tuple[str, ...]] = set()

    def within(self, values: tuple[str, ...], account: int) -> tuple[str, ...]:
        """These values as labels; ``account`` is the place of the account among them."""
        shown = tuple(_shown(value) for value in values)
        if _admitted(shown, self._own):
            return shown
        shared = (*shown[:account], OTHER, *shown[account + 1 :])
        return shared if _admitted(shared, self._shared) else tuple(OTHER for _ in shown)


def _admitted(labels: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    if labels not in known and len(known) < OWN:
        known.add(labels)
    return labels in known


def _shown(value: str) -> str:
    """What a user may have written must be neither long nor strange."""
    return (value if value.isprintable() and len(value) <= _LONGEST else OTHER) if value else NONE
