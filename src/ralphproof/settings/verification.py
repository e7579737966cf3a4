"""Verification methods of tasks, stages and guardrails: validation of their configs, and parsing into values."""

from __future__ import annotations

import math
import re

from ralphproof.base.errors import Refused
from ralphproof.base.graph import find_cycles
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.claim import is_same_word
from ralphproof.engine.plan import (
    CHANGES_REQUESTED,
    DEFAULT_COMMAND_TIMEOUT_S,
    DEFAULT_JUDGE_MICRO_USD,
    DEFAULT_JUDGE_TIMEOUT_S,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    SemanticVerification,
    StringMatchVerification,
    Task,
    VerificationPart,
)
from ralphproof.settings import verification_templates
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
from ralphproof.settings.keys import PIPELINE_STAGES, VERIFICATION_METHODS
from ralphproof.settings.registry import BUILTIN, is_registered, plugin_names, resolve_implementation
from ralphproof.settings.verification_templates import expand_template

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ralphproof.engine.plan import Verification
    from ralphproof.settings.field_rules import Rule


# Validation of a task's completion.


MAX_LEVELS = 5  # of stages within stages
MAX_STAGES = 100
MAX_CRITERIA = 200  # criteria of one judgement
MAX_TIMEOUT_S = 86_400
SENTENCE = text(2000, lines=True)
STAGE_KEYS = ("verification_method", "verification_config", "verification_template")
PART_KEYS = ("method", "config", "template")


def _any(_: object) -> Iterator[str]:
    yield from ()  # looked at where the rest of its mapping is known


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
    for place, question in enumerate(texts) if not problems and isinstance(texts, list) else ():
        where = "" if isinstance(data, str) else f"[{place}]"
        yield from (where + fault for fault in verification_templates.unknown_placeholders(question))


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
        problems = list(
            verification_templates.validate_template_use(template, arguments := block.get("with"), path, names[2])
        )
        yield from problems
        if not problems and isinstance(template, str) and (arguments is None or isinstance(arguments, dict)):
            yield from validate_method(*verification_templates.expand_template(template, arguments), path, scope, names)
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
        return  # said already
    match method:
        case "string_match":
            yield from _validate_string_match(config or {}, where, scope)
        case "external":
            yield from _validate_external(config or {}, where, scope)
        case "semantic":
            yield from validate_mapping(config or {}, where, _SEMANTIC)
            has_criteria = any((config or {}).get(key) not in (None, []) for key in ("check_for", "negative_patterns"))
            if not has_criteria and not scope.task.acceptance:  # those stand in
                yield f"{where} needs check_for or negative_patterns"
            if (
                count := len(verification_templates.judge_criteria((config or {}).get("check_for"), scope.task))
            ) > MAX_CRITERIA:
                yield f"{where}.check_for asks for {count} criteria with those of the task; at most {MAX_CRITERIA}"
        case "multi_stage":
            yield from _validate_multi_stage(config or {}, where, scope)
        case str() if scope.methods(method):
            pass
        case _:
            near = suggest_name(method, VERIFICATION_METHODS) if isinstance(method, str) else ""
            known = ", ".join(VERIFICATION_METHODS)
            yield f"{path}.{names[0]} must be one of {known}, or installed; not {show_value(method)}{near}"


def _validate_string_match(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, {"promise": _promise})
    word, promise = config.get("promise"), scope.promise
    if isinstance(word, str) and isinstance(promise, str) and not is_same_word(word, promise):
        yield f"{path}.promise is {show_value(word)}, and the stage's promise {show_value(promise)}; leave it out here"


def _validate_external(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, _EXTERNAL, ("command",))
    command = config.get("command")
    if not isinstance(command, str):
        return
    for field in verification_templates.omitted_fields(scope.task, command):
        yield f"{path}.command uses {{{{{field}}}}}, which is too long for a variable (100 KiB)"
    for field in verification_templates.ambiguous_fields(command):
        yield (
            f"{path}.command has {{{{{field}}}}} where it cannot be quoted safely; "
            f"write the variable ${verification_templates.TASK_VARIABLES[field]} there, quoted as any variable"
        )


def _validate_multi_stage(config: dict[str, object], path: str, scope: ValidationScope) -> Iterator[str]:
    yield from validate_mapping(config, path, _MULTI_STAGE, ("stages",))
    stages = config.get("stages")
    if not isinstance(stages, list) or not stages or len(stages) > MAX_STAGES:
        return
    if scope.level > MAX_LEVELS:
        yield f"{path}.stages is nested more than {MAX_LEVELS} deep"
        return
    for place, part in enumerate(stages):
        where = f"{path}.stages[{place}]"
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
    for place, part in enumerate(stages):
        name = part.get("name") if isinstance(part, dict) else None
        if isinstance(part, dict) and isinstance(name, str):
            if name in edges:
                yield f"{path}[{place}].name: another stage is named {show_value(name)}"
            after = part.get("depends_on")
            edges[name] = (
                tuple(dependency for dependency in after if isinstance(dependency, str))
                if isinstance(after, list)
                else ()
            )
    for place, part in enumerate(stages):
        after = part.get("depends_on") if isinstance(part, dict) else None
        for index, dependency in enumerate(after) if isinstance(after, list) else ():
            if isinstance(dependency, str) and dependency not in edges:
                near = suggest_name(dependency, edges)
                yield f"{path}[{place}].depends_on[{index}]: no stage is named {show_value(dependency)}{near}"
    for cycle in find_cycles(edges):
        yield f"{path}: depends_on goes in a circle: {' -> '.join(cycle)}"


# Verification methods by name: the four built-in ones, and those of installed packages.


GUARDRAIL_METHOD_KEYS = ("method", "config", "template")  # the keys under which a guardrail has them
STAGE_METHOD_KEYS = ("verification", "verificationConfig", "verificationTemplate")  # and a stage of the settings
_NO_TASK = Task("", "")
SAMPLE_TASK = Task("", "", acceptance=("it is done",))  # every task has acceptance criteria
_DESCRIPTIONS = {
    "string_match": "The promise alone: the agent's word, which nothing verifies.",
    "semantic": "A model's judgement of the work, criterion by criterion; a forbidden pattern refuses it without one.",
    "external": "A command: its exit code, and what its output holds and lacks.",
    "multi_stage": "Several ways together, each required or only a warning.",
}


def is_plugin_method(method: str) -> bool:
    """Whether an installed package registers this method, or it is written as `package.module:Name`. Loads nothing."""
    if method in VERIFICATION_METHODS or method in BUILTIN["checks"]:
        return False
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", method) is not None or is_registered("checks", method)


def describe_methods() -> tuple[tuple[str, str], ...]:
    """Every method with the first line of its documentation. Loads the plug-ins to read theirs."""
    return (*_DESCRIPTIONS.items(), *((name, _first_line(name)) for name in plugin_names("checks")))


def _first_line(name: str) -> str:
    try:
        documentation = (getattr(resolve_implementation("checks", name), "__doc__", None) or "").strip()
    except Refused as error:
        return str(error)
    return documentation.partition("\n")[0] or "It says nothing of itself."


def find_method_problems(
    method: str, config: dict[str, Any], path: str, names: tuple[str, str, str] = GUARDRAIL_METHOD_KEYS,
    promise: str | None = None, task: Task = _NO_TASK,
) -> tuple[str, ...]:  # fmt: skip
    """All problems of a method and its config, without duplicates; an unknown method lists the installed ones."""

    problems = dict.fromkeys(
        validate_method(method, config, path, ValidationScope(task, is_plugin_method, promise), names)
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
    options = {name: inner for name, inner in config.items() if inner is not None}
    match method:
        case "string_match":
            return StringMatchVerification()
        case "external":
            return _parse_external(options)
        case "semantic":
            return _parse_semantic(options, task)
        case "multi_stage":
            parts = tuple(_parse_part(part, task) for part in options["stages"])
            return MultiStageVerification(parts, options.get("require_all", True), options.get("parallel", True))
        case _:
            return CustomVerification(method, config)


def _parse_external(options: dict[str, Any]) -> ExternalVerification:
    import os

    return ExternalVerification(
        verification_templates.substitute_in_command(options["command"]),
        options.get("success_exit_code", 0),
        options.get("output_contains", ""),
        options.get("output_not_contains", ""),
        float(options.get("timeout", DEFAULT_COMMAND_TIMEOUT_S)),
        os.path.normpath(options.get("working_dir", ".")),
    )


def _parse_semantic(options: dict[str, Any], task: Task) -> SemanticVerification:
    max_cost_usd = options.get("max_cost_usd")
    return SemanticVerification(
        verification_templates.judge_criteria(options.get("check_for", []), task),
        tuple(options.get("negative_patterns", ())),
        options.get("model", ""),
        options.get("agent", ""),
        DEFAULT_JUDGE_MICRO_USD if max_cost_usd is None else math.ceil(max_cost_usd * 1_000_000),
        float(options.get("timeout", DEFAULT_JUDGE_TIMEOUT_S)),
    )


def _parse_part(part: dict[str, Any], task: Task) -> VerificationPart:
    method, config = chosen_method(part, PART_KEYS) or ("", {})
    required = part.get("required")
    return VerificationPart(
        part["name"],
        parse_verification(method, config, task),
        required is not False,
        tuple(part.get("depends_on") or ()),
    )
