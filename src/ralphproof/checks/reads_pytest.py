"""What pytest says (7 to 9; quiet or not, with xdist and subtests): the lines of its short summary, by their count."""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import counted

_SECTIONS = ("test session starts", "ERRORS", "FAILURES", "short test summary info")
_ENDED = r"(?P<counts>no tests ran|\d+ [a-z][a-z0-9, ]*) in \d+(?:\.\d+)? ?s(?:econds)?(?: \([^()]*\))?"
_WORDS = frozenset(
    ("passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed", "warning", "warnings")
)
_BROKEN = ("KeyboardInterrupt", "_pytest.outcomes.Exit")  # what ran until then is not all there is
_MOST_DASHES = 20  # of which one may end a name


def read(lines: list[str]) -> list[Tests] | None:
    """Every run in these lines; None where one of them is not whole, or stands in the output of another."""
    runs: list[Tests] = []
    session = _Session()
    for line in lines:
        title = _title(line)
        # A run that began with a title line ends with one.
        counts = _counts(line if title is None and not session.seen & {_SECTIONS[0]} else title)
        if counts is not None:
            run = session.ended(counts)
            if run is None:
                return None
            runs.append(run)
            session = _Session()
        elif not session.heard(line, title):
            return None
    return None if session.seen else runs


class _Session:
    """What one run has said so far."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._headings: set[str] = set()
        self._failed: list[str] = []
        self._errors: list[str] = []

    def heard(self, line: str, title: str | None) -> bool:
        """Whether the run can still be read after this line."""
        if title in _SECTIONS:
            fresh = title not in self.seen
            self.seen.add(title)
            return fresh
        if line.startswith(("INTERNALERROR>", "!")):
            return not line.startswith("I") and not any(word in line for word in _BROKEN)
        if _SECTIONS[-1] in self.seen:
            self._summed(line)
        elif line.startswith("_") and line.endswith("_"):
            self._headings.add(line.strip("_").strip().replace("::", "."))
        return True

    def _summed(self, line: str) -> None:
        """A line of the short summary. Where it is long, lines of a message follow: they begin otherwise."""
        if line.startswith("FAILED "):
            self._failed.append(self._name(line[7:]))
        elif line.startswith("ERROR "):
            self._errors.append(self._name(line[6:]))
        elif part := re.match(r"SUBFAILED([\[(].*?[\])]) (?=\S*::)", line):
            self._failed.append(f"{self._name(line[part.end() :])} {part[1]}")
        elif line.startswith(("[", "(")) and " SUBFAIL " in line:  # pytest-subtests 0.15
            part_of, _, name = line.partition(" SUBFAIL ")
            self._failed.append(f"{self._name(name)} {part_of}")

    def _name(self, text: str) -> str:
        """The name at the beginning of "name - message". Both may hold dashes: the heading of the failure tells."""
        ends = [len(text)]
        while len(ends) < _MOST_DASHES and (found := text.find(" - ", ends[-1] + 1 if len(ends) > 1 else 0)) != -1:
            ends.append(found)
        names = [name for end in (*ends[1:], ends[0]) if _closed(name := text[:end])]
        known = [name for name in names if _own(name).replace("::", ".") in self._headings]
        return (known or names or [text])[0].strip()

    def ended(self, counts: dict[str, int]) -> Tests | None:
        """The run with this last line; None where it counts other failures than were named."""
        failed, errors = counts.get("failed", 0), counts.get("error", 0) + counts.get("errors", 0)
        told = {"FAILURES": failed, "ERRORS": errors}
        if (len(self._failed), len(self._errors)) != (failed, errors):
            return None
        if any(section in self.seen and not count for section, count in told.items()):
            return None
        failing = tuple(sorted({*self._failed, *self._errors}))
        return Tests("pytest", failing, failed + errors, counts.get("passed", 0))


def _title(line: str) -> str | None:
    """The words between two rows of equal signs."""
    if not line.startswith("=") or not line.endswith("="):
        return None
    inner = line.strip("=")
    return inner.strip() if inner.startswith(" ") and inner.endswith(" ") else None


def _counts(text: str | None) -> dict[str, int] | None:
    """What the last line of a run counts; None where it is none."""
    ended = re.fullmatch(_ENDED, text) if text is not None and len(text) < 400 else None
    if ended is None:
        return None
    counts = {} if ended["counts"] == "no tests ran" else counted(ended["counts"])
    return counts if counts is not None and (not counts or _WORDS & counts.keys()) else None


def _own(name: str) -> str:
    """A test's name without its file."""
    return name.partition("::")[2]


def _closed(name: str) -> bool:
    """Whether no parameter of it is cut off."""
    return "[" not in _own(name) or name.endswith("]")
