"""The section ``[notify]``: who is told of what, and how. All of it is off by default."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from clearway.config.fields import Count, Names, Period, Section, key
from clearway.model.durations import Duration

# What a template may name; a notice that does not know one shows nothing there.
JOB_FIELDS = (
    "job_id", "job_name", "user", "at", "what", "why", "cause", "saved", "next", "how", "began", "deadline",
    "urgent_job", "urgent_user", "eviction_id",
)  # fmt: skip
OPERATOR_FIELDS = (
    "at", "why", "deadline", "urgent_job", "urgent_user", "eviction_id", "nodes", "jobs", "lost_node_h", "until",
    "what",
)  # fmt: skip
_PLACE = re.compile(r"\{(\w*)\}|[{}]")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+%-]{0,62}@[A-Za-z0-9][A-Za-z0-9.-]{0,200}", re.ASCII)
_COMMENT_LENGTH = 160


def filled(template: str, values: "dict[str, str] | None" = None) -> str:
    """The template with each ``{name}`` replaced; names are looked up and nothing is run. ``{{`` is no brace."""
    given = values or {}
    return _PLACE.sub(lambda found: given.get(found[1] or "", ""), template)


def _checked(*fields: str) -> AfterValidator:
    def check(template: str) -> str:
        for found in _PLACE.finditer(template):
            if found[1] is None or found[1] not in fields:
                raise ValueError(
                    f"{found[0]!r} is no field; there are {', '.join('{' + name + '}' for name in fields)}"
                )
        return template

    return AfterValidator(check)


def _for_comment(template: str) -> str:
    plain = template.isascii() and template.isprintable() and not set("[]") & set(template)
    if not plain or "clearway:" in template.lower():
        raise ValueError("must be printable ASCII on one line, without brackets and without 'clearway:'")
    if len(template) > _COMMENT_LENGTH:
        raise ValueError(f"must have at most {_COMMENT_LENGTH} characters: a Comment holds 1,024 bytes with all claims")
    return template


def is_address(text: str) -> bool:
    """Whether this is one mail address, and cannot be taken for anything else."""
    return _ADDRESS.fullmatch(text) is not None


def _address(text: str) -> str:
    if not is_address(text):
        raise ValueError(f"{text[:80]!r} is no mail address")
    return text


JobText = Annotated[str, Field(max_length=2_000), _checked(*JOB_FIELDS)]
OperatorText = Annotated[str, Field(max_length=2_000), _checked(*OPERATOR_FIELDS)]
CommentText = Annotated[
    str, _checked("at", "what", "cause", "saved", "next", "urgent_job"), AfterValidator(_for_comment)
]
Address = Annotated[str, AfterValidator(_address)]


class WebhookConfig(Section):
    """What is told, as JSON to an address of the site."""

    url_file: Path | None = key(
        None, "file with the URL, which only root or the daemon's user may change or read. None: off"
    )
    owners: bool = key(True, "whether what owners are told of their jobs is sent there")
    operators: bool = key(True, "whether what operators are told is sent there")


class SlackConfig(WebhookConfig):
    """The same in Slack's form."""

    owners: bool = key(
        False, "whether what owners are told of their jobs is sent there: all who read the channel see it"
    )


class MailConfig(Section):
    """The same by mail."""

    sendmail: Path | None = key(None, "program that takes a mail, such as /usr/sbin/sendmail. None: see smtp_host")
    smtp_host: str | None = key(None, "mail server. With neither this nor sendmail, mail is off", min_length=1)
    smtp_port: int = key(25, "its port", ge=1, le=65_535)
    smtp_security: Literal["none", "starttls", "tls"] = key("none", "how the way to it is protected")
    smtp_user: str | None = key(None, "user name for it. None: no login", min_length=1)
    smtp_password_file: Path | None = key(
        None, "file with its password, which only root or the daemon's user may change or read"
    )
    sender: Address = key("clearway@localhost.localdomain", "address that mails come from")
    owner: Annotated[str, _checked("user")] = key("", 'address of an owner, such as "{user}@example.org". "": none')
    owners: Literal["all", "asked", "none"] = key(
        "all",
        "which owners get a mail. all: every one. asked: those of jobs whose MailType has REQUEUE or ALL. A job's "
        "MailUser is preferred to notify.mail.owner",
    )
    operators: Names = key((), "addresses of operators; empty: operators get no mail")
    subject: Annotated[str, Field(max_length=200), _checked("subject")] = key(
        "[clearway] {subject}", "subject of mails"
    )

    @property
    def on(self) -> bool:
        return self.sendmail is not None or self.smtp_host is not None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.sendmail is not None and self.smtp_host is not None:
            raise ValueError("give sendmail or smtp_host, not both")
        if self.sendmail is not None and not self.sendmail.is_absolute():
            raise ValueError("sendmail must be an absolute path")
        if (self.smtp_user is None) != (self.smtp_password_file is None):
            raise ValueError("smtp_user and smtp_password_file go together")
        if self.smtp_user is not None and self.smtp_security == "none":
            raise ValueError("a password needs smtp_security: it would travel in the clear")
        for each in self.operators:
            _address(each)
        if self.owner:
            _address(filled(self.owner, {"user": "someone"}))
        return self


class TextsConfig(Section):
    """The sentences. A name in braces stands for what is told; an unknown one is refused with a list of all."""

    warned: JobText = key(
        "Clearway: job {job_id} has to leave its nodes by {deadline}: {why}. {how}", "the job is to leave soon"
    )
    left: JobText = key("Job {job_id} ({job_name}) was {what} at {at}: {why}. {saved}. {next}", "the job has left")
    returned: JobText = key("Job {job_id} ({job_name}) was started again at {at}. {began}", "the job runs again")
    began: JobText = key(
        "Job {job_id} ({job_name}) did not go on from its newest checkpoint. {began}",
        "the job went on from an older checkpoint, or began anew",
    )
    held: JobText = key(
        "Job {job_id} ({job_name}) waits held in the queue since {at}, and does not start by itself: "
        "scontrol release {job_id}",
        "the job does not start again by itself",
    )
    comment: CommentText = key("{what} {cause} at {at}; {saved}; {next}", "in the job's Comment; short")
    approval: OperatorText = key(
        "Operation {eviction_id} waits for approval until {deadline}: {why}. {jobs} job(s) would leave, and "
        "{lost_node_h} node-hours would be lost. {what} clearway evictions approve {eviction_id}",
        "a plan waits for approval",
    )
    loop: OperatorText = key("Plans wait for approval until {until}: {why}. clearway resume", "a loop was found")
    stopped: OperatorText = key(
        "No job leaves for urgent jobs any more: {why}. Look at these nodes, then: clearway resume",
        "nodes were lost after jobs had left them",
    )
    late: OperatorText = key(
        "Operation {eviction_id} has missed its deadline {deadline}: {why}. {what}", "a deadline was missed"
    )


class NotifyConfig(Section):
    give_up_after: Period = key(86_400.0, "what could not be said for so long is not said any more")
    most_waiting: Count = key(10_000, "maximum notices that wait for one channel; beyond it the oldest are given up")
    keep: Duration = key(
        7 * 86_400.0,
        "notices that were said or given up are deleted after this, but not before give_up_after or an hour",
    )
    messages_per_hour: Count = key(
        20, "maximum messages to one user, or to operators, by one channel in an hour; what is beyond is put together"
    )
    digest_every: Period = key(900.0, "time between two messages that put together what is beyond messages_per_hour")
    comment: bool = key(False, "whether the job's Comment says that the job was preempted")
    job_output: bool = key(
        False,
        "whether a job is warned in its own output where its plan leaves 30 s or more. Slurm allows this only to a "
        "daemon that runs as root or SlurmUser",
    )
    webhook: WebhookConfig = WebhookConfig()
    slack: SlackConfig = SlackConfig()
    mail: MailConfig = MailConfig()
    texts: TextsConfig = TextsConfig()

    @property
    def kept_s(self) -> float:
        """No shorter than what still waits may wait, and than messages are counted for."""
        return max(self.keep, self.give_up_after, 3_600.0)
