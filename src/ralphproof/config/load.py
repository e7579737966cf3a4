"""Finds, reads, checks and merges the settings of a run."""

from __future__ import annotations

import os

from ralphproof.config.environment import environment
from ralphproof.config.jsontext import Unusable, contents, decode, parse
from ralphproof.config.keys import KEYS, PRESETS, defaults
from ralphproof.config.layers import DEFAULT, Layer, Merged, merged
from ralphproof.config.place import user_file
from ralphproof.config.presets import read_preset
from ralphproof.config.rules import broken, clamp
from ralphproof.config.schema import Problem, check, normal
from ralphproof.config.settings import Settings, settings_of
from ralphproof.errors import SettingsWrong
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FLAGS = "command line"


@value
class Loaded:
    """The settings of a run, and all that is known of where they come from.

    `raw` is the merged object with every key. `origins` names the layer behind each path in it. `files` holds each
    settings file with the digest of its bytes, empty where there was no file, so that a later change can be seen.
    """

    settings: Settings
    origins: dict[str, str]
    raw: dict[str, Any]
    warnings: tuple[str, ...]
    digest: str
    files: tuple[tuple[str, str], ...]

    def chosen(self, path: str) -> bool:
        """Whether somebody set it, and no preset or default did."""
        origin = self.origins.get(path, DEFAULT)
        return origin != DEFAULT and not origin.startswith("preset ")


@value
class SettingsFile:
    """A settings file as it was read. `faults` says why its data cannot be used; `digest` is empty without a file.

    `other` is the same data where a doubled key has its first value instead of its last.
    """

    name: str
    path: str
    digest: str = ""
    data: object = None
    faults: tuple[Problem, ...] = ()
    other: object = None


def load(root: str, environ: Mapping[str, str], flags: dict[str, Any] | None = None, flags_from: str = FLAGS) -> Loaded:
    """The settings that hold for the project at `root`; raises SettingsWrong with everything that is wrong.

    `flags` beat all files; `flags_from` is how messages name the place that they come from.
    """
    files = read_files(root, environ)
    _refuse_inside(files, root, environ)
    from_environment, problems = environment(environ)
    upper = [*from_environment, *([Layer(flags_from, flags)] if flags else [])]
    layers = [*_layers(files), *upper]
    problems = [*(fault for file in files for fault in file.faults), *_misshapen(files), *problems]
    for layer in layers:
        problems += check(layer.data, layer.name) + _misplaced(layer, files[0].path)
    found = _merged(layers)
    problems += _broken(files, upper, found)
    if problems:
        raise SettingsWrong(list(dict.fromkeys(str(problem) for problem in problems)))
    return _loaded(found, files)


def _broken(files: tuple[SettingsFile, ...], upper: list[Layer], found: Merged) -> list[Problem]:
    """The rules that are broken for sure: what an unread file may say decides about all, a doubled key about some."""
    if any(file.faults and not isinstance(file.data, dict) for file in files):
        return []
    problems = broken(found)
    if any(file.faults for file in files):
        others = broken(_merged([*_layers(tuple(replace(file, data=file.other) for file in files)), *upper]))
        problems = [problem for problem in problems if problem in others]
    return problems


def _refuse_inside(files: tuple[SettingsFile, ...], root: str, environ: Mapping[str, str]) -> None:
    """Raise SettingsWrong where the user's own settings lie in the project: whoever changes that could change them."""
    from ralphproof.workspaces.identity import lies_in_project

    path = user_file(environ)
    if files and files[0].digest and lies_in_project(path, root):
        raise SettingsWrong(
            [
                f"{path}: your own settings lie in this project ({root}), where agents reach them; "
                "set RALPH_CONFIG_DIR to a directory outside of it"
            ]
        )


def _loaded(found: Merged, files: tuple[SettingsFile, ...]) -> Loaded:
    import json

    raw: Any = normal(found.raw)
    warnings = clamp(raw)
    digest = _sha256(json.dumps(raw, sort_keys=True, separators=(",", ":")).encode())
    seen = tuple((file.path, file.digest) for file in files)
    return Loaded(settings_of(raw), found.origins, raw, warnings, digest, seen)


def read_files(root: str, environ: Mapping[str, str]) -> tuple[SettingsFile, ...]:
    """The user's file, the project's, and the project's local one, as they now are."""
    user = user_file(environ)
    folder = os.path.join(os.path.abspath(root), ".ralph")
    return (
        _read(user, user),
        _read(".ralph/settings.json", os.path.join(folder, "settings.json")),
        _read(".ralph/settings.local.json", os.path.join(folder, "settings.local.json")),
    )


def present(root: str, environ: Mapping[str, str]) -> list[str]:
    """The names of the settings files that are there, readable or not, in the order in which they are laid."""
    return [file.name for file in read_files(root, environ) if file.digest]


def digest_of(path: str) -> str:
    """The digest of a settings file as it now is, as `Loaded.files` has it; empty where there is none."""
    return _read(path, path).digest


def _read(name: str, path: str) -> SettingsFile:
    match contents(path):
        case None:
            return SettingsFile(name, path)
        case Unusable(why):
            return SettingsFile(name, path, "unusable", faults=(Problem(name, "", why),))
        case data:
            text = decode(data)
    if isinstance(text, Unusable):
        return SettingsFile(name, path, _sha256(data), faults=(_fault(name, text.why),))
    parsed = parse(text)
    faults = tuple(_fault(name, why) for why in parsed.faults)
    return SettingsFile(name, path, _sha256(data), parsed.data, faults, parsed.other)


def _fault(name: str, why: str) -> Problem:
    """A fault in a text; one with a place reads as file:line:column."""
    if why[:1].isdigit():
        line, column, message = why.split(":", 2)
        return Problem(f"{name}:{line}:{column}", "", message.strip())
    return Problem(name, "", why)


def _layers(files: tuple[SettingsFile, ...]) -> list[Layer]:
    made: list[Layer] = []
    for place, file in enumerate(files):
        if isinstance(file.data, dict):
            data = {name: inner for name, inner in file.data.items() if name != "$schema"}
            made.append(Layer(file.name, data, users_own=place == 0))
    return made


def _misshapen(files: tuple[SettingsFile, ...]) -> list[Problem]:
    """What is wrong with files that hold JSON, and no object."""
    strange = [file for file in files if file.digest and not file.faults and not isinstance(file.data, dict)]
    return [problem for file in strange for problem in check(file.data, file.name)]


def _misplaced(layer: Layer, user: str) -> list[Problem]:
    if layer.users_own:
        return []
    return [
        Problem(layer.name, name, f"{name} belongs in the user's own settings, {user}, and nowhere else")
        for name in layer.data
        if (key := (KEYS.keys or {}).get(name)) and key.user_only
    ]


def _merged(layers: list[Layer]) -> Merged:
    return merged(_ground(layers), layers)


def _ground(layers: list[Layer]) -> tuple[Layer, ...]:
    """What holds before anybody sets anything: the table, and the preset that the highest layer names."""
    chosen = next((layer.data["preset"] for layer in reversed(layers) if "preset" in layer.data), None)
    preset = chosen if chosen in PRESETS else PRESETS[0]
    table: Any = defaults()
    return Layer(DEFAULT, table), Layer(f"preset {preset}", read_preset(preset)["settings"])


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
