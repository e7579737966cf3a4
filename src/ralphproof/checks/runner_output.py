"""Readers of test runners' output: which tests ran, which failed."""

from __future__ import annotations

import json
import re

from ralphproof.base.text import TRUNCATION_MARK, strip_escapes
from ralphproof.base.value import value
from ralphproof.engine.check import SuiteResult

MAX_DIGITS = 9
MAX_NAMES = 500  # of tests, and characters in all: the names are stored with every finding
MAX_NAME_CHARS = 100_000


def parse_count(text: str) -> int | None:
    """The number, or None for a text that no runner prints as one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def parse_counts(text: str, separator: str = ", ") -> dict[str, int] | None:
    """The numbers of a list such as "1 failed, 2 passed" by word; None where it is no such list."""
    counts: dict[str, int] = {}
    for part in text.split(separator, 20):
        digits, _, word = part.partition(" ")
        count = parse_count(digits)
        if count is None or not word or word in counts:
            return None
        counts[word] = count
    return counts


def number_duplicates(names: list[str]) -> list[str]:
    """Unique names: repeated ones get a number."""
    seen: dict[str, int] = {}
    unique: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique


def bounded_names(names: list[str]) -> tuple[str, ...]:
    """Unique names in order; empty where they are too many to store."""
    if len(names) > MAX_NAMES or sum(map(len, names)) > MAX_NAME_CHARS:
        return ()
    return tuple(sorted(set(number_duplicates(names))))


# Test results of go test (1.21 to 1.27; quiet, -v or -json).


_RESULTS = {"PASS:": "pass", "FAIL:": "fail", "SKIP:": "skip"}
_OPEN = "open"
_PACKAGE_PREFIXES = ("FAIL\t", "ok  \t")


def read_go(lines: list[str]) -> list[SuiteResult] | None:
    """One run of all packages; None where one of them is incomplete."""
    packages = _GoPackages()
    if not any(line.startswith(_PACKAGE_PREFIXES) or _is_event(line) for line in lines):
        return []
    for line in lines:
        if _is_event(line):
            trusted = _parse_event_line(packages, line)
        elif line.startswith(_PACKAGE_PREFIXES):
            trusted = _parse_package_line(packages, line)
        else:
            trusted = _parse_text_line(packages, line)
        if not trusted:
            return None
    return packages.result()


def _is_event(line: str) -> bool:
    return line.startswith('{"') and '"Action":"' in line and '"Package":"' in line


def _parse_package_line(packages: _GoPackages, line: str) -> bool:
    """Parse the last line of a package; False where the output cannot be trusted after it."""
    package, _, why = line.split("\t")[1].partition(" ")
    if why in ("[build failed]", "[setup failed]") and packages.has_unassigned:
        return False
    return packages.finish_package(package, "fail" if line.startswith("F") else "pass")


def _parse_text_line(packages: _GoPackages, line: str) -> bool:
    """Parse a line of text; False where the output cannot be trusted after it. The package follows its tests."""
    if line in ("PASS", "FAIL") or line.startswith(("panic: ", "exit status ")):
        return packages.add_final_line(line)
    if line.startswith("=== RUN "):
        packages.set_result("", line[8:].strip(), _OPEN)
        return not packages.final_line
    words = line.lstrip(" ").split(" ", 3)
    if len(words) < 4 or words[0] != "---" or words[1] not in _RESULTS or not words[3].startswith("("):
        return True
    depth, name = (len(line) - len(line.lstrip(" "))) // 4, words[2]
    if depth and "/" not in name:
        return True  # an indented line of a log: the name of a subtest has a slash
    return not packages.final_line and packages.add_printed(depth, name, _RESULTS[words[1]])


def _parse_event_line(packages: _GoPackages, line: str) -> bool:
    """Parse a line of JSON; False where the output cannot be trusted after it."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    action, package, test = (str(event.get(field) or "") for field in ("Action", "Package", "Test"))
    packages.events = True
    if test:
        if action in ("run", "pass", "fail", "skip"):
            packages.set_result(package, test, _OPEN if action == "run" else action)
        return True
    if action in ("pass", "fail", "skip"):
        return packages.finish_package(package, action)
    packages.tests_of(package)
    return True


class _GoPackages:
    """The results of all packages so far; "" is the package whose name follows its tests."""

    def __init__(self) -> None:
        self.events = False
        self.final_line = ""  # the last line of a package before its result
        self._unfinished: dict[str, dict[str, str]] = {}
        self._path: list[str] = []
        self._ended: dict[str, int] = {}
        self._failed_names: list[str] = []
        self._all_names: list[str] = []
        self._passed, self._skipped, self._counts = 0, 0, False
        self._complete = True  # all tests were started: no package failed as a whole, and no test was cut off

    @property
    def has_unassigned(self) -> bool:
        """Whether there are tests whose package has not been named yet."""
        return bool(self._unfinished.get(""))

    def add_final_line(self, line: str) -> bool:
        """Whether this may be the final line of a package after the ones before it."""
        fits = not self.final_line or line.startswith("exit status ")
        self.final_line = line
        return fits

    def tests_of(self, package: str) -> dict[str, str]:
        """The results of the package's tests so far."""
        return self._unfinished.setdefault(package, {})

    def set_result(self, package: str, test: str, result: str) -> None:
        self._counts = self._counts or result == _OPEN
        tests = self.tests_of(package)
        tests[test] = "fail" if tests.get(test) == "fail" else result  # with -count a test runs more than once

    def add_printed(self, depth: int, test: str, result: str) -> bool:
        """Add a printed result; False where it is not a subtest of the test above it."""
        if depth > len(self._path) or (depth and not test.startswith(f"{self._path[depth - 1]}/")):
            return False
        self._path[depth:] = [test]
        self.set_result("", test, result)
        return True

    def finish_package(self, package: str, result: str) -> bool:
        """Whether the package's result agrees with its tests. One that failed without a failed test is listed."""
        tests = self._unfinished.pop(package if self.events else "", {})
        last, self.final_line, self._path = self.final_line, "", []
        red = [test for test, end in tests.items() if end in ("fail", _OPEN)]
        if result != "fail" and (red or last not in ("", "PASS")):
            return False
        self._ended[package] = number = self._ended.get(package, 0) + 1
        again = "" if number == 1 else f" (run {number})"
        if result == "fail":
            self._complete = self._complete and bool(red) and _OPEN not in tests.values()
            self._failed_names += [f"{package}.{test}{again}" for test in red] or [f"{package}{again}"]
        ends = list(tests.values())
        self._passed, self._skipped = self._passed + ends.count("pass"), self._skipped + ends.count("skip")
        self._all_names += [f"{package}.{test}{again}" for test in tests]
        return True

    def result(self) -> list[SuiteResult] | None:
        """All results as one run; None where a package did not end."""
        if (
            any(self._unfinished.values())
            or (self.events and self._unfinished)
            or self.final_line.startswith("panic: ")
        ):
            return None
        if not self._ended or (self.final_line == "FAIL" and not self._failed_names):
            return None
        names = tuple(sorted(self._failed_names))
        if not self._counts:
            return [SuiteResult("go", names, len(names))]
        skipped, xfailed = (self._skipped, 0) if self._complete else (None, None)
        return [SuiteResult("go", names, len(names), self._passed, skipped, xfailed, bounded_names(self._all_names))]


# Test results of cargo test (1.65 to 1.97).


_RUN_START = r"running (\d{1,9}) tests?(?: \(shuffle seed: \d+\))?"
_TEST = r"test (.+?)(?: - (?:should panic|compile|compile fail))? \.\.\. .*"
_MAX_LINE_CHARS = 1000  # longer lines are no test results
_RESULT_PREFIX = "test result: "
_BINARY = r" +Running (?:unittests )?(?P<file>\S+) \((?:.*[/\\])?(?P<crate>[^/\\]+)-[0-9a-f]{16}(?:\.exe)?\)"
_DOCS = r" +Doc-tests (?P<crate>\S+)"
_FAILURE_PREFIXES = ("error: test failed, to rerun", "error: doctest failed, to rerun")
_TARGETS_FAILED = (
    r"error: \d{1,9} targets? failed:"  # with --no-fail-fast; without, the first binary that fails is the last
)


def read_cargo(lines: list[str]) -> list[SuiteResult] | None:
    """One run of all binaries; None where one is incomplete, or something did not compile."""
    run = _CargoRun()
    for at, line in enumerate(lines):
        if line.startswith("error: could not compile"):
            return None
        if line.startswith(_FAILURE_PREFIXES):
            run.failed_binaries += 1
        elif line.startswith("error: ") and re.fullmatch(_TARGETS_FAILED, line):
            run.complete = True
        elif line.startswith(_RESULT_PREFIX):
            if not run.finish_binary(line, _listed_failures(lines, at)):
                return None
        elif not run.read_line(line):
            return None
    return run.result()


class _CargoRun:
    """The results of all binaries so far."""

    def __init__(self) -> None:
        self.failed_binaries = 0  # as cargo itself reports
        self.complete = False
        self._running, self._binary = False, ""
        self._ended: dict[str, int] = {}
        self._failed_names: list[str] = []
        self._binaries_with_failures, self._passed, self._ignored = 0, 0, 0
        self._expected, self._tests = 0, list[str]()
        self._all_names: list[str] | None = []  # all tests by name; None where not all are known

    def read_line(self, line: str) -> bool:
        """False where the output cannot be trusted after this line."""
        if line.startswith("running ") and (begun := re.fullmatch(_RUN_START, line)):
            fresh = not self._running
            self._running, self._expected, self._tests = True, int(begun[1]), []
            return fresh
        if line.startswith("test ") and len(line) < _MAX_LINE_CHARS and (test := re.fullmatch(_TEST, line)):
            self._tests.append(test[1])
        if binary := line.startswith("  ") and (re.fullmatch(_BINARY, line) or re.fullmatch(_DOCS, line)):
            self._binary = f"{binary['crate']} {binary.groupdict().get('file', 'docs')}: "
        return True

    def finish_binary(self, line: str, names: list[str]) -> bool:
        """Whether a binary with this last line listed as many failures as it counts."""
        counts = parse_counts(line.partition(". ")[2].partition("; finished in")[0], "; ")
        if counts is None or not self._running or counts.get("failed", 0) != len(names):
            return False
        self._ended[self._binary] = number = self._ended.get(self._binary, 0) + 1
        again = "" if number == 1 else f" (run {number})"
        self._failed_names += [f"{self._binary}{name}{again}" for name in _without_line_numbers(names)]
        self._binaries_with_failures += bool(names)
        self._passed += counts.get("passed", 0)
        self._ignored += counts.get("ignored", 0)
        self._add_names(set(names), again)
        self._running, self._binary = False, ""
        return True

    def _add_names(self, failed: set[str], again: str) -> None:
        """Add the binary's tests to all names, if they are as many as announced: a test could print such lines."""
        if self._all_names is None or len(self._tests) != self._expected or not failed <= set(self._tests):
            self._all_names = None
        else:
            self._all_names += [f"{self._binary}{name}{again}" for name in _without_line_numbers(self._tests)]

    def result(self) -> list[SuiteResult] | None:
        """All results as one run; None where a binary did not end, or only some are named."""
        if (
            self._running
            or self.failed_binaries > self._binaries_with_failures
            or ("" in self._ended and any(self._ended))
        ):
            return None
        if not self._ended:
            return []
        names, every = tuple(sorted(self._failed_names)), bounded_names(self._all_names or [])
        ignored, xfailed = (self._ignored, 0) if self.complete or not names else (None, None)
        return [SuiteResult("cargo", names, len(names), self._passed, ignored, xfailed, every)]


def _listed_failures(lines: list[str], at: int) -> list[str]:
    """The names in the list that ends before this line; test output that looks like one is elsewhere."""
    names: list[str] = []
    at -= 1
    if at < 0 or lines[at]:
        return []
    while at > 0 and lines[at - 1].startswith("    "):
        at -= 1
        names.append(lines[at][4:])
    return names[::-1] if at > 0 and lines[at - 1] == "failures:" else []


def _without_line_numbers(names: list[str]) -> list[str]:
    """Unique names without the line numbers of documentation tests."""
    return number_duplicates([re.sub(r" \(line \d+\)", "", name) for name in names])


# Test results of pytest (7 to 9) and unittest (3.8 to 3.13).


# pytest (7 to 9; quiet or not, with xdist and subtests): the lines of its short summary, checked against its counts.
#
# All names are known with `-v`, and with `-rA` where no test was skipped: of skipped ones only the location is printed.


_PYTEST_SECTIONS = ("test session starts", "ERRORS", "FAILURES", "short test summary info")
_PYTEST_TOTALS = r"(?P<counts>no tests ran|\d+ [a-z][a-z0-9, ]*) in \d+(?:\.\d+)? ?s(?:econds)?(?: \([^()]*\))?"
_PYTEST_WORDS = frozenset(
    ("passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed", "warning", "warnings")
)
_PYTEST_INTERRUPTS = ("KeyboardInterrupt", "_pytest.outcomes.Exit")  # not all tests were run
_MAX_DASHES = 20  # tried as the end of a name
_PYTEST_STATES = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
_PYTEST_PROGRESS = r"\[ *\d+(?:%|/\d+)\]|\d[\d.]*[mu]?s"  # progress or duration
_XDIST_LINE = rf"\[gw\d+\](?: \[ *\d+(?:%|/\d+)\])? ({'|'.join(_PYTEST_STATES)}) "


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
        self._failed_subtests = 0  # of the failures, how many are subtests
        self._stopped = False
        self._in_sections = False  # after the list of all tests
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


# Test results of Jest (29 and 30) and of node --test (20 to 24).


# Node's spec reporter: a tree of all tests, and after the totals a list of failures.
#
# The tree has the enclosing suites of a test, the list its file; both describe a failure in the same words.


_SPEC_LINE = r"((?:  )*)([▶✔✖﹣⚠]) (.*)"
_SPEC_FAILURES = "✖ failing tests:"
_SPEC_TITLE = r" \(\d+(?:\.\d+)?ms\)( # .*)?$"  # after the sign: TODO, SKIP, or in what words it was excused


@value
class SpecNode:
    """A line of the tree with a result; that of a suite ends the lines of its tests."""

    title: str
    path: tuple[str, ...]
    is_suite: bool
    failed: bool


def spec_failures(
    before: list[str], after: list[str], red: int, suites: int, last: bool
) -> tuple[list[str], list[str]] | None:
    """The names of failed tests and suites, and all names; None where tree, list and counts do not agree."""
    every, listed = _parse_spec_tree(before), _parse_spec_failures(after, last)
    tree = [node for node in every or () if node.failed]
    if every is None or listed is None or not len(tree) - suites <= red <= len(tree):
        return None
    names: list[str] = []
    file, at = "", 0
    for node in tree:
        if at < len(listed) and listed[at][1] == node.title:
            file, at = listed[at][0], at + 1
        elif not node.is_suite:
            return None
        # A suite that is not listed is in the file of its tests, the last of which preceded it.
        names.append(_spec_name(file, node.path))
    return (names, [" > ".join(node.path) for node in every]) if at == len(listed) else None


def _parse_spec_tree(lines: list[str]) -> list[SpecNode] | None:
    """All results in the tree; None where one is missing. A list of an earlier run may precede."""
    begin = max((at + 2 for at, line in enumerate(lines) if line.startswith("test at ")), default=0)
    nodes: list[SpecNode] = []
    path: list[str] = []
    for line in lines[begin:]:
        node = re.fullmatch(_SPEC_LINE, line) if line.lstrip(" ")[:1] in ("▶", "✔", "✖", "﹣", "⚠") else None
        if node is None:
            continue
        depth, (name, excused) = len(node[1]) // 2, _parse_spec_title(node[3])
        outer = path[depth:] == [name] and node[2] != "▶"
        if len(path) != depth + outer:
            return None
        path[depth:] = [name] if node[2] == "▶" else []
        if node[2] != "▶":
            nodes.append(SpecNode(node[3], (*path[:depth], name), outer, node[2] == "✖" and not excused))
    return None if path else nodes


def _parse_spec_failures(lines: list[str], last: bool) -> list[tuple[str, str]] | None:
    """(file, title) of each listed failure; None where a line is missing. The tree of another run may follow."""
    places = [at for at, line in enumerate(lines) if line.startswith("test at ")]
    end = len(lines) if last else max(places, default=-2) + 2
    titles = [at for at, line in enumerate(lines[:end]) if line.startswith(("✖ ", "⚠ ")) and line != _SPEC_FAILURES]
    if [at + 1 for at in places] != titles:
        return None
    red = [at for at in places if lines[at + 1][0] == "✖" and not _parse_spec_title(lines[at + 1][2:])[1]]
    return [(lines[at][8:].rsplit(":", 2)[0], lines[at + 1][2:]) for at in red]


def _parse_spec_title(title: str) -> tuple[str, bool]:
    """A test's name, and whether its failure is excused (TODO, SKIP)."""
    end = re.search(_SPEC_TITLE, title)
    return (title[: end.start()], end[1] is not None) if end else (title, False)


def _spec_name(file: str, path: tuple[str, ...]) -> str:
    """The full name. A file that could not be loaded is a test with its own name."""
    own = " > ".join(path)
    return file if f"/{own}".endswith(f"/{file}") else f"{file} > {own}"


# Node's tap reporter: results before the totals.


_TAP_LINE = r"(?P<pad>(?:    )*)(?:(?P<end>ok|not ok) \d{1,9} - (?P<title>.*)|1\.\.(?P<plan>\d{1,9}))"


class _TapResult:
    """The result of a test or a suite, with its path so far: enclosing suites are printed after it."""

    def __init__(self, name: str, details: dict[str, str], failed: bool) -> None:
        self.path, self.failed = [name], failed
        self.is_suite = details.get("type") == "suite"
        self.file = details.get("location", "").rsplit(":", 2)[0]

    @property
    def full_title(self) -> str:
        """Its name without its file, which is not printed for tests that passed."""
        return " > ".join(reversed(self.path))

    @property
    def name(self) -> str:
        own = self.full_title
        # A file that could not be loaded is a test with its own name.
        return self.file if f"/{self.file}".endswith(f"/{own}") else f"{self.file} > {own}".removeprefix(" > ")


class _TapLevel:
    """The results at one depth so far."""

    def __init__(self) -> None:
        self.count = 0
        self.results: list[_TapResult] = []


def tap_failures(lines: list[str], failures: int) -> tuple[list[str], list[str]] | None:
    """The names of failed tests and suites, and all names; None where the number of failures differs from the count."""
    results = _parse_tap(lines)
    failed = [result for result in results or () if result.failed]
    failed_tests = sum(not result.is_suite for result in failed)
    if results is None or failed_tests != failures or len({bool(result.file) for result in failed}) > 1:
        return None
    return [result.name for result in failed], [result.full_title for result in results]


def _parse_tap(lines: list[str]) -> list[_TapResult] | None:
    """All results; None where one is missing: each level ends with its number of results."""
    levels: dict[int, _TapLevel] = {0: _TapLevel()}
    at = max((at for at, line in enumerate(lines) if line == "TAP version 13"), default=0)
    while at < len(lines):
        line = lines[at]
        at += 1
        if not line.lstrip(" ").startswith(("ok ", "not ok ", "1..")) or not (found := re.fullmatch(_TAP_LINE, line)):
            continue
        depth = len(found["pad"]) // 4
        level = levels.setdefault(depth, _TapLevel())
        if found["plan"]:
            if int(found["plan"]) != level.count:
                return None
            continue
        details, at = _parse_tap_details(lines, at, found["pad"] + "  ")
        level.count += 1
        inner = levels.pop(depth + 1, _TapLevel()).results
        level.results += _name_results(found["title"], inner, details, found["end"] == "ok")
    return levels[0].results if len(levels) == 1 else None


def _name_results(title: str, inner: list[_TapResult], details: dict[str, str], passed: bool) -> list[_TapResult]:
    """The results within a test or suite, with its name added, and its own: failed unless excused."""
    name, *excused = re.split(r" # (?:TODO|SKIP)\b", title)
    name = name.replace("\\#", "#").replace("\\\\", "\\")
    for result in inner:
        result.path.append(name)
    return [*inner, _TapResult(name, details, failed=not (passed or excused))]


def _parse_tap_details(lines: list[str], at: int, pad: str) -> tuple[dict[str, str], int]:
    """The block of details that begins here, if any, and the position after it."""
    details: dict[str, str] = {}
    if at >= len(lines) or lines[at] != f"{pad}---":
        return details, at
    end = at + 1
    while end < len(lines) and lines[end] != f"{pad}...":
        key, colon, value = lines[end].removeprefix(pad).partition(": ")
        if colon and not key.startswith(" "):
            details.setdefault(key, value.strip("'"))
        end += 1
    return details, end + 1


# Jest (29 and 30): a block for every file, with a bullet for every failure; two lines of counts.
#
# With --verbose, and with a single file, a block begins with the tree of its tests.


_JEST_FILE = r" ?(FAIL|PASS) +(\S.*)"
_JEST_DURATION = r" \(\d+(?:\.\d+)? (?:m?s|MB heap size)\)"
_JEST_TEST = r"(?P<pad>(?:  )+)(?:(?P<state>[✓✕○✎]) (?:(?:skipped|todo) )?)?(?P<name>\S.*)"
_JEST_STATES = {"passed": "✓", "failed": "✕", "skipped": "○", "todo": "✎"}
_JEST_UNLOADED = "Test suite failed to run"


def read_jest(lines: list[str]) -> list[SuiteResult] | None:
    """Every run in these lines; None where the failures of one differ from its counts."""
    runs: list[SuiteResult] = []
    suites = _JestRun()
    for at, line in enumerate(lines):
        if line.startswith("Test Suites: "):
            run = suites.finish(line, lines[at + 1] if at + 1 < len(lines) else "")
            if run is None:
                return None
            runs.append(run)
            suites = _JestRun()
        elif not suites.read_line(line, lines[at + 1 : at + 3]) or _is_torn(lines, at):
            return None
    return None if suites.failures else runs


class _JestRun:
    """The state of one run."""

    def __init__(self) -> None:
        self.failures: dict[str, list[str]] = {}
        self._file: str | None = None  # the failed file of the current block; None in the block of a file that passed
        self._in_summary = False
        self._tree: list[str] | None = None  # the current path in the tree of a file; None outside it
        self._current_file = ""
        self._states: list[tuple[str, str]] = []

    def read_line(self, line: str, after: list[str]) -> bool:
        """False where the run cannot be trusted after this line."""
        if line == "Summary of all failing tests":
            self._in_summary = True
        elif not self._in_summary and (found := re.fullmatch(_JEST_FILE, line)):
            self._current_file, self._tree = _file_name(found[2]), []
            self._file = self._current_file if found[1] == "FAIL" else None
            fresh = self._file not in self.failures
            self.failures.update({self._file: []} if self._file is not None and fresh else {})
            return fresh
        elif not self._in_summary and line.startswith("  ● ") and not _is_console_log(line, after):
            if self._file is None:
                return False
            self.failures[self._file].append(line[4:])
        else:
            self._read_tree_line(line)
        return True

    def _read_tree_line(self, line: str) -> None:
        """A possible line of the tree; the first other line ends the tree."""
        test = re.fullmatch(_JEST_TEST, line) if self._tree is not None and len(line) < _MAX_LINE_CHARS else None
        if test is None or self._tree is None or (depth := len(test["pad"]) // 2 - 1) > len(self._tree):
            self._tree = None
            return
        self._tree[depth:] = [re.sub(_JEST_DURATION + "$", "", test["name"]) if test["state"] else test["name"]]
        if test["state"]:
            self._states.append((test["state"], " › ".join((self._current_file, *self._tree))))
            self._tree.pop()

    def finish(self, suites: str, tests: str) -> SuiteResult | None:
        """The result, from the two lines of counts; None where they differ from the failures."""
        suite_counts = parse_counts(suites.partition(":")[2].strip())
        counts = parse_counts(tests.partition(":")[2].strip()) if tests.startswith("Tests:") else None
        if suite_counts is None or counts is None:
            return None
        dots = [(file, dot) for file, bullets in self.failures.items() for dot in bullets]
        named = [dot for _, dot in dots if dot != _JEST_UNLOADED]
        agreed = (suite_counts.get("failed", 0), counts.get("failed", 0)) == (len(self.failures), len(named))
        if not agreed or not all(self.failures.values()):
            return None
        failing = {file if dot == _JEST_UNLOADED else f"{file} › {dot}" for file, dot in dots}
        whole = _JEST_UNLOADED not in {dot for _, dot in dots} and not any(
            word.startswith("of ") for word in suite_counts
        )
        skipped = counts.get("skipped", 0) + counts.get("todo", 0) if whole else None
        return SuiteResult(
            "jest", tuple(sorted(failing)), len(dots), counts.get("passed", 0), skipped, None, self._all_names(counts)
        )

    def _all_names(self, counts: dict[str, int]) -> tuple[str, ...]:
        """All test names, where the trees have as many tests as were counted, for each state."""
        agreed = all(
            sum(sign == one for one, _ in self._states) == counts.get(word, 0) for word, sign in _JEST_STATES.items()
        )
        return bounded_names([name for _, name in self._states]) if agreed else ()


def _is_torn(lines: list[str], at: int) -> bool:
    """Whether this is the second line of counts without the first."""
    return lines[at].startswith("Tests: ") and not lines[at - 1].startswith("Test Suites: ")


def _file_name(text: str) -> str:
    """A file's name, with its project if there is one."""
    return " ".join(re.sub(_JEST_DURATION, "", text).split())


def _is_console_log(line: str, after: list[str]) -> bool:
    """Whether this is not a failure but the head of a test's log."""
    return line == "  ● Console" and after[1:] != [] and after[1].startswith("    console.")


# `node --test` (20 to 24): totals, with the output of its tap or spec reporter around them.
#
# A test or suite with a failed part has failed too, under its own name; only tests are counted.


_NODE_FILE = r"(?:(?! > ).)+\.[cm]?[jt]sx?"
_NODE_TOTALS = ("tests", "suites", "pass", "fail", "cancelled", "skipped", "todo", "duration_ms")


def read_node(lines: list[str]) -> list[SuiteResult] | None:
    """Every run in these lines; None where the failures of one differ from its counts."""
    places = [at for at, line in enumerate(lines) if line.startswith(("# tests ", "ℹ tests "))]
    totals = [(at, counts) for at in places if (counts := _parse_totals(lines, at))]
    runs: list[SuiteResult] = []
    begin = 0
    for index, (at, counts) in enumerate(totals):
        end = totals[index + 1][0] if index + 1 < len(totals) else len(lines)
        before, after = lines[begin:at], lines[at + len(_NODE_TOTALS) : end]
        red = counts["fail"] + counts["cancelled"]
        if lines[at].startswith("#"):
            failures = tap_failures(before, red)
        else:
            failures = spec_failures(before, after, red, counts["suites"], end == len(lines))
        if failures is None:
            return None
        runs.append(_node_run(counts, red, *failures))
        begin = at + len(_NODE_TOTALS)
    return runs


def _node_run(counts: dict[str, int], red: int, names: list[str], every: list[str]) -> SuiteResult:
    """One run. All names are known if they are as many as the totals count; TODO tests may fail."""
    # The tests in a file that could not be loaded are unknown: the file is a test with its own name.
    whole = not any(re.fullmatch(_NODE_FILE, name) for name in names)
    skipped, xfailed = (counts["skipped"], counts["todo"]) if whole else (None, None)
    agreed = len(every) == counts["tests"] + counts["suites"]
    return SuiteResult(
        "node", tuple(sorted(set(names))), red or len(names), counts["pass"], skipped, xfailed,
        bounded_names(every) if agreed else (),
    )  # fmt: skip


def _parse_totals(lines: list[str], at: int) -> dict[str, int] | None:
    """The totals that begin here; None where they are not complete and in order."""
    totals: dict[str, int] = {}
    for word, line in zip(_NODE_TOTALS, lines[at : at + len(_NODE_TOTALS)], strict=False):
        sign, name, count = [*line.split(" ", 3), "", ""][:3]
        number = parse_count(count.partition(".")[0])
        if sign != lines[at][0] or name != word or number is None:
            return None
        totals[word] = number
    return totals if len(totals) == len(_NODE_TOTALS) else None


# Test results in the output of known test runners.


MAX_LINES = 200_000  # of at most 2 MiB: no runner's lines are so short

# Texts of which one must be present, and the reader. It returns every run in order; None where one is not certain.
_READERS = (
    ((" in ", "short test summary info"), read_pytest),
    (("Ran ",), read_unittest),
    (("Test Suites: ",), read_jest),
    (("\t", '"Action":"'), read_go),
    (("test result: ",), read_cargo),
    (("duration_ms ",), read_node),
)


def read_runner_output(output: str) -> tuple[SuiteResult | None, bool]:
    """The test results, None where they are not certain; and whether the output is complete and no runner was
    recognized.
    """
    text = strip_escapes(output)
    if text.count("\n") > MAX_LINES or text.startswith(TRUNCATION_MARK) or f"\n{TRUNCATION_MARK}" in text:
        return None, False
    lines = text.split("\n")
    results = (read(lines) for marks, read in _READERS if any(mark in text for mark in marks))
    runs_by_reader = [runs for runs in results if runs != []]
    if len(runs_by_reader) == 1 and runs_by_reader[0] is not None:
        return _merge_runs(runs_by_reader[0]), False
    return None, len(runs_by_reader) < 2


def _merge_runs(runs: list[SuiteResult]) -> SuiteResult:
    """All runs as one. From the second run on, names get a suffix: two runs may have tests with the same name."""
    names = [f"{name}{again}" for again, run in _with_run_suffixes(runs) for name in run.failing]
    every = [f"{name}{again}" for again, run in _with_run_suffixes(runs) for name in run.names]
    nameless = any(not run.names and (run.ran, run.skipped, run.xfailed) != (0, 0, 0) for run in runs)
    return SuiteResult(
        runs[0].runner,
        tuple(sorted(names)),
        sum(run.failed for run in runs),
        _sum_known([run.passed for run in runs]),
        _sum_known([run.skipped for run in runs]),
        _sum_known([run.xfailed for run in runs]),
        () if nameless else bounded_names(every),
    )


def _sum_known(counts: list[int | None]) -> int | None:
    """The sum; None where a count is unknown."""
    return None if None in counts else sum(count or 0 for count in counts)


def _with_run_suffixes(runs: list[SuiteResult]) -> list[tuple[str, SuiteResult]]:
    """Every run with the suffix of its names."""
    return [("" if number == 1 else f" (run {number})", run) for number, run in enumerate(runs, 1)]
