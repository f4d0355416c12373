"""The clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from forge.tools.datetime_now import find_zone, format_moment

MOMENT = datetime(2026, 3, 4, 5, 6, 7, 890_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("rfc3339", "2026-03-04T05:06:07Z"),
        ("unix", "1772600767"),
        ("date", "2026-03-04"),
        ("time", "05:06:07"),
        ("datetime", "2026-03-04 05:06:07"),
    ],
)
def test_a_moment_is_written_in_every_format(format, text):
    assert format_moment(MOMENT, format) == text


def test_a_zone_moves_the_clock_and_shows_its_offset():
    assert format_moment(MOMENT.astimezone(find_zone("Asia/Kolkata")), "rfc3339") == "2026-03-04T10:36:07+05:30"


def test_the_default_is_now_in_utc(value):
    text = value("datetime_now")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", text)
    assert abs(datetime.fromisoformat(text) - datetime.now(UTC)) < timedelta(minutes=1)


def test_unix_is_a_whole_number_of_seconds(value):
    assert abs(int(value("datetime_now", format="unix")) - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize(
    "name", ["UTC", "utc", "Z", "+02:00", "-0530", "Europe/Berlin", "europe/berlin", " Asia/Tokyo "]
)
def test_a_zone_is_found_in_any_spelling(value, name):
    assert value("datetime_now", timezone=name)


def test_a_zone_in_the_wrong_case_is_the_same_zone():
    assert find_zone("america/new_york") == ZoneInfo("America/New_York")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlim", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("+25:00", "+02:00"),
    ],
)
def test_an_unknown_zone_is_answered_with_near_ones(refusal, name, hint):
    failure = refusal("datetime_now", timezone=name)
    assert failure.kind == "validation_error"
    assert hint in failure.suggestion


@pytest.mark.parametrize(
    "name", ["", "America", "../../etc/passwd", "/etc/passwd", "x\0y", "z" * 100_000, "٠", "+", "\ud800"]
)
def test_a_hostile_zone_is_only_unknown(refusal, name):
    failure = refusal("datetime_now", timezone=name)
    assert failure.kind == "validation_error"
    assert len(failure.message) < 300


def test_an_unknown_format_is_answered_with_the_known_ones(refusal):
    failure = refusal("datetime_now", format="rfc3393")
    assert failure.kind == "validation_error"
    assert "rfc3339" in failure.message + failure.suggestion
