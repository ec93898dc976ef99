"""What the checks are told and look at: the configuration, what was asked for, and Slurm's answers, each read once."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from clearway.api.schemas import Health
from clearway.client import Client, SilentError
from clearway.config import plugins
from clearway.config.configuration import Config
from clearway.doctor.database_facts import DatabaseFacts, read_database
from clearway.doctor.once import Once
from clearway.model.errors import ClearwayError
from clearway.slurm.site_facts import Site, SiteFacts

WAIT_S = 30.0  # for a free node; the job itself takes seconds
_BY_ITSELF = "suspend"  # needs nothing on the node

# Runs on the node; its first argument is the launcher, the others are checkpointers. It prints KEY=VALUE lines.
_ASKS_A_NODE = r"""
echo "node=$(hostname)"
echo "time=$(date +%s)"
run=$(command -v "$1" 2>/dev/null) || { echo launcher=absent; exit 0; }
run=$(readlink -f "$run")
here=$(dirname "$run")
echo "launcher=$run"
echo "sum=$(sha256sum <"$run" | cut -d ' ' -f 1)"
shift
for each; do
    driver=$here/checkpointers/$each.sh
    [ -r "$driver" ] || driver=$here/../clearway_checkpoint/$each.sh
    if [ ! -r "$driver" ]; then
        echo "checkpointer.$each=no there is no $driver"
        continue
    fi
    CLEARWAY_STATE=${TMPDIR:-/tmp} CLEARWAY_DIR=${TMPDIR:-/tmp} timeout 20 sh "$driver" probe </dev/null 2>/dev/null |
        sed -n 's/^ok=//p; s/^reason=/ /p' | tr -d '\n' | sed "s/^/checkpointer.$each=/"
    echo
done
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is tried only where somebody asks for it."""

    prometheus: str = ""  # its address
    checkpoints: Path | None = None  # the folder that jobs save into
    job: bool = False  # whether a job of a minute at most may be started
    partition: str = ""  # of that job; "": Slurm's default
    launcher: str = "clearway-run"  # how jobs call it
    launcher_sum: str = ""  # SHA-256 of this version's; "": not compared


class Case:
    """For one examination. ``user`` is the one that runs it, ``config`` what the daemon would go by."""

    def __init__(self, config: Config, asked: Asked, user: str) -> None:
        self.config = config
        self.asked = asked
        self.user = user
        conf = str(config.slurm.conf) if config.slurm.conf else None
        self.slurm = Site(conf, config.slurm.timeout)

    @Once
    def site(self) -> SiteFacts:
        """Raises ``SlurmError``."""
        asked_at = self.now()
        found = self.slurm.read()
        self.site_read_at = asked_at
        return found

    @Once
    def node(self) -> Mapping[str, str]:
        """What one compute node says, by a job of which nothing stays on the cluster.

        Raises:
            SlurmError: the job did not run.
        """
        drivers = [each for each in plugins.names(plugins.CHECKPOINTERS) if each != _BY_ITSELF]
        command = ["sh", "-c", _ASKS_A_NODE, "sh", self.asked.launcher, *drivers]
        said = self.slurm.on_a_node(command, user=self.user, partition=self.asked.partition, wait_s=WAIT_S)
        return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)

    @Once
    def database(self) -> DatabaseFacts | None:
        """None: SQLite's file is not there yet. Raises ``StoreError``."""
        found = read_database(self.config)
        self.database_read_at = self.now()
        return found

    @property
    def health(self) -> Health | None:
        """What a daemon says of itself at the address of this configuration; None: none answers."""
        return self._health if isinstance(self._health, Health) else None

    @property
    def silent(self) -> bool:
        """Whether something listens at that address and gives no answer."""
        return isinstance(self._health, SilentError)

    @cached_property
    def _health(self) -> Health | ClearwayError | None:
        api = self.config.api
        if api.port == 0 and api.socket is None:
            return None  # it may be anywhere
        try:
            with Client(api.url, authority=api.certificate) as client:
                return client.health()
        except ClearwayError as error:
            return error

    @staticmethod
    def now() -> datetime:
        return datetime.now(UTC)
