"""JSON Schema and reference page of the settings."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.settings.declarations import PRESETS, SETTINGS_SCHEMA
from ralphproof.settings.loader import variable_name
from ralphproof.settings.schema import SettingKey, describe_expected

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

JSON_SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TYPES = {"word": "string", "text": "string", "free": "object", "map": "object", "list": "array"}
_INTRODUCTION = """\
# Settings

All settings are optional. Later places win: scalars override, lists replace, objects merge.

1. the preset
2. the user's settings: `$XDG_CONFIG_HOME/ralphproof/settings.json`, or `settings.json` in `$RALPH_CONFIG_DIR`
3. `.ralph/settings.json`, which is committed
4. `.ralph/settings.local.json`, which is not
5. environment variables: `RALPH__AGENT__TIMEOUT_SECONDS=60` is `agent.timeoutSeconds`; what is not text is JSON
6. flags

Unknown keys, doubled keys, wrong types and nulls that are not named below are errors. All errors are shown at once.
`null` never stands for an object or a list, except for `scm`. A file is UTF-8, at most 1 MiB, and may name its
`$schema`.
`ralph config schema` prints that schema.

Available presets: {presets}.
"""


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a settings file."""
    schema = _key_schema(SETTINGS_SCHEMA)
    schema["properties"] = {"$schema": {"type": "string"}, **schema["properties"]}
    return {"$schema": JSON_SCHEMA_DRAFT, "title": "Settings of ralphproof", **schema}


def _key_schema(key: SettingKey, whole: bool = False) -> dict[str, Any]:
    """`whole`: the object is complete in one layer (as in a list), so its required keys must be present."""
    schema: dict[str, Any] = {"description": _scope_note(key)} if key.doc else {}
    if key.any_case:
        return {
            **schema,
            "default": key.default,
            "anyOf": [{"enum": list(key.choices)}, {"pattern": _case_pattern(key)}],
        }
    if key.kind == "choice":
        return {**schema, "default": key.default, "enum": list(key.choices)}
    name = _TYPES.get(key.kind, key.kind)
    schema["type"] = [name, "null"] if key.nullable else name
    if key.single and key.item is not None:
        schema |= {"type": [name, _TYPES[key.item.kind]], **_bounds_schema(key.item)}
    if key.kind != "object" and not key.required and (key.default is not None or key.nullable):
        schema["default"] = key.default
    return {**schema, **_inner_schema(key, whole), **_bounds_schema(key)}


def _inner_schema(key: SettingKey, whole: bool) -> dict[str, Any]:
    if key.kind == "object":
        keys = {name: _key_schema(inner, whole) for name, inner in key.keys.items()}
        needed = [name for name, inner in key.keys.items() if inner.required] if whole else []
        required: dict[str, Any] = {"required": needed} if needed else {}
        required |= {"anyOf": [{"required": [name]} for name in key.any_of]} if key.any_of else {}
        return {"properties": keys, "additionalProperties": False, **required}
    if key.item is None:
        return {}
    if key.kind == "list":
        return {"items": _key_schema(key.item, whole=True)}
    names = {"propertyNames": {"pattern": "^[^=]*[^=\\s][^=]*$"}}
    return {"additionalProperties": _key_schema(key.item, whole=True), **names}


def _bounds_schema(key: SettingKey) -> dict[str, Any]:
    if key.kind in ("text", "word"):
        return {} if key.blank else {"pattern": "\\S"}
    if key.kind == "list":
        return {"minItems": key.least} if key.least else {}
    bounds = {"minimum": key.least, "exclusiveMinimum": key.above, "maximum": key.most}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def _case_pattern(key: SettingKey) -> str:
    spellings = ("".join(f"[{letter.upper()}{letter.lower()}]" for letter in choice) for choice in key.choices)
    return f"^({'|'.join(spellings)})$"


def _scope_note(key: SettingKey) -> str:
    return key.doc + (" Only in the user's own settings." if key.user_only else "")


def reference_markdown() -> str:
    """The reference page: one table for top-level keys, one for each group."""
    single = {name: key for name, key in SETTINGS_SCHEMA.keys.items() if not _group_key(key)}
    parts = [_INTRODUCTION.format(presets=", ".join(f"`{name}`" for name in PRESETS)), _table(single, "")]
    for title, path, key in _groups(SETTINGS_SCHEMA, ""):
        parts += [f"## `{title}`\n\n{_scope_note(key)}\n", _table(_rows(key), path, not key.user_only)]
    return "\n".join(part for part in parts if part)


def _group_key(key: SettingKey) -> SettingKey | None:
    """The key with nested keys: this one, or the items of a list or map; None for a single value."""
    return key if key.kind == "object" else key.item if key.item is not None and key.item.kind == "object" else None


def _groups(key: SettingKey, path: str) -> Iterator[tuple[str, str, SettingKey]]:
    for name, inner in key.keys.items():
        if group := _group_key(inner):
            title = f"{path}{name}" + {"list": "[]", "map": ".*"}.get(inner.kind, "")
            yield title, f"{title}.", inner
            yield from _groups(group, f"{title}.")


def _rows(key: SettingKey) -> dict[str, SettingKey]:
    group = _group_key(key)
    return {name: inner for name, inner in group.keys.items() if not _group_key(inner)} if group else {}


def _table(keys: dict[str, SettingKey], path: str, settable: bool = True) -> str:
    lines = ["| key | holds | default | meaning |", "|---|---|---|---|"]
    lines += [_row(f"{path}{name}", key, settable) for name, key in keys.items()]
    return "\n".join(lines) + "\n" if keys else ""


def _row(path: str, key: SettingKey, settable: bool) -> str:
    import json

    default = "needed" if key.required else "" if key.default is None and not key.nullable else json.dumps(key.default)
    shown = f"`{default}`" if default not in ("", "needed") else default
    variable = f"<br>`{variable_name(path)}`" if settable and "[" not in path else ""
    return f"| `{path}` | {describe_expected(key)} | {shown} | {key.doc}{variable} |"
