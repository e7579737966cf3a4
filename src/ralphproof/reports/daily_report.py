"""The performance report: metrics of many runs as Markdown and as JSON, with alerts."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import date

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json
from ralphproof.engine.limits import (
    CHECKS_WEAKENED,
    COST_WARNING_PERCENT,
    HISTORY_REWRITTEN,
    PROHIBITED_PATH,
    STALL,
    format_usd,
    format_utc_day,
    utc_day,
)
from ralphproof.engine.outcome import ReviewTotals, published, review_totals_json
from ralphproof.settings.loader import load_settings
from ralphproof.store.project import Project
from ralphproof.store.statistics import PeriodTotals, RunTotals, TimeSlotTotals

# The report as Markdown.


COMPLETION_TARGET, STALL_TARGET = 70, 20  # percent: above the first, and below the second
TRIPWIRES = (PROHIBITED_PATH, HISTORY_REWRITTEN, CHECKS_WEAKENED)
MAX_GROUPS = 20  # of a section; there may be thousands
MAX_NAME_CHARS = 100
ACRONYMS = frozenset(["api", "ci", "cd", "qa", "ui", "ux"])


def render_markdown_report(figures: PeriodTotals, limit_micro_usd: int | None = None, emoji: bool = True) -> str:
    """The report as Markdown, with all names escaped. `limit_micro_usd` is the cost limit of a run."""
    sign, runs = "⚠️ " if emoji else "", figures.runs
    warnings = find_alerts(figures, limit_micro_usd) or ("None today" if _is_one_day(figures) else "None",)
    sections = [("## Overall Stats", _overall_lines(figures, emoji))]
    sections += [
        (heading, lines)
        for heading, lines in (
            ("## By Skill", _group_lines(runs, "skill")), ("## By Agent", _group_lines(runs, "agent")),
            ("## Abort Reasons", _abort_reason_lines(runs.aborted)), ("## Savings", _savings_lines(runs)),
            ("## Reviews", _review_lines(figures.reviews)),
        )
        if lines
    ]  # fmt: skip
    sections.append(("## Alerts", [sign + warning for warning in warnings]))
    blocks = ["\n".join([heading, *lines]) for heading, lines in sections]
    days = format_date_range(figures.first_day, figures.last_day)
    return "\n\n".join([f"# Ralph Loop Performance Report - {days}", *blocks]) + "\n"


def format_date_range(first_day: int, last_day: int, joint: str = " to ") -> str:
    """`2026-02-20`, or a first and a last day."""
    if first_day == last_day:
        return format_utc_day(first_day)
    return f"{format_utc_day(first_day)}{joint}{format_utc_day(last_day)}"


def report_file_name(first_day: int, last_day: int, extension: str) -> str:
    """File name of the report for these days."""
    return f"ralph-report-{format_date_range(first_day, last_day, '_to_')}.{extension}"


def _is_one_day(figures: PeriodTotals) -> bool:
    return figures.first_day == figures.last_day


def find_alerts(figures: PeriodTotals, limit_micro_usd: int | None = None) -> tuple[str, ...]:
    """Alerts, a sentence each."""
    found = _run_alerts(figures.runs, figures.p95_micro_usd, limit_micro_usd)
    return (*found, *_review_cap_alerts(figures.reviews.capped))


def _review_cap_alerts(number: int) -> Iterator[str]:
    if number:
        were = "story was" if number == 1 else "stories were"
        yield f"{number} {were} approved at the review cap, and may need manual attention"


def _run_alerts(runs: RunTotals, p95_micro_usd: int | None, limit_micro_usd: int | None) -> Iterator[str]:
    completed, stalled = runs.completed, runs.of(reason=STALL)
    if runs.count and not _meets_completion_target(runs):
        yield f"Completion rate {format_percent(completed, runs)} is below its target (>{COMPLETION_TARGET}%)"
    if runs.count and not _meets_stall_target(runs):
        yield f"Stall rate {format_percent(stalled, runs)} is above its target (<{STALL_TARGET}%)"
    if p95_micro_usd is not None and limit_micro_usd and p95_micro_usd * 100 >= limit_micro_usd * COST_WARNING_PERCENT:
        yield f"p95 cost {format_usd(p95_micro_usd)} is near the limit of a loop ({format_usd(limit_micro_usd)})"
    if runs.unpriced:
        yield f"The cost of {count_loops(runs.unpriced)} is not wholly known, and left out of averages and p95"
    if unverified := completed.count - completed.sum("verified"):
        yield f"{unverified} of {completed.count} completed loops were claimed only; nothing verified them"
    for reason in TRIPWIRES:
        if tripped := runs.of(reason=reason).count:
            yield f"{count_loops(tripped)} stopped by a tripwire ({reason})"
    if failed := runs.errors.count:
        yield f"{count_loops(failed)} ended with an error"


def _meets_completion_target(runs: RunTotals) -> bool:
    return runs.completed.count * 100 > COMPLETION_TARGET * runs.count


def _meets_stall_target(runs: RunTotals) -> bool:
    return runs.of(reason=STALL).count * 100 < STALL_TARGET * runs.count


def _overall_lines(figures: PeriodTotals, emoji: bool) -> list[str]:
    runs, completed = figures.runs, figures.runs.completed
    if not runs.count:
        when = "on this day" if _is_one_day(figures) else "in these days"
        return ["- Total loops: 0", "", f"No loop ended {when}."]
    met = ("❌", "✅") if emoji else ("missed", "met")
    at_least = "at least " if runs.unpriced else ""
    completion = f"{format_percent(completed, runs)} {met[_meets_completion_target(runs)]}"
    stalls = f"{format_percent(runs.of(reason=STALL), runs)} {met[_meets_stall_target(runs)]}"
    lines = [
        f"- Total loops: {runs.count}",
        f"- Completion rate: {completion} (target: >{COMPLETION_TARGET}%)",
        f"- Avg iterations: {_format_mean(runs)} (p95: {figures.p95_iterations})",
        f"- Avg cost: {_format_cost(runs.mean_micro_usd)} (p95: {_format_cost(figures.p95_micro_usd)})",
        f"- Stall rate: {stalls} (target: <{STALL_TARGET}%)",
        f"- Total cost: {at_least}{format_usd(runs.sum('at_least_micro_usd'))}",
    ]
    if completed.count:
        lines += [
            f"- Avg iterations to complete: {_format_mean(completed)}",
            f"- Avg cost per completion: {_format_cost(completed.mean_micro_usd)}",
            f"- Verified by checks: {completed.sum('verified')} of {completed.count} completed",
        ]
    return lines


def _group_lines(runs: RunTotals, by: str) -> list[str]:
    groups = runs.by(by)
    lines: list[str] = []
    for name, group in groups[:MAX_GROUPS]:
        shown = skill_title(name) if by == "skill" else escape_markdown(name)
        lines += ["", f"### {shown or f'No {by}'}"] if lines else [f"### {shown or f'No {by}'}"]
        lines += [
            f"- Loops: {group.count}",
            f"- Completion: {format_percent(group.completed, group)}",
            f"- Avg iterations: {_format_mean(group)}",
        ]
        lines += [f"- Avg cost: {_format_cost(group.mean_micro_usd)}"] if by == "agent" else []
    rest = groups[MAX_GROUPS:]
    more = f"And {len(rest)} more, with {count_loops(sum(group.count for _, group in rest))}."
    return [*lines, "", more] if rest else lines


def _abort_reason_lines(aborted: RunTotals) -> list[str]:
    return [
        f"- {escape_markdown(reason)}: {part.count} ({format_percent(part, aborted)})"
        for reason, part in aborted.by("reason")
    ]


def _savings_lines(runs: RunTotals) -> list[str]:
    saved = runs.sum("saved_micro_usd")
    return [f"- Saved by cheaper models: {format_usd(saved)}"] if saved > 0 else []


def _review_lines(reviews: ReviewTotals) -> list[str]:
    """Statistics of reviews. Averages leave out stories without a review."""
    if not reviews.runs:
        return []
    unreviewed = reviews.stories - reviews.reviewed
    lines = [f"- Stories done: {reviews.stories}" + (f" ({unreviewed} without review)" if unreviewed else "")]
    if reviews.mean is not None:
        spread = ", ".join(f"{times}: {count}" for times, count in reviews.spread)
        first = f"{reviews.first} of {reviews.reviewed}"
        lines += [
            f"- Reviews per story: {reviews.mean:.1f} ({spread})",
            f"- Approved at the first review: {first} ({_format_share(reviews.first, reviews.reviewed)})",
            f"- Approved at the review cap: {reviews.capped}",
        ]
    return [*lines, f"- Reviews: {reviews.reviews}", f"- Changes requested: {reviews.changes_requested}"]


def count_loops(number: int) -> str:
    return f"{number} loop" if number == 1 else f"{number} loops"


def format_percent(part: RunTotals, whole: RunTotals) -> str:
    """The share of the runs, rounded to a whole percent."""
    return _format_share(part.count, whole.count)


def _format_share(part: int, whole: int) -> str:
    return f"{(200 * part + whole) // (2 * whole)}%"


def _format_mean(runs: RunTotals) -> str:
    return "none" if runs.mean_iterations is None else f"{runs.mean_iterations:.1f}"


def _format_cost(micro_usd: int | None) -> str:
    return "unknown" if micro_usd is None else format_usd(micro_usd)


def skill_title(name: str) -> str:
    """A skill's name as a heading: `tdd` is TDD, `systematic-debugging` is Systematic Debugging."""
    words = re.split(r"[-_\s]+", name[:MAX_NAME_CHARS])
    return escape_markdown(" ".join(_capitalise(word) for word in words if word))


def _capitalise(word: str) -> str:
    """A word with capitals is kept; one without vowels becomes upper case."""
    if word in ACRONYMS or re.fullmatch("[bcdfghjklmnpqrstvwxz]+", word):
        return word.upper()
    return word if word != word.lower() else word[:1].upper() + word[1:]


def escape_markdown(name: str) -> str:
    """An arbitrary name as Markdown text in one line."""
    text = "".join(letter if letter.isprintable() else " " for letter in name[:MAX_NAME_CHARS])
    return re.sub(r"[\\`*\[\]<>#|&~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\\g<0>", " ".join(text.split()))


# The report as JSON.


DATE_FORMAT = "YYYY-MM-DD, today or yesterday, by the UTC calendar"


def parse_day(flag: str, text: str | None, today: int) -> int:
    """Days since 1970; None is today. Raises Refused for an invalid day."""
    if text is None:
        return today
    if text in ("today", "yesterday"):
        return today - (text == "yesterday")
    try:
        if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
            raise ValueError
        return date.fromisoformat(text).toordinal() - date(1970, 1, 1).toordinal()
    except ValueError:
        raise Refused(f"{flag} {text!r} is no day; write {DATE_FORMAT}") from None


def run_cost_limit(root: str) -> int | None:
    """The cost limit of a run by the settings; invalid settings are ignored, since a report does not need them."""
    try:
        return load_settings(root, os.environ).settings.cost_limit_micro_usd
    except Refused:
        return None


def project_report_json(project: Project, first: str | None = None, last: str | None = None) -> dict[str, Json]:
    """Report on the runs of a project that ended in these days; raises Refused for invalid days."""
    today = utc_day(time.time())
    days = parse_day("from", first, today), parse_day("to", last, today)
    if days[0] > days[1]:
        raise Refused("the first day is after the last")
    ledger = project.ledger()
    try:
        report = report_json(ledger.statistics(*days), run_cost_limit(project.root))
        return report | {"slots": slots_json(ledger.statistics_by_time(*days), ledger.queries.abort_reasons(*days))}
    finally:
        ledger.close()


def report_json(figures: PeriodTotals, limit_micro_usd: int | None) -> dict[str, Json]:
    """The report as JSON."""
    runs, reviews = figures.runs, figures.reviews
    return published("report", {
        "from": format_utc_day(figures.first_day),
        "to": format_utc_day(figures.last_day),
        "overall": {
            **_runs_json(runs),
            "p95Iterations": figures.p95_iterations,
            "p95CostUSD": _usd(figures.p95_micro_usd),
            "stalled": runs.of(reason=STALL).count,
            "errors": runs.errors.count,
            "tokens": runs.sum("tokens"),
            "durationSeconds": runs.sum("milliseconds") / 1000,
            "savedUSD": runs.sum("saved_micro_usd") / 1_000_000,
        },
        "bySkill": {name: _runs_json(part) for name, part in runs.by("skill")},
        "byAgent": {name: _runs_json(part) for name, part in runs.by("agent")},
        "abortReasons": {name: part.count for name, part in runs.aborted.by("reason")},
        "reviewTotals": {"loops": reviews.runs, **review_totals_json(reviews)} if reviews.runs else None,
        "alerts": list(find_alerts(figures, limit_micro_usd)),
    })  # fmt: skip


def _runs_json(runs: RunTotals) -> dict[str, Json]:
    completed = runs.completed
    return {
        "loops": runs.count,
        "completed": completed.count,
        "verified": completed.sum("verified"),
        "avgIterations": runs.mean_iterations,
        "avgIterationsToComplete": completed.mean_iterations,
        "avgCostUSD": _usd(runs.mean_micro_usd),
        "avgCostPerCompletionUSD": _usd(completed.mean_micro_usd),
        "atLeastUSD": runs.sum("at_least_micro_usd") / 1_000_000,
        "unknownCosts": runs.unpriced,
    }


def _usd(micro_usd: int | None) -> float | None:
    return None if micro_usd is None else micro_usd / 1_000_000


def slots_json(slots: tuple[TimeSlotTotals, ...], reasons: tuple[tuple[int, str, int], ...]) -> list[Json]:
    """Totals by day, or by hour of one day, with abort reasons."""
    reasons_at: dict[int, dict[str, Json]] = {}
    for at, reason, count in reasons:
        reasons_at.setdefault(at, {})[reason] = count
    return [
        {
            "at": slot.at, "completed": slot.completed, "aborted": slot.aborted, "errors": slot.errors,
            "iterations": slot.iterations, "knownUSD": slot.micro_usd / 1_000_000, "unknownCosts": slot.unpriced,
            "tokens": slot.tokens, "abortReasons": reasons_at.get(slot.at, {}),
        }
        for slot in slots
    ]  # fmt: skip
