"""Environment variables that agents and checks are started with."""

from __future__ import annotations

from collections.abc import Mapping

from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import ENVIRONMENT_PREFIX

# Variables that would point our git calls, or the agent's, at another repository.
GIT_LOCATION_VARIABLES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES", "GIT_QUARANTINE_PATH",
)  # fmt: skip
# Variables that an agent sets for what it starts, and by which another agent would behave differently or continue the
# first one's session. What users set themselves, such as keys, is not listed.
AGENT_SESSION_VARIABLES = frozenset(
    (
        # Claude Code 2.1.325, its editor integration and its background sessions
        "AI_AGENT", "CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH",
        "CLAUDE_CODE_MESSAGING_SOCKET", "CLAUDE_CODE_MESSAGING_TOKEN", "CLAUDE_CODE_SESSION_ATTENDED",
        "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SESSION_KIND", "CLAUDE_CODE_SSE_PORT", "CLAUDE_EFFORT",
        "CLAUDE_JOB_DIR", "CLAUDE_PID",
        # Codex 0.166
        "CODEX_CI", "CODEX_MANAGED_BY_BUN", "CODEX_MANAGED_BY_NPM", "CODEX_MANAGED_BY_PNPM",
        "CODEX_MANAGED_BY_VITE_PLUS", "CODEX_MANAGED_PACKAGE_ROOT", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED",
        "CODEX_SESSION_ID", "CODEX_THREAD_ID", "CODEX_TOOL_CALL_ID", "CODEX_VERSION",
        # Gemini CLI 0.61
        "GEMINI_CLI", "GEMINI_CLI_NO_RELAUNCH",
        # Qwen Code 0.24
        "QWEN_CODE", "QWEN_CODE_AGENT_ID", "QWEN_CODE_CLI", "QWEN_CODE_LAUNCHER_PID", "QWEN_CODE_MANAGED_NPM_PIN",
        "QWEN_CODE_MANAGED_NPM_ROOT", "QWEN_CODE_MODEL", "QWEN_CODE_MODEL_IDENTITY", "QWEN_CODE_NO_RELAUNCH",
        "QWEN_CODE_PRIVATE_RELAUNCH_ENV_PROVENANCE", "QWEN_CODE_PROJECT_DIR", "QWEN_CODE_PROMPT_ID",
        "QWEN_CODE_SESSION_ID", "QWEN_CODE_STARTUP_VERSION",
        # opencode 1.18, GitHub Copilot CLI 1.0, pi 0.73, Amp
        "OPENCODE", "OPENCODE_PID",
        "COPILOT_AGENT_SESSION_ID", "COPILOT_CLI", "COPILOT_CLI_BINARY_VERSION", "COPILOT_CLI_RESOLVED_DIST_DIR",
        "PI_CODING_AGENT",
        "AGENT_THREAD_ID", "AMP_CURRENT_THREAD_ID",
    )
)  # fmt: skip
SERVE_TOKEN_VARIABLE = "RALPH_SERVE_TOKEN"  # noqa: S105 (a variable name; agents must not control runs)
# Set by opencode and by Amp; with another value the variable belongs to another program.
AGENT_MARKER_VARIABLES = (("AGENT", "1"), ("AGENT", "amp"))


def check_environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The environment of checks: ours, without variables of agent sessions. `agent.env` does not apply to checks.

    Our own settings are left out too: a notification address may hold a token.
    """
    dropped = {*GIT_LOCATION_VARIABLES, *AGENT_SESSION_VARIABLES, SERVE_TOKEN_VARIABLE}
    return tuple(
        (name, text)
        for name, text in environ.items()
        if name not in dropped
        and (name, text) not in AGENT_MARKER_VARIABLES
        and not name.upper().startswith(ENVIRONMENT_PREFIX)
    )


def agent_environment(environ: Mapping[str, str], settings: Settings) -> tuple[tuple[str, str], ...]:
    """The environment of agents: that of checks, with what `agent.env` adds and without what it drops."""
    wanted = dict(check_environment(environ)) | dict(settings.agent.env)
    return tuple((name, text) for name, text in wanted.items() if text is not None)
