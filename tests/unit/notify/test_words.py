"""What users have written changes nothing where it is shown."""

from __future__ import annotations

import email
import json
from email import policy
from typing import Any

import pytest

from clearway.config.notify import MailConfig, NotifyConfig, TextsConfig
from clearway.model.notice import Channel, Notice, NoticeKind
from clearway.notify.changes import as_json, as_mail, as_slack, sentence
from clearway.notify.sending import with_note
from tests.builders import NOW

TEXTS = TextsConfig()
HOSTILE = (
    "x\r\nBcc: all@example.org\r\n\r\nfree text",
    "<!channel> <https://evil.example|click> *bold* & more",
    '"},{"kind":"left',
    "\x1b[31mred\u202e\u2028line",
    "{user}{0}{user.__class__}%s$HOME`id`",
    "a" * 10_000,
    "\ud800",
)


def notice(name: str = "a job", kind: NoticeKind = NoticeKind.LEFT, **fields: Any) -> Notice:
    about = {"job_id": "7", "job_name": name, "user": "anna", "at": "now", "what": "preempted", "why": "room is needed"}
    given: dict[str, Any] = {"key": "1:7:left", "kind": kind, "channel": Channel.MAIL, "at": NOW, "created_at": NOW}
    return Notice(**(given | {"user": "anna", "job_id": "7", "about": about, "notice_id": 3} | fields))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_of_a_job_adds_no_header_and_no_line_to_a_mail(name: str) -> None:
    config = MailConfig(subject="[clearway] {subject}")
    made = as_mail((notice(name, about=dict.fromkeys(("job_id", "job_name", "what"), name)),), "a@b.org", config, TEXTS)
    read = email.message_from_bytes(made.as_bytes(), policy=policy.default)
    assert set(read.keys()) == {
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding",
        "MIME-Version",
    }  # fmt: skip
    assert read["To"] == "a@b.org"
    assert len(str(read["Subject"])) < 400
    body = read.get_content()
    assert len(body) < 1_500
    assert body.strip().splitlines()[1:] == ["", "Clearway"]


@pytest.mark.parametrize("name", HOSTILE)
def test_slack_shows_a_name_as_text(name: str) -> None:
    text = json.loads(as_slack((notice(name),), TEXTS))["text"]
    assert not set("<>") & set(text)
    assert "\n" not in text
    assert text.replace("&amp;", "").replace("&lt;", "").replace("&gt;", "").count("&") == 0


def test_mattermost_calls_nobody_and_shows_no_link() -> None:
    name = "@all [click](https://evil.example) ![x](http://evil.example)"
    text = json.loads(as_slack((notice(name),), TEXTS))["text"]
    assert not [mark for mark in ("@all", "](", "://") if mark in text]
    assert name in text.replace("\u200b", "")
    own = TextsConfig(left="@oncall see https://example.org/jobs/{job_id}")
    assert json.loads(as_slack((notice(name),), own))["text"] == "@oncall see https://example.org/jobs/7"


@pytest.mark.parametrize("name", HOSTILE)
def test_json_stays_json(name: str) -> None:
    (told,) = json.loads(as_json((notice(name),), TEXTS))["notices"]
    assert told["kind"] == "left"
    assert told["about"]["job_name"].isprintable()
    assert len(told["about"]["job_name"]) <= 120


def test_a_template_looks_names_up_and_nothing_else() -> None:
    texts = TextsConfig(left="{job_id}: {job_name}")
    assert sentence(notice("{user} {why} {0.__class__}"), texts) == "7: {user} {why} {0.__class__}"


@pytest.mark.parametrize("text", ["{job_id.__class__}", "{0}", "{}", "{nobody}", "{job_id!r}", "{job_id", "}"])
def test_a_template_that_names_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no field; there are"):
        NotifyConfig.model_validate({"texts": {"left": text}})


@pytest.mark.parametrize("text", ["clearway:last=1", "two\nlines", "[x]", "x" * 161, "caf\u00e9"])
def test_a_comment_that_could_be_taken_for_a_claim_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        NotifyConfig.model_validate({"texts": {"comment": text}})


def test_a_long_message_ends() -> None:
    made = as_slack([notice()] * 1_000, TEXTS)
    assert json.loads(made)["text"].endswith("... and 950 more.")


CLAIMS = "clearway:run=0,checkpoint=signal,signal=USR1,to=batch,app=a"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[Clearway gone]"),
        ("my words", "my words [Clearway gone]"),
        (CLAIMS, f"{CLAIMS} [Clearway gone]"),
        (f"a  b {CLAIMS}", f"a  b {CLAIMS} [Clearway gone]"),
        (f"a [Clearway told before] {CLAIMS}", f"a {CLAIMS} [Clearway gone]"),
        ("two\nlines", None),
        ("not \ufffd UTF-8", None),
        ("x" * 600, None),  # claims may want the room
    ],
)
def test_a_comment_keeps_all_that_is_not_ours(before: str, after: str | None) -> None:
    assert with_note(before, "gone") == after
