"""Test results of Jest (29 and 30) and of node --test (20 to 24)."""

from __future__ import annotations

import re

from ralphproof.base.value import value
from ralphproof.checks.readers.counts import bounded_names, parse_count, parse_counts
from ralphproof.engine.check import SuiteResult

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


def tap_failures(lines: list[str], red: int) -> tuple[list[str], list[str]] | None:
    """The names of failed tests and suites, and all names; None where the number of failures differs from the count."""
    every = _parse_tap(lines)
    failed = [one for one in every or () if one.failed]
    if every is None or sum(not one.is_suite for one in failed) != red or len({bool(one.file) for one in failed}) > 1:
        return None
    return [one.name for one in failed], [one.full_title for one in every]


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
    for one in inner:
        one.path.append(name)
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
_MAX_LINE_CHARS = 1000  # of a line of the tree
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
        self._file: str | None = None  # whose block this is; None in that of a file that passed
        self._in_summary = False
        self._tree: list[str] | None = None  # where in the tree of a file we are; None outside of it
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
