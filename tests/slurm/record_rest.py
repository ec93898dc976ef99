"""Records what slurmrestd answers, beside what Slurm's commands print, for tests/unit/slurm.

    tests/slurm/chroot/run forky python -m tests.slurm.record_rest      Slurm 26.05; trixie: 24.11

On the cluster of ``record``. Of each record only what is read is kept, in tests/unit/slurm/recorded_rest/<release>/.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clearway.slurm.process import Commands
from clearway.slurm.rest import RestBackend
from clearway.slurm.rest_records import ALL, JOB_KEYS, NODE_KEYS, RESERVATION_KEYS, list_of
from tests.slurm import record
from tests.slurm.cluster import SlurmCluster
from tests.slurm.machine import slurm_version

KINDS = ("jobs", "nodes", "reservations")
FOLDER = Path(__file__).parent.parent / "unit" / "slurm" / "recorded_rest"


def _write(cluster: SlurmCluster, folder: Path) -> None:
    """The answers of slurmrestd and those of the commands, one right after the other."""
    url = f"unix:{cluster.rest_socket}"
    client = RestBackend(now=lambda: datetime.now(UTC), url=url, slurm_conf=str(cluster.conf))._client
    offered = _offered(client._call("GET", "/openapi/v3", {}, None, changes=False))
    (folder / "openapi.json").write_text(json.dumps(offered, indent=0) + "\n")
    answers = client.read("/jobs/", **ALL), client.read("/nodes/"), client.read("/reservations/")
    # With the times that they are: those of the answers are compared with them.
    record._write(Commands(slurm_conf=str(cluster.conf)), folder, record.BEGAN)
    for name in ("partitions", "config", "topology"):
        (folder / f"{name}.txt").unlink()
    for key, answer, keys in zip(KINDS, answers, (JOB_KEYS, NODE_KEYS, RESERVATION_KEYS), strict=True):
        records = ({name: each[name] for name in keys} for each in list_of(answer, key) if isinstance(each, dict))
        lines = (json.dumps(each, separators=(",", ":")) for each in records)
        (folder / f"{key}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def _offered(description: Mapping[str, Any]) -> dict[str, Any]:
    """Of slurmrestd's description of itself what is looked at."""
    schemas = description["components"]["schemas"].items()
    return {
        "info": {"version": description["info"]["version"]},
        "paths": {path: {method: {} for method in methods} for path, methods in description["paths"].items()},
        "components": {"schemas": {name: schema for name, schema in schemas if "requeue_query" in name}},
    }


def main() -> None:
    release = "{}.{:02d}".format(*slurm_version())
    folder = FOLDER / release
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        prolog = Path(scratch) / "prolog"
        prolog.write_text('#!/bin/sh\n[ "$SLURM_JOB_NAME" != slow-start ] || sleep 20\n')
        prolog.chmod(0o755)
        Path(scratch).chmod(0o755)
        extra = ["Licenses=matlab:5", "SchedulerParameters=bf_interval=1", f"PrologSlurmctld={prolog}"]
        with SlurmCluster(cpus=8, extra_conf=extra, kill_wait_s=20, rest=True) as cluster:
            record._fill(cluster)
            _write(cluster, folder)
    sys.stdout.write(f"recorded Slurm {release} in {folder}\n")


if __name__ == "__main__":
    main()
