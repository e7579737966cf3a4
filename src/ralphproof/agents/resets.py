"""When a limit ends, from the words that say so."""

from __future__ import annotations

import re

from ralphproof.agents.dialect import FURTHEST_S
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date, datetime, tzinfo

SEEN_CHARS = 16 * 1024  # of a text; of a longer one its two ends
PHRASE_CHARS = 120  # that say one time
MOST_PHRASES = 64
# What was due within the last minutes is due now, not tomorrow: clocks are said to the minute, the service's own may be
# slow, and a turn takes a while to end after that.
GRACE_S = 300

# Patterns are compiled when a limit is first met, and kept by `re`. Whatever repeats in them is bounded.
_FILL = r"""["'\\\s:=·∙]{0,8}"""
_CUE = rf"""(?ix)
    (?P<bar>\|)(?=\d{{10}})
    | \b(?P<ms>retry[-_]after[-_]ms)\b{_FILL}
    | \b(?P<seconds>retry[-_\ ]?after|resets?_(?:in|after)_seconds)\b{_FILL}
    | (?:\b(?:resets?(?:[-_]?(?:at|time))?|retry(?:delay)?|try\ again|wait|regain\ access|available\ again)\b
        | \A\s{{0,8}}(?=in\b|\d{{4}}-\d\d-\d\d[T\ ][\d:.+Z-]{{4,32}}\Z))
      {_FILL}(?:(?:at|on|in|after|until|by|for)\b)?{_FILL}
"""
_EPOCH = r"(\d{10}|\d{13})(?!\d)"
_SECONDS = r"(\d{1,9}(?:\.\d{1,9})?)(?![\w:-]|\.\d)"
_AMOUNT = r"""(?ix)
    (?:less\ than\s|about\s|~)? (?P<count>\d{1,9}(?:\.\d{1,9})?|an?\b) \s{0,3}
    (?:(?P<unit>ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])
        | (?P<tight>ms|[smhdw])(?=\d))
    [\s,]{0,3}(?:and\s)?
"""
_UNITS_S = (("milli", 0.001), ("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 604800))

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?(?!\d|:|\s?[ap]\.?m)"
_DATE = rf"""(?ix)
    (?:(?:next\s)?(?P<weekday>mon|tue|wed|thu|fri|sat|sun)[a-z]{{0,6}}\b,?\s{{0,3}}(?:at\s)?)?
    (?: (?P<iso>\d{{4}}-\d\d-\d\d)(?!\d) (?:T(?=\d)|\s(?:at\s)?)?
      | (?P<relative>today|tomorrow)\b
      | (?: {_MONTH}\s{{1,3}}{_DAY} | {_DAY.replace("day", "day2")}\s{{1,3}}{_MONTH.replace("month", "month2")} )
        (?:,?\s{{1,3}}(?P<year>\d{{4}})(?!\d|:))?
    )? ,?\s{{0,3}}(?:at\s)?
"""
_CLOCK = r"""(?ix)
    (?:(?P<word>midnight|noon)\b
      | (?P<hour>\d{1,2})(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d{1,9})?)?)?(?!\d|:)
        \s{0,3}(?P<half>[ap](?=\.?m\b)\.?m\.?)?)
    \s{0,3}(?P<tomorrow>tomorrow\b)?\s{0,3}
"""
_ZONE = r"\(([^()\s]{1,64}|(?i:pacific time))\)|([+-]\d\d:?\d\d\b|Z\b|(?:UTC|GMT)(?:[+-]\d{1,2}\b)?|[A-Z]{1,4}T\b)"
_OFFSET = r"(?i)(?:utc|gmt)?([+-])(\d{1,2})(?::?(\d\d))?"
_FIXED_H = {
    "Z": 0, "UTC": 0, "GMT": 0, "ETC/UTC": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6,
    "PST": -8, "PDT": -7, "BST": 1, "CET": 1, "CEST": 2, "JST": 9,
}  # fmt: skip
_NAMED = {"PT": "America/Los_Angeles", "PACIFIC TIME": "America/Los_Angeles", "ET": "America/New_York"}


def ends_of(text: str) -> str:
    """As much of a text as is looked at: of a long one its two ends."""
    return text if len(text) <= SEEN_CHARS else text[: SEEN_CHARS // 2] + "\n" + text[-SEEN_CHARS // 2 :]


def resets_at(text: str, now_s: float, zone: str | None = None) -> float | None:
    """Epoch seconds of the first end of a limit that a text says, never in the past; None where it says none.

    A clock time without a date is the next such instant. `zone` is where words without a zone were said, by default
    the machine's own. Of a time that comes twice the first counts that is not over; one that a change of clocks skips
    is the instant of that change. A zone that is not known, and a time further off than a month, say nothing.
    """
    text = ends_of(text)
    for count, cue in enumerate(re.finditer(_CUE, text)):
        if count == MOST_PHRASES:
            break
        try:
            for found in _said(cue, text[cue.end() : cue.end() + PHRASE_CHARS], now_s, zone):
                if now_s - GRACE_S <= found <= now_s + FURTHEST_S:
                    return max(found, now_s)
        except (OverflowError, ValueError, OSError):  # no such day or zone, or more than the platform can count
            continue
    return None


def _said(cue: re.Match[str], phrase: str, now_s: float, zone: str | None) -> Iterator[float]:
    """What a phrase can mean, in the order of time."""
    if epoch := re.match(_EPOCH, phrase):
        yield int(epoch[1]) / (1000 if len(epoch[1]) == 13 else 1)
    elif (length_s := _duration_s(phrase)) is not None:
        yield now_s + length_s
    elif (cue["seconds"] or cue["ms"]) and (bare := re.match(_SECONDS, phrase)):
        yield now_s + float(bare[1]) * (0.001 if cue["ms"] else 1)
    elif not cue["bar"]:
        yield from _by_calendar(phrase, now_s, zone)


def _duration_s(phrase: str) -> float | None:
    """The length of time that a phrase begins with: `2 hours 5 minutes`, `1h30m`, `12.5s`."""
    total, place = None, 0
    while amount := re.compile(_AMOUNT).match(phrase, place):
        unit = (amount["unit"] or amount["tight"]).lower()
        factor = next(seconds for name, seconds in _UNITS_S if unit.startswith(name))
        total = (total or 0) + (float(amount["count"]) if amount["count"][0].isdigit() else 1) * factor
        place = amount.end()
    return total


def _by_calendar(phrase: str, now_s: float, home: str | None) -> Iterator[float]:
    """What a phrase of a date, a clock time, or both can mean, in the order of time."""
    from datetime import datetime, time

    dated = re.match(_DATE, phrase)
    rest = phrase[dated.end() :] if dated else phrase
    clock = re.match(_CLOCK, rest)
    at = _time_of_day(clock) if clock else None
    if dated is None or (at is None and not any(dated.groups())):
        return
    where = _zone(rest[clock.end() :] if clock and at else rest, home)
    today = datetime.fromtimestamp(now_s, where).date()
    tomorrow = bool(clock and at and clock["tomorrow"])
    for day in _days(dated, today, tomorrow):
        yield from _instants(datetime.combine(day, time(*(at or ()))), where)


def _time_of_day(clock: re.Match[str]) -> tuple[int, int, int] | None:
    if clock["word"]:
        return (12 if clock["word"].lower() == "noon" else 0), 0, 0
    hour, half = int(clock["hour"]), (clock["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            raise ValueError(f"no such hour: {hour}")
        hour = hour % 12 + (12 if half.startswith("p") else 0)
    elif clock["minute"] is None:  # a lone number is no time of day
        return None
    return hour, int(clock["minute"] or 0), int(clock["second"] or 0)


def _days(dated: re.Match[str], today: date, tomorrow: bool) -> Iterator[date]:
    """The days that can be meant, in order."""
    from datetime import date, timedelta

    if dated["iso"]:
        yield date.fromisoformat(dated["iso"])
    elif name := dated["month"] or dated["month2"]:
        month, day = 1 + _MONTHS.index(name.lower()), int(dated["day"] or dated["day2"])
        for year in [int(dated["year"])] if dated["year"] else range(today.year - 1, today.year + 2):
            if (month, day) != (2, 29) or year % 4 == 0:  # good until 2100
                yield date(year, month, day)
    elif dated["relative"] or tomorrow:
        yield today + timedelta((dated["relative"] or "tomorrow").lower() == "tomorrow")
    else:  # from yesterday on, for a clock that struck within the last minute, around midnight
        near = (today + timedelta(count) for count in range(-1, 9))
        weekday = (dated["weekday"] or "").lower()
        yield from (day for day in near if not weekday or day.weekday() == _WEEKDAYS.index(weekday))


def _zone(phrase: str, home: str | None) -> tzinfo | None:
    """The zone that a phrase begins with, else `home`; None is the machine's own. ValueError for one not known."""
    from datetime import timedelta, timezone

    said = re.match(_ZONE, phrase)
    name = (said[1] or said[2]) if said else home
    if name is None:
        return None
    if (hours := _FIXED_H.get(name.upper())) is not None:
        return timezone(timedelta(hours=hours))
    if offset := re.fullmatch(_OFFSET, name):
        ahead = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(-ahead if offset[1] == "-" else ahead)
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(_NAMED.get(name.upper(), name))
    except ZoneInfoNotFoundError as error:  # also where the machine has no database of zones
        raise ValueError(name) from error


def _instants(wall: datetime, where: tzinfo | None) -> Iterator[float]:
    """When a clock there shows this, in the order of time; where it never does, when it first shows more."""
    from datetime import datetime

    first, second = (wall.replace(tzinfo=where, fold=fold).timestamp() for fold in (0, 1))
    if first <= second:
        yield first
        yield second
        return
    low, high = int(second), int(first)  # the change of clocks lies in between
    while high - low > 1:
        middle = (low + high) // 2
        shown = datetime.fromtimestamp(middle, where).replace(tzinfo=None)
        low, high = (middle, high) if shown < wall else (low, middle)
    yield float(high)
