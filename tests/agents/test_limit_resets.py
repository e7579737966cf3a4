"""When a limit ends, from the words that say so."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, reset_tzpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.agents.adapter import MAX_RESET_DELAY_S
from ralphproof.agents.error_messages import MAX_TEXT_CHARS, find_reset_time
from tests.needs import require

MINUTE, HOUR, DAY = 60, 3600, 86400
NOW = datetime(2026, 11, 15, 23, 33, tzinfo=UTC)  # a Sunday


def epoch(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def zones_known() -> bool:
    try:
        ZoneInfo("Europe/Berlin")
    except ZoneInfoNotFoundError:
        return False
    return True


@pytest.fixture
def zones() -> None:
    require(zones_known(), "a database of time zones")


# text, seconds from NOW; words without a zone are said in UTC
AHEAD = [
    ("Claude AI usage limit reached|1794800000", 4 * HOUR + 20),
    ("Claude AI usage limit reached|1794800000000", 4 * HOUR + 20),
    ('{"type":"usage_limit_reached","resets_at":1794800000}', 4 * HOUR + 20),
    ('{"resetsAt": 1794800000}', 4 * HOUR + 20),
    ('{"resets_in_seconds":1234}', 1234),
    ("2026-11-16T03:33:00Z", 4 * HOUR),
    ("2026-11-16T03:33:00", 4 * HOUR),
    ("resets at 2026-11-16T03:33:00.250Z", 4 * HOUR),
    ("resets 2026-11-16T03:33:00+02:00", 2 * HOUR),
    ("resets 2026-11-16T03:33:00-0130", 5 * HOUR + 30 * MINUTE),
    ("resets 2026-11-16 03:33", 4 * HOUR),
    ("You will regain access on 2026-12-01 at 00:00 UTC.", 15 * DAY + 27 * MINUTE),
    ("You've hit your limit · resets 3:33am (UTC)", 4 * HOUR),
    ("5-hour limit reached ∙ resets 3pm", 15 * HOUR + 27 * MINUTE),
    ("Your limit will reset at 12am.", 27 * MINUTE),
    ("resets 12pm", 12 * HOUR + 27 * MINUTE),
    ("resets at noon", 12 * HOUR + 27 * MINUTE),
    ("resets at midnight (GMT)", 27 * MINUTE),
    ("resets at 5 p.m. (UTC)", 17 * HOUR + 27 * MINUTE),
    ("resets 5 PM PST", 25 * HOUR + 27 * MINUTE - DAY),
    ("resets 1am (UTC+2)", 23 * HOUR + 27 * MINUTE),
    ("resets 11pm (UTC-01:00)", 27 * MINUTE),
    ("try again at 15:04", 15 * HOUR + 31 * MINUTE),
    ("try again at 23:33:30", 30),
    ("purchase more credits or try again at Nov 16th, 2026 3:33 AM.", 4 * HOUR),
    ("try again at 16 November 2026, 03:33", 4 * HOUR),
    ("retry-after: Mon, 16 Nov 2026 03:33:00 GMT", 4 * HOUR),
    ("resets Nov 20, 9am", 4 * DAY + 9 * HOUR + 27 * MINUTE),
    ("resets Nov 20 at 9:30am", 4 * DAY + 9 * HOUR + 57 * MINUTE),
    ("resets on Sept. 3", None),
    ("resets on Nov 20", 4 * DAY + 27 * MINUTE),
    ("resets tomorrow at 9am", 9 * HOUR + 27 * MINUTE),
    ("resets at 6am tomorrow", 6 * HOUR + 27 * MINUTE),
    ("resets tomorrow", 27 * MINUTE),
    ("resets today at 11:40pm", 7 * MINUTE),
    ("resets Monday 9am", 9 * HOUR + 27 * MINUTE),
    ("resets Sun 11:40 pm", 7 * MINUTE),
    ("resets on Sunday at 11pm", 6 * DAY + 23 * HOUR + 27 * MINUTE),
    ("resets next Thursday at 00:00", 3 * DAY + 27 * MINUTE),
    ("resets in 2 hours 5 minutes", 2 * HOUR + 5 * MINUTE),
    ("try again in 5 days 22 hours 11 minutes.", 5 * DAY + 22 * HOUR + 11 * MINUTE),
    ("try again in 1 hour and 2 mins", HOUR + 2 * MINUTE),
    ("try again in 1h30m", HOUR + 30 * MINUTE),
    ("Your quota will reset after 21h53m56s.", 21 * HOUR + 53 * MINUTE + 56),
    ("try again in less than a minute", MINUTE),
    ("try again in an hour", HOUR),
    ("Please try again in 20s", 20),
    ("in 20s", 20),
    ("Please retry in 12.5s", 12.5),
    ("Please retry in 500ms", 0.5),
    ("try again in 250 milliseconds", 0.25),
    ('"retryDelay": "34.5s"', 34.5),
    ("reset after 0s", 0),
    ("retry after 30", 30),
    ("Please retry after 30.", 30),
    ("retry after 30 minutes", 30 * MINUTE),
    ("retry-after: 7200", 2 * HOUR),
    ("retry-after-ms: 1500", 1.5),
    ("reset the clock, then try again in 20s", 20),
    ("resets Nov 31, 9am; try again in 20s", 20),
]


@pytest.mark.parametrize(("text", "ahead_s"), AHEAD, ids=[text for text, _ in AHEAD])
def test_the_end_of_a_limit_is_read_from_words(text: str, ahead_s: float | None) -> None:
    found = find_reset_time(text, NOW.timestamp(), "UTC")
    assert (found if found is None else found - NOW.timestamp()) == ahead_s


@pytest.mark.parametrize(
    "text",
    [
        "", "try again later", "Please wait and try again later.", "try again in a moment",
        "try again in a few minutes",
        "limits reset every 5h and every week", "I reset the counter, and the retry test takes 20s",
        "all 12 tests passed in 20s", "2026-11-15T23:33:00Z ERROR the stream broke", "resets 3", "reset at 9",
        "resets 13pm", "resets 0am", "resets 25:00", "resets 3:99am", "resets Nov 31, 9am", "resets Feb 30 2027",
        "resets 2026-13-01", "resets 2026-11-16T24:30:00Z", "usage limit reached|17948", "a|b", "resets at 12345678901",
    ],
)  # fmt: skip
def test_words_that_say_no_time_say_nothing(text: str) -> None:
    assert find_reset_time(text, NOW.timestamp(), "UTC") is None


@pytest.mark.parametrize(
    "text",
    [
        "usage limit reached|1700000000", "usage limit reached|9999999999", "resets 2026-11-15T23:27:59Z",
        "resets 2026-12-17T00:00:00Z", "resets 0001-01-01", "resets 9999-12-31T23:59:59-12:00",
        "try again at Nov 14th, 2026 3:33 AM", "resets Nov 14, 9am", "resets Dec 20, 9am", "resets today at 9am",
        "try again in 32 days", "try again in 999999999 weeks", "retry-after: 999999999",
    ],
)  # fmt: skip
def test_a_date_that_is_over_and_one_beyond_a_month_say_nothing(text: str) -> None:
    assert find_reset_time(text, NOW.timestamp(), "UTC") is None


@pytest.mark.parametrize(
    "text", ["resets 11:33pm", "resets Nov 15, 11:33pm", "reached|1794785580", "resets 2026-11-15T23:33:00Z"]
)
def test_what_was_due_within_the_last_five_minutes_is_due_now(text: str) -> None:
    start = NOW.timestamp()
    assert find_reset_time(text, start, "UTC") == start
    assert find_reset_time(text, start + 299, "UTC") == start + 299
    assert find_reset_time(text, start + 301, "UTC") == (start + DAY if text == "resets 11:33pm" else None)


def test_a_clock_that_struck_just_before_midnight_is_not_a_day_away() -> None:
    now = epoch("2026-11-16T00:00:20Z")
    assert find_reset_time("resets 11:59:50pm", now, "UTC") == now


# id, zone that is said or given, now, words, the instant
IN_A_ZONE = [
    ("it is already tomorrow there", "Asia/Tokyo", "2026-11-15T16:00:00Z", "7pm", "2026-11-16T19:00+09:00"),
    ("it is still yesterday there", "America/Los_Angeles", "2026-11-16T02:00:00Z", "9pm", "2026-11-15T21:00-08:00"),
    ("tomorrow is tomorrow there", "Asia/Tokyo", "2026-11-15T16:00:00Z", "tomorrow at 9am", "2026-11-17T09:00+09:00"),
    ("a weekday is that of the place", "Asia/Tokyo", "2026-11-15T16:00:00Z", "Monday 1:30am", "2026-11-16T01:30+09:00"),
    ("midnight there", "Europe/Berlin", "2026-11-15T22:59:00Z", "12am", "2026-11-16T00:00+01:00"),
    ("some minutes past midnight there", "Europe/Berlin", "2026-11-15T23:05:01Z", "12am", "2026-11-17T00:00+01:00"),
    ("a date there", "Europe/Berlin", "2026-11-15T12:00:00Z", "Nov 20, 9am", "2026-11-20T09:00+01:00"),
    ("the year changes", "Europe/Berlin", "2026-12-30T12:00:00Z", "Jan 2, 9am", "2027-01-02T09:00+01:00"),
    ("it has changed there", "Asia/Tokyo", "2026-12-31T16:00:00Z", "Jan 1, 9am", "2027-01-01T09:00+09:00"),
    ("it has not yet there", "America/New_York", "2027-01-01T03:00:00Z", "Dec 31, 11pm", "2026-12-31T23:00-05:00"),
    ("a leap day", "Europe/Berlin", "2028-02-28T12:00:00Z", "Feb 29, 9am", "2028-02-29T09:00+01:00"),
    ("over a leap day", "Europe/Berlin", "2028-02-28T12:00:00Z", "Mar 1, 9am", "2028-03-01T09:00+01:00"),
    ("the night before a leap day", "Europe/Berlin", "2028-02-28T23:30:00Z", "12am", "2028-03-01T00:00+01:00"),
    ("no leap day", "Europe/Berlin", "2027-02-28T12:00:00Z", "Feb 29, 9am", None),
    # Berlin goes from 02:00 to 03:00 on 2026-03-29, and from 03:00 back to 02:00 on 2026-10-25; both at 01:00 UTC.
    ("over the lost hour", "Europe/Berlin", "2026-03-28T20:00:00Z", "9am", "2026-03-29T09:00+02:00"),
    ("before the lost hour", "Europe/Berlin", "2026-03-28T20:00:00Z", "1:59am", "2026-03-29T01:59+01:00"),
    ("inside the lost hour", "Europe/Berlin", "2026-03-28T20:00:00Z", "2:30am", "2026-03-29T03:00+02:00"),
    ("the first of the lost hour", "Europe/Berlin", "2026-03-28T20:00:00Z", "2am", "2026-03-29T03:00+02:00"),
    ("after the lost hour", "Europe/Berlin", "2026-03-28T20:00:00Z", "3am", "2026-03-29T03:00+02:00"),
    ("a dated lost hour", "Europe/Berlin", "2026-03-27T20:00:00Z", "Mar 29, 2:30am", "2026-03-29T03:00+02:00"),
    ("the lost hour is over", "Europe/Berlin", "2026-03-29T01:30:00Z", "2:30am", "2026-03-30T02:30+02:00"),
    ("the hour that comes twice", "Europe/Berlin", "2026-10-24T20:00:00Z", "2:30am", "2026-10-25T02:30+02:00"),
    ("its second coming", "Europe/Berlin", "2026-10-25T00:45:00Z", "2:30am", "2026-10-25T02:30+01:00"),
    ("its second coming, dated", "Europe/Berlin", "2026-10-25T00:45:00Z", "Oct 25, 2:30am", "2026-10-25T02:30+01:00"),
    ("both are over", "Europe/Berlin", "2026-10-25T01:45:00Z", "2:30am", "2026-10-26T02:30+01:00"),
    ("over the hour that comes twice", "Europe/Berlin", "2026-10-24T20:00:00Z", "9am", "2026-10-25T09:00+01:00"),
    ("a lost hour in New York", "America/New_York", "2026-03-08T05:00:00Z", "2:15am", "2026-03-08T03:00-04:00"),
    ("over it", "America/New_York", "2026-03-08T05:00:00Z", "5am", "2026-03-08T05:00-04:00"),
    ("an hour twice in New York", "America/New_York", "2026-11-01T04:00:00Z", "1:15am", "2026-11-01T01:15-04:00"),
    ("its second coming there", "America/New_York", "2026-11-01T05:30:00Z", "1:15am", "2026-11-01T01:15-05:00"),
    ("over it all", "America/New_York", "2026-11-01T04:00:00Z", "5am", "2026-11-01T05:00-05:00"),
]  # fmt: skip


@pytest.mark.usefixtures("zones")
@pytest.mark.parametrize(("name", "zone", "now", "words", "instant"), IN_A_ZONE, ids=[row[0] for row in IN_A_ZONE])
def test_a_clock_time_is_the_next_such_instant_of_its_zone(
    name: str, zone: str, now: str, words: str, instant: str | None
) -> None:
    wanted = epoch(instant) if instant else None
    assert find_reset_time(f"resets {words} ({zone})", epoch(now), "Pacific/Kiritimati") == wanted
    assert find_reset_time(f"resets {words}", epoch(now), zone) == wanted


@pytest.mark.usefixtures("zones")
def test_without_a_zone_the_clock_is_that_of_the_machine(local_zone: None) -> None:
    assert find_reset_time("resets 2:30am", epoch("2026-03-28T20:00:00Z")) == epoch("2026-03-29T03:00+02:00")
    assert find_reset_time("resets 2:30am", epoch("2026-10-25T00:45:00Z")) == epoch("2026-10-25T02:30+01:00")
    assert find_reset_time("resets 9am", epoch("2026-07-01T00:00:00Z")) == epoch("2026-07-01T09:00+02:00")


@pytest.fixture
def local_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine stands in Berlin."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("zones")
def test_zones_have_short_names_too() -> None:
    now = epoch("2026-07-01T00:00:00Z")
    assert find_reset_time("resets midnight (Pacific Time)", now, "UTC") == epoch("2026-07-01T00:00-07:00")
    assert find_reset_time("resets 3pm PT", now, "UTC") == epoch("2026-07-01T15:00-07:00")
    assert find_reset_time("resets 3pm ET", now, "UTC") == epoch("2026-07-01T15:00-04:00")


@pytest.mark.parametrize(
    "name",
    ["Mars/Olympus", "IST", "Europe", "../../etc/passwd", "/etc/localtime", "x" * 64, "Europe/Berlin\0", "zone.tab",
     "UTC+99", "é", "+25:00"],
)  # fmt: skip
def test_a_zone_that_is_not_known_says_nothing(name: str) -> None:
    assert find_reset_time(f"resets 3pm ({name})", NOW.timestamp(), "UTC") is None
    assert find_reset_time("resets 3pm", NOW.timestamp(), name) is None


def test_without_a_database_of_zones_only_utc_and_offsets_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("tzdata")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tzdata", None)  # as where that package is not installed
    ZoneInfo.clear_cache()
    reset_tzpath(to=["/nowhere"])
    try:
        assert find_reset_time("resets 3pm (Europe/Berlin)", NOW.timestamp()) is None
        assert find_reset_time("resets 3:33am (UTC)", NOW.timestamp()) == NOW.timestamp() + 4 * HOUR
        assert find_reset_time("resets 5:33 (UTC+2)", NOW.timestamp()) == NOW.timestamp() + 4 * HOUR
    finally:
        reset_tzpath()


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    "hostile",
    [
        "reset ", "resets 1", "retry after ", "try again in 1h", "1h", " ", "|1", "|1794800000", "reset at at at ", "(",
        "9", "resets Nov 20, ", "resets 2026-11-", "\\", "resets Monday Monday ", "in 1 a ", "retry-after-",
        "\"':=·\"':=·", "resets 1am (A/B) ",
    ],
)  # fmt: skip
def test_a_megabyte_of_hostile_text_costs_little(hostile: str) -> None:
    text = hostile * (MEGABYTE // len(hostile))
    started = time.process_time()
    find_reset_time(text, NOW.timestamp(), "UTC")
    assert time.process_time() - started < 0.5


def test_of_a_long_text_both_ends_are_read_and_no_more() -> None:
    filler = "x" * MAX_TEXT_CHARS
    assert find_reset_time(f"try again in 20s {filler}", NOW.timestamp()) == NOW.timestamp() + 20
    assert find_reset_time(f"{filler} try again in 20s", NOW.timestamp()) == NOW.timestamp() + 20
    assert find_reset_time(f"{filler} try again in 20s {filler}", NOW.timestamp()) is None


WORDS = (
    "resets ", "retry after ", "try again in ", "try again at ", "in ", "|", "1794800000", "3", "3:33", "24:00", "12",
    "am", "pm", " (UTC)", " (Europe/Berlin)", " (X/Y)", " Nov ", " Feb 29", ", 2026 ", "2026-11-16", "T", "Z", "+99:99",
    "tomorrow", "Monday ", " h", "m", "s", "99999", ".", ":", " ", "é", "\0", "\ud800", "١", "retry-after: ",
    "midnight", "PT", "(",
)  # fmt: skip


TEXTS = st.text() | st.lists(st.sampled_from(WORDS), max_size=12).map("".join)
TIMED = st.sampled_from([*(text for text, _ in AHEAD), "resets 11:33pm"])
NEAR = st.floats(NOW.timestamp() - 2 * DAY, NOW.timestamp() + 2 * DAY) | st.floats(-90, 90).map(NOW.timestamp().__add__)


@given(TEXTS | TIMED, NEAR | st.floats(0, 4e9) | st.floats())
def test_no_text_makes_it_raise_or_name_the_past(text: str, now_s: float) -> None:
    found = find_reset_time(text, now_s, "UTC")
    assert found is None or now_s <= found <= now_s + MAX_RESET_DELAY_S


@given(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)), st.integers(0, 23), st.integers(0, 59))
def test_any_clock_time_comes_within_a_day_and_the_hour_that_clocks_may_change_by(
    now: datetime, hour: int, minute: int
) -> None:
    require(zones_known(), "a database of time zones")
    now_s = now.replace(tzinfo=UTC).timestamp()
    found = find_reset_time(f"resets {hour:02}:{minute:02}", now_s, "Europe/Berlin")
    assert found is not None
    assert now_s <= found <= now_s + 25 * HOUR
    shown = datetime.fromtimestamp(found, ZoneInfo("Europe/Berlin"))
    assert (shown.hour, shown.minute) in {(hour, minute), (3, 0)} or found == now_s
