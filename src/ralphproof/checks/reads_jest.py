"""What Jest says (29 and 30): a block for every file, and in it a dot for every failure; two lines of counts.

With --verbose, and where there is but one file, a block begins with the tree of its tests.
"""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import bounded_names, counted

_FILE = r" ?(FAIL|PASS) +(\S.*)"
_TIMED = r" \(\d+(?:\.\d+)? (?:m?s|MB heap size)\)"
_TEST = r"(?P<pad>(?:  )+)(?:(?P<state>[✓✕○✎]) (?:(?:skipped|todo) )?)?(?P<name>\S.*)"
_STATES = {"passed": "✓", "failed": "✕", "skipped": "○", "todo": "✎"}
_LONGEST = 1000  # of a line of the tree
_UNLOADED = "Test suite failed to run"


def read(lines: list[str]) -> list[Tests] | None:
    """Every run in these lines; None where one of them names other failures than it counts."""
    runs: list[Tests] = []
    suites = _Suites()
    for at, line in enumerate(lines):
        if line.startswith("Test Suites: "):
            run = suites.ended(line, lines[at + 1] if at + 1 < len(lines) else "")
            if run is None:
                return None
            runs.append(run)
            suites = _Suites()
        elif not suites.heard(line, lines[at + 1 : at + 3]) or _torn(lines, at):
            return None
    return None if suites.red else runs


class _Suites:
    """What one run has said so far."""

    def __init__(self) -> None:
        self.red: dict[str, list[str]] = {}
        self._file: str | None = None  # whose block this is; None in that of a file that passed
        self._again = False
        self._tree: list[str] | None = None  # where in the tree of a file we are; None outside of it
        self._block = ""
        self._states: list[tuple[str, str]] = []

    def heard(self, line: str, after: list[str]) -> bool:
        """Whether the run can still be read after this line."""
        if line == "Summary of all failing tests":
            self._again = True
        elif not self._again and (found := re.fullmatch(_FILE, line)):
            self._block, self._tree = _file(found[2]), []
            self._file = self._block if found[1] == "FAIL" else None
            fresh = self._file not in self.red
            self.red.update({self._file: []} if self._file is not None and fresh else {})
            return fresh
        elif not self._again and line.startswith("  ● ") and not _console(line, after):
            if self._file is None:
                return False
            self.red[self._file].append(line[4:])
        else:
            self._grown(line)
        return True

    def _grown(self, line: str) -> None:
        """A line that may be one of the tree; the first that is none ends it."""
        test = re.fullmatch(_TEST, line) if self._tree is not None and len(line) < _LONGEST else None
        if test is None or self._tree is None or (depth := len(test["pad"]) // 2 - 1) > len(self._tree):
            self._tree = None
            return
        self._tree[depth:] = [re.sub(_TIMED + "$", "", test["name"]) if test["state"] else test["name"]]
        if test["state"]:
            self._states.append((test["state"], " › ".join((self._block, *self._tree))))
            self._tree.pop()

    def ended(self, suites: str, tests: str) -> Tests | None:
        """The run with these two lines; None where they count other failures than were named."""
        told = counted(suites.partition(":")[2].strip())
        counts = counted(tests.partition(":")[2].strip()) if tests.startswith("Tests:") else None
        if told is None or counts is None:
            return None
        dots = [(file, dot) for file, found in self.red.items() for dot in found]
        named = [dot for _, dot in dots if dot != _UNLOADED]
        agreed = (told.get("failed", 0), counts.get("failed", 0)) == (len(self.red), len(named))
        if not agreed or not all(self.red.values()):
            return None
        failing = {file if dot == _UNLOADED else f"{file} › {dot}" for file, dot in dots}
        whole = _UNLOADED not in {dot for _, dot in dots} and not any(word.startswith("of ") for word in told)
        skipped = counts.get("skipped", 0) + counts.get("todo", 0) if whole else None
        return Tests(
            "jest", tuple(sorted(failing)), len(dots), counts.get("passed", 0), skipped, None, self._all(counts)
        )

    def _all(self, counts: dict[str, int]) -> tuple[str, ...]:
        """All tests by name, where the trees hold as many as were counted, state by state."""
        agreed = all(
            sum(sign == one for one, _ in self._states) == counts.get(word, 0) for word, sign in _STATES.items()
        )
        return bounded_names([name for _, name in self._states]) if agreed else ()


def _torn(lines: list[str], at: int) -> bool:
    """Whether this is the second of the two lines of counts, without the first."""
    return lines[at].startswith("Tests: ") and not lines[at - 1].startswith("Test Suites: ")


def _file(text: str) -> str:
    """A file's name, with that of its project where there is one."""
    return " ".join(re.sub(_TIMED, "", text).split())


def _console(line: str, after: list[str]) -> bool:
    """Whether this is no failure, but the head of what a test logged."""
    return line == "  ● Console" and after[1:] != [] and after[1].startswith("    console.")
