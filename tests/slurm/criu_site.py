"""What an administrator installs for CRIU, in the forky tree: the root helper, its settings, a rule for sudo."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clearway.cli import launcher
from tests.slurm.cluster import SlurmCluster

HELPER = Path("/etc/clearway/clearway-criu")


@contextmanager
def criu_site(cluster: SlurmCluster, images: Path) -> Iterator[None]:
    """CRIU's helper for this cluster, and no sudo rule or image left behind."""
    images.mkdir(parents=True, exist_ok=True)  # in a folder that others may write to, it has to be there and root's
    shutil.copy(launcher.source(launcher.ROOT_HELPER), HELPER)
    HELPER.chmod(0o755)
    Path("/etc/clearway/criu.conf").write_text(f"images={images}\nslurm_conf={cluster.conf}\nlimit_mib=0\n")
    sudoers = Path("/etc/sudoers.d/clearway")
    sudoers.write_text(f"Defaults!{HELPER} !use_pty\nALL ALL=(root) NOPASSWD: {HELPER}\n")
    sudoers.chmod(0o440)
    try:
        yield
    finally:
        shutil.rmtree(images, ignore_errors=True)
        sudoers.unlink()
