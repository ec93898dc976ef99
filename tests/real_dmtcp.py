"""The DMTCP that a site has built, for tests that no stand-in can pass."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from clearway_checkpoint.dmtcp import Dmtcp


def dmtcp_folder() -> Path:
    """Where ``dmtcp_launch`` lies on PATH; skips, with the reason, where it is not or cannot work with this libc."""
    found = shutil.which("dmtcp_launch")
    if found is None:
        pytest.skip("no dmtcp_launch on PATH: sites build DMTCP themselves")
    assert Path(found).read_bytes()[:4] == b"\x7fELF", f"{found} is a stand-in"
    assert "(DMTCP)" in subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    probe = Dmtcp({"PATH": os.environ["PATH"]}).probe()
    if "guard pages" in probe.reason:
        pytest.skip(probe.reason)
    assert probe.ok, probe.reason
    return Path(found).parent


def steps_in(log: Path) -> list[int]:
    """The steps that a program has written down so far."""
    return [int(line) for line in log.read_text().split()] if log.exists() else []
