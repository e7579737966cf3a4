"""`ralph config`: the settings in force and their origins, or the schema."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from ralphproof.base.git_layout import resolve_project_root
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.settings.loader import LoadedSettings, json_lines, load_settings, mask_settings
from ralphproof.settings.reference import json_schema

ABOUT = "Show the settings in force and where each comes from, or the schema of a settings file."
EXAMPLES = ("ralph config show", "ralph config show --origin", "ralph config schema > .ralph/settings.schema.json")


def build_parser() -> Parser:
    parser = Parser("config", ABOUT, EXAMPLES)
    parser.add_argument(
        "what", choices=("show", "schema"), help="show the merged settings, or the JSON Schema of a settings file"
    )
    parser.add_argument("--origin", action="store_true", help="with show: one setting per line with its origin")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.what == "schema":
        _print_schema(args.json)
        return 0
    loaded = load_settings(resolve_project_root(args.project_dir), os.environ)
    settings = mask_settings(loaded.raw)
    if args.json:
        data: dict[str, Json] = {"settings": settings, "origins": dict(setting_origins(loaded))}
        print_json("config", data | {"warnings": list(loaded.warnings)})
        return 0
    print_lines(*(f"note: {warning}" for warning in loaded.warnings))
    print_lines(*(_setting_lines(loaded, settings) if args.origin else json_lines(settings)))
    return 0


def _print_schema(for_programs: bool) -> None:
    if for_programs:
        print_json("schema", {"schema": json_schema()})
    else:
        print_lines(*json_lines(json_schema()))


def _setting_lines(loaded: LoadedSettings, settings: Any) -> Iterator[str]:
    for path, data, origin in _walk_settings(settings, "", loaded.origins):
        yield f"{path} = {json.dumps(data, ensure_ascii=False)}  ({origin})"


def setting_origins(loaded: LoadedSettings) -> Iterator[tuple[str, str]]:
    """Path and origin of every value, in the order of the settings."""
    yield from ((path, origin) for path, _, origin in _walk_settings(loaded.raw, "", loaded.origins))


def _walk_settings(data: dict[str, Any], path: str, known: dict[str, str]) -> Iterator[tuple[str, Any, str]]:
    """Path, value and origin. A path cannot be looked up again: model names contain dots."""
    for name, inner in data.items():
        if isinstance(inner, dict) and inner and path + name not in known:
            yield from _walk_settings(inner, f"{path}{name}.", known)
        else:
            yield path + name, inner, known.get(path + name, "default")
