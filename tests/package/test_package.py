"""The Debian package as a file: its size, and the same bytes each time it is built."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.package.conftest import build

LARGEST = 40_000_000


def contents(package: Path) -> list[str]:
    """The hash of each of its two archives before compression, which is the same for the same bytes."""
    parts = ("--ctrl-tarfile", "--fsys-tarfile")
    return [
        hashlib.sha256(subprocess.run(["dpkg-deb", part, package], check=True, capture_output=True).stdout).hexdigest()
        for part in parts
    ]


def test_it_is_small(package: Path) -> None:
    size = package.stat().st_size
    print(f"\n{package.name}: {size / 1e6:.1f} MB")
    assert size <= LARGEST


def test_built_twice_it_is_the_same(package: Path, suite: str, tmp_path: Path) -> None:
    """The second time without the slow compression."""
    again = build(tmp_path, "--quick", "--suite", suite)
    assert contents(again) == contents(package)


@pytest.mark.full
def test_built_twice_it_has_the_same_bytes(package: Path, suite: str, tmp_path: Path) -> None:
    assert build(tmp_path, "--suite", suite).read_bytes() == package.read_bytes()
