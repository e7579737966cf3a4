"""The environment that agents and checks are started with."""

from __future__ import annotations

import pytest

from ralphproof.agents.environment import (
    AGENT_SESSION_VARIABLES,
    GIT_LOCATION_VARIABLES,
    agent_environment,
    check_environment,
)
from ralphproof.settings.loader import variable_name
from tests.settings.project import Project

# As tools of these agents saw them: Claude Code 2.1.325, Codex 0.166.0, Gemini CLI 0.61.0, Qwen Code 0.24.4,
# opencode 1.18.33, GitHub Copilot CLI 1.0.102, pi 0.73.1; Amp's by its manual.
MARKS = {
    "CLAUDECODE": "1", "CLAUDE_CODE_ENTRYPOINT": "sdk-cli", "CLAUDE_CODE_SESSION_ID": "bafae2e4",
    "CLAUDE_CODE_CHILD_SESSION": "1", "CLAUDE_CODE_MESSAGING_SOCKET": "/tmp/1.sock", "CLAUDE_CODE_SSE_PORT": "1",
    "AI_AGENT": "claude-code_2-1-325_agent", "CLAUDE_PID": "31920", "CODEX_CI": "1", "CODEX_THREAD_ID": "01a1",
    "CODEX_SANDBOX": "seatbelt", "CODEX_SANDBOX_NETWORK_DISABLED": "1", "CODEX_MANAGED_PACKAGE_ROOT": "/npm/codex",
    "GEMINI_CLI": "1", "GEMINI_CLI_NO_RELAUNCH": "true", "QWEN_CODE": "1", "QWEN_CODE_NO_RELAUNCH": "true",
    "QWEN_CODE_SESSION_ID": "01f8", "OPENCODE": "1", "OPENCODE_PID": "7", "AGENT": "1", "COPILOT_CLI": "1",
    "COPILOT_CLI_RESOLVED_DIST_DIR": "/cache/copilot", "COPILOT_AGENT_SESSION_ID": "6049", "PI_CODING_AGENT": "true",
    "AMP_CURRENT_THREAD_ID": "T-1", "AGENT_THREAD_ID": "T-1",
}  # fmt: skip
CHOSEN = {
    "PATH": "/bin", "HOME": "/home/u", "ANTHROPIC_API_KEY": "k", "CLAUDE_CODE_OAUTH_TOKEN": "t", "IS_SANDBOX": "1",
    "CLAUDE_CODE_USE_BEDROCK": "1", "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "9", "CLAUDE_CONFIG_DIR": "/c",
    "CODEX_HOME": "/codex", "CODEX_API_KEY": "k", "GEMINI_API_KEY": "k", "GEMINI_CLI_TRUST_WORKSPACE": "true",
    "QWEN_HOME": "/q", "QWEN_MODEL": "m", "OPENCODE_CONFIG": "/o", "OPENCODE_PERMISSION": "{}", "COPILOT_MODEL": "m",
    "COPILOT_HOME": "/h", "COPILOT_GITHUB_TOKEN": "t", "PI_OFFLINE": "1", "PI_CODING_AGENT_DIR": "/p",
    "AMP_API_KEY": "k", "AGENT": "jenkins", "GIT_AUTHOR_NAME": "u",
}  # fmt: skip


def test_an_agent_does_not_notice_that_it_runs_inside_another_and_keeps_what_the_user_chose(project: Project) -> None:
    settings = project.load().settings
    assert agent_environment(MARKS, settings) == ()
    assert dict(agent_environment(MARKS | CHOSEN, settings)) == CHOSEN
    assert dict(agent_environment({"AGENT": "amp", "HOME": "/"}, settings)) == {"HOME": "/"}
    assert agent_environment(dict.fromkeys((*GIT_LOCATION_VARIABLES, *AGENT_SESSION_VARIABLES), "x"), settings) == ()


@pytest.mark.parametrize(
    ("user", "shared", "local", "environ", "expected"),
    [
        ({}, {}, {}, {}, {"KEY": "outer", "OTHER": "o"}),
        ({"KEY": None}, {}, {}, {}, {"OTHER": "o"}),
        ({"KEY": None}, {"OTHER": "p", "NEW": ""}, {}, {}, {"OTHER": "p", "NEW": ""}),
        ({"KEY": None}, {"KEY": "own"}, {}, {}, {"KEY": "own", "OTHER": "o"}),
        ({"KEY": "own"}, {}, {"KEY": None}, {}, {"OTHER": "o"}),
        ({"KEY": None, "ABSENT": None}, {}, {}, {}, {"OTHER": "o"}),
        ({}, {}, {}, {variable_name("agent.env"): '{"KEY": null}'}, {"OTHER": "o"}),
        ({"KEY": None}, {}, {}, {f"{variable_name('agent.env')}__KEY": "null"}, {"KEY": "null", "OTHER": "o"}),
    ],
)
def test_a_null_drops_a_variable_whichever_layer_says_it(
    project: Project, user: object, shared: object, local: object, environ: dict[str, str], expected: dict[str, str]
) -> None:
    for path, env in ((project.user, user), (project.shared, shared), (project.local, local)):
        project.write(path, {"agent": {"env": env}})
    loaded = project.load(environ=environ)
    assert dict(agent_environment({"KEY": "outer", "OTHER": "o"}, loaded.settings)) == expected


def test_what_is_dropped_is_told_with_its_origin(project: Project) -> None:
    project.write(project.shared, {"agent": {"env": {"KEY": None}}})
    loaded = project.load()
    assert loaded.raw["agent"]["env"] == {"KEY": None}
    assert loaded.origins["agent.env.KEY"] == ".ralph/settings.json"


def test_what_is_meant_for_agents_is_kept_from_checks(project: Project) -> None:
    project.write(project.shared, {"agent": {"env": {"KEY": None, "OTHER": "p", "NEW": "n"}}})
    environ = {"KEY": "outer", "OTHER": "o"}
    assert dict(agent_environment(environ, project.load().settings)) == {"OTHER": "p", "NEW": "n"}
    assert dict(check_environment(environ)) == environ
    assert dict(check_environment(MARKS | CHOSEN)) == CHOSEN


def test_what_lets_somebody_steer_runs_reaches_no_agent_and_no_check() -> None:
    environ = {"RALPH_SERVE_TOKEN": "0123456789abcdef01234567", "HOME": "/home/me"}
    assert dict(check_environment(environ)) == {"HOME": "/home/me"}
