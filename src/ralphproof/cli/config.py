"""`ralph config`: the settings in force and where each comes from, or the schema of a settings file."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.secret import mask, secrets_in
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.root import root_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.config.load import Loaded
    from ralphproof.value import Json

ABOUT = "the settings in force and where each comes from, or the schema of a settings file."
EXAMPLES = ("ralph config show", "ralph config show --origin", "ralph config schema > .ralph/settings.schema.json")


def parser() -> Parser:
    made = Parser("config", ABOUT, EXAMPLES)
    made.add_argument("what", choices=("show", "schema"), help="the merged settings, or the JSON Schema of a file")
    made.add_argument("--origin", action="store_true", help="with show: one setting a line, and where it comes from")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    if args.what == "schema":
        _show_schema(args.json)
        return 0
    from ralphproof.config.load import load

    loaded = load(root_of(args.project_dir), os.environ)
    settings = hidden(loaded.raw)
    if args.json:
        told: dict[str, Json] = {"settings": settings, "origins": dict(origins(loaded))}
        put_json("config", told | {"warnings": list(loaded.warnings)})
        return 0
    put(*(f"note: {warning}" for warning in loaded.warnings))
    put(*(_lines(loaded, settings) if args.origin else pretty(settings)))
    return 0


def _show_schema(for_programs: bool) -> None:
    from ralphproof.config.reference import json_schema

    if for_programs:
        put_json("schema", {"schema": json_schema()})
    else:
        put(*pretty(json_schema()))


def hidden(raw: Any) -> Any:
    """Settings with every secret masked: those of the environment, and what `agent.env` calls by a secret's name."""
    environment = raw.get("agent", {}).get("env", {}) if isinstance(raw.get("agent"), dict) else {}
    named = {name: text for name, text in environment.items() if isinstance(text, str)}
    secrets = (*secrets_in(os.environ), *secrets_in(named))
    masked = _masked(raw, secrets)
    if isinstance(targets := masked.get("notify"), list) and targets:
        from ralphproof.observers.target import shown

        masked["notify"] = [shown(target) if isinstance(target, str) else target for target in targets]
    if isinstance(address := raw.get("otel"), str):
        from ralphproof.observers import otel_address

        masked["otel"] = otel_address.shown(address)
    return masked


def _masked(data: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(data, str):
        return mask(data, secrets)
    if isinstance(data, dict):
        return {name: _masked(inner, secrets) for name, inner in data.items()}
    return [_masked(inner, secrets) for inner in data] if isinstance(data, list) else data


def pretty(data: Any) -> list[str]:
    """JSON in lines, as people read it."""
    import json

    return json.dumps(data, indent=2, ensure_ascii=False).split("\n")


def _lines(loaded: Loaded, settings: Any) -> Iterator[str]:
    import json

    for path, data, origin in _walk(settings, "", loaded.origins):
        yield f"{path} = {json.dumps(data, ensure_ascii=False)}  ({origin})"


def origins(loaded: Loaded) -> Iterator[tuple[str, str]]:
    """Every path that holds a value, and the layer behind it, in the order of the settings."""
    yield from ((path, origin) for path, _, origin in _walk(loaded.raw, "", loaded.origins))


def _walk(data: dict[str, Any], path: str, known: dict[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Path, value and origin; a path does not lead back to its value, since names of models hold dots."""
    for name, inner in data.items():
        if isinstance(inner, dict) and inner and path + name not in known:
            yield from _walk(inner, f"{path}{name}.", known)
        else:
            yield path + name, inner, known.get(path + name, "default")
