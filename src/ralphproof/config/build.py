"""From settings to the parts of a run: which agent, which checks, which limits."""

from __future__ import annotations

import os

from ralphproof.action import Rules
from ralphproof.budget import Budget
from ralphproof.config.brought import NOTHING_BROUGHT, Brought
from ralphproof.config.environment import PREFIX
from ralphproof.config.load import digest_of
from ralphproof.config.presets import pipeline_of, read_preset
from ralphproof.config.settings import Settings
from ralphproof.ledger import Folder
from ralphproof.ledgers.folder import RunFolder
from ralphproof.limit import Limits
from ralphproof.sandbox import Sandbox
from ralphproof.sandboxes.direct import Direct
from ralphproof.service import Crew
from ralphproof.skill import Skill, advice_of, template_of
from ralphproof.stage import Pipeline
from ralphproof.value import TYPE_CHECKING, pack, unpack
from ralphproof.workspace import Scm, Tripwires, Workspace
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspaces.other_scm import OtherScm

# Variables that would point our git calls, or the agent's, at another repository.
GIT_PLACES = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES", "GIT_QUARANTINE_PATH",
)  # fmt: skip
# Marks that an agent leaves in the environment of what it starts, where another one would notice them and behave
# differently, or go on with the first one's session. What users set themselves, keys above all, is none of these.
NESTED = frozenset(
    (
        # Claude Code 2.1.325; the port is that of an editor, kind and folder those of a session in the background
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
SCM_START = "scm-start"  # the note of what a commit would have run when the run began
BACKUP = "backup"  # copies of the repository, shared by its runs
FIRST_DELAY_S = 1.0  # before a restart, where the user gave none
VAULT = "vault"  # the copies of what is watched, beside the logs of a run
SERVE_TOKEN = "RALPH_SERVE_TOKEN"  # noqa: S105 (the name of what lets somebody steer runs: no agent)
AGENTS_OWN = (("AGENT", "1"), ("AGENT", "amp"))  # opencode's, Amp's; with another value it is somebody else's


def check_environment(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """What checks are started with: ours, less what leads astray. `agent.env` is none of their business.

    Our own settings are not theirs either: an address that is notified may hold a token.
    """
    dropped = {*GIT_PLACES, *NESTED, SERVE_TOKEN}
    kept = (one for one in environ.items() if one[0] not in dropped and one not in AGENTS_OWN)
    return tuple(one for one in kept if not one[0].upper().startswith(PREFIX))


def agent_environment(environ: Mapping[str, str], settings: Settings) -> tuple[tuple[str, str], ...]:
    """What agents are started with: the same, with what `agent.env` adds and without what it drops."""
    wanted = dict(check_environment(environ)) | dict(settings.agent.env)
    return tuple((name, text) for name, text in wanted.items() if text is not None)


def rules_of(
    settings: Settings,
    skill: Skill | None = None,
    brought: Brought = NOTHING_BROUGHT,
    debugging: Skill | None = None,
    allow_unknown_cost: bool = False,
    pipeline: Pipeline | None = None,
) -> Rules:
    """The decisions' part of the settings. `debugging` is the skill that the prompt after a stall tells.

    The `pipeline` is the preset's own where none is given.
    """
    limits, word = settings.limits, settings.completion_response
    template = template_of(skill, word) if skill else "{prompt}"
    own = tuple(check.name for check in brought.checks)
    preset, supervise = read_preset(settings.preset), settings.supervise
    restarts = preset.get("restarts", False)  # the agent is a program that is kept alive: silence is no fault of it
    delay_s = supervise.restart_delay_s
    return Rules(
        pipeline or pipeline_of(preset, settings, template, own),
        limits_of(settings, restarts),
        scm=settings.scm is not None,
        checks_when=settings.checks_when,
        show_count=settings.include_iteration_count,
        pause_s=limits.pause_s if not restarts else FIRST_DELAY_S if delay_s is None else delay_s,
        agent_timeout_s=settings.agent.timeout_s,
        agent_idle_s=settings.agent.idle_timeout_s,
        empty_tries=None if restarts else settings.agent.retries,
        back_off=restarts and delay_s is None,
        wait_code=supervise.wait_exit_code if restarts else None,
        children_s=supervise.wait_timeout_s,
        poll_s=supervise.poll_interval_s,
        crew=Crew(max(1, len(settings.agent.ladder)), len(settings.agent.rotate), len(settings.agent.fallbacks)),
        baseline=True,
        context=settings.context_injection,
        deep_debug=advice_of(debugging, word) if debugging else "",
        own=brought.limits,
        red_first=settings.must_fail_first,
        hooks=settings.on.by_name,
        cost_matters=not allow_unknown_cost
        and (limits.max_cost_micro_usd is not None or limits.daily_cost_micro_usd is not None),
    )


def limits_of(settings: Settings, restarts: bool) -> Limits:
    """What may not be exceeded, repeated or touched."""
    limits = settings.limits
    budget = Budget(
        settings.maximum_iterations, settings.cost_limit_micro_usd, limits.max_tokens, limits.max_seconds,
        settings.daily_limit_micro_usd,
    )  # fmt: skip
    return Limits(budget, limits.stall_iterations, limits.same_error_iterations, restarts, settings.protect_tests)


def workspace_of(root: str, private: str, environ: Mapping[str, str], signs: tuple[str, ...] = ()) -> Workspace:
    """Git where the project is the top of a work tree and git is installed; else plain folders.

    `signs` are files by which an agent and we talk to each other: where they lie in the project, they are no work.
    """
    own = (*own_output(root), *(os.path.relpath(path, root) for path in signs if path.startswith(root + "/")))
    if _in_git(root) and not lacks_git(root, environ):
        from ralphproof.workspaces.git import Git

        return Git(root, private, environ, own)
    from ralphproof.workspaces.plain import Plain

    return Plain(root, private, own)


def own_output(root: str) -> tuple[str, ...]:
    """Files of the project that our own output goes to, as with `ralph run > log` or nohup: they are no one's work."""
    paths: list[str] = []
    for number in (1, 2):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # it is closed, or there is no /proc
        if os.path.isfile(path) and path.startswith(root + "/"):
            paths.append(os.path.relpath(path, root))
    return tuple(paths)


def lacks_git(root: str, environ: Mapping[str, str]) -> bool:
    """The project is a git repository, and git is not installed."""
    return _in_git(root) and find_program("git", environ.get("PATH", os.defpath), outside=root) is None


def _in_git(root: str) -> bool:
    return os.path.lexists(os.path.join(root, ".git"))


def scm_of(settings: Settings, root: str, direct: Direct, folder: RunFolder, sandbox: Sandbox) -> Scm | None:
    """Where passed work is kept; built at the start, so that it knows the user's hooks as they were.

    A run that is taken up knows them as they were when it began. Where there is a `sandbox`, hooks run in it.
    """
    if settings.scm is None:
        return None
    from ralphproof.workspaces.owned import Turns

    command, tasks = settings.scm.command, settings.scm.tasks
    programs = Turns(direct, folder, root)
    inside = Turns(sandbox, folder, root) if not isinstance(sandbox, Direct) else None
    from ralphproof.workspaces.scm import GitScm, ScmStart

    noted = folder.noted(SCM_START)
    known = unpack(noted) if noted is not None else None
    start = known if isinstance(known, ScmStart) else None
    made: GitScm | OtherScm
    if os.path.basename(command) == "git":
        made = GitScm(root, tasks, programs, start, inside=inside)
    else:
        from ralphproof.workspaces.other_scm import OtherScm

        made = OtherScm(command, tasks, root, inside or programs, start=start)
    if known is None:
        folder.note(SCM_START, pack(made.start))
    return made


def tripwires_of(
    protected: tuple[str, ...], workspace: Workspace, folder: Folder, more: Mapping[str, str]
) -> Tripwires:
    """What no agent may change: the user's own list, and what only the harness and the user change.

    `more` are files of this run, and what each is.
    """
    from ralphproof.workspaces.git import Git
    from ralphproof.workspaces.own import own_files
    from ralphproof.workspaces.tripwires import Wires

    root, git = workspace.root, workspace if isinstance(workspace, Git) else None
    vault = folder.base(VAULT)
    store = os.path.dirname(os.path.dirname(os.path.dirname(vault)))  # of the repository; the vault is in runs/RUN/
    return Wires(
        root, vault, folder.run, protected, own_files(root, more), git, folder.base,
        lambda name: os.path.relpath(folder.shown(name), root), os.path.join(store, BACKUP),
    )  # fmt: skip


def dirty_before(workspace: Workspace, run: str) -> tuple[str, ...]:
    """What was not committed before the first turn of a run."""
    from ralphproof.workspaces.git import Git

    began = workspace.saved(run, "0-checked") or workspace.saved(run, "0")
    return workspace.uncommitted(began) if began and isinstance(workspace, Git) else ()


class SettingsLookout:
    """Sees when somebody edits the settings during a run. They are told; the settings of the start stay in force."""

    def __init__(self, files: tuple[tuple[str, str], ...]) -> None:
        self._known = dict(files)

    def __call__(self) -> tuple[str, ...]:
        """A sentence for every settings file that changed since it was last asked."""
        seen: list[str] = []
        for path, digest in self._known.items():
            now = digest_of(path)
            if now != digest:
                what = "was written" if not digest else "was removed" if not now else "was changed"
                seen.append(f"{os.path.basename(path)} {what} during the run; the settings of the start stay in force")
                self._known[path] = now
        return tuple(seen)
