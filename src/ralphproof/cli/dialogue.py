"""The questions of `ralph init`, in their order."""

from __future__ import annotations

from ralphproof.cli.out import answered_yes, ask, put
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

AGENT = "Agent command (e.g., claude, codex, amp, or other LLM CLI)"
FLAGS = "Agent flags (comma-separated, optional)"
ITERATIONS = "Maximum iterations"
RESPONSE = "Completion response"
GUARDRAIL = "Add guardrail command (leave blank to finish)"
ACTION = "  Fail action (APPEND|PREPEND|REPLACE)"
HINT = "  Hint (optional, guidance for agent on failure)"
SCM_COMMAND = "  SCM command (e.g., git)"
SCM_TASKS = "  SCM tasks (comma-separated, e.g., commit,push)"
ACTIONS = ("APPEND", "PREPEND", "REPLACE")


def settings_of(
    agent: dict[str, Any], iterations: int, response: str, guardrails: list[dict[str, str]], declined: bool = False
) -> Any:
    """A settings file's content, without what is optional.

    No guardrail is written as an empty list only where somebody `declined` those that were offered: without the key,
    a run takes the checks that it finds.
    """
    made = {
        "maximumIterations": iterations,
        "completionResponse": response,
        "outputTruncateChars": 5000,
        "streamAgentOutput": True,
        "includeIterationCountInPrompt": False,
        "agent": agent,
    }
    return made | ({"guardrails": guardrails} if guardrails or declined else {})


def ask_all(agent: str | None, checks: Sequence[str], usual_response: str, usual_iterations: int) -> Any:
    """Walk through all settings. `agent` is known already and not asked for; `checks` are named before the guardrails.

    `usual_response` is the word where none is typed, and so with the number of iterations.
    Raises KeyboardInterrupt at the end of input.
    """
    command = agent or _agent()
    flags = _parts(ask(FLAGS))
    iterations = _iterations(usual_iterations)
    response = ask(f"{RESPONSE} [{usual_response}]") or usual_response
    if checks:
        put(f"Checks this project names: {', '.join(checks)}")
    made = settings_of({"command": command, "flags": flags}, iterations, response, list(_guardrails()), bool(checks))
    if answered_yes("Configure SCM?"):
        made["scm"] = {"command": _needed(SCM_COMMAND), "tasks": _tasks()}
    return made


def _needed(question: str) -> str:
    while not (answer := ask(question)):
        pass
    return answer


def _agent() -> str:
    from ralphproof.agents.command import words
    from ralphproof.errors import AgentUnusable

    while True:
        answer = _needed(AGENT)
        try:
            words(answer, ())
        except (ValueError, AgentUnusable):
            put("A quote in it is not closed.")
        else:
            return answer


def _iterations(usual: int) -> int:
    while answer := ask(f"{ITERATIONS} [{usual}]"):
        if answer.isascii() and answer.isdigit() and len(answer) < 10 and int(answer) > 0:
            return int(answer)
        put("A whole number above zero, please.")
    return usual


def _guardrails() -> Iterator[dict[str, str]]:
    while command := ask(GUARDRAIL):
        made = {"command": command, "failAction": _action()}
        hint = ask(HINT)
        yield made | ({"hint": hint} if hint else {})


def _action() -> str:
    while (answer := ask(ACTION).upper()) not in ACTIONS:
        put("  One of APPEND, PREPEND and REPLACE, please.")
    return answer


def _tasks() -> list[str]:
    while not (tasks := _parts(ask(SCM_TASKS))):
        pass
    return tasks


def _parts(answer: str) -> list[str]:
    return [part.strip() for part in answer.split(",") if part.strip()]
