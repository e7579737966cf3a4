"""Parts of a run built from its spec: rules, workspace, source control, tripwires, sandbox, checks, clean checkouts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof.agents.selection import SelectedAgent, select_custom_agent, select_judge, select_stage_agents
from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.programs import find_program
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.checks.check_plan import CheckSpec, plan_final_checks, plan_guardrails
from ralphproof.checks.clean_checkout import (
    CheckoutProvider,
    CleanCheckoutCheck,
    PreparedCheckout,
    run_setup,
    unused_checkout_number,
)
from ralphproof.checks.command import STOPPED, CommandCheckSpec
from ralphproof.checks.factory import NO_TASK, CheckDependencies, create_checks
from ralphproof.checks.judge import judge_of_call
from ralphproof.checks.templates import task_environment
from ralphproof.engine.agent import AgentRotation
from ralphproof.engine.check import Check, Finding, Inspection
from ralphproof.engine.claim import ClaimRule, strip_claim_tags
from ralphproof.engine.environment import LoopEnvironment, RunFiles, TurnMonitor
from ralphproof.engine.limits import SPENT_AMOUNTS, Budget, Limits
from ralphproof.engine.next_action import AgentRules, CheckRules, ChildRules, PromptRules, RunRules
from ralphproof.engine.plan import PROMPT_PLACEHOLDER, Pipeline, PlanSource, SemanticVerification, Stage, Task
from ralphproof.engine.records import Record
from ralphproof.engine.sandbox import AgentRequirements, Sandbox
from ralphproof.engine.state import build_state
from ralphproof.engine.workspace import Change, Scm, Snapshot, Tripwires, Workspace
from ralphproof.runs.request import RunRequest
from ralphproof.sandbox.plan import Backend
from ralphproof.sandbox.planner import SandboxConfig
from ralphproof.sandbox.runner import DirectRunner, ProcessOwner, SandboxedRunner, wrap_in_sandbox
from ralphproof.sandbox.selection import choose_backend
from ralphproof.settings.declarations import LimitSettings, Settings
from ralphproof.settings.loader import LoadedSettings, read_preset, settings_file_digest
from ralphproof.settings.skills import Skill, skill_advice, skill_template
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.tasks.draft import task_from_draft, task_without_completion
from ralphproof.tasks.pipeline import build_task_pipeline, load_stage_templates, warn_about_templates
from ralphproof.tasks.plans import FixedPlan, PromptPlan
from ralphproof.tasks.store import draft_from_row, validate_draft_with_plugins
from ralphproof.workspace.checkouts import CheckoutFolder, PendingWork, SourceRepository, object_folders
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace
from ralphproof.workspace.protected_paths import RESERVED_PATHS, reserved_paths
from ralphproof.workspace.scm import CommandScm, GitScm, ScmBaseline, TurnProgramRunner
from ralphproof.workspace.tripwires import ProtectedFileTripwires

if TYPE_CHECKING:
    from ralphproof.runs.spec import RunSpec


def build_preset_pipeline(
    preset: dict[str, Any], settings: Settings, template: str = "{prompt}", custom_checks: tuple[str, ...] = ()
) -> Pipeline:
    """The stages of a preset, with the user's completion word and guardrails, and the checks of the caller."""
    guardrails = plan_guardrails(settings)
    final = tuple(leaf.name for leaf in plan_final_checks(settings, guardrails.specs))
    stages = (
        Stage(
            name=stage["name"],
            claim=_preset_claim(stage.get("claim"), settings.completion_response),
            checks=(*guardrails.checks, *custom_checks),
            template=template,
            max_iterations=stage.get("maxIterations"),
            edits=stage.get("edits", True),
            judges=guardrails.judges,
            together=guardrails.parallel_groups,
            trusts=not (guardrails.has_mechanical or custom_checks or final),
            back=tuple(stage.get("back", ())),
            commit=stage.get("commit", ""),
            fills=preset.get("stories", False),
            final=final if stage.get("ends", True) else (),
        )
        for stage in (preset["stages"] if settings.review.enabled else preset.get("withoutReview", preset["stages"]))
    )
    return Pipeline(tuple(stages), stage_first=preset.get("stageFirst", False))


def _preset_claim(data: dict[str, str] | None, response: str) -> ClaimRule:
    """The claim rule of a stage: none where it names none; the user's completion word where it names no word."""
    if data is None:
        return ClaimRule()
    marker = data.get("marker")
    word = data.get("word") or marker or strip_claim_tags(response)  # a rule without a word would accept anything
    return ClaimRule(word, data.get("element", "response"), marker, data.get("refusal"), data.get("made", ""))


NO_PROMPT = 'no prompt; say what should become true: ralph run -p "make the tests pass"'


@value
class StagePlan:
    """The stages of a run, its checks by name, and the agents for them.

    `agents` are those of single stages; they are numbered after the run's own. `judges` has the agent of each check
    that a model answers. `task` is the task whose criteria are checked.
    """

    pipeline: Pipeline
    leaves: dict[str, CheckSpec]
    agents: tuple[SelectedAgent, ...] = ()
    judges: dict[str, SelectedAgent] = {}  # noqa: RUF012 (never changed)
    task: Task | None = None
    remarks: tuple[str, ...] = ()

    @property
    def has_machine_check(self) -> bool:
        """Whether a required check is mechanical, and not judged by a model."""
        return any(leaf.is_mechanical and leaf.required for leaf in self.leaves.values())

    def judge_in(self, call: str) -> str:
        """The name of the agent that a judge's call uses; empty for other calls."""
        if not self.judges or not call.startswith("judge_"):
            return ""
        judge = judge_of_call(call, self.judges)
        return self.judges[judge].agent.name if judge else ""

    @property
    def check_labels(self) -> list[str]:
        """The checks for lists: a command, or the name of a check without one."""
        shown = (leaf for leaf in self.leaves.values() if not (leaf.hidden or leaf.clean))
        return [getattr(leaf.verification, "command", "") or leaf.name for leaf in shown]


NO_STAGES = StagePlan(Pipeline(()), {})


def open_plan(request: RunRequest, project: Project, remarks: list[str]) -> PlanSource:
    """The plan of a run: a task of the ledger, or the prompt."""
    if not request.task.id:
        if request.prompt == (None, None):
            raise Refused(NO_PROMPT)
        return PromptPlan(*request.prompt, wordless=bool(request.program))
    return FixedPlan(
        replace(_load_task(project, request.task.id, remarks), depends_on=())
    )  # a task is started when those are done


def _load_task(project: Project, name: str, remarks: list[str]) -> Task:
    """A task of the ledger; raises TaskWrong with everything that is wrong with it.

    One without completion criteria is done when its stages claim so.
    """
    ledger = project.ledger()
    try:
        row = ledger.tasks.row(name)
    finally:
        ledger.close()
    if row is None:
        raise TaskWrong(f"there is no task {name}; see: ralph task list")
    draft, unreadable = draft_from_row(row)
    if draft.completion is None:
        task, warning = task_without_completion(draft)
        remarks.append(f"task {name}: {unreadable}" if unreadable else warning)
        return task
    if problems := validate_draft_with_plugins(draft):
        raise TaskWrong("; ".join(problems))
    return task_from_draft(draft)


def build_stage_plan(
    request: RunRequest, plan: PlanSource, loaded: LoadedSettings, skill: Skill | None, root: str, agent_count: int
) -> StagePlan:
    """The stage plan of a run. `agent_count` is the number of the run's own agents, which precede those of stages."""
    settings = loaded.settings
    if not read_preset(settings.preset).get("tasks"):
        return _assign_judges(_preset_stage_plan(request, settings, skill), request, settings, root)
    if isinstance(plan, PromptPlan):
        plan.titled = True
    try:
        return _assign_judges(
            _task_stage_plan(request, plan.read().tasks[0], settings, root, agent_count), request, settings, root
        )
    except TaskWrong:
        raise
    except Refused as error:
        raise (TaskWrong(str(error)) if request.task.id else error) from error


def _preset_stage_plan(request: RunRequest, settings: Settings, skill: Skill | None) -> StagePlan:
    template = skill_template(skill, settings.completion_response) if skill else PROMPT_PLACEHOLDER
    custom_checks = tuple(check.name for check in request.custom.checks)
    pipeline = build_preset_pipeline(read_preset(settings.preset), settings, template, custom_checks)
    guardrails = plan_guardrails(settings).specs
    return StagePlan(pipeline, {leaf.name: leaf for leaf in (*guardrails, *plan_final_checks(settings, guardrails))})


def _task_stage_plan(request: RunRequest, task: Task, settings: Settings, root: str, agent_count: int) -> StagePlan:
    sandboxed = request.sandbox_kind(settings) is not None
    stage_agents = (
        select_stage_agents(settings, root, os.environ, request.guarded, sandboxed)
        if request.custom.agent is None
        else ()
    )
    used = [entry for entry in stage_agents if entry[0] not in request.task.skip_stages]
    agent_indexes = {name: agent_count + number for number, (name, _) in enumerate(used)}
    custom_checks = tuple(check.name for check in request.custom.checks)
    pipeline, leaves = build_task_pipeline(
        task, settings, load_stage_templates(root), agent_indexes, request.task.skip_stages, custom_checks
    )
    agents = tuple(agent for _, agent in used)
    return StagePlan(pipeline, leaves, agents, task=task, remarks=warn_about_templates(root))


def _assign_judges(stage_plan: StagePlan, request: RunRequest, settings: Settings, root: str) -> StagePlan:
    """The plan with an agent for every judged check: the one that the check names, or the run's own."""
    judges: dict[str, SelectedAgent] = {}
    for name, leaf in stage_plan.leaves.items():
        if isinstance(leaf.verification, SemanticVerification) and leaf.verification.check_for:
            judges[name] = _select_judge(leaf.verification, leaf, request, settings, root)
    return replace(stage_plan, judges=judges) if judges else stage_plan


def _select_judge(
    semantic: SemanticVerification, leaf: CheckSpec, request: RunRequest, settings: Settings, root: str
) -> SelectedAgent:
    if not semantic.agent and request.custom.agent is not None:
        return select_custom_agent(request.custom.agent)
    if not semantic.agent and request.program:
        raise Refused(f"check {leaf.name}: a program without a prompt cannot judge; name an agent for it in its config")
    return select_judge(semantic, leaf.stage, settings, root, os.environ)


# Parts of a run built from its spec: rules and limits, workspace, source control, tripwires, sandbox, checks.


def build_checks(
    spec: RunSpec, folder: RunFolder, sandbox: Sandbox, workspace: Workspace, checkouts: CheckoutProvider | None = None
) -> dict[str, Check]:
    """Every check of the run's stages, by name. Those that need a clean checkout get it from `checkouts`."""
    settings, task = spec.loaded.settings, spec.stage_plan.task or NO_TASK
    dependencies = CheckDependencies(
        spec.project.root, spec.check_env, folder, sandbox, workspace.diff, spec.agent_env,
        {name: one.agent for name, one in spec.stage_plan.judges.items()}, task,
        settings.output_truncate_chars, settings.output_truncate_mode,
        create_clean_check=(
            None if checkouts is None else lambda check: _build_clean_check(check, checkouts, spec, folder)
        ),
    )  # fmt: skip
    return create_checks(spec.stage_plan.leaves.values(), dependencies)


def _build_clean_check(
    check_spec: CommandCheckSpec, checkouts: CheckoutProvider, spec: RunSpec, folder: RunFolder
) -> Check:
    env = dict(spec.check_env)
    if spec.stage_plan.task and spec.stage_plan.task.id:
        env |= task_environment(spec.stage_plan.task)
    return CleanCheckoutCheck(check_spec, checkouts, folder, spec.project.root, tuple(env.items()))


def build_run_sandbox(
    spec: RunSpec, owner: ProcessOwner, folder: RunFolder, fixed: Mapping[str, str], parent: str
) -> DirectRunner | SandboxedRunner:
    """The runner for the commands of a run; raises Refused where its sandbox does not work here.

    `fixed` are files of the run that nobody may change.
    """
    name = spec.request.sandbox_kind(spec.loaded.settings)
    if name is None:
        return DirectRunner(owner)
    backend = choose_backend(name, os.environ, spec.project.root)
    config = build_sandbox_config(spec, folder, fixed, parent)
    if (set_default_agent := getattr(backend, "set_default_agent", None)) and config.agents:  # Docker's sandboxes
        set_default_agent(config.agents[0][0], os.path.join(config.store, "agents", config.agents[0][0]))
    return wrap_in_sandbox(owner, backend, config)


def build_sandbox_config(spec: RunSpec, folder: RunFolder, fixed: Mapping[str, str], parent: str) -> SandboxConfig:
    """The paths, hosts and variables of a run's sandbox."""
    settings, root = spec.loaded.settings, spec.project.root
    sandbox, reserved = settings.sandbox, reserved_paths(root, fixed)
    return SandboxConfig(
        root, spec.project.store,
        os.path.normpath(os.path.join(root, spec.request.task.folder or folder.published_path("task"))),
        spec.agent_env, tuple(settings.protected_paths),
        tuple(one.path for one in reserved if one not in RESERVED_PATHS),
        sandbox.allow_hosts, sandbox.allow_local_ports, tuple(map(os.path.expanduser, sandbox.read_paths)),
        tuple(_agent_requirements(spec)), tuple(name for name, _ in settings.agent.env),
        # The services of a child run come from our environment: an agent that could name one would have a way out.
        tuple((os.environ if parent else dict(spec.agent_env)).items()),
    )  # fmt: skip


def _agent_requirements(spec: RunSpec) -> Iterator[tuple[str, AgentRequirements]]:
    for agent in (*spec.agents, *(one.agent for one in spec.stage_plan.judges.values())):
        if (requirements := getattr(agent, "requirements", None)) is not None:
            yield agent.name, requirements


SCM_START_NOTE = "scm-start"  # a note with the ScmBaseline of the run's start
BACKUP_FOLDER = "backup"  # copies of the repository, shared by its runs
FIRST_RESTART_DELAY_S = 1.0  # default
PROTECTED_COPIES_FOLDER = "vault"  # copies of protected files, beside the logs of a run


def build_rules(settings: Settings, pipeline: Pipeline, debugging: Skill | None = None) -> RunRules:
    """The rules that follow from the settings. `debugging` is the skill that is added to the prompt after a stall."""
    limits, supervise = settings.limits, settings.supervise
    restarts = read_preset(settings.preset).get("restarts", False)  # the agent is a program, which may be silent
    delay_s = supervise.restart_delay_seconds
    pause_s = limits.pause_milliseconds / 1000
    if restarts:
        pause_s = FIRST_RESTART_DELAY_S if delay_s is None else delay_s
    return RunRules(
        pipeline,
        build_limits(settings, restarts),
        scm=settings.scm is not None,
        hooks=settings.on.by_name,
        warn_unknown_cost=limits.max_cost_usd is not None or limits.daily_cost_usd is not None,
        checks=CheckRules(when=settings.checks_when, baseline=True, must_fail_first=settings.must_fail_first),
        prompt=PromptRules(
            show_count=settings.include_iteration_count_in_prompt,
            show_previous=settings.context_injection,
            debug_advice=skill_advice(debugging, settings.completion_response) if debugging else "",
        ),
        agent=AgentRules(
            pause_s=pause_s,
            timeout_s=settings.agent.timeout_seconds,
            idle_s=settings.agent.idle_timeout_seconds,
            max_empty_replies=None if restarts else settings.agent.retries,
            back_off=restarts and delay_s is None,
            wait_code=supervise.wait_exit_code if restarts else None,
            rotation=AgentRotation(
                max(1, len(settings.agent.ladder)), len(settings.agent.rotate), len(settings.agent.fallbacks)
            ),
        ),
        children=ChildRules(timeout_s=supervise.wait_timeout_seconds, poll_s=supervise.poll_interval_seconds),
    )


def build_limits(settings: Settings, restarts: bool) -> Limits:
    """The limits that follow from the settings."""
    limits = settings.limits
    counted = {name: getattr(limits, f"max_{name}") for name in SPENT_AMOUNTS if name != "micro_usd"}
    budget = Budget(
        settings.maximum_iterations, settings.cost_limit_micro_usd,
        seconds=None if limits.max_minutes is None else limits.max_minutes * 60,
        daily_micro_usd=settings.daily_limit_micro_usd, **counted,
    )  # fmt: skip
    same_name = {name: getattr(limits, name) for name in LimitSettings.__match_args__ if name in Limits.__match_args__}
    return Limits(budget, restarts=restarts, protect_tests=settings.protect_tests, **same_name)


def open_workspace(root: str, private: str, environ: Mapping[str, str], signals: tuple[str, ...] = ()) -> Workspace:
    """A git workspace where the project is the top of a work tree and git is installed; else plain folders.

    `signals` are files that agent and harness exchange: inside the project they do not count as work.
    """
    ignored = (
        *find_redirected_output(root),
        *(os.path.relpath(path, root) for path in signals if path.startswith(root + "/")),
    )
    if _is_git_repository(root) and not is_git_missing(root, environ):
        return GitWorkspace(root, private, environ, ignored)
    return PlainWorkspace(root, private, ignored)


def find_redirected_output(root: str) -> tuple[str, ...]:
    """Project files that receive our own output, as with `ralph run > log` or nohup: they do not count as work."""
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
    """Whether the project is a git repository and git is not installed."""
    return _is_git_repository(root) and find_program("git", environ.get("PATH", os.defpath), outside=root) is None


def _is_git_repository(root: str) -> bool:
    return os.path.lexists(os.path.join(root, ".git"))


def open_scm(settings: Settings, root: str, direct: DirectRunner, folder: RunFolder, sandbox: Sandbox) -> Scm | None:
    """The SCM for passed work. Opened at the start, because it remembers the user's hooks as they were.

    A resumed run uses those of its start. Where there is a `sandbox`, hooks run in it.
    """
    if settings.scm is None:
        return None
    command, tasks = settings.scm.command, settings.scm.tasks
    programs = TurnProgramRunner(direct, folder, root)
    sandboxed = TurnProgramRunner(sandbox, folder, root) if not isinstance(sandbox, DirectRunner) else None
    noted = folder.noted(SCM_START_NOTE)
    saved = unpack(noted) if noted is not None else None
    baseline = saved if isinstance(saved, ScmBaseline) else None
    scm: GitScm | CommandScm
    if os.path.basename(command) == "git":
        scm = GitScm(root, tasks, programs, baseline, sandboxed=sandboxed)
    else:
        scm = CommandScm(command, tasks, root, sandboxed or programs, baseline=baseline)
    if saved is None:
        folder.note(SCM_START_NOTE, pack(scm.baseline))
    return scm


def build_tripwires(
    protected: tuple[str, ...], workspace: Workspace, folder: RunFiles, run_files: Mapping[str, str]
) -> Tripwires:
    """Tripwires for what no agent may change: the user's list, and what only the harness and the user change.

    `run_files` are files of this run, with a description of each.
    """
    root, git = workspace.root, workspace if isinstance(workspace, GitWorkspace) else None
    copies = folder.log_base(PROTECTED_COPIES_FOLDER)
    store = os.path.dirname(os.path.dirname(os.path.dirname(copies)))  # of the repository; the vault is in runs/RUN/
    return ProtectedFileTripwires(
        root, copies, folder.run, protected, reserved_paths(root, run_files), git, folder.log_base,
        lambda name: os.path.relpath(folder.published_path(name), root), os.path.join(store, BACKUP_FOLDER),
    )  # fmt: skip


def uncommitted_at_start(workspace: Workspace, run: str) -> tuple[str, ...]:
    """Paths that were uncommitted before the first turn of a run."""
    start = workspace.find_snapshot(run, "0-checked") or workspace.find_snapshot(run, "0")
    return workspace.uncommitted_paths(start) if start and isinstance(workspace, GitWorkspace) else ()


class SettingsChangeDetector:
    """Detects edits of the settings during a run. They are reported; the settings of the start stay in force."""

    def __init__(self, files: tuple[tuple[str, str], ...]) -> None:
        self._known = dict(files)

    def __call__(self) -> tuple[str, ...]:
        """A sentence for every settings file that changed since the last call."""
        notices: list[str] = []
        for path, digest in self._known.items():
            now = settings_file_digest(path)
            if now != digest:
                change = "was written" if not digest else "was removed" if not now else "was changed"
                notices.append(
                    f"{os.path.basename(path)} {change} during the run; the settings of the start stay in force"
                )
                self._known[path] = now
        return tuple(notices)


# Clean checkouts are in the state folder, outside of the project, always at the same path.


CHECKOUTS_FOLDER, OBJECT_FOLDERS_NOTE = (
    "clean",
    "clean-objects",
)  # a folder in the store; a note with the object folders of the start


class CleanCheckouts:
    """Creates checkouts of what would be committed, with a sandbox like the run's own around each."""

    def __init__(
        self, spec: RunSpec, folder: RunFolder, workspace: Workspace, sandbox: DirectRunner | SandboxedRunner,
        owner: ProcessOwner,
        records: Callable[[str], tuple[Record, ...]], parent: str,
    ) -> None:  # fmt: skip
        """Raises Refused where there is no git, or where the run's kind of sandbox cannot be used for a checkout."""
        self.setup = spec.loaded.settings.setup
        self._spec, self._folder, self._workspace, self._records = spec, folder, workspace, records
        self._sandbox, self._owner, self._parent = sandbox, owner, parent
        self._root, self._environ = spec.project.root, dict(os.environ)
        place = checkout_folder(spec.project.store, self._root, folder.run if parent else "")
        self._checkout = CheckoutFolder(place, self._root, self._environ, self.setup)
        self._backend = None if isinstance(sandbox, DirectRunner) else _checkout_backend(spec, sandbox)
        self._object_folders = self._initial_object_folders()

    def _initial_object_folders(self) -> tuple[str, ...]:
        """The object folders when the run began. Later ones are not used: an agent could add any folder as one, and
        have it readable in the sandbox.
        """
        source = SourceRepository(self._root, self._environ)
        noted = self._folder.noted(OBJECT_FOLDERS_NOTE)
        if isinstance(noted, list):
            return tuple(str(path) for path in noted)
        folders = object_folders(source.folders)
        self._folder.note(OBJECT_FOLDERS_NOTE, list(folders))
        return folders

    def check_out(self, inspection: Inspection, check: str) -> PreparedCheckout:
        """The checkout that was made for this check, or a new one."""
        owner = f"{self._folder.run} {inspection.iteration}.{inspection.turn}.{inspection.round} {check}"
        state = self._checkout.state
        if state is None or state.owner != owner:
            number = unused_checkout_number(self.setup, self._folder, inspection)
            state = self._checkout.create(self._work(inspection.snapshot), owner, number)
        return PreparedCheckout(self._checkout.tree, self._checkout_sandbox(), state.number, state.prepared)

    def _work(self, snapshot: Snapshot) -> str | PendingWork:
        """What is checked out: what a commit would contain, or else the whole snapshot."""
        if snapshot.id is None:
            raise Refused(f"the work was not saved: {snapshot.problem or 'its tree is unknown'}")
        start = self._start_snapshot() if self._commits_work() else None
        if start is None:
            return snapshot.id
        user_paths = frozenset((*self._staged_at_start(), *build_state(self._records(self._folder.run)).user.paths))
        return PendingWork(start, snapshot, user_paths)

    def _commits_work(self) -> bool:
        scm = self._spec.loaded.settings.scm
        return scm is not None and os.path.basename(scm.command) == "git" and "commit" in scm.tasks

    def _start_snapshot(self) -> Snapshot | None:
        find, run = self._workspace.find_snapshot, self._folder.run
        return find(run, "0-checked") or find(run, "0")

    def _staged_at_start(self) -> tuple[str, ...]:
        noted = self._folder.noted(SCM_START_NOTE)
        start = unpack(noted) if noted is not None else None
        return start.staged if isinstance(start, ScmBaseline) else ()

    def _checkout_sandbox(self) -> Sandbox:
        """The run's own sandbox, around the checkout."""
        if self._backend is None:
            return self._sandbox
        config = build_sandbox_config(self._spec, self._folder, {}, self._parent)
        read_paths = (*config.read_paths, *(path for path in self._object_folders if os.path.isdir(path)))
        checkout_config = replace(
            config, root=self._checkout.tree, task="", protected=(), run_files=(), agents=(), read_paths=read_paths
        )
        return wrap_in_sandbox(self._owner, self._backend, checkout_config)

    def setup_done(self) -> None:
        """Cache what the `setup` commands made."""
        self._checkout.setup_done()

    def close(self) -> None:
        """Remove the checkout when the run is over; only the cache of `setup` stays."""
        self._checkout.remove()


def _checkout_backend(spec: RunSpec, sandbox: SandboxedRunner) -> Backend:
    """Another backend of the run's own kind."""
    backend = choose_backend(sandbox.name, os.environ, spec.project.root)
    if getattr(backend, "is_virtual_machine", False) or backend.name != sandbox.name:
        raise Refused(f"verifyIn clean is not possible in this kind of sandbox ({sandbox.name}); name another one")
    return backend


def checkout_folder(store: str, root: str, run: str = "") -> str:
    """The folder for clean checkouts of a project; a `run` that shares the project with its parent has its own."""
    key = os.fsencode(os.path.realpath(root)) + b"\0" + run.encode()
    return os.path.join(store, CHECKOUTS_FOLDER, hashlib.sha256(key).hexdigest()[:12])


def remove_stale_checkout(store: str, root: str, run: str) -> None:
    """Remove a checkout that a dead run left in this project; the caller holds the project's lock."""
    checkout = CheckoutFolder(checkout_folder(store, root), root, os.environ)
    if os.path.lexists(checkout.tree) and not (checkout.state and checkout.state.owner.startswith(f"{run} ")):
        checkout.remove()


# A run's own worktree is prepared by the `setup` commands before any agent sees it.


WORKTREE_READY_NOTE = "tree-ready"  # a note: setup is done
BEFORE_FIRST_TURN = Inspection(0, 1, "", Snapshot(None, None), Change())


def prepare_worktree(spec: RunSpec, folder: RunFolder, world: LoopEnvironment) -> None:
    """Run the `setup` commands in a run's worktree, once for a run; raises Refused with the one that failed.

    After an interruption all commands run again, so a command may run twice.
    """
    setup, root = spec.loaded.settings.setup, spec.project.root
    if not spec.request.in_worktree or not setup or folder.noted(WORKTREE_READY_NOTE):
        return
    checkout = PreparedCheckout(root, world.agents.sandbox, unused_checkout_number(setup, folder, BEFORE_FIRST_TURN))
    plain = CommandCheckSpec("", "")
    failed = run_setup(setup, plain, checkout, folder, spec.check_env, BEFORE_FIRST_TURN, TurnMonitor(world))
    if failed:
        raise Refused(_setup_refusal(failed, folder))
    folder.note(WORKTREE_READY_NOTE, True)


def _setup_refusal(finding: Finding, folder: RunFolder) -> str:
    if finding.why == STOPPED:
        return "the run was asked to end while its work tree was prepared; nothing was begun"
    log = (
        folder.log_base(os.path.basename(finding.log)) if finding.log else ""
    )  # the published copy is removed with the worktree
    return f"the work tree could not be prepared: setup command {finding.command!r} failed ({finding.why}); log: {log}"
