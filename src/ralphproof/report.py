"""Many runs as a page for people."""

from __future__ import annotations

import re

from ralphproof.budget import dollars
from ralphproof.figure import Figures, Runs, date_of
from ralphproof.limit import CHECKS_WEAKENED, COST_NEAR, HISTORY_REWRITTEN, PROHIBITED_PATH, STALL
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.metric import Reviews

COMPLETION_TARGET, STALL_TARGET = 70, 20  # percent: more than the first is wanted, less than the second
TRIPWIRES = (PROHIBITED_PATH, HISTORY_REWRITTEN, CHECKS_WEAKENED)
NAMED = 20  # parts of a section; there may be thousands
NAME_CHARS = 100
ACRONYMS = frozenset(["api", "ci", "cd", "qa", "ui", "ux"])


def markdown(figures: Figures, limit_micro_usd: int | None = None, emoji: bool = True) -> str:
    """The report, every name in it harmless. `limit_micro_usd` is what a run may cost."""
    sign, runs = "⚠️ " if emoji else "", figures.runs
    warnings = alerts(figures, limit_micro_usd) or ("None today" if _one_day(figures) else "None",)
    sections = [("## Overall Stats", _overall(figures, emoji))]
    sections += [
        (heading, lines)
        for heading, lines in (
            ("## By Skill", _parts(runs, "skill")), ("## By Agent", _parts(runs, "agent")),
            ("## Abort Reasons", _reasons(runs.aborted)), ("## Savings", _savings(runs)),
            ("## Reviews", _reviews(figures.reviews)),
        )
        if lines
    ]  # fmt: skip
    sections.append(("## Alerts", [sign + warning for warning in warnings]))
    blocks = ["\n".join([heading, *lines]) for heading, lines in sections]
    days = dates(figures.first_day, figures.last_day)
    return "\n\n".join([f"# Ralph Loop Performance Report - {days}", *blocks]) + "\n"


def dates(first_day: int, last_day: int, joint: str = " to ") -> str:
    """`2026-02-20`, or a first and a last day."""
    return date_of(first_day) if first_day == last_day else f"{date_of(first_day)}{joint}{date_of(last_day)}"


def file_name(first_day: int, last_day: int, ending: str) -> str:
    """What a report's file of these days is called."""
    return f"ralph-report-{dates(first_day, last_day, '_to_')}.{ending}"


def _one_day(figures: Figures) -> bool:
    return figures.first_day == figures.last_day


def alerts(figures: Figures, limit_micro_usd: int | None = None) -> tuple[str, ...]:
    """What somebody should look at, a sentence each."""
    found = _alerts(figures.runs, figures.p95_micro_usd, limit_micro_usd)
    return (*found, *_capped(figures.reviews.capped))


def _capped(number: int) -> Iterator[str]:
    if number:
        were = "story was" if number == 1 else "stories were"
        yield f"{number} {were} approved at the review cap, and may need manual attention"


def _alerts(runs: Runs, p95_micro_usd: int | None, limit_micro_usd: int | None) -> Iterator[str]:
    completed, stalled = runs.completed, runs.of(reason=STALL)
    if runs.count and not _completes(runs):
        yield f"Completion rate {percent(completed, runs)} is below its target (>{COMPLETION_TARGET}%)"
    if runs.count and not _moves(runs):
        yield f"Stall rate {percent(stalled, runs)} is above its target (<{STALL_TARGET}%)"
    if p95_micro_usd is not None and limit_micro_usd and p95_micro_usd * 100 >= limit_micro_usd * COST_NEAR:
        yield f"p95 cost {dollars(p95_micro_usd)} is near the limit of a loop ({dollars(limit_micro_usd)})"
    if runs.unpriced:
        yield f"The cost of {loops(runs.unpriced)} is not wholly known, and left out of averages and p95"
    if unproved := completed.count - completed.sum("verified"):
        yield f"{unproved} of {completed.count} completed loops were claimed only; nothing verified them"
    for reason in TRIPWIRES:
        if tripped := runs.of(reason=reason).count:
            yield f"{loops(tripped)} stopped by a tripwire ({reason})"
    if failed := runs.errors.count:
        yield f"{loops(failed)} ended with an error"


def _completes(runs: Runs) -> bool:
    return runs.completed.count * 100 > COMPLETION_TARGET * runs.count


def _moves(runs: Runs) -> bool:
    return runs.of(reason=STALL).count * 100 < STALL_TARGET * runs.count


def _overall(figures: Figures, emoji: bool) -> list[str]:
    runs, completed = figures.runs, figures.runs.completed
    if not runs.count:
        when = "on this day" if _one_day(figures) else "in these days"
        return ["- Total loops: 0", "", f"No loop ended {when}."]
    met = ("❌", "✅") if emoji else ("missed", "met")
    at_least = "at least " if runs.unpriced else ""
    lines = [
        f"- Total loops: {runs.count}",
        f"- Completion rate: {percent(completed, runs)} {met[_completes(runs)]} (target: >{COMPLETION_TARGET}%)",
        f"- Avg iterations: {_mean(runs)} (p95: {figures.p95_iterations})",
        f"- Avg cost: {_money(runs.mean_micro_usd)} (p95: {_money(figures.p95_micro_usd)})",
        f"- Stall rate: {percent(runs.of(reason=STALL), runs)} {met[_moves(runs)]} (target: <{STALL_TARGET}%)",
        f"- Total cost: {at_least}{dollars(runs.sum('at_least_micro_usd'))}",
    ]
    if completed.count:
        lines += [
            f"- Avg iterations to complete: {_mean(completed)}",
            f"- Avg cost per completion: {_money(completed.mean_micro_usd)}",
            f"- Verified by checks: {completed.sum('verified')} of {completed.count} completed",
        ]
    return lines


def _parts(runs: Runs, by: str) -> list[str]:
    parts = runs.by(by)
    lines: list[str] = []
    for name, part in parts[:NAMED]:
        shown = title(name) if by == "skill" else plain(name)
        lines += ["", f"### {shown or f'No {by}'}"] if lines else [f"### {shown or f'No {by}'}"]
        lines += [
            f"- Loops: {part.count}",
            f"- Completion: {percent(part.completed, part)}",
            f"- Avg iterations: {_mean(part)}",
        ]
        lines += [f"- Avg cost: {_money(part.mean_micro_usd)}"] if by == "agent" else []
    rest = parts[NAMED:]
    more = f"And {len(rest)} more, with {loops(sum(part.count for _, part in rest))}."
    return [*lines, "", more] if rest else lines


def _reasons(aborted: Runs) -> list[str]:
    return [f"- {plain(reason)}: {part.count} ({percent(part, aborted)})" for reason, part in aborted.by("reason")]


def _savings(runs: Runs) -> list[str]:
    saved = runs.sum("saved_micro_usd")
    return [f"- Saved by cheaper models: {dollars(saved)}"] if saved > 0 else []


def _reviews(reviews: Reviews) -> list[str]:
    """What reviews of stories were good for. Those that nobody reviewed are in no average."""
    if not reviews.runs:
        return []
    unseen = reviews.stories - reviews.reviewed
    lines = [f"- Stories done: {reviews.stories}" + (f" ({unseen} without review)" if unseen else "")]
    if reviews.mean is not None:
        spread = ", ".join(f"{times}: {count}" for times, count in reviews.spread)
        first = f"{reviews.first} of {reviews.reviewed}"
        lines += [
            f"- Reviews per story: {reviews.mean:.1f} ({spread})",
            f"- Approved at the first review: {first} ({_share(reviews.first, reviews.reviewed)})",
            f"- Approved at the review cap: {reviews.capped}",
        ]
    return [*lines, f"- Reviews: {reviews.reviews}", f"- Changes requested: {reviews.changes_requested}"]


def loops(number: int) -> str:
    return f"{number} loop" if number == 1 else f"{number} loops"


def percent(part: Runs, whole: Runs) -> str:
    """The nearest whole one."""
    return _share(part.count, whole.count)


def _share(part: int, whole: int) -> str:
    return f"{(200 * part + whole) // (2 * whole)}%"


def _mean(runs: Runs) -> str:
    return "none" if runs.mean_iterations is None else f"{runs.mean_iterations:.1f}"


def _money(micro_usd: int | None) -> str:
    return "unknown" if micro_usd is None else dollars(micro_usd)


def title(name: str) -> str:
    """A skill's name as a heading: `tdd` is TDD, `systematic-debugging` is Systematic Debugging."""
    words = re.split(r"[-_\s]+", name[:NAME_CHARS])
    return plain(" ".join(_capital(word) for word in words if word))


def _capital(word: str) -> str:
    """A word that has capitals keeps them; one without a vowel is spelled, so it has nothing else."""
    if word in ACRONYMS or re.fullmatch("[bcdfghjklmnpqrstvwxz]+", word):
        return word.upper()
    return word if word != word.lower() else word[:1].upper() + word[1:]


def plain(name: str) -> str:
    """A name that anybody may have chosen, as text of a page: it marks nothing up, and stays in its line."""
    text = "".join(letter if letter.isprintable() else " " for letter in name[:NAME_CHARS])
    return re.sub(r"[\\`*\[\]<>#|&~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", " ".join(text.split()))
