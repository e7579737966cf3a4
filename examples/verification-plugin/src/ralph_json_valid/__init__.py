"""A way to verify work: files are valid JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ralphproof.engine.check import Inspection, CheckWatcher
    from ralphproof.checks.factory import CheckContext

MOST_BYTES = 16 << 20


class JsonValid:
    """Every file that the patterns name parses as JSON, and there is at least one for each pattern.

    files  patterns from the project's root, such as `config/*.json`
    """

    def __init__(self, name: str, config: dict[str, Any], context: CheckContext) -> None:
        files = config.get("files")
        if not isinstance(files, list) or not files or not all(isinstance(one, str) and one for one in files):
            raise ValueError("files must be a list of patterns, such as ['config/*.json']")
        if unknown := sorted(set(config) - {"files"}):
            raise ValueError(f"unknown key {unknown[0]}; there is: files")
        if astray := [one for one in files if one.startswith("/") or ".." in Path(one).parts]:
            raise ValueError(f"{astray[0]} leads out of the project")
        self.name, self._files, self._root = name, files, Path(context.root)
        self.key = repr(sorted(files))  # another check with this key asks the same: one answer serves both

    def run(self, inspection: Inspection, watch: CheckWatcher) -> tuple[bool, str]:
        """Whether it is so, and else what is wrong with each file."""
        faults = [fault for pattern in self._files for fault in self._faults(pattern)]
        return not faults, "\n".join(faults)

    def _faults(self, pattern: str) -> list[str]:
        found = sorted(path for path in self._root.glob(pattern) if path.is_file())
        if not found:
            return [f"{pattern}: there is no such file"]
        return [f"{path.relative_to(self._root)}: {why}" for path in found if (why := self._fault(path))]

    def _fault(self, path: Path) -> str:
        """What is wrong with a file; empty where nothing is. An agent wrote it: it may be anything."""
        if not path.resolve().is_relative_to(self._root.resolve()):
            return "is a link that leads out of the project"
        if path.stat().st_size > MOST_BYTES:
            return f"is larger than {MOST_BYTES >> 20} MiB"
        try:
            json.loads(path.read_bytes())
        except RecursionError:
            return "is nested too deeply"
        except ValueError as error:  # no JSON, or no UTF-8
            return str(error)
        return ""
