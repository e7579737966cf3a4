"""A tag anywhere in an agent's stream but in its final message, or in a turn that went wrong, claims nothing."""

from __future__ import annotations

import pytest

from tests.misbehaviour.agents import TAG, case, heard, prompt
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
SHELL = {"id": "i-2", "command": "cat prompt.md", "exit_code": 0, "status": "completed"}
SUBAGENT = {"parent_tool_use_id": "t-1"}
COPILOT = {"toolCallId": "c-1", "toolName": "bash"}


@pytest.mark.parametrize(
    ("agent", "before"),
    [
        case("FC-02-echo-claude", "claude", [ECHO]),
        case("FC-02-echo-claude-as-text", "claude", [{"type": "user", "message": {"role": "user", "content": TAG}}]),
        case("FC-02-echo-amp", "amp", [ECHO]),
        case("FC-02-echo-qwen", "qwen", [ECHO]),
        case("FC-02-echo-gemini", "gemini", [{"type": "message", "role": "user", "content": TAG}]),
        case("FC-02-echo-copilot", "copilot", [{"type": "user.message", "data": {"content": TAG}}]),
        case("FC-02-echo-pi", "pi", [pi_message("user", text(TAG))]),
        case("FC-02-echo-opencode", "opencode", step(part("text", text=TAG, synthetic=True), reason="tool-calls")),
        case("FC-03-tool-claude", "claude", [message(call("Bash", command="cat prompt.md")), called(TAG)]),
        case("FC-03-tool-claude-blocks", "claude", [message(call("Bash", command="cat")), called([text(TAG)])]),
        case("FC-03-tool-claude-arguments", "claude", [message(call("Write", content=TAG)), called("written")]),
        case("FC-03-tool-codex", "codex", [item("command_execution", **SHELL, aggregated_output=TAG)]),
        case("FC-03-tool-gemini", "gemini", [
            {"type": "tool_use", "tool_name": "read_file", "tool_id": "g-1", "parameters": {"file_path": TAG}},
            {"type": "tool_result", "tool_id": "g-1", "status": "success", "output": TAG}]),
        case("FC-03-tool-opencode", "opencode", step(
            part("tool_use", tool="bash", callID="o-1", state={"status": "completed", "output": TAG}),
            reason="tool-calls")),
        case("FC-03-tool-copilot", "copilot", [
            {"type": "tool.execution_start", "data": COPILOT},
            {"type": "tool.execution_complete", "data": {**COPILOT, "success": True, "result": {"content": TAG}}}]),
        case("FC-03-tool-pi", "pi", [
            {"type": "tool_execution_start", "toolCallId": "c-1", "toolName": "bash"},
            {"type": "tool_execution_end", "toolCallId": "c-1", "result": {"content": [text(TAG)]}},
            pi_message("toolResult", text(TAG))]),
        case("FC-03-thought-claude", "claude", [message(THOUGHT)]),
        case("FC-03-thought-codex", "codex", [item("reasoning", text=TAG)]),
        case("FC-03-thought-copilot", "copilot", [{"type": "assistant.reasoning", "data": {"content": TAG}}]),
        case("FC-03-thought-pi", "pi", [pi_message("assistant", THOUGHT)]),
        case("FC-03-subagent-claude", "claude", [message(text(TAG), id="m-2", **SUBAGENT)]),
        case("FC-03-earlier-claude", "claude", [says(TAG), message(call("Bash"), id="m-2"), called("no")]),
        case("FC-03-earlier-codex", "codex", [item("agent_message", text=TAG), item("command_execution", **SHELL)]),
        case("FC-03-earlier-codex-without-a-tool", "codex", [item("agent_message", text=TAG)]),
        case("FC-03-earlier-gemini", "gemini", [
            {"type": "message", "role": "assistant", "content": f"{TAG}\n"},
            {"type": "tool_use", "tool_name": "read_file", "tool_id": "g-1"}]),
        case("FC-03-earlier-opencode", "opencode", step(part("text", text=TAG), reason="tool-calls")),
        case("FC-03-earlier-copilot", "copilot", [{"type": "assistant.message", "data": {"content": TAG}}]),
        case("FC-03-earlier-pi", "pi", [pi_message("assistant", text(TAG))]),
        case("FC-09-to-do-list", "codex", [item("todo_list", items=[{"text": TAG, "completed": True}])]),
    ],
)  # fmt: skip
def test_only_the_final_message_claims(ralph: Ralph, agent: str, before: list[Line]) -> None:
    """FC-02, FC-03, FC-09: not the prompt's echo, tools, thoughts, helpers, lists, nor what it said before."""
    plays(ralph, agent, turn(agent, *before))
    ended = run(ralph, agent)
    (reply,) = replies(ralph)
    assert (reply.error, reply.text, reply.unparsed) == (None, "working", 0), "the stream was understood"
    assert (ended.code, ralph.outcome()["reason"], heard(ralph)) == (1, "MAX_ITERATIONS", [None]), ended


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "qwen", "opencode", "copilot", "amp", "pi"])
def test_a_claim_in_the_final_message_of_such_a_stream_is_heard(ralph: Ralph, agent: str) -> None:
    """FC-03: the honest twin."""
    plays(ralph, agent, turn(agent, final=f"All is well.\n{TAG}"))
    assert (run(ralph, agent).code, heard(ralph)) == (0, ["DONE"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        case("FC-04-prose", f"I will not say {TAG} yet.", "neither alone on its line"),
        case("FC-04-fence", f"```\n{TAG}\n```\nis what I shall say.", "inside a code fence"),
        case("FC-09-other-word", "<response>NOT DONE</response>", "'NOT DONE'"),
    ],
)
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_final_message_that_only_mentions_the_tag_is_answered_in_the_next_prompt(
    ralph: Ralph, agent: str, words: str, why: str
) -> None:
    """FC-04, FC-09"""
    plays(ralph, agent, turn(agent, final=words))
    ended = run(ralph, agent, most=2)
    assert (ended.code, ralph.outcome()["iterations"]) == (1, 2), ended
    assert why in prompt(ralph, 2)


FAILED = {"is_error": True, "subtype": "error_during_execution"}


@pytest.mark.parametrize(
    ("agent", "play"),
    [
        case("FC-29-error-claude", "claude", Play([init(), says(TAG), result(TAG, **FAILED)])),
        case("FC-29-error-claude-success", "claude", Play([init(), says(TAG), result(TAG, is_error=True)])),
        case("FC-29-most-turns-claude", "claude", Play([init(), says(TAG), result(TAG, subtype="error_max_turns")])),
        case("FC-29-exit-claude", "claude", Play(done(), code=1)),
        case("FC-29-signal-claude", "claude", Play(done(), then="kill -9 $$")),
        case("FC-29-no-result-claude", "claude", Play([init(), says(TAG)])),
        case("FC-29-failed-codex", "codex", Play([
            *turn("codex", final=TAG)[:-1], {"type": "turn.failed", "error": {"message": "the model broke"}}])),
        case("FC-29-exit-codex", "codex", Play(turn("codex", final=TAG), code=3)),
        case("FC-29-no-end-codex", "codex", Play(turn("codex", final=TAG)[:-1])),
        case("FC-29-error-gemini", "gemini", Play([
            *turn("gemini", final=TAG)[:-1], {"type": "result", "status": "error", "error": {"message": "broken"}}])),
        case("FC-29-mid-step-opencode", "opencode", Play([part("step_start"), part("text", text=TAG)])),
        case("FC-29-aborted-pi", "pi", Play([{"type": "message_end", "message": {
            "role": "assistant", "content": [text(TAG)], "stopReason": "aborted"}}, {"type": "agent_end"}])),
        case("FC-29-exit-copilot", "copilot", Play([
            *turn("copilot", final=TAG)[:-1], {"type": "result", "exitCode": 1}])),
    ],
)  # fmt: skip
def test_a_claim_in_a_turn_that_its_stream_calls_failed_does_not_count(ralph: Ralph, agent: str, play: Play) -> None:
    """FC-29: whatever the checks say; the next prompt names it."""
    plays(ralph, agent, play)
    ended = run(ralph, agent, most=2)
    assert (ended.code, ralph.outcome()["reason"], heard(ralph)) == (1, "MAX_ITERATIONS", [None, None]), ended
    assert replies(ralph)[0].errored
    assert "'DONE' was said in a turn that failed" in prompt(ralph, 2)


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_tag_on_the_standard_error_of_an_agent_is_kept_and_claims_nothing(ralph: Ralph, agent: str) -> None:
    """FC-07"""
    plays(ralph, agent, Play(turn(agent), err=f"{TAG}\n"))
    assert (run(ralph, agent).code, heard(ralph)) == (1, [None])
    assert log(ralph, "agent_001.stderr.log") == f"{TAG}\n".encode()


@pytest.mark.parametrize("line", [TAG, f"> {TAG}", f'"{TAG}"', f'{{"type": "text", "text": "{TAG}"}}'])
def test_a_tag_beside_the_stream_claims_nothing(ralph: Ralph, line: str) -> None:
    """FC-09: what is no event of the agent's is nobody's word."""
    plays(ralph, "claude", [*turn("claude"), line])
    assert (run(ralph, "claude").code, heard(ralph)) == (1, [None])
    assert replies(ralph)[0].unparsed == 1
