"""The scripted model says what its script says, in each API, and real agents take it for a model."""

from __future__ import annotations

import calendar
import gzip
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.agents import isolated_network
from tests.agents.model.heard import CLIENTS, Answer, heard, post
from tests.agents.model.script import Json
from tests.agents.model_server import ModelServer, shown
from tests.agents.real_clis import CLAUDE_LOGGED_IN, program
from tests.needs import require
from tests.ralph import until

APIS = list(CLIENTS)
each_api = pytest.mark.parametrize("api", APIS)
streamed_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def ask(model: ModelServer, api: str = "anthropic", **how: Any) -> Answer:
    return CLIENTS[api].ask(model.port, **how)


def model_with(*turns: Json, **script: Any) -> ModelServer:
    return ModelServer({"turns": list(turns), **script})


@each_api
@streamed_or_not
def test_an_answer_holds_what_its_turn_says(api: str, stream: bool) -> None:
    text = "I will write it, in words that need more than one piece of a stream."
    calls = [{"write": ["a.txt", "content " * 20]}, {"tool": "other", "input": {"x": 1}}]
    with model_with({"text": text, "thinking": "Hm.", "calls": calls}) as model:
        found = heard(api, ask(model, api, stream=stream), stream)
    assert found.text == text
    assert found.thinking == ("" if api == "chat" else "Hm.")  # that API has no place for it
    assert found.calls == [("Write", {"file_path": "a.txt", "content": "content " * 20}), ("other", {"x": 1})]


@each_api
@streamed_or_not
@pytest.mark.parametrize("turn", [{}, {"empty": True, "text": "unsaid"}])
def test_an_empty_answer_is_whole_but_says_nothing(api: str, stream: bool, turn: Json) -> None:
    with model_with(turn) as model:
        found = heard(api, ask(model, api, stream=stream), stream)
    assert (found.text, found.thinking, found.calls) == ("", "", [])


STOPS = [
    ("anthropic", {"text": "x"}, "end_turn"), ("anthropic", {"calls": [{"read": "f"}]}, "tool_use"),
    ("anthropic", {"refusal": "no"}, "refusal"), ("anthropic", {"stop_reason": "max_tokens"}, "max_tokens"),
    ("responses", {"text": "x"}, "completed"), ("responses", {"refusal": "no"}, "completed"),
    ("responses", {"stop_reason": "max_output_tokens"}, "max_output_tokens"),
    ("chat", {"text": "x"}, "stop"), ("chat", {"calls": [{"read": "f"}]}, "tool_calls"),
    ("chat", {"refusal": "no"}, "content_filter"), ("chat", {"stop_reason": "length"}, "length"),
    ("gemini", {"text": "x"}, "STOP"), ("gemini", {"refusal": "no"}, "SAFETY"),
    ("gemini", {"stop_reason": "MAX_TOKENS"}, "MAX_TOKENS"),
]  # fmt: skip


@streamed_or_not
@pytest.mark.parametrize(("api", "turn", "stop"), STOPS)
def test_an_answer_says_why_it_ends(api: str, turn: Json, stop: str, stream: bool) -> None:
    with model_with(turn) as model:
        found = heard(api, ask(model, api, stream=stream), stream)
    assert found.stop == stop
    assert found.text == turn.get("text", turn.get("refusal", ""))


@streamed_or_not
@pytest.mark.parametrize(("api", "tokens"), [("anthropic", (5, 6)), *((api, (105, 6)) for api in APIS[1:])])
def test_usage_can_be_scripted_and_counts_the_cache_as_the_api_does(
    api: str, tokens: tuple[int, int], stream: bool
) -> None:
    usage = {"input": 5, "output": 6, "cache_read": 90, "cache_write": 10}
    with model_with({"text": "x", "usage": usage}) as model:
        assert heard(api, ask(model, api, stream=stream), stream).tokens == tokens


@each_api
@pytest.mark.parametrize("status", [401, 403, 429, 500, 529])
def test_an_error_stays_as_often_as_scripted(api: str, status: int) -> None:
    failing = {"status": status, "headers": {"retry-after": "7"}, "times": 2}
    with model_with(failing, {"status": status, "body": "plain words"}, {"text": "well again"}) as model:
        answers = [ask(model, api) for _ in range(4)]
    assert [answer.status for answer in answers] == [status, status, status, 200]
    assert answers[0].json["error"]["message"] == f"scripted {status}"
    assert answers[1].headers["retry-after"] == "7"
    assert answers[2].raw == "plain words"
    assert heard(api, answers[3], stream=False).text == "well again"


def test_an_error_can_stay_for_ever() -> None:
    with model_with({"status": 500, "times": -1}, {"text": "never"}) as model:
        assert [ask(model).status for _ in range(5)] == [500] * 5
        assert [request["turn"] for request in model.requests] == [0] * 5


@each_api
def test_a_usage_limit_says_when_it_resets(api: str) -> None:
    at = int(time.time()) + 7200
    with model_with({"limit": {"resets_at": at}}) as model:
        answer = ask(model, api, stream=True)
    assert answer.status == 429
    told = answer.raw + json.dumps(answer.headers)
    assert str(at) in told if api in ("anthropic", "responses") else any(str(7200 - s) in told for s in range(5))


def test_a_warning_of_a_limit_comes_with_an_answer() -> None:
    with model_with({"text": "still here", "limit": {"resets_in_s": 60, "used": 0.93}}) as model:
        answer = ask(model, stream=True)
    assert heard("anthropic", answer, stream=True).text == "still here"
    assert answer.headers["anthropic-ratelimit-unified-status"] == "allowed_warning"
    assert answer.headers["anthropic-ratelimit-unified-5h-utilization"] == "0.93"


@each_api
def test_a_cut_stream_ends_before_anything_in_it_is_whole(api: str) -> None:
    with model_with({"text": "half of it", "drop": True}, {"text": "all of it"}) as model:
        cut, whole = ask(model, api, stream=True), ask(model, api, stream=True)
    assert "half of it" in cut.raw
    assert not any(word in cut.raw for word in ("_stop", ".done", "completed", '"finish_reason": "s', "finishReason"))
    assert heard(api, whole, stream=True).text == "all of it"


@each_api
def test_an_error_can_come_inside_a_stream(api: str) -> None:
    with model_with({"sse_error": {"type": "overloaded_error", "message": "too much"}}) as model:
        answer = ask(model, api, stream=True)
    last = answer.events[-1]
    assert answer.status == 200
    assert last.get("error", last.get("response", {}).get("error"))["message"] == "too much"


def test_a_held_answer_comes_when_its_file_does(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with model_with({"text": "at last", "hold": str(go)}) as model, ThreadPoolExecutor() as pool:
        answer = pool.submit(ask, model)
        until(lambda: model.requests, "the request")
        assert not answer.done()
        go.touch()
        assert heard("anthropic", answer.result(), stream=False).text == "at last"


def test_closing_the_server_frees_those_who_wait(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        with model_with({"hold": str(tmp_path / "never")}) as model:
            answer = pool.submit(ask, model)
            until(lambda: model.requests, "the request")
        with pytest.raises(ConnectionError):
            answer.result()


def test_a_delayed_answer_takes_its_time() -> None:
    with model_with({"delay_s": 0.2}) as model:
        begun = time.monotonic()
        ask(model)
    assert time.monotonic() - begun >= 0.2


def test_requests_without_tools_use_up_no_turn() -> None:
    with model_with({"text": "the work"}, aux="a title") as model:
        assert heard("anthropic", ask(model, tools=False), stream=False).text == "a title"
        counted = post(model.port, "/v1/messages/count_tokens", b"{}")
        assert heard("anthropic", ask(model), stream=False).text == "the work"
    assert counted.json == {"input_tokens": 1000}
    assert [request["turn"] for request in model.requests] == [None, None, 0]


QUESTION = "You judge.\n\nThe nonce of this call is 0123abcd.\n\nThe work follows."
RULED = {
    "nonce": "0123abcd",
    "criteria": [
        {"number": 1, "met": True, "evidence": "+ a line", "reason": "The diff shows it."},
        {"number": 2, "met": False, "evidence": "", "reason": "The diff does not show it."},
    ],
}


@each_api
@streamed_or_not
@pytest.mark.parametrize("tool", [True, False], ids=["by-a-tool", "as-text"])
def test_a_judges_question_is_answered_with_its_nonce_in_the_form_that_is_asked_for(
    api: str, stream: bool, tool: bool
) -> None:
    """Also where it offers no tools at all, as a judge's question may."""
    client = CLIENTS[api]
    tools = json.loads(json.dumps(client.tools).replace("Write", "StructuredOutput")) if tool else []
    with model_with({"rules": ["+ a line", None]}) as model:
        body = {"model": "m", "stream": stream, "prompt": [{"text": QUESTION}], "tools": tools}
        path = client.stream_path if stream else client.path
        found = heard(api, post(model.port, path, json.dumps(body).encode()), stream)
        assert [request["turn"] for request in model.requests] == [0]
    if tool:
        assert found.calls == [("StructuredOutput", RULED)]
    else:
        assert (json.loads(found.text), found.calls) == (RULED, [])


def test_a_turn_that_rules_is_no_answer_to_anything_else() -> None:
    with model_with({"rules": ["+ a line"]}) as model:
        answer = ask(model)
    assert (answer.status, "no judge's question" in answer.raw) == (400, True)


def test_a_request_beyond_the_script_fails_unless_an_end_is_scripted() -> None:
    with model_with({"text": "x"}) as bare, model_with(end={"text": "the end"}) as ended:
        assert [ask(bare).status for _ in range(2)] == [200, 400]
        assert [heard("anthropic", ask(ended), stream=False).text for _ in range(2)] == ["the end"] * 2


def test_a_misspelt_turn_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="txet"):
        model_with({"txet": "x"})


def test_a_request_is_recorded_without_its_keys() -> None:
    with model_with({"text": "x"}) as model:
        ask(model, headers={"x-api-key": "secret", "authorization": "Bearer secret"})
        assert shown(model.requests[0]).splitlines()[:2] == ["m", "do it"]
        assert "secret" not in json.dumps(model.requests)


def test_a_packed_request_is_understood() -> None:
    def chunks() -> Iterator[bytes]:
        packed = gzip.compress(json.dumps({"tools": CLIENTS["anthropic"].tools}).encode())
        yield from (packed[:9], packed[9:])

    with model_with({"text": "x"}) as model:
        post(model.port, "/v1/messages", chunks(), {"transfer-encoding": "chunked", "content-encoding": "gzip"})
        assert model.requests[0]["turn"] == 0


def test_as_a_program_it_tells_its_port_and_logs_requests(tmp_path: Path) -> None:
    script, port_file, log = tmp_path / "script.json", tmp_path / "port", tmp_path / "log"
    script.write_text(json.dumps({"turns": [{"text": "x"}]}))
    words = ["--script", str(script), "--port-file", str(port_file), "--log", str(log)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.agents.model_server", *words], cwd=isolated_network.ROOT
    ) as server:
        until(port_file.exists, "the port")
        CLIENTS["chat"].ask(int(port_file.read_text()))
        server.send_signal(signal.SIGTERM)
    assert server.returncode == 0
    assert [(request["path"], request["turn"]) for request in isolated_network.requests_in(log)] == [
        ("/v1/chat/completions", 0)
    ]


CLAUDE = ("-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions")
CODEX = ("exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check", "-")


def perform(tmp_path: Path, name: str, words: tuple[str, ...], *turns: Json, **via: Any) -> tuple[int, list[Any], str]:
    """A real agent on the stage, its prompt on standard input: exit code, events, standard error."""
    found = program(name)
    require(found is not None, f"{name} (make agents)")
    (tmp_path / "project").mkdir()
    script, log = tmp_path / "script.json", tmp_path / "requests.jsonl"
    script.write_text(json.dumps({"turns": turns}))
    argv = [*isolated_network.via(script, log, [name], tmp_path / "home", **via), str(found), *words]
    done = subprocess.run(
        argv, cwd=tmp_path / "project", input="the prompt", capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(("name", "words"), [("claude", CLAUDE), ("codex", CODEX)])
def test_a_real_agent_does_what_the_script_says_and_reaches_loopback_only(
    name: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    look = "cat hello.txt /proc/net/dev; echo proxy=$HTTPS_PROXY"
    turns = ({"calls": [{"write": ["hello.txt", "written\n"]}]}, {"calls": [{"shell": look}]}, {"text": "All is done."})
    code, events, errors = perform(tmp_path, name, words, *turns)
    assert (code, (tmp_path / "project/hello.txt").read_text()) == (0, "written\n")
    assert any("All is done." in json.dumps(event) for event in events)
    main = [
        request for request in isolated_network.requests_in(tmp_path / "requests.jsonl") if request["turn"] is not None
    ]
    assert [request["turn"] for request in main] == [0, 1, 2]
    assert "the prompt" in shown(main[0])
    seen = shown(main[2])
    assert "written" in seen
    if isolated_network.NOT_PRIVATE in errors:
        assert f"proxy={isolated_network.NOWHERE}" in seen
    else:
        assert re.findall(r"^ *(\w+):(?: +\d+){16}$", seen, re.MULTILINE) == ["lo"]


def test_claude_tells_when_a_scripted_limit_resets(tmp_path: Path) -> None:
    at = int(time.time()) + 7200
    code, events, _ = perform(tmp_path, "claude", CLAUDE, {"limit": {"resets_at": at}}, env=CLAUDE_LOGGED_IN)
    [told] = [event["rate_limit_info"] for event in events if event["type"] == "rate_limit_event"]
    assert (code, told["status"], told["rateLimitType"], told["resetsAt"]) == (1, "rejected", "five_hour", at)


def test_codex_tells_when_a_scripted_limit_resets(tmp_path: Path) -> None:
    at = calendar.timegm((2031, 5, 6, 7, 8, 0))
    code, events, _ = perform(tmp_path, "codex", CODEX, {"limit": {"resets_at": at}}, env={"TZ": "UTC"})
    assert (code, events[-1]["type"]) == (1, "turn.failed")
    assert events[-1]["error"]["message"].endswith("try again at May 6th, 2031 7:08 AM.")
