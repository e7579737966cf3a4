"""What `node --test` says (20 to 24): its totals, with what its tap or its spec reporter prints around them.

A test or a suite of which a part failed has failed too, and has a name of its own; only tests are counted.
"""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks import node_spec, node_tap
from ralphproof.checks.counts import bounded_names, number

_FILE = r"(?:(?! > ).)+\.[cm]?[jt]sx?"
_TOTALS = ("tests", "suites", "pass", "fail", "cancelled", "skipped", "todo", "duration_ms")


def read(lines: list[str]) -> list[Tests] | None:
    """Every run in these lines; None where one of them names other failures than it counts."""
    places = [at for at, line in enumerate(lines) if line.startswith(("# tests ", "ℹ tests "))]
    totals = [(at, counts) for at in places if (counts := _totals(lines, at))]
    runs: list[Tests] = []
    begin = 0
    for index, (at, counts) in enumerate(totals):
        end = totals[index + 1][0] if index + 1 < len(totals) else len(lines)
        before, after = lines[begin:at], lines[at + len(_TOTALS) : end]
        red = counts["fail"] + counts["cancelled"]
        if lines[at].startswith("#"):
            told = node_tap.failing(before, red)
        else:
            told = node_spec.failing(before, after, red, counts["suites"], end == len(lines))
        if told is None:
            return None
        runs.append(_run(counts, red, *told))
        begin = at + len(_TOTALS)
    return runs


def _run(counts: dict[str, int], red: int, names: list[str], every: list[str]) -> Tests:
    """One run. All results have names where they are as many as the totals count; whoever is to do may fail."""
    # What is in a file that could not be loaded is not known: it is a test of its own name.
    whole = not any(re.fullmatch(_FILE, name) for name in names)
    skipped, xfailed = (counts["skipped"], counts["todo"]) if whole else (None, None)
    agreed = len(every) == counts["tests"] + counts["suites"]
    return Tests(
        "node", tuple(sorted(set(names))), red or len(names), counts["pass"], skipped, xfailed,
        bounded_names(every) if agreed else (),
    )  # fmt: skip


def _totals(lines: list[str], at: int) -> dict[str, int] | None:
    """The totals that begin here; None where they are not all there, in their order."""
    found: dict[str, int] = {}
    for word, line in zip(_TOTALS, lines[at : at + len(_TOTALS)], strict=False):
        sign, name, count = [*line.split(" ", 3), "", ""][:3]
        told = number(count.partition(".")[0])
        if sign != lines[at][0] or name != word or told is None:
            return None
        found[word] = told
    return found if len(found) == len(_TOTALS) else None
