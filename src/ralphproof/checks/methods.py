"""Verification methods of tasks, stages and guardrails: their table, validation of configs, parsing into values."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from ralphproof.base.graph import find_cycles
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.checks import templates
from ralphproof.checks.templates import PLACEHOLDER, TASK_VARIABLES, expand_template
from ralphproof.engine.claim import is_same_word
from ralphproof.engine.plan import (
    CHANGES_REQUESTED,
    DEFAULT_COMMAND_TIMEOUT_S,
    DEFAULT_JUDGE_MICRO_USD,
    DEFAULT_JUDGE_TIMEOUT_S,
    EXTERNAL,
    MULTI_STAGE,
    SEMANTIC,
    STRING_MATCH,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    SemanticVerification,
    StringMatchVerification,
    Task,
    Verification,
    VerificationPart,
)
from ralphproof.settings.declarations import PIPELINE_STAGES, GuardrailSettings
from ralphproof.settings.field_rules import (
    KIB,
    any_text,
    boolean,
    integer,
    list_of,
    mapping,
    number,
    project_folder,
    show_value,
    suggest_name,
    text,
    validate_mapping,
)
from ralphproof.settings.implementations import BUILTIN, is_registered, plugin_names

if TYPE_CHECKING:
    from ralphproof.settings.field_rules import Rule


# Validation of a task's completion.


MAX_LEVELS = 5  # of nested stages
MAX_STAGES = 100
MAX_CRITERIA = 200  # criteria of one judgement
MAX_TIMEOUT_S = 86_400
SENTENCE = text(2000, lines=True)
STAGE_KEYS = ("verification_method", "verification_config", "verification_template")
PART_KEYS = ("method", "config", "template")


def _any(_: object) -> Iterator[str]:
    yield from ()  # validated with the rest of its mapping


def _promise(data: object) -> Iterator[str]:
    yield from text(200)(data)
    if isinstance(data, str) and ("<" in data or ">" in data):
        yield f" may not hold < or >; the tags are put around it, so write the word alone, not {show_value(data)}"
    if isinstance(data, str) and data.strip().casefold() == CHANGES_REQUESTED.casefold():
        yield f" may not be {CHANGES_REQUESTED}, which sends a task back; choose another word"


def _check_for(data: object) -> Iterator[str]:
    texts = [data] if isinstance(data, str) else data
    problems = list(list_of(SENTENCE, 200)(texts))
    yield from (fault.removeprefix("[0]") if isinstance(data, str) else fault for fault in problems)
    for index, question in enumerate(texts) if not problems and isinstance(texts, list) else ():
        where = "" if isinstance(data, str) else f"[{index}]"
        yield from (where + fault for fault in templates.unknown_placeholders(question))


_COMPLETION: dict[str, Rule] = {
    "outcome": SENTENCE, "acceptance_criteria": list_of(SENTENCE, 200, least=1), **dict.fromkeys(PIPELINE_STAGES, _any),
}  # fmt: skip
_BLOCK: dict[str, Rule] = {
    "promise": _promise, "description": text(2000, blank=True, lines=True), "verification_method": _any,
    "verification_config": mapping, "max_iterations": integer(1, 1_000_000), "verification_template": _any,
    "with": _any,
}  # fmt: skip
_EXTERNAL: dict[str, Rule] = {
    "command": any_text(100 * KIB), "success_exit_code": integer(0, 255),
    "output_contains": any_text(100 * KIB, blank=True), "output_not_contains": any_text(100 * KIB, blank=True),
    "timeout": number(MAX_TIMEOUT_S), "working_dir": project_folder,
}  # fmt: skip
_SEMANTIC: dict[str, Rule] = {
    "check_for": _check_for, "negative_patterns": list_of(SENTENCE, 200), "model": text(200), "agent": text(200),
    "max_cost_usd": number(10_000), "timeout": number(MAX_TIMEOUT_S),
}  # fmt: skip
_MULTI_STAGE: dict[str, Rule] = {
    "stages": list_of(_any, MAX_STAGES, least=1),
    "require_all": boolean,
    "parallel": boolean,
}
_PART: dict[str, Rule] = {
    "name": text(200), "method": _any, "config": mapping, "required": boolean,
    "depends_on": list_of(text(200), MAX_STAGES), "template": _any, "with": _any,
}  # fmt: skip


@value
class ValidationScope:
    """Context for validating a verification: its task, the promise of its stage, and a test for plug-in methods."""

    task: Task
    methods: Callable[[str], bool]
    promise: object = None
    level: int = 1


def validate_completion(completion: object, task: Task, methods: Callable[[str], bool]) -> Iterator[str]:
    """Yield every problem of a task's completion; each line starts with the path of the field."""
    if completion is None:
        yield "completion is missing; give an outcome and at least one acceptance criterion"
        return
    yield from validate_mapping(completion, "completion", _COMPLETION, ("outcome", "acceptance_criteria"))
    blocks = completion if isinstance(completion, dict) else {}
    for stage in PIPELINE_STAGES:
        if (block := blocks.get(stage)) is not None:
            path = f"completion.{stage}"
            yield from validate_mapping(block, path, _BLOCK, ("promise",))
            if isinstance(block, dict):
                scope = ValidationScope(task, methods, block.get("promise"))
                yield from _validate_choice(block, path, STAGE_KEYS, scope, needed=False)


def _validate_choice(
    block: dict[str, Any], path: str, names: tuple[str, str, str], scope: ValidationScope, needed: bool
) -> Iterator[str]:
    """Yield problems of a block that names either a method with its config, or a template."""
    method, config, template = (block.get(name) for name in names)
    if template is not None:
        if method is not None or config is not None:
            yield f"{path}.{names[2]} stands for a method and its config; leave out {names[0]} and {names[1]}"
        problems = list(templates.validate_template_use(template, arguments := block.get("with"), path, names[2]))
        yield from problems
        if not problems and isinstance(template, str) and (arguments is None or isinstance(arguments, dict)):
            yield from validate_method(*templates.expand_template(template, arguments), path, scope, names)
        return
    if block.get("with") is not None:
        yield f"{path}.with belongs to a template; name it in {path}.{names[2]}"
    if method is None and (needed or config):
        yield f"{path}.{names[0]} is missing"
    elif method is not None:
        yield from validate_method(method, config, path, scope, names)


def validate_method(
    method: object, config: object, path: str, scope: ValidationScope, names: tuple[str, str, str] = STAGE_KEYS
) -> Iterator[str]:
    """Yield problems of a method and its config; `names` are the keys that hold them below `path`."""
    where = f"{path}.{names[1]}"
    if config is not None and not isinstance(config, dict):
        return  # already reported
    if isinstance(method, str) and method in METHODS:
        yield from METHODS[method].validate(config or {}, where, scope)
    elif not isinstance(method, str) or not scope.methods(method):
        known = (*METHODS, *BUILTIN["checks"])
        near = suggest_name(method, known) if isinstance(method, str) else ""
        yield f"{path}.{names[0]} must be one of {', '.join(known)}, or installed; not {show_value(method)}{near}"


def _validate_string_match(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, {"promise": _promise})
    word, promise = config.get("promise"), scope.promise
    if isinstance(word, str) and isinstance(promise, str) and not is_same_word(word, promise):
        yield f"{path}.promise is {show_value(word)}, and the stage's promise {show_value(promise)}; leave it out here"


def _validate_semantic(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, _SEMANTIC)
    has_criteria = any(config.get(key) not in (None, []) for key in ("check_for", "negative_patterns"))
    if not has_criteria and not scope.task.acceptance:  # these are the default
        yield f"{path} needs check_for or negative_patterns"
    if (count := len(templates.judge_criteria(config.get("check_for"), scope.task))) > MAX_CRITERIA:
        yield f"{path}.check_for asks for {count} criteria with those of the task; at most {MAX_CRITERIA}"


def _validate_external(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, _EXTERNAL, ("command",))
    command = config.get("command")
    if not isinstance(command, str):
        return
    for field in templates.omitted_fields(scope.task, command):
        yield f"{path}.command uses {{{{{field}}}}}, which is too long for a variable (100 KiB)"
    for field in templates.ambiguous_fields(command):
        yield (
            f"{path}.command has {{{{{field}}}}} where it cannot be quoted safely; "
            f"write the variable ${templates.TASK_VARIABLES[field]} there, quoted as any variable"
        )


def _validate_multi_stage(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, _MULTI_STAGE, ("stages",))
    stages = config.get("stages")
    if not isinstance(stages, list) or not stages or len(stages) > MAX_STAGES:
        return
    if scope.level > MAX_LEVELS:
        yield f"{path}.stages is nested more than {MAX_LEVELS} deep"
        return
    for index, part in enumerate(stages):
        where = f"{path}.stages[{index}]"
        yield from validate_mapping(part, where, _PART, ("name",))
        if isinstance(part, dict):
            inner = ValidationScope(scope.task, scope.methods, scope.promise, scope.level + 1)
            yield from _validate_choice(part, where, PART_KEYS, inner, needed=True)
    parts = [part for part in stages if isinstance(part, dict)]
    if parts and all(part.get("required") is False for part in parts):
        yield f"{path}.stages: no stage is required, so nothing would be verified"
    yield from _validate_stage_order(stages, f"{path}.stages")


def _validate_stage_order(stages: list[object], path: str) -> Iterator[str]:
    """Yield duplicate stage names, unknown dependencies and dependency cycles."""
    edges: dict[str, tuple[str, ...]] = {}
    for position, part in enumerate(stages):
        name = part.get("name") if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(name, str):
            if name in edges:
                yield f"{path}[{position}].name: another stage is named {show_value(name)}"
            after = part.get("depends_on")
            edges[name] = (
                tuple(dependency for dependency in after if isinstance(dependency, str))
                if isinstance(after, list)
                else ()
            )
    for position, part in enumerate(stages):
        after = part.get("depends_on") if isinstance(part, dict) else None
        for index, dependency in enumerate(after) if isinstance(after, list) else ():
            if isinstance(dependency, str) and dependency not in edges:
                near = suggest_name(dependency, edges)
                yield f"{path}[{position}].depends_on[{index}]: no stage is named {show_value(dependency)}{near}"
    for cycle in find_cycles(edges):
        yield f"{path}: depends_on goes in a circle: {' -> '.join(cycle)}"


# Verification methods by name: the four built-in ones, and those of installed packages.


GUARDRAIL_METHOD_KEYS = ("method", "config", "template")  # of a guardrail in the settings
STAGE_METHOD_KEYS = ("verification", "verificationConfig", "verificationTemplate")  # of a stage in the settings
_NO_TASK = Task("", "")
SAMPLE_TASK = Task("", "", acceptance=("it is done",))  # every task has acceptance criteria


def is_registered_method(method: str) -> bool:
    """Whether the registry has this method beside those of `METHODS`, or it is written as `package.module:Name`.

    Loads nothing.
    """
    if method in METHODS:
        return False
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", method) is not None or is_registered("checks", method)


def find_method_problems(
    method: str, config: dict[str, Any], path: str, names: tuple[str, str, str] = GUARDRAIL_METHOD_KEYS,
    promise: str | None = None, task: Task = _NO_TASK,
) -> tuple[str, ...]:  # fmt: skip
    """All problems of a method and its config, without duplicates; an unknown method lists the installed ones."""

    problems = dict.fromkeys(
        validate_method(method, config, path, ValidationScope(task, is_registered_method, promise), names)
    )
    return tuple(
        line + _describe_installed(method) if line.startswith(f"{path}.{names[0]} must") else line for line in problems
    )


def _describe_installed(method: str) -> str:
    """End of the sentence about an unknown method: the installed plug-in methods."""
    others = plugin_names("checks")
    return f"; installed: {', '.join(others)}{suggest_name(method, others)}" if others else ""


def chosen_method(block: dict[str, Any], names: tuple[str, str, str]) -> tuple[str, dict[str, Any]] | None:
    method, config, template = (block.get(name) for name in names)
    if template is not None:
        return expand_template(template, block.get("with"))
    return (method, config or {}) if method is not None else None


def parse_verification(method: str, config: dict[str, Any], task: Task) -> Verification:
    """Parse a valid method and config into the verification of this task."""
    if method not in METHODS:
        return CustomVerification(method, config)
    return METHODS[method].parse({name: inner for name, inner in config.items() if inner is not None}, task)


def _parse_external(options: dict[str, Any], _: Task) -> ExternalVerification:
    return ExternalVerification(
        templates.substitute_in_command(options["command"]),
        options.get("success_exit_code", 0),
        options.get("output_contains", ""),
        options.get("output_not_contains", ""),
        float(options.get("timeout", DEFAULT_COMMAND_TIMEOUT_S)),
        os.path.normpath(options.get("working_dir", ".")),
    )


def _parse_semantic(options: dict[str, Any], task: Task) -> SemanticVerification:
    max_cost_usd = options.get("max_cost_usd")
    return SemanticVerification(
        templates.judge_criteria(options.get("check_for", []), task),
        tuple(options.get("negative_patterns", ())),
        options.get("model", ""),
        options.get("agent", ""),
        DEFAULT_JUDGE_MICRO_USD if max_cost_usd is None else math.ceil(max_cost_usd * 1_000_000),
        float(options.get("timeout", DEFAULT_JUDGE_TIMEOUT_S)),
    )


def _parse_multi_stage(options: dict[str, Any], task: Task) -> MultiStageVerification:
    parts = tuple(_parse_part(part, task) for part in options["stages"])
    return MultiStageVerification(parts, options.get("require_all", True), options.get("parallel", True))


def _parse_part(part: dict[str, Any], task: Task) -> VerificationPart:
    method, config = chosen_method(part, PART_KEYS) or ("", {})
    required = part.get("required")
    return VerificationPart(
        part["name"],
        parse_verification(method, config, task),
        required is not False,
        tuple(part.get("depends_on") or ()),
    )


@value
class Method:
    """A verification method that a plan is built from; others are checks that the registry names.

    A stage of the settings may name a method without a config, where the method `has_default`.
    """

    validate: Callable[[dict[str, Any], str, ValidationScope], Iterator[str]]
    parse: Callable[[dict[str, Any], Task], Verification]
    has_default: bool = True


METHODS = {
    STRING_MATCH: Method(_validate_string_match, lambda _options, _task: StringMatchVerification()),
    SEMANTIC: Method(_validate_semantic, _parse_semantic),
    EXTERNAL: Method(_validate_external, _parse_external),
    MULTI_STAGE: Method(_validate_multi_stage, _parse_multi_stage),
}


def has_default(method: str) -> bool:
    """Whether a stage of the settings may name this method without a config."""
    return method in METHODS and METHODS[method].has_default


# Guardrails and stages of the settings.


COMMAND_KEYS = ("command", "timeoutSeconds", "retries")


def guardrail_verification(guardrail: GuardrailSettings) -> Verification:
    """How a guardrail is verified; its command and timeout are keys of its own in settings."""
    command, timeout_s = guardrail.command, guardrail.timeout_seconds
    if guardrail.method != EXTERNAL:
        return parse_verification(guardrail.method, guardrail.config, _NO_TASK)
    how = parse_verification(EXTERNAL, {**guardrail.config, "command": command}, _NO_TASK)
    return replace(how, command=command, timeout_s=timeout_s)


def stage_method_problems(method: str, config: dict[str, Any], path: str, promise: str | None) -> tuple[str, ...]:
    """All problems of the method and config of a stage in the settings."""
    if not config and has_default(method):
        return ()
    return find_method_problems(method, config, path, STAGE_METHOD_KEYS, promise, SAMPLE_TASK)


def guardrail_method_problems(item: dict[str, Any], where: str) -> Iterator[str]:
    """Yield problems of a guardrail of the settings, which has a method and a config."""
    method, config = item["method"], item["config"]
    if method == EXTERNAL:
        yield from _command_problems(item, where)
        return
    for key in COMMAND_KEYS:
        if key in item:
            yield f"{where}.{key} is for method {EXTERNAL}; {method} takes what it needs from {where}.config"
    if _is_promise_only(method, config):
        yield f"{where}: {STRING_MATCH} asks for nothing that `completionResponse` does not; leave it out"
        return
    yield from find_method_problems(method, config, where)
    yield from (
        f"{where}.config has {placeholder}, and a guardrail has no task to take it from"
        for placeholder in _task_placeholders(config)
    )


def _command_problems(item: dict[str, Any], where: str) -> Iterator[str]:
    config = item["config"]
    if "command" not in item:
        yield f"{where}.command is missing; method {EXTERNAL} runs a command"
        return
    for key, own in (("command", "command"), ("timeout", "timeoutSeconds")):
        if key in config:
            yield f"{where}.config.{key} has a key of its own: {where}.{own}"
    if config and isinstance(item["command"], str):
        yield from find_method_problems(EXTERNAL, {**config, "command": item["command"]}, where)


def _is_promise_only(method: str, config: dict[str, Any]) -> bool:
    """Whether a method, or any part of a multi-stage one, is string_match."""
    stages = config.get("stages")
    parts = [part for part in stages if isinstance(part, dict)] if isinstance(stages, list) else []
    inner = ((part.get("method"), part.get("config")) for part in parts)
    return method == STRING_MATCH or any(
        isinstance(name, str) and _is_promise_only(name, part_config if isinstance(part_config, dict) else {})
        for name, part_config in inner
    )


def _task_placeholders(data: object) -> list[str]:
    """Placeholders of task fields in any text below `data`."""
    if isinstance(data, str):
        return [match[0] for match in re.finditer(PLACEHOLDER, data) if match[1] in TASK_VARIABLES]
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [placeholder for item in inner for placeholder in _task_placeholders(item)]
