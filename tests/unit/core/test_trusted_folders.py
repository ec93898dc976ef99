"""A file that is trusted must lie where nobody else can put another one in its place."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from clearway.config.trusted_files import read_trusted
from clearway.model.errors import ConfigError

NOBODY = 65_534


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """In two folders of its own."""
    made = tmp_path / "outer" / "inner" / "beam.ics"
    made.parent.mkdir(parents=True, mode=0o755)
    made.write_text("text")
    return made


def read(file: Path) -> str:
    return read_trusted(file, "the calendar", secret=False, folders=True)


def refused(file: Path, names: Path, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(str(names))}: .*{why}") as error:
        read(file)
    assert "\n" not in str(error.value)


def test_folders_of_root_or_of_the_daemons_user_are_good(file: Path) -> None:
    assert read(file) == "text"
    file.parent.chmod(0o1777)  # as /tmp: nobody can replace there what belongs to others
    assert read(file) == "text"


@pytest.mark.parametrize("mode", [0o777, 0o775])
@pytest.mark.parametrize("folder", [lambda file: file.parent, lambda file: file.parent.parent])
def test_a_folder_that_others_may_write_is_refused(file: Path, folder: Callable[[Path], Path], mode: int) -> None:
    folder(file).chmod(mode)
    refused(file, folder(file), "lets others replace the calendar; use 0755")
    assert read_trusted(file, "the calendar", secret=False) == "text"  # those files may lie in a folder of Slurm's user


def test_a_link_leads_only_through_folders_that_nobody_else_may_write(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.ics"
    link.symlink_to("outer/inner/beam.ics")
    assert read(link) == "text"
    way = tmp_path / "way"
    way.symlink_to(tmp_path / "outer")
    assert read(way / "inner" / "beam.ics") == "text"
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    between = open_folder / "between.ics"
    between.symlink_to(file)
    link.unlink()
    link.symlink_to(between)
    open_folder.chmod(0o777)
    refused(link, open_folder, "lets others replace")
    file.parent.chmod(0o777)
    refused(way / "inner" / "beam.ics", way / "inner", "lets others replace")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_what_belongs_to_another_user_is_refused(file: Path, tmp_path: Path) -> None:
    os.chown(file.parent, NOBODY, NOBODY)
    refused(file, file.parent, "must belong to root")
    os.chown(file.parent, 0, 0)
    link = tmp_path / "link.ics"
    link.symlink_to(file)
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    refused(link, link, "must belong to root")


def test_links_in_a_circle_and_a_missing_file_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    refused(tmp_path / "a", tmp_path / "a", "links")
    refused(tmp_path / "none", tmp_path / "none", "No such file")
    refused(tmp_path / "no" / "file", tmp_path / "no" / "file", "No such file")
