"""Codex 0.166.0: what it printed is told as it was meant, and it is called as it wants to be called."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ralphproof.agents.adapter import AgentInvocation
from ralphproof.agents.codex import Codex
from ralphproof.engine.agent import (
    AgentFault,
    ConfigFault,
    Denied,
    Ended,
    Event,
    Fault,
    Progress,
    Said,
    ServiceFault,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Unparsed,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.replay import NOW_S, Played, Recording, brief_in, cuts, play, recorded

RECORDINGS = recorded("codex")
GPT = "gpt-5.5-codex"
OK, FAILED = Exit(0), Exit(1)
DONE = "All done.\n<promise>COMPLETE</promise>"
COMPLETE = "<promise>COMPLETE</promise>"
WRITE = "shell cat > 'hello.txt' <<'EOS' hello EOS"
RUN = "shell cat hello.txt && echo shell-ran > ran.txt"
WAIT = "shell echo $$ > started.tmp; mv started.tmp started; exec python3 -c 'import time; time.sleep(60)'"
METADATA = (
    "Model metadata for `fake-model` not found. Defaulting to fallback metadata; this can degrade performance and"
    " cause issues."
)
RESETS_AT = datetime(2026, 11, 16, 3, 33, tzinfo=UTC).timestamp()
STDERR = "2026-11-15T18:30:05.223226Z ERROR codex_core::tools::router: error="


def price(model: str | None, usage: Usage) -> int | None:
    """Micro-dollars: 2 a token of input, 10 of output, 0.2 read from the cache, 2.5 written to it."""
    if model is None:
        return None
    return (20 * usage.input + 100 * usage.output + 2 * usage.cache_read + 25 * usage.cache_write) // 10


def asked(times: int) -> Usage:
    """Every answer of the first scripted model: 1000 tokens of input, 800 of them from the cache, and 50 of output."""
    return Usage(200 * times, 50 * times, 800 * times)


def asked_more(times: int) -> Usage:
    """Every answer of the second one: 1810 tokens of input, 800 of them from the cache, and 50 of output."""
    return Usage(1010 * times, 50 * times, 800 * times)


@dataclass(frozen=True)
class Case:
    """What a recording means. `says` are parts of the error; without `usage` its cost is unknown."""

    text: str = ""
    usage: Usage | None = None
    micro_usd: int | None = None
    tools: tuple[str, ...] = ()
    errors: int = 0
    at_least: bool = False
    exit: Exit = OK
    err: str = ""
    fault: type[Fault] | None = None
    says: tuple[str, ...] = ()
    resets_at: float | None = None
    unparsed: int = 0
    session: bool = True

    @property
    def ok(self) -> bool:
        return self.fault is None and bool(self.text)


def refused(fault: type[Fault], *says: str, **more: object) -> Case:
    """A turn that came to nothing."""
    return Case(exit=FAILED, fault=fault, says=says, **more)  # type: ignore[arg-type]


# An answer of the first model: 200 × 2 + 50 × 10 + 800 × 0.2 = 400 + 500 + 160 = 1060 micro-dollars.
# An answer of the second one: 1010 × 2 + 50 × 10 + 800 × 0.2 = 2020 + 500 + 160 = 2680 micro-dollars.
CASES = {
    # It worked.
    "success-tools": Case(DONE, asked(3), 3180, (WRITE, RUN)),
    "stdin": Case(DONE, asked(3), 3180, (WRITE, RUN)),
    "last-message": Case(DONE, asked(3), 3180, (WRITE, RUN)),
    "workspace-write": Case(DONE, asked(3), 3180, (WRITE, RUN)),
    "hooks": Case("Second stop <promise>COMPLETE</promise>", asked(4), 4240, ("shell echo hi > hi.txt",)),
    "apply-patch": Case(
        COMPLETE, asked(4), 4240, ("apply_patch /workspace/proj/p2.txt",),
        err=f"{STDERR}unsupported call: apply_patch\n",
    ),
    "web-search": Case("found", asked_more(1), 2680, ("web_search ralph loop",)),
    # Its account is that of the session, of which nobody told here what it had cost before.
    "resume": Case("two", asked(2), 2120),
    # 2600 tokens of input, of them 2000 read and 400 written: 200 × 2 + 100 × 10 + 2000 × 0.2 + 400 × 2.5
    "cache-write": Case("ok", Usage(200, 100, 2000, 400), 2800),
    # A command that still runs at the end is not completed; the message after its beginning is the last one.
    "background": Case(f"It runs.\n{COMPLETE}", asked_more(2), 5360, ("shell echo begun; sleep 300",)),
    # Three answers were given, but those to agents of its own are not in its account.
    "spawn": Case("a", asked_more(2), 5360, ("spawn_agent do x",), at_least=True),
    # Tools that failed, or were not permitted. Of the latter only stderr tells.
    "tool-error": Case(
        f"Failed.\n{COMPLETE}", asked(2), 2120, ("shell echo oops >&2; exit 3",), errors=1
    ),
    "sandbox-ww": Case(
        COMPLETE, asked(2), 2120,
        (
            'shell echo in > inside.txt; echo out > /home/agent; echo rc=$?; python3 -c "import socket;'
            " socket.create_connection(('127.0.0.1',{PORT}),2); print('net ok')\"",
        ),
        errors=1,
    ),
    "mcp": Case("3", asked_more(4), 10_720, ("lab.add", "lab.add"), errors=1),
    "escalate": Case("No.", asked_more(2), 5360, err=f"{STDERR}approval policy is Never; reject command\n"),
    "patch-denied": Case("no", asked_more(3), 8040, err=f"{STDERR}patch rejected: writing outside of the project\n"),
    # It ended well and said nothing last, whatever it had said before.
    "empty": Case("", asked(1), 1060),
    "refusal": Case("", asked_more(1), 2680),
    "talk-then-tool": Case("", asked_more(2), 5360, ("shell echo hi",)),
    # It cannot work with these settings.
    "api-401": refused(ConfigFault, "not logged in", "Incorrect API key provided", "run `codex login`"),
    "api-402": refused(ConfigFault, "credit", "Payment Required"),
    "api-403": refused(ConfigFault, "not logged in", "403 Forbidden"),
    "no-key": refused(ConfigFault, "not logged in", "Missing environment variable: `FAKE_KEY`"),
    "no-login": refused(ConfigFault, "not logged in", "401 Unauthorized: Missing bearer"),
    "api-429-quota": refused(ConfigFault, "credit", "Quota exceeded"),
    "sse-quota": refused(ConfigFault, "credit", "Quota exceeded"),
    "api-404-model": refused(ConfigFault, "model", "`zz` does not exist", "--model"),
    "api-400-model": refused(ConfigFault, "(The 'zz' model is not supported when using Codex with a ChatGPT account)"),
    "full-auto": Case(
        exit=Exit(2), fault=ConfigFault, says=("flag", "'--full-auto'"), session=False,
        err="error: unexpected argument '--full-auto' found\n\nUsage: codex exec [OPTIONS] [PROMPT]\n",
    ),
    # The service is limited or down.
    "api-429": refused(ServiceFault, "429 Too Many Requests"),
    "api-429-usage-limit": refused(ServiceFault, "hit your usage limit", resets_at=RESETS_AT),
    "sse-failed": refused(ServiceFault, "Rate limit reached", resets_at=NOW_S + 0.5),
    "api-500": refused(ServiceFault, "experiencing high demand"),
    "api-502": refused(ServiceFault, "502 Bad Gateway"),
    "api-503": refused(ServiceFault, "at capacity"),
    "api-529": refused(ServiceFault, "529", "Overloaded"),
    "drop": refused(ServiceFault, "stream disconnected before completion"),
    # Without a network it tries again for ever, until its time is up.
    "no-network": Case(
        exit=Exit(None, "timeout", 15), fault=ServiceFault, says=("waiting for network (Connection failed",)
    ),
    # Its own work failed.
    "api-400-context": refused(AgentFault, "too long", "exceeds the context window of this model"),
    "incomplete": refused(AgentFault, "Incomplete response returned, reason: max_output_tokens", text="half"),
    "resume-unknown": refused(
        AgentFault, "no rollout found for thread id", session=False,
        err="Error: thread/resume: thread/resume failed: no rollout found for thread id 01a1e1a7 (code -32600)\n",
    ),
    "bad-config": refused(
        AgentFault, "without its result", session=False,
        err="Error loading config.toml:\n/home/me/.codex/config.toml:12:6: key with no value, expected `=`\n",
    ),
    "sigint": refused(AgentFault, "exit code 1 and without its result", text="starting", tools=(WAIT,)),
    "sigterm": Case(
        "starting", tools=(WAIT,), exit=Exit(None, signal=15), fault=AgentFault, says=("by signal 15",)
    ),
    "sigkill": Case(
        "starting", tools=(WAIT,), exit=Exit(None, signal=9), fault=AgentFault, says=("by signal 9",)
    ),
    # What is no stream is no result either, whatever its exit code.
    "text": Case(fault=AgentFault, says=("exit code 0 and without its result",), unparsed=2, session=False),
    "sandbox-ww-text": Case(fault=AgentFault, says=("without its result",), unparsed=1, session=False),
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of Codex that is empty, and a clock in UTC: it says local times."""
    folder = tmp_path / "codex"
    folder.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(folder))
    monkeypatch.delenv("CODEX_API_KEY", raising=False)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield folder
    monkeypatch.undo()
    time.tzset()


def played(lines: str | bytes, folder: Path, exit: Exit = OK, err: str = "", model: str | None = GPT) -> Played:
    out = lines.encode() if isinstance(lines, str) else lines
    return play(Codex(), Recording(out, exit, err), folder, cost=price, model=model)


def told(item: str, event: str = "item.completed") -> str:
    return f'{{"type":"{event}","item":{item}}}\n'


def tools_of(events: list[Event]) -> tuple[str, ...]:
    return tuple(f"{one.name} {one.summary}".strip() for one in events if isinstance(one, ToolStarted))


def test_every_recording_has_its_meaning() -> None:
    assert set(RECORDINGS) == set(CASES)


@pytest.mark.parametrize("case", CASES)
def test_a_recording_is_told_as_it_was_meant(case: str, tmp_path: Path) -> None:
    want, out = CASES[case], RECORDINGS[case].read_bytes()
    got = played(out, tmp_path, want.exit, want.err)
    turn = got.turn
    assert (got.ok, type(got.fault) if got.fault else None) == (want.ok, want.fault), turn
    assert [part for part in want.says if part not in (turn.error or "")] == [], turn.error
    assert (turn.text, tools_of(got.events)) == (want.text, want.tools)
    assert (turn.tools, turn.errors, turn.unparsed) == (len(want.tools), want.errors, want.unparsed)
    assert turn.spent == Spent(want.micro_usd, want.usage, want.at_least)
    assert (turn.limited.resets_at if turn.limited else None) == want.resets_at
    session = json.loads(out.splitlines()[0])["thread_id"] if want.session else None
    assert (turn.session, turn.model) == (session, GPT if want.session else None)
    assert got.said_result is (b'"turn.' in out.replace(b'"turn.started"', b""))


@pytest.mark.parametrize("case", CASES)
def test_nothing_depends_on_where_a_stream_is_cut(case: str, tmp_path: Path) -> None:
    want = CASES[case]
    made = [
        play(Codex(), one, tmp_path, cost=price, model=GPT).events
        for one in cuts(RECORDINGS[case].read_bytes(), want.exit, want.err)
    ]
    assert all(events == made[0] for events in made)


def test_a_turn_is_told_event_by_event(tmp_path: Path) -> None:
    session = "01a1e078-d382-7061-a6ee-7ec4bd50b5c9"
    assert played(RECORDINGS["success-tools"].read_bytes(), tmp_path).events == [
        Started(session, GPT),
        Progress(METADATA),
        Said("I will write the file."),
        ToolStarted("item_2", "shell", WRITE.removeprefix("shell ")),
        ToolEnded("item_2", True),
        Said("Now run it."),
        ToolStarted("item_4", "shell", RUN.removeprefix("shell ")),
        ToolEnded("item_4", True, "hello\n\n", 2, 7),
        Said(DONE),
        Spent(3180, asked(3)),
        Ended(True, DONE),
    ]


def test_tools_of_a_server_tell_what_they_answered(tmp_path: Path) -> None:
    ends = [one for one in played(RECORDINGS["mcp"].read_bytes(), tmp_path).events if isinstance(one, ToolEnded)]
    assert ends == [ToolEnded("item_1", True, "3", 1, 1), ToolEnded("item_2", False, "negative", 1, 8)]


def test_a_server_that_does_not_answer_is_told_as_the_tool_output(tmp_path: Path) -> None:
    item = (
        '{"id":"item_1","type":"mcp_tool_call","server":"lab","tool":"add","arguments":{"path":"x.txt"},"result":null,'
    )
    got = played(told(item + '"error":{"message":"timed out"},"status":"failed"}'), tmp_path)
    assert got.events[:2] == [ToolStarted("item_1", "lab.add", "x.txt"), ToolEnded("item_1", False, "timed out", 1, 9)]


@pytest.mark.parametrize(("code", "ok"), [(0, True), (2, False)])
def test_a_command_without_a_status_is_told_by_its_exit_code(code: int, ok: bool, tmp_path: Path) -> None:
    item = '{"id":"item_1","type":"command_execution","command":"make","aggregated_output":"","exit_code":%d}'
    (ended,) = (event for event in played(told(item % code), tmp_path).events if isinstance(event, ToolEnded))
    assert ended.ok is ok


def test_an_id_that_is_used_again_is_another_call(tmp_path: Path) -> None:
    item = told('{"id":"item_1","type":"command_execution","command":"make","status":"completed"}')
    assert played(item + item, tmp_path).turn.tools == 2


CODES = {
    "context_length_exceeded": AgentFault, "model_not_found": ConfigFault, "invalid_api_key": ConfigFault,
    "insufficient_quota": ConfigFault, "something_else": AgentFault,
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_an_answer_of_the_service_is_classed_by_its_code(code: str, tmp_path: Path) -> None:
    answer = json.dumps({"error": {"message": "This will not do", "code": code}})
    got = played(json.dumps({"type": "turn.failed", "error": {"message": answer}}) + "\n", tmp_path, FAILED)
    assert type(got.fault) is CODES[code]
    assert "This will not do" in (got.turn.error or "")
    assert ("too long" in (got.turn.error or "")) is (code == "context_length_exceeded")


def test_retries_are_progress_and_no_failure(tmp_path: Path) -> None:
    out = (
        '{"type":"error","message":"Reconnecting... 1/5 (unexpected status 502 Bad Gateway)"}\n'
        + told('{"id":"item_1","type":"agent_message","text":"here I am"}')
        + '{"type":"turn.completed","usage":{"input_tokens":7,"output_tokens":3}}\n'
    )
    got = played(out, tmp_path)
    assert got.ok
    assert Progress("Reconnecting... 1/5 (unexpected status 502 Bad Gateway)") in got.events


@pytest.mark.parametrize(
    ("exit", "fault"),
    [
        (Exit(None, "timeout", 15), ServiceFault),
        (Exit(None, "idle", 15), ServiceFault),
        (Exit(1), ServiceFault),
    ],
)
def test_a_turn_that_ends_in_a_retry_is_the_fault_of_the_service(
    exit: Exit, fault: type[Fault], tmp_path: Path
) -> None:
    out = '{"type":"error","message":"Reconnecting... waiting for network"}\n'
    assert isinstance(played(out, tmp_path, exit).fault, fault)


def test_a_retry_that_got_through_does_not_explain_a_later_timeout(tmp_path: Path) -> None:
    out = '{"type":"error","message":"Reconnecting... 1/5"}\n' + told('{"id":"1","type":"reasoning","text":"so"}')
    assert isinstance(played(out, tmp_path, Exit(None, "timeout", 15)).fault, AgentFault)


def test_an_error_without_the_end_of_the_turn_is_why_it_failed(tmp_path: Path) -> None:
    got = played('{"type":"error","message":"Quota exceeded. Check your plan."}\n', tmp_path, FAILED)
    assert isinstance(got.fault, ConfigFault)
    assert "Quota exceeded" in got.fault.message


def test_a_resumed_session_is_billed_by_the_difference(tmp_path: Path) -> None:
    recording = Recording(RECORDINGS["resume"].read_bytes())
    before = Spent(1060, asked(1))
    got = play(Codex(), recording, tmp_path, cost=price, model=GPT, session="01a1e07a", billed=before)
    # 2000 tokens of input in all, of which 1000 were billed; so with the others.
    assert got.turn.spent == Spent(1060, asked(1))


def test_a_session_that_it_began_anew_is_billed_whole(tmp_path: Path) -> None:
    recording = Recording(RECORDINGS["resume"].read_bytes())
    got = play(Codex(), recording, tmp_path, cost=price, model=GPT, session="01a1e07a", billed=Spent(10_600, asked(10)))
    assert got.turn.spent == Spent(2120, asked(2))


@pytest.mark.parametrize(
    "usage",
    [
        '{"input_tokens":0,"cached_input_tokens":0,"output_tokens":0}', "null", "7", "[1]", "{}",
        '{"input_tokens":"many","output_tokens":-5}', '{"input_tokens":NaN,"output_tokens":1e99}',
    ],
)  # fmt: skip
def test_a_service_that_does_not_count_tokens_makes_the_cost_unknown(usage: str, tmp_path: Path) -> None:
    got = played(f'{{"type":"turn.completed","usage":{usage}}}\n', tmp_path)
    assert (got.turn.spent, got.turn.unparsed, got.turn.error) == (Spent(None), 0, None)


def test_a_failure_is_not_taken_back(tmp_path: Path) -> None:
    said = told('{"id":"item_1","type":"agent_message","text":"done"}')
    failed = '{"type":"turn.failed","error":{"message":"no"}}\n'
    completed = '{"type":"turn.completed","usage":{"input_tokens":100,"output_tokens":9}}\n'
    for out in (said + failed + completed, said + completed + failed, said + failed + said + completed):
        got = played(out, tmp_path)
        assert (got.ok, got.turn.error, got.turn.usage) == (False, "no", Usage(100, 9))
        assert [one for one in got.events if isinstance(one, Ended)][-1] == Ended(False, "done", "no")
    assert played(said + completed, tmp_path).ok
    assert played(failed + '{"type":"turn.started"}\n' + said + completed, tmp_path).ok  # that is another turn


def test_older_versions_without_new_counters_are_counted(tmp_path: Path) -> None:
    out = '{"type":"turn.completed","usage":{"input_tokens":100,"cached_input_tokens":60,"output_tokens":9}}\n'
    assert played(out, tmp_path).turn.usage == Usage(40, 9, 60)


def test_without_a_model_the_tokens_are_known_and_the_cost_is_not(tmp_path: Path) -> None:
    got = played(RECORDINGS["success-tools"].read_bytes(), tmp_path, model=None)
    assert (got.turn.spent, got.turn.model) == (Spent(None, asked(3)), None)


LOGINS = {
    "an account": ('{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{}}', "", {}, True),
    "a key": ('{"auth_mode":"apikey","OPENAI_API_KEY":"k"}', "", {}, False),
    "an account, but a key for this run": ('{"auth_mode":"chatgpt"}', "", {"CODEX_API_KEY": "k"}, False),
    "an account, but another provider": ('{"auth_mode":"chatgpt"}', 'model_provider = "azure"', {}, False),
    "an account, and its own provider": ('{"auth_mode":"chatgpt"}', 'model_provider = "openai"', {}, True),
    "nonsense": ('{"auth_mode":', "", {}, False),
    "no object": ("[]", "", {}, False),
}


@pytest.mark.parametrize("case", LOGINS)
def test_tokens_that_a_subscription_pays_for_are_notional(
    case: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, settings, env, notional = LOGINS[case]
    (home / "auth.json").write_text(login)
    (home / "config.toml").write_text(settings)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert played(RECORDINGS["resume"].read_bytes(), tmp_path).turn.notional is notional


def test_todos_are_told_when_they_change(tmp_path: Path) -> None:
    plan = (
        '{"id":"item_1","type":"todo_list","items":[{"text":"read","completed":%s},{"text":"write","completed":false}]}'
    )
    out = (
        told(plan % "false", "item.started") + told(plan % "true", "item.updated")
        + told(plan % "true") + told('{"id":"item_2","type":"todo_list","items":7}')
    )  # fmt: skip
    assert played(out, tmp_path).events[:3] == [
        TodosChanged((Todo("read", "pending"), Todo("write", "pending"))),
        TodosChanged((Todo("read", "done"), Todo("write", "pending"))),
        TodosChanged(()),
    ]


def test_a_command_that_was_declined_is_a_denial(tmp_path: Path) -> None:
    item = '{"id":"item_1","type":"command_execution","command":"/bin/zsh -lc \\"rm x\\"","aggregated_output":"no",'
    out = told(item + '"exit_code":null,"status":"in_progress"}', "item.started") + told(item + '"status":"declined"}')
    got = played(out, tmp_path, FAILED)
    assert got.events[:3] == [
        ToolStarted("item_1", "shell", "rm x"), ToolEnded("item_1", False, "no", 1, 2), Denied("shell", "rm x"),
    ]  # fmt: skip
    assert got.turn.denied == ("shell: rm x",)


def test_a_change_that_is_told_only_when_it_is_made_is_a_tool_too(tmp_path: Path) -> None:
    item = (
        '{"id":"item_1","type":"file_change","changes":[{"path":"a.py","kind":"add"},{"path":"b.py"},3],"status":"%s"}'
    )
    done = '{"type":"turn.completed","usage":{}}\n'
    said = told('{"id":"item_0","type":"agent_message","text":"now I write"}')
    got = played(said + told(item % "failed") + done, tmp_path)
    assert got.events[1:3] == [ToolStarted("item_1", "apply_patch", "a.py, b.py"), ToolEnded("item_1", False)]
    assert got.turn.text == ""


def test_a_tool_that_ends_after_the_last_message_does_not_take_it_back(tmp_path: Path) -> None:
    item = '{"id":"item_1","type":"command_execution","command":"sleep 9","aggregated_output":"","status":"%s"}'
    out = (
        told(item % "in_progress", "item.started") + told('{"id":"item_2","type":"agent_message","text":"done"}')
        + told(item % "failed") + '{"type":"turn.completed","usage":{}}\n'
    )  # fmt: skip
    assert played(out, tmp_path).turn.text == "done"


STRANGE = (
    '{"type":"turn.paused"}', '{"type":"item.completed"}', told('{"id":"item_1","type":"hologram"}'), '{"type":7}',
    told('{"id":"item_1","type":"agent_message","text":["no","text"]}'), "[]", "plain words", '{"type":"item.st',
)  # fmt: skip


@pytest.mark.parametrize("line", STRANGE)
def test_a_line_that_is_not_understood_is_kept_and_costs_nothing_else(line: str, tmp_path: Path) -> None:
    got = played(line.strip() + "\n" + RECORDINGS["resume"].read_text(), tmp_path)
    assert [one.raw for one in got.events if isinstance(one, Unparsed)] == [line.strip()]
    assert (got.ok, got.turn.text, got.turn.micro_usd) == (True, "two", 2120)


NONSENSE = (
    '{"type":"turn.failed"}', '{"type":"turn.failed","error":"words"}', '{"type":"turn.failed","error":{"message":7}}',
    '{"type":"turn.failed","error":{"message":"{\\"error\\":[1]}"}}', '{"type":"turn.failed","error":{"message":"{"}}',
)  # fmt: skip


@pytest.mark.parametrize("line", NONSENSE)
def test_a_failure_in_a_strange_form_is_a_failure(line: str, tmp_path: Path) -> None:
    got = played(line + "\n", tmp_path)
    assert isinstance(got.fault, AgentFault)
    assert (got.turn.unparsed, got.said_result) == (0, True)


@pytest.mark.parametrize(
    "item",
    [
        '{"id":7,"type":"command_execution","command":{"a":1},"aggregated_output":[],"exit_code":"x","status":[]}',
        '{"id":null,"type":"mcp_tool_call","server":5,"tool":null,"arguments":"x","result":[],"error":{"message":1}}',
        '{"type":"file_change","changes":{"path":1},"status":"completed"}',
        '{"id":"1","type":"web_search","query":[1]}', '{"id":"1","type":"collab_tool_call","prompt":5}',
    ],
)  # fmt: skip
def test_nonsense_inside_a_tool_call_is_a_tool_call_all_the_same(item: str, tmp_path: Path) -> None:
    got = played(told(item, "item.started") + told(item), tmp_path)
    assert (got.turn.tools, got.turn.unparsed) == (1, 0)
    assert len([one for one in got.events if isinstance(one, ToolEnded)]) == 1


QUIET = ("-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false")
REPO, BYPASS = "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"
WORKSPACE = ("--sandbox", "workspace-write")
CALLS: dict[str, tuple[tuple[str, ...], dict[str, object], tuple[str, ...]]] = {
    "guarded": ((), {}, (*QUIET, *WORKSPACE, REPO, "--json", "-")),
    "unguarded": ((), {"guarded": False}, (*QUIET, BYPASS, REPO, "--json", "-")),
    "nobody looks on": ((), {"stream": False}, (*QUIET, *WORKSPACE, REPO, "--json", "-")),
    "model": ((), {"model": "o9"}, (*QUIET, *WORKSPACE, "--model", "o9", REPO, "--json", "-")),
    "resume": ((), {"session": "ab-1"}, (*QUIET, *WORKSPACE, REPO, "--json", "resume", "ab-1", "-")),
    "resume unguarded": (
        ("-c", "x=1"), {"session": "ab-1", "guarded": False, "model": "o9"},
        (*QUIET, "-c", "x=1", BYPASS, "--model", "o9", REPO, "--json", "resume", "ab-1", "-"),
    ),
    "own sandbox": (("-s", "read-only"), {}, (*QUIET, "-s", "read-only", REPO, "--json", "-")),
    "own sandbox, equals": (("--sandbox=read-only",), {}, (*QUIET, "--sandbox=read-only", REPO, "--json", "-")),
    "own sandbox, close": (("-sread-only",), {"guarded": False}, (*QUIET, "-s=read-only", REPO, "--json", "-")),
    "own sandbox, setting": (
        ("--config=sandbox_mode='read-only'",), {},
        (*QUIET, "--config=sandbox_mode='read-only'", REPO, "--json", "-"),
    ),
    "own bypass": (("--yolo",), {}, (*QUIET, "--yolo", REPO, "--json", "-")),
    "own review": (("--approve-for-me",), {}, (*QUIET, "--approve-for-me", REPO, "--json", "-")),
    "own form": (("--json", REPO), {}, (*QUIET, "--json", REPO, *WORKSPACE, "-")),
    "own model": (("-m", "o1"), {}, (*QUIET, "-m", "o1", *WORKSPACE, REPO, "--json", "-")),
    "two models": (
        ("-m", "o1", "--search", "--model=o2", "-mo3"), {"model": "o9"},
        (*QUIET, "--search", *WORKSPACE, "--model", "o9", REPO, "--json", "-"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_it_is_called_with_each_option_once(case: str, tmp_path: Path) -> None:
    flags, given, want = CALLS[case]
    brief = brief_in(tmp_path, session=given.get("session"), stream=given.get("stream", True))
    model = given.get("model")
    assert model is None or isinstance(model, str)
    call = AgentInvocation(brief, flags, model, bool(given.get("guarded", True)))
    assert Codex().arguments(call) == ("exec", *want)
    assert Codex().environment(call) == {}


MODELS = {
    "nothing": ((), None, None),
    "settings": ((), "o9", "o9"),
    "settings before a flag": (("-m", "o1"), "o9", "o9"),
    "flag": (("--model", "o1"), None, "o1"),
    "flag with equals": (("--model=o1",), None, "o1"),
    "short flag": (("-m", "o1"), None, "o1"),
    "short flag, close": (("-mo1",), None, "o1"),
    "short flag with equals": (("-m=o1",), None, "o1"),
    "flag before a setting": (("-m", "o1", "-c", "model=o2"), None, "o1"),
    "setting": (("-c", "model=o2"), None, "o2"),
    "setting, quoted": (("-c", 'model="o2"'), None, "o2"),
    "setting, spaced": (("--config", "model = 'o 2'"), None, "o 2"),
    "setting, spaced and bare": (("-c", "model = o2"), None, "o2"),
    "setting, close": (("-cmodel=o2",), None, "o2"),
    "the last setting": (("-c", "model=o1", "--config=model=o2"), None, "o2"),
    "a setting that is no name": (("-c", "model=7"), None, None),
    "a flag without a value": (("-c",), None, None),
    "local": (("--oss",), None, None),
    "local, named": (("--oss", "-m", "gpt-oss:20b"), None, "gpt-oss:20b"),
}


@pytest.mark.parametrize("case", MODELS)
def test_the_model_is_found_in_settings_and_flags(case: str) -> None:
    flags, model, want = MODELS[case]
    assert Codex().model(flags, model) == want


FILES = {
    "its settings": ((), "base"),
    "a profile": (("-p", "deep"), "deep"),
    "a profile, long": (("--profile=deep",), "deep"),
    "a profile without a model": (("-p", "plain"), "base"),
    "a profile that is not there": (("-p", "nowhere"), "base"),
    "a profile that is no TOML": (("-p", "broken"), "base"),
    "a setting before a profile": (("-p", "deep", "-c", "model=o2"), "o2"),
    "files that are left out": (("--ignore-user-config",), None),
    "local": (("--oss",), None),
}


@pytest.mark.parametrize("case", FILES)
def test_the_model_is_found_in_its_own_files(case: str, home: Path) -> None:
    flags, want = FILES[case]
    (home / "config.toml").write_text('model = "base"\n[profiles.deep]\nmodel = "old"\n')
    (home / "deep.config.toml").write_text('model = "deep"\n')
    (home / "plain.config.toml").write_text("hide_agent_reasoning = true\n")
    (home / "broken.config.toml").write_text("model is what?\n")
    assert Codex().model(flags, None) == want


def test_its_home_is_in_the_home_folder_unless_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CODEX_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('model = "mine"\n')
    assert Codex().model((), None) == "mine"
