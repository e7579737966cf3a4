"""What pytest says (7 to 9; quiet or not, with xdist and subtests): the lines of its short summary, by their count.

All tests have names with `-v`, and with `-rA` where none was skipped: of those it tells only the place.
"""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import bounded_names, counted

_SECTIONS = ("test session starts", "ERRORS", "FAILURES", "short test summary info")
_ENDED = r"(?P<counts>no tests ran|\d+ [a-z][a-z0-9, ]*) in \d+(?:\.\d+)? ?s(?:econds)?(?: \([^()]*\))?"
_WORDS = frozenset(
    ("passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed", "warning", "warnings")
)
_BROKEN = ("KeyboardInterrupt", "_pytest.outcomes.Exit")  # what ran until then is not all there is
_MOST_DASHES = 20  # of which one may end a name
_STATES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
_DONE = r"\[ *\d+(?:%|/\d+)\]|\d[\d.]*[mu]?s"  # how far it is, or how long it took
_BY_WORKER = rf"\[gw\d+\](?: \[ *\d+(?:%|/\d+)\])? ({'|'.join(_STATES)}) "
_LONGEST = 1000  # of a line that tells a test's state


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
        self._parts = 0  # of those that failed, they are parts of tests
        self._stopped = False
        self._begun = False  # the first section has, and the list of all tests is over
        self._states: list[tuple[str, str]] = []
        self._summed_up: list[tuple[str, str]] = []

    def heard(self, line: str, title: str | None) -> bool:
        """Whether the run can still be read after this line."""
        self._begun = self._begun or title not in (None, _SECTIONS[0])
        if title in _SECTIONS:
            fresh = title not in self.seen
            self.seen.add(title)
            return fresh
        if line.startswith(("INTERNALERROR>", "!")):
            self._stopped = True
            return not line.startswith("I") and not any(word in line for word in _BROKEN)
        if _SECTIONS[-1] in self.seen:
            self._summed(line)
        elif not self._begun:
            self._listed(line)
        elif line.startswith("_") and line.endswith("_"):
            self._headings.add(line.strip("_").strip().replace("::", "."))
        return True

    def _listed(self, line: str) -> None:
        """A line before all sections: with -v it may tell how a test ended."""
        if "::" in line and len(line) < _LONGEST:
            state, name = _by_worker(line) if line.startswith("[gw") else _verbose(line)
            self._states += [(state, name)] if "::" in name else []

    def _summed(self, line: str) -> None:
        """A line of the short summary. Where it is long, lines of a message follow: they begin otherwise."""
        if line.startswith("FAILED "):
            self._failed.append(self._name(line[7:]))
        elif line.startswith("ERROR "):
            self._errors.append(self._name(line[6:]))
        elif part := re.match(r"SUBFAILED([\[(].*?[\])]) (?=\S*::)", line):
            self._parts += 1
            self._failed.append(f"{self._name(line[part.end() :])} {part[1]}")
        elif line.startswith(("PASSED ", "XFAIL ", "XPASS ")):
            state, _, name = line.partition(" ")
            self._summed_up.append((state, name if state == "PASSED" else self._name(name)))
        elif line.startswith(("[", "(")) and " SUBFAIL " in line:  # pytest-subtests 0.15
            self._parts += 1
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
        # One that stopped, or could not load a module, does not tell what else there is.
        whole = not self._stopped and all("::" in name for name in failing)
        skipped, xfailed = counts.get("skipped", 0), counts.get("xfailed", 0) + counts.get("xpassed", 0)
        return Tests(
            "pytest", failing, failed + errors, max(0, counts.get("passed", 0) - self._unclosed()),
            skipped if whole else None, xfailed if whole else None, self._names(counts),
        )  # fmt: skip

    def _unclosed(self) -> int:
        """How many are counted with those that passed, and have an error of their fixture's end: they failed."""
        ends = {
            name for name in self._errors if f"ERROR at teardown of {_own(name).replace('::', '.')}" in self._headings
        }
        return len(ends.difference(self._failed))

    def _names(self, counts: dict[str, int]) -> tuple[str, ...]:
        """All tests by name, where as many were named as were counted, state by state."""
        errors = [("ERROR", name) for name in self._errors if "::" in name]
        due = [counts.get(word, 0) for word in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")]
        due[1:3] = due[1] - self._parts, len(errors)
        red = [("FAILED", name) for name in self._failed if not self._parts]
        for told in (self._states, [*self._summed_up, *red, *errors]):
            if [sum(state == one for one, _ in told) for state in _STATES] == due:
                return bounded_names(sorted({name for _, name in told}))
        return ()


def _verbose(line: str) -> tuple[str, str]:
    """State and name in a line such as "t.py::test_x SKIPPED (why)   [ 50%]"; both empty where it is none."""
    text = line.rstrip()
    last = text.rfind("[") if text.endswith("]") else text.rfind(" ") + 1
    if last > 0 and re.fullmatch(_DONE, text[last:]):
        text = text[:last].rstrip()
    name, _, state = text.rpartition(" ")
    if state in _STATES:
        return state, _here(name)
    ends = [(at, state) for state in _STATES if text.endswith(")") and (at := text.find(f" {state} (")) != -1]
    return (min(ends)[1], _here(text[: min(ends)[0]])) if ends else ("", "")


def _by_worker(line: str) -> tuple[str, str]:
    """The same of a line such as "[gw0] [ 50%] PASSED t.py::test_x"."""
    found = re.match(_BY_WORKER, line)
    return (found[1], _here(line[found.end() :].rstrip())) if found else ("", "")


def _here(name: str) -> str:
    """A name without the file that its class has the test from."""
    own, from_there, file = name.rpartition(" <- ")
    return own if from_there and " " not in file else name


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
