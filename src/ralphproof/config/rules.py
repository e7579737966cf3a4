"""What must hold between settings, whichever layers they come from."""

from __future__ import annotations

from ralphproof.config.keys import KEYS, PRESETS
from ralphproof.config.layers import Merged, at
from ralphproof.config.schema import Problem
from ralphproof.config.settings import AVAILABLE_PRESETS
from ralphproof.config.stage_rules import guardrail_faults, stage_faults
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_CAPPED = (
    ("maximumIterations", "caps.iterations"),
    ("limits.maxCostUsd", "caps.costUsd"),
    ("limits.dailyCostUsd", "caps.dailyCostUsd"),
)
_EXPLICIT = ("maximumIterations", "limits.maxCostUsd")


def broken(settings: Merged) -> list[Problem]:
    """Every rule that merged settings break. Types may still be wrong in them."""
    found = (
        *_unavailable(settings), *_conflicts(settings), *_implicit(settings), *_incomplete(settings), *_unfit(settings),
        *stage_faults(settings), *guardrail_faults(settings),
    )  # fmt: skip
    return [Problem(settings.origins.get(path, "settings"), path, message) for path, message in found]


def clamp(raw: dict[str, Any]) -> tuple[str, ...]:
    """Bring checked settings down to the user's caps, and say so. Restarts are not capped: they are the point."""
    warnings: list[str] = []
    for path, cap in _CAPPED:
        chosen, most = at(raw, path), at(raw, cap)
        if chosen is None or chosen <= most or (path == "maximumIterations" and raw["preset"] == "supervise"):
            continue
        group, _, name = path.rpartition(".")
        (raw[group] if group else raw)[name] = most
        warnings.append(f"{path} is {chosen}; {cap} allows {most}, so {most} holds")
    return tuple(warnings)


def _unavailable(settings: Merged) -> Iterator[tuple[str, str]]:
    preset = settings.at("preset")
    if preset in PRESETS and preset not in AVAILABLE_PRESETS:
        available = ", ".join(AVAILABLE_PRESETS)
        yield "preset", f"preset {preset} is not available in this version; available: {available}"


def _conflicts(settings: Merged) -> Iterator[tuple[str, str]]:
    restarts, iterations = settings.at("supervise.maxRestarts"), settings.at("maximumIterations")
    both = settings.chosen("supervise.maxRestarts") and settings.chosen("maximumIterations")
    if both and restarts is not None and restarts != iterations:
        differ = f"supervise.maxRestarts ({restarts}) and maximumIterations ({iterations})"
        yield "supervise.maxRestarts", f"{differ} are one limit and differ"
    for one, other in (
        ("agent.model", "agent.ladder"),
        ("agent.ladder", "agent.rotate"),
        ("agent.model", "agent.rotate"),
    ):
        if settings.at(one) and settings.at(other):
            yield other, f"{one} and {other} both say which model is asked; set one of them"
    names: dict[str, int] = {}
    guardrails = settings.at("guardrails")
    for place, item in enumerate(guardrails if isinstance(guardrails, list) else ()):
        name = item.get("name") if isinstance(item, dict) else None
        if isinstance(name, str) and names.setdefault(name, place) != place:
            yield "guardrails", f"guardrails[{place}].name is that of guardrails[{names[name]}]: {name}"


def _implicit(settings: Merged) -> Iterator[tuple[str, str]]:
    for path in _EXPLICIT if settings.at("preset") == "wrapper" else ():
        if not settings.chosen(path) or settings.at(path) is None:
            yield "preset", f"{path} must be explicit in preset wrapper"


def _incomplete(settings: Merged) -> Iterator[tuple[str, str]]:
    """Objects that only together may hold what they need."""
    for group, key in (KEYS.keys or {}).items():
        data = settings.at(group)
        for name, inner in (key.keys or {}).items():
            if inner.required and isinstance(data, dict) and name not in data:
                yield next((f"{group}.{other}" for other in data), group), f"{group}.{name} is missing"


def _unfit(settings: Merged) -> Iterator[tuple[str, str]]:
    """Texts that mean nothing where they stand."""
    for group in ("protectedPaths", "notify", "sandbox.allowHosts", "sandbox.readPaths", "guard.allow", "guard.deny"):
        if texts := _texts(settings, group):
            bad = _judge_of(group)
            for place, text in enumerate(texts):
                if problem := bad(text):
                    yield group, f"{group}[{place}] {problem}"
    address = settings.at("otel")
    if isinstance(address, str):
        from ralphproof.observers.otel_address import bad_address

        if problem := bad_address(address):
            yield "otel", f"otel {problem}"
    backend = settings.at("sandbox.backend")
    if isinstance(backend, str):
        from ralphproof.config.backends import refuse_unknown

        if problem := refuse_unknown(backend):
            yield "sandbox.backend", f"sandbox.backend: {backend!r} {problem}"


def _judge_of(group: str) -> Callable[[str], str]:
    """Who knows what is wrong with a text in this group. Each is loaded where there is something to judge."""
    match group:
        case "protectedPaths":
            from ralphproof.workspaces.protected import bad_pattern

            return bad_pattern
        case "notify":
            from ralphproof.observers.target import bad_target

            return bad_target
        case "guard.allow" | "guard.deny":
            from ralphproof.guard.exceptions import bad_entry

            return lambda entry: bad_entry(entry, allows=group == "guard.allow")
        case "sandbox.allowHosts":
            from ralphproof.config.reachable import bad_host

            return bad_host
        case _:
            from ralphproof.config.reachable import bad_path

            return bad_path


def _texts(settings: Merged, group: str) -> list[str]:
    found = settings.at(group)
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
