"""``clearway launcher``: what the compute nodes need, copied out of this installation."""

import shutil
from pathlib import Path

import clearway_checkpoint
from clearway.model.errors import ConfigError

DRIVERS = Path(clearway_checkpoint.__file__).parent
LAUNCHER = (
    "clearway-run",
    "clearway-start",
    "clearway-generations",
    "clearway-chain",
    "clearway-commands",
    "clearway-try",
    "clearway-copy",
)
ROOT_HELPER = "clearway-criu"
ABOUT_THE_HELPER = """\
clearway-criu is for sites that offer CRIU; other sites may remove it. sudo runs it with root's rights, so
root must own it and the folders above it, and no other user may write there: see docs/explanation/criu.md."""


def source(name: str, drivers: Path = DRIVERS) -> Path:
    """A script of this installation: beside the drivers in a wheel, in ``plugins/slurm`` of a source tree.

    Raises ``ConfigError``: when it is in neither.
    """
    for path in (drivers / name, drivers.parent / "slurm" / name):
        if path.is_file():
            return path
    raise ConfigError(f"this installation has no {name} beside {drivers}")


def install(folder: Path, drivers: Path = DRIVERS) -> tuple[Path, ...]:
    """Copies the launcher, CRIU's root helper and every driver into this folder; returns what is there now.

    Raises ``ConfigError``: when this installation is not whole, or the folder cannot be written.
    """
    wanted = {source(name, drivers): folder / name for name in (*LAUNCHER, ROOT_HELPER)}
    wanted |= {driver: folder / "checkpointers" / driver.name for driver in sorted(drivers.glob("*.sh"))}
    try:
        for origin, path in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Renamed into place: a shell that runs the old one reads it to its end.
            new = path.with_name(f".{path.name}.new")
            shutil.copyfile(origin, new)
            new.chmod(0o755)
            new.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot install the launcher in {folder}: {error}") from error
    return tuple(wanted.values())
