"""Error messages of agents: the reason of a failed turn, and the time at which a limit resets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import cache

from ralphproof.agents.adapter import MAX_RESET_DELAY_S, AgentAdapter, one_line
from ralphproof.base.text import strip_escapes
from ralphproof.base.value import value
from ralphproof.engine.agent import THE_CONFIGURATION, THE_SERVICE, Ended

# Reset times in messages.


MAX_TEXT_CHARS = 16 * 1024  # of a longer text only both ends are examined
MAX_PHRASE_CHARS = 120  # of a phrase that names a time
MAX_PHRASES = 64
# A time within the last minutes means now, not tomorrow: messages give minutes, the service's clock may be slow, and
# the turn takes a while to end.
GRACE_S = 300

# Patterns are compiled when a limit is first met, and cached by `re`. Every repetition in them is bounded.
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


def keep_ends(text: str) -> str:
    """As much of a text as is examined: of a long one its two ends."""
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS // 2] + "\n" + text[-MAX_TEXT_CHARS // 2 :]


def find_reset_time(text: str, now_s: float, zone: str | None = None) -> float | None:
    """Epoch seconds of the first reset time in a text, never in the past; None where there is none.

    A clock time without a date is its next occurrence. `zone` applies to times without a zone, by default the machine's
    own. An ambiguous time is the first of its two instants that is not over; a time that a clock change skips is the
    instant of that change. Unknown zones, and times more than a month away, are ignored.
    """
    text = keep_ends(text)
    for count, cue in enumerate(re.finditer(_CUE, text)):
        if count == MAX_PHRASES:
            break
        try:
            for found in _candidate_times(cue, text[cue.end() : cue.end() + MAX_PHRASE_CHARS], now_s, zone):
                if now_s - GRACE_S <= found <= now_s + MAX_RESET_DELAY_S:
                    return max(found, now_s)
        except (OverflowError, ValueError, OSError):  # no such day or zone, or more than the platform can count
            continue
    return None


def _candidate_times(cue: re.Match[str], phrase: str, now_s: float, zone: str | None) -> Iterator[float]:
    """The possible meanings of a phrase, in order of time."""
    if epoch := re.match(_EPOCH, phrase):
        yield int(epoch[1]) / (1000 if len(epoch[1]) == 13 else 1)
    elif (length_s := _parse_duration_s(phrase)) is not None:
        yield now_s + length_s
    elif (cue["seconds"] or cue["ms"]) and (bare := re.match(_SECONDS, phrase)):
        yield now_s + float(bare[1]) * (0.001 if cue["ms"] else 1)
    elif not cue["bar"]:
        yield from _calendar_times(phrase, now_s, zone)


def _parse_duration_s(phrase: str) -> float | None:
    """The duration at the beginning of a phrase: `2 hours 5 minutes`, `1h30m`, `12.5s`."""
    total, place = None, 0
    while amount := re.compile(_AMOUNT).match(phrase, place):
        unit = (amount["unit"] or amount["tight"]).lower()
        factor = next(seconds for name, seconds in _UNITS_S if unit.startswith(name))
        total = (total or 0) + (float(amount["count"]) if amount["count"][0].isdigit() else 1) * factor
        place = amount.end()
    return total


def _calendar_times(phrase: str, now_s: float, home: str | None) -> Iterator[float]:
    """The possible meanings of a date, a clock time, or both, in order of time."""
    dated = re.match(_DATE, phrase)
    rest = phrase[dated.end() :] if dated else phrase
    clock = re.match(_CLOCK, rest)
    at = _parse_time_of_day(clock) if clock else None
    if dated is None or (at is None and not any(dated.groups())):
        return
    where = _parse_zone(rest[clock.end() :] if clock and at else rest, home)
    today = datetime.fromtimestamp(now_s, where).date()
    tomorrow = bool(clock and at and clock["tomorrow"])
    for day in _candidate_days(dated, today, tomorrow):
        yield from _to_epochs(datetime.combine(day, time(*(at or ()))), where)


def _parse_time_of_day(clock: re.Match[str]) -> tuple[int, int, int] | None:
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


def _candidate_days(dated: re.Match[str], today: date, tomorrow: bool) -> Iterator[date]:
    """The possible days, in order."""
    if dated["iso"]:
        yield date.fromisoformat(dated["iso"])
    elif name := dated["month"] or dated["month2"]:
        month, day = 1 + _MONTHS.index(name.lower()), int(dated["day"] or dated["day2"])
        for year in [int(dated["year"])] if dated["year"] else range(today.year - 1, today.year + 2):
            if (month, day) != (2, 29) or year % 4 == 0:  # good until 2100
                yield date(year, month, day)
    elif dated["relative"] or tomorrow:
        yield today + timedelta((dated["relative"] or "tomorrow").lower() == "tomorrow")
    else:  # from yesterday on: a time just before midnight may have passed within GRACE_S
        near = (today + timedelta(count) for count in range(-1, 9))
        weekday = (dated["weekday"] or "").lower()
        yield from (day for day in near if not weekday or day.weekday() == _WEEKDAYS.index(weekday))


def _parse_zone(phrase: str, home: str | None) -> tzinfo | None:
    """The zone at the beginning of a phrase, else `home`; None is the machine's own. ValueError for an unknown one."""
    named = re.match(_ZONE, phrase)
    name = (named[1] or named[2]) if named else home
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


def _to_epochs(wall: datetime, where: tzinfo | None) -> Iterator[float]:
    """The epoch seconds of a wall-clock time in a zone, in order; for one that a clock change skips, the change."""
    first, second = (wall.replace(tzinfo=where, fold=fold).timestamp() for fold in (0, 1))
    if first <= second:
        yield first
        yield second
        return
    low, high = int(second), int(first)  # the clock change is in between
    while high - low > 1:
        middle = (low + high) // 2
        shown = datetime.fromtimestamp(middle, where).replace(tzinfo=None)
        low, high = (middle, high) if shown < wall else (low, middle)
    yield float(high)


# Reasons of failed turns by their messages, for errors that the stream does not name.


LOGIN_ERROR, CREDIT_ERROR, FLAG_ERROR, MODEL_ERROR = "login", "credit", "flag", "model"
LIMIT_ERROR, OUTAGE_ERROR, TOO_LONG_ERROR = "limit", "outage", "too long"

MAX_MESSAGE_CHARS = 4000
MAX_PREFIXES = 48  # pieces of a line before the phrase
TRIM_AFTER_CHARS = 120  # a line whose phrase begins later is shown from the phrase on


@value
class FailureReason:
    """Why a turn failed. `message` is the relevant line, `resets_at` epoch seconds where it names a time."""

    kind: str
    message: str
    resets_at: float | None = None


# Beginnings of error messages; the first match wins. `~` is some characters, `*` one word. A phrase that ends in a full
# stop must end its clause: "Invalid API key" is an error, "Invalid API key handling is done" is not.
_PHRASES = {
    TOO_LONG_ERROR: """
        prompt is too long | input is too long | request too large | context limit reached.
        your input exceeds the context window | this model's maximum context length is
        * ran out of room in the model's context window | the input token count ~ exceeds the maximum
        prompt token count of ~ exceeds | input length and ~ exceed context limit
        """,
    FLAG_ERROR: """
        unknown option ' | unknown option " | unknown option: | unknown option -- | unexpected argument ' | bad option:
        unknown argument: | unknown arguments: | unknown flag: | unrecognized subcommand ' | invalid value '~' for '
        too many arguments. | a value is required for ' | the argument '~' cannot be used
        the following required arguments were not provided | missing required argument | not enough arguments following:
        invalid values:. | option '~' argument | when using --~ requires -- | --* requires --* | --* cannot be used with
        settings file not found: | cannot use settings file | invalid json provided to --settings
        """,
    MODEL_ERROR: """
        there's an issue with the selected model | the '~' model is not supported | providermodelnotfounderror
        the model `~` does not exist | the model '~' does not exist | model not found. | model: claude-
        models/~ is not found | model "~" not found | model '~' not found | model "~" ~not available
        model '~' ~not available | unknown model. | invalid model name | invalid model. | unknown provider "
        * is not a valid model | claude ~ is not available with the claude ~ plan
        """,
    LIMIT_ERROR: """
        you've hit your limit | you've hit your ~ limit | you've hit a rate limit | you've reached your ~ limit
        usage limit reached. | * usage limit reached. | * * usage limit reached. | * limit reached.
        * weekly limit reached. | you're out of extra usage | you have reached your specified api usage limits
        you have been rate limited | rate limit reached for | rate limit exceeded. | rate limit exceeded for
        rate limited. | rate-limited. | request rejected (429) | too many requests.
        this request would exceed your ~ rate limit | resource exhausted. | number of ~ has exceeded your ~ rate limit
        resource has been exhausted | you have exhausted your | you exceeded your current quota~ai.google.dev
        you exceeded your current quota~resource_exhausted | quota exceeded for | your ~ daily quota has been reached
        request was throttled
        """,
    CREDIT_ERROR: """
        credit balance is too low | your credit balance is too low | quota exceeded. | you exceeded your current quota
        you have no quota. | insufficient credit | insufficient balance. | insufficient funds
        insufficient account balance | out of credits. | you're out of ~credits | billing hard limit has been reached
        payment required. | this request requires more credits | free allocated quota exceeded.
        you have exceeded your premium request | your account is not active, please check your billing
        * * requires usage credits | to use codex with your chatgpt plan, upgrade
        """,
    LOGIN_ERROR: """
        not logged in. | please run /login | you are not ~logged in | you must be logged in | please log in.
        please log in to | please sign in. | please sign in to | login required. | code assist login required
        please set an auth method | invalid api key. | incorrect api key provided | missing api key. | api key not valid
        api key expired. | no api key found | no api key provided | * api key is missing
        when using ~ you must specify the ~_api_key | missing environment variable: `
        no models available. set an api key | no authentication information found | oauth token has expired
        oauth token has been revoked | oauth authentication is currently not | your session has expired
        your access token could not be refreshed | your ~ token has expired | failed to authenticate.
        authentication failed. | authentication failed with provider | authentication required. | unauthorized.
        bad credentials. | invalid x-api-key | invalid bearer token | invalid authentication credentials
        invalid access token. | invalid access token or | cached credentials are not valid
        could not resolve authentication method
        could not load ~ credentials | the security token included in the request | your account does not have access
        this organization has been disabled
        """,
    OUTAGE_ERROR: """
        overloaded. | the model is overloaded. | selected model is at capacity | we're currently experiencing high
        this model is currently experiencing high demand | the socket connection was closed | network is unreachable.
        stream disconnected before completion | stream closed before | error sending request for url | dns error.
        connection error. | connection closed. | connection reset. | connection reset by peer | connection refused.
        unable to connect to api | unable to connect to anthropic
        unable to connect. is the computer able to access the url | failed to connect to api. | network error.
        econnrefused. | econnreset. | enotfound. | eai_again. | etimedout. | ehostunreach. | enetunreach. | epipe.
        connect econnrefused | connect etimedout | connect ehostunreach | connect enetunreach | getaddrinfo e
        write epipe. | read econnreset. | read etimedout. | und_err_ | fetch failed. | socket hang up.
        premature close. | request timed out. | internal server error. | internal error encountered. | bad gateway.
        service unavailable. | gateway timeout. | service temporarily unavailable. | service is temporarily unavailable.
        gateway time-out. | upstream connect error | no healthy upstream. | the server had an error
        could not resolve host | temporary failure in name resolution | provider returned error.
        request to ~ failed, reason: | tunneling socket could not be established, statuscode=5 | proxy response (5
        """,
}  # fmt: skip

# Error codes of services: a JSON value that equals one decides.
_CODES = {
    TOO_LONG_ERROR: "context_length_exceeded|request_too_large",
    MODEL_ERROR: "model_not_found",
    LIMIT_ERROR: (
        "rate_limit|rate_limit_error|rate_limit_exceeded|ratelimitexceeded|usage_limit_reached|resource_exhausted"
    ),
    CREDIT_ERROR: "insufficient_quota|quota_exceeded|billing_error|billing_hard_limit_reached|usage_not_included",
    LOGIN_ERROR: (
        "authentication_error|authentication_failed|invalid_api_key|invalid_grant|token_expired|unauthenticated"
    ),
    OUTAGE_ERROR: "overloaded_error|server_error|api_error|server_is_overloaded|internal_error|unavailable",
}
# The codes that adapters find in structured errors of services.
SERVICE_ERROR_CODES = {
    "model_not_found": MODEL_ERROR, "model_not_supported": MODEL_ERROR, "context_length_exceeded": TOO_LONG_ERROR,
    "insufficient_quota": CREDIT_ERROR, "quota_exceeded": CREDIT_ERROR, "invalid_api_key": LOGIN_ERROR,
}  # fmt: skip
_STATUSES = {
    401: LOGIN_ERROR, 402: CREDIT_ERROR, 403: LOGIN_ERROR, 408: OUTAGE_ERROR, 413: TOO_LONG_ERROR, 429: LIMIT_ERROR,
}  # fmt: skip
_STATUS_FIELD = r"""(?i)["'](?:code|status|statuscode)["']\s?:\s?([45]\d\d)\b"""
_STATUS = r"(?i)([45]\d\d)(?![\w-]|\.\d)(?!\s(?!status|this|requests)\w+s\b)"  # a number before a plural counts things

# What may precede a phrase: punctuation (but no list or code marks), and words that announce an error.
_PREFIX = r"""(?ix)
    <[!/]?\w[^<>]{0,80}> | (?:[^\w`*•+\#~-]|-\s?(?=[{\[]))+ | [45]\d\d(?!\w)
    | (?P<error>
        \d{4}-\d\d-\d\d[t\ ][\d:.]{5,20}z? | codex_\w{1,40}(?:::\w{1,40}){0,6} | sorry(?=,)
        | (?:node|claude|codex|gemini|qwen|opencode|copilot|pi|amp)(?=:\s)
        | error\ when\ talking\ to\ gemini\ api(?:\ full\ report\ available\ at:\ \S{1,400})?
        | failed\ to\ get\ response\ from\ the\ ai\ model;\ retried\ \d{1,4}\ times\ \([^)]{0,80}\)
        | attempt\ \d{1,4}\ failed(?:\ with)? | retrying\ with\ backoff | max\ attempts\ reached | bad\ request
        | reconnecting\.{3}\ \d{1,4}/\d{1,4} | exceeded\ retry\ limit | https?(?:/\d(?:\.\d)?)?(?=\s\d) | fatal
        | (?:(?:an?|api|stream|last|internal|unhandled|uncaught|unknown|unexpected|provider|model|call|http|server
            |request|execution|response|status|error|openai|anthropic|gemini)\s){0,4}(?:error|failed|failure|status|code|statuscode)\b
          (?:\s(?:with|code|during\sturn))?
        | \w{0,40}error\b
        | (?:type|message|detail|reason|cause|name|data|body|responsebody|null|true|false)(?=["'\s]{0,8}[:=,}\]])
      )
"""

# A stack trace counts only if it is the agent's own or names a model service.
_OWN_TRACE = (
    "@anthropic-ai/", "@openai/", "@google/gemini-cli", "@qwen-code/", "opencode-ai", "@github/copilot",
    "pi-coding-agent", "@sourcegraph/amp", "@ampcode/", "/$bunfs/", "api.anthropic.com", "api.openai.com",
    "chatgpt.com", "generativelanguage.googleapis.com", "githubcopilot.com", "openrouter.ai", "ampcode.com",
)  # fmt: skip

_SENTENCES = {
    LOGIN_ERROR: ("{name} is not logged in ({why}); {login}", THE_CONFIGURATION),
    CREDIT_ERROR: ("{name} has no credit left ({why}); top up, or name another agent with --agent", THE_CONFIGURATION),
    FLAG_ERROR: (
        "{name} was given a flag that it does not take ({why}); drop it where it is one of agent.flags, else update "
        "{name}: `ralph doctor` shows its version",
        THE_CONFIGURATION,
    ),
    MODEL_ERROR: (
        "{name} does not know its model, or may not use it ({why}); name another with --model",
        THE_CONFIGURATION,
    ),
    LIMIT_ERROR: ("the service of {name} has reached a limit: {why}", THE_SERVICE),
    OUTAGE_ERROR: ("the service of {name} does not answer as it should: {why}", THE_SERVICE),
    TOO_LONG_ERROR: ("the prompt of {name} or its context grew too long: {why}", ""),
}

# Texts that an agent prints while it waits for a login.
_LOGIN_WORDS = (
    b"enter the authorization code", b"paste the authorization code", b"please visit the following url to authorize",
    b"please visit the following url in your browser to authorize", b"oauth device authorization",
    b"paste your code here", b"paste code here if prompted", b"waiting for authorization to complete",
    b"waiting for authentication", b"code assist login required", b"opening authentication page in your browser",
    b"attempting to open authentication page in your browser", b"navigate to this url to authenticate",
    b"first copy your one-time code",
)  # fmt: skip
_LOGIN_ADDRESSES = (
    b"/auth/cli-login?", b"/login/device", b"/oauth/authorize?", b"/oauth2/authorize?", b"/oauth2/v2/auth?",
    b"/oauth2/auth?", b"/codex/device", b"authorize?user_code=", b"device?user_code=",
)  # fmt: skip


def find_failure_reason(text: str, now_s: float) -> FailureReason | None:
    """The last error in a final message or at the end of stderr; an outage only if there is no other."""
    lines = [
        _to_printable(line[:MAX_MESSAGE_CHARS])
        for line in _lines_without_traces(strip_escapes(keep_ends(text)).split("\n"))
        if line.strip()
    ]
    found = [(number, *hit) for number, line in enumerate(lines) if (hit := _classify_line(line, len(lines) == 1))]
    if not found:
        return None
    number, kind, place, _ = max(found, key=lambda hit: (hit[1] != OUTAGE_ERROR, hit[3], hit[0]))
    return _make_reason(kind, place, number, lines, now_s)


def asks_for_login(line: bytes) -> bool:
    """Whether a line on standard output, of an agent that should print JSON, asks a person to log in."""
    low = line[:MAX_MESSAGE_CHARS].strip().lower()
    if low.startswith((b"{", b'"', b"[{", b'["', b"[[")):
        return False
    if any(words in low for words in _LOGIN_WORDS):
        return True
    return b"https://" in low and any(address in low for address in _LOGIN_ADDRESSES)


def failure_event(adapter: AgentAdapter, reason: FailureReason, text: str | None = None) -> Ended:
    """The end of a turn that failed for this reason, with advice."""
    sentence, blame = _SENTENCES[reason.kind]
    why = reason.message.rstrip(" .")
    return Ended(False, text, sentence.format(name=adapter.name, why=why, login=adapter.login), blame)


def status_error_kind(status: object) -> str:
    """The error kind of an HTTP status; empty where it has none."""
    if not isinstance(status, int):
        return ""
    return _STATUSES.get(status, OUTAGE_ERROR if status >= 500 else "")


def _to_printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)


def _make_reason(kind: str, place: int, number: int, lines: list[str], now_s: float) -> FailureReason:
    line = lines[number]
    ends = find_reset_time(line, now_s)
    if kind == LIMIT_ERROR and ends is None:
        ends = find_reset_time("\n".join(lines[number + 1 :]), now_s)
    if kind == CREDIT_ERROR and ends is not None:  # credit that returns by itself is a limit
        kind = LIMIT_ERROR
    shown = line
    if place > TRIM_AFTER_CHARS:
        inner = re.search(r'"message"\s?:\s?"([^"\\]{8,300})', line)
        shown = inner[1] if inner else line[place:]
    return FailureReason(kind, one_line(shown), ends if kind in (LIMIT_ERROR, OUTAGE_ERROR) else None)


def _classify_line(line: str, alone: bool) -> tuple[str, int, bool] | None:
    """The kind of error in a line, where its phrase begins, and whether a phrase or code matched (else a status).

    A status without a word about an error counts only in a line that is alone.
    """
    # Replacements keep the length, so that positions stay valid.
    line = line.translate({0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"'})
    line = line.replace("\\n", "  ").replace('\\"', ' "')
    phrases, codes, statuses, status_fields, prefixes = _compile_patterns()
    place, announced, status = 0, alone, None
    for _ in range(MAX_PREFIXES):
        if phrase := phrases.match(line, place):
            return tuple(_PHRASES)[(phrase.lastindex or 0) - 1], place, True
        if announced and status is None:
            status = statuses.match(line, place)
        if (prefix := prefixes.match(line, place)) is None:
            break
        announced, place = announced or prefix["error"] is not None, prefix.end()
    if code := codes.search(line):
        return tuple(_CODES)[(code.lastindex or 0) - 1], code.start(), True
    if (status := status or status_fields.search(line)) is None:
        return None
    kind = status_error_kind(int(status[1]))
    return (kind, status.start(), False) if kind else None


@cache
def _compile_patterns() -> tuple[re.Pattern[str], ...]:
    """Patterns of phrases and of codes, with a group for each kind; of a status; of status fields; of prefixes."""
    by_kind = {
        kind: [_phrase_pattern(phrase) for phrase in re.split(r"\s*\n\s*| \| ", text)[1:-1]]
        for kind, text in _PHRASES.items()
    }
    for kind, names in _CODES.items():
        by_kind[kind].append(rf"(?:{names})(?![\w./(])")
    phrases = "|".join(f"({'|'.join(patterns)})" for patterns in by_kind.values())
    codes = "|".join(f"({names})" for names in _CODES.values())
    patterns = f"(?i)(?:{phrases})", rf"""(?i)["']\s?:\s?["'](?:{codes})["']""", _STATUS, _STATUS_FIELD, _PREFIX
    return tuple(re.compile(pattern) for pattern in patterns)


def _phrase_pattern(phrase: str) -> str:
    ends = r"""(?=\s*(?:$|[.:;,!?()\[\]{}<>"'`·∙|—]))""" if phrase.endswith(".") else ""
    escaped = re.escape(phrase.removesuffix("."))
    for mark, pattern in ((r"\ ", r"\s{1,3}"), (r"\*", r"\S{1,40}"), (r"\~", ".{0,300}?")):
        escaped = escaped.replace(mark, pattern)
    return escaped + ends


def _lines_without_traces(lines: list[str]) -> Iterator[str]:
    """The lines without the stack traces of other programs: Python's, Rust's, and frames that begin with `at`."""
    number = 0
    while number < len(lines):
        after = number + 1
        if "Traceback (most recent call last)" in lines[number] or "' panicked at " in lines[number]:
            number = _skip_traceback(lines, number)
            continue
        while after < len(lines) and re.match(r"\s+at\s.*(?:[)>{]|:\d+)\s*$", lines[after]):
            after += 1
        if after == number + 1 or any(mark in line for line in lines[number:after] for mark in _OWN_TRACE):
            yield lines[number]
        elif lines[after - 1].rstrip().endswith("{"):  # Node prints the error's fields behind its frames
            while after < len(lines) and lines[after - 1].rstrip() != "}":
                after += 1
        number = after


def _skip_traceback(lines: list[str], number: int) -> int:
    """The line after a traceback: past the indented lines and the line that names the error."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    number += 1
    while number < len(lines) and (not lines[number].strip() or lines[number][: indent + 1].isspace()):
        number += 1
    return number + 1
