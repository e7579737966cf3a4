"""What Python's unittest says (3.8 to 3.13): the heads of its failures, by their counts; with -v, a line a test."""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import bounded_names, counted

_DOUBLE, _SINGLE = "=" * 70, "-" * 70
_KINDS = {"FAIL": "failures", "ERROR": "errors", "UNEXPECTED SUCCESS": "unexpected successes"}
_HEAD = r"(FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([^)\s]*)\)(.*)"
_RAN = r"Ran (\d{1,9}) tests? in \d+\.\d+s"
_UNLOADED = "unittest.loader._FailedTest"
_STATE = r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?"
_TEST = r"(\S+) \(([^)\s]*)\)(?: \.\.\. (.*))?"
_LAST = r".* \.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)"  # after a docstring's first line
_LONGEST = 1000  # of such lines
_AROUND = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


def read(lines: list[str]) -> list[Tests] | None:
    """Every run in these lines; None where one of them names other failures than it counts."""
    runs: list[Tests] = []
    heads: list[re.Match[str]] = []
    begin = 0
    for at, line in enumerate(lines):
        if line.startswith(tuple(_KINDS)) and (head := _head(lines, at)):
            heads.append(head)
        elif line.startswith("Ran ") and at and lines[at - 1] == _SINGLE and (ran := re.fullmatch(_RAN, line)):
            tests = _tests(lines[begin:at])
            run = _ended(heads, int(ran[1]), next(filter(None, lines[at + 1 : at + 3]), ""), tests)
            if run is None:
                return None
            runs.append(run)
            heads, begin = [], at + 1
    return None if heads else runs


def _head(lines: list[str], at: int) -> re.Match[str] | None:
    """The head of a failure: between a double line and a single one, with the first line of a docstring at most."""
    if lines[at].startswith("UNEXPECTED"):  # Python 3.11 lists them under one double line
        return re.fullmatch(_HEAD, lines[at])
    framed = at and lines[at - 1] == _DOUBLE and _SINGLE in lines[at + 1 : at + 3]
    return re.fullmatch(_HEAD, lines[at]) if framed else None


def _tests(lines: list[str]) -> list[tuple[str, str]]:
    """(name, state) of each test that has a line of its own; the state is empty where its parts have theirs."""
    found: list[tuple[str, str]] = []
    for at, line in enumerate(lines):
        if line in (_DOUBLE, _SINGLE):
            break
        after = lines[at + 1] if at + 1 < len(lines) else ""
        if len(line) >= _LONGEST or " (" not in line or not (test := re.fullmatch(_TEST, line)):
            continue
        last = re.fullmatch(_LAST, after) if test[3] is None and len(after) < _LONGEST else None
        if last or test[3] is not None:
            found.append((_name(test[1], test[2]), last[1] if last else test[3]))
    return found


def _ended(heads: list[re.Match[str]], ran: int, state: str, tests: list[tuple[str, str]]) -> Tests | None:
    """The run with this state; None where it is none, or counts other failures than the heads are."""
    found = re.fullmatch(_STATE, state) if len(state) < 400 else None
    counts = None if found is None else _counts(found[1])
    if counts is None:
        return None
    for kind, word in _KINDS.items():
        if counts.get(word, 0) != sum(head[1] == kind for head in heads):
            return None
    failing = tuple(sorted({_name(head[2], head[3]) + head[4] for head in heads}))
    # What a module or a class holds that could not be made ready is not known.
    whole = all(head[2] not in _AROUND and not head[3].startswith(_UNLOADED) for head in heads)
    skipped, xfailed = counts.get("skipped", 0), counts.get("expected failures", 0)
    return Tests(
        "unittest", failing, len(heads), _passed(heads, ran, counts),
        skipped if whole else None, xfailed if whole else None, _every(tests, ran, skipped) if whole else (),
    )  # fmt: skip


def _every(tests: list[tuple[str, str]], ran: int, skipped: int) -> tuple[str, ...]:
    """All tests by name, where as many have a line as ran, and as many of those say that they were skipped."""
    said = sum(state.startswith("skipped ") for _, state in tests)
    around = any(name.rpartition(".")[2] in _AROUND for name, _ in tests)
    return bounded_names([name for name, _ in tests]) if (len(tests), said, around) == (ran, skipped, False) else ()


def _counts(text: str | None) -> dict[str, int] | None:
    """The numbers of "failures=1, errors=2"."""
    return {} if text is None else counted(", ".join(" ".join(part.split("=")[::-1]) for part in text.split(", ", 20)))


def _name(method: str, inside: str) -> str:
    """Module, class and method. Python 3.11 has the method in the brackets too; what could not be loaded is alone."""
    if inside.startswith(_UNLOADED):
        return method
    return inside if inside.endswith(f".{method}") else f"{inside}.{method}"


def _passed(heads: list[re.Match[str]], ran: int, counts: dict[str, int]) -> int | None:
    """How many passed; None where some were skipped: a skipped class has not run, a skipped part of a test has."""
    if counts.get("skipped"):
        return None
    red = {_name(head[2], head[3]) for head in heads if head[2] not in _AROUND}
    passed = ran - len(red) - counts.get("expected failures", 0)
    return passed if passed >= 0 else None
