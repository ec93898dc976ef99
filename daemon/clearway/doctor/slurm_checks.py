"""Whether Slurm is as Clearway needs it. Nothing is changed; ``SlurmError`` means that a check could not be made."""

from collections.abc import Iterable, Iterator

from clearway import bootstrap
from clearway.config.configuration import PreemptorRule
from clearway.doctor.case import Case, Result, advice, fault, ok
from clearway.model.clock import SystemClock
from clearway.model.durations import format_duration
from clearway.model.errors import ConfigError, SlurmError
from clearway.service.leadership import APART_S
from clearway.slurm.releases import only_observed

START_S = 2.0  # Slurm takes up to about this to start the next job once nodes are free
_CLOCK_S = 1.0  # Slurm prints its time to the second


def answers(case: Case) -> Result:
    """By the backend that the daemon would take."""
    try:
        version = case.site.version  # first: a slurmctld that is down is waited for once
        backend, why = bootstrap.choose_backend(case.config, SystemClock())
    except (ConfigError, SlurmError) as error:
        return fault(
            str(error),
            "run it where squeue and scontrol work for this user: Slurm's commands on the PATH, munge, slurm.conf "
            "(slurm.conf in [slurm], or SLURM_CONF), slurmctld up (scontrol ping)",
        )
    backend.close()
    return ok(f"Slurm {version} through {backend.name} ({why})")


def release(case: Case) -> Result:
    why = only_observed(case.site.version, case.config.slurm.act_on_release)
    if why:
        return advice(f"{why}; until then it only observes", "docs/howto/operate.md, a new release of Slurm")
    return ok("one that Clearway acts on")


def rights(case: Case) -> Result:
    """Tried without harm: Slurm is asked to delete a reservation that does not exist."""
    site = case.site
    if case.slurm.may_reserve():
        return ok(f"{case.user} may requeue the jobs of others and make reservations")
    if not site.accounting:
        return fault(
            f"{case.user} has no rights: without slurmdbd only root and {site.slurm_user} have",
            f"run the daemon as {site.slurm_user}: User={site.slurm_user} in a drop-in of clearway.service",
        )
    return fault(
        f"Slurm refuses {case.user} what operators may do",
        f"sacctmgr -i add user {case.user} Account=root; sacctmgr -i modify user {case.user} set AdminLevel=Operator",
    )


def draining(case: Case) -> Result | None:
    """Only where the configuration lets nodes be drained."""
    config = case.config
    if not (config.compaction.enabled or config.drain.operators or config.drain.owners):
        return None
    site = case.site
    if case.slurm.may_drain():
        return ok(f"{case.user} may drain nodes")
    return fault(
        f"Slurm refuses {case.user} to drain nodes, which [drain] or [compaction] asks for",
        f"sacctmgr -i modify user {case.user} set AdminLevel=Admin"
        if site.accounting
        else f"run the daemon as {site.slurm_user}",
    )


def clock(case: Case) -> Result | None:
    theirs = case.site.clock
    if theirs is None:
        return None
    ahead_s = (case.site_read_at - theirs).total_seconds()
    if abs(ahead_s) <= APART_S + _CLOCK_S:
        return ok("this machine and slurmctld agree")
    return fault(
        f"this machine is {ahead_s:+.0f} s ahead of slurmctld: Clearway does nothing at {APART_S:.0f} s or more",
        "let chrony or ntpd set both clocks (chronyc tracking)",
    )


def slurmdbd(case: Case) -> Result | None:
    if not case.site.accounting:
        return None
    if case.site.qos is None:
        return fault(
            f"slurmdbd does not answer: {case.site.qos_unknown}",
            "systemctl status slurmdbd; its log (LogFile of slurmdbd.conf) says why, such as that its MariaDB is down",
        )
    return ok(f"answers; {_counted(len(case.site.qos), 'QoS', 'QoS')}")


def names(case: Case) -> Iterator[Result]:
    """Every partition and QoS of the configuration is one of Slurm's."""
    config, site = case.config, case.site
    partitions = {each.name for each in site.partitions}
    unknown = list(_unknown(_named_partitions(case), partitions, "partition"))
    if site.qos is not None or not site.accounting:
        unknown += _unknown(_named_qos(case), {each.name for each in site.qos or ()}, "QoS")
    yield from unknown
    if not config.preemptors:
        yield fault("no [[preemptors]] rule: no job will ever be urgent", "clearway init writes a first rule")
    elif not unknown:
        yield ok("every partition and QoS of the configuration is Slurm's")
    urgent = {name for rule in config.preemptors for name in rule.partition}
    for each in site.partitions:
        if not each.up and each.name in urgent:
            yield advice(
                f"partition {each.name} is for urgent jobs and is not UP",
                f"scontrol update Partition={each.name} State=UP",
            )


def kill_wait(case: Case) -> Result:
    site, allowance_s = case.site, case.config.execution.kill_allowance
    wait_s, epilog = site.seconds("KillWait"), site.setting("Epilog")
    needed_s = wait_s + START_S
    told = f"KillWait {format_duration(wait_s)}"
    better = format_duration(round(needed_s + 3))
    if allowance_s < needed_s:
        return fault(
            f"execution.kill_allowance is {format_duration(allowance_s)}, shorter than {told} and the start "
            "of the next job: urgent jobs start late",
            f'[execution] kill_allowance = "{better}"' + (", and the time of the epilog" if epilog else ""),
        )
    if epilog and allowance_s < needed_s + START_S:
        return advice(
            f"kill_allowance {format_duration(allowance_s)}: {told} leaves no time for the epilog {epilog}",
            "add the time that the epilog takes to execution.kill_allowance",
        )
    return ok(f"{told}{', an epilog' if epilog else ''}: kill_allowance {format_duration(allowance_s)} suffices")


def own_preemption(case: Case) -> Result:
    """Slurm's own preemption for what is urgent here."""
    site = case.site
    kind = "QoS" if site.preempts_by_qos else "partition"
    urgent = {n for rule in case.config.preemptors for n in (rule.qos if site.preempts_by_qos else rule.partition)}
    both = sorted(urgent & site.preempts.keys())
    if both:
        others = ", ".join(sorted(site.preempts[both[0]]))
        return advice(
            f"Slurm itself preempts {others} for {kind} {both[0]}, whatever work is lost; Clearway comes after it",
            f"{kind} {both[0]} should preempt nothing in Slurm, or PreemptMode=OFF, if Clearway is to choose the jobs",
        )
    if site.preempts:
        return ok(f"on ({site.setting('PreemptType')}), but not for urgent jobs")
    return ok("off: Clearway alone decides which jobs leave")


def exempt_time(case: Case) -> Result | None:
    site, min_runtime_s = case.site, case.config.candidates.min_runtime
    exempt_s = site.seconds("PreemptExemptTime")
    if not exempt_s:
        return None
    if min_runtime_s < exempt_s:
        return advice(
            f"Slurm spares jobs for {format_duration(exempt_s)} (PreemptExemptTime), Clearway for "
            f"{format_duration(min_runtime_s)}",
            f'[candidates] min_runtime = "{format_duration(exempt_s)}", if users count on it',
        )
    return ok(f"PreemptExemptTime {format_duration(exempt_s)} is kept (candidates.min_runtime)")


def requeue(case: Case) -> Result:
    if case.site.setting("JobRequeue") == "0" and not case.config.candidates.allow_cancel:
        return fault(
            "JobRequeue=0: jobs cannot be requeued unless they say --requeue, so hardly any may leave",
            "JobRequeue=1 in slurm.conf, or have users submit with --requeue",
        )
    return ok("jobs are requeued by default (JobRequeue=1)")


def nodes(case: Case) -> Result:
    usable = sum(each.available for each in case.site.nodes)
    if not usable:
        return fault(
            f"none of {len(case.site.nodes)} nodes takes jobs",
            "sinfo -R says why; start slurmd, or scontrol update NodeName=... State=RESUME",
        )
    return ok(
        f"{usable:,} of {len(case.site.nodes):,} take jobs, in {_counted(len(case.site.partitions), 'partition')}"
    )


def _named_partitions(case: Case) -> Iterator[tuple[str, str]]:
    config = case.config
    yield from _of_rules(config.preemptors, "partition")
    yield from (("candidates.partitions", n) for n in config.candidates.partitions)
    yield from (("candidates.protected_partitions", n) for n in config.candidates.protected_partitions)
    yield from (("compaction.partitions", n) for n in config.compaction.partitions)
    yield from (("eternal.partitions", n) for n in config.eternal.partitions)


def _named_qos(case: Case) -> Iterator[tuple[str, str]]:
    yield from _of_rules(case.config.preemptors, "qos")
    yield from (("candidates.protected_qos", n) for n in case.config.candidates.protected_qos)


def _of_rules(rules: Iterable[PreemptorRule], field: str) -> Iterator[tuple[str, str]]:
    for rule in rules:
        for name in getattr(rule, field):
            yield f"[[preemptors]] {rule.name}".rstrip(), name


def _unknown(named: Iterable[tuple[str, str]], known: set[str], kind: str) -> Iterator[Result]:
    instead = f"write one that it has: {', '.join(sorted(known)[:12]) or 'none'}"
    return (fault(f"{key}: Slurm has no {kind} {name}", instead) for key, name in named if name not in known)


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
