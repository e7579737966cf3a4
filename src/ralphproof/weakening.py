"""A pass that shows less than it seems to: fewer tests than before the run, more of them skipped, a lucky try."""

from __future__ import annotations

from ralphproof.check import Finding, Report, Tests
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED = 5  # of tests in a sentence


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

    The same tests in a clean checkout are those of the check that was asked first.
    """
    found: list[Weaker] = []
    for finding in report.findings:
        earlier = baseline.of(finding.check) or _same(finding, baseline)
        if not finding.passed or earlier is None or finding.tests is None or earlier.tests is None:
            continue
        found += (Weaker(finding.check, *fact) for fact in _less(finding.tests, earlier.tests))
    return tuple(found)


def _same(finding: Finding, baseline: Report) -> Finding | None:
    """What the same command said before the run, by whatever name."""
    clean = finding.rule is not None and finding.rule.clean
    return next((one for one in baseline.findings if clean and one.command == finding.command), None)


def _less(now: Tests, before: Tests) -> Iterator[tuple[str, bool]]:
    if before.ran and now.ran == 0:
        yield f"it runs no test any more; before the run began it ran {before.ran}", True
        return
    gone = sorted(set(before.names) - set(now.names)) if before.names and now.names else []
    if gone:
        more = f" and {len(gone) - NAMED} more" if len(gone) > NAMED else ""
        yield f"tests that ran before the run began are gone: {', '.join(gone[:NAMED])}{more}", False
    elif before.ran is not None and now.ran is not None and now.ran < before.ran:
        yield f"{now.ran} tests gave an answer; before the run began {before.ran} did", False
    for word, few, many in (
        ("skipped", before.skipped, now.skipped),
        ("expected to fail", before.xfailed, now.xfailed),
    ):
        if few is not None and many is not None and many > few:
            yield f"{many} of its tests are {word}; before the run began {few} were", False


def lucky(finding: Finding, tree: str | None, earlier: tuple[tuple[str | None, Report], ...]) -> int:
    """How often a check that passed had failed on this very tree: in its own tries, or in looks of `earlier`."""
    if not finding.passed:
        return 0
    looks = [report.of(finding.check) for known, report in earlier if tree is not None and known == tree]
    return finding.flaky + sum(one is not None and not one.passed and not one.errored for one in looks)
