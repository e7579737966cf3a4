"""Test results in the output of known test runners.

The output is untrusted. Names are returned only where a runner's own count agrees with them; where anything is missing,
doubtful or printed by two runners, there is no result, and the text of the output is used instead.
"""

from __future__ import annotations

from ralphproof.base.text import TRUNCATION_MARK, strip_terminal_codes
from ralphproof.checks.readers import go, javascript, python, rust
from ralphproof.checks.readers.counts import bounded_names
from ralphproof.engine.check import SuiteResult

MAX_LINES = 200_000  # what is looked at of an output is 2 MiB: no runner's lines are so short

# Texts of which one must be present, and the reader. It returns every run in order; None where one is not certain.
_READERS = (
    ((" in ", "short test summary info"), python.read_pytest),
    (("Ran ",), python.read_unittest),
    (("Test Suites: ",), javascript.read_jest),
    (("\t", '"Action":"'), go.read_go),
    (("test result: ",), rust.read_cargo),
    (("duration_ms ",), javascript.read_node),
)


def read_runner_output(output: str) -> tuple[SuiteResult | None, bool]:
    """The test results, None where they are not certain; and whether the output is complete and no runner was
    recognized.
    """
    text = strip_terminal_codes(output)
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
