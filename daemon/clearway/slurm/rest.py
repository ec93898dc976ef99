"""Slurm through slurmrestd, from 24.11 on; and through commands for what it does not offer: 26.05 all but to suspend
and resume jobs, 24.11 neither to requeue jobs nor to make reservations. Where these are not installed that is refused,
and said at the start.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Unpack

import httpx

from clearway.model.cluster import ClusterSnapshot, Job, Node, Reservation, Skipped
from clearway.model.errors import SlurmRefusedError, SlurmUnavailableError
from clearway.slurm import parse
from clearway.slurm import rest_records as records
from clearway.slurm.base import Failures, Fence, JobChange
from clearway.slurm.cli import CliBackend
from clearway.slurm.guarded_backend import GuardedBackend
from clearway.slurm.job_changes import REQUEUES, Seen, look_one_by_one, one_by_one
from clearway.slurm.process import ENDED, INVALID_JOB_ID, RefusedError, checked
from clearway.slurm.rest_client import RestClient, Tokens
from clearway.slurm.rest_records import ALL, JobReader, NodeReader, list_of

# slurmrestd refuses the number of a job of a federation as no job's (measured on 26.05); it lists such jobs, though.
FIRST_OF_FEDERATION = 2**26

LIMITS = "read limits, without which no job leaves for an urgent one"


class CommandPlaces(TypedDict, total=False):
    slurm_conf: str | None
    bin_dir: str | None
    env: Mapping[str, str] | None


class RestBackend(CliBackend):
    """The ``rest`` backend. ``url``: unix:PATH or http(s)://HOST:PORT. ``auth``: "local" (no token) or "jwt": the token
    of ``token_file``, else of ``scontrol token``.
    """

    name = "rest"

    def __init__(
        self,
        *,
        now: Callable[[], datetime],
        url: str,
        auth: str = "jwt",
        token_file: Path | None = None,
        timeout_s: float = 20.0,
        transport: Callable[[], httpx.AsyncBaseTransport] | None = None,
        **commands: Unpack[CommandPlaces],
    ) -> None:
        super().__init__(now=now, timeout_s=timeout_s, **commands)
        tokens = Tokens(auth, token_file, self._run, now)
        self._client = RestClient(url, tokens, timeout_s=timeout_s, transport=transport)
        self._jobs, self._nodes = JobReader(self._client), NodeReader(self._client)
        self._has_commands = (
            shutil.which("scontrol", path=commands.get("bin_dir") or self._commands.environment({})["PATH"]) is not None
        )

    def fenced_by(self, fence: Fence) -> None:
        super().fenced_by(fence)
        self._client.fence = fence

    def available(self) -> str | None:
        return GuardedBackend.available(self)

    def cannot(self) -> tuple[str, ...]:
        """What neither slurmrestd nor a command can do here."""
        if self._has_commands:
            return ()
        offer = self._client.offer
        lacking = {"requeue jobs": offer.requeue, "make and change reservations": offer.reservations}
        return (*(what for what, offered in lacking.items() if not offered), "suspend and resume jobs", LIMITS)

    def _read(self, now: datetime) -> tuple[Sequence[Job], Sequence[Node], Sequence[Skipped], int]:
        jobs, skipped, queries = self._jobs.read(now)
        nodes, skipped_nodes, more = self._nodes.read(now)
        return jobs, nodes, (*skipped, *skipped_nodes), queries + more

    def snapshot(self) -> ClusterSnapshot:
        """Where no command tells slurmctld's version, slurmrestd's counts: it is installed with it."""
        seen = super().snapshot()
        return seen if seen.slurm_version else replace(seen, slurm_version=self._client.offer.slurm_version)

    def job(self, job_id: str) -> Job | None:
        found = self._look(job_id)
        return found and found[0]

    def reservations(self) -> tuple[Reservation, ...]:
        document = self._client.read("/reservations/")
        found, skipped = records.read_reservations(list_of(document, "reservations"))
        self._skipped_reservations = tuple(skipped)
        return tuple(found)

    def _look_at(self, job_id: str) -> Seen | None:
        if not job_id.isdecimal() or not job_id.isascii():
            raise SlurmRefusedError(f"{job_id!r} is not a job id")
        if _of_federation(job_id):
            self._need_commands("look at one job of a federation")
            seen, failures = super()._look_all((job_id,))
            for error in failures.values():
                raise error
            return (seen[job_id][0], f"{job_id} {seen[job_id][1]}") if job_id in seen else None
        try:
            document = self._client.read(f"/job/{job_id}", **ALL)
        except RefusedError as error:
            if error.errno == INVALID_JOB_ID:
                return None
            raise
        # Of an array slurmrestd shows every task.
        for record in list_of(document, "jobs"):
            if isinstance(record, dict) and str(record.get("job_id")) == job_id:
                try:
                    job, named = records.read_job(record), parse.job_target(records.job_row(record))
                except parse.FieldError as error:
                    raise SlurmUnavailableError(f"job {job_id} cannot be read: {error}") from None
                self._requeue_delay.saw(job)
                return job, f"{job_id} {named}"
        return None

    def _look_all(self, job_ids: Sequence[str]) -> tuple[dict[str, Seen], Failures]:
        return look_one_by_one(self._look_at, job_ids)

    def _act_all(self, change: JobChange, targets: Sequence[str], signal: str = "") -> Failures:
        if change in REQUEUES and self._has_commands and not self._client.offer.requeue:
            return super()._act_all(change, targets, signal)
        return one_by_one(lambda target: self._act_on(change, target, signal), targets)

    def _act_on(self, change: JobChange, target: str, signal: str) -> None:
        if _of_federation(target):
            self._need_commands("change a job of a federation")
            self._by_command(change, target.partition(" ")[2] or target, signal)
            return
        job_id, _, named = target.partition(" ")
        signals = {JobChange.SIGNAL_BATCH: "BATCH_JOB", JobChange.SIGNAL_STEPS: "FULL_STEPS_ONLY"}
        if change in REQUEUES:
            if not self._client.offer.requeue:
                self._need_commands("requeue jobs")
            flags = {"flags": ["Incomplete"]} if change is JobChange.REQUEUE else {}
            self._client.change("POST", "/jobs/requeue", {"jobs": [target], **flags})
        elif change in (JobChange.SUSPEND, JobChange.RESUME):
            self._need_commands("suspend and resume jobs")
            self._by_command(change, named, signal)
        elif self._has_commands and (change is JobChange.CANCEL or change in signals):
            # slurmctld 26.05 stands still after a kill over slurmrestd that it refuses for want of rights.
            self._by_command(change, named, signal)
        elif change is JobChange.CANCEL:
            self._client.change("DELETE", "/jobs/", {"jobs": [named], "flags": ["VERBOSE"]})
        elif change in signals:
            body = {"jobs": [named], "signal": signal, "flags": [signals[change], "VERBOSE"]}
            self._client.change("DELETE", "/jobs/", body)
        else:
            self._update(job_id, begin_time=_number(int(self._now().timestamp())))

    def _by_command(self, change: JobChange, named: str, signal: str) -> None:
        for error in super()._act_all(change, (named,), signal).values():
            raise error

    def _update(self, job_id: str, **changes: object) -> None:
        """A number names one job here, or the tasks of an array that still wait. Above it would be the whole array."""
        self._client.change("POST", f"/job/{job_id}", changes)

    def _give_nice(self, nice: int, targets: Sequence[str]) -> Failures:
        def give(target: str) -> None:
            job_id, _, named = target.partition(" ")
            if _of_federation(target):
                self._need_commands("change a job of a federation")
                for error in super(RestBackend, self)._give_nice(nice, (named,)).values():
                    raise error
            else:
                self._update(job_id, nice=nice)

        return one_by_one(give, targets)

    def _set_reservation(self, target: str, reservation: str) -> None:
        job_id, _, named = target.partition(" ")
        if _of_federation(target):
            self._need_commands("change a job of a federation")
            super()._set_reservation(named, reservation)
        else:
            self._update(job_id, reservation=reservation)

    def _has_ended(self, error: SlurmRefusedError) -> bool:
        return isinstance(error, RefusedError) and error.errno in ENDED

    def _create(self, reservation: Reservation) -> None:
        offered = self._offers_reservations()
        if reservation.licenses:
            self._need_commands("reserve licenses")
        if reservation.licenses or not offered:
            super()._create(reservation)
            return
        # slurmrestd would change one of this name.
        if any(item.name == reservation.name for item in self.reservations()):
            raise SlurmRefusedError(f"reservation {reservation.name} exists")
        self._client.change(
            "POST",
            "/reservation",
            {
                "name": reservation.name,
                "node_list": list(reservation.nodes),
                "users": list(reservation.users),
                "flags": list(reservation.flags),
                "start_time": _number(int(max(self._now(), reservation.start_time).timestamp())),
                "end_time": _number(math.ceil(reservation.end_time.timestamp())),
            },
        )

    def _move(self, reservation: str, nodes: tuple[str, ...]) -> None:
        if self._changes_reservation(reservation):
            self._client.change("POST", "/reservation", {"name": reservation, "node_list": list(nodes)})
        else:
            super()._move(reservation, nodes)

    def extend_reservation(self, name: str, end_time: datetime) -> None:
        if self._changes_reservation(checked(name)):
            end = _number(math.ceil(end_time.timestamp()))
            self._client.change("POST", "/reservation", {"name": name, "end_time": end})
        else:
            super().extend_reservation(name, end_time)

    def _changes_reservation(self, name: str) -> bool:
        """Whether slurmrestd can. It would create one that does not exist (any more)."""
        if not self._offers_reservations():
            return False
        if all(item.name != name for item in self.reservations()):
            raise SlurmRefusedError(f"reservation {name} does not exist")
        return True

    def _delete(self, reservation: str) -> None:
        if self._offers_reservations():
            self._client.change("DELETE", f"/reservation/{reservation}")
        else:
            super()._delete(reservation)

    def _offers_reservations(self) -> bool:
        if not self._client.offer.reservations:
            self._need_commands("make and change reservations")
        return self._client.offer.reservations

    def _node_status(self, node: str) -> parse.NodeStatus:
        for record in list_of(self._client.read(f"/node/{node}"), "nodes"):
            if isinstance(record, dict) and record.get("name") == node:
                try:
                    return records.node_status(record)
                except parse.FieldError as error:
                    raise SlurmUnavailableError(f"node {node} cannot be read: {error}") from None
        raise SlurmRefusedError(f"node {node} is not known")

    def _set_drained(self, node: str, reason: str | None) -> None:
        # Not RESUME, which would also bring back a node that is DOWN.
        changes = {"state": ["UNDRAIN"]} if reason is None else {"state": ["DRAIN"], "reason": reason}
        self._client.change("POST", f"/node/{node}", changes)

    def _set_reason(self, node: str, reason: str) -> None:
        self._client.change("POST", f"/node/{node}", {"reason": reason})

    def power_down(self, node: str) -> None:
        self._client.change("POST", f"/node/{checked(node)}", {"state": ["POWER_DOWN"]})

    def _run(self, argv: Sequence[str]) -> str:
        """By the commands of that moment: ``fenced_by`` replaces them."""
        return self._commands.run(argv)

    def _need_commands(self, what: str) -> None:
        if not self._has_commands:
            raise SlurmRefusedError(f"this slurmrestd cannot {what}, and Slurm's commands are not installed here")


def _of_federation(target: str) -> bool:
    """Of a job id, or of what ``_act`` is given: it begins with the number of the job or of its array."""
    return int(target.partition(" ")[0].partition("_")[0]) >= FIRST_OF_FEDERATION


def _number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}
