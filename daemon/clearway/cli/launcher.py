"""``clearway launcher`` and ``clearway files``: what nodes and sites need, copied out of this installation."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

import clearway
import clearway_checkpoint
from clearway.cli.options import errors
from clearway.model.errors import ConfigError

DRIVERS = Path(clearway_checkpoint.__file__).parent
LAUNCHER = tuple(f"clearway-{part}" for part in ("run", "start", "generations", "chain", "commands", "try", "copy"))
ROOT_HELPER = "clearway-criu"
_ABOUT_THE_HELPER = """\
clearway-criu is for sites that offer CRIU; other sites may remove it. sudo runs it with root's rights, so
root must own it and the folders above it, and no other user may write there: see docs/explanation/criu.md."""

PACKAGE = Path(clearway.__file__).parent
# In a wheel all lies in one folder of the package; pyproject.toml fills it with the same.
_FROM_DEPLOY = ("clearway.toml", "examples", "grafana", "ondemand", "prometheus", "systemd")
_FROM_PLUGINS = ("slurm/job_submit.lua",)
_NOT_FOR_SITES = {".py", ".pyc"}  # what makes the dashboard, and the tests of the rules
_TESTS = "test.yml"


def launcher(
    folder: Annotated[Path, typer.Argument(help="Folder that all nodes can read, such as /usr/local/bin.")],
) -> None:
    """Copy clearway-run, clearway-criu and the checkpointers' drivers, which compute nodes need, into a folder."""
    with errors():
        for path in install(folder):
            print(path)
        print(_ABOUT_THE_HELPER)


def files(folder: Annotated[Path, typer.Argument(help="Folder to make, such as /usr/share/clearway.")]) -> None:
    """Copy what is installed beside the daemon into a folder.

    That is the systemd unit, the example configuration, Prometheus's rules, Grafana's dashboard and job_submit.lua.
    """
    with errors():
        for path in install_files(folder):
            print(path)


def source(name: str, drivers: Path = DRIVERS) -> Path:
    """A script of this installation: beside the drivers in a wheel, in ``plugins/slurm`` of a source tree."""
    for path in (drivers / name, drivers.parent / "slurm" / name):
        if path.is_file():
            return path
    raise ConfigError(f"this installation has no {name} beside {drivers}")


def install(folder: Path, drivers: Path = DRIVERS) -> tuple[Path, ...]:
    """Copies the launcher, CRIU's root helper and every driver into this folder; returns what is there now."""
    wanted = {source(name, drivers): folder / name for name in (*LAUNCHER, ROOT_HELPER)}
    wanted |= {driver: folder / "checkpointers" / driver.name for driver in sorted(drivers.glob("*.sh"))}
    compiled = {part: folder / "checkpointers" / part.name for part in sorted(drivers.glob("*.c"))}  # by drivers
    trouble = f"cannot install the launcher in {folder}"
    return (*_copied(wanted, 0o755, trouble), *_copied(compiled, 0o644, trouble))


def install_files(folder: Path, package: Path = PACKAGE) -> tuple[Path, ...]:
    wanted = {file: folder / place for file, place in _site_files(package)}
    return _copied(wanted, 0o644, f"cannot copy the files to {folder}")


def _site_files(package: Path) -> Iterator[tuple[Path, Path]]:
    """Each file with its place below the folder, from a wheel's ``clearway/deploy`` or a source tree."""
    shipped, tree = package / "deploy", package.parents[1]
    if shipped.is_dir():
        found = [(shipped, name) for name in sorted(path.name for path in shipped.iterdir())]
    elif (tree / "deploy").is_dir():
        found = [(tree / "deploy", name) for name in _FROM_DEPLOY]
        found += [(tree / "plugins", name) for name in _FROM_PLUGINS]
    else:
        raise ConfigError(f"this installation has no {shipped}")
    for above, name in found:
        path = above / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in _NOT_FOR_SITES and not file.name.endswith(_TESTS):
                yield file, file.relative_to(above)


def _copied(wanted: Mapping[Path, Path], mode: int, otherwise: str) -> tuple[Path, ...]:
    try:
        for origin, path in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a shell that runs the old one reads it to its end.
            new = path.with_name(f".{path.name}.new")
            shutil.copyfile(origin, new)
            new.chmod(mode)
            new.replace(path)
    except OSError as error:
        raise ConfigError(f"{otherwise}: {error}") from error
    return tuple(wanted.values())
