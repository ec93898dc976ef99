"""The Debian package on a booted Debian with a real Slurm, as install.md says; the tests are one story."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.package import guide, site
from tests.package.conftest import ROOT
from tests.package.machine import Machine

# Debian 13 is the site without slurmdbd (tests/package/site.py).
pytestmark = pytest.mark.parametrize(
    "suite", ["bookworm", pytest.param("trixie", marks=pytest.mark.full)], indirect=True, scope="session"
)

RUNNING = "systemctl is-active --quiet clearway"
ACT_AT_ONCE = (('mode = "observe"', 'mode = "automatic"'), ("[candidates]\n", "[candidates]\nmin_runtime = 0\n"))
ROLE = ROOT / "deploy/ansible"
FIRST_PLAN_S = 600.0  # from the package file to a plan for a job that waits; a package is built once, elsewhere
DEAF = 'trap "" TERM; while :; do sleep 1; done'  # is killed KillWait after its requeue


def clearway(machine: Machine, command: str) -> str:
    return machine.says(f"sudo -u {site.daemon_user(machine)} clearway {command}")


def evictions(machine: Machine, which: str = "all") -> list[dict[str, Any]]:
    command = f"sudo -u {site.daemon_user(machine)} clearway evictions list --state {which} -o json"
    said = machine.run(command, check=False).stdout
    return list(json.loads(said)["items"]) if said else []


def main_pid(machine: Machine) -> str:
    return machine.says("systemctl show -P MainPID clearway")


def is_running(machine: Machine) -> bool:
    return machine.run(RUNNING, check=False).returncode == 0


def is_ready(machine: Machine) -> bool:
    return machine.run("curl -sf http://127.0.0.1:8642/readiness", check=False).returncode == 0


def fill(machine: Machine) -> list[str]:
    """Every node has a job that would lose its work."""
    jobs = [site.submit(machine, DEAF, "-N1", "--exclusive", "--requeue") for _ in range(site.NODES)]
    machine.wait_for(lambda: all(site.state(machine, job) == "RUNNING" for job in jobs), "jobs on every node")
    return jobs


def clear(machine: Machine) -> None:
    """No job and no eviction."""
    machine.run("scancel -f -u alice; scancel -f -u ursula")
    machine.wait_for(lambda: not machine.says("squeue -h"), "an empty queue")
    machine.wait_for(lambda: not evictions(machine, "active"), "the end of all evictions")


def urgent(machine: Machine, nodes: int = 2) -> str:
    return site.submit(machine, "sleep 600", f"-N{nodes}", "--exclusive", "-p", "urgent", user="ursula")


def begun(machine: Machine) -> bool:
    return any(each["state"] == "preempting" for each in evictions(machine, "active"))


def configure(machine: Machine, *changes: tuple[str, str]) -> None:
    text = (machine.root / guide.CONFIGURATION[1:]).read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    machine.write(guide.CONFIGURATION, text)


def give_rights(machine: Machine) -> None:
    if site.has_slurmdbd(machine):
        guide.follow(machine, "Its rights in Slurm")
    else:
        for command in guide.commands("Without slurmdbd")[:-1]:  # the last one follows a purge
            machine.run(command)


def test_what_a_command_in_the_machine_kills_is_in_the_machine(machine: Machine) -> None:
    """A process group outlives the border of a PID namespace: `kill -9 $pid` with a pid of 0 ended the tests."""
    assert machine.run("kill -9 0", check=False).returncode == -9


def doctor_faults(machine: Machine) -> dict[str, str]:
    """By the name of the check: what `clearway doctor` says. The machine's disk is memory, which may be small."""
    (command,) = guide.commands("What must hold", guide.BEGIN)
    said = machine.run(f"{guide.for_site(machine, command)} -o json", check=False)
    found = json.loads(said.stdout)["findings"]
    return {f["check"]: f["what"] for f in found if f["state"] == "fault" and f["check"] != "its disk"}


def test_from_the_package_to_a_first_plan_in_ten_minutes(package: Path, machine: Machine) -> None:
    """By install.md and first-minutes.md, on a site whose nodes are busy and whose urgent job waits."""
    jobs = fill(machine)
    waiting = urgent(machine)
    shutil.copy(package, machine.root / "root")
    began = time.monotonic()
    guide.follow(machine, "The package")
    installed = time.monotonic()
    if site.has_slurmdbd(machine):
        assert doctor_faults(machine).keys() == {"rights", "KillWait"}, "what is still to be done"
    give_rights(machine)
    said = guide.follow(machine, "A first configuration", guide.BEGIN)
    assert "good (observe mode, 1 rule for urgent jobs)" in said
    if site.has_slurmdbd(machine):  # else systemd gives the daemon's user its folder at the first start
        assert doctor_faults(machine) == {}
    said = guide.follow(machine, "Start it")
    assert "Running in mode observe" in said
    assert doctor_faults(machine) == {}
    machine.wait_for(lambda: any(each["state"] == "proposed" for each in evictions(machine)), "a first plan")
    planned = time.monotonic()
    print(f"\ninstalled in {installed - began:.0f} s, first plan after {planned - began:.0f} s")
    assert planned - began < FIRST_PLAN_S
    assert "STATUS=" not in said
    assert all(site.state(machine, job) == "RUNNING" for job in jobs), "it only observes"
    assert site.state(machine, waiting) == "PENDING"


def test_the_configuration_of_the_page(machine: Machine) -> None:
    machine.write(guide.CONFIGURATION, guide.configuration("The configuration"))
    guide.compare(machine, "The configuration")
    machine.run("systemctl restart clearway")
    assert doctor_faults(machine) == {"names": "candidates.protected_qos: Slurm has no QoS critical"}


def test_it_runs_as_its_user_behind_the_hardening(machine: Machine) -> None:
    user = site.daemon_user(machine)
    assert machine.says(f"stat -c %U /proc/{main_pid(machine)}") == user
    assert machine.says(f"grep CapEff /proc/{main_pid(machine)}/status").endswith("0000000000000000")
    score = re.search(r"Overall exposure level for \S+: ([0-9.]+)", machine.says("systemd-analyze security clearway"))
    assert score is not None
    assert float(score[1]) <= 1.2
    assert f"rates the unit {score[1]}" in " ".join(guide.PAGE.split())
    assert machine.says("stat -c '%a %U %G' /etc/clearway/clearway.toml") == f"640 root {user}"
    assert machine.run("cat /etc/clearway/clearway.toml", user="alice", check=False).returncode != 0


def test_tokens_as_the_page_says(machine: Machine) -> None:
    with (machine.root / guide.CONFIGURATION[1:]).open("a") as file:
        file.write(guide.configuration("Tokens for operators"))
    said = guide.follow(machine, "Tokens for operators")
    token = max(said.split(), key=len)
    ask = f"curl -sf -H 'Authorization: Bearer {token}' http://127.0.0.1:8642/api/v1/evictions"
    machine.wait_for(lambda: is_ready(machine), "a ready daemon")
    assert "items" in machine.says(ask)
    assert machine.run("curl -sf http://127.0.0.1:8642/api/v1/evictions", check=False).returncode != 0


def test_a_reload_makes_it_act_and_the_urgent_job_runs(machine: Machine) -> None:
    machine.run("scancel -u ursula")  # its plan is a proposal, which stays one
    pid = main_pid(machine)
    configure(machine, *ACT_AT_ONCE)
    machine.run("systemctl reload clearway")
    waiting = urgent(machine)
    machine.wait_for(lambda: site.state(machine, waiting) == "RUNNING", "the urgent job")
    assert main_pid(machine) == pid
    machine.wait_for(lambda: "clearway_" not in machine.says("scontrol show reservation"), "the end of the placement")
    machine.run(f"scancel {waiting}")
    clear(machine)


def test_it_comes_back_after_kill_9(machine: Machine) -> None:
    pid = main_pid(machine)
    assert pid != "0", "the daemon does not run"
    machine.run(f"kill -9 {pid}")
    machine.wait_for(lambda: main_pid(machine) not in {"0", pid} and is_ready(machine), "another daemon")


def test_it_comes_back_when_its_loop_hangs(machine: Machine) -> None:
    machine.write("/run/systemd/system/clearway.service.d/quick.conf", "[Service]\nWatchdogSec=8s\n")
    machine.run("systemctl daemon-reload; systemctl restart clearway")
    machine.wait_for(lambda: is_ready(machine), "a ready daemon")
    pid = main_pid(machine)
    machine.run(f"kill -STOP {pid}")
    machine.wait_for(lambda: main_pid(machine) not in {"0", pid} and is_ready(machine), "another daemon")
    assert "Watchdog timeout" in machine.says("journalctl -u clearway --no-pager")
    machine.run("rm -r /run/systemd/system/clearway.service.d; systemctl daemon-reload; systemctl restart clearway")


def test_stopped_in_the_middle_of_an_eviction_it_goes_on(machine: Machine) -> None:
    jobs = fill(machine)
    waiting = urgent(machine)
    machine.wait_for(lambda: begun(machine), "an eviction under way")
    machine.run("systemctl stop clearway")
    assert site.state(machine, waiting) == "PENDING"
    machine.run("systemctl start clearway")
    machine.wait_for(lambda: site.state(machine, waiting) == "RUNNING", "the urgent job")
    machine.run(f"scancel {waiting}")
    machine.wait_for(lambda: all(site.state(machine, job) == "RUNNING" for job in jobs), "the return of every job")
    clear(machine)


def test_what_comes_with_it(machine: Machine) -> None:
    assert machine.run("cd /tmp && clearway launcher /tmp/launcher", user="alice").stdout.count("/tmp/launcher/") > 5
    assert "clearway evictions approve" in machine.says("zcat /usr/share/man/man1/clearway-evictions-approve.1.gz")
    completed = "COMP_WORDS='clearway ev' COMP_CWORD=1 _CLEARWAY_COMPLETE=complete_bash clearway"
    assert machine.says(completed) == "evictions"
    assert machine.says("ls /usr/share/clearway").split() == ["examples", "grafana", "ondemand", "prometheus", "slurm"]


def test_purge_as_the_page_says_leaves_nothing(machine: Machine) -> None:
    purge(machine)


def purge(machine: Machine) -> None:
    for command in guide.commands("Uninstall"):
        if "sacctmgr" in command and not site.has_slurmdbd(machine):
            continue
        done = machine.run(guide.for_site(machine, command), check=False)
        assert done.returncode == 0 or "grep" in command, f"{command}\n{done.stdout}{done.stderr}"
        assert "grep" not in command or not done.stdout
    if not site.has_slurmdbd(machine):
        machine.run(guide.commands("Without slurmdbd")[-1])
    nothing_is_left(machine)


def nothing_is_left(machine: Machine) -> None:
    # Logs of others (apt, dpkg, the journal) may tell of it.
    left_out = " ".join(f"-path {path} -prune -o" for path in ("/var/log", "/root", "/tmp/launcher"))
    found = machine.says(f"find / -xdev {left_out} -name '*clearway*' -print")
    assert found.split() == []
    assert machine.run("getent passwd clearway; getent group clearway", check=False).stdout == ""
    assert "clearway" not in machine.says("systemctl list-units; systemctl list-unit-files; dpkg -l")
    if site.has_slurmdbd(machine):
        assert "clearway" not in machine.says("sacctmgr -n -P show user format=user")


def test_an_upgrade_with_an_eviction_under_way(package: Path, earlier: Path, machine: Machine) -> None:
    clear(machine)
    machine.run("rm -f /root/clearway_*.deb")
    shutil.copy(earlier, machine.root / "root")
    guide.follow(machine, "The package")
    give_rights(machine)
    machine.write(guide.CONFIGURATION, guide.configuration("The configuration"))
    configure(machine, *ACT_AT_ONCE)
    configured = (machine.root / guide.CONFIGURATION[1:]).read_text()
    machine.run("systemctl enable --now clearway")
    jobs = fill(machine)
    waiting = urgent(machine)
    machine.wait_for(lambda: begun(machine), "an eviction under way")
    refused = machine.run("apt-get remove -y clearway", check=False)
    assert "evictions are under way" in refused.stderr + refused.stdout
    assert is_running(machine)
    machine.run("rm -f /root/clearway_*.deb")
    shutil.copy(package, machine.root / "root")
    said = guide.follow(machine, "Upgrade")
    assert "clearway: the database as it was: /var/lib/clearway/backups/before-" in said
    assert is_running(machine)
    machine.wait_for(lambda: site.state(machine, waiting) == "RUNNING", "the urgent job")
    assert (machine.root / guide.CONFIGURATION[1:]).read_text() == configured
    assert "good" in machine.says(
        f"sudo -u {site.daemon_user(machine)} sh -c 'clearway verify /var/lib/clearway/backups/before-*'"
    )
    machine.run(f"scancel {waiting}")
    machine.wait_for(lambda: all(site.state(machine, job) == "RUNNING" for job in jobs), "the return of every job")
    clear(machine)


def test_the_way_back_is_told_and_works(earlier: Path, machine: Machine) -> None:
    newer = "import sqlite3; db = sqlite3.connect('/var/lib/clearway/clearway.sqlite'); "
    newer += "db.execute('UPDATE alembic_version SET version_num = 9999'); db.commit()"
    machine.run(f'systemctl stop clearway; sudo -u {site.daemon_user(machine)} python3 -c "{newer}"')
    shutil.copy(earlier, machine.root / "root")
    done = machine.run(f"apt-get install -y --allow-downgrades ./{earlier.name}")
    assert "The daemon stays stopped" in done.stdout + done.stderr
    assert not is_running(machine)
    machine.run("systemctl start clearway", check=False)
    assert "was it used by a newer version?" in site.events(machine)
    machine.run("systemctl stop clearway")
    for command in next(text for kind, text in guide.blocks("Upgrade") if kind != "sh").splitlines():
        written = guide.for_site(machine, command.partition("#")[0])
        machine.run(re.sub(r"FILE$", "$(ls /var/lib/clearway/backups)", written))
    machine.wait_for(lambda: is_ready(machine), "a ready daemon")
    assert clearway(machine, "evictions list --state past") != ""


def test_the_role_installs_and_a_second_run_changes_nothing(package: Path, machine: Machine) -> None:
    purge(machine)
    shutil.copytree(ROLE, machine.root / "root/ansible")
    shutil.copy(package, machine.root / "root")
    configured = guide.configuration("The configuration")
    given: dict[str, object] = {"clearway_package": f"/root/{package.name}", "clearway_configuration": configured}
    if not site.has_slurmdbd(machine):
        given |= {"clearway_user": "slurm", "clearway_operator": False}
    machine.write("/root/given.json", json.dumps(given))
    play = "cd /root/ansible && ansible-playbook -c local -i localhost, site.yml -e @/root/given.json"
    said = machine.says(play)
    assert " failed=0 " in said, said
    assert is_ready(machine)
    assert machine.says(f"stat -c %U /proc/{main_pid(machine)}") == site.daemon_user(machine)
    assert (machine.root / guide.CONFIGURATION[1:]).read_text() == configured
    again = machine.says(play)
    assert " changed=0 " in again, again
    given["clearway_configuration"] = configured.replace("[[preemptors]]", "[[preemptors]")
    machine.write("/root/given.json", json.dumps(given))
    refused = machine.run(play, check=False)
    assert refused.returncode != 0, "a configuration that the daemon would refuse"
    assert (machine.root / guide.CONFIGURATION[1:]).read_text() == configured
    machine.run("rm /var/cache/clearway*")  # the role's copy of the package, as its page says
    purge(machine)


def test_the_rpm_is_upgraded_with_an_eviction_under_way(rpms: list[Path], suite: str, machine: Machine) -> None:
    """On Debian 12, which has the Python of the RPM: no other package of a Red Hat system is here."""
    if suite != "bookworm":
        pytest.skip("Debian 13 has no Python 3.11")
    for rpm in rpms:
        shutil.copy(rpm, machine.root / "root")
    clear(machine)
    here = "--nodeps --force-debian"  # rpm knows none of Debian's packages
    machine.run(f"rpm -i {here} {rpms[0].name}")
    assert not is_running(machine)
    assert machine.says("stat -c '%a %U %G' /etc/clearway/clearway.toml") == "640 root clearway"
    give_rights(machine)
    machine.write(guide.CONFIGURATION, guide.configuration("The configuration"))
    configure(machine, *ACT_AT_ONCE)
    configured = (machine.root / guide.CONFIGURATION[1:]).read_text()
    machine.run("systemctl enable --now clearway")
    jobs = fill(machine)
    waiting = urgent(machine)
    machine.wait_for(lambda: begun(machine), "an eviction under way")
    refused = machine.run("rpm -e --nodeps clearway", check=False)
    assert "evictions are under way" in refused.stderr + refused.stdout
    assert is_running(machine)
    done = machine.run(f"rpm -U {here} {rpms[1].name}")
    assert "clearway: the database as it was: /var/lib/clearway/backups/before-" in done.stdout + done.stderr
    assert is_running(machine)
    machine.wait_for(lambda: site.state(machine, waiting) == "RUNNING", "the urgent job")
    assert (machine.root / guide.CONFIGURATION[1:]).read_text() == configured
    machine.run(f"scancel {waiting}")
    machine.wait_for(lambda: all(site.state(machine, job) == "RUNNING" for job in jobs), "the return of every job")
    clear(machine)
    back = machine.run(f"rpm -U --oldpackage {here} {rpms[0].name}")
    assert "The daemon stays stopped" in back.stdout + back.stderr
    assert not is_running(machine)
    machine.run("rpm -e --nodeps clearway; sacctmgr -i delete user clearway")
    assert not (machine.root / "opt/clearway").exists()
    for command in guide.commands("The RPM"):
        machine.run(command)
    nothing_is_left(machine)
