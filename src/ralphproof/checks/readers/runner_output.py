"""Test results in the output of known test runners.

What is read is not trusted. A set of names is given only where a runner's own count agrees with it; where anything is
missing, doubtful or said by two runners, there is no answer, and the text of the output has to do.
"""

from __future__ import annotations

from ralphproof.base.text import TRUNCATION_MARK, strip_terminal_codes
from ralphproof.checks.readers import go, javascript, python, rust
from ralphproof.checks.readers.counts import bounded_names
from ralphproof.engine.check import SuiteResult

MAX_LINES = 200_000  # what is looked at of an output is 2 MiB: no runner's lines are so short

# What the text must hold for a reader to be asked, and the reader: every run that it finds, in their order; None where
# there is one that cannot be read with certainty.
_READERS = (
    ((" in ", "short test summary info"), python.read_pytest),
    (("Ran ",), python.read_unittest),
    (("Test Suites: ",), javascript.read_jest),
    (("\t", '"Action":"'), go.read_go),
    (("test result: ",), rust.read_cargo),
    (("duration_ms ",), javascript.read_node),
)


def read_tests(output: str) -> SuiteResult | None:
    """What the output says of single tests; None where it does not clearly hold all of what one runner said."""
    return read_runner_output(output)[0]


def read_runner_output(output: str) -> tuple[SuiteResult | None, bool]:
    """The same, and whether it is mute: short enough to be read, and no runner speaks to its end in it."""
    text = strip_terminal_codes(output)
    if text.count("\n") > MAX_LINES or text.startswith(TRUNCATION_MARK) or f"\n{TRUNCATION_MARK}" in text:
        return None, False
    lines = text.split("\n")
    asked = (read(lines) for marks, read in _READERS if any(mark in text for mark in marks))
    found = [runs for runs in asked if runs != []]
    if len(found) == 1 and found[0] is not None:
        return _merge_runs(found[0]), False
    return None, len(found) < 2


def _merge_runs(runs: list[SuiteResult]) -> SuiteResult:
    """All runs as one. A name says in which it failed from the second on: two runs may well have tests of one name."""
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
    """All counts together; None where one of them is not known."""
    return None if None in counts else sum(count or 0 for count in counts)


def _with_run_suffixes(runs: list[SuiteResult]) -> list[tuple[str, SuiteResult]]:
    """Every run with what its names end in."""
    return [("" if number == 1 else f" (run {number})", run) for number, run in enumerate(runs, 1)]
