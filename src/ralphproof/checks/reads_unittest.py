"""What Python's unittest says (3.8 to 3.13): the heads of its failures, by their counts."""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import counted

_DOUBLE, _SINGLE = "=" * 70, "-" * 70
_KINDS = {"FAIL": "failures", "ERROR": "errors", "UNEXPECTED SUCCESS": "unexpected successes"}
_HEAD = r"(FAIL|ERROR|UNEXPECTED SUCCESS): (\S+) \(([^)\s]*)\)(.*)"
_RAN = r"Ran (\d{1,9}) tests? in \d+\.\d+s"
_STATE = r"(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?"
_AROUND = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


def read(lines: list[str]) -> list[Tests] | None:
    """Every run in these lines; None where one of them names other failures than it counts."""
    runs: list[Tests] = []
    heads: list[re.Match[str]] = []
    for at, line in enumerate(lines):
        if line.startswith(tuple(_KINDS)) and (head := _head(lines, at)):
            heads.append(head)
        elif line.startswith("Ran ") and at and lines[at - 1] == _SINGLE and (ran := re.fullmatch(_RAN, line)):
            run = _ended(heads, int(ran[1]), next(filter(None, lines[at + 1 : at + 3]), ""))
            if run is None:
                return None
            runs.append(run)
            heads = []
    return None if heads else runs


def _head(lines: list[str], at: int) -> re.Match[str] | None:
    """The head of a failure: between a double line and a single one, with the first line of a docstring at most."""
    if lines[at].startswith("UNEXPECTED"):  # Python 3.11 lists them under one double line
        return re.fullmatch(_HEAD, lines[at])
    framed = at and lines[at - 1] == _DOUBLE and _SINGLE in lines[at + 1 : at + 3]
    return re.fullmatch(_HEAD, lines[at]) if framed else None


def _ended(heads: list[re.Match[str]], ran: int, state: str) -> Tests | None:
    """The run with this state; None where it is none, or counts other failures than the heads are."""
    found = re.fullmatch(_STATE, state) if len(state) < 400 else None
    counts = None if found is None else _counts(found[1])
    if counts is None:
        return None
    for kind, word in _KINDS.items():
        if counts.get(word, 0) != sum(head[1] == kind for head in heads):
            return None
    failing = tuple(sorted({_name(head) + head[4] for head in heads}))
    return Tests("unittest", failing, len(heads), _passed(heads, ran, counts))


def _counts(text: str | None) -> dict[str, int] | None:
    """The numbers of "failures=1, errors=2"."""
    return {} if text is None else counted(", ".join(" ".join(part.split("=")[::-1]) for part in text.split(", ", 20)))


def _name(head: re.Match[str]) -> str:
    """Module, class and method. Python 3.11 has the method in the brackets too; what could not be loaded is alone."""
    method, inside = head[2], head[3]
    if inside.startswith("unittest.loader._FailedTest"):
        return method
    return inside if inside.endswith(f".{method}") else f"{inside}.{method}"


def _passed(heads: list[re.Match[str]], ran: int, counts: dict[str, int]) -> int | None:
    """How many passed; None where some were skipped: a skipped class has not run, a skipped part of a test has."""
    if counts.get("skipped"):
        return None
    red = {_name(head) for head in heads if head[2] not in _AROUND}
    passed = ran - len(red) - counts.get("expected failures", 0)
    return passed if passed >= 0 else None
