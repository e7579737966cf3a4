"""What real runners printed, and what is to be read from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ralphproof.base.text import strip_escapes
from ralphproof.engine import check

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True)
class Recording:
    """One output of one runner. `tests` is what it says, None where that is not to be relied upon."""

    runner: str  # with its version
    name: str
    tests: check.SuiteResult | None

    def __str__(self) -> str:
        return f"{self.runner}/{self.name}"

    @property
    def text(self) -> str:
        return _text(FOLDER / self.runner / f"{self.name}.txt")

    @property
    def lines(self) -> list[str]:
        return strip_escapes(self.text).split("\n")


@cache
def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def recorded() -> list[Recording]:
    """Every recording, by runner and name."""
    found = []
    for path in sorted(FOLDER.glob("*/expected.json")):
        for name, row in json.loads(path.read_text("utf-8")).items():
            said = row["tests"]
            lists = said and {field: tuple(said[field]) for field in ("failing", "names")}
            tests = said and check.SuiteResult(**(said | lists))
            found.append(Recording(path.parent.name, name, tests))
    return found


ALL = recorded()
CLEAR = [one for one in ALL if one.tests is not None]


def one(name: str) -> Recording:
    """The recording of this name, such as "go-1.27.3/fail"."""
    return next(found for found in ALL if str(found) == name)
