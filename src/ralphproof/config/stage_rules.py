"""What must hold between the settings of a stage, and between those of a guardrail."""

from __future__ import annotations

from ralphproof.claim import same_word, without_tags
from ralphproof.config.guardrails import config_of
from ralphproof.config.keys import STAGES, VERIFICATION
from ralphproof.plan import EXTERNAL, REFUSAL, STRING_MATCH
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.config.layers import Merged

COMMANDS_OWN = ("command", "timeoutSeconds", "retries")


def stage_faults(settings: Merged) -> Iterator[tuple[str, str]]:
    """What is wrong with stages, each with the path that it comes from. Types may still be wrong in them."""
    for name in STAGES:
        path = f"stages.{name}"
        promise, own = settings.at(f"{path}.promise"), settings.at(f"{path}.verification")
        config = settings.at(f"{path}.verificationConfig")
        if isinstance(promise, str) and same_word(without_tags(promise), REFUSAL):
            yield f"{path}.promise", f"{path}.promise may not be {REFUSAL}: by that word a stage sends a task back"
        method = settings.at("pipeline.defaultVerification") if own is None else own
        if not isinstance(method, str) or not isinstance(config, dict) or not (config or method not in VERIFICATION):
            continue
        from ralphproof.config.methods import ANY_TASK, STAGE_NAMES, problems

        word = promise if isinstance(promise, str) else None
        for line in problems(method, config, path, STAGE_NAMES, word, ANY_TASK):
            yield _source(settings, path, own is None, line), line


def _source(settings: Merged, path: str, by_default: bool, line: str) -> str:
    """The setting that a fault comes from."""
    if line.startswith(f"{path}.verification must"):
        return "pipeline.defaultVerification" if by_default else f"{path}.verification"
    inside = f"{path}.verificationConfig"
    return next((known for known in settings.origins if known.startswith(inside)), inside)


def guardrail_faults(settings: Merged) -> Iterator[tuple[str, str]]:
    """What is wrong with guardrails that are more than a command."""
    items = settings.at("guardrails")
    for place, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            whole = {"method": EXTERNAL, "config": {}, **item}
            named = "command" in item or "method" in item  # else it is told already
            if named and isinstance(whole["method"], str) and isinstance(whole["config"], dict):
                yield from (("guardrails", line) for line in _guardrail(whole, f"guardrails[{place}]"))


def _guardrail(item: dict[str, Any], where: str) -> Iterator[str]:
    method, config = item["method"], item["config"]
    if method == EXTERNAL:
        yield from _command(item, where)
        return
    for key in COMMANDS_OWN:
        if key in item:
            yield f"{where}.{key} is for method {EXTERNAL}; {method} takes what it needs from {where}.config"
    if _promises(method, config):
        yield f"{where}: {STRING_MATCH} asks for nothing that `completionResponse` does not; leave it out"
        return
    from ralphproof.config.methods import problems

    yield from problems(method, config, where)
    yield from (f"{where}.config has {place}, and a guardrail has no task to take it from" for place in _places(config))


def _command(item: dict[str, Any], where: str) -> Iterator[str]:
    config = item["config"]
    if "command" not in item:
        yield f"{where}.command is missing; method {EXTERNAL} runs a command"
        return
    for key, own in (("command", "command"), ("timeout", "timeoutSeconds")):
        if key in config:
            yield f"{where}.config.{key} has a key of its own: {where}.{own}"
    if config and isinstance(item["command"], str):
        from ralphproof.config.methods import problems

        yield from problems(EXTERNAL, config_of(item), where)


def _promises(method: str, config: dict[str, Any]) -> bool:
    """Whether a method, or one of several together, is the promise alone."""
    stages = config.get("stages")
    parts = [part for part in stages if isinstance(part, dict)] if isinstance(stages, list) else []
    inner = ((part.get("method"), part.get("config")) for part in parts)
    return method == STRING_MATCH or any(
        isinstance(name, str) and _promises(name, told if isinstance(told, dict) else {}) for name, told in inner
    )


def _places(data: object) -> list[str]:
    """The fields of a task in whatever text there is."""
    import re

    from ralphproof.plans.fields import PLACE, VARIABLES

    if isinstance(data, str):
        return [found[0] for found in re.finditer(PLACE, data) if found[1] in VARIABLES]
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [place for one in inner for place in _places(one)]
