"""Names of processes: never the same, and one whose process has ended is recognised on the same machine alone."""

from __future__ import annotations

import subprocess
import sys

from clearway.service.leadership import certainly_gone, own_name

CHILD = "from clearway.service.leadership import own_name; print(own_name()); input()"


def test_two_daemons_have_two_names() -> None:
    """In one process as well; on two hosts of one name boot, process and the random part differ."""
    assert own_name() != own_name()
    assert len(own_name()) <= 255


def test_a_process_that_has_ended_is_gone_and_one_that_lives_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        name = child.stdout.readline().decode().strip()
        assert not certainly_gone(name)
        child.kill()
        child.wait()
        assert certainly_gone(name)


def test_nothing_is_known_of_other_machines_and_other_names() -> None:
    host, known = own_name().rsplit(" ", 1)
    boot, namespace, start, rest = known.split(".")
    assert not certainly_gone(f"{host} {boot}.{namespace}.{start}.{rest}")
    assert certainly_gone(f"{host} {boot}.{namespace}.{int(start) + 1}.{rest}"), "its number was given out again"
    assert not certainly_gone(f"{host} {boot[::-1]}.{namespace}.{int(start) + 1}.{rest}"), "another boot"
    assert not certainly_gone(f"{host} {boot}.{int(namespace) + 1}.{int(start) + 1}.{rest}"), "another container"
    assert not certainly_gone("clearway")
    assert not certainly_gone("")
