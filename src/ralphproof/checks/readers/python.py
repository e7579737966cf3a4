"""Test results of pytest (7 to 9) and unittest (3.8 to 3.13)."""

from __future__ import annotations

import re

from ralphproof.checks.readers.counts import bounded_names, parse_counts
from ralphproof.engine.check import SuiteResult

# pytest (7 to 9; quiet or not, with xdist and subtests): the lines of its short summary, checked against its counts.
#
# All names are known with `-v`, and with `-rA` where no test was skipped: of skipped ones only the location is printed.


_PYTEST_SECTIONS = ("test session starts", "ERRORS", "FAILURES", "short test summary info")
_PYTEST_TOTALS = r"(?P<counts>no tests ran|\d+ [a-z][a-z0-9, ]*) in \d+(?:\.\d+)? ?s(?:econds)?(?: \([^()]*\))?"
_PYTEST_WORDS = frozenset(
    ("passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed", "warning", "warnings")
)
_PYTEST_INTERRUPTS = ("KeyboardInterrupt", "_pytest.outcomes.Exit")  # what ran until then is not all there is
_MAX_DASHES = 20  # of which one may end a name
_PYTEST_STATES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
_PYTEST_PROGRESS = r"\[ *\d+(?:%|/\d+)\]|\d[\d.]*[mu]?s"  # how far it is, or how long it took
_XDIST_LINE = rf"\[gw\d+\](?: \[ *\d+(?:%|/\d+)\])? ({'|'.join(_PYTEST_STATES)}) "
_MAX_LINE_CHARS = 1000  # of a line that tells a test's state


def read_pytest(lines: list[str]) -> list[SuiteResult] | None:
    """Every run in these lines; None where one is incomplete, or within the output of another."""
    runs: list[SuiteResult] = []
    session = _PytestSession()
    for line in lines:
        title = _section_title(line)
        # A run that began with a title line ends with one.
        counts = _pytest_counts(line if title is None and not session.sections & {_PYTEST_SECTIONS[0]} else title)
        if counts is not None:
            run = session.finish(counts)
            if run is None:
                return None
            runs.append(run)
            session = _PytestSession()
        elif not session.read_line(line, title):
            return None
    return None if session.sections else runs


class _PytestSession:
    """The state of one run."""

    def __init__(self) -> None:
        self.sections: set[str] = set()
        self._headings: set[str] = set()
        self._failed: list[str] = []
        self._errors: list[str] = []
        self._failed_subtests = 0  # of those that failed, they are parts of tests
        self._stopped = False
        self._in_sections = False  # the first section has, and the list of all tests is over
        self._states: list[tuple[str, str]] = []
        self._summary_states: list[tuple[str, str]] = []

    def read_line(self, line: str, title: str | None) -> bool:
        """False where the run cannot be trusted after this line."""
        self._in_sections = self._in_sections or title not in (None, _PYTEST_SECTIONS[0])
        if title in _PYTEST_SECTIONS:
            fresh = title not in self.sections
            self.sections.add(title)
            return fresh
        if line.startswith(("INTERNALERROR>", "!")):
            self._stopped = True
            return not line.startswith("I") and not any(word in line for word in _PYTEST_INTERRUPTS)
        if _PYTEST_SECTIONS[-1] in self.sections:
            self._read_summary_line(line)
        elif not self._in_sections:
            self._read_verbose_line(line)
        elif line.startswith("_") and line.endswith("_"):
            self._headings.add(line.strip("_").strip().replace("::", "."))
        return True

    def _read_verbose_line(self, line: str) -> None:
        """A line before all sections: with -v it may have a test's result."""
        if "::" in line and len(line) < _MAX_LINE_CHARS:
            state, name = _parse_worker_line(line) if line.startswith("[gw") else _parse_verbose_line(line)
            self._states += [(state, name)] if "::" in name else []

    def _read_summary_line(self, line: str) -> None:
        """A line of the short summary. Lines of a long message may follow; they begin otherwise."""
        if line.startswith("FAILED "):
            self._failed.append(self._name(line[7:]))
        elif line.startswith("ERROR "):
            self._errors.append(self._name(line[6:]))
        elif part := re.match(r"SUBFAILED([\[(].*?[\])]) (?=\S*::)", line):
            self._failed_subtests += 1
            self._failed.append(f"{self._name(line[part.end() :])} {part[1]}")
        elif line.startswith(("PASSED ", "XFAIL ", "XPASS ")):
            state, _, name = line.partition(" ")
            self._summary_states.append((state, name if state == "PASSED" else self._name(name)))
        elif line.startswith(("[", "(")) and " SUBFAIL " in line:  # pytest-subtests 0.15
            self._failed_subtests += 1
            part_of, _, name = line.partition(" SUBFAIL ")
            self._failed.append(f"{self._name(name)} {part_of}")

    def _name(self, text: str) -> str:
        """The name at the start of "name - message". Both may contain dashes: the heading of the failure decides."""
        ends = [len(text)]
        while len(ends) < _MAX_DASHES and (found := text.find(" - ", ends[-1] + 1 if len(ends) > 1 else 0)) != -1:
            ends.append(found)
        names = [name for end in (*ends[1:], ends[0]) if _is_complete_name(name := text[:end])]
        known = [name for name in names if _name_in_file(name).replace("::", ".") in self._headings]
        return (known or names or [text])[0].strip()

    def finish(self, counts: dict[str, int]) -> SuiteResult | None:
        """The result, from the last line; None where its counts differ from the failures."""
        failed, errors = counts.get("failed", 0), counts.get("error", 0) + counts.get("errors", 0)
        counted = {"FAILURES": failed, "ERRORS": errors}
        if (len(self._failed), len(self._errors)) != (failed, errors):
            return None
        if any(section in self.sections and not count for section, count in counted.items()):
            return None
        failing = tuple(sorted({*self._failed, *self._errors}))
        # A run that stopped, or could not load a module, does not show which other tests there are.
        whole = not self._stopped and all("::" in name for name in failing)
        skipped, xfailed = counts.get("skipped", 0), counts.get("xfailed", 0) + counts.get("xpassed", 0)
        return SuiteResult(
            "pytest", failing, failed + errors, max(0, counts.get("passed", 0) - self._count_teardown_errors()),
            skipped if whole else None, xfailed if whole else None, self._all_names(counts),
        )  # fmt: skip

    def _count_teardown_errors(self) -> int:
        """How many tests are counted as passed but have an error in teardown: they failed."""
        ends = {
            name
            for name in self._errors
            if f"ERROR at teardown of {_name_in_file(name).replace('::', '.')}" in self._headings
        }
        return len(ends.difference(self._failed))

    def _all_names(self, counts: dict[str, int]) -> tuple[str, ...]:
        """All test names, where as many were printed as counted, for each state."""
        errors = [("ERROR", name) for name in self._errors if "::" in name]
        due = [counts.get(word, 0) for word in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")]
        due[1:3] = due[1] - self._failed_subtests, len(errors)
        red = [("FAILED", name) for name in self._failed if not self._failed_subtests]
        for results in (self._states, [*self._summary_states, *red, *errors]):
            if [sum(state == one for one, _ in results) for state in _PYTEST_STATES] == due:
                return bounded_names(sorted({name for _, name in results}))
        return ()


def _parse_verbose_line(line: str) -> tuple[str, str]:
    """State and name in a line such as "t.py::test_x SKIPPED (why)   [ 50%]"; both empty for other lines."""
    text = line.rstrip()
    last = text.rfind("[") if text.endswith("]") else text.rfind(" ") + 1
    if last > 0 and re.fullmatch(_PYTEST_PROGRESS, text[last:]):
        text = text[:last].rstrip()
    name, _, state = text.rpartition(" ")
    if state in _PYTEST_STATES:
        return state, _without_origin(name)
    ends = [(at, state) for state in _PYTEST_STATES if text.endswith(")") and (at := text.find(f" {state} (")) != -1]
    return (min(ends)[1], _without_origin(text[: min(ends)[0]])) if ends else ("", "")


def _parse_worker_line(line: str) -> tuple[str, str]:
    """The same for a line such as "[gw0] [ 50%] PASSED t.py::test_x"."""
    match = re.match(_XDIST_LINE, line)
    return (match[1], _without_origin(line[match.end() :].rstrip())) if match else ("", "")


def _without_origin(name: str) -> str:
    """A name without the file from which its class inherits the test."""
    own, from_there, file = name.rpartition(" <- ")
    return own if from_there and " " not in file else name


def _section_title(line: str) -> str | None:
    """The text between two rows of equal signs."""
    if not line.startswith("=") or not line.endswith("="):
        return None
    inner = line.strip("=")
    return inner.strip() if inner.startswith(" ") and inner.endswith(" ") else None


def _pytest_counts(text: str | None) -> dict[str, int] | None:
    """The counts in the last line of a run; None for other lines."""
    ended = re.fullmatch(_PYTEST_TOTALS, text) if text is not None and len(text) < 400 else None
    if ended is None:
        return None
    counts = {} if ended["counts"] == "no tests ran" else parse_counts(ended["counts"])
    return counts if counts is not None and (not counts or _PYTEST_WORDS & counts.keys()) else None


def _name_in_file(name: str) -> str:
    """A test's name without its file."""
    return name.partition("::")[2]


def _is_complete_name(name: str) -> bool:
    """Whether no parameter is cut off."""
    return "[" not in _name_in_file(name) or name.endswith("]")


# unittest (3.8 to 3.13): the heads of its failures, checked against its counts; with -v, a line for each test.


_DOUBLE_LINE, _SINGLE_LINE = "=" * 70, "-" * 70
_UNITTEST_KINDS = {"FAIL": "failures", "ERROR": "errors", "UNEXPECTED SUCCESS": "unexpected successes"}
_UNITTEST_HEAD = r"(FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([^)\s]*)\)(.*)"
_UNITTEST_RAN = r"Ran (\d{1,9}) tests? in \d+\.\d+s"
_UNLOADED_MODULE = "unittest.loader._FailedTest"
_UNITTEST_STATE = r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?"
_UNITTEST_TEST = r"(\S+) \(([^)\s]*)\)(?: \.\.\. (.*))?"
_UNITTEST_RESULT = (
    r".* \.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)"  # after a docstring's first line
)
_FIXTURE_METHODS = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


def read_unittest(lines: list[str]) -> list[SuiteResult] | None:
    """Every run in these lines; None where the failures of one differ from its counts."""
    runs: list[SuiteResult] = []
    heads: list[re.Match[str]] = []
    begin = 0
    for at, line in enumerate(lines):
        if line.startswith(tuple(_UNITTEST_KINDS)) and (head := _failure_head(lines, at)):
            heads.append(head)
        elif (
            line.startswith("Ran ")
            and at
            and lines[at - 1] == _SINGLE_LINE
            and (ran := re.fullmatch(_UNITTEST_RAN, line))
        ):
            tests = _verbose_tests(lines[begin:at])
            run = _finish_run(heads, int(ran[1]), next(filter(None, lines[at + 1 : at + 3]), ""), tests)
            if run is None:
                return None
            runs.append(run)
            heads, begin = [], at + 1
    return None if heads else runs


def _failure_head(lines: list[str], at: int) -> re.Match[str] | None:
    """The head of a failure: between a double and a single line, with at most the first line of a docstring."""
    if lines[at].startswith("UNEXPECTED"):  # Python 3.11 lists them under one double line
        return re.fullmatch(_UNITTEST_HEAD, lines[at])
    framed = at and lines[at - 1] == _DOUBLE_LINE and _SINGLE_LINE in lines[at + 1 : at + 3]
    return re.fullmatch(_UNITTEST_HEAD, lines[at]) if framed else None


def _verbose_tests(lines: list[str]) -> list[tuple[str, str]]:
    """(name, state) of each test with a line of its own; the state is empty where its subtests have lines."""
    tests: list[tuple[str, str]] = []
    for at, line in enumerate(lines):
        if line in (_DOUBLE_LINE, _SINGLE_LINE):
            break
        after = lines[at + 1] if at + 1 < len(lines) else ""
        if len(line) >= _MAX_LINE_CHARS or " (" not in line or not (test := re.fullmatch(_UNITTEST_TEST, line)):
            continue
        last = re.fullmatch(_UNITTEST_RESULT, after) if test[3] is None and len(after) < _MAX_LINE_CHARS else None
        if last or test[3] is not None:
            tests.append((_full_name(test[1], test[2]), last[1] if last else test[3]))
    return tests


def _finish_run(heads: list[re.Match[str]], ran: int, state: str, tests: list[tuple[str, str]]) -> SuiteResult | None:
    """The result, from this state line; None where it is none, or its counts differ from the failure heads."""
    match = re.fullmatch(_UNITTEST_STATE, state) if len(state) < 400 else None
    counts = None if match is None else _unittest_counts(match[1])
    if counts is None:
        return None
    for kind, word in _UNITTEST_KINDS.items():
        if counts.get(word, 0) != sum(head[1] == kind for head in heads):
            return None
    failing = tuple(sorted({_full_name(head[2], head[3]) + head[4] for head in heads}))
    # The tests in a module or class whose setup failed are unknown.
    whole = all(head[2] not in _FIXTURE_METHODS and not head[3].startswith(_UNLOADED_MODULE) for head in heads)
    skipped, xfailed = counts.get("skipped", 0), counts.get("expected failures", 0)
    return SuiteResult(
        "unittest", failing, len(heads), _count_passed(heads, ran, counts),
        skipped if whole else None, xfailed if whole else None, _all_names(tests, ran, skipped) if whole else (),
    )  # fmt: skip


def _all_names(tests: list[tuple[str, str]], ran: int, skipped: int) -> tuple[str, ...]:
    """All test names, where as many have lines as ran, and as many of those were skipped as counted."""
    skipped_lines = sum(state.startswith("skipped ") for _, state in tests)
    around = any(name.rpartition(".")[2] in _FIXTURE_METHODS for name, _ in tests)
    return (
        bounded_names([name for name, _ in tests])
        if (len(tests), skipped_lines, around) == (ran, skipped, False)
        else ()
    )


def _unittest_counts(text: str | None) -> dict[str, int] | None:
    """The numbers of "failures=1, errors=2"."""
    return (
        {}
        if text is None
        else parse_counts(", ".join(" ".join(part.split("=")[::-1]) for part in text.split(", ", 20)))
    )


def _full_name(method: str, inside: str) -> str:
    """Module, class and method. Python 3.11 also has the method in the brackets; an unloadable module stands alone."""
    if inside.startswith(_UNLOADED_MODULE):
        return method
    return inside if inside.endswith(f".{method}") else f"{inside}.{method}"


def _count_passed(heads: list[re.Match[str]], ran: int, counts: dict[str, int]) -> int | None:
    """How many passed; None where some were skipped: a skipped class has not run, a skipped subtest has."""
    if counts.get("skipped"):
        return None
    red = {_full_name(head[2], head[3]) for head in heads if head[2] not in _FIXTURE_METHODS}
    passed = ran - len(red) - counts.get("expected failures", 0)
    return passed if passed >= 0 else None
