"""Parts of a run built from its spec: rules and limits, workspace, source control, tripwires, sandbox, checks."""

from __future__ import annotations

import os

from ralphproof.base.run_program import find_program
from ralphproof.base.value import TYPE_CHECKING, pack, unpack
from ralphproof.checks.factory import NO_TASK, CheckDependencies, create_checks
from ralphproof.engine.actions import RunRules
from ralphproof.engine.budget import Budget
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.limits import Limits
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.retry import AgentRotation
from ralphproof.engine.sandbox import Sandbox
from ralphproof.engine.workspace import Scm, Tripwires, Workspace
from ralphproof.runs.pipeline import build_preset_pipeline
from ralphproof.runs.request import NO_CUSTOM_COMPONENTS, CustomComponents
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.sandbox.selection import wrap_in_sandbox
from ralphproof.settings.loader import read_preset, settings_file_digest
from ralphproof.settings.model import Settings
from ralphproof.settings.skills import Skill, skill_advice, skill_template
from ralphproof.store.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.checks.clean_checkout import CheckoutProvider
    from ralphproof.checks.command import CommandCheckSpec
    from ralphproof.engine.check import Check
    from ralphproof.engine.sandbox import AgentRequirements
    from ralphproof.runs.spec import RunSpec
    from ralphproof.sandbox.planner import SandboxConfig
    from ralphproof.sandbox.runner import ProcessOwner, SandboxedRunner


# What a run's work is asked: every check of its course, made with what the run holds.


def build_checks(
    spec: RunSpec, folder: RunFolder, sandbox: Sandbox, workspace: Workspace, room: CheckoutProvider | None = None
) -> dict[str, Check]:
    """Every check of the run's course, by its name; those that want a clean checkout get it in the `room`."""
    if spec.stage_plan is None:
        return {}
    settings, task = spec.loaded.settings, spec.stage_plan.task or NO_TASK
    means = CheckDependencies(
        spec.project.root, spec.check_env, folder, sandbox, workspace.diff, spec.agent_env,
        {name: one.agent for name, one in spec.stage_plan.judges.items()}, task,
        settings.output_truncate_chars, settings.output_truncate_mode,
        create_clean_check=None if room is None else lambda question: _build_clean_check(question, room, spec, folder),
    )  # fmt: skip
    return create_checks(spec.stage_plan.leaves.values(), means)


def _build_clean_check(question: CommandCheckSpec, room: CheckoutProvider, spec: RunSpec, folder: RunFolder) -> Check:
    from ralphproof.checks.clean_checkout import CleanCheckoutCheck

    env = dict(spec.check_env)
    if spec.stage_plan and spec.stage_plan.task and spec.stage_plan.task.id:
        from ralphproof.settings.verification_templates import task_environment

        env |= task_environment(spec.stage_plan.task)
    return CleanCheckoutCheck(question, room, folder, spec.project.root, tuple(env.items()))


# The sandbox of a run: chosen, tried out, and built around its project; or none.


def build_run_sandbox(
    spec: RunSpec, owner: ProcessOwner, folder: RunFolder, fixed: Mapping[str, str], parent: str
) -> DirectRunner | SandboxedRunner:
    """What runs the commands of a run; raises Refused where the sandbox that it is to have does not hold here.

    `fixed` are files of the run that nobody may change.
    """
    name = spec.request.sandbox_kind(spec.loaded.settings)
    if name is None:
        return DirectRunner(owner)
    from ralphproof.sandbox.selection import choose_backend

    backend = choose_backend(name, os.environ, spec.project.root)
    config = run_terrain(spec, folder, fixed, parent)
    if (serve := getattr(backend, "serve", None)) and config.agents:  # one that is made for an agent
        serve(config.agents[0][0], os.path.join(config.store, "agents", config.agents[0][0]))
    return wrap_in_sandbox(owner, backend, config)


def run_terrain(spec: RunSpec, folder: RunFolder, fixed: Mapping[str, str], parent: str) -> SandboxConfig:
    """Where a run takes place."""
    from ralphproof.sandbox.planner import SandboxConfig
    from ralphproof.workspace.protected_paths import RESERVED_PATHS, reserved_paths

    settings, root = spec.loaded.settings, spec.project.root
    box, own = settings.sandbox, reserved_paths(root, fixed)
    return SandboxConfig(
        root, spec.project.store,
        os.path.normpath(os.path.join(root, spec.request.task_folder or folder.published_path("task"))),
        spec.agent_env, tuple(settings.protected_paths), tuple(one.path for one in own if one not in RESERVED_PATHS),
        box.allow_hosts, box.allow_local_ports, tuple(map(os.path.expanduser, box.read_paths)),
        tuple(_agent_lodgings(spec)), tuple(name for name, _ in settings.agent.env),
        # What an agent asked for may not name a service of its own: that would be a way out.
        tuple((os.environ if parent else dict(spec.agent_env)).items()),
    )  # fmt: skip


def _agent_lodgings(spec: RunSpec) -> Iterator[tuple[str, AgentRequirements]]:
    judges = tuple(one.agent for one in spec.stage_plan.judges.values()) if spec.stage_plan else ()
    for agent in (*spec.agents, *judges):
        if (lodging := getattr(agent, "requirements", None)) is not None:
            yield agent.name, lodging


# From settings to the parts of a run: which agent, which checks, which limits.


SCM_START_NOTE = "scm-start"  # the note of what a commit would have run when the run began
BACKUP_FOLDER = "backup"  # copies of the repository, shared by its runs
FIRST_RESTART_DELAY_S = 1.0  # before a restart, where the user gave none
PROTECTED_COPIES_FOLDER = "vault"  # the copies of what is watched, beside the logs of a run


def build_rules(
    settings: Settings,
    skill: Skill | None = None,
    custom: CustomComponents = NO_CUSTOM_COMPONENTS,
    debugging: Skill | None = None,
    allow_unknown_cost: bool = False,
    pipeline: Pipeline | None = None,
) -> RunRules:
    """The decisions' part of the settings. `debugging` is the skill that the prompt after a stall tells.

    The `pipeline` is the preset's own where none is given.
    """
    limits, word = settings.limits, settings.completion_response
    template = skill_template(skill, word) if skill else "{prompt}"
    own = tuple(check.name for check in custom.checks)
    preset, supervise = read_preset(settings.preset), settings.supervise
    restarts = preset.get("restarts", False)  # the agent is a program that is kept alive: silence is no fault of it
    delay_s = supervise.restart_delay_s
    return RunRules(
        pipeline or build_preset_pipeline(preset, settings, template, own),
        build_limits(settings, restarts),
        scm=settings.scm is not None,
        checks_when=settings.checks_when,
        show_count=settings.include_iteration_count,
        pause_s=limits.pause_s if not restarts else FIRST_RESTART_DELAY_S if delay_s is None else delay_s,
        agent_timeout_s=settings.agent.timeout_s,
        agent_idle_s=settings.agent.idle_timeout_s,
        max_empty_replies=None if restarts else settings.agent.retries,
        back_off=restarts and delay_s is None,
        wait_code=supervise.wait_exit_code if restarts else None,
        children_timeout_s=supervise.wait_timeout_s,
        poll_s=supervise.poll_interval_s,
        agent_rotation=AgentRotation(
            max(1, len(settings.agent.ladder)), len(settings.agent.rotate), len(settings.agent.fallbacks)
        ),
        baseline=True,
        show_previous=settings.context_injection,
        debug_advice=skill_advice(debugging, word) if debugging else "",
        custom_limits=custom.limits,
        must_fail_first=settings.must_fail_first,
        hooks=settings.on.by_name,
        warn_unknown_cost=not allow_unknown_cost
        and (limits.max_cost_micro_usd is not None or limits.daily_cost_micro_usd is not None),
    )


def build_limits(settings: Settings, restarts: bool) -> Limits:
    """What may not be exceeded, repeated or touched."""
    limits = settings.limits
    budget = Budget(
        settings.maximum_iterations, settings.cost_limit_micro_usd, limits.max_tokens, limits.max_seconds,
        settings.daily_limit_micro_usd,
    )  # fmt: skip
    return Limits(budget, limits.stall_iterations, limits.same_error_iterations, restarts, settings.protect_tests)


def open_workspace(root: str, private: str, environ: Mapping[str, str], signs: tuple[str, ...] = ()) -> Workspace:
    """Git where the project is the top of a work tree and git is installed; else plain folders.

    `signs` are files by which an agent and we talk to each other: where they lie in the project, they are no work.
    """
    own = (
        *find_redirected_output(root),
        *(os.path.relpath(path, root) for path in signs if path.startswith(root + "/")),
    )
    if _is_git_repository(root) and not is_git_missing(root, environ):
        from ralphproof.workspace.git_workspace import GitWorkspace

        return GitWorkspace(root, private, environ, own)
    from ralphproof.workspace.plain_workspace import PlainWorkspace

    return PlainWorkspace(root, private, own)


def find_redirected_output(root: str) -> tuple[str, ...]:
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


def is_git_missing(root: str, environ: Mapping[str, str]) -> bool:
    """The project is a git repository, and git is not installed."""
    return _is_git_repository(root) and find_program("git", environ.get("PATH", os.defpath), outside=root) is None


def _is_git_repository(root: str) -> bool:
    return os.path.lexists(os.path.join(root, ".git"))


def open_scm(settings: Settings, root: str, direct: DirectRunner, folder: RunFolder, sandbox: Sandbox) -> Scm | None:
    """Where passed work is kept; built at the start, so that it knows the user's hooks as they were.

    A run that is taken up knows them as they were when it began. Where there is a `sandbox`, hooks run in it.
    """
    if settings.scm is None:
        return None
    from ralphproof.workspace.scm import TurnProgramRunner

    command, tasks = settings.scm.command, settings.scm.tasks
    programs = TurnProgramRunner(direct, folder, root)
    inside = TurnProgramRunner(sandbox, folder, root) if not isinstance(sandbox, DirectRunner) else None
    from ralphproof.workspace.scm import GitScm, ScmBaseline

    noted = folder.noted(SCM_START_NOTE)
    known = unpack(noted) if noted is not None else None
    start = known if isinstance(known, ScmBaseline) else None
    made: GitScm | CommandScm
    if os.path.basename(command) == "git":
        made = GitScm(root, tasks, programs, start, sandboxed=inside)
    else:
        from ralphproof.workspace.scm import CommandScm

        made = CommandScm(command, tasks, root, inside or programs, baseline=start)
    if known is None:
        folder.note(SCM_START_NOTE, pack(made.baseline))
    return made


def build_tripwires(
    protected: tuple[str, ...], workspace: Workspace, folder: RunFiles, more: Mapping[str, str]
) -> Tripwires:
    """What no agent may change: the user's own list, and what only the harness and the user change.

    `more` are files of this run, and what each is.
    """
    from ralphproof.workspace.git_workspace import GitWorkspace
    from ralphproof.workspace.protected_paths import reserved_paths
    from ralphproof.workspace.tripwires import FileTripwires

    root, git = workspace.root, workspace if isinstance(workspace, GitWorkspace) else None
    vault = folder.log_base(PROTECTED_COPIES_FOLDER)
    store = os.path.dirname(os.path.dirname(os.path.dirname(vault)))  # of the repository; the vault is in runs/RUN/
    return FileTripwires(
        root, vault, folder.run, protected, reserved_paths(root, more), git, folder.log_base,
        lambda name: os.path.relpath(folder.published_path(name), root), os.path.join(store, BACKUP_FOLDER),
    )  # fmt: skip


def uncommitted_at_start(workspace: Workspace, run: str) -> tuple[str, ...]:
    """What was not committed before the first turn of a run."""
    from ralphproof.workspace.git_workspace import GitWorkspace

    began = workspace.find_snapshot(run, "0-checked") or workspace.find_snapshot(run, "0")
    return workspace.uncommitted_paths(began) if began and isinstance(workspace, GitWorkspace) else ()


class SettingsChangeDetector:
    """Sees when somebody edits the settings during a run. They are told; the settings of the start stay in force."""

    def __init__(self, files: tuple[tuple[str, str], ...]) -> None:
        self._known = dict(files)

    def __call__(self) -> tuple[str, ...]:
        """A sentence for every settings file that changed since it was last asked."""
        seen: list[str] = []
        for path, digest in self._known.items():
            now = settings_file_digest(path)
            if now != digest:
                what = "was written" if not digest else "was removed" if not now else "was changed"
                seen.append(f"{os.path.basename(path)} {what} during the run; the settings of the start stay in force")
                self._known[path] = now
        return tuple(seen)
