"""Validation of settings: each layer by the declared keys, and the rules between keys of all layers."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.claim import is_same_word, strip_claim_tags
from ralphproof.engine.plan import CHANGES_REQUESTED, EXTERNAL
from ralphproof.settings.declarations import PIPELINE_STAGES, SETTINGS_SCHEMA
from ralphproof.settings.implementations import load_object
from ralphproof.settings.schema import leaf_keys, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.settings.layers import MergedSettings


@value
class SettingsProblem:
    """A problem: the file or variable, the key's path, and the message."""

    where: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def validate_layer(data: object, where: str) -> list[SettingsProblem]:
    """All problems of one layer of settings; no key is required in a layer."""
    return [SettingsProblem(where, path, message) for path, message in validate(data, SETTINGS_SCHEMA)]


def find_broken_rules(settings: MergedSettings) -> list[SettingsProblem]:
    """Every rule between keys that the merged settings break. Types may still be wrong."""
    problems = (
        *_conflicts(settings), *_missing_explicit(settings), *_missing_required(settings), *_invalid_texts(settings),
        *_stage_problems(settings), *_guardrail_problems(settings),
    )  # fmt: skip
    return [SettingsProblem(settings.origins.get(path, "settings"), path, message) for path, message in problems]


WRAPPER_REQUIRED = ("maximumIterations", "limits.maxCostUsd")


def _conflicts(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    restarts, iterations = settings.at("supervise.maxRestarts"), settings.at("maximumIterations")
    both = settings.chosen("supervise.maxRestarts") and settings.chosen("maximumIterations")
    if both and restarts is not None and restarts != iterations:
        values = f"supervise.maxRestarts ({restarts}) and maximumIterations ({iterations})"
        yield "supervise.maxRestarts", f"{values} are one limit and differ"
    for first, second in (
        ("agent.model", "agent.ladder"),
        ("agent.ladder", "agent.rotate"),
        ("agent.model", "agent.rotate"),
    ):
        if settings.at(first) and settings.at(second):
            yield second, f"{first} and {second} both say which model is asked; set one of them"
    names: dict[str, int] = {}
    guardrails = settings.at("guardrails")
    for place, item in enumerate(guardrails if isinstance(guardrails, list) else ()):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and names.setdefault(name, place) != place:
            yield "guardrails", f"guardrails[{place}].name is that of guardrails[{names[name]}]: {name}"


def _missing_explicit(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    for path in WRAPPER_REQUIRED if settings.at("preset") == "wrapper" else ():
        if not settings.chosen(path) or settings.at(path) is None:
            yield "preset", f"{path} must be explicit in preset wrapper"


def _missing_required(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield required keys that are missing in objects merged from several layers."""
    for group, key in SETTINGS_SCHEMA.keys.items():
        data = settings.at(group)
        for name, one in key.keys.items():
            if one.required and isinstance(data, dict) and name not in data:
                yield next((f"{group}.{other}" for other in data), group), f"{group}.{name} is missing"


def _invalid_texts(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield texts that their validator rejects; a validator is loaded only if the setting has a text."""
    for path, key in leaf_keys(SETTINGS_SCHEMA):
        for name, text in _texts_at(settings, path, bool(key.redact)) if key.validator else ():
            if problem := load_object(key.validator)(text):
                yield path, f"{name} {problem}"


def _texts_at(settings: MergedSettings, path: str, secret: bool) -> Iterator[tuple[str, str]]:
    """The texts of a setting, each with its name in messages."""
    match settings.at(path):
        case str(text):
            yield path if secret else f"{path}: {text!r}", text
        case list(texts):
            yield from ((f"{path}[{place}]", text) for place, text in enumerate(texts) if isinstance(text, str))


# Methods of guardrails and stages. Which there are, and what they need to know, `checks` says.


METHOD_RULES = "ralphproof.checks.methods"


def _stage_problems(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    for name in PIPELINE_STAGES:
        path = f"stages.{name}"
        promise, own = settings.at(f"{path}.promise"), settings.at(f"{path}.verification")
        source = "pipeline.defaultVerification" if own is None else f"{path}.verification"
        method = settings.at(source)
        config = settings.at(f"{path}.verificationConfig")
        if isinstance(promise, str) and is_same_word(strip_claim_tags(promise), CHANGES_REQUESTED):
            problem = f"{path}.promise may not be {CHANGES_REQUESTED}: by that word a stage sends a task back"
            yield f"{path}.promise", problem
        if not isinstance(method, str) or not isinstance(config, dict) or not (config or settings.chosen(source)):
            continue
        word = promise if isinstance(promise, str) else None
        for line in load_object(f"{METHOD_RULES}:stage_method_problems")(method, config, path, word):
            yield _problem_source(settings, path, source, line), line


def _problem_source(settings: MergedSettings, path: str, source: str, line: str) -> str:
    """Path of the setting that causes a problem."""
    if line.startswith(f"{path}.verification must"):
        return source
    config = f"{path}.verificationConfig"
    return next((known for known in settings.origins if known.startswith(config)), config)


def _guardrail_problems(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield problems of guardrails that have a method or a config."""
    items = settings.at("guardrails")
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and ("method" in item or "config" in item):
            whole = {"method": EXTERNAL, "config": {}, **item}
            complete = "command" in item or "method" in item  # else it is told already
            if complete and isinstance(whole["method"], str) and isinstance(whole["config"], dict):
                problems = load_object(f"{METHOD_RULES}:guardrail_method_problems")(whole, f"guardrails[{place}]")
                yield from (("guardrails", line) for line in problems)
