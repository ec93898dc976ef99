"""DMTCP's tools as stand-ins, in a folder of PATH, and a C compiler for what the driver would load into programs."""

from pathlib import Path

FAKE_DMTCP = Path(__file__).with_name("fake_dmtcp.sh")
CC = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho library >"$2"\n'


def install_dmtcp(folder: Path, shell: str = "/bin/sh") -> None:
    text = FAKE_DMTCP.read_text().replace("#!/bin/sh", f"#!{shell}", 1)
    for name in ("dmtcp_launch", "dmtcp_coordinator", "dmtcp_command", "dmtcp_restart"):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "cc").write_text(CC)
    (folder / "cc").chmod(0o755)
