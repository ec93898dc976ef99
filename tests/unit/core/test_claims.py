"""What jobs say of themselves in their Comments: read strictly, believed only where it can be true."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.claims import (
    CheckpointHow,
    ClaimError,
    Claims,
    SaveState,
    format_claims,
    last_checkpoint,
    parse_claims,
    read_claims,
)
from tests.builders import NOW, after, job

T = 1_772_000_000
TIME = datetime.fromtimestamp(T, UTC)


@pytest.mark.parametrize(
    ("comment", "claims"),
    [
        pytest.param("", None, id="no comment"),
        pytest.param("run 7 of the sweep", None, id="an ordinary comment"),
        pytest.param("see notclearway:max_delay=1m", None, id="inside another word"),
        pytest.param("Clearway:max_delay=1m", None, id="a capital"),
        pytest.param("clearway: max_delay=1m clearway:x", ..., id="nothing after the colon"),
        pytest.param("clearway:max_delay=10m", Claims(max_delay_s=600), id="max_delay"),
        pytest.param("clearway:max_delay=0", Claims(max_delay_s=0), id="no delay at all"),
        pytest.param(
            "clearway:checkpoint=signal", Claims(checkpoint=CheckpointHow.SIGNAL, signal="USR1"), id="on a signal"
        ),
        pytest.param(
            "before clearway:checkpoint=signal,signal=USR2,to=steps after",
            Claims(checkpoint=CheckpointHow.SIGNAL, signal="USR2", to="steps"),
            id="within other text",
        ),
        pytest.param(
            f"clearway:checkpoint=interval,interval=1h,last={T}",
            Claims(checkpoint=CheckpointHow.INTERVAL, interval_s=3_600, last=TIME),
            id="at its own pace",
        ),
        pytest.param(
            f"clearway:state=saved,asked={T} clearway:last={T},took=90s,size_mib=4096,generation=3",
            Claims(state=SaveState.SAVED, asked=TIME, last=TIME, took_s=90, size_mib=4_096, generation=3),
            id="two tokens",
        ),
        pytest.param("\tclearway:generation=1\n", Claims(generation=1), id="other white space"),
    ],
)
def test_good_claims(comment: str, claims: Claims | None) -> None:
    if claims is ...:
        with pytest.raises(ClaimError):
            parse_claims(comment)
    else:
        assert parse_claims(comment) == claims


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("", "expected key=value, not ''"),
        ("max_delay", "expected key=value, not 'max_delay'"),
        ("max_delay=", "expected key=value, not 'max_delay='"),
        ("max_delay=1m,", "expected key=value, not ''"),
        ("max_delay=1m,max_delay=2m", "max_delay is given twice"),
        ("max_delay=1m clearway:max_delay=2m", "max_delay is given twice"),
        ("maxdelay=1m", "unknown key 'maxdelay'"),
        ("=1m", "unknown key ''"),
        ("max_delay=soon", "max_delay=soon: must be a duration"),
        ("max_delay=-1", "max_delay=-1: must be a duration"),
        ("max_delay=nan", "max_delay=nan: must be a duration"),
        ("max_delay=999999999d", "between 0 and ten years"),
        ("checkpoint=yes", "checkpoint=yes"),
        ("signal=KILL", "signal=KILL: must be USR1, USR2, TERM, INT or HUP"),
        ("signal=USR1;reboot", "must be USR1, USR2, TERM, INT or HUP"),
        ("to=all", "to=all: must be batch or steps"),
        ("interval=", "expected key=value"),
        ("last=yesterday", "last=yesterday: must be seconds since 1970"),
        ("last=-1", "must be seconds since 1970"),
        ("last=999999999999", "must be seconds since 1970"),
        ("last=1e9", "must be seconds since 1970"),
        ("state=done", "state=done"),
        ("size_mib=1.5", "size_mib=1.5: must be a whole number"),
        ("size_mib=9999999999999", "must be a whole number"),
        ("size_mib=\N{ARABIC-INDIC DIGIT FIVE}", "must be a whole number"),
        ("generation=-1", "must be a whole number"),
        ("grace=0", "must lie between 1 and 65535 seconds"),
        ("grace=65536", "must lie between 1 and 65535 seconds"),
        ("grace=9d", "must lie between 1 and 65535 seconds"),
        ("grace=nan", "must be a duration"),
    ],
)
def test_malformed_claims_name_the_key(token: str, why: str) -> None:
    with pytest.raises(ClaimError) as caught:
        parse_claims(f"mine clearway:{token}")
    assert why in str(caught.value)
    assert str(caught.value).startswith("clearway: ")


@pytest.mark.parametrize(
    "comment",
    [
        pytest.param("clearway:" + "x" * 100_000, id="very long"),
        pytest.param("clearway:" + "a=1," * 20_000, id="many pairs"),
        pytest.param("clearway:max_delay=\x1b[31m", id="terminal escapes"),
        pytest.param("clearway:max_delay=[red]1m[/red]", id="markup"),
        pytest.param("clearway:\x00=1", id="a null byte"),
        pytest.param("clearway:max_delay=\u202e1m", id="right to left"),
        pytest.param("clearway:last='; DROP TABLE evictions; --", id="SQL"),
        pytest.param("clearway:last=" + "9" * 10_000, id="many digits"),
        pytest.param("clearway:\ud800=1", id="half a character"),
    ],
)
def test_hostile_comments_count_as_no_claim(comment: str) -> None:
    claims, error = read_claims(job(comment=comment))
    assert claims is None
    assert error.startswith("clearway: ")
    assert error.isprintable()
    assert len(error) < 400


@given(st.text(st.characters(codec="utf-8")))
def test_any_comment_is_read_or_refused(text: str) -> None:
    for comment in (text, f"clearway:{text}", f"clearway:max_delay={text}"):
        claims, error = read_claims(job(comment=comment))
        assert claims is None or not error
        assert error.isprintable()


WORDS = st.text(st.sampled_from("abcxyz0189._:=;/"), min_size=1).filter(lambda word: not word.startswith("clearway:"))
PAIRS: st.SearchStrategy[dict[str, str | int]] = st.fixed_dictionaries(
    {},
    optional={
        "max_delay": st.sampled_from(["90s", "10m", "1h30m"]),
        "checkpoint": st.sampled_from(["signal", "interval"]),
        "signal": st.sampled_from(["USR1", "USR2", "TERM"]),
        "to": st.sampled_from(["batch", "steps"]),
        "interval": st.integers(0, 99_999),
        "last": st.integers(10**9, 10**10),
        "state": st.sampled_from(["saving", "saved", "failed"]),
        "asked": st.integers(10**9, 10**10),
        "took": st.integers(0, 99_999),
        "size_mib": st.integers(0, 10**11),
        "generation": st.integers(0, 10**6),
    },
).filter(bool)
FIELDS = {"max_delay": "max_delay_s", "interval": "interval_s", "took": "took_s"}


@given(st.lists(WORDS), PAIRS, PAIRS)
def test_what_is_written_is_read_back(
    words: list[str], first: dict[str, str | int], second: dict[str, str | int]
) -> None:
    text = " ".join(words)
    comment = format_claims(format_claims(text, **first), **second)
    assert comment.startswith(text), "the user's own words stay"
    assert comment.count("clearway:") == text.count("clearway:") + 1
    merged: dict[str, Any] = first | second
    assert parse_claims(comment) == parse_claims("clearway:" + ",".join(f"{k}={v}" for k, v in merged.items()))
    claims = parse_claims(comment)
    assert claims is not None
    for key, value in merged.items():
        found = getattr(claims, FIELDS.get(key, key))
        if isinstance(found, datetime):
            assert found == datetime.fromtimestamp(int(value), UTC)
        elif key != "max_delay":
            assert found == value
    assert format_claims(comment, **second) == comment, "writing the same again changes nothing"


def test_writing_repairs_what_cannot_be_read() -> None:
    assert format_claims("mine clearway:last,state=saving", state="saved") == "mine clearway:state=saved"


START = after(-3_600)


@pytest.mark.parametrize(
    ("last_s", "since_s"),
    [
        pytest.param(None, -3_600, id="never saved: since the start"),
        pytest.param(-60, -60, id="saved a minute ago"),
        pytest.param(-3_600, -3_600, id="saved when it started"),
        pytest.param(-3_601, -3_600, id="an earlier run's checkpoint does not help"),
        pytest.param(0, 0, id="saved now"),
        pytest.param(5, 0, id="a clock that runs a little ahead"),
        pytest.param(5.1, -3_600, id="from the future: not believed"),
        pytest.param(86_400, -3_600, id="from tomorrow: not believed"),
    ],
)
def test_the_last_checkpoint_that_can_be_true(last_s: float | None, since_s: float) -> None:
    claims = Claims(last=None if last_s is None else after(last_s))
    assert last_checkpoint(claims, START, NOW) == after(since_s)


def test_a_job_without_claims_never_saved_itself() -> None:
    assert last_checkpoint(None, START, NOW) == START
