"""A project in a folder of its own, with a user of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import SettingsWrong
from ralphproof.settings.loader import LoadedSettings, load_settings

EXAMPLE: dict[str, Any] = {
    "maximumIterations": 10,
    "completionResponse": "DONE",
    "outputTruncateChars": 5000,
    "streamAgentOutput": True,
    "includeIterationCountInPrompt": False,
    "agent": {"command": "claude", "flags": ["--model opus", "--no-auto-compact"]},
    "guardrails": [
        {"command": "make lint", "failAction": "APPEND", "hint": "Fix lint errors only. Do not change behavior."},
        {"command": "make test", "failAction": "APPEND"},
    ],
    "scm": {"command": "git", "tasks": ["commit", "push"]},
}


class Project:
    """Writes settings files and loads what they come to."""

    def __init__(self, root: Path) -> None:
        self.root = root / "project"
        self.user = root / "user" / "settings.json"
        self.shared = self.root / ".ralph" / "settings.json"
        self.local = self.root / ".ralph" / "settings.local.json"
        self.shared.parent.mkdir(parents=True)
        self.user.parent.mkdir()

    def write(self, path: Path, data: object) -> None:
        path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")

    def load(self, flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> LoadedSettings:
        return load_settings(str(self.root), {"RALPH_CONFIG_DIR": str(self.user.parent), **(environ or {})}, flags)

    def problems(self, flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> list[str]:
        with pytest.raises(SettingsWrong) as caught:
            self.load(flags, environ)
        assert caught.value.exit_code == 2
        return caught.value.problems
