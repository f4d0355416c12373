"""When a rule is due: against a slow and simple model, through summer time, and in words when it cannot be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forge.core.errors import ErrorKind, ToolError
from forge.schedules.cron import ALIASES, Cron
from tests.schedules.clocks import at, shown

NOW = "2026-11-15 12:00"  # a Sunday


def following(rule: str, moment: str = NOW, zone: str = "UTC", count: int = 1) -> list[str]:
    cron, found, when = Cron.parse(rule, zone), [], at(moment, zone)
    for _ in range(count):
        fire = cron.next_after(when)
        assert fire is not None
        assert fire > when
        found.append(shown(fire, zone))
        when = fire
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("0 3 * * *", "2026-11-16 03:00"),
        ("* * * * *", "2026-11-15 12:01"),
        ("0 12 * * *", "2026-11-16 12:00"),  # now is not after now
        ("5/15 * * * *", "2026-11-15 12:05"),
        ("*/15 9-17 * * mon-fri", "2026-11-16 09:00"),
        ("0 0 * * 7", "2026-11-22 00:00"),
        ("0 0 * * 0", "2026-11-22 00:00"),
        ("0 0 * * SAT-SUN", "2026-11-21 00:00"),
        ("0 0 1,15 * *", "2026-12-01 00:00"),
        ("0 0 13 * FRI", "2026-11-20 00:00"),  # the day rule: one of the two will do
        ("0 0 */2 * FRI", "2026-11-27 00:00"),  # with a star, both
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 1 JAN,jul *", "2027-01-01 00:00"),
        ("3-3/5 * * * *", "2026-11-15 12:03"),
        ("0 12 L * *", "2026-11-30 12:00"),
        ("0 0 1 */12 *", "2027-01-01 00:00"),
        ("@hourly", "2026-11-15 13:00"),
        ("@daily", "2026-11-16 00:00"),
        ("@Midnight", "2026-11-16 00:00"),
        ("@weekly", "2026-11-22 00:00"),
        ("@monthly", "2026-12-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@annually", "2027-01-01 00:00"),
        ("  0   3 *\t* *  ", "2026-11-16 03:00"),
    ],
)
def test_the_next_time(rule, expected):
    assert following(rule) == [expected]


def test_a_step_from_a_value_goes_to_the_end():
    assert following("5/15 * * * *", count=5) == [
        f"2026-11-15 {time}" for time in ("12:05", "12:20", "12:35", "12:50", "13:05")
    ]
    assert following("3-3/5 * * * *", count=2)[1] == "2026-11-15 13:03"


# intervals


def test_an_interval_is_counted_from_its_anchor():
    cron = Cron.parse("@every 1h30m")
    start = at(NOW)
    assert cron.next_after(start, start) == start + 5_400
    assert cron.next_after(start + 5_399, start) == start + 5_400
    assert cron.next_after(start + 5_400, start) == start + 10_800
    assert cron.next_after(start - 1, start) == start
    assert cron.next_after(start + 1_000_000, start) == start + 186 * 5_400


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [("@every 1m", 60), ("@every 90s", 90), ("@EVERY 2d", 172_800), ("@every 1.5h", 5_400), ("@every 1h 30m", 5_400)],
)
def test_intervals_that_can_be_read(rule, seconds):
    assert Cron.parse(rule).every == seconds


@pytest.mark.parametrize(
    "rule",
    [
        *("@every", "@every 59s", "@every 0m", "@every -5m", "@every 5", "@every m", "@every 400d", "@every5m"),
        *("@every 999999999h", "@every 1e9m", "@every 5 minutes"),
    ],
)
def test_intervals_that_cannot_be(rule):
    refused(rule)


# summer time: in Berlin 2026-03-29 02:00 becomes 03:00, and 2026-10-25 03:00 becomes 02:00


def test_a_time_that_is_left_out_fires_when_the_gap_ends():
    assert following("30 2 * * *", "2026-03-28 12:00", "Europe/Berlin", 2) == ["2026-03-29 03:00", "2026-03-30 02:30"]
    assert following("0,30 2 * * *", "2026-03-28 12:00", "Europe/Berlin", 2) == ["2026-03-29 03:00", "2026-03-30 02:00"]


def test_a_time_that_comes_twice_fires_once():
    assert following("30 2 * * *", "2026-10-24 12:00", "Europe/Berlin", 2) == ["2026-10-25 02:30", "2026-10-26 02:30"]


def test_asked_in_the_second_of_two_equal_hours_the_answer_is_still_to_come():
    second = datetime(2026, 10, 25, 1, 15, tzinfo=UTC).timestamp()  # 02:15 in Berlin, for the second time
    fire = Cron.parse("30 2 * * *", "Europe/Berlin").next_after(second)
    assert shown(fire, "Europe/Berlin") == "2026-10-26 02:30"


def test_rules_with_a_star_follow_the_clock_through_both():
    cron, when, found = Cron.parse("*/30 * * * *", "Europe/Berlin"), at("2026-10-25 01:30", "Europe/Berlin"), []
    for _ in range(6):
        following = cron.next_after(when)
        assert following == when + 1_800
        when = following
        found.append(shown(when, "Europe/Berlin")[-5:])
    assert found == ["02:00", "02:30", "02:00", "02:30", "03:00", "03:30"]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_each_day_of_a_year_has_one_time(zone):
    days = [moment[:10] for moment in following("30 2 * * *", "2026-01-01 00:00", zone, 365)]
    assert len(set(days)) == 365


def test_a_zone_may_be_written_in_any_case_or_as_an_offset():
    assert Cron.parse("@daily", "europe/berlin").timezone == "Europe/Berlin"
    assert Cron.parse("@daily", "+0200").timezone == "+02:00"
    assert Cron.parse("@daily", " utc ").timezone == "UTC"
    fire = Cron.parse("0 3 * * *", "+05:30").next_after(at(NOW))
    assert shown(fire) == "2026-11-15 21:30"


@pytest.mark.parametrize("zone", ["Berlin", "Europe/Berlln", "../etc/passwd", "Europe", "+99", "x" * 10_000, "a\0b"])
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(ToolError) as caught:
        Cron.parse("@daily", zone)
    assert caught.value.kind is ErrorKind.VALIDATION
    assert len(caught.value.message) < 200


def test_a_zone_that_is_nearly_right_is_suggested():
    with pytest.raises(ToolError) as caught:
        Cron.parse("@daily", "Berlin")
    assert "Europe/Berlin" in caught.value.suggestion


# refusals


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("61 * * * *", 'minute "61"'),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day of the month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day of the week"),
        ("* * * * MONDAY", "SUN to SAT"),
        ("*/0 * * * *", "minute"),
        ("*/90 * * * *", "@every 90m"),
        ("5-1 * * * *", "minute"),
        ("? * * * *", "minute"),
        ("* * * * 1#2/3", "day of the week"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("", "0 fields"),
        ("@dayly", "@daily"),
        ("@reboot", "alias"),
        ("every day", "2 fields"),
        ("* " * 200, "200"),
        ("0 0 30 2 *", "never"),
        ("0 0 31 4,6 *", "never"),
        ("0 0 30 2 */2", "never"),
        ("²/5 * * * *", "minute"),
    ],
)
def test_what_cannot_be_is_explained(rule, said):
    error = refused(rule)
    assert said in f"{error.message} {error.suggestion}"


def refused(rule: str) -> ToolError:
    with pytest.raises(ToolError) as caught:
        Cron.parse(rule)
    assert caught.value.kind is ErrorKind.VALIDATION
    assert caught.value.suggestion
    return caught.value


@given(
    st.text(alphabet=st.characters(codec=None), max_size=30) | st.text("0123456789*/-,#LW @evryhmMONSU", max_size=25)
)
def test_any_text_is_a_rule_or_an_explanation(text):
    cron = read(text)
    if isinstance(cron, ToolError):
        assert cron.kind is ErrorKind.VALIDATION
        return
    assert cron.next_after(at(NOW)) is not None
    assert cron.explain()


def read(text: str) -> Cron | ToolError:
    try:
        return Cron.parse(text)
    except ToolError as error:
        return error


# against the model


def field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """A field as it is written, and the values that it means."""
    value = st.integers(low, high)
    everything = frozenset(range(low, high + 1))
    step = st.integers(1, high - low)
    term = st.one_of(
        value.map(lambda one: (str(one), frozenset([one]))),
        st.tuples(value, value)
        .map(sorted)
        .map(lambda two: (f"{two[0]}-{two[1]}", frozenset(range(two[0], two[1] + 1)))),
        st.tuples(value, step).map(lambda two: (f"{two[0]}/{two[1]}", frozenset(range(two[0], high + 1, two[1])))),
        step.map(lambda one: (f"*/{one}", frozenset(range(low, high + 1, one)))),
        st.tuples(value, value, step).map(
            lambda three: (
                f"{min(three[:2])}-{max(three[:2])}/{three[2]}",
                frozenset(range(min(three[:2]), max(three[:2]) + 1, three[2])),
            )
        ),
    )
    lists = st.lists(term, min_size=1, max_size=3).map(
        lambda terms: (",".join(text for text, _ in terms), frozenset().union(*(values for _, values in terms)))
    )
    return st.just(("*", everything)) | lists


FIELDS = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7))


@settings(max_examples=60)
@given(FIELDS, st.integers(1_700_000_000, 1_900_000_000))
def test_nothing_between_now_and_the_next_time_matches(fields, now):
    cron = read(" ".join(text for text, _ in fields))
    if isinstance(cron, ToolError):
        assert "never" in cron.message
        return
    fire = cron.next_after(now)
    assert fire is not None
    assert matches(fields, datetime.fromtimestamp(fire, UTC))
    moment = datetime.fromtimestamp(now, UTC).replace(second=0)
    for _ in range(3_000):
        moment += timedelta(minutes=1)
        if moment.timestamp() >= fire:
            break
        assert not matches(fields, moment)


def matches(fields, moment: datetime) -> bool:
    (_, minutes), (_, hours), (day_text, days), (_, months), (week_text, weekdays) = fields
    in_month = moment.day in days
    in_week = moment.isoweekday() in weekdays or moment.isoweekday() % 7 in weekdays
    both = day_text.startswith("*") or week_text.startswith("*")
    day = in_month and in_week if both else in_month or in_week
    return moment.second == 0 and moment.minute in minutes and moment.hour in hours and moment.month in months and day


# words


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("0 3 * * *", "At 03:00 every day (UTC)"),
        ("@hourly", "At the start of every hour (UTC)"),
        ("@every 90m", "Every 1 hour 30 minutes"),
        ("@every 1m", "Every minute"),
        ("@every 2d", "Every 2 days"),
        ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday (UTC)"),
    ],
)
def test_a_rule_in_english(rule, words):
    assert Cron.parse(rule).explain() == words


def test_every_alias_is_explained():
    assert all(Cron.parse(alias).explain() for alias in ALIASES)
