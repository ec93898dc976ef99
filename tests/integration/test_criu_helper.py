"""CRIU's root helper with a stand-in for criu: what it reads as root, and what it takes another's word for."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clearway.cli import launcher
from clearway_checkpoint.criu import Criu
from tests.integration.daemon import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: the helper runs as root for another user")

USER = 65_534  # nobody, of nogroup
# What a user's criu could be made to leave; the folders are only reached by the descriptors that the helper opens.
CRIU = """\
#!/bin/sh
fault=$(cat @HERE@/fault 2>/dev/null)
case $1 in
    dump)
        tree=$(printf '%s\\n' "$@" | sed -n '/^--tree$/{n;p}')
        cd /proc/self/fd/9 || exit 9
        kill -s STOP "$tree"
        for each in inventory.img stats-dump "core-$tree.img"; do echo saved >$each; done
        case $fault in
            link) ln -s @HERE@/secret dump.log; exit 1 ;;
            "link in the image") ln -s @HERE@/secret pages-1.img ;;
            "second name") ln inventory.img pages-1.img ;;
            "another process") echo saved >core-999999.img ;;
            ended) kill -s KILL "$tree"; sleep 0.2 ;;
        esac ;;
    restore)
        for each in /run/clearway-criu.*; do ls "$each" >/dev/null 2>&1 && echo "$each" >>@HERE@/of-all/entered; done
        cd /proc/self/fd/8 || exit 9
        ln -s @HERE@/secret restore.log
        exit 1 ;;
esac
"""
BODY = """
setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs sleep 1000 </dev/null >/dev/null 2>&1 &
pid=$!
until [ "$(cat /proc/$pid/comm)" = sleep ]; do :; done
dump() { SUDO_UID=65534 @HERE@/clearway-criu dump f one $pid; }
restore() { SUDO_UID=65534 @HERE@/clearway-criu restore f one; }
@DO@
{ kill -s KILL $pid; wait $pid; } 2>/dev/null
"""


@dataclass
class Node:
    """A folder of root's with the helper, its settings, its images, and stand-ins for criu and squeue."""

    here: Path

    def job(self, do: str) -> str:
        """What a batch job of USER prints; ``do`` calls ``dump`` and ``restore``."""
        body = BODY.replace("@DO@", do).replace("@HERE@", str(self.here))
        command = ["bash", "-c", f'exec -a "slurmstepd: [7.batch]" {self.here}/slurmstepd -c "$1"', "sh", body]
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120, check=False
        )
        return done.stdout + done.stderr

    def set(self, **settings: str) -> None:
        values = {"images": f"{self.here}/images", "path": f"{self.here}/bin", "limit_mib": "0"} | settings
        text = "".join(f"{key}={value}\n" for key, value in values.items() if value)
        (self.here / "criu.conf").write_text(text)

    def fault(self, fault: str) -> None:
        (self.here / "fault").write_text(fault)

    @property
    def image(self) -> Path:
        return self.here / "images" / str(USER) / "f" / "one"


@pytest.fixture
def node() -> Iterator[Node]:
    here = Path(tempfile.mkdtemp())  # not pytest's, which only root can enter
    here.chmod(0o755)
    node = Node(here)
    try:
        for name in ("bin", "images", "of-all"):
            (here / name).mkdir()
        (here / "of-all").chmod(0o777)
        helper = launcher.source(launcher.ROOT_HELPER).read_text()
        assert "settings=/etc/clearway/criu.conf" in helper
        tools = {
            here / "clearway-criu": helper.replace("/etc/clearway/criu.conf", f"{here}/criu.conf"),
            here / "bin" / "criu": CRIU.replace("@HERE@", str(here)),
            here / "bin" / "squeue": f"#!/bin/sh\necho {USER}\n",
        }
        for path, text in tools.items():
            path.write_text(text)
            path.chmod(0o755)
        shutil.copy("/bin/bash", here / "slurmstepd")
        (here / "secret").write_text("x Error (x): root's own secret\n")
        (here / "secret").chmod(0o600)
        node.set()
        yield node
    finally:
        shutil.rmtree(here)


def test_a_sound_image_is_roots_alone(node: Node) -> None:
    there = set(Path("/run").glob("clearway-criu.*"))
    said = node.job("dump")
    assert "ok=yes" in said, said
    for path in (node.image, *node.image.iterdir()):
        assert path.lstat().st_uid == 0
        assert path.stat().st_mode & 0o022 == 0
    # Other tests' helpers may run beside this one.
    left = {path for path in Path("/run").glob("clearway-criu.*") if path not in there}
    wait_for(lambda: not any(path.exists() for path in left), 30)


@pytest.mark.fault("CRIU's root helper followed links that its user had made.", found_by="attack")
def test_links_of_the_user_are_not_followed(node: Node) -> None:
    node.fault("link")
    said = node.job("dump")
    assert "ok=no" in said, said
    assert "secret\n" not in said.replace("/secret", "")
    node.fault("")
    said = node.job("dump; restore")
    assert said.count("ok=yes") == 1, said
    assert "reason=criu restore: exit status 1" in said, said
    assert "root's own" not in said
    assert not (node.here / "of-all" / "entered").exists(), "the user could enter the folder of CRIU's log"


@pytest.mark.parametrize("fault", ["link in the image", "second name", "another process", "ended"])
def test_an_image_is_of_files_and_of_what_was_judged(node: Node, fault: str) -> None:
    """The process id may be another process's by the time of the dump: it is judged again while it stands still."""
    node.fault(fault)
    said = node.job("dump; cat /proc/$pid/stat 2>/dev/null | cut -d ' ' -f 3")
    reason = {
        "link in the image": "something else than files: pages-1.img",
        "second name": "something else than files: ",
        "another process": "process 999999 was saved, and is not there any more",
        "ended": "has ended",
    }[fault]
    assert "ok=no" in said, said
    assert reason in said, said
    assert not node.image.exists()
    assert fault == "ended" or said.split()[-1] in {"S", "R"}, "it goes on"


@pytest.mark.fault("A restart by CRIU gave its user a group back that the user had left.", found_by="attack")
def test_a_group_that_the_user_has_left_is_not_given_back(node: Node) -> None:
    assert "ok=yes" in node.job("dump")
    manifest = node.image / "manifest"
    manifest.write_text(manifest.read_text().replace("groups=\n", "groups=4\n"))  # as saved before
    said = node.job("restore")
    assert f"reason=user {USER} is not a member of group 4" in said, said
    assert "exit status" not in said


def test_images_have_a_limit_without_a_setting(node: Node) -> None:
    """A tenth of the file system."""
    node.set(limit_mib="")
    df = node.here / "bin" / "df"
    df.write_text("#!/bin/sh\necho Filesystem\necho fs 9 0 99999 1% /\n")
    df.chmod(0o755)
    said = node.job("dump")
    assert "MiB of the 1 MiB that a user may have" in said, said
    assert not node.image.exists()


@pytest.mark.parametrize("whose", ["images", "above", "forged", "path"])
def test_what_must_be_roots_own(node: Node, whose: str) -> None:
    assert "ok=yes" in node.job("dump")
    if whose == "images":
        os.chown(node.here / "images", USER, USER)
    elif whose == "above":
        (node.here / "images").rename(node.here / "of-all" / "images")
        node.set(images=f"{node.here}/of-all/images")
    elif whose == "forged":
        os.chown(node.image / "inventory.img", USER, USER)
    else:
        (node.here / "bin").chmod(0o777)
    said = node.job("restore")
    assert "ok=no" in said, said
    assert "must be root's, and no other" in said or "the image is not only root's" in said, said
    assert "exit status" not in said, "criu was started"


def test_no_command_is_looked_for_in_the_callers_path(node: Node) -> None:
    evil = node.here / "evil"
    evil.mkdir()
    for name in ("id", "find", "readlink", "sed", "date"):
        (evil / name).write_text(f'#!/bin/sh\ntouch {node.here}/run-as-root\nexec /usr/bin/{name} "$@"\n')
        (evil / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{evil}:{os.environ['PATH']}"}
    subprocess.run([str(node.here / "clearway-criu"), "probe"], env=env, capture_output=True, timeout=60, check=False)
    assert not (node.here / "run-as-root").exists()


def test_what_srun_starts_is_refused_before_it_starts(tmp_path: Path) -> None:
    helper = tmp_path / "clearway-criu"
    helper.write_text("#!/bin/sh\necho ok=yes\n")
    helper.chmod(0o755)
    env = {**os.environ, "CLEARWAY_CRIU_HELPER": str(helper)}
    for program, able in (("sleep", True), ("/usr/bin/srun", False)):
        words = ["sh", str(Criu().driver), "probe", "--", program, "-n", "2", "true"]
        said = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60).stdout
        assert ("ok=yes" in said) == able
        assert able or "reason=what srun starts is outside" in said


QUEUE = """
import ctypes, os, time
rt = ctypes.CDLL(None, use_errno=True)
name = b"/clearway-test-%d" % os.getpid()
assert rt.mq_open(name, os.O_RDWR | os.O_CREAT, 0o600, None) >= 0
rt.mq_unlink(name)
print(flush=True)
time.sleep(1000)
"""
SPACES = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", "echo; sleep 1000"]


@pytest.mark.fault(
    "That CRIU would not bring back a program's namespaces or queues was only said when it was asked.", found_by="trial"
)
@pytest.mark.parametrize(
    ("program", "why"),
    [
        (["sh", "-c", "echo; sleep 1000; :"], "nothing is known"),
        ([sys.executable, "-c", QUEUE], "it has a POSIX message queue open, which CRIU does not bring back"),
        (SPACES, "has namespaces of its own, which CRIU does not bring back"),
        (["sh", "-c", f"{shlex.join(SPACES)}; :"], "has namespaces of its own, which CRIU does not bring back"),
    ],
    ids=["nothing", "message queue", "namespaces", "namespaces of a child"],
)
def test_what_it_would_not_bring_back_is_seen_in_the_running_program(
    tmp_path: Path, program: list[str], why: str
) -> None:
    driver = Path(__file__).parents[2] / "plugins" / "clearway_checkpoint" / "criu.sh"
    env = os.environ | {"CLEARWAY_DIR": str(tmp_path), "CLEARWAY_STATE": str(tmp_path)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"\n"
            command = ["sh", str(driver), "deaf", str(process.pid), str(process.pid)]
            said = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert said.stderr == ""
    assert said.stdout.splitlines()[1].endswith(why)
