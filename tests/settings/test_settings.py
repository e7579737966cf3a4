from __future__ import annotations

import os
import subprocess
import sys

import ralphproof
from ralphproof.settings.declarations import PRESETS, Settings


def test_the_default_preset_is_available() -> None:
    assert Settings().preset in PRESETS


def test_loading_settings_imports_nothing_slow() -> None:
    source = os.path.dirname(ralphproof.__path__[0])
    load = "import ralphproof.settings.loader as it; it.load_settings('/nowhere', {})"
    code = f"import sys; sys.path.insert(0, {source!r}); {load}"
    argv = [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)"]
    loaded = set(subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split())
    slow = {"typing", "dataclasses", "pathlib", "inspect", "subprocess", "difflib", "importlib.metadata", "tomllib"}
    assert "ralphproof.settings.declarations" in loaded
    assert loaded & slow == set()
