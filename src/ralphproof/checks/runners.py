"""Which tests failed, read from what a check printed: known runners, each in a file of its own.

What is read is not trusted. A set of names is given only where a runner's own count agrees with it; where anything is
missing, doubtful or said by two runners, there is no answer, and the text of the output has to do.
"""

from __future__ import annotations

from ralphproof.check import CUT, Tests
from ralphproof.checks import reads_cargo, reads_go, reads_jest, reads_node, reads_pytest, reads_unittest
from ralphproof.checks.counts import bounded_names
from ralphproof.fingerprint import plain

MOST_LINES = 200_000  # what is looked at of an output is 2 MiB: no runner's lines are so short

# What the text must hold for a reader to be asked, and the reader: every run that it finds, in their order; None where
# there is one that cannot be read with certainty.
_READERS = (
    ((" in ", "short test summary info"), reads_pytest.read),
    (("Ran ",), reads_unittest.read),
    (("Test Suites: ",), reads_jest.read),
    (("\t", '"Action":"'), reads_go.read),
    (("test result: ",), reads_cargo.read),
    (("duration_ms ",), reads_node.read),
)


def tests_in(output: str) -> Tests | None:
    """What the output says of single tests; None where it does not clearly hold all of what one runner said."""
    return heard_in(output)[0]


def heard_in(output: str) -> tuple[Tests | None, bool]:
    """The same, and whether it is mute: short enough to be read, and no runner speaks to its end in it."""
    text = plain(output)
    if text.count("\n") > MOST_LINES or text.startswith(CUT) or f"\n{CUT}" in text:
        return None, False
    lines = text.split("\n")
    asked = (read(lines) for marks, read in _READERS if any(mark in text for mark in marks))
    found = [runs for runs in asked if runs != []]
    if len(found) == 1 and found[0] is not None:
        return _joined(found[0]), False
    return None, len(found) < 2


def _joined(runs: list[Tests]) -> Tests:
    """All runs as one. A name says in which it failed from the second on: two runs may well have tests of one name."""
    names = [f"{name}{again}" for again, run in _told_apart(runs) for name in run.failing]
    every = [f"{name}{again}" for again, run in _told_apart(runs) for name in run.names]
    nameless = any(not run.names and (run.ran, run.skipped, run.xfailed) != (0, 0, 0) for run in runs)
    return Tests(
        runs[0].runner,
        tuple(sorted(names)),
        sum(run.failed for run in runs),
        _sum([run.passed for run in runs]),
        _sum([run.skipped for run in runs]),
        _sum([run.xfailed for run in runs]),
        () if nameless else bounded_names(every),
    )


def _sum(counts: list[int | None]) -> int | None:
    """All counts together; None where one of them is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def _told_apart(runs: list[Tests]) -> list[tuple[str, Tests]]:
    """Every run with what its names end in."""
    return [("" if number == 1 else f" (run {number})", run) for number, run in enumerate(runs, 1)]
