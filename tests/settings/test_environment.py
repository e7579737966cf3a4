from __future__ import annotations

from typing import Any

import pytest

from ralphproof.settings.declarations import SETTINGS_SCHEMA
from ralphproof.settings.loader import variable_name
from ralphproof.settings.schema import leaf_keys
from tests.settings.project import Project


@pytest.mark.parametrize(
    ("name", "text", "path", "expected"),
    [
        ("RALPH__AGENT__COMMAND", "codex", "agent.command", "codex"),
        ("RALPH__AGENT__COMMAND", "12", "agent.command", "12"),
        ("RALPH__AGENT__TIMEOUT_SECONDS", "60", "agent.timeoutSeconds", 60),
        ("RALPH__AGENT__TIMEOUTSECONDS", "1.5", "agent.timeoutSeconds", 1.5),
        ("RALPH__agent__timeoutSeconds", "60", "agent.timeoutSeconds", 60),
        ("RALPH__STREAM_AGENT_OUTPUT", "false", "streamAgentOutput", False),
        ("RALPH__CHECKS_WHEN", "claim", "checksWhen", "claim"),
        ("RALPH__AGENT__FLAGS", '["--model opus"]', "agent.flags", ["--model opus"]),
        ("RALPH__LIMITS", '{"maxMinutes": 3}', "limits.maxMinutes", 3),
        ("RALPH__LIMITS__STALL_ITERATIONS", "null", "limits.stallIterations", None),
        ("RALPH__SANDBOX__BACKEND", "null", "sandbox.backend", None),
        ("RALPH__SANDBOX__BACKEND", "auto", "sandbox.backend", "auto"),
        ("RALPH__AGENT__ENV__API_URL", "x", "agent.env.API_URL", "x"),
        ("RALPH__AGENT__ENV__A__B", "x", "agent.env.A__B", "x"),
    ],
)
def test_environment_variables_set_keys(project: Project, name: str, text: str, path: str, expected: object) -> None:
    loaded = project.load(environ={name: text})
    found: Any = loaded.raw
    for part in path.split("."):
        found = found[part]
    assert found == expected
    assert type(found) is type(expected)
    assert loaded.origins[path] == name


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"RALPH__AGENT__COMAND": "x"}, "there is no such setting; did you mean RALPH__AGENT__COMMAND?"),
        ({"RALPH__GUARDRAIL": "[]"}, "RALPH__GUARDRAIL: there is no such setting; did you mean RALPH__GUARDRAILS?"),
        ({"RALPH__": "x"}, "RALPH__: there is no such setting"),
        ({"RALPH__AGENT__": "x"}, "RALPH__AGENT__: there is no such setting"),
        ({"RALPH__GUARDRAILS__0__COMMAND": "x"}, "guardrails is a list: give all of it as JSON in RALPH__GUARDRAILS"),
        ({"RALPH__AGENT__FLAGS": "--model opus"}, "RALPH__AGENT__FLAGS: must be a list of texts, as JSON"),
        ({"RALPH__MAXIMUM_ITERATIONS": "0"}, "RALPH__MAXIMUM_ITERATIONS: maximumIterations must be"),
        ({"RALPH__MAXIMUM_ITERATIONS": ""}, "RALPH__MAXIMUM_ITERATIONS: must be a whole number"),
        ({"RALPH__AGENT__COMMAND": ""}, "RALPH__AGENT__COMMAND: agent.command must be text that is not blank"),
        ({"RALPH__AGENT": "null"}, "RALPH__AGENT: agent may not be null"),
        ({"RALPH__CAPS__COST_USD": "99"}, "RALPH__CAPS__COST_USD: caps belongs in the user's own settings"),
        (
            {"RALPH__CHECKSWHEN": "claim", "RALPH__CHECKS_WHEN": "always"},
            "RALPH__CHECKS_WHEN: sets checksWhen, which RALPH__CHECKSWHEN sets too",
        ),
    ],
)  # fmt: skip
def test_wrong_environment_variables_are_refused_by_name(
    project: Project, environ: dict[str, str], message: str
) -> None:
    assert any(message in problem for problem in project.problems(environ=environ))


def test_the_more_exact_of_two_variables_wins(project: Project) -> None:
    environ = {"RALPH__LIMITS__MAX_MINUTES": "4", "RALPH__LIMITS": '{"maxMinutes": 3, "maxTokens": 9}'}
    limits = project.load(environ=environ).settings.limits
    assert (limits.max_minutes, limits.max_tokens) == (4.0, 9)


def test_variables_for_the_agent_are_no_settings(project: Project) -> None:
    plain = project.load()
    environ = {"RALPH_RUN_ID": "x", "RALPH_ITERATION": "3", "RALPH_STATE_DIR": "/tmp", "RALPH": "1"}
    assert project.load(environ=environ) == plain


def test_every_key_outside_lists_has_a_variable_of_its_own() -> None:
    names = [variable_name(path) for path, _ in leaf_keys(SETTINGS_SCHEMA) if "[" not in path and "*" not in path]
    assert len({name.replace("_", "") for name in names}) == len(names)
    assert variable_name("includeIterationCountInPrompt") == "RALPH__INCLUDE_ITERATION_COUNT_IN_PROMPT"
