"""What an agent's own words say of why it failed: the last resort, after structure has told nothing."""

from __future__ import annotations

import re
from functools import cache

from ralphproof.agents.dialect import one_line
from ralphproof.agents.resets import ends_of, resets_at
from ralphproof.claim import plain
from ralphproof.event import THE_CONFIGURATION, THE_SERVICE, Ended
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.agents.dialect import Dialect

LOGIN, CREDIT, FLAG, MODEL, LIMIT, OUTAGE, TOO_LONG = "login", "credit", "flag", "model", "limit", "outage", "too long"

LINE_CHARS = 4000
MOST_LEADS = 48  # before the words of a line
FAR_CHARS = 120  # a line whose words begin later is told from there on


@value
class Complaint:
    """Why it failed. `message` is the telling line, `resets_at` epoch seconds where it says when that will be over."""

    kind: str
    message: str
    resets_at: float | None = None


# How programs and services begin to complain; the first that fits wins. `~` is some characters, `*` one word. What ends
# in a full stop must end its clause: "Invalid API key" complains, "Invalid API key handling is done" does not.
_PHRASES = {
    TOO_LONG: """
        prompt is too long | input is too long | request too large | context limit reached.
        your input exceeds the context window | this model's maximum context length is
        * ran out of room in the model's context window | the input token count ~ exceeds the maximum
        prompt token count of ~ exceeds | input length and ~ exceed context limit
        """,
    FLAG: """
        unknown option ' | unknown option " | unknown option: | unknown option -- | unexpected argument ' | bad option:
        unknown argument: | unknown arguments: | unknown flag: | unrecognized subcommand ' | invalid value '~' for '
        too many arguments. | a value is required for ' | the argument '~' cannot be used
        the following required arguments were not provided | missing required argument | not enough arguments following:
        invalid values:. | option '~' argument | when using --~ requires -- | --* requires --* | --* cannot be used with
        settings file not found: | cannot use settings file | invalid json provided to --settings
        """,
    MODEL: """
        there's an issue with the selected model | the '~' model is not supported | providermodelnotfounderror
        the model `~` does not exist | the model '~' does not exist | model not found. | model: claude-
        models/~ is not found | model "~" not found | model '~' not found | model "~" ~not available
        model '~' ~not available | unknown model. | invalid model name | invalid model. | unknown provider "
        * is not a valid model | claude ~ is not available with the claude ~ plan
        """,
    LIMIT: """
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
    CREDIT: """
        credit balance is too low | your credit balance is too low | quota exceeded. | you exceeded your current quota
        you have no quota. | insufficient credit | insufficient balance. | insufficient funds
        insufficient account balance | out of credits. | you're out of ~credits | billing hard limit has been reached
        payment required. | this request requires more credits | free allocated quota exceeded.
        you have exceeded your premium request | your account is not active, please check your billing
        * * requires usage credits | to use codex with your chatgpt plan, upgrade
        """,
    LOGIN: """
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
    OUTAGE: """
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

# Names that services have for errors; wherever JSON names one, that is what it is.
_CODES = {
    TOO_LONG: "context_length_exceeded|request_too_large",
    MODEL: "model_not_found",
    LIMIT: "rate_limit|rate_limit_error|rate_limit_exceeded|ratelimitexceeded|usage_limit_reached|resource_exhausted",
    CREDIT: "insufficient_quota|quota_exceeded|billing_error|billing_hard_limit_reached|usage_not_included",
    LOGIN: "authentication_error|authentication_failed|invalid_api_key|invalid_grant|token_expired|unauthenticated",
    OUTAGE: "overloaded_error|server_error|api_error|server_is_overloaded|internal_error|unavailable",
}
_STATUSES = {401: LOGIN, 402: CREDIT, 403: LOGIN, 408: OUTAGE, 413: TOO_LONG, 429: LIMIT}  # and from 500 on OUTAGE
_STATUS_FIELD = r"""(?i)["'](?:code|status|statuscode)["']\s?:\s?([45]\d\d)\b"""
_STATUS = r"(?i)([45]\d\d)(?![\w-]|\.\d)(?!\s(?!status|this|requests)\w+s\b)"  # a number before a plural counts things

# What may stand before the words: marks (but none of a list, nor of code), and what says that an error follows.
_LEAD = r"""(?ix)
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

# A trace of a program is no complaint of the agent, unless it is the agent's own or names a service of models.
_OWN_TRACE = (
    "@anthropic-ai/", "@openai/", "@google/gemini-cli", "@qwen-code/", "opencode-ai", "@github/copilot",
    "pi-coding-agent", "@sourcegraph/amp", "@ampcode/", "/$bunfs/", "api.anthropic.com", "api.openai.com",
    "chatgpt.com", "generativelanguage.googleapis.com", "githubcopilot.com", "openrouter.ai", "ampcode.com",
)  # fmt: skip

_SENTENCES = {
    LOGIN: ("{name} is not logged in ({why}); {login}", THE_CONFIGURATION),
    CREDIT: ("{name} has no credit left ({why}); top up, or name another agent with --agent", THE_CONFIGURATION),
    FLAG: (
        "{name} was given a flag that it does not take ({why}); drop it where it is one of agent.flags, else update "
        "{name}: `ralph doctor` shows its version",
        THE_CONFIGURATION,
    ),
    MODEL: ("{name} does not know its model, or may not use it ({why}); name another with --model", THE_CONFIGURATION),
    LIMIT: ("the service of {name} has reached a limit: {why}", THE_SERVICE),
    OUTAGE: ("the service of {name} does not answer as it should: {why}", THE_SERVICE),
    TOO_LONG: ("the prompt of {name} or its context grew too long: {why}", ""),
}

# What an agent prints while it waits for somebody to log in.
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


def complaint_in(text: str, now_s: float) -> Complaint | None:
    """The last complaint in a final error message or in the end of stderr; an outage only if there is no other."""
    lines = [_printable(line[:LINE_CHARS]) for line in _own_lines(plain(ends_of(text)).split("\n")) if line.strip()]
    found = [(number, *hit) for number, line in enumerate(lines) if (hit := _found(line, len(lines) == 1))]
    if not found:
        return None
    number, kind, place, _ = max(found, key=lambda hit: (hit[1] != OUTAGE, hit[3], hit[0]))
    return _complaint(kind, place, number, lines, now_s)


def asks_for_login(line: bytes) -> bool:
    """Whether a line on standard output, of an agent that should speak JSON, waits for a person to log in."""
    low = line[:LINE_CHARS].strip().lower()
    if low.startswith((b"{", b'"', b"[{", b'["', b"[[")):
        return False
    if any(words in low for words in _LOGIN_WORDS):
        return True
    return b"https://" in low and any(address in low for address in _LOGIN_ADDRESSES)


def failed(dialect: Dialect, complaint: Complaint, text: str | None = None) -> Ended:
    """The end of a turn that failed for this reason, with what to do about it."""
    sentence, blame = _SENTENCES[complaint.kind]
    why = complaint.message.rstrip(" .")
    return Ended(False, text, sentence.format(name=dialect.name, why=why, login=dialect.login), blame)


def _printable(line: str) -> str:
    return "".join(char if char.isprintable() else " " for char in line)


def _complaint(kind: str, place: int, number: int, lines: list[str], now_s: float) -> Complaint:
    line = lines[number]
    ends = resets_at(line, now_s)
    if kind == LIMIT and ends is None:
        ends = resets_at("\n".join(lines[number + 1 :]), now_s)
    if kind == CREDIT and ends is not None:  # what comes back by itself is no empty account
        kind = LIMIT
    shown = line
    if place > FAR_CHARS:
        inner = re.search(r'"message"\s?:\s?"([^"\\]{8,300})', line)
        shown = inner[1] if inner else line[place:]
    return Complaint(kind, one_line(shown), ends if kind in (LIMIT, OUTAGE) else None)


def _found(line: str, alone: bool) -> tuple[str, int, bool] | None:
    """The kind of complaint that a line is, where its words begin, and whether it is one by its words.

    A status without a word about an error counts only in a line that is alone.
    """
    # Every replacement is as long as what it replaces, so that places stay.
    line = line.translate({0x2019: "'", 0x2018: "'", 0x201C: '"', 0x201D: '"'})
    line = line.replace("\\n", "  ").replace('\\"', ' "')
    words, codes, statuses, fields, leads = _patterns()
    place, led, status = 0, alone, None
    for _ in range(MOST_LEADS):
        if said := words.match(line, place):
            return tuple(_PHRASES)[(said.lastindex or 0) - 1], place, True
        if led and status is None:
            status = statuses.match(line, place)
        if (lead := leads.match(line, place)) is None:
            break
        led, place = led or lead["error"] is not None, lead.end()
    if code := codes.search(line):
        return tuple(_CODES)[(code.lastindex or 0) - 1], code.start(), True
    if (status := status or fields.search(line)) is None:
        return None
    kind = _STATUSES.get(int(status[1]), OUTAGE if status[1] >= "500" else "")
    return (kind, status.start(), False) if kind else None


@cache
def _patterns() -> tuple[re.Pattern[str], ...]:
    """Of phrases and of codes, with a group for every kind; of a status; of what may stand before them."""
    said = {kind: [_pattern(one) for one in re.split(r"\s*\n\s*| \| ", text)[1:-1]] for kind, text in _PHRASES.items()}
    for kind, names in _CODES.items():
        said[kind].append(rf"(?:{names})(?![\w./(])")
    words = "|".join(f"({'|'.join(forms)})" for forms in said.values())
    codes = "|".join(f"({names})" for names in _CODES.values())
    forms = f"(?i)(?:{words})", rf"""(?i)["']\s?:\s?["'](?:{codes})["']""", _STATUS, _STATUS_FIELD, _LEAD
    return tuple(re.compile(form) for form in forms)


def _pattern(phrase: str) -> str:
    ends = r"""(?=\s*(?:$|[.:;,!?()\[\]{}<>"'`·∙|—]))""" if phrase.endswith(".") else ""
    escaped = re.escape(phrase.removesuffix("."))
    for mark, form in ((r"\ ", r"\s{1,3}"), (r"\*", r"\S{1,40}"), (r"\~", ".{0,300}?")):
        escaped = escaped.replace(mark, form)
    return escaped + ends


def _own_lines(lines: list[str]) -> Iterator[str]:
    """The lines less those of other programs' traces: Python's, Rust's, and those with frames that begin with `at`."""
    number = 0
    while number < len(lines):
        after = number + 1
        if "Traceback (most recent call last)" in lines[number] or "' panicked at " in lines[number]:
            number = _after_traceback(lines, number)
            continue
        while after < len(lines) and re.match(r"\s+at\s.*(?:[)>{]|:\d+)\s*$", lines[after]):
            after += 1
        if after == number + 1 or any(mark in line for line in lines[number:after] for mark in _OWN_TRACE):
            yield lines[number]
        elif lines[after - 1].rstrip().endswith("{"):  # Node prints the error's fields behind its frames
            while after < len(lines) and lines[after - 1].rstrip() != "}":
                after += 1
        number = after


def _after_traceback(lines: list[str], number: int) -> int:
    """Past what is indented below this line, and the line that then names the error."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    number += 1
    while number < len(lines) and (not lines[number].strip() or lines[number][: indent + 1].isspace()):
        number += 1
    return number + 1
