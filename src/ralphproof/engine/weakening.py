"""Weakened checks: passes with fewer tests than before the run, with more skipped tests, or flaky ones."""

from __future__ import annotations

import re

from ralphproof.base.text import MAX_QUOTE_CHARS, quote_excerpt
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.check import CheckReport, Finding, SuiteResult

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NAMED_TESTS = 5  # in a message

# Separators between a test's file and its name, by runner; node reports no files.
_FILE_SEPARATORS = {
    "pytest": r"::", "junit": r"::", "jest": r" › ", "cargo": r": ",
    "go": r"\.(?=Test|Example|Fuzz)", "unittest": r"\.(?=\w+\.\w+$)",
}  # fmt: skip
_PART_SEPARATORS = {"node": " > ", "go": "/"}  # between a test and its parts
_MODULE_SEPARATORS = {
    "pytest": "::",
    "jest": " › ",
    "go": ".",
}  # between a module or file that may not load and the names of its tests
# Parametrized names may contain memory addresses, paths or times, which differ in every run.
_VARYING_VALUES = (
    r"0x[0-9a-fA-F]{6,}|(?<![\w.~-])(?:/private)?(?:/var)?/(?:tmp|folders)/[^\s'\")\]]+"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*|\d{10,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
_SCRIPT = r"(?:(?! > ).)+\.[cm]?[jt]sx?"
_PART = r"(?P<test>[^\s\[]+(?:\[\S*\])?) (?!\(run \d+\)$)[\[(].*?(?P<run> \(run \d+\))?"
_FIXTURES = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


@value
class WeakenedCheck:
    """How a passed check covers less than before the run; `hollow` where it shows nothing at all."""

    check: str
    what: str
    hollow: bool = False

    @property
    def message(self) -> str:
        return f"{self.check}: {self.what}"


def find_weakened_checks(report: CheckReport, baseline: CheckReport) -> tuple[WeakenedCheck, ...]:
    """Passed checks that cover fewer tests than before the run; unreadable results are ignored.

    Ending a runner before it reports also makes it pass, so a check that has become mute is reported. A check in a
    clean checkout is compared as the same check in the project. A check that only warns is never hollow: nothing
    depends on it.
    """
    found: list[WeakenedCheck] = []
    for finding in report.findings:
        earlier = baseline.find(finding.check) or _baseline_finding(finding, baseline)
        if not finding.passed or earlier is None or earlier.tests is None:
            continue
        if finding.tests and finding.tests.failed and not (earlier.passed and earlier.tests.failed):
            failing = f"{finding.tests.failed} failing test{'s' if finding.tests.failed > 1 else ''}"
            what = f"it passed, and its own output tells of {failing}"
            found.append(WeakenedCheck(finding.check, what, finding.required))
        if finding.mute and (count := _min_expected(earlier.tests)):
            what = f"its output tells of no test any more; before the run began it had {count}"
            found.append(WeakenedCheck(finding.check, what))
        facts = _fewer_tests(finding.tests, earlier.tests) if finding.tests else ()
        found += (WeakenedCheck(finding.check, what, hollow and finding.required) for what, hollow in facts)
    return tuple(found)


def _baseline_finding(finding: Finding, baseline: CheckReport) -> Finding | None:
    """The finding of the same command before the run, under any name."""
    clean = finding.rule is not None and finding.rule.clean
    return next((earlier for earlier in baseline.findings if clean and earlier.command == finding.command), None)


def _fewer_tests(now: SuiteResult, before: SuiteResult) -> Iterator[tuple[str, bool]]:
    count, earlier_count = _max_with_result(now), _min_expected(before)
    if earlier_count and count == 0:
        yield f"no test of it gives an answer any more; before the run began it had {earlier_count}", True
        return
    missing, unloaded, excused = (
        _missing_tests(now, before),
        _unloaded_modules(now, before),
        _newly_excused(now, before),
    )
    if missing:
        added = _missing_tests(before, now)
        new = f"; new: {_list_names(added)}" if added else ""
        yield f"tests that were there before the run began are gone: {_list_names(missing)}{new}", False
    if unloaded:
        yield f"what could not be loaded before the run began has no test now: {_list_names(unloaded)}", False
    fewer = 0 if count is None or earlier_count is None else earlier_count - count
    if fewer > sum(increase for _, increase, _ in excused) and not missing and not unloaded:
        yield f"{count} of its tests gave an answer; before the run began it had {earlier_count}", False
    for way, increase, earlier in excused:
        number = earlier + increase
        present = f"{number} of its tests {'is' if number == 1 else 'are'} {way}"
        yield f"{present}; before the run began {earlier or 'none'} {'was' if earlier == 1 else 'were'}", False


def _newly_excused(now: SuiteResult, before: SuiteResult) -> list[tuple[str, int, int]]:
    """(skipped or expected to fail, how many more tests than before, the previous number) where there are more."""
    ways = (("skipped", now.skipped, before.skipped), ("expected to fail", now.xfailed, before.xfailed))
    return [
        (way, count - earlier, earlier)
        for way, count, earlier in ways
        if count is not None and earlier is not None and count > earlier
    ]


def _list_names(names: list[str]) -> str:
    """The first names, each in one line."""
    shown = [
        name if name.isprintable() and len(name) <= MAX_QUOTE_CHARS else quote_excerpt(name)
        for name in names[:MAX_NAMED_TESTS]
    ]
    return ", ".join(shown) + (f" and {len(names) - MAX_NAMED_TESTS} more" if len(names) > MAX_NAMED_TESTS else "")


def _max_with_result(tests: SuiteResult) -> int | None:
    """An upper bound of the tests with a result; None where unknown."""
    if tests.passed is not None:
        return tests.passed + tests.failed - _count_empty_files(tests)
    if not tests.names or tests.skipped is None or tests.xfailed is None:
        return None
    return len(tests.names) - tests.skipped - tests.xfailed


def _min_expected(tests: SuiteResult) -> int | None:
    """A lower bound of the tests that had to give a result: one may fail twice, or in many parts."""
    if tests.passed is None:
        return _max_with_result(tests)
    failing = set(tests.failing)
    if tests.runner == "pytest":  # of a test with parts, the test itself is counted too
        failing = {name for name in failing if not re.fullmatch(_PART, name.partition("::")[2])}
    elif tests.runner == "unittest":
        parts = {name: part for name in failing if (part := re.fullmatch(_PART, name))}
        tests_of_parts = {f"{part['test']}{part['run'] or ''}" for part in parts.values()}
        failing = {name for name in tests_of_parts | (failing - parts.keys()) if not name.endswith(_FIXTURES)}
    return tests.passed + min(tests.failed, len(failing)) - _count_empty_files(tests)


def _count_empty_files(tests: SuiteResult) -> int:
    """The number of files that passed without a test in them: node reports each as a test with the file's name."""
    failing = {name.rpartition("/")[2] for name in tests.failing}
    return sum(name.rpartition("/")[2] not in failing for name in tests.names if _is_script(tests.runner, name))


def _is_script(runner: str, name: str) -> bool:
    return runner == "node" and re.fullmatch(_SCRIPT, name) is not None


def _missing_tests(now: SuiteResult, before: SuiteResult) -> list[str]:
    """Names of earlier tests missing now. A test that moved to another file or got parameters is not missing."""
    if not now.names or not before.names:
        return []
    known = {_stable_name(name) for name in now.names}
    present = known | {name.partition("[")[0] for name in known if "[" in name}
    parents = _parent_tests(before)
    missing = [
        name
        for name in before.names
        if not _is_script(before.runner, name)
        and _stable_name(name) not in present
        and re.sub(r" #\d+$", "", name) not in parents
    ]
    earlier = {_stable_name(name) for name in before.names}
    moved = [_name_without_file(now.runner, name) for name in known - earlier]
    for name in list(missing):
        bare_name = _name_without_file(before.runner, _stable_name(name))
        if bare_name in moved and bare_name != _stable_name(name):
            moved.remove(bare_name)
            missing.remove(name)
    return missing


def _parent_tests(tests: SuiteResult) -> set[str]:
    """Tests and suites with parts: if they are missing, their parts show it."""
    separator = _PART_SEPARATORS.get(tests.runner)
    if separator is None:
        return set()
    paths = [name.split(separator) for name in tests.names]
    return {separator.join(path[:depth]) for path in paths for depth in range(1, len(path))}


def _name_without_file(runner: str, name: str) -> str:
    """A test's name without its file."""
    separator = _FILE_SEPARATORS.get(runner)
    found = re.search(separator, name) if separator else None
    return name[found.end() :] if found else name


def _stable_name(name: str) -> str:
    return re.sub(_VARYING_VALUES, "<value>", name)


def _unloaded_modules(now: SuiteResult, before: SuiteResult) -> list[str]:
    """Modules, files or packages that could not be loaded before, and of which no test is known now either."""
    separator, file_separator = _MODULE_SEPARATORS.get(before.runner), _FILE_SEPARATORS.get(before.runner)
    if separator is None or file_separator is None or now.runner != before.runner or not now.names:
        return []
    failed = {name: _name_prefixes(name, separator) for name in before.failing if not re.search(file_separator, name)}
    return [name for name, prefixes in failed.items() if not any(test.startswith(prefixes) for test in now.names)]


def _name_prefixes(module: str, separator: str) -> tuple[str, ...]:
    """The prefixes of the names of a module's tests, in output and in reports."""
    dotted = module.removesuffix(".py").replace("/", ".")
    return f"{module}{separator}", f"{dotted}::", f"{dotted}."


def count_flaky_failures(
    finding: Finding, tree: str | None, earlier: tuple[tuple[str | None, CheckReport], ...]
) -> int:
    """How often a passed check had failed on the same tree: in its own retries, or in `earlier` reports. A function
    check may depend on the agent's reply, which differed then: only commands and judges depend on the tree alone.
    """
    if not finding.passed or not (finding.rule or finding.judged):
        return finding.flaky if finding.passed else 0
    same_tree = [report.find(finding.check) for other, report in earlier if tree is not None and other == tree]
    return finding.flaky + sum(past is not None and not past.passed and not past.errored for past in same_tree)
