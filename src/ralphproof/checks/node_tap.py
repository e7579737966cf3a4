"""Who failed, from what Node's tap reporter prints before its totals."""

from __future__ import annotations

import re

_LINE = r"(?P<pad>(?:    )*)(?:(?P<end>ok|not ok) \d{1,9} - (?P<title>.*)|1\.\.(?P<plan>\d{1,9}))"


class _Red:
    """A test or a suite that failed, with its path as far as it is known: those around it are told after it."""

    def __init__(self, name: str, details: dict[str, str]) -> None:
        self.path = [name]
        self.suite = details.get("type") == "suite"
        self.file = details.get("location", "").rsplit(":", 2)[0]

    @property
    def name(self) -> str:
        own = " > ".join(reversed(self.path))
        # A file that could not be loaded is a test of its own name.
        return self.file if f"/{self.file}".endswith(f"/{own}") else f"{self.file} > {own}".removeprefix(" > ")


class _Level:
    """The results at one depth so far."""

    def __init__(self) -> None:
        self.count = 0
        self.red: list[_Red] = []


def failing(lines: list[str], red: int) -> list[str] | None:
    """The names of tests and suites that failed; None where not as many tests failed as were counted."""
    every = _every(lines)
    if every is None or sum(not one.suite for one in every) != red:
        return None
    return [one.name for one in every] if len({bool(one.file) for one in every}) < 2 else None


def _every(lines: list[str]) -> list[_Red] | None:
    """All that failed; None where a result is missing: after those of one level it is told how many they are."""
    levels: dict[int, _Level] = {0: _Level()}
    at = max((at for at, line in enumerate(lines) if line == "TAP version 13"), default=0)
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.lstrip(" ").startswith(("ok ", "not ok ", "1..")) or not (found := re.fullmatch(_LINE, line)):
            continue
        depth = len(found["pad"]) // 4
        level = levels.setdefault(depth, _Level())
        if found["plan"]:
            if int(found["plan"]) != level.count:
                return None
            continue
        details, at = _details(lines, at, found["pad"] + "  ")
        level.count += 1
        level.red += _named(found["title"], levels.pop(depth + 1, _Level()).red, details, found["end"] == "ok")
    return levels[0].red if len(levels) == 1 else None


def _named(title: str, inner: list[_Red], details: dict[str, str], passed: bool) -> list[_Red]:
    """Those within a test or a suite, which now know its name, and itself where it failed and should not have."""
    name, *excused = re.split(r" # (?:TODO|SKIP)\b", title)
    name = name.replace("\\#", "#").replace("\\\\", "\\")
    for one in inner:
        one.path.append(name)
    return inner if passed or excused else [*inner, _Red(name, details)]


def _details(lines: list[str], at: int, pad: str) -> tuple[dict[str, str], int]:
    """What stands in the block of details that begins here, if there is one, and where the next line is."""
    found: dict[str, str] = {}
    if at >= len(lines) or lines[at] != f"{pad}---":
        return found, at
    end = at + 1
    while end < len(lines) and lines[end] != f"{pad}...":
        key, colon, said = lines[end].removeprefix(pad).partition(": ")
        if colon and not key.startswith(" "):
            found.setdefault(key, said.strip("'"))
        end += 1
    return found, end + 1
