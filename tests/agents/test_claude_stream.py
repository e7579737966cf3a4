"""What Claude Code may print although no recording holds it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import MAX_RESET_DELAY_S
from ralphproof.agents.claude import Claude
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.stream import MAX_DENIALS
from ralphproof.engine.agent import (
    AgentFault,
    Asked,
    Denied,
    Limited,
    Progress,
    Said,
    ServiceFault,
    Spent,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Usage,
)
from ralphproof.engine.sandbox import CONTINUE, Exit
from tests.agents.replay import NOW_S, Played, Recording, brief_in, play

TIMES = 1500


def assistant(*blocks: dict[str, Any], name: str = "m1", model: str = "opus", **more: Any) -> dict[str, Any]:
    usage = more.pop("usage", {"input_tokens": 100, "output_tokens": 1})
    return {"type": "assistant", "message": {"id": name, "model": model, "content": blocks, "usage": usage}, **more}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def called(name: str, call: str = "t1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def answered(content: Any, call: str = "t1", **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content, **more}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def complained(error: str, text: str = "no", **more: Any) -> dict[str, Any]:
    return assistant(said(text), model="<synthetic>", error=error, is_api_error_message=True, usage=None, **more)


def limit(**info: Any) -> dict[str, Any]:
    return {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "rateLimitType": "weekly", **info}}


def result(text: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": text, "total_cost_usd": 0.5, **more}


def error(**more: Any) -> dict[str, Any]:
    return result("it failed", is_error=True, **more)


def heard(folder: Path, *lines: dict[str, Any] | bytes, code: int = 0) -> Played:
    out = b"".join(one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n" for one in lines)
    return play(Claude(), Recording(out, Exit(code)), folder, cost=lambda _, usage: usage.total)


def told(seen: Played, kind: type[Any]) -> list[Any]:
    return [event for event in seen.events if isinstance(event, kind)]


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        pytest.param([complained("server_error"), error()], ServiceFault, id="the error that it named"),
        pytest.param([complained("server_error"), complained("invalid_request"), error()], AgentFault, id="the last"),
        pytest.param(
            [complained("server_error"), assistant(said("again")), error(subtype="error_max_turns")], AgentFault,
            id="one that it got over is none",
        ),
        pytest.param(
            [complained("server_error", parent_tool_use_id="t1"), error()], AgentFault, id="a subagent's is its own"
        ),
        pytest.param([error(api_error_status=503)], ServiceFault, id="a status"),
        pytest.param([error(api_error_status=404)], AgentFault, id="a status that says little"),
        pytest.param([error(api_error_status="503")], AgentFault, id="a status that is none"),
    ],
)  # fmt: skip
def test_an_error_is_judged_by(lines: list[dict[str, Any]], fault: type, tmp_path: Path) -> None:
    assert type(heard(tmp_path, *lines, code=1).fault) is fault


def test_a_context_that_grew_too_long_is_told_as_such(tmp_path: Path) -> None:
    seen = heard(tmp_path, complained("invalid_request"), error(terminal_reason="prompt_too_long"), code=1)
    assert isinstance(seen.fault, AgentFault)
    assert "grew too long: it failed" in seen.fault.message


def test_a_limit_that_it_got_over_is_not_the_one_that_stopped_it(tmp_path: Path) -> None:
    lines = limit(resetsAt=NOW_S + 60), assistant(said("on")), complained("rate_limit"), error()
    assert heard(tmp_path, *lines, code=1).fault == ServiceFault("it failed", None)
    assert heard(tmp_path, *lines[:2], result()).ok


@pytest.mark.parametrize(
    ("resets_at", "told_as"),
    [
        (NOW_S + 60, NOW_S + 60), (int(NOW_S), NOW_S), (NOW_S + MAX_RESET_DELAY_S, None), (int(NOW_S * 1000), None),
        (10**29, None), (-5, None), (0, None), (True, None), (str(NOW_S), None), (None, None), ({}, None),
    ],
)  # fmt: skip
def test_a_time_that_no_limit_can_end_at_is_not_told(resets_at: Any, told_as: float | None, tmp_path: Path) -> None:
    assert told(heard(tmp_path, limit(resetsAt=resets_at)), Limited) == [
        Limited("the weekly limit is reached", told_as)
    ]


def test_a_share_of_a_limit_is_told_where_it_is_a_number(tmp_path: Path) -> None:
    shares: tuple[Any, ...] = (0.5, "0.5", None, [])
    lines = [limit(status="allowed_warning", utilization=share) for share in shares]
    assert told(heard(tmp_path, *lines), Progress) == [Progress("50% of the weekly limit is used")]


def test_a_subagent_has_tools_and_no_word(tmp_path: Path) -> None:
    lines = assistant(said("<promise>DONE</promise>"), called("Bash", command="ls"), parent_tool_use_id="t0")
    seen = heard(tmp_path, lines)
    assert (told(seen, Said), seen.turn.text, seen.turn.tools) == ([], "", 1)


def test_a_question_to_nobody_is_told(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"questions": [{"question": "Which  one?"}, {"question": "Why?"}]}
    seen = heard(tmp_path, assistant(called("AskUserQuestion", **asked)))
    assert (told(seen, Asked), seen.turn.asked) == ([Asked("Which one?")], "Which one?")


@pytest.mark.parametrize("arguments", [{}, {"questions": []}, {"questions": "x"}, {"questions": [None]}, {"a": 1}])
def test_a_question_may_have_any_form(arguments: dict[str, Any], tmp_path: Path) -> None:
    assert len(told(heard(tmp_path, assistant(called("AskUserQuestion", **arguments))), Asked)) == 1


def test_the_list_changes_only_when_the_call_ends_well(tmp_path: Path) -> None:
    todo = called("TodoWrite", todos=[{"content": "a", "status": "completed"}])
    assert told(heard(tmp_path, assistant(todo), answered("no", is_error=True)), TodosChanged) == []
    assert told(heard(tmp_path, assistant(todo), answered("ok")), TodosChanged) == [TodosChanged((Todo("a", "done"),))]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("two\nlines\n", ("two\nlines\n", 2, 10)),
        ([{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}], ("a\n\nb", 3, 4)),
        ([], ("", 0, 0)), (None, ("", 0, 0)), (7, ("", 0, 0)), (["x", 1], ("", 0, 0)),
    ],
)  # fmt: skip
def test_what_a_tool_printed_may_have_any_form(content: Any, output: tuple[str, int, int], tmp_path: Path) -> None:
    assert told(heard(tmp_path, answered(content)), ToolEnded) == [ToolEnded("t1", True, *output)]


@pytest.mark.parametrize(
    ("line", "events"),
    [
        pytest.param(
            b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"a\\ud83d"},'
            b'{"type":"tool_use","id":"t","name":"Bash","input":{"command":"\\ud800 ls"}}]}}',
            [Said("a?"), ToolStarted("t", "Bash", "? ls")],
            id="half a letter",
        ),
        pytest.param(
            b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"a"},'
            b'{"type":"tool_use","id":"t","name":"Bash","input":{"command":"\xff ls"}}]}}',
            [Said("a"), ToolStarted("t", "Bash", "\ufffd ls")],
            id="a byte that is no letter, in arguments",
        ),
        pytest.param(
            b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"a"},'
            b'{"type":"tool_use","id":"t","name":"Bash","input":{"timeout":1e999,"command":"ls"}}]}}',
            [Said("a"), ToolStarted("t", "Bash", "ls")],
            id="a number out of all bounds, in arguments",
        ),
        pytest.param(
            b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"\xff"}]}}',
            [ToolEnded("t", True, "\ufffd", 1, 1)],
            id="a byte that is no letter, in output",
        ),
    ],
)
def test_what_is_wrong_in_one_place_costs_that_place(line: bytes, events: list[Any], tmp_path: Path) -> None:
    seen = heard(tmp_path, line)
    assert [one for one in seen.events if isinstance(one, Said | ToolStarted | ToolEnded)] == events
    assert seen.turn.unparsed == 0


def test_a_message_in_many_lines_is_counted_once_and_as_it_stands_last(tmp_path: Path) -> None:
    grown = assistant(said("b"), usage={"input_tokens": 100, "output_tokens": 7})
    seen = heard(tmp_path, assistant(said("a")), grown, assistant(said("c"), name="m2"))
    assert seen.turn.spent == Spent(208, Usage(200, 8), at_least=True)


def test_what_comes_after_an_account_is_counted_on_top_of_it(tmp_path: Path) -> None:
    account = result(usage={"input_tokens": 100, "output_tokens": 50}, total_cost_usd=0.000900)
    first = assistant(said("a"))
    assert heard(tmp_path, first, account).turn.spent == Spent(900, Usage(100, 50))
    assert heard(tmp_path, first, account, first).turn.spent == Spent(900, Usage(100, 50))
    more = heard(tmp_path, first, account, assistant(said("b"), name="m2"))
    assert more.turn.spent == Spent(1001, Usage(200, 51), at_least=True)
    assert more.turn.text == "done"


def test_a_result_without_money_is_priced_by_us(tmp_path: Path) -> None:
    line = result(usage={"input_tokens": 10, "cache_read_input_tokens": 5})
    del line["total_cost_usd"]
    assert heard(tmp_path, line).turn.spent == Spent(15, Usage(10, 0, 5))


@pytest.mark.parametrize("cost", [-1, 1e11, True, "0.5", None, [], {}])
def test_a_cost_that_can_be_none_is_unknown(cost: Any, tmp_path: Path) -> None:
    assert heard(tmp_path, assistant(said("a")), result(total_cost_usd=cost)).turn.micro_usd is None


def test_a_stream_that_names_no_subtypes_is_understood(tmp_path: Path) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 500, "cache_read_input_tokens": 800}
    lines = (
        {"type": "system", "session_id": "s"},
        {"type": "assistant", "message": {"content": [said("so")]}},
        {"type": "result", "result": "so it is", "total_cost_usd": 0.05, "usage": usage},
    )
    turn = heard(tmp_path, *lines).turn
    assert (turn.error, turn.text, turn.session, turn.micro_usd) == (None, "so it is", "s", 50_000)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"subtype": None, "result": None}, "a result that is no success"),
        ({"subtype": None, "is_error": True}, "a result that is no success"),
        ({"subtype": "error_max_turns", "is_error": True}, "error_max_turns"),
        ({"subtype": "error_during_execution", "errors": ["one", 2]}, "one; 2"),
        ({"is_error": True, "error": {"message": "a reason"}}, "a reason"),
        ({"is_error": True, "error": "a word"}, "a word"),
    ],
)
def test_a_result_that_is_no_success_says_why(more: dict[str, Any], says: str, tmp_path: Path) -> None:
    assert says in str(heard(tmp_path, result("", **more)).turn.error)


@pytest.mark.parametrize("text", [None, 7, [], {}, ""])
def test_a_result_without_a_message_is_no_success(text: Any, tmp_path: Path) -> None:
    seen = heard(tmp_path, assistant(said("<promise>DONE</promise>")), result(text))
    assert (seen.ok, seen.turn.text, seen.turn.empty) == (False, "", True)


def test_a_denial_is_told_once(tmp_path: Path) -> None:
    at_once = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Bash",
        "tool_use_id": "t1",
        "message": "no",
    }
    late = result(
        permission_denials=[{"tool_name": name, "tool_use_id": f"t{n}"} for n, name in ((1, "Bash"), (2, "Edit"))]
    )
    assert told(heard(tmp_path, at_once, late), Denied) == [Denied("Bash", "no"), Denied("Edit")]


def test_memory_stays_bounded_whatever_comes(tmp_path: Path) -> None:
    def lines(n: int) -> list[dict[str, Any]]:
        return [
            assistant(said("x" * 100), name=f"m{n}", model=f"model-{n}"),
            assistant(called("TaskCreate", f"t{n}", subject="x" * 1000), name=f"n{n}"),
            {"type": "system", "subtype": "permission_denied", "tool_name": "Bash", "tool_use_id": f"{n}" * 20},
        ]

    out = b"".join(json.dumps(one).encode() + b"\n" for n in range(TIMES) for one in lines(n))
    seen: list[type] = []

    class Counts:
        def events(self, events: list[Any]) -> None:
            seen.extend(map(type, events))

        def tick(self) -> int:
            return CONTINUE

    tracemalloc.start()
    turn = CliAgent(Claude(), "claude", cost=lambda *_: 1).take_turn(brief_in(tmp_path), Recording(out), Counts())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (turn.tools, seen.count(Denied)) == (TIMES, MAX_DENIALS)
    assert peak < 1_500_000, peak
