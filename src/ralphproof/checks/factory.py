"""Creation of checks from their specs, and the context for check plug-ins."""

from __future__ import annotations

from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.text import unique_slugs
from ralphproof.base.value import TYPE_CHECKING, assert_never, replace, value
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.plan import (
    CustomVerification,
    ExternalVerification,
    SemanticVerification,
    StringMatchVerification,
    Task,
)
from ralphproof.engine.sandbox import Sandbox
from ralphproof.settings.registry import resolve_implementation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.checks.check_plan import CheckSpec
    from ralphproof.engine.agent import Agent
    from ralphproof.engine.workspace import Snapshot

NO_TASK = Task("", "")


@value
class CheckContext:
    """The context that a plug-in's factory receives beside its name and its config.

    A plug-in is an entry point of the group `ralphproof.checks`; its name is the method name in tasks and settings. It
    is called once, before the run begins, as `factory(name, config, context)`, and returns a Check: an object with a
    `name` and `run(inspection, watch)` that returns a Finding, True or False, or (passed, why). It rejects a config
    with an exception, whose text is shown to the user. It runs in the program's own process, after every process of the
    agent has ended, and possibly in a thread beside other checks.

        root     the project's folder, with the work to check
        env      the environment of checks, as it was when the run began, with the task's fields: RALPH_TASK_ID,
                 RALPH_TASK_TITLE and so on
        folder   the run's files; `folder.log_base(NAME) + ".log"` is a path for a log, `folder.publish(NAME)` publishes
                 it
        sandbox  `sandbox.run(Command(...), watch)` runs a program and ends all of its processes
        task     the task: `id`, `title`, `prompt` (its description), `outcome`, `acceptance`, `spec`; empty where the
                 run has only a prompt
        stage    the stage of the check; empty for a guardrail
    """

    root: str
    env: tuple[tuple[str, str], ...]
    folder: RunFiles
    sandbox: Sandbox
    task: Task = NO_TASK
    stage: str = ""


@value
class CheckDependencies:
    """What checks are created with.

    `judges` maps the name of each semantic check to its agent, `agent_env` is the environment of those agents, and
    `diff` returns the difference between two trees.
    """

    root: str
    env: tuple[tuple[str, str], ...]
    folder: RunFiles
    sandbox: Sandbox
    diff: Callable[[Snapshot, Snapshot], bytes]
    agent_env: tuple[tuple[str, str], ...] = ()
    judges: dict[str, Agent] = {}  # noqa: RUF012 (never changed)
    task: Task = NO_TASK
    clip_chars: int = 5000
    clip_mode: str = "ends"
    create_clean_check: Callable[[CommandCheckSpec], Check] | None = None  # a check in a clean checkout


class ConfiguredCheck:
    """A check whose failures enter the next prompt as configured."""

    def __init__(self, check: Check, leaf: CheckSpec) -> None:
        self.name, self.required, self.key = leaf.name, leaf.required, str(getattr(check, "key", ""))
        self._check, self._action, self._hint = check, leaf.action, leaf.hint

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        return replace(self._check.run(inspection, watch), action=self._action, hint=self._hint)


def create_checks(leaves: Iterable[CheckSpec], means: CheckDependencies) -> dict[str, Check]:
    """The checks by name; raises Refused where a plug-in cannot be used.

    Checks of a task have its fields in their environment.
    """
    if means.task.id:
        from ralphproof.settings.verification_templates import task_environment

        means = replace(means, env=tuple((dict(means.env) | task_environment(means.task)).items()))
    every = tuple(leaves)
    logs = unique_slugs(tuple(leaf.log_name or leaf.name for leaf in every))
    return {leaf.name: _create_check(leaf, log, means) for leaf, log in zip(every, logs, strict=True)}


def _create_check(leaf: CheckSpec, log: str, means: CheckDependencies) -> Check:
    match leaf.verification:
        case ExternalVerification() as how:
            question = _command_question(leaf, how, log, means)
            if leaf.clean and means.create_clean_check is not None:
                return means.create_clean_check(question)
            return CommandCheck(question, means.sandbox, means.folder, means.root, means.env)
        case StringMatchVerification():
            from ralphproof.checks.promise import PromiseCheck

            return _configured(PromiseCheck(leaf.name, leaf.claim_rule, leaf.required), leaf)
        case SemanticVerification() as how:
            return _configured(_create_judge(leaf, how, means), leaf)
        case CustomVerification() as how:
            return _create_plugin_check(leaf, how, means)
        case _:
            assert_never(leaf.verification)


def _command_question(
    leaf: CheckSpec, how: ExternalVerification, log: str, means: CheckDependencies
) -> CommandCheckSpec:
    return CommandCheckSpec(
        how.command, log, leaf.name, leaf.action, leaf.hint, how.timeout_s, leaf.retries, means.clip_chars,
        means.clip_mode, success_code=how.success_exit_code, contains=how.output_contains,
        lacks=how.output_not_contains, folder=how.folder, required=leaf.required, hidden=leaf.hidden,
    )  # fmt: skip


def _configured(check: Check, leaf: CheckSpec) -> Check:
    return ConfiguredCheck(check, leaf) if leaf.action != "APPEND" or leaf.hint else check


def _create_judge(leaf: CheckSpec, how: SemanticVerification, means: CheckDependencies) -> Check:
    from ralphproof.checks.judge import Judge

    return Judge(
        leaf.name, how, means.judges.get(leaf.name), means.sandbox, means.folder, means.diff, means.agent_env,
        leaf.required, _task_text(means.task),
    )  # fmt: skip


def _task_text(task: Task) -> str:
    """The task's own text, for a judge."""
    outcome = f"Outcome: {task.outcome}" if task.outcome else ""
    return "\n\n".join(text for text in (task.title, task.prompt, outcome) if text)


def _create_plugin_check(leaf: CheckSpec, how: CustomVerification, means: CheckDependencies) -> Check:
    from ralphproof.checks.function import PluginCheck, create_plugin_check

    context = CheckContext(means.root, means.env, means.folder, means.sandbox, means.task, leaf.stage)
    made = create_plugin_check(
        lambda *told: resolve_implementation("checks", how.method)(*told), leaf.name, dict(how.config), context
    )
    if isinstance(made, str):
        kind = TaskWrong if leaf.stage else Refused
        raise kind(f"{_check_location(leaf, means.task)}: method {how.method} cannot be used: {made}")
    return PluginCheck(made, leaf.name, leaf.required, leaf.action, leaf.hint)


def _check_location(leaf: CheckSpec, task: Task) -> str:
    """The check's place in the settings or the task, for messages."""
    if not leaf.stage:
        return f"guardrail {leaf.name}"
    return f"task {task.id}, stage {leaf.stage}, check {leaf.name}"
