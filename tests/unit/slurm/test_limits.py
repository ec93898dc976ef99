"""Limits as Slurm 22.05.8 shows them, what cannot be read, and how often they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.eligibility.limits import Later, holds_back
from clearway.model.cluster import ClusterSnapshot
from clearway.model.errors import SlurmRefusedError
from clearway.model.limits import Cap, LimitKind, Partition
from clearway.slurm.parse import FieldError
from clearway.slurm.parse.site import enforcement, read_associations, read_partitions, read_qos, read_qos_flags
from clearway.slurm.site_settings import GROUPS_EVERY_S, MOST_USERS, SETTINGS_EVERY_S, LimitReader
from tests.builders import NOW, urgent_job

_NO_MINUTES = "cpu=N(0),mem=N(0),energy=N(0),node=N(0),billing=N(0)"


def association(
    account: str, user: str = "", parent: str = "", group: str = "cpu=N(2),node=N(1)", jobs: str = ""
) -> str:
    """One line, as ``scontrol -o show assoc_mgr`` prints it."""
    return (
        f"ClusterName=clearway Account={account} UserName={user} Partition= Priority=0 ID=8 "
        f"SharesRaw/Norm/Level/Factor=1/18446744073709551616.00/1/0.00 UsageRaw/Norm/Efctv=0.00/1.00/0.00 "
        f"ParentAccount={parent} Lft=2 DefAssoc=No GrpJobs=5(2) GrpJobsAccrue=N(0) GrpSubmitJobs=N(2) "
        f"GrpWall=N(0.00) GrpTRES={group} GrpTRESMins={_NO_MINUTES} "
        f"GrpTRESRunMins=cpu=N(20),mem=N(20000),node=N(4294967295) MaxJobs={jobs} MaxJobsAccrue= MaxSubmitJobs= "
        "MaxWallPJ= MaxTRESPJ= MaxTRESPN= MaxTRESMinsPJ= MinPrioThresh="
    )


QOS = (
    "QOS=urgent(2) UsageRaw=0.000000 GrpJobs=N(2) GrpJobsAccrue=N(0) GrpSubmitJobs=N(2) GrpWall=1000(0.00) "
    "GrpTRES=cpu=8(2),mem=N(2000),energy=N(0),node=N(1),billing=N(2) GrpTRESMins=cpu=N(0) "
    "GrpTRESRunMins=cpu=N(20),mem=N(20000) MaxWallPJ=60 MaxTRESPJ=cpu=2048,mem=2048 MaxTRESPN= MaxTRESMinsPJ= "
    "MinPrioThresh=  MinTRESPJ=cpu=1 PreemptMode=OFF Priority=0 "
    "Account Limits= phys={MaxJobsPA=N(2) MaxJobsAccruePA=N(0) MaxSubmitJobsPA=N(2) MaxTRESPA=cpu=N(2),mem=N(2000)} "
    "User Limits= 1001={MaxJobsPU=2(2) MaxJobsAccruePU=N(0) MaxSubmitJobsPU=N(2) MaxTRESPU=cpu=8(2),mem=N(2000)}"
)
PARTITION = (
    "PartitionName=urgent AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=node[1-4] State=UP "
    "SelectTypeParameters=NONE JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=16,node=4"
)
SHOWN = "\n".join(
    [
        "Current Association Manager state",
        "Association Records",
        association("root"),
        association("top", parent="root(1)", group="cpu=12(2),mem=N(2000),node=3(1)"),
        association("phys", parent="top(8)"),
        association("phys", "bob(1001)", jobs="3(0)"),
        "QOS Records",
        QOS,
        "",
    ]
)


def test_the_limits_of_an_association_and_what_is_in_use() -> None:
    root, top, _, bob = read_associations(SHOWN)
    assert (root.account, root.parent, top.parent) == ("root", "", "root")
    assert top.caps[LimitKind.GROUP, "cpu"] == Cap(12, 2)
    assert top.caps[LimitKind.GROUP, "node"] == Cap(3, 1)
    assert (LimitKind.GROUP, "mem") not in top.caps
    assert (bob.user, bob.uid, bob.caps[LimitKind.USER, "jobs"]) == ("bob", 1001, Cap(3, 0))
    assert bob.run_minutes == {"cpu": 20, "mem": 20000, "node": 4294967295}


def test_the_limits_of_a_qos_and_of_each_user_in_it() -> None:
    qos = read_qos(SHOWN)["urgent"]
    assert qos.caps[LimitKind.GROUP, "wall"] == Cap(1000)
    assert qos.caps[LimitKind.JOB, "wall"] == Cap(60)
    assert qos.caps[LimitKind.JOB, "mem"] == Cap(2048)
    assert qos.caps[LimitKind.LEAST, "cpu"] == Cap(1)
    assert qos.users == {1001: {(LimitKind.USER, "jobs"): Cap(2, 2), (LimitKind.USER, "cpu"): Cap(8, 2)}}
    assert qos.accounts == {"phys": {}}
    nobody = QOS[: QOS.index(" Account Limits=")] + " Account Limits=No Accounts User Limits=No Users"
    assert (read_qos(nobody)["urgent"].users, read_qos(nobody)["urgent"].accounts) == ({}, {})


@pytest.mark.parametrize("release", ["22.05", "24.11", "26.05"])
def test_what_each_release_prints(release: str) -> None:
    """The same limits were set on each."""
    shown = (Path(__file__).parent / "recorded" / release / "limits.txt").read_text()
    root, account, user = read_associations(shown)
    assert (root.account, account.parent, user.user) == ("root", "root", "cwalice")
    assert account.caps == {(LimitKind.GROUP, "cpu"): Cap(100, 1), (LimitKind.GROUP, "jobs"): Cap(50, 1)}
    assert user.caps == {(LimitKind.USER, "jobs"): Cap(7, 1)}
    qos = read_qos(shown)["urgent"]
    assert qos.caps == {
        (LimitKind.GROUP, "cpu"): Cap(8, 1),
        (LimitKind.GROUP, "wall"): Cap(1000),
        (LimitKind.GROUP_MINUTES, "cpu"): Cap(99),
        (LimitKind.JOB, "wall"): Cap(60),
        (LimitKind.JOB, "cpu"): Cap(4),
        (LimitKind.JOB, "mem"): Cap(2048),
        (LimitKind.NODE, "cpu"): Cap(3),
        (LimitKind.JOB_MINUTES, "cpu"): Cap(9000),
        (LimitKind.LEAST, "cpu"): Cap(1),
    }
    assert qos.users == {user.uid: {(LimitKind.USER, "jobs"): Cap(2, 1), (LimitKind.USER, "cpu"): Cap(8, 1)}}
    assert qos.accounts == {"cw": {}}
    partitions = read_partitions((Path(__file__).parent / "recorded" / release / "partitions.txt").read_text())
    assert partitions["urgent"] == Partition(name="urgent")


def test_a_partition() -> None:
    found = read_partitions(PARTITION)["urgent"]
    assert (found.max_nodes, found.max_time_s, found.allow_qos, found.qos, found.state) == (None, None, None, "", "UP")
    changes = {
        "MaxNodes=UNLIMITED": "MaxNodes=2",
        "MaxTime=UNLIMITED": "MaxTime=01:00:00",
        "AllowQos=ALL": "AllowQos=a,b",
        "QoS=N/A": "QoS=part",
        "State=UP": "State=DOWN",
        "MaxCPUsPerNode=UNLIMITED": "MaxCPUsPerNode=3",
        "AllowAccounts=ALL": "DenyAccounts=c",
    }
    text = PARTITION
    for before, after in changes.items():
        text = text.replace(before, after)
    found = read_partitions(text)["urgent"]
    assert (found.max_nodes, found.max_time_s, found.max_cpus_per_node, found.state) == (2, 3600, 3, "DOWN")
    assert (found.allow_qos, found.deny_accounts, found.qos) == ({"a", "b"}, {"c"}, "part")


def test_flags_and_enforcement() -> None:
    flags = read_qos_flags("normal|\nurgent|DenyOnLimit,OverPartQOS\n")
    assert flags == {"normal": frozenset(), "urgent": {"denyonlimit", "overpartqos"}}
    assert enforcement("AccountingStorageEnforce = associations,limits,qos\n") == {"associations", "limits", "qos"}
    assert enforcement("AccountingStorageEnforce = none\n") == {"none"}


# Slurm ends a value at blanks and lines; only an administrator could write others.
@given(st.text(max_size=12).filter(lambda text: not any(map(str.isspace, text))))
def test_a_limit_that_cannot_be_read_is_no_limit_that_is_missed(value: str) -> None:
    """Whatever stands there: a number, none, or an error, never another limit's value."""
    line = association("top", group=f"cpu={value}")
    try:
        found = read_associations(line)
    except (FieldError, ValueError):
        return
    caps = [each.caps.get((LimitKind.GROUP, "cpu")) for each in found]
    assert all(cap is None or str(cap.limit) == str(int(value.partition("(")[0].split(",")[0])) for cap in caps)


class Slurm:
    """Answers like a Slurm with this text, and counts."""

    def __init__(self, shown: str = SHOWN, enforce: str = "limits,qos") -> None:
        self.shown, self.enforce, self.asked = shown, enforce, list[str]()

    def __call__(self, argv: Sequence[str]) -> str:
        self.asked.append(" ".join(argv))
        if "config" in argv:
            return f"AccountingStorageEnforce = {self.enforce}\n"
        if "partition" in argv:
            return PARTITION
        if argv[0] == "sacctmgr":
            raise SlurmRefusedError("slurmdbd is down")
        return self.shown


JOB = urgent_job(account="phys", partitions=("urgent",))


def test_two_queries_a_cycle_and_filters_that_name_only_what_matters() -> None:
    slurm, reader = Slurm(), LimitReader()
    limits = reader.read(slurm, [JOB], NOW)
    assert (limits.unknown, limits.enforced, limits.users) == ("", True, {"bob"})
    assert len(slurm.asked) == 4
    slurm.asked.clear()
    assert reader.read(slurm, [JOB], NOW + timedelta(seconds=5)) == limits
    assert slurm.asked == [
        "scontrol --oneliner show partition",
        "scontrol --oneliner show assoc_mgr users=bob accounts=phys,top,root qos=urgent flags=assoc,qos",
    ]
    slurm.asked.clear()
    reader.read(slurm, [JOB], NOW + timedelta(seconds=SETTINGS_EVERY_S))
    assert len(slurm.asked) == 4


def test_where_limits_are_not_enforced_they_are_not_read() -> None:
    slurm = Slurm(enforce="associations")
    limits = LimitReader().read(slurm, [JOB], NOW)
    assert not limits.enforced
    assert limits.partitions.keys() == {"urgent"}
    assert not any("assoc_mgr" in each for each in slurm.asked)


def test_flags_are_asked_for_only_where_they_matter_and_once() -> None:
    slurm, reader = Slurm(), LimitReader()
    reader.read(slurm, [JOB], NOW)
    assert not any("sacctmgr" in each for each in slurm.asked)
    large = Slurm()
    limited = PARTITION.replace("MaxNodes=UNLIMITED", "MaxNodes=1")
    answers = lambda argv: limited if "partition" in argv else large(argv)  # noqa: E731
    for _ in range(3):
        limits = reader.read(answers, [JOB], NOW)
        assert limits.qos["urgent"].flags is None  # slurmdbd is down: not known
    assert sum("sacctmgr" in each for each in large.asked) == 1


def test_groups_are_asked_for_only_where_a_partition_allows_some_and_once_a_minute() -> None:
    slurm, reader = Slurm(), LimitReader()
    reader.read(slurm, [JOB], NOW)
    assert not any("getent" in each for each in slurm.asked)
    closed = PARTITION.replace("AllowGroups=ALL", "AllowGroups=tsunami,gone")
    asked = list[str]()

    def answers(argv: Sequence[str]) -> str:
        asked.append(" ".join(argv))
        match argv[0]:
            case "/usr/bin/getent" if argv[-1] == "tsunami":
                return "tsunami:x:4711:carol\n"
            case "/usr/bin/getent":
                raise SlurmRefusedError("getent: exit status 2")
            case "/usr/bin/id":
                return {"bob": "100 4711\n", "eve": "100 471\n"}[argv[-1]]
        return closed if "partition" in argv else slurm(argv)

    jobs = [JOB, replace(JOB, user="eve"), replace(JOB, user="dan", partitions=("batch",))]
    for later in (0, GROUPS_EVERY_S - 1, GROUPS_EVERY_S):
        limits = reader.read(answers, jobs, NOW + timedelta(seconds=later))
        assert limits.groups == {"bob": frozenset({"tsunami"}), "eve": frozenset()}
    assert asked.count("/usr/bin/getent group tsunami") == asked.count("/usr/bin/id -G -- eve") == 2


@pytest.mark.parametrize(("version", "means"), [("22.05.8", False), ("23.11.4", None), ("24.11.5", True)])
def test_whether_an_account_stands_for_those_below_it_is_the_releases(version: str, means: bool | None) -> None:
    slurm = Slurm(enforce="associations")
    closed = PARTITION.replace("AllowAccounts=ALL", "AllowAccounts=top")

    def answers(argv: Sequence[str]) -> str:
        text = slurm(argv)
        return closed if "partition" in argv else text + f"SLURM_VERSION = {version}\n" * ("config" in argv)

    limits = LimitReader().read(answers, [JOB], NOW)
    assert limits.sub_accounts is means
    assert (limits.parents.get("phys") == "top") is (means is not False)
    held = holds_back(JOB, "urgent", limits, Later(ClusterSnapshot(taken_at=NOW, jobs=(), nodes=())))
    assert bool(held) is not (means is True)


@pytest.mark.parametrize("user", ["a,b", "x y", "", "-u"])
def test_a_name_that_is_none_costs_no_other_user_anything(user: str) -> None:
    limits = LimitReader().read(Slurm(), [replace(JOB, user=user), JOB], NOW)
    assert (limits.unknown, limits.users) == ("", {"bob"})


def test_so_many_users_in_one_cycle() -> None:
    slurm = Slurm()
    jobs = [replace(JOB, job_id=str(at), user=f"u{at}") for at in range(3 * MOST_USERS)]
    assert len(LimitReader().read(slurm, jobs, NOW).users) == MOST_USERS
    assert max(len(each) for each in slurm.asked) < 2_000


def test_what_cannot_be_read_says_why() -> None:
    broken = Slurm(SHOWN.replace("cpu=12(2)", "cpu=many"))
    assert "GrpTRES cpu is 'many'" in LimitReader().read(broken, [JOB], NOW).unknown
