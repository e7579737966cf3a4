"""Validation of settings: types and bounds by the schema, rules between keys, caps."""

from __future__ import annotations

import math
import os
import re

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.claim import is_same_word, strip_claim_tags
from ralphproof.engine.plan import CHANGES_REQUESTED, EXTERNAL, STRING_MATCH
from ralphproof.settings.field_rules import show_value, suggest_name, unsafe_characters
from ralphproof.settings.keys import PIPELINE_STAGES, SETTINGS_SCHEMA, VERIFICATION_METHODS, SettingKey, default_values
from ralphproof.settings.layers import MergedSettings, value_at
from ralphproof.settings.registry import load_object
from ralphproof.settings.typed_settings import method_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any


_PLURALS = {
    "text": "texts", "integer": "whole numbers", "number": "numbers", "boolean": "booleans",
    "object": "objects", "choice": "choices", "word": "words",
}  # fmt: skip


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
    return [SettingsProblem(where, path, message) for path, message in _validate_value(data, SETTINGS_SCHEMA, "")]


def normalize_settings(data: object, key: SettingKey = SETTINGS_SCHEMA) -> object:
    """Valid settings in canonical form; objects in lists and maps get the defaults of their missing keys."""
    if isinstance(data, dict) and key.kind == "object":
        keys = key.keys or {}
        return {name: normalize_settings(inner, keys.get(name) or key) for name, inner in data.items()}
    if isinstance(data, dict) and key.item is not None:
        return {name: _with_defaults(normalize_settings(inner, key.item), key.item) for name, inner in data.items()}
    if key.single and isinstance(data, str):
        return [data]
    if isinstance(data, list) and key.item is not None:
        return [_with_defaults(normalize_settings(inner, key.item), key.item) for inner in data]
    return data.upper() if key.any_case and isinstance(data, str) else data


def _with_defaults(data: object, key: SettingKey) -> object:
    defaults = default_values(key) if isinstance(data, dict) else None
    return {**defaults, **data} if isinstance(defaults, dict) and isinstance(data, dict) else data


def describe_expected(key: SettingKey) -> str:
    """Description of the values that a key accepts."""
    words = {
        "object": "an object", "free": "an object", "map": "an object", "boolean": "true or false",
        "choice": f"one of {', '.join(key.choices)}", "integer": f"a whole number{_bounds(key)}",
        "number": f"a number{_bounds(key)}", "list": "a list",
        "text": "text" if key.blank else "text that is not blank", "word": "a word that is not blank",
    }[key.kind]  # fmt: skip
    if key.kind == "list" and key.item is not None:
        words = f"a list of {_PLURALS[key.item.kind]}" + (" that is not empty" if key.least else "")
        words = f"{describe_expected(key.item)}, or {words}" if key.single else words
    return f"{words} or null" if key.nullable else words


def _bounds(key: SettingKey) -> str:
    if key.above is not None:
        return f" above {key.above:g}"
    return f" of {key.least:g} or more" if key.least is not None else ""


def _validate_value(data: object, key: SettingKey, path: str, whole: bool = False) -> Iterator[tuple[str, str]]:
    """`whole`: no other layer can add to this object, so its required keys must be present."""
    if data is None and key.nullable:
        return
    if data is None and path:
        yield path, f"{path} may not be null; leave the key out, or give {describe_expected(key)}"
    elif key.kind in ("object", "map"):
        yield from _validate_object(data, key, path, whole)
    elif key.single and key.item and isinstance(data, str):
        yield from _validate_value(data, key.item, path)
    elif key.kind == "list" and isinstance(data, list):
        if key.least is not None and len(data) < key.least:
            yield path, f"{path} must be {describe_expected(key)}"
        for place, inner in enumerate(data):
            yield from _validate_value(inner, key.item or key, f"{path}[{place}]", whole=True)
    elif problem := _scalar_problem(data, key):
        yield path, f"{path} {problem}"


def _validate_object(data: object, key: SettingKey, path: str, whole: bool) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        yield path, f"{path or 'settings'} must be an object, not {show_value(data)}"
        return
    dot = f"{path}." if path else ""
    for name, inner in data.items():
        if key.kind == "map":
            yield from _validate_named(name, inner, key.item or key, path)
        elif name in (key.keys or {}):
            yield from _validate_value(inner, (key.keys or {})[name], dot + name, whole)
        elif path or name != "$schema":
            known = [dot + item for item in key.keys or {}]
            yield dot + name, f"unknown key {dot}{name}{suggest_name(dot + name, known)}"
    for name, inner_key in (key.keys or {}).items():
        if whole and inner_key.required and name not in data:
            yield dot + name, f"{dot}{name} is missing"
    if whole and key.any_of and not any(name in data for name in key.any_of):
        yield dot + key.any_of[0], f"{dot}{key.any_of[0]} is missing"


def _validate_named(name: str, inner: object, item: SettingKey, path: str) -> Iterator[tuple[str, str]]:
    if not name.strip() or "=" in name or unsafe_characters(name):
        yield path, f"{path} has {show_value(name)} as a name; names are not blank and hold no ="
    else:
        yield from _validate_value(inner, item, f"{path}.{name}", whole=True)


def _scalar_problem(data: object, key: SettingKey) -> str:
    """Why a scalar is invalid; empty if it is valid."""
    if not _has_kind(data, key):
        return f"must be {describe_expected(key)}, not {show_value(data)}"
    if isinstance(data, str) and (why := unsafe_characters(data)):
        return f"holds {why}"
    if isinstance(data, int | float) and key.most is not None and data > key.most:
        return f"must be at most {key.most:.0f}, not {show_value(data)}"
    return ""


def _has_kind(data: object, key: SettingKey) -> bool:
    match key.kind:
        case "boolean":
            return isinstance(data, bool)
        case "integer":
            return isinstance(data, int) and not isinstance(data, bool) and _is_in_bounds(data, key)
        case "number":
            return isinstance(data, int | float) and not isinstance(data, bool) and _is_in_bounds(data, key)
        case "choice":
            return isinstance(data, str) and (data.upper() if key.any_case else data) in key.choices
        case "text":
            return isinstance(data, str) and (key.blank or bool(data.strip()))
        case "word":
            return isinstance(data, str) and bool(strip_claim_tags(data))
        case "free":
            return isinstance(data, dict)
        case _:
            return False


def _is_in_bounds(number: float, key: SettingKey) -> bool:
    return (isinstance(number, int) or math.isfinite(number)) and not (
        (key.least is not None and number < key.least) or (key.above is not None and number <= key.above)
    )


COMMAND_KEYS = ("command", "timeoutSeconds", "retries")


def stage_problems(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield problems of pipeline stages, each with the path of the setting. Types may still be wrong."""
    for name in PIPELINE_STAGES:
        path = f"stages.{name}"
        promise, own = settings.at(f"{path}.promise"), settings.at(f"{path}.verification")
        config = settings.at(f"{path}.verificationConfig")
        if isinstance(promise, str) and is_same_word(strip_claim_tags(promise), CHANGES_REQUESTED):
            yield (
                f"{path}.promise",
                f"{path}.promise may not be {CHANGES_REQUESTED}: by that word a stage sends a task back",
            )
        method = settings.at("pipeline.defaultVerification") if own is None else own
        if (
            not isinstance(method, str)
            or not isinstance(config, dict)
            or not (config or method not in VERIFICATION_METHODS)
        ):
            continue
        from ralphproof.settings.verification import SAMPLE_TASK, STAGE_METHOD_KEYS, find_method_problems

        word = promise if isinstance(promise, str) else None
        for line in find_method_problems(method, config, path, STAGE_METHOD_KEYS, word, SAMPLE_TASK):
            yield _problem_source(settings, path, own is None, line), line


def _problem_source(settings: MergedSettings, path: str, by_default: bool, line: str) -> str:
    """Path of the setting that causes a problem."""
    if line.startswith(f"{path}.verification must"):
        return "pipeline.defaultVerification" if by_default else f"{path}.verification"
    inside = f"{path}.verificationConfig"
    return next((known for known in settings.origins if known.startswith(inside)), inside)


def guardrail_problems(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield problems of guardrails that have a method or a config."""
    items = settings.at("guardrails")
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            whole = {"method": EXTERNAL, "config": {}, **item}
            complete = "command" in item or "method" in item  # else it is told already
            if complete and isinstance(whole["method"], str) and isinstance(whole["config"], dict):
                yield from (("guardrails", line) for line in _guardrail_item_problems(whole, f"guardrails[{place}]"))


def _guardrail_item_problems(item: dict[str, Any], where: str) -> Iterator[str]:
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
    from ralphproof.settings.verification import find_method_problems

    yield from find_method_problems(method, config, where)
    yield from (
        f"{where}.config has {place}, and a guardrail has no task to take it from"
        for place in _task_placeholders(config)
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
        from ralphproof.settings.verification import find_method_problems

        yield from find_method_problems(EXTERNAL, method_config(item), where)


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
    from ralphproof.settings.verification_templates import PLACEHOLDER, TASK_VARIABLES

    if isinstance(data, str):
        return [match[0] for match in re.finditer(PLACEHOLDER, data) if match[1] in TASK_VARIABLES]
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [place for item in inner for place in _task_placeholders(item)]


_CAPPED = (
    ("maximumIterations", "caps.iterations"),
    ("limits.maxCostUsd", "caps.costUsd"),
    ("limits.dailyCostUsd", "caps.dailyCostUsd"),
)
_WRAPPER_REQUIRED = ("maximumIterations", "limits.maxCostUsd")


def find_broken_rules(settings: MergedSettings) -> list[SettingsProblem]:
    """Every rule between keys that the merged settings break. Types may still be wrong."""
    problems = (
        *_conflicts(settings), *_missing_explicit(settings), *_missing_required(settings), *_invalid_texts(settings),
        *stage_problems(settings), *guardrail_problems(settings),
    )  # fmt: skip
    return [SettingsProblem(settings.origins.get(path, "settings"), path, message) for path, message in problems]


def apply_caps(raw: dict[str, Any]) -> tuple[str, ...]:
    """Lower valid settings to the user's caps in place, with a warning for each. Restarts of `supervise` are not
    capped: restarting is what that preset is for.
    """
    warnings: list[str] = []
    for path, cap in _CAPPED:
        chosen, most = value_at(raw, path), value_at(raw, cap)
        if chosen is None or chosen <= most or (path == "maximumIterations" and raw["preset"] == "supervise"):
            continue
        group, _, name = path.rpartition(".")
        (raw[group] if group else raw)[name] = most
        warnings.append(f"{path} is {chosen}; {cap} allows {most}, so {most} holds")
    return tuple(warnings)


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
    for path in _WRAPPER_REQUIRED if settings.at("preset") == "wrapper" else ():
        if not settings.chosen(path) or settings.at(path) is None:
            yield "preset", f"{path} must be explicit in preset wrapper"


def _missing_required(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield required keys that are missing in objects merged from several layers."""
    for group, key in (SETTINGS_SCHEMA.keys or {}).items():
        data = settings.at(group)
        for name, inner in (key.keys or {}).items():
            if inner.required and isinstance(data, dict) and name not in data:
                yield next((f"{group}.{other}" for other in data), group), f"{group}.{name} is missing"


# Validators of text settings, by path; loaded only if the setting has a text.
_TEXT_VALIDATORS: dict[str, str] = {
    "protectedPaths": "ralphproof.base.path_patterns:explain_bad_pattern",
    "sandbox.backend": "ralphproof.sandbox.selection:backend_name_problem",
    "sandbox.allowHosts": "ralphproof.sandbox.egress_rules:host_entry_problem",
    "sandbox.readPaths": "ralphproof.sandbox.egress_rules:read_path_problem",
    "guard.allow": "ralphproof.guard.exceptions:allow_entry_problem",
    "guard.deny": "ralphproof.guard.exceptions:deny_entry_problem",
}


def _invalid_texts(settings: MergedSettings) -> Iterator[tuple[str, str]]:
    """Yield texts that their parser rejects."""
    own = {"notify": notify_target_problem, "otel": otel_endpoint_problem}
    for path in (*own, *_TEXT_VALIDATORS):
        for name, text in _texts_at(settings, path):
            validator: Callable[[str], str] = own.get(path) or load_object(_TEXT_VALIDATORS[path])
            if problem := validator(text):
                yield path, f"{name} {problem}"


def _texts_at(settings: MergedSettings, path: str) -> Iterator[tuple[str, str]]:
    """The texts of a setting, each with its name in messages."""
    match settings.at(path):
        case str(text) if path == "sandbox.backend":
            yield f"{path}: {text!r}", text
        case str(text):
            yield path, text
        case list(texts):
            yield from ((f"{path}[{place}]", text) for place, text in enumerate(texts) if isinstance(text, str))


DESKTOP_TARGET = "desktop"
WEB_SCHEMES = ("http", "https")
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_HALF_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def url_scheme(target: str) -> str:
    """The scheme of a notification URL, such as `slack`; empty for the desktop and for commands."""
    match = _ADDRESS.match(target)
    return match[1].lower() if match else ""


def needs_apprise(targets: Iterable[str]) -> bool:
    """Whether one of these targets needs the package apprise."""
    return any(target == DESKTOP_TARGET or url_scheme(target) for target in targets)


def notify_target_problem(text: str) -> str:
    """Why a target is invalid, worded to follow its name ("notify[0] …"); empty if it is valid."""
    import shlex

    if not text.strip():
        return "is empty"
    if not text.isprintable():
        return "holds a control character"
    if url_scheme(text):
        return _webhook_problem(text) if url_scheme(text) in WEB_SCHEMES else ""
    try:
        program = next(iter(shlex.split(text)), "")
    except ValueError:
        return "has a quote or a backslash that nothing follows"
    if not program:
        return "names no program"
    return "looks like an address that lacks its ://" if _HALF_ADDRESS.match(program) else ""


def _webhook_problem(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        reachable = parts.hostname and parts.port != 0
    except ValueError:
        reachable = False
    return "holds a space" if " " in text else "" if reachable else "names no host, or a port that there is not"


def redact_notify_target(target: str) -> str:
    """A target without secrets. In many URLs the host is the token, so only a webhook's host is shown."""
    import shlex
    from urllib.parse import urlsplit

    scheme = url_scheme(target)
    if scheme in WEB_SCHEMES:
        return f"{scheme}://{urlsplit(target).hostname}"
    return f"{scheme}://…" if scheme else os.path.basename(shlex.split(target)[0])


TRACES_PATH = "/v1/traces"
OTEL_SCHEMES = ("http", "https")


def otel_endpoint_problem(text: str) -> str:
    """Why an endpoint is invalid, worded to follow its name ("otel …"); empty if it is valid."""
    from urllib.parse import urlsplit

    if not text.isprintable():
        return "holds a control character"
    if not text.isascii() or " " in text:
        return "holds a space, or a letter that is not ASCII"
    try:
        parts = urlsplit(text)
        reachable = parts.hostname and parts.port != 0
    except ValueError:
        return "names no host, or a port that there is not"
    if parts.scheme not in OTEL_SCHEMES:
        return "is no http:// or https:// address"
    return "" if reachable else "names no host, or a port that there is not"


def redact_otel_endpoint(address: str) -> str:
    """An endpoint without secrets: user info, path and query may hold a token."""
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    open_path = parts.path.rstrip("/") in ("", TRACES_PATH) and not parts.query
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path if open_path else '/…'}"
