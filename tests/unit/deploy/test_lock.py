"""What CI and the packages install can be installed on Debian 12's own Python, whichever Python runs the tests."""

import re
from importlib.metadata import distribution, distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

LOCK = Path("tests/requirements.lock")
DEBIAN_12 = "3.11.2"
PINS = [line.split("==") for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
OF_THE_ENVIRONMENT = {"clearway", "pip", "setuptools"}


@pytest.mark.parametrize(("name", "version"), PINS, ids=[name for name, _ in PINS])
@pytest.mark.fault(
    "A locked version of a Python package did not exist for Debian 12's own Python 3.11.2.", found_by="trial"
)
def test_each_pin_is_installed_and_takes_debians_python(name: str, version: str) -> None:
    installed = distribution(name)
    assert installed.version == version
    wanted = installed.metadata.get("Requires-Python", "")
    assert SpecifierSet(wanted).contains(DEBIAN_12), f"{name}=={version} wants Python {wanted}"


def test_everything_installed_is_pinned() -> None:
    installed = {canonicalize_name(each.metadata["Name"]) for each in distributions()}
    assert installed - OF_THE_ENVIRONMENT - {canonicalize_name(name) for name, _ in PINS} == set()


def test_the_project_itself_takes_debians_python() -> None:
    found = re.search(r'^requires-python = "(.+)"$', Path("pyproject.toml").read_text(), re.MULTILINE)
    assert found is not None
    assert SpecifierSet(found[1]).contains(DEBIAN_12)
