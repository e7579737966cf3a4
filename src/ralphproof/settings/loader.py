"""Loading the settings of a run from files, environment variables and flags."""

from __future__ import annotations

import os

from ralphproof.base.errors import SettingsWrong
from ralphproof.base.json_text import UnusableFile, decode_utf8, parse_json, read_bounded_file
from ralphproof.base.redaction import find_environment_secrets, mask_text
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.settings.declarations import PRESETS, SETTINGS_SCHEMA, Settings, parse_settings
from ralphproof.settings.field_rules import suggest_name
from ralphproof.settings.implementations import load_object
from ralphproof.settings.layers import (
    DEFAULT_LAYER,
    MergedSettings,
    SettingsLayer,
    merge_layers,
    user_settings_path,
    value_at,
)
from ralphproof.settings.schema import SettingKey, default_values, describe_expected, leaf_keys, normalize
from ralphproof.settings.validation import SettingsProblem, find_broken_rules, validate_layer

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


_PRESETS_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "presets")


def read_preset(name: str) -> dict[str, Any]:
    """The data of a preset: the settings that it changes, its stages, and how they are ordered."""
    import json

    with open(os.path.join(_PRESETS_FOLDER, f"{name}.json"), encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    return data


# Environment variables: `RALPH__AGENT__TIMEOUT_SECONDS=60` is `agent.timeoutSeconds`.


ENVIRONMENT_PREFIX = "RALPH__"


def variable_name(path: str) -> str:
    """The variable that sets a path."""
    snake = "".join(f"_{letter}" if letter.isupper() else letter for letter in path)
    return ENVIRONMENT_PREFIX + snake.replace(".", "__").upper()


def read_environment_layers(environ: Mapping[str, str]) -> tuple[list[SettingsLayer], list[SettingsProblem]]:
    """One layer for each variable, the longer path last, and the problems of variables."""
    layers: list[SettingsLayer] = []
    problems: list[SettingsProblem] = []
    taken: dict[tuple[str, ...], str] = {}
    names = [name for name in environ if name.upper().startswith(ENVIRONMENT_PREFIX)]
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        found = _find_key(name)
        if isinstance(found, SettingsProblem):
            problems.append(found)
            continue
        path, key = found
        if (other := taken.setdefault(path, name)) != name:
            problems.append(SettingsProblem(name, ".".join(path), f"sets {'.'.join(path)}, which {other} sets too"))
            continue
        data, wrong = _parse_variable(environ[name], key)
        if wrong:
            problems.append(SettingsProblem(name, ".".join(path), wrong))
        else:
            layers.append(SettingsLayer(name, _nest(path, data)))
    return layers, problems


def _find_key(name: str) -> tuple[tuple[str, ...], SettingKey] | SettingsProblem:
    parts = name[len(ENVIRONMENT_PREFIX) :].split("__")
    key, path = SETTINGS_SCHEMA, tuple[str, ...]()
    for place, part in enumerate(parts):
        if key.kind == "map" and part:
            return (*path, "__".join(parts[place:])), key.item or key
        if key.kind == "list":
            whole = variable_name(".".join(path))
            return SettingsProblem(
                name, ".".join(path), f"{'.'.join(path)} is a list: give all of it as JSON in {whole}"
            )
        match = next((known for known in key.keys if known.casefold() == _fold_case(part)), None)
        if match is None:
            return SettingsProblem(name, "", f"there is no such setting{suggest_name(name, _known_variables())}")
        key, path = key.keys[match], (*path, match)
    return path, key


def _fold_case(part: str) -> str:
    return part.replace("_", "").casefold()


def _known_variables() -> list[str]:
    return [variable_name(path) for path, _ in leaf_keys(SETTINGS_SCHEMA) if "[" not in path and "*" not in path] + [
        variable_name("guardrails")
    ]


def _parse_variable(text: str, key: SettingKey) -> tuple[Any, str]:
    """The value of a variable, and what is wrong with it. Text is taken as it is, anything else is JSON."""
    if key.kind in ("text", "word", "choice") and not (key.nullable and not key.blank and text == "null"):
        return text, ""
    if key.single and not text.lstrip().startswith("["):
        return text, ""
    parsed = parse_json(text)
    if parsed.faults:
        return None, f"must be {describe_expected(key)}, as JSON: {'; '.join(parsed.faults)}"
    return parsed.data, ""


def _nest(path: tuple[str, ...], data: Any) -> dict[str, Any]:
    for name in reversed(path):
        data = {name: data}
    return data  # type: ignore[no-any-return]


COMMAND_LINE = "command line"


@value
class LoadedSettings:
    """The settings of a run, and where they come from.

    `raw` is the merged object with every key. `origins` names the layer behind each path in it. `files` has each
    settings file with the digest of its bytes, empty if there was no file, so that a later change can be detected.
    """

    settings: Settings
    origins: dict[str, str]
    raw: dict[str, Any]
    warnings: tuple[str, ...]
    digest: str
    files: tuple[tuple[str, str], ...]

    def chosen(self, path: str) -> bool:
        """Whether the user or the project set it, and no preset or default did."""
        origin = self.origins.get(path, DEFAULT_LAYER)
        return origin != DEFAULT_LAYER and not origin.startswith("preset ")


@value
class SettingsFile:
    """A settings file as it was read. `faults` says why its data cannot be used; `digest` is empty without a file.

    `other` is the same data where a duplicate key has its first value instead of its last.
    """

    name: str
    path: str
    digest: str = ""
    data: object = None
    faults: tuple[SettingsProblem, ...] = ()
    other: object = None


def load_settings(
    root: str, environ: Mapping[str, str], flags: dict[str, Any] | None = None, flags_from: str = COMMAND_LINE
) -> LoadedSettings:
    """The settings of the project at `root`; raises SettingsWrong with everything that is wrong.

    `flags` override all files; `flags_from` is the name of their place in messages.
    """
    files = read_settings_files(root, environ)
    _refuse_user_file_in_project(files, root, environ)
    from_environment, problems = read_environment_layers(environ)
    upper = [*from_environment, *([SettingsLayer(flags_from, flags)] if flags else [])]
    layers = [*_file_layers(files), *upper]
    problems = [*(fault for file in files for fault in file.faults), *_non_object_problems(files), *problems]
    for layer in layers:
        problems += validate_layer(layer.data, layer.name) + _user_only_problems(layer, files[0].path)
    found = _merge_with_defaults(layers)
    problems += _broken_rules(files, upper, found)
    if problems:
        raise SettingsWrong(list(dict.fromkeys(str(problem) for problem in problems)))
    return _build_loaded_settings(found, files)


def _broken_rules(
    files: tuple[SettingsFile, ...], upper: list[SettingsLayer], found: MergedSettings
) -> list[SettingsProblem]:
    """The rules that are certainly broken: not if a file could not be read; with a duplicate key, if either value
    breaks them.
    """
    if any(file.faults and not isinstance(file.data, dict) for file in files):
        return []
    problems = find_broken_rules(found)
    if any(file.faults for file in files):
        others = find_broken_rules(
            _merge_with_defaults([*_file_layers(tuple(replace(file, data=file.other) for file in files)), *upper])
        )
        problems = [problem for problem in problems if problem in others]
    return problems


def _refuse_user_file_in_project(files: tuple[SettingsFile, ...], root: str, environ: Mapping[str, str]) -> None:
    """Raise SettingsWrong if the user's own settings are in the project, where an agent could change them."""
    from ralphproof.base.git_layout import is_inside_project

    path = user_settings_path(environ)
    if files and files[0].digest and is_inside_project(path, root):
        raise SettingsWrong(
            [
                f"{path}: your own settings lie in this project ({root}), where agents reach them; "
                "set RALPH_CONFIG_DIR to a directory outside of it"
            ]
        )


def _build_loaded_settings(found: MergedSettings, files: tuple[SettingsFile, ...]) -> LoadedSettings:
    import json

    raw: Any = normalize(found.raw, SETTINGS_SCHEMA)
    warnings = apply_caps(raw)
    digest = _sha256(json.dumps(raw, sort_keys=True, separators=(",", ":")).encode())
    seen = tuple((file.path, file.digest) for file in files)
    return LoadedSettings(parse_settings(raw), found.origins, raw, warnings, digest, seen)


def read_settings_files(root: str, environ: Mapping[str, str]) -> tuple[SettingsFile, ...]:
    """The user's file, the project's, and the project's local one, as they now are."""
    user = user_settings_path(environ)
    folder = os.path.join(os.path.abspath(root), ".ralph")
    return (
        _read_settings_file(user, user),
        _read_settings_file(".ralph/settings.json", os.path.join(folder, "settings.json")),
        _read_settings_file(".ralph/settings.local.json", os.path.join(folder, "settings.local.json")),
    )


def list_settings_files(root: str, environ: Mapping[str, str]) -> list[str]:
    """The names of the settings files that exist, readable or not, lowest layer first."""
    return [file.name for file in read_settings_files(root, environ) if file.digest]


def settings_file_digest(path: str) -> str:
    """The current digest of a settings file, as `LoadedSettings.files` has it; empty if there is none."""
    return _read_settings_file(path, path).digest


def _read_settings_file(name: str, path: str) -> SettingsFile:
    match read_bounded_file(path):
        case None:
            return SettingsFile(name, path)
        case UnusableFile(why):
            return SettingsFile(name, path, "unusable", faults=(SettingsProblem(name, "", why),))
        case data:
            text = decode_utf8(data)
    if isinstance(text, UnusableFile):
        return SettingsFile(name, path, _sha256(data), faults=(_parse_fault(name, text.why),))
    parsed = parse_json(text)
    faults = tuple(_parse_fault(name, why) for why in parsed.faults)
    return SettingsFile(name, path, _sha256(data), parsed.data, faults, parsed.other)


def _parse_fault(name: str, why: str) -> SettingsProblem:
    """A fault in a text; one with a place reads as file:line:column."""
    if why[:1].isdigit():
        line, column, message = why.split(":", 2)
        return SettingsProblem(f"{name}:{line}:{column}", "", message.strip())
    return SettingsProblem(name, "", why)


def _file_layers(files: tuple[SettingsFile, ...]) -> list[SettingsLayer]:
    made: list[SettingsLayer] = []
    for place, file in enumerate(files):
        if isinstance(file.data, dict):
            data = {name: inner for name, inner in file.data.items() if name != "$schema"}
            made.append(SettingsLayer(file.name, data, users_own=place == 0))
    return made


def _non_object_problems(files: tuple[SettingsFile, ...]) -> list[SettingsProblem]:
    """The problems of files with JSON that is no object."""
    strange = [file for file in files if file.digest and not file.faults and not isinstance(file.data, dict)]
    return [problem for file in strange for problem in validate_layer(file.data, file.name)]


def _user_only_problems(layer: SettingsLayer, user: str) -> list[SettingsProblem]:
    if layer.users_own:
        return []
    return [
        SettingsProblem(layer.name, name, f"{name} belongs in the user's own settings, {user}, and nowhere else")
        for name in layer.data
        if (key := SETTINGS_SCHEMA.keys.get(name)) and key.user_only
    ]


def _merge_with_defaults(layers: list[SettingsLayer]) -> MergedSettings:
    return merge_layers(_base_layers(layers), layers)


def _base_layers(layers: list[SettingsLayer]) -> tuple[SettingsLayer, ...]:
    """The layers below all files: the defaults, and the preset that the highest layer names."""
    chosen = next((layer.data["preset"] for layer in reversed(layers) if "preset" in layer.data), None)
    preset = chosen if chosen in PRESETS else PRESETS[0]
    table: Any = default_values(SETTINGS_SCHEMA)
    return SettingsLayer(DEFAULT_LAYER, table), SettingsLayer(f"preset {preset}", read_preset(preset)["settings"])


_CAPPED = (
    ("maximumIterations", "caps.iterations"),
    ("limits.maxCostUsd", "caps.costUsd"),
    ("limits.dailyCostUsd", "caps.dailyCostUsd"),
)


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


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def mask_settings(raw: Any) -> Any:
    """Settings with secrets masked: those of the environment, and variables in `agent.env` with a secret's name."""
    environment = raw.get("agent", {}).get("env", {}) if isinstance(raw.get("agent"), dict) else {}
    named = {name: text for name, text in environment.items() if isinstance(text, str)}
    secrets = (*find_environment_secrets(os.environ), *find_environment_secrets(named))
    masked = _mask_values(raw, secrets)
    for path, key in leaf_keys(SETTINGS_SCHEMA):
        if key.redact and (found := masked.get(path)):
            redact = load_object(key.redact)
            masked[path] = [redact(one) for one in found] if isinstance(found, list) else redact(raw[path])
    return masked


def _mask_values(data: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(data, str):
        return mask_text(data, secrets)
    if isinstance(data, dict):
        return {name: _mask_values(inner, secrets) for name, inner in data.items()}
    return [_mask_values(inner, secrets) for inner in data] if isinstance(data, list) else data


def json_lines(data: Any) -> list[str]:
    """JSON in lines, as people read it."""
    import json

    return json.dumps(data, indent=2, ensure_ascii=False).split("\n")
