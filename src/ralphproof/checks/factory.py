"""Creation of checks from their specs, and the context for check plug-ins."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.text import quote_excerpt, unique_slugs
from ralphproof.base.value import assert_never, replace, value
from ralphproof.checks.check_plan import CheckSpec
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.checks.function import PluginCheck, create_plugin_check
from ralphproof.checks.judge import Judge
from ralphproof.checks.templates import task_environment
from ralphproof.engine.agent import Agent
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection, failure_fingerprint
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.plan import (
    CustomVerification,
    ExternalVerification,
    SemanticVerification,
    StringMatchVerification,
    Task,
)
from ralphproof.engine.sandbox import Sandbox
from ralphproof.engine.workspace import Snapshot
from ralphproof.settings.implementations import resolve_implementation


class ClaimCheck:
    """Passes where the claim is the one that the rule requires: exactly that word in its tag.

    A promise proves nothing, so its finding is required only where it is missing: it verifies no run.
    """

    def __init__(self, name: str, rule: ClaimRule, required: bool = True) -> None:
        if rule.word is None:
            raise ValueError(f"{name}: the rule requires no word, so there is no promise to check")
        self.name, self.required, self._rule = name, required, rule

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """Whether the claim of this iteration is the promise."""
        if self._rule.accepts(inspection.claim):
            return Finding(self.name, True, required=False)
        why = f"{_describe_claim(inspection.claim)}, expected {self._rule.description}"
        fingerprint = failure_fingerprint(self.name, None, why)
        return Finding(self.name, False, why=why, fingerprint=fingerprint, required=self.required)


def _describe_claim(claim: Claim | None) -> str:
    """What the agent claimed instead."""
    if claim is None:
        return "no promise"
    if claim.waiting:
        return f"the word that it waits ({quote_excerpt(claim.word)})"
    where = {"tag": "in a tag", "marker": "by a file", "bus": "in a message", "exit": "by its exit code"}
    return f"the word {quote_excerpt(claim.word)} {where.get(claim.source, '')}".rstrip()


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
    """The services and values that checks are created with.

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

    def __init__(self, check: Check, spec: CheckSpec) -> None:
        self.name, self.required, self.key = spec.name, spec.required, str(getattr(check, "key", ""))
        self._check, self._action, self._hint = check, spec.action, spec.hint

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        return replace(self._check.run(inspection, watch), action=self._action, hint=self._hint)


def create_checks(specs: Iterable[CheckSpec], dependencies: CheckDependencies) -> dict[str, Check]:
    """The checks by name; raises Refused where a plug-in cannot be used.

    Checks of a task have its fields in their environment.
    """
    if dependencies.task.id:
        dependencies = replace(
            dependencies, env=tuple((dict(dependencies.env) | task_environment(dependencies.task)).items())
        )
    specs = tuple(specs)
    logs = unique_slugs(tuple(spec.log_name or spec.name for spec in specs))
    return {spec.name: _create_check(spec, log, dependencies) for spec, log in zip(specs, logs, strict=True)}


def _create_check(spec: CheckSpec, log: str, dependencies: CheckDependencies) -> Check:
    match spec.verification:
        case ExternalVerification() as verification:
            command_spec = _command_spec(spec, verification, log, dependencies)
            if spec.clean and dependencies.create_clean_check is not None:
                return dependencies.create_clean_check(command_spec)
            return CommandCheck(
                command_spec, dependencies.sandbox, dependencies.folder, dependencies.root, dependencies.env
            )
        case StringMatchVerification():
            return _configured(ClaimCheck(spec.name, spec.claim_rule, spec.required), spec)
        case SemanticVerification() as verification:
            return _configured(_create_judge(spec, verification, dependencies), spec)
        case CustomVerification() as verification:
            return _create_plugin_check(spec, verification, dependencies)
        case _:
            assert_never(spec.verification)


def _command_spec(
    spec: CheckSpec, verification: ExternalVerification, log: str, dependencies: CheckDependencies
) -> CommandCheckSpec:
    return CommandCheckSpec(
        verification.command, log, spec.name, spec.action, spec.hint, verification.timeout_s, spec.retries,
        dependencies.clip_chars, dependencies.clip_mode, success_code=verification.success_exit_code,
        contains=verification.output_contains, lacks=verification.output_not_contains, folder=verification.folder,
        required=spec.required, hidden=spec.hidden,
    )  # fmt: skip


def _configured(check: Check, spec: CheckSpec) -> Check:
    return ConfiguredCheck(check, spec) if spec.action != "APPEND" or spec.hint else check


def _create_judge(spec: CheckSpec, verification: SemanticVerification, dependencies: CheckDependencies) -> Check:
    return Judge(
        spec.name, verification, dependencies.judges.get(spec.name), dependencies.sandbox, dependencies.folder,
        dependencies.diff, dependencies.agent_env, spec.required, _task_text(dependencies.task),
    )  # fmt: skip


def _task_text(task: Task) -> str:
    """The task's own text, for a judge."""
    outcome = f"Outcome: {task.outcome}" if task.outcome else ""
    return "\n\n".join(text for text in (task.title, task.prompt, outcome) if text)


def _create_plugin_check(spec: CheckSpec, verification: CustomVerification, dependencies: CheckDependencies) -> Check:
    context = CheckContext(
        dependencies.root, dependencies.env, dependencies.folder, dependencies.sandbox, dependencies.task, spec.stage
    )
    check = create_plugin_check(
        lambda *arguments: resolve_implementation("checks", verification.method)(*arguments),
        spec.name,
        dict(verification.config),
        context,
    )
    if isinstance(check, str):
        kind = TaskWrong if spec.stage else Refused
        raise kind(f"{_check_location(spec, dependencies.task)}: method {verification.method} cannot be used: {check}")
    return PluginCheck(check, spec.name, spec.required, spec.action, spec.hint)


def _check_location(spec: CheckSpec, task: Task) -> str:
    """The check's place in the settings or the task, for messages."""
    if not spec.stage:
        return f"guardrail {spec.name}"
    return f"task {task.id}, stage {spec.stage}, check {spec.name}"
