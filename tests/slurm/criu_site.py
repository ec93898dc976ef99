"""What an administrator installs for CRIU, in the forky tree: the root helper, its settings, a rule for sudo.

There is one of each on a machine, so tests that run side by side take turns.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearway.cli import launcher
from tests.slurm.cluster import SlurmCluster

HELPER = Path("/etc/clearway/clearway-criu")
IMAGES = Path("/var/lib/clearway/criu")


@contextmanager
def criu_site(cluster: SlurmCluster, images: Path = IMAGES) -> Iterator[None]:
    """CRIU's helper for this cluster, and no sudo rule or image left behind."""
    with Path("/etc/clearway/criu.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        images.mkdir(parents=True, exist_ok=True)  # in a folder that others may write to, it has to be there and root's
        shutil.copy(launcher.source(launcher.ROOT_HELPER), HELPER)
        HELPER.chmod(0o755)
        configure(cluster, images=str(images))
        sudoers = Path("/etc/sudoers.d/clearway")
        sudoers.write_text(f"Defaults!{HELPER} !use_pty\nALL ALL=(root) NOPASSWD: {HELPER}\n")
        sudoers.chmod(0o440)
        try:
            yield
        finally:
            shutil.rmtree(images, ignore_errors=True)
            sudoers.unlink()


def configure(cluster: SlurmCluster, **changes: str) -> None:
    settings = {"images": str(IMAGES), "slurm_conf": str(cluster.conf), "limit_mib": "0"} | changes
    Path("/etc/clearway/criu.conf").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
