"""What Slurm says of the whole site, and how long jobs took; asked once by a person, and by no cycle."""

import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from clearway.model.cluster import Node
from clearway.model.errors import SlurmError, SlurmRefusedError, WalltimeError
from clearway.model.site import ClusterIdentity, Vouched
from clearway.slurm import parse
from clearway.slurm.parse import FieldError
from clearway.slurm.parse.fields import NOTHING, duration_s, record
from clearway.slurm.parse.site import read_identity
from clearway.slurm.process import Commands
from clearway.slurm.site_settings import PARTITIONS, read_preemption, read_vouched

_SETTING = re.compile(r"^(\w+)(?:\[\d+\])?\s*= (.*?)\s*$", re.MULTILINE)
_CLOCK = re.compile(r"^Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)$", re.MULTILINE | re.ASCII)
_JOB_S = 60.0  # of a job with --time=1
_NO_SUCH = "clearway_doctor_asks"  # no reservation and no node has this name
_DENIED = re.compile(r"Invalid user id|Access/permission denied|not permitted|Permission denied", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePartition:
    name: str
    nodes: int
    up: bool
    tier: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFacts:
    """``settings``: slurm.conf as slurmctld goes by it. ``qos`` None: there is no slurmdbd, or it does not answer."""

    settings: Mapping[str, str]
    clock: datetime | None  # slurmctld's, to the second; None: it does not tell
    partitions: tuple[SitePartition, ...]
    qos: tuple[str, ...] | None  # by name
    qos_unknown: str  # why ``qos`` is None
    nodes: tuple[Node, ...]
    preempts: Mapping[str, frozenset[str]]  # QoS or partition to those whose jobs Slurm itself preempts for it
    preempts_by_qos: bool
    grace_s: float
    vouched: Vouched = field(default_factory=Vouched)
    cluster: ClusterIdentity | None = None  # None: it does not tell

    def setting(self, name: str) -> str:
        value = self.settings.get(name, "")
        return "" if value in NOTHING else value

    def seconds(self, name: str) -> float:
        """A time that Slurm prints as "30 sec", "2 min" or "00:05:00"; 0 where there is none."""
        value = self.setting(name)
        found = re.fullmatch(r"(\d+) (sec|min)", value, re.ASCII)
        if found:
            return float(found[1]) * (60 if found[2] == "min" else 1)
        try:
            return float(duration_s(value, name) or 0) if value else 0.0
        except FieldError:
            return 0.0

    @property
    def version(self) -> str:
        return self.setting("SLURM_VERSION")

    @property
    def accounting(self) -> bool:
        return self.setting("AccountingStorageType").endswith("slurmdbd")

    @property
    def slurm_user(self) -> str:
        return self.setting("SlurmUser").partition("(")[0]


def _partitions(records: str) -> list[SitePartition]:
    found = []
    for line in records.splitlines():
        fields = record(line)
        if "PartitionName" not in fields:
            continue
        count = fields.get("TotalNodes", "")
        tier = fields.get("PriorityTier", "")
        found.append(
            SitePartition(
                name=fields["PartitionName"],
                nodes=int(count) if count.isdecimal() else 0,
                up=fields.get("State", "UP") == "UP",
                tier=int(tier) if tier.isdecimal() else 1,
            )
        )
    return found


def _qos(commands: Commands, settings: Mapping[str, str]) -> tuple[tuple[str, ...] | None, str]:
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return None, "this cluster has no slurmdbd"
    query = ["sacctmgr", "--noheader", "--parsable2", "--readonly", "show", "qos", "format=name"]
    try:
        text = commands.run(query)
    except SlurmError as error:
        return None, str(error)
    return tuple(filter(None, text.splitlines())), ""


class Site:
    """One cluster, asked as the user of this process. Every method raises ``SlurmError`` where there is no answer."""

    def __init__(self, slurm_conf: str | None = None, timeout_s: float = 15.0) -> None:
        self._commands = Commands(timeout_s=timeout_s, slurm_conf=slurm_conf)

    def read(self) -> SiteFacts:
        """A slurmdbd that does not answer is told in ``qos_unknown``."""
        run = self._commands.run
        config = run(["scontrol", "show", "config"])
        nodes, _ = parse.read_nodes(run(["scontrol", "--details", "--oneliner", "show", "node"]))
        settings = dict(reversed(_SETTING.findall(config)))  # of several, such as Epilog[0] and Epilog[1], the first
        clock = _CLOCK.search(config)
        qos, unknown = _qos(self._commands, settings)
        partitions = run(PARTITIONS)
        preemption = read_preemption(run, config, partitions)
        return SiteFacts(
            settings=settings,
            clock=datetime.fromisoformat(clock[1]).replace(tzinfo=UTC) if clock else None,
            partitions=tuple(_partitions(partitions)),
            qos=qos,
            qos_unknown=unknown,
            nodes=tuple(nodes),
            preempts={name: others for name, others in preemption.preempts.items() if others},
            preempts_by_qos=preemption.of_qos,
            grace_s=preemption.grace_s,
            vouched=read_vouched(config, partitions),
            cluster=read_identity(config),
        )

    def identity_and_vouched(self) -> tuple[ClusterIdentity | None, Vouched]:
        """Which cluster this is, and what Slurm checks of a job: by two quick queries."""
        config = self._commands.run(["scontrol", "show", "config"])
        return read_identity(config), read_vouched(config, self._commands.run(PARTITIONS))

    def may_reserve(self) -> bool:
        """Whether Slurm lets this user change reservations: it looks at that first, and then at the name."""
        return self._allowed(["scontrol", "delete", f"ReservationName={_NO_SUCH}"])

    def may_drain(self) -> bool:
        return self._allowed(["scontrol", "update", f"NodeName={_NO_SUCH}", "State=UNDRAIN"])

    def _allowed(self, argv: Sequence[str]) -> bool:
        try:
            self._commands.run(argv)
        except SlurmRefusedError as error:
            return _DENIED.search(str(error)) is None
        return True

    def on_a_node(self, argv: Sequence[str], *, user: str, partition: str, wait_s: float) -> str:
        """What a command prints in a job of a minute that waits ``wait_s`` for its node; nothing of the job stays."""
        name = f"clearway-doctor-{secrets.token_hex(6)}"
        where = [f"--partition={partition}"] if partition else []
        job = ["--nodes=1", "--ntasks=1", "--time=1", f"--immediate={wait_s:.0f}", f"--job-name={name}", "--chdir=/"]
        patient = replace(self._commands, timeout_s=wait_s + 2 * _JOB_S)
        try:
            return patient.run(["srun", *job, *where, *argv])
        finally:
            with suppress(SlurmError):  # it has ended, unless srun was ended
                self._commands.run(["scancel", f"--name={name}", f"--user={user}"])


_ELAPSED = ("JobIDRaw", "State", "ElapsedRaw")


def sacct_command(columns: Sequence[str], *filters: str) -> Sequence[str]:
    """With one line for each job, none for its steps (``--allocations``), the last run of a requeued job."""
    answer = ("--allocations", "--noheader", "--parsable2", "--delimiter=|", f"--format={','.join(columns)}")
    return ("sacct", *filters, *answer)


def elapsed_command(user: str, name: str, days: int) -> Sequence[str]:
    """For the jobs of this user and name. Raises ``WalltimeError``: sacct would read the name as a list of names."""
    for what, text in (("user", user), ("name", name)):
        if not text or "," in text or not text.isprintable():
            raise WalltimeError(f"{what} {text!r:.60}: give one name, without commas")
    if not 1 <= days <= 3_650:
        raise WalltimeError(f"days must lie between 1 and 3650, not {days}")
    period = (f"--starttime=now-{days}days", "--endtime=now")
    return sacct_command(_ELAPSED, f"--user={user}", f"--name={name}", *period, "--state=COMPLETED")


def read_elapsed(text: str) -> list[float]:
    """Seconds that each completed job took; of others it is not known. Raises ``WalltimeError``."""
    found: list[float] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        parts = line.strip().split("|")
        if len(parts) != len(_ELAPSED) or not parts[2].isdecimal() or not parts[0].partition(".")[0]:
            raise WalltimeError(f"sacct, line {number}: {line!r:.60} is not {'|'.join(_ELAPSED)}")
        if parts[1] == "COMPLETED" and "." not in parts[0]:
            found.append(float(parts[2]))
    return found
