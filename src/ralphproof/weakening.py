"""A pass that shows less than it seems to: fewer tests than before the run, more of them skipped, a lucky try."""

from __future__ import annotations

import re

from ralphproof.check import Finding, Report, Tests
from ralphproof.claim import QUOTED_CHARS, quoted
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = 5  # of tests in a sentence

# What stands between the name of a test's file and its own, by runner; node does not tell files.
_OWN = {
    "pytest": r"::", "junit": r"::", "jest": r" › ", "cargo": r": ",
    "go": r"\.(?=Test|Example|Fuzz)", "unittest": r"\.(?=\w+\.\w+$)",
}  # fmt: skip
_WITHIN = {"node": " > ", "go": "/"}  # between a test and its part
_LOADED = {"pytest": "::", "jest": " › ", "go": "."}  # behind what may not have been loaded, in the names of its tests
# A name may be made of a value: where that was in memory or on disk, or when it was made, is another every time.
_UNSTEADY = (
    r"0x[0-9a-fA-F]{6,}|(?<![\w.~-])(?:/private)?(?:/var)?/(?:tmp|folders)/[^\s'\")\]]+"
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]*|\d{10,}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)
_SCRIPT = r"(?:(?! > ).)+\.[cm]?[jt]sx?"
_PART = r"(?P<test>[^\s\[]+(?:\[\S*\])?) (?!\(run \d+\)$)[\[(].*?(?P<run> \(run \d+\))?"
_AROUND = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


@value
class Weaker:
    """What a check that passed shows less than it did before the run began; `hollow` where it shows nothing at all."""

    check: str
    what: str
    hollow: bool = False

    @property
    def told(self) -> str:
        return f"{self.check}: {self.what}"


def weaker(report: Report, baseline: Report) -> tuple[Weaker, ...]:
    """What the checks that passed say of fewer tests than they did before the run; what cannot be read tells nothing.

    Whoever ends a runner before it can speak makes it pass as well, so one that is mute now is told. The same tests
    in a clean checkout are those of the check that was asked first. One that only warns is never hollow: nothing
    rests on it.
    """
    found: list[Weaker] = []
    for finding in report.findings:
        earlier = baseline.of(finding.check) or _same(finding, baseline)
        if not finding.passed or earlier is None or earlier.tests is None:
            continue
        if finding.tests and finding.tests.failed and not (earlier.passed and earlier.tests.failed):
            failing = f"{finding.tests.failed} failing test{'s' if finding.tests.failed > 1 else ''}"
            what = f"it passed, and its own output tells of {failing}"
            found.append(Weaker(finding.check, what, finding.required))
        if finding.mute and (many := _at_least(earlier.tests)):
            what = f"its output tells of no test any more; before the run began it had {many}"
            found.append(Weaker(finding.check, what))
        facts = _less(finding.tests, earlier.tests) if finding.tests else ()
        found += (Weaker(finding.check, what, hollow and finding.required) for what, hollow in facts)
    return tuple(found)


def _same(finding: Finding, baseline: Report) -> Finding | None:
    """What the same command said before the run, by whatever name."""
    clean = finding.rule is not None and finding.rule.clean
    return next((one for one in baseline.findings if clean and one.command == finding.command), None)


def _less(now: Tests, before: Tests) -> Iterator[tuple[str, bool]]:
    few, many = _at_most(now), _at_least(before)
    if many and few == 0:
        yield f"no test of it gives an answer any more; before the run began it had {many}", True
        return
    gone, lost, more = _gone(now, before), _unloaded(now, before), _excused(now, before)
    if gone:
        fresh = _gone(before, now)
        new = f"; new: {_listed(fresh)}" if fresh else ""
        yield f"tests that were there before the run began are gone: {_listed(gone)}{new}", False
    if lost:
        yield f"what could not be loaded before the run began has no test now: {_listed(lost)}", False
    if few is not None and many is not None and not gone and not lost and many - few > sum(n for _, n, _ in more):
        yield f"{few} of its tests gave an answer; before the run began it had {many}", False
    for word, risen, known in more:
        number = known + risen
        is_so = f"{number} of its tests {'is' if number == 1 else 'are'} {word}"
        yield f"{is_so}; before the run began {known or 'none'} {'was' if known == 1 else 'were'}", False


def _excused(now: Tests, before: Tests) -> list[tuple[str, int, int]]:
    """In which way more tests need not pass than before, how many more, and how many it were."""
    ways = (("skipped", now.skipped, before.skipped), ("expected to fail", now.xfailed, before.xfailed))
    return [(way, n - known, known) for way, n, known in ways if n is not None and known is not None and n > known]


def _listed(names: list[str]) -> str:
    """The first of them, each in one line, whoever chose it."""
    shown = [name if name.isprintable() and len(name) <= QUOTED_CHARS else quoted(name) for name in names[:NAMED]]
    return ", ".join(shown) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _at_most(tests: Tests) -> int | None:
    """So many tests gave an answer at most; None where that cannot be told."""
    if tests.passed is not None:
        return tests.passed + tests.failed - _idle(tests)
    if not tests.names or tests.skipped is None or tests.xfailed is None:
        return None
    return len(tests.names) - tests.skipped - tests.xfailed


def _at_least(tests: Tests) -> int | None:
    """So many tests there were at least that were asked for an answer: one may fail twice, or in many parts."""
    if tests.passed is None:
        return _at_most(tests)
    failing = set(tests.failing)
    if tests.runner == "pytest":  # of a test with parts, the test itself is counted too
        failing = {name for name in failing if not re.fullmatch(_PART, name.partition("::")[2])}
    elif tests.runner == "unittest":
        wholes = {name: part for name in failing if (part := re.fullmatch(_PART, name))}
        bare = {f"{part['test']}{part['run'] or ''}" for part in wholes.values()}
        failing = {name for name in bare | (failing - wholes.keys()) if not name.endswith(_AROUND)}
    return tests.passed + min(tests.failed, len(failing)) - _idle(tests)


def _idle(tests: Tests) -> int:
    """How many files passed because there is no test in them: to node, each is a test of its own name."""
    red = {name.rpartition("/")[2] for name in tests.failing}
    return sum(name.rpartition("/")[2] not in red for name in tests.names if _is_script(tests.runner, name))


def _is_script(runner: str, name: str) -> bool:
    return runner == "node" and re.fullmatch(_SCRIPT, name) is not None


def _gone(now: Tests, before: Tests) -> list[str]:
    """The tests of before that are not there now, by name. One that has another file, or has parameters now, is."""
    if not now.names or not before.names:
        return []
    known = {_steady(name) for name in now.names}
    there = known | {name.partition("[")[0] for name in known if "[" in name}
    wholes = _wholes(before)
    single = (name for name in before.names if not _is_script(before.runner, name))
    gone = [name for name in single if _steady(name) not in there and re.sub(r" #\d+$", "", name) not in wholes]
    earlier = {_steady(name) for name in before.names}
    moved = [_own(now.runner, name) for name in known - earlier]
    for name in list(gone):
        if (own := _own(before.runner, _steady(name))) in moved and own != _steady(name):
            moved.remove(own)
            gone.remove(name)
    return gone


def _wholes(tests: Tests) -> set[str]:
    """Tests and suites with parts: where they are gone, their parts tell it."""
    between = _WITHIN.get(tests.runner)
    if between is None:
        return set()
    paths = [name.split(between) for name in tests.names]
    return {between.join(path[:depth]) for path in paths for depth in range(1, len(path))}


def _own(runner: str, name: str) -> str:
    """A test's name without its file."""
    between = _OWN.get(runner)
    found = re.search(between, name) if between else None
    return name[found.end() :] if found else name


def _steady(name: str) -> str:
    return re.sub(_UNSTEADY, "<value>", name)


def _unloaded(now: Tests, before: Tests) -> list[str]:
    """Modules, files, packages that could not be loaded before, and of which no test is known now either."""
    behind, between = _LOADED.get(before.runner), _OWN.get(before.runner)
    if behind is None or between is None or now.runner != before.runner or not now.names:
        return []
    broken = {name: _beginnings(name, behind) for name in before.failing if not re.search(between, name)}
    return [name for name, begin in broken.items() if not any(test.startswith(begin) for test in now.names)]


def _beginnings(module: str, behind: str) -> tuple[str, ...]:
    """Those of the names of its tests, in an output and in a report."""
    dotted = module.removesuffix(".py").replace("/", ".")
    return f"{module}{behind}", f"{dotted}::", f"{dotted}."


def lucky(finding: Finding, tree: str | None, earlier: tuple[tuple[str | None, Report], ...]) -> int:
    """How often a check that passed had failed on this very tree: in its own tries, or in looks of `earlier`.

    A function may look at what the agent said, which was another reply then: only commands and judges go by the tree.
    """
    if not finding.passed or not (finding.rule or finding.judged):
        return finding.flaky if finding.passed else 0
    looks = [report.of(finding.check) for known, report in earlier if tree is not None and known == tree]
    return finding.flaky + sum(one is not None and not one.passed and not one.errored for one in looks)
