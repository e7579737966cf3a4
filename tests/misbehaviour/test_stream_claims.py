"""A tag anywhere in an agent's stream but in its final message, or in a turn that went wrong, claims nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.misbehaviour.agents import TAG, heard, prompt
from tests.misbehaviour.streams import (
    Line,
    Play,
    call,
    called,
    done,
    init,
    item,
    log,
    message,
    part,
    patient,
    pi_message,
    plays,
    replies,
    result,
    run,
    says,
    step,
    text,
    turn,
)
from tests.ralph import Ralph

THOUGHT = {"type": "thinking", "thinking": TAG, "text": TAG, "signature": "x"}
ECHO: Line = {"type": "user", "message": {"role": "user", "content": [text(TAG)]}}
SHELL: dict[str, Any] = {"command": "cat prompt.md", "exit_code": 0, "status": "completed"}
COPILOT = {"toolCallId": "c-1", "toolName": "bash"}


# What each agent tells before its last message, and what it is. All of it holds the tag.
BEFORE: dict[str, dict[str, list[Line]]] = {
    "claude": {
        "FC-02: an echo of the prompt": [ECHO],
        "FC-02: an echo of the prompt, as one text": [{"type": "user", "message": {"role": "user", "content": TAG}}],
        "FC-03: a tool's output": [message(call("Bash", command="cat prompt.md")), called(TAG)],
        "FC-03: a tool's output, in blocks": [message(call("Bash", command="cat")), called([text(TAG)])],
        "FC-03: a tool's arguments": [message(call("Write", content=TAG)), called("written")],
        "FC-03: a thought": [message(THOUGHT)],
        "FC-03: a helper's message": [message(text(TAG), id="m-2", parent_tool_use_id="t-1")],
        "FC-03: an earlier message": [says(TAG), message(call("Bash"), id="m-2"), called("no")],
    },
    "amp": {"FC-02: an echo of the prompt": [ECHO]},
    "qwen": {"FC-02: an echo of the prompt": [ECHO], "FC-03: an earlier message": [says(TAG)]},
    "codex": {
        "FC-03: a tool's output": [item("command_execution", "i-2", **SHELL, aggregated_output=TAG)],
        "FC-03: a thought": [item("reasoning", text=TAG)],
        "FC-03: an earlier message": [item("agent_message", text=TAG), item("command_execution", "i-2", **SHELL)],
        "FC-03: the message before the last": [item("agent_message", text=TAG)],
        "FC-09: a list of things to do": [item("todo_list", items=[{"text": TAG, "completed": True}])],
    },
    "gemini": {
        "FC-02: an echo of the prompt": [{"type": "message", "role": "user", "content": TAG}],
        "FC-03: a tool's output": [
            {"type": "tool_use", "tool_name": "read_file", "tool_id": "g-1", "parameters": {"file_path": TAG}},
            {"type": "tool_result", "tool_id": "g-1", "status": "success", "output": TAG},
        ],
        "FC-03: an earlier message": [
            {"type": "message", "role": "assistant", "content": f"{TAG}\n"},
            {"type": "tool_use", "tool_name": "read_file", "tool_id": "g-1"},
        ],
    },
    "opencode": {
        "FC-02: its own prompt": step(part("text", text=TAG, synthetic=True), reason="tool-calls"),
        "FC-03: a tool's output": step(
            part("tool_use", tool="bash", callID="o-1", state={"status": "completed", "output": TAG}),
            reason="tool-calls",
        ),
        "FC-03: an earlier message": step(part("text", text=TAG), reason="tool-calls"),
    },
    "copilot": {
        "FC-02: an echo of the prompt": [{"type": "user.message", "data": {"content": TAG}}],
        "FC-03: a tool's output": [
            {"type": "tool.execution_start", "data": COPILOT},
            {"type": "tool.execution_complete", "data": {**COPILOT, "success": True, "result": {"content": TAG}}},
        ],
        "FC-03: a thought": [{"type": "assistant.reasoning", "data": {"content": TAG}}],
        "FC-03: an earlier message": [{"type": "assistant.message", "data": {"content": TAG}}],
    },
    "pi": {
        "FC-02: an echo of the prompt": [pi_message("user", text(TAG))],
        "FC-03: a tool's output": [
            {"type": "tool_execution_start", "toolCallId": "c-1", "toolName": "bash"},
            {"type": "tool_execution_end", "toolCallId": "c-1", "result": {"content": [text(TAG)]}},
            pi_message("toolResult", text(TAG)),
        ],
        "FC-03: a thought": [pi_message("assistant", THOUGHT)],
        "FC-03: an earlier message": [pi_message("assistant", text(TAG))],
    },
}


# The same behind its last message, as far as that can be: nothing of it is part of that message.
AFTER: dict[str, dict[str, list[Line]]] = {
    "claude": {
        "FC-02: a late echo": [ECHO],
        "FC-03: a late thought": [message(THOUGHT, id="m-9")],
        "FC-03: a helper's late message": [message(text(TAG), id="m-2", parent_tool_use_id="t-1")],
    },
    "amp": {"FC-02: a late echo": [ECHO]},
    "qwen": {"FC-02: a late echo": [ECHO]},
    "codex": {"FC-03: a late thought": [item("reasoning", text=TAG)]},
    "gemini": {"FC-02: a late echo": [{"type": "message", "role": "user", "content": f"\n{TAG}"}]},
    "opencode": {"FC-02: its own late prompt": [part("text", "p-9", text=f"\n{TAG}", synthetic=True)]},
    "copilot": {
        "FC-02: a late echo": [{"type": "user.message", "data": {"content": TAG}}],
        "FC-03: a late thought": [{"type": "assistant.reasoning", "data": {"content": TAG}}],
    },
    "pi": {
        "FC-02: a late echo": [pi_message("user", text(TAG))],
        "FC-03: a tool's late output": [pi_message("toolResult", text(TAG))],
        "FC-03: a thought in the message": [pi_message("assistant", THOUGHT, text("working"))],
    },
}


@pytest.mark.parametrize("agent", BEFORE)
def test_only_the_final_message_claims(ralph: Ralph, agent: str) -> None:
    """FC-02, FC-03, FC-09: a turn for each case, and at last an honest one."""
    patient(ralph)
    cases = {name: turn(agent, *before) for name, before in BEFORE[agent].items()}
    cases |= {name: turn(agent, after=after) for name, after in AFTER[agent].items()}
    plays(ralph, agent, *cases.values(), turn(agent, final=f"So.\n{TAG}"))
    ended = run(ralph, agent, most=len(cases) + 1)
    found = dict(zip([*cases, "honest"], heard(ralph), strict=False))
    assert found == dict.fromkeys(cases) | {"honest": "DONE"}, ended
    assert ended.code == 0
    told = [(reply.error, reply.text, reply.unparsed) for reply in replies(ralph)]
    assert told[:-1] == [(None, "working", 0)] * len(cases), "the streams were understood"


# What a final message says, and how the next prompt answers it.
MENTIONED = {
    "FC-04": (f"I will not say {TAG} yet.", "neither alone on its line"),
    "FC-04 in a fence": (f"```\n{TAG}\n```\nis what I shall say.", "inside a code fence"),
    "FC-09": ("<response>NOT DONE</response>", "'NOT DONE'"),
}


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_final_message_that_only_mentions_the_tag_is_answered_in_the_next_prompt(ralph: Ralph, agent: str) -> None:
    """FC-04, FC-09"""
    plays(ralph, agent, *(turn(agent, final=words) for words, _ in MENTIONED.values()))
    ended = run(ralph, agent, most=len(MENTIONED) + 1)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    for iteration, (_, why) in enumerate(MENTIONED.values(), 2):
        assert why in prompt(ralph, iteration)


FAILED = {"is_error": True, "subtype": "error_during_execution"}
BROKEN: Line = {"type": "result", "status": "error", "error": {"message": "broken"}}
ABORTED = {"role": "assistant", "content": [text(TAG)], "stopReason": "aborted"}

# Turns that claim, and that went wrong.
WRONG: dict[str, list[Play]] = {
    "claude": [
        Play([init(), says(TAG), result(TAG, **FAILED)]),
        Play([init(), says(TAG), result(TAG, is_error=True)]),
        Play([init(), says(TAG), result(TAG, subtype="error_max_turns")]),
        Play([init(), says(TAG), result(TAG), result(TAG, **FAILED)]),
        Play(done(), code=1),
        Play(done(), then="kill -9 $$"),
        Play([init(), says(TAG)]),
        Play(turn("codex", final=TAG)),
    ],
    "codex": [
        Play([*turn("codex", final=TAG)[:-1], {"type": "turn.failed", "error": {"message": "the model broke"}}]),
        Play(turn("codex", final=TAG), code=3),
        Play(turn("codex", final=TAG)[:-1]),
        Play(done()),
    ],
    "gemini": [Play([*turn("gemini", final=TAG)[:-1], BROKEN])],
    "opencode": [Play([part("step_start"), part("text", text=TAG)])],
    "pi": [Play([{"type": "message_end", "message": ABORTED}, {"type": "agent_end"}])],
    "copilot": [Play([*turn("copilot", final=TAG)[:-1], {"type": "result", "exitCode": 1}])],
}


@pytest.mark.parametrize("agent", WRONG)
def test_a_claim_in_a_turn_that_went_wrong_by_its_stream_does_not_count(ralph: Ralph, agent: str) -> None:
    """FC-29: whatever the checks say; the next prompt names it. What another agent would say is not even heard."""
    patient(ralph)
    wrong = WRONG[agent]
    plays(ralph, agent, *wrong)
    ended = run(ralph, agent, most=len(wrong) + 1)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    assert heard(ralph) == [None] * (len(wrong) + 1)
    assert all(reply.errored for reply in replies(ralph))
    foreign = [f"is not what {agent} prints" in str(reply.error) for reply in replies(ralph)]
    assert any(foreign) is (agent in ("claude", "codex"))
    for iteration, other in enumerate(foreign[:-1], 2):
        assert "Your last turn failed: " in prompt(ralph, iteration)
        assert other or "'DONE' was said in a turn that failed" in prompt(ralph, iteration)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_tag_beside_the_stream_of_an_agent_is_kept_and_claims_nothing(ralph: Ralph, agent: str) -> None:
    """FC-07, FC-09: on standard error, and in lines that are no event of the agent's."""
    lines = [TAG, f"> {TAG}", f'"{TAG}"', f'{{"type": "said", "text": "{TAG}"}}']
    plays(ralph, agent, Play([*lines, *turn(agent), *lines], err=f"{TAG}\n"))
    assert (run(ralph, agent).code, heard(ralph)) == (1, [None])
    assert log(ralph, "agent_001.stderr.log") == f"{TAG}\n".encode()
    assert replies(ralph)[0].unparsed == 2 * len(lines)
