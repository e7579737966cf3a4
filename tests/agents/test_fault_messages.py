"""Faults recognised in the messages of agents, and prose that must not be taken for one."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.agents.adapter import COST_UNKNOWN, MAX_LINE_CHARS, AgentAdapter
from ralphproof.agents.error_messages import (
    CREDIT_ERROR,
    FLAG_ERROR,
    LIMIT_ERROR,
    LOGIN_ERROR,
    MAX_TEXT_CHARS,
    MODEL_ERROR,
    OUTAGE_ERROR,
    TOO_LONG_ERROR,
    FailureReason,
    asks_for_login,
    failure_event,
    find_failure_reason,
)
from ralphproof.engine.agent import THE_CONFIGURATION, THE_SERVICE, Ended

NOW = datetime(2026, 11, 15, 23, 33, tzinfo=UTC).timestamp()
AT_3_33 = datetime(2026, 11, 16, 3, 33, tzinfo=UTC).timestamp()

SAID = {
    LOGIN_ERROR: [
        "Not logged in · Please run /login",
        "Invalid API key · Fix external API key",
        "Invalid API key · Please run /login",
        "Failed to authenticate. API Error: 403 Your account does not have access",
        "Failed to authenticate. API Error: 401 OAuth token has expired. Please obtain a new token.",
        'API Error: 401 {"type":"error","error":{"type":"authentication_error","message":"OAuth token has expired."}}',
        'API Error: 401 {"error":{"message":"OAuth authentication is currently not supported."}} · Please run /login',
        "OAuth token has expired",
        "OAuth token has been revoked. Please run /login",
        "Missing environment variable: `FAKE_KEY`.",
        "unexpected status 401 Unauthorized",
        "unexpected status 401 Unauthorized: Incorrect API key provided: dummy., url: http://127.0.0.1:39087/v1/responses",
        "unexpected status 403 Forbidden: <html>",
        "Your access token could not be refreshed because your refresh token was already used. Please sign in again.",
        '[API Error: {"error":{"type":"invalid_api_key","message":"Incorrect API key provided","code":401}}]',
        "[API Error: 401 Incorrect API key provided]",
        "401 Incorrect API key provided",
        "Incorrect API key provided",
        '{"error":{"code":400,"message":"API key not valid. Please pass a valid API key."}}',
        "Please set an Auth method in your /home/u/.gemini/settings.json or specify GEMINI_API_KEY",
        "When using Gemini API, you must specify the GEMINI_API_KEY environment variable.",
        "Authentication failed with provider at http://127.0.0.1:46783/v1 (HTTP 401).\n  Check your KEY.",
        "Error: No authentication information found.\nCopilot can be authenticated with GitHub using an OAuth Token\n"
        "To authenticate, you can use any of the following methods:\n  • Start 'copilot' and run the '/login' command",
        "No API key found for anthropic.\n\nUse /login, set an API key environment variable, or create models.json",
        "AI_LoadAPIKeyError: Anthropic API key is missing. Pass it using the 'apiKey' parameter.",
        'OpenAI API error (401): {"type":"AuthError","message":"Invalid API key."}',
        "Error: No models available. Set an API key environment variable (ANTHROPIC_API_KEY, OPENAI_API_KEY, etc.)\n"
        "    at createAgentSession (file:///x/node_modules/@mariozechner/pi-coding-agent/dist/core/sdk.js:343:19)",
        "Provider request failed with HTTP 401: {\"error\":{\"code\":\"1001\"}}",
        "Request failed with status code 401",
        "Cached credentials are not valid: invalid_grant",
        "Could not load the default credentials. Browse to https://cloud.google.com/docs/authentication",
    ],
    CREDIT_ERROR: [
        "Credit balance is too low",
        'API Error: 400 {"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}',
        "Quota exceeded. Check your plan and billing details.",
        "insufficient_quota",
        '{"error":{"message":"Something new","type":"insufficient_quota","code":"insufficient_quota"}}',
        "429 You exceeded your current quota, please check your plan and billing details.",
        '✘ Model call failed: {"message":"You have no quota","code":"quota_exceeded"} (Request ID: 676E)\n\n'
        "✘ Quota exceeded. Upgrade: https://github.com/x\n\n✘ Execution failed: 402 You have no quota",
        "402 Insufficient credits. Add more using https://openrouter.ai/credits",
        "Insufficient Balance",
        "unexpected status 402 Payment Required",
        "Error: Out of credits",
        "429 Free allocated quota exceeded.",
    ],
    FLAG_ERROR: [
        "error: unknown option '--no-auto-compact'",
        "Error: Settings file not found: /home/me/settings.json",
        "Error: Invalid JSON provided to --settings",
        "error: unknown option '--x'\n(Did you mean --y?)",
        "unexpected argument '--full-auto'",
        "WARNING: proceeding, even though we could not\nerror: unexpected argument '--full-auto' found"
        "\n\n  tip: to pass it as a value, use '-- --full-auto'\n\nUsage: codex exec [OPTIONS] [PROMPT]\n\nFor more "
        "information, try '--help'.",
        "error: invalid value 'x' for '--sandbox <SANDBOX_MODE>'",
        "error: option '--output-format <format>' argument 'x' is invalid. Allowed choices are text, json.",
        "Usage: gemini [options] [command]\n\nOptions:\n  -m, --model  Model\n\nUnknown argument: foo",
        "Unknown arguments: foo, bar",
        "node: bad option: --x",
        "Not enough arguments following: model",
        "Error: Unknown option: --frob",
        "Error: When using --print, --output-format=stream-json requires --verbose",
        "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons",
    ],
    MODEL_ERROR: [
        "There's an issue with the selected model (claude-x). It may not exist or you may not have access to it.",
        "There’s an issue with the selected model",
        'unexpected status 400 Bad Request: {"detail":"The \'gpt-5\' model is not supported when using Codex with x."}',
        """{"type":"error","error":{"type":"invalid_request_error","message":"The 'g' model is not supported"}}""",
        'API Error: 404 {"type":"error","error":{"type":"not_found_error","message":"model: claude-x"}}',
        "404 The model `gpt-9` does not exist or you do not have access to it.",
        "models/gemini-9 is not found for API version v1beta",
        "ProviderModelNotFoundError: ProviderModelNotFoundError\n data: {\n  providerID: \"minimax\"\n},\n"
        "      at getModel (src/provider/provider.ts:955:13)",
        "Model not found: fake/none.",
        'Error: Model "x" from --model flag is not available.',
        '{"error":{"message":"No such thing","code":"model_not_found"}}',
    ],
    LIMIT_ERROR: [
        "You've hit your limit · resets 3:33am (UTC)",
        "You've hit your session limit · resets 8:30pm (UTC)",
        "You’ve hit your usage limit. Upgrade to Pro (https://x.com/pro) or try again at Nov 16th, 2026 3:33 AM.",
        "■ You've hit your usage limit. Upgrade to Pro or try again in 5 days 22 hours 11 minutes.",
        "Claude AI usage limit reached|1794800000",
        "Claude usage limit reached. Your limit will reset at 12am.",
        "5-hour limit reached ∙ resets 3pm",
        "Weekly limit reached ∙ resets Nov 20, 9am",
        "Opus weekly limit reached ∙ resets Monday 9am",
        "exceeded retry limit, last status: 429 Too Many Requests",
        "API Error: Request rejected (429) · rate limited",
        "API Error: Request rejected (429) · This request would exceed your organization's rate limit of 5 a day.",
        "rate limit exceeded: Rate limit reached. Please try again in 0.5s.",
        "429 Rate limit reached. Please try again in 1s.",
        "Rate limit reached for gpt-5 in organization org-x on tokens per min: Limit 3. Please try again in 20s.",
        '[API Error: [{\n  "error": {\n    "code": 429,\n    "message": "Resource has been exhausted (e.g. quota).",\n'
        '    "status": "RESOURCE_EXHAUSTED"\n  }\n}\n]]\nPlease wait and try again later.',
        '{"error":{"message":"{\\n  \\"error\\": {\\n    \\"code\\": 429,\\n    \\"message\\": \\"You exceeded your '
        'current quota, please check your plan and billing details. For more information on this error, head to: '
        'https://ai.google.dev/gemini-api/docs/rate-limits.\\"}}","code":429}}',
        '{"message":"You exceeded your current quota.","code":429,"status":"RESOURCE_EXHAUSTED"}',
        "TerminalQuotaError: You have exhausted your capacity on this model. Your quota will reset after 1h49m8s.",
        "Quota exceeded. Your quota will reset after 1h2m3s",
        'Attempt 3 failed with status 429. Retrying with backoff... _ApiError: {"error":{"message":"x"}}',
        '{"error":{"message":"Words that nobody knows","code":429}}',
        "Sorry, you've hit a rate limit that restricts the number of requests. Please try again in 20 minutes.",
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
        'API Error (429 {"type":"error","error":{"type":"rate_limit_error","message":"new words"}})',
    ],
    OUTAGE_ERROR: [
        "Selected model is at capacity. Please try a different model.",
        "We’re currently experiencing high demand, which may cause temporary errors.",
        "529 Overloaded",
        '{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}',
        "API Error: The socket connection was closed unexpectedly.",
        "API Error: 529 Overloaded. This is a server-side issue, usually temporary — try again in a moment.",
        "API Error: 500 Internal server error. This is a server-side issue, usually temporary — try again in a moment.",
        'API Error: 500 {"type":"error","error":{"type":"api_error","message":"Internal server error"}}',
        "unexpected status 529 <unknown status code>: Overloaded, url: http://127.0.0.1:44461/v1/responses",
        "Reconnecting... 2/2 (stream disconnected before completion: stream closed before response.completed)",
        "stream disconnected before completion: stream closed before response.completed",
        "stream disconnected before completion: error sending request for url (https://chatgpt.com/x)",
        "Failed to get response from the AI model; retried 5 times (total wait: 16.35 seconds) Last error: 500 boom",
        "500 boom",
        "503 upstream connect error or disconnect/reset before headers. reset reason: connection failure",
        "ECONNREFUSED",
        "connect ECONNREFUSED 127.0.0.1:8080",
        "API Error: Unable to connect to API (ECONNRESET)",
        "getaddrinfo ENOTFOUND api.anthropic.com",
        "Error: getaddrinfo EAI_AGAIN api.anthropic.com\n    at GetAddrInfoReqWrap.onlookupall (node:dns:122:26) {\n"
        "  errno: -3001,\n  code: 'EAI_AGAIN',\n}",
        "API Error: Connection error.",
        "TypeError: fetch failed",
        "FetchError: request to https://api.x.com failed, reason: connect ETIMEDOUT 1.2.3.4:443",
        "Error: socket hang up",
        "Request timed out.",
        "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>nginx</body>",
        "API Error: 502 <html><head><title>502 Bad Gateway</title></head></html>",
        "unexpected status 503 Service Unavailable: no healthy upstream",
        "HTTP/1.1 504 Gateway Time-out",
        "504 Gateway Timeout",
        "Proxy response (503) !== 200 when HTTP Tunneling",
        '{"type":"server_error","message":"boom","code":500,"status":"server_error"}',
    ],
    TOO_LONG_ERROR: [
        "Prompt is too long",
        "Prompt is too long · the request is ~250000 tokens (limit 200000)",
        'API Error: 400 {"error":{"type":"invalid_request_error","message":"prompt is too long: 21 tokens > 20"}}',
        "context_length_exceeded",
        '{"error": {"type": "x", "message": "Some other words", "code": "context_length_exceeded"}}',
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "400 This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        "Codex ran out of room in the model's context window. Start a new thread.",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        "API Error: 413 payload",
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "text"), [pytest.param(kind, text, id=text[:60]) for kind, texts in SAID.items() for text in texts]
)
def test_a_complaint_is_known_by_its_words(kind: str, text: str) -> None:
    found = find_failure_reason(text, NOW)
    assert found is not None
    assert found.kind == kind
    assert found.message
    assert find_failure_reason(text.replace("'", "’"), NOW) is not None or "'" not in text


PROSE = [
    "",
    "I added a 429 retry and a login page; the rate limit test now passes",
    "fixed the authentication error handling",
    "Fixed the authentication error handling: 401 Unauthorized now leads to the login page.",
    "The client retries on 529 Overloaded and on ECONNREFUSED.",
    "- 401 Unauthorized: the user is sent to the login page\n- 429 Too Many Requests: retried\n* 503: retried",
    "`429 Too Many Requests` is now retried.",
    "## Rate limit exceeded\n\nThe page is done.",
    "401 Unauthorized responses now redirect.\nAll 12 tests pass.",
    "500 tests pass",
    "Error: 500 lines changed",
    "429 files changed, 12 insertions",
    "Invalid API key handling is done.",
    "Unauthorized users are sent home.",
    "ECONNREFUSED is handled by a retry.",
    "Overloaded operators are gone.",
    "Internal server error pages have a new look.",
    "Model not found pages are tested.",
    "Rate limited endpoints have tests; authentication required ones too.",
    "I could not run the tests: the API key is not set.",
    "The test for `insufficient_quota` fails.",
    "rate_limit.py has a new test",
    "Reached maximum number of turns (1)",
    "No conversation found with session ID: 99999999-2222-4333-8444-555555555555",
    "API Error: Claude's response exceeded the 128000 output token maximum.",
    "The model returned an empty response with no text or thoughts.",
    "Error: API request for getUserInfo failed: 404",
    "unexpected status 404 Not Found",
    "Warning: running headless with --yolo / approval-mode=yolo and no sandbox.",
    "Warning: 256-color support not detected.",
    "YOLO mode is enabled. All tool calls will be automatically approved.",
    "Reading additional input from stdin...",
    "2026-11-15T18:30:05.223226Z ERROR codex_core::tools::router: error=unsupported call: apply_patch",
    "Exit code 3\noops",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    connect()\n'
    "ConnectionRefusedError: [Errno 111] Connection refused",
    'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    client.chat()\n    ^^^^^^^^\n\n'
    "AuthenticationError: 401 Incorrect API key provided",
    '  Traceback (most recent call last):\n    File "a.py", line 3\n  Error: 429 Too Many Requests',
    "requests.exceptions.HTTPError: 401 Client Error: UNAUTHORIZED for url: http://localhost:5000/",
    "Error: connect ECONNREFUSED 127.0.0.1:5432\n    at TCPConnectWrap.afterConnect [as x] (node:net:1555:16) {\n"
    "  errno: -111,\n  code: 'ECONNREFUSED',\n  syscall: 'connect'\n}\n\nNode.js v20.1.0",
    "AxiosError: Request failed with status code 401\n    at settle (/home/u/app/node_modules/axios/x.js:19:12)\n"
    "    at async main (/home/u/app/index.js:3:1)",
    'Exception in thread "main" Error: 503 Service Unavailable\n\tat com.x.Main.main(Main.java:5)',
    "Error: Unauthorized\n    at auth (src/auth.ts:3:9)\n    at <anonymous>",
    "thread 'main' panicked at src/main.rs:3:5:\nConnection refused (os error 111)",
]  # fmt: skip


@pytest.mark.parametrize("text", PROSE, ids=[text[:60] for text in PROSE])
def test_prose_and_the_trace_of_another_program_are_no_complaint(text: str) -> None:
    assert find_failure_reason(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "resets_at"),
    [
        ("You've hit your limit · resets 3:33am (UTC)", AT_3_33),
        ("Claude AI usage limit reached|1794799980", AT_3_33),
        ("You have exhausted your capacity on this model. Your quota will reset after 4h", AT_3_33),
        ("429 You exceeded your current quota. Please retry in 4 hours.", AT_3_33),
        ('"message": "Resource has been exhausted",\n  "details": [\n    {"retryDelay": "14400s"}', AT_3_33),
        ("529 Overloaded. Retry after 30", NOW + 30),
        ("exceeded retry limit, last status: 429 Too Many Requests", None),
        ("Not logged in · resets in 20s", None),
    ],
)
def test_a_complaint_says_when_it_will_be_over(text: str, resets_at: float | None) -> None:
    found = find_failure_reason(text, NOW)
    assert found is not None
    assert found.resets_at == resets_at


def test_what_comes_back_by_itself_is_a_limit_and_no_empty_account() -> None:
    spent = find_failure_reason("Quota exceeded. Check your plan.", NOW)
    pausing = find_failure_reason("Quota exceeded. Try again in 20s.", NOW)
    assert spent == FailureReason(CREDIT_ERROR, "Quota exceeded. Check your plan.")
    assert pausing == FailureReason(LIMIT_ERROR, "Quota exceeded. Try again in 20s.", NOW + 20)


def test_the_last_complaint_counts() -> None:
    found = find_failure_reason("Error: 401 Unauthorized\nretried\nYou've hit your limit\nbye", NOW)
    assert found == FailureReason(LIMIT_ERROR, "You've hit your limit")


def test_an_outage_counts_only_if_nothing_else_is_complained_of() -> None:
    found = find_failure_reason("Credit balance is too low\nError: connect ECONNREFUSED 127.0.0.1:4318", NOW)
    assert found == FailureReason(CREDIT_ERROR, "Credit balance is too low")


def test_words_beat_a_status() -> None:
    found = find_failure_reason("Error: Credit balance is too low\nstatus: 400\nstatus: 429", NOW)
    assert found == FailureReason(CREDIT_ERROR, "Error: Credit balance is too low")


def test_the_message_is_one_bounded_line_without_control_characters() -> None:
    found = find_failure_reason(
        "x\r\n\x1b[31mNot logged\tin\x1b[0m\x07 · Please\u202e run /login " + "y" * 9999 + "\nz", NOW
    )
    assert found is not None
    assert found.message.startswith("Not logged in · Please run /login yyy")
    assert len(found.message) == MAX_LINE_CHARS
    assert found.message.isprintable()


def test_of_a_long_line_the_message_that_it_holds_is_told() -> None:
    report = "Error when talking to Gemini API Full report available at: /tmp/" + "x" * 150 + ".json _ApiError: "
    inner = '{"error":{"type":"invalid_api_key","message":"Incorrect API key provided","code":401}}'
    assert find_failure_reason(report + inner, NOW) == FailureReason(LOGIN_ERROR, "Incorrect API key provided")
    assert find_failure_reason(report + "429 Too Many Requests", NOW) == FailureReason(LIMIT_ERROR, "Too Many Requests")


WAITING = [
    b"https://ampcode.com/auth/cli-login?authToken=x&callbackPort=35789",
    b"  https://amp.example.com/auth/cli-login?authToken=x  \n",
    b"When prompted, paste your code here: ",
    b"Please visit the following URL to authorize the application:",
    b"Enter the authorization code: ",
    b"Code Assist login required.",
    b"Opening authentication page in your browser. Do you want to continue? [Y/n]",
    b"https://accounts.google.com/o/oauth2/v2/auth?redirect_uri=x",
    b"To authenticate, visit \x1b[1mhttps://github.com/login/device\x1b[0m and enter code ABCD-1234",
    b"=== Qwen OAuth Device Authorization ===",
    b"Please visit the following URL in your browser to authorize:",
    b"https://chat.qwen.ai/authorize?user_code=XXXX&client=qwen-code",
    b"Waiting for authorization to complete...",
    b"Go to: https://claude.ai/oauth/authorize?code=true&client_id=x",
    b"[INFO] Paste the authorization code here:",
    b"https://auth.openai.com/codex/device",
]

NOT_WAITING = [
    b"",
    b"Welcome! Docs: https://example.com/docs/login",
    b"New version 2.0 available: https://github.com/x/y/releases",
    b"Loaded cached credentials.",
    b"Logged in as u",
    b"Package extraction took 6312ms",
    b"If your browser does not open automatically, go to http://localhost:8501",
    b"I wrote the page /oauth/authorize? and the page /login/device",
    b'{"type":"text","text":"Enter the authorization code: https://github.com/login/device"}',
    b'  {"text":"https://github.com/login/device"',
    b'[{"text":"Enter the authorization code"}]',
    b'["https://github.com/login/device"]',
    b'"Enter the authorization code"',
    b"\xff\xfe\x00",
]


@pytest.mark.parametrize("line", WAITING)
def test_a_line_that_waits_for_a_login_is_known(line: bytes) -> None:
    assert asks_for_login(line)


@pytest.mark.parametrize("line", NOT_WAITING)
def test_json_and_ordinary_banners_wait_for_nobody(line: bytes) -> None:
    assert not asks_for_login(line)


class Plain(AgentAdapter):
    """A dialect with nothing particular about it."""

    name = "agent"
    cost = COST_UNKNOWN
    login = "run `agent login`"


@pytest.mark.parametrize(
    ("kind", "blame", "told"),
    [
        (LOGIN_ERROR, THE_CONFIGURATION, ("agent is not logged in (it {broke}); run `agent login`",)),
        (CREDIT_ERROR, THE_CONFIGURATION, ("agent has no credit left (it {broke});", "top up", "--agent")),
        (FLAG_ERROR, THE_CONFIGURATION, ("flag", "(it {broke});", "agent.flags", "`ralph doctor`")),
        (MODEL_ERROR, THE_CONFIGURATION, ("model", "(it {broke});", "--model")),
        (LIMIT_ERROR, THE_SERVICE, ("limit: it {broke}",)),
        (OUTAGE_ERROR, THE_SERVICE, (": it {broke}",)),
        (TOO_LONG_ERROR, "", ("prompt", "context", "too long: it {broke}")),
    ],
)
def test_a_failed_turn_says_what_to_do(kind: str, blame: str, told: tuple[str, ...]) -> None:
    ended = failure_event(Plain(), FailureReason(kind, "it {broke}."), "last words")
    assert (ended.ok, ended.text, ended.blame) == (False, "last words", blame)
    for words in told:
        assert words in (ended.error or "")
    assert failure_event(Plain(), FailureReason(kind, "x")).text is None


def test_every_kind_that_is_found_has_its_sentence() -> None:
    for texts in SAID.values():
        found = find_failure_reason(texts[0], NOW)
        assert found is not None
        assert isinstance(failure_event(Plain(), found), Ended)


MEGABYTE = 1024 * 1024


@pytest.mark.parametrize(
    "hostile",
    [
        "a", "\n", "a\n", " ", "{\n", "(", "<a", "<a>", "401 ", "error: ", "error ", "an api error ", '{"error":',
        '"type":"error",', 'model "', "model '", 'Error: model """""""""', "the model `", "you've hit your ",
        "number of has exceeded your ", "claude is not available with the claude ", "error: you've hit your a\n",
        "when using you must specify the ", "codex_a::", "resets 1", "\x1b]", "\x1b[",
        "    at x (y:1)\n", "Traceback (most recent call last)\n",
    ],
)  # fmt: skip
def test_a_megabyte_of_hostile_text_costs_little(hostile: str) -> None:
    text = hostile * (MEGABYTE // len(hostile))
    find_failure_reason("x", NOW)  # its patterns are made once
    started = time.process_time()
    find_failure_reason(text, NOW)
    find_failure_reason(text.replace(" ", "\n"), NOW)
    asks_for_login(text.encode())
    assert time.process_time() - started < 1.5


def test_of_a_long_text_both_ends_are_read_and_no_more() -> None:
    filler = "\n" + "x" * MAX_TEXT_CHARS + "\n"
    assert find_failure_reason(f"Not logged in{filler}", NOW) is not None
    assert find_failure_reason(f"{filler}Not logged in", NOW) is not None
    assert find_failure_reason(f"{filler}Not logged in{filler}", NOW) is None


PIECES = [*PROSE, *(text for texts in SAID.values() for text in texts), "\n", " ", ": ", "{", '"', "\ud800"]


@given(st.text() | st.lists(st.sampled_from(PIECES), max_size=4).map("".join))
def test_no_text_makes_it_raise(text: str) -> None:
    found = find_failure_reason(text, NOW)
    if found is not None:
        assert found.message.isprintable()
        assert len(found.message) <= MAX_LINE_CHARS
        assert found.resets_at is None or found.resets_at >= NOW
        assert failure_event(Plain(), found).error


@given(st.binary())
def test_no_bytes_make_it_raise(line: bytes) -> None:
    assert asks_for_login(line) in (True, False)


@given(st.dictionaries(st.text(max_size=5), st.sampled_from([line.decode("utf-8", "replace") for line in WAITING])))
def test_no_line_of_json_waits_for_a_login(said: dict[str, str]) -> None:
    assert not asks_for_login(json.dumps(said).encode())
