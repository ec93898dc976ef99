"""Durations as people write them, and as they are shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearway.model.durations import format_duration, parse_duration_s

TEN_YEARS_S = 10 * 365 * 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("90", 90, id="a bare number"),
        pytest.param("0", 0, id="nothing"),
        pytest.param("0.5", 0.5, id="a fraction"),
        pytest.param(" 90s ", 90, id="blanks around it"),
        pytest.param("10m", 600, id="minutes"),
        pytest.param("1h30m", 5_400, id="hours and minutes"),
        pytest.param("2d", 172_800, id="days"),
        pytest.param("1d2h3m4s", 93_784, id="all units"),
        pytest.param("90m", 5_400, id="more than the next unit"),
        pytest.param(90, 90, id="an integer"),
        pytest.param(0.25, 0.25, id="a float"),
        pytest.param(TEN_YEARS_S, TEN_YEARS_S, id="the longest"),
    ],
)
def test_good_durations(text: object, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("soon", id="a word"),
        pytest.param("-5s", id="negative text"),
        pytest.param(-1, id="a negative number"),
        pytest.param("1m1h", id="smallest unit first"),
        pytest.param("1m2m", id="a unit twice"),
        pytest.param("5 m", id="a blank inside"),
        pytest.param("1.5h", id="a fraction of a unit"),
        pytest.param("10M", id="a capital"),
        pytest.param("1e3", id="an exponent"),
        pytest.param("10m\n5s", id="two lines"),
        pytest.param("1:30", id="Slurm's own form"),
        pytest.param("\N{ARABIC-INDIC DIGIT FIVE}s", id="another script's digit"),
        pytest.param("99999999d", id="too long"),
        pytest.param("1" * 5_000, id="thousands of digits"),
        pytest.param(TEN_YEARS_S + 1, id="a second too long"),
        pytest.param(10**400, id="too large for a float"),
        pytest.param(math.nan, id="NaN"),
        pytest.param(math.inf, id="infinity"),
        pytest.param(True, id="true"),
        pytest.param(None, id="none"),
        pytest.param(["10m"], id="a list"),
    ],
)
def test_bad_durations_are_refused_in_one_sentence(text: object) -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        parse_duration_s(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (0.4, "0.4s"), (9.96, "10.0s"), (12, "12s"), (59.4, "59s"), (59.6, "1m00s"), (245, "4m05s"),
        (3_599.7, "1h00m"), (5_400, "1h30m"), (86_399.9, "1d00h"), (90_000, "1d01h"),
    ],
)  # fmt: skip
def test_the_two_largest_units_are_shown(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 59), st.integers(0, 59), st.integers(0, 23), st.integers(0, 3_000))
def test_every_combination_of_units(seconds: int, minutes: int, hours: int, days: int) -> None:
    text = f"{days}d{hours}h{minutes}m{seconds}s"
    assert parse_duration_s(text) == days * 86_400 + hours * 3_600 + minutes * 60 + seconds


@given(st.integers(0, 59 * 60 + 59))
def test_what_is_shown_below_an_hour_is_read_back(seconds: int) -> None:
    assert parse_duration_s(format_duration(seconds)) == seconds


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        seconds = parse_duration_s(text)
    except ValueError:
        return
    assert 0 <= seconds <= TEN_YEARS_S
