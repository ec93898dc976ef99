"""The packages of this commit and of the one before, and the machine that they are tried on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.package import site
from tests.package.machine import Machine

ROOT = Path(__file__).parents[2]
PACKAGING = "deploy/packaging"
EARLIER = "0.0.1"
# The first test that asks for a package or a machine waits until it is made; build() and Machine have limits of their
# own, which say more.
LIMIT_S = 5_400
STORY = "test_live.py"
TOOLS = ("mmdebstrap", "systemd-nspawn", "rpmbuild", "rpmlint", "ansible-lint", "docker-compose", "shellcheck")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = [name for name in TOOLS if shutil.which(name) is None]
    why = f"missing: {' and '.join(missing)}" if missing else ""
    if os.geteuid():
        why = "it mounts and boots Debian trees, as root"
    if why and "package" in os.environ.get("CLEARWAY_REQUIRE_TIERS", "").split():
        pytest.fail(f"tier package is required, but cannot run here: {why}", pytrace=False)
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.timeout(LIMIT_S))
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


_broken: dict[str, str] = {}  # by suite: the test that its story ended with


def _suite(item: pytest.Item) -> str:
    called = getattr(item, "callspec", None)
    return "" if called is None or item.path.name != STORY else str(called.params.get("suite", ""))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _suite(item):
        _broken.setdefault(_suite(item), item.name)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test of the story begins where the one before has ended; after a failure they would say nothing new."""
    if broken := _broken.get(_suite(item)):
        pytest.skip(f"the story ended with {broken}")


def build(folder: Path, *options: str, tree: Path = ROOT, script: str = "build-deb") -> Path:
    command = [tree / PACKAGING / script, *options, folder]
    env = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=1_800)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def build_rpm(folder: Path, *options: str) -> Path:
    return build(folder, *options, script="build-rpm")


@pytest.fixture(scope="session", params=["bookworm", pytest.param("trixie", marks=pytest.mark.full)])
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def package(suite: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("package"), "--suite", suite)


@pytest.fixture(scope="session")
def earlier(suite: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the commit before; of this one, with a lower version, where that one has no package."""
    folder = tmp_path_factory.mktemp("earlier")
    before = folder / "tree"
    before.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD~1"], capture_output=True, check=False).stdout
    subprocess.run(["tar", "-x", "-C", before], input=archive, check=False, capture_output=True)
    tree = before if (before / PACKAGING / "build-deb").exists() else ROOT
    os.environ.setdefault("PYTHON", str(ROOT / ".venv/bin/python"))
    return build(folder, "--quick", "--suite", suite, "--version", EARLIER, tree=tree)


@pytest.fixture(scope="session")
def rpms(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """With an older version, and with this one."""
    folder = tmp_path_factory.mktemp("rpms")
    return [build_rpm(folder, "--quick", *more) for more in (("--version", EARLIER), ())]


@pytest.fixture(scope="session")
def machine(suite: str) -> Iterator[Machine]:
    with Machine(suite) as booted:
        site.begin(booted)
        yield booted
