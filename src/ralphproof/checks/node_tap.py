"""Who failed, and who else there is, from what Node's tap reporter prints before its totals."""

from __future__ import annotations

import re

_LINE = r"(?P<pad>(?:    )*)(?:(?P<end>ok|not ok) \d{1,9} - (?P<title>.*)|1\.\.(?P<plan>\d{1,9}))"


class _Result:
    """One of a test or a suite, with its path as far as it is known: those around it are told after it."""

    def __init__(self, name: str, details: dict[str, str], red: bool) -> None:
        self.path, self.red = [name], red
        self.suite = details.get("type") == "suite"
        self.file = details.get("location", "").rsplit(":", 2)[0]

    @property
    def own(self) -> str:
        """Its name without that of its file, which is told of none that passed."""
        return " > ".join(reversed(self.path))

    @property
    def name(self) -> str:
        own = self.own
        # A file that could not be loaded is a test of its own name.
        return self.file if f"/{self.file}".endswith(f"/{own}") else f"{self.file} > {own}".removeprefix(" > ")


class _Level:
    """The results at one depth so far."""

    def __init__(self) -> None:
        self.count = 0
        self.results: list[_Result] = []


def failing(lines: list[str], red: int) -> tuple[list[str], list[str]] | None:
    """The names of tests and suites that failed, and those of all; None where not as many failed as were counted."""
    every = _every(lines)
    failed = [one for one in every or () if one.red]
    if every is None or sum(not one.suite for one in failed) != red or len({bool(one.file) for one in failed}) > 1:
        return None
    return [one.name for one in failed], [one.own for one in every]


def _every(lines: list[str]) -> list[_Result] | None:
    """All results; None where a result is missing: after those of one level it is told how many they are."""
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
        inner = levels.pop(depth + 1, _Level()).results
        level.results += _named(found["title"], inner, details, found["end"] == "ok")
    return levels[0].results if len(levels) == 1 else None


def _named(title: str, inner: list[_Result], details: dict[str, str], passed: bool) -> list[_Result]:
    """Those within a test or a suite, which now know its name, and itself: red where it failed and should not have."""
    name, *excused = re.split(r" # (?:TODO|SKIP)\b", title)
    name = name.replace("\\#", "#").replace("\\\\", "\\")
    for one in inner:
        one.path.append(name)
    return [*inner, _Result(name, details, red=not (passed or excused))]


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
