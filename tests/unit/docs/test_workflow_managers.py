"""The page on workflow managers says of each what was tried with it: which release, and with which setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm import managers

PAGE = (Path(__file__).parents[3] / "docs/howto/workflow-managers.md").read_text()
TOOLS = (
    managers.snakemake(),
    managers.submitit(),
    managers.dask(),
    managers.parsl(),
    managers.reframe(),
    managers.executorlib(),
)


@pytest.mark.parametrize("required", [required for tool in TOOLS for required in tool.requires])
def test_the_release_that_was_tried_is_named(required: str) -> None:
    name, _, release = required.partition("==")
    assert f" {release}" in PAGE
    assert name.partition("[")[0].removesuffix("-hpc").removesuffix("-executor-plugin-slurm") in PAGE.lower()


@pytest.mark.parametrize("tool", managers.SETTINGS)
def test_the_setting_that_was_tried_is_shown(tool: str) -> None:
    shown = PAGE.replace("\n    ", "").replace("\n)", ")")
    assert managers.SETTINGS[tool] in shown
