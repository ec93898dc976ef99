"""Plans and their explanations.

Each plan is a document of its own, beside the large parts that many plans have in common: plans of one moment are made
from the same candidates and nodes, megabytes on a large cluster. Such a part is a row of ``plan_parts``, named
by the SHA-256 of its text; plans name their parts. A plan has as many verdicts as there are jobs, and few different
sentences: each sentence is stored once in a plan.

A plan that was read or written stays in memory as long as its eviction is open: it never changes, and a big one takes
10 ms to parse.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, insert, or_, select, update

from clearway.model.errors import StoreError
from clearway.model.explanation import Explanation
from clearway.model.operations import OperationKind
from clearway.model.plan import Choice, OperationPlan, Verdict
from clearway.model.problem import Candidate, NodeResources
from clearway.store import rows
from clearway.store.rows import dump, load
from clearway.store.tables import EVICTIONS, EXPLANATIONS, PLAN_PARTS, PLANS

PlanKey = tuple[int, int]  # eviction id, revision

CAPACITY_CHARS = 16 * 1024 * 1024  # of JSON; the objects take a few times as much


class Part(NamedTuple):
    """What several plans have in common, and how many characters of JSON it is."""

    value: tuple[object, ...]
    chars: int


class Kept(NamedTuple):
    """A plan as it is kept in memory."""

    key: PlanKey
    plan: OperationPlan
    chars: int  # without its parts
    parts: Mapping[str, Part]  # by digest


_KINDS: Mapping[str, Any] = {"candidates": tuple[Candidate, ...], "nodes": tuple[NodeResources, ...]}
COLUMNS = (PLANS.c.document, PLANS.c.verdicts, PLANS.c.candidates, PLANS.c.nodes)  # what a plan is read from
PRESENT = and_(EVICTIONS.c.eviction_id == PLANS.c.eviction_id, EVICTIONS.c.revision == PLANS.c.revision)


@dataclass(frozen=True, slots=True)
class _Verdicts:
    reasons: tuple[tuple[Choice, str, str], ...]
    jobs: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> "_Verdicts":
        places: dict[tuple[Choice, str, str], int] = {}
        jobs = []
        for each in verdicts:
            why = (each.choice, each.code, each.reason)
            jobs.append((each.job_id, places.setdefault(why, len(places))))
        return cls(tuple(places), tuple(jobs))

    def verdicts(self) -> tuple[Verdict, ...]:
        return tuple([Verdict(job_id, *self.reasons[place]) for job_id, place in self.jobs])


class PlanRows:
    """The plans of a database, and those of them that are kept in memory.

    Memory holds what fits and turns away the rest: all open evictions are read in turn, so evicting would only churn.
    The loop's thread writes, others read at most; replacing the dictionaries keeps both safe without a lock.
    """

    def __init__(self, capacity_chars: int = CAPACITY_CHARS) -> None:
        self._capacity = capacity_chars
        self._kept: dict[PlanKey, Kept] = {}
        self._parts: dict[str, Part] = {}  # of these plans, each counted once
        self._named: dict[int, tuple[Sequence[object], str, int]] = {}  # by id: parts, their digests and characters

    def known(self, key: PlanKey) -> OperationPlan | None:
        kept = self._kept.get(key)
        return kept.plan if kept is not None else None

    def keep(self, plan: Kept) -> None:
        """Keep it in memory. A plan whose transaction failed must not be: the next eviction may have its number."""
        plans, parts = self._kept | {plan.key: plan}, {**self._parts, **plan.parts}
        chars = sum(each.chars for each in plans.values()) + sum(part.chars for part in parts.values())
        if chars <= self._capacity:
            self._kept, self._parts = plans, parts

    def keep_only(self, keys: Collection[PlanKey]) -> None:
        """Forget every other plan, once in a cycle."""
        self._named = {}
        if self._kept.keys() - keys:
            self._kept = {key: kept for key, kept in self._kept.items() if key in keys}
            self._parts = {digest: part for kept in self._kept.values() for digest, part in kept.parts.items()}

    def add(self, connection: Connection, eviction_id: int, revision: int, plan: OperationPlan) -> Kept:
        """Store a plan, with those of its parts that are not there yet; once that is committed it may be kept."""
        problem = plan.problem
        digests, kept, texts = dict[str, str](), dict[str, Part](), dict[str, str]()
        for name, kind in _KINDS.items():
            if part := getattr(problem, name):
                if id(part) not in self._named:
                    text = dump(part, kind)
                    self._named[id(part)] = part, sha256(text.encode()).hexdigest(), len(text)
                    texts[self._named[id(part)][1]] = text
                _, digest, chars = self._named[id(part)]
                digests[name], kept[digest] = digest, Part(part, chars)
        there = connection.execute(select(PLAN_PARTS.c.digest).where(PLAN_PARTS.c.digest.in_(kept))).scalars().all()
        for name, digest in digests.items():
            if digest not in there:
                text = texts.get(digest) or dump(kept[digest].value, _KINDS[name])
                connection.execute(insert(PLAN_PARTS).values(digest=digest, document=text))
        own = replace(plan, verdicts=(), problem=replace(problem, candidates=(), nodes=()))
        document, verdicts = dump(own), dump(_Verdicts.of(plan.verdicts))
        figures = {
            "made_at": plan.made_at,
            "deadline": plan.deadline,
            "planner": plan.curve.planner,
            "chosen_delay_s": plan.chosen.max_delay_s,
            "predicted_lost_node_s": plan.chosen.lost_work_node_s,
            "predicted_checkpoint_s": plan.chosen.checkpoint_s,
        }
        key = {"eviction_id": eviction_id, "revision": revision}
        values = key | figures | digests | {"document": document, "verdicts": verdicts}
        connection.execute(insert(PLANS).values(values))
        return Kept((eviction_id, revision), plan, len(document) + len(verdicts), kept)

    def present(
        self, connection: Connection, evictions: Sequence[Row[Any]], *, remember: bool
    ) -> dict[int, OperationPlan]:
        """The present plans of these rows of evictions; ``remember``: taken from memory, and kept there."""
        known = {row.eviction_id: self.known((row.eviction_id, row.revision)) for row in evictions if remember}
        plans = {eviction_id: plan for eviction_id, plan in known.items() if plan is not None}
        kinds = {row.eviction_id: row.kind for row in evictions if row.eviction_id not in plans}
        if not kinds:
            return plans
        query = select(PLANS.c.eviction_id, PLANS.c.revision, *COLUMNS).join(EVICTIONS, PRESENT)
        found = connection.execute(query.where(PLANS.c.eviction_id.in_(kinds))).all()
        parts = self._parts_of(connection, found)
        for row in found:
            plans[row.eviction_id] = plan_from(kinds[row.eviction_id], row, parts)
            if remember:
                chars = len(row.document) + len(row.verdicts or "")
                own_parts = {digest: parts[digest] for digest in (row.candidates, row.nodes) if digest is not None}
                self.keep(Kept((row.eviction_id, row.revision), plans[row.eviction_id], chars, own_parts))
        for each in evictions:
            if each.eviction_id not in plans:
                raise StoreError(f"eviction {each.eviction_id} has no stored plan of revision {each.revision}")
        return plans

    def of_eviction(self, connection: Connection, eviction_id: int) -> tuple[OperationPlan, ...]:
        """Every plan of an eviction, the first one first; empty for an unknown eviction."""
        query = select(EVICTIONS.c.kind, *COLUMNS).join_from(PLANS, EVICTIONS)
        query = query.where(PLANS.c.eviction_id == eviction_id).order_by(PLANS.c.revision)
        found = connection.execute(query).all()
        parts = self._parts_of(connection, found)
        return tuple(plan_from(row.kind, row, parts) for row in found)

    def _parts_of(self, connection: Connection, found: Sequence[Row[*tuple[Any, ...]]]) -> dict[str, Part]:
        """By digest; a part that is in memory is not read again."""
        named = {digest for row in found for digest in (row.candidates, row.nodes) if digest is not None}
        parts = {digest: part for digest in named if (part := self._parts.get(digest)) is not None}
        return parts | parts_of(connection, found, but_for=parts.keys())


def parts_of(
    connection: Connection, found: Sequence[Row[*tuple[Any, ...]]], but_for: Collection[str] = ()
) -> dict[str, Part]:
    kinds = {getattr(row, name): kind for row in found for name, kind in _KINDS.items()}
    wanted = [digest for digest in kinds if digest is not None and digest not in but_for]
    if not wanted:
        return {}
    query = select(PLAN_PARTS.c.digest, PLAN_PARTS.c.document).where(PLAN_PARTS.c.digest.in_(wanted))
    return {digest: Part(load(kinds[digest], text), len(text)) for digest, text in connection.execute(query)}


def plan_from(kind: OperationKind, row: Row[*tuple[Any, ...]], parts: Mapping[str, Part]) -> OperationPlan:
    """The plan as it was made. What no column names is in its document.

    Raises ``StoreError``: it cannot be read, or a part of it is not there.
    """
    plan = load(rows.PLANS[kind], row.document)
    found: dict[str, Any] = {}
    for name in _KINDS:
        digest = getattr(row, name)
        if digest is not None and digest not in parts:
            raise StoreError(f"the {name} of a plan are not there: part {digest[:12]} is missing")
        if digest is not None:
            found[name] = parts[digest].value
    if row.verdicts is not None:
        plan = replace(plan, verdicts=load(_Verdicts, row.verdicts).verdicts())
    return replace(plan, problem=replace(plan.problem, **found))


def parts_named(connection: Connection, *plans: ColumnElement[bool]) -> set[str]:
    found = connection.execute(select(PLANS.c.candidates, PLANS.c.nodes).where(*plans)).all()
    return {digest for row in found for digest in row if digest is not None}


def forget_parts(connection: Connection, digests: Collection[str]) -> None:
    """Delete those of these parts that no plan has any more."""
    used = exists().where(or_(PLANS.c.candidates == PLAN_PARTS.c.digest, PLANS.c.nodes == PLAN_PARTS.c.digest))
    connection.execute(delete(PLAN_PARTS).where(PLAN_PARTS.c.digest.in_(digests), ~used))


_MISSING_AT_ONCE = 10


def write_explanation(connection: Connection, eviction_id: int, revision: int, explanation: Explanation) -> None:
    """A plan that is explained already keeps its first explanation. The curve joins the plan."""
    key = {"eviction_id": eviction_id, "revision": revision}
    if connection.execute(select(EXPLANATIONS.c.revision).filter_by(**key)).first() is not None:
        return
    document = dump(replace(explanation, curve=None))
    connection.execute(insert(EXPLANATIONS).values(key | {"complete": explanation.complete, "document": document}))
    if explanation.curve is not None:
        query = select(EVICTIONS.c.kind, PLANS.c.document).join_from(PLANS, EVICTIONS)
        query = query.where(PLANS.c.eviction_id == eviction_id, PLANS.c.revision == revision)
        kind, plan = connection.execute(query).one()
        document = dump(replace(load(rows.PLANS[kind], plan), curve=explanation.curve))
        connection.execute(update(PLANS).filter_by(**key).values(document=document))


def newest_explanation(connection: Connection, eviction_id: int) -> Explanation | None:
    """Of the newest plan that has one; None when there is none, or no such eviction."""
    return newest_explanations(connection, [eviction_id]).get(eviction_id)


def newest_explanations(connection: Connection, eviction_ids: Iterable[int]) -> dict[int, Explanation]:
    """Likewise of several; evictions without any are absent."""
    query = (
        select(EXPLANATIONS.c.eviction_id, EXPLANATIONS.c.document)
        .where(EXPLANATIONS.c.eviction_id.in_(tuple(eviction_ids)))
        .order_by(EXPLANATIONS.c.revision)
    )
    documents = {row.eviction_id: row.document for row in connection.execute(query)}
    return {eviction_id: load(Explanation, document) for eviction_id, document in documents.items()}


def unexplained(connection: Connection, since: datetime) -> tuple[int, ...]:
    """Evictions planned since then whose present plan has no explanation, the oldest first; a bounded number."""
    same = and_(EXPLANATIONS.c.eviction_id == PLANS.c.eviction_id, EXPLANATIONS.c.revision == PLANS.c.revision)
    query = (
        select(EVICTIONS.c.eviction_id)
        .select_from(EVICTIONS.join(PLANS, PRESENT).outerjoin(EXPLANATIONS, same))
        .where(EXPLANATIONS.c.revision.is_(None), EVICTIONS.c.created_at >= since)
        .order_by(EVICTIONS.c.eviction_id)
        .limit(_MISSING_AT_ONCE)
    )
    return tuple(connection.execute(query).scalars())
