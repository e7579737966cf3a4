from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import ralphproof
from ralphproof.settings.keys import PRESETS, default_values, leaf_keys
from ralphproof.settings.typed_settings import parse_settings
from ralphproof.settings.validation import normalize_settings


class Spy(dict[str, Any]):
    """An object of settings that remembers which of its keys were read."""

    def __init__(self, data: dict[str, Any], path: str, read: set[str]) -> None:
        super().__init__({name: _spied(inner, f"{path}{name}", read) for name, inner in data.items()})
        self._path, self._read = path, read

    def __getitem__(self, name: str) -> Any:
        self._read.add(self._path + name)
        return super().__getitem__(name)


def _spied(data: Any, path: str, read: set[str]) -> Any:
    if isinstance(data, dict) and path == "prices":
        return {name: Spy(item, "prices.*.", read) for name, item in data.items()}
    if isinstance(data, dict) and path != "agent.env":
        return Spy(data, f"{path}.", read)
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return [Spy(item, f"{path}[].", read) for item in data]
    return data


def test_every_key_is_used() -> None:
    raw: Any = default_values()
    raw["guardrails"] = [{"command": "x"}]
    raw["scm"] = {"command": "git", "tasks": ["commit"]}
    raw["prices"] = {"m": {"input": 1, "output": 2}}
    read: set[str] = set()
    parse_settings(Spy(normalize_settings(raw), "", read))  # type: ignore[arg-type]
    known = {path for path, _ in leaf_keys()}
    assert read & known == known


def test_the_default_preset_is_available() -> None:
    raw: Any = default_values()
    assert raw["preset"] in PRESETS


def test_loading_settings_imports_nothing_slow() -> None:
    source = os.path.dirname(ralphproof.__path__[0])
    load = "import ralphproof.settings.loader as it; it.load_settings('/nowhere', {})"
    code = f"import sys; sys.path.insert(0, {source!r}); {load}"
    argv = [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    slow = {"typing", "dataclasses", "pathlib", "inspect", "subprocess", "difflib", "importlib.metadata", "tomllib"}
    assert "ralphproof.settings.keys" in loaded
    assert loaded & slow == set()
