"""One run in figures, many runs as a page, and what to expect of the next one."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport, Finding, SuiteResult
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.limits import Breach, Spend, format_utc_day
from ralphproof.engine.metrics import MAX_STORIES, compute_run_metrics, run_metrics_json
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Metrics,
    Outcome,
    ReviewTotals,
    StoryReview,
    outcome_json,
    story_json,
    total_reviews,
)
from ralphproof.engine.plan import History, Iteration, Job, Stage, Task
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import Baseline, BetweenIterations, Checking, Phase, RunInfo, State, TurnFinished
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.reports.daily_report import (
    escape_markdown,
    find_alerts,
    render_markdown_report,
    report_file_name,
    skill_title,
)
from ralphproof.store.statistics import (
    MIN_PAST_RUNS,
    PastRun,
    PeriodTotals,
    QuantityEstimate,
    RunEstimate,
    describe_estimate,
    estimate_run,
    nearest_rank,
)
from tests.store.samples import sum_runs

if TYPE_CHECKING:
    from ralphproof.base.value import Json

DAY = 20_504  # 2026-02-20
NOON_S = DAY * 86_400 + 43_200.0
LABELS: dict[str, Json] = {
    "preset": "wrapper",
    "agent": "claude",
    "skill": "tdd",
    "taskType": "bug",
    "model": "asked for",
}
DONE = Completed(2, Spend(5_000_000, 900), 61.5, "done", True)
STOPPED = Aborted(Breach("STALL", "5 iterations in a row changed no file"), 2, Spend(7), 1.0, "")
BROKEN = Failed("no disk", 1, 3, Spend(9, 1, unpriced=1), 2.0)


def one(number: int, **facts: object) -> Iteration:
    job = Job(Task("t", "title"), Stage("work", ClaimRule("DONE")))
    plain_one = Iteration(number, job, Turn(Exit(0)), Snapshot("s", "t"), Change(), CheckReport())
    return replace(plain_one, **facts)


def state(*iterations: Iteration, **facts: object) -> State:
    info = RunInfo("r", LABELS, NOON_S - 60)
    made = State(info, iteration=len(iterations), history=History(iterations))
    return replace(made, **facts)


def finding(check: str, failed: int | None, passed: bool = False) -> Finding:
    return Finding(check, passed, tests=None if failed is None else SuiteResult("pytest", (), failed))


# One run


def test_a_run_is_told_by_its_labels_its_outcome_and_its_times() -> None:
    made = compute_run_metrics(state(one(1), one(2)), DONE, NOON_S)
    assert (made.run, made.began_s, made.ended_s) == ("r", NOON_S - 60, NOON_S)
    assert (made.preset, made.agent, made.skill, made.task_type) == ("wrapper", "claude", "tdd", "bug")
    assert (made.iterations, made.seconds, made.tokens) == (2, 61.5, 900)
    assert made.saved_micro_usd is None


def test_labels_that_are_no_text_or_not_there_are_empty() -> None:
    made = compute_run_metrics(
        state(run=RunInfo("r", {"skill": None, "agent": ["x"], "preset": 3}, NOON_S - 60)), DONE, NOON_S
    )
    assert (made.skill, made.agent, made.preset, made.model) == ("", "", "", "")


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "micro_usd", "at_least"),
    [
        (DONE, "COMPLETED", "", 5_000_000, 5_000_000),
        (STOPPED, "ABORTED", "STALL", 7, 7),
        (BROKEN, "ERROR", "", None, 9),
    ],
)
def test_every_outcome_has_a_status_and_an_unknown_cost_is_none(
    outcome: Outcome, status: str, reason: str, micro_usd: int | None, at_least: int
) -> None:
    made = compute_run_metrics(state(), outcome, NOON_S)
    assert (made.status, made.reason, made.micro_usd, made.at_least_micro_usd) == (status, reason, micro_usd, at_least)


def test_a_negative_duration_is_none_at_all() -> None:
    assert compute_run_metrics(state(), replace(DONE, seconds=-5.0), NOON_S).seconds == 0.0


def test_files_are_counted_once_and_only_those_of_the_agent() -> None:
    first = one(1, change=Change(("a", "b", "cache"), older=("cache",)))
    unjudged = one(2, change=Change(("b", "c")))
    assert compute_run_metrics(state(first, phase=Checking(unjudged)), STOPPED, NOON_S).files == 3


@pytest.mark.parametrize(
    ("before", "after", "fixed"),
    [
        ([("t", 5)], [("t", 2)], 3),
        ([("t", 1)], [("t", 4)], -3),
        ([("t", 5), ("u", 2)], [("t", 5), ("u", 0)], 2),
        ([("t", 5)], [("t", None)], None),
        ([("t", None)], [("t", 1)], None),
        ([("t", 5)], [("u", 0)], None),
        ([], [("t", 0)], None),
    ],
)
def test_tests_fixed_are_those_that_no_longer_fail(
    before: list[tuple[str, int | None]], after: list[tuple[str, int | None]], fixed: int | None
) -> None:
    baseline = CheckReport(tuple(finding(*item) for item in before))
    last = one(1, report=CheckReport(tuple(finding(*item) for item in after)))
    assert compute_run_metrics(state(last, baseline=Baseline(baseline)), DONE, NOON_S).tests_fixed == fixed


def test_a_check_that_passes_without_a_word_has_no_failing_test() -> None:
    quiet = CheckReport((finding("t", None, passed=True),))
    assert (
        compute_run_metrics(
            state(one(1, report=quiet), baseline=Baseline(CheckReport((finding("t", 4),)))), DONE, NOON_S
        ).tests_fixed
        == 4
    )
    assert compute_run_metrics(state(one(1, report=quiet), baseline=Baseline(quiet)), DONE, NOON_S).tests_fixed is None


def test_the_last_answer_of_a_check_counts_where_it_was_not_always_asked() -> None:
    asked = one(1, report=CheckReport((finding("t", 1),)))
    baseline = CheckReport((finding("t", 3),))
    assert compute_run_metrics(state(asked, one(2), baseline=Baseline(baseline)), STOPPED, NOON_S).tests_fixed == 2


@pytest.mark.parametrize(
    ("claim", "claimed"),
    [
        (None, False),
        (Claim("done"), True),
        (Claim("NEARLY"), False),
        (Claim("DONE", waiting=True), False),
    ],
)
def test_a_claim_counts_when_the_stage_accepts_it(claim: Claim | None, claimed: bool) -> None:
    assert compute_run_metrics(state(one(1, claim=claim), one(2)), STOPPED, NOON_S).claimed is claimed


def test_a_stage_that_asks_for_no_word_was_not_claimed_by_silence() -> None:
    quiet = one(1, job=Job(Task("t", "title"), Stage("work", ClaimRule(None))))
    assert compute_run_metrics(state(quiet), DONE, NOON_S).claimed is False
    assert compute_run_metrics(state(replace(quiet, claim=Claim("X"))), DONE, NOON_S).claimed is True
    assert compute_run_metrics(state(replace(quiet, claim=Claim("X", waiting=True))), STOPPED, NOON_S).claimed is False


GREEN = one(1, report=CheckReport((finding("t", 0, passed=True),)))


@pytest.mark.parametrize(
    ("given", "outcome", "verified"),
    [
        (state(GREEN), DONE, True),
        (state(GREEN), replace(DONE, verified=False), False),
        (state(GREEN), STOPPED, True),
        (state(GREEN, one(2)), STOPPED, False),
        (state(GREEN, iteration=2), STOPPED, False),
        (state(), replace(STOPPED, checks_passed=True), True),
        (state(GREEN), BROKEN, True),
        (state(), BROKEN, False),
    ],
)
def test_verification_is_what_the_checks_said_at_the_end(given: State, outcome: Outcome, verified: bool) -> None:
    assert compute_run_metrics(given, outcome, NOON_S).verified is verified


@pytest.mark.parametrize(
    ("phase", "model"),
    [
        (BetweenIterations(), "second"),
        (TurnFinished(GREEN.job, Turn(Exit(0), model="third")), "third"),
        (Checking(one(3, turn=Turn(Exit(0), model="third"))), "third"),
        (TurnFinished(GREEN.job, Turn(Exit(1))), "second"),
    ],
)
def test_the_model_is_the_one_last_heard_of(phase: Phase, model: str) -> None:
    turns = (one(1, turn=Turn(Exit(0), model="first")), one(2, turn=Turn(Exit(0), model="second")))
    assert compute_run_metrics(state(*turns, phase=phase), DONE, NOON_S).model == model
    assert compute_run_metrics(state(one(1)), DONE, NOON_S).model == "asked for"


# Reviews of stories


def reviewed(reviews: int, requested: int = 0, **others: object) -> StoryReview:
    """A story that a run finished after so many reviews of its own."""
    made = StoryReview("US-1", "title", "approved", reviews, made=reviews, requested=requested, finished=True)
    return replace(made, **others)


LEFT = StoryReview("US-9", "left", "changes_requested", 2, found=("louder",), made=2, requested=2)
EARLIER = StoryReview("US-0", "earlier", "approved", 4)
CYCLE = (EARLIER, *map(reviewed, (1, 1, 3, 7)), reviewed(5, 5, capped=True), LEFT)


def test_a_runs_reviews_are_those_that_it_made_and_its_stories_those_that_it_finished() -> None:
    assert total_reviews(CYCLE) == ReviewTotals(1, 5, 19, 7, 1, 2, 17, 2, 0, 1, 0, 2)
    assert total_reviews((EARLIER,)) == ReviewTotals(1)
    assert total_reviews(()) is None


def test_an_approval_at_a_cap_of_one_is_no_approval_at_the_first_review() -> None:
    found = total_reviews((reviewed(1, 1, capped=True), reviewed(1)))
    assert found is not None
    assert (found.stories, found.capped, found.first, found.once) == (2, 1, 1, 2)


def test_stories_that_nobody_reviewed_are_in_no_average() -> None:
    found = total_reviews((reviewed(0, status="passes"), reviewed(3)))
    assert found is not None
    assert (found.stories, found.reviewed, found.mean) == (2, 1, 3.0)
    assert ReviewTotals(1, 4).mean is None


def test_figures_have_the_reviews_and_stories_of_a_run_that_went_by_them() -> None:
    made = compute_run_metrics(state(one(1)), DONE, NOON_S, CYCLE)
    assert (made.reviews, made.reviewed) == (total_reviews(CYCLE), CYCLE)
    other = compute_run_metrics(state(one(1)), DONE, NOON_S)
    assert (other.reviews, other.reviewed) == (None, ())
    assert unpack(pack(made)) == made


def test_of_very_many_stories_all_are_counted_and_the_first_are_kept() -> None:
    made = compute_run_metrics(state(), DONE, NOON_S, (reviewed(2),) * (MAX_STORIES + 5))
    assert made.reviews is not None
    assert (made.reviews.stories, len(made.reviewed)) == (MAX_STORIES + 5, MAX_STORIES)


def test_figures_that_were_kept_before_there_were_reviews_are_understood() -> None:
    kept = pack(compute_run_metrics(state(), DONE, NOON_S))
    assert isinstance(kept, dict)
    assert "reviews" not in kept
    assert (unpack(kept).reviews, unpack(kept).reviewed) == (None, ())


def test_a_published_line_has_reviews_where_there_were_stories() -> None:
    line = run_metrics_json(compute_run_metrics(state(), DONE, NOON_S, CYCLE))
    assert {name: line[name] for name in list(line)[list(line).index("savedUSD") + 1 :]} == {
        "storiesDone": 5, "reviews": 19, "changesRequested": 7, "cappedApprovals": 1, "approvedAtFirstReview": 2,
        "avgReviewsPerStory": 3.4, "reviewsPerStory": {"1": 2, "2": 0, "3": 1, "4": 0, "5+": 2},
    }  # fmt: skip
    assert list(run_metrics_json(compute_run_metrics(state(), DONE, NOON_S)))[-1] == "savedUSD"


def test_a_result_has_stories_where_there_were_some() -> None:
    told = outcome_json(DONE, "r", compute_run_metrics(state(), DONE, NOON_S, (LEFT,)))
    assert told["stories"] == [story_json(LEFT)]
    for none in (None, compute_run_metrics(state(), DONE, NOON_S)):
        assert "stories" not in outcome_json(DONE, "r", none)


# Many runs


def run(status: str = "COMPLETED", reason: str = "", **others: object) -> Metrics:
    made = Metrics("r", NOON_S - 60, NOON_S, status, reason, "tdd", agent="claude", iterations=8, verified=True)
    return replace(replace(made, micro_usd=1_230_000, at_least_micro_usd=1_230_000), **others)


def page(*runs: Metrics, days: int = 1, limit_micro_usd: int | None = None, emoji: bool = True) -> str:
    return render_markdown_report(sum_runs(runs, DAY, DAY + days - 1), limit_micro_usd, emoji)


def sample() -> tuple[Metrics, ...]:
    """Fifteen loops: eleven completed, two stalled."""
    tdd = [*(run(iterations=9) for _ in range(9)), run("ABORTED", "STALL", iterations=11)]
    tdd += [run("ABORTED", "STALL", iterations=9), run("ABORTED", "MAX_ITERATIONS", iterations=20)]
    debugging = [run(skill="systematic-debugging", iterations=count) for count in (10, 5)]
    return (*tdd, *debugging, run("ABORTED", "COST_LIMIT", skill="systematic-debugging", micro_usd=3_500_000))


def test_the_page_has_the_headings_and_lines_that_people_know() -> None:
    shown = page(*sample())
    assert shown.startswith(
        """\
# Ralph Loop Performance Report - 2026-02-20

## Overall Stats
- Total loops: 15
- Completion rate: 73% ✅ (target: >70%)
- Avg iterations: 9.6 (p95: 20)
- Avg cost: $1.38 (p95: $3.50)
- Stall rate: 13% ✅ (target: <20%)
"""
    )
    assert (
        """
## By Skill
### TDD
- Loops: 12
- Completion: 75%
- Avg iterations: 10.1

### Systematic Debugging
- Loops: 3
- Completion: 67%
- Avg iterations: 7.7

## By Agent
### claude
- Loops: 15
- Completion: 73%
- Avg iterations: 9.6
- Avg cost: $1.38

## Abort Reasons
- STALL: 2 (50%)
- COST_LIMIT: 1 (25%)
- MAX_ITERATIONS: 1 (25%)

## Alerts
⚠️ None today
"""
        in shown
    )
    assert shown.endswith("## Alerts\n⚠️ None today\n")


def test_completions_are_told_apart_from_all_loops() -> None:
    shown = page(run(iterations=2), run(iterations=4, verified=False), run("ABORTED", "STALL", iterations=30))
    assert "- Avg iterations: 12.0 (p95: 30)\n" in shown
    assert "- Avg iterations to complete: 3.0\n- Avg cost per completion: $1.23\n" in shown
    assert "- Verified by checks: 1 of 2 completed\n" in shown


def test_a_missed_target_is_marked_and_named_among_the_alerts() -> None:
    shown = page(run(), *(run("ABORTED", "STALL") for _ in range(4)))
    assert "- Completion rate: 20% ❌ (target: >70%)\n" in shown
    assert "- Stall rate: 80% ❌ (target: <20%)\n" in shown
    assert "⚠️ Completion rate 20% is below its target (>70%)\n" in shown
    assert "⚠️ Stall rate 80% is above its target (<20%)\n" in shown
    assert "None" not in shown


@pytest.mark.parametrize(("completed", "of", "met"), [(7, 10, False), (71, 100, True), (1, 1, True)])
def test_a_target_itself_is_not_more_than_the_target(completed: int, of: int, met: bool) -> None:
    runs = [run() for _ in range(completed)] + [run("ERROR") for _ in range(of - completed)]
    assert ("✅ (target: >70%)" in page(*runs)) is met


ALERTS: list[tuple[list[Metrics], int | None, str]] = [
    ([run(micro_usd=8_000_000)], 10_000_000, "p95 cost $8.00 is near the limit of a loop ($10.00)"),
    ([run(), run(micro_usd=None)], None, "The cost of 1 loop is not wholly known, and left out of averages and p95"),
    ([run(), run(verified=False)], None, "1 of 2 completed loops were claimed only; nothing verified them"),
    (
        [*(run() for _ in range(9)), run("ABORTED", "PROHIBITED_PATH")], None,
        "1 loop stopped by a tripwire (PROHIBITED_PATH)",
    ),
    ([*(run() for _ in range(9)), run("ERROR"), run("ERROR")], None, "2 loops ended with an error"),
]  # fmt: skip


@pytest.mark.parametrize(("runs", "limit_micro_usd", "alert"), ALERTS)
def test_what_somebody_should_look_at_is_a_line_each(
    runs: list[Metrics], limit_micro_usd: int | None, alert: str
) -> None:
    assert find_alerts(sum_runs(runs, DAY, DAY), limit_micro_usd) == (alert,)
    assert f"\n⚠️ {alert}\n" in page(*runs, limit_micro_usd=limit_micro_usd)


@pytest.mark.parametrize("limit_micro_usd", [None, 0, 10_000_001])
def test_a_cost_far_from_the_limit_or_without_one_is_no_alert(limit_micro_usd: int | None) -> None:
    assert find_alerts(sum_runs([run(micro_usd=8_000_000)], DAY, DAY), limit_micro_usd) == ()


@pytest.mark.parametrize(("days", "said", "none"), [(1, "on this day", "None today"), (3, "in these days", "None")])
def test_days_without_loops_are_a_page_that_says_so(days: int, said: str, none: str) -> None:
    """DB-10"""
    until = f" to {format_utc_day(DAY + days - 1)}" if days > 1 else ""
    assert page(days=days) == (
        f"# Ralph Loop Performance Report - 2026-02-20{until}\n\n## Overall Stats\n- Total loops: 0\n\n"
        f"No loop ended {said}.\n\n## Alerts\n⚠️ {none}\n"
    )


def test_costs_that_nobody_knows_are_unknown_and_never_zero() -> None:
    shown = page(run(micro_usd=None, at_least_micro_usd=40_000), run(micro_usd=None, at_least_micro_usd=0))
    assert "- Avg cost: unknown (p95: unknown)\n" in shown
    assert "- Total cost: at least $0.04\n" in shown
    assert "- Avg cost per completion: unknown\n" in shown
    assert "- Avg cost: $2.00 (p95: $2.00)\n" in page(run(micro_usd=2_000_000), run(micro_usd=None))


def test_savings_are_told_where_there_are_some() -> None:
    assert "## Savings\n- Saved by cheaper models: $2.50\n" in page(run(saved_micro_usd=2_500_000), run())
    for saved in (None, 0, -5):
        assert "## Savings" not in page(run(saved_micro_usd=saved))


def test_reviews_are_told_where_runs_went_by_stories() -> None:
    shown = page(run(reviews=total_reviews(CYCLE)), run(), run(reviews=total_reviews((reviewed(2), reviewed(0)))))
    assert (
        """
## Reviews
- Stories done: 7 (1 without review)
- Reviews per story: 3.2 (1: 2, 2: 1, 3: 1, 4: 0, 5+: 2)
- Approved at the first review: 2 of 6 (33%)
- Approved at the review cap: 1
- Reviews: 21
- Changes requested: 7

## Alerts
⚠️ 1 story was approved at the review cap, and may need manual attention
"""
        in shown
    )
    assert "## Reviews" not in page(run())


def test_runs_in_which_no_story_was_finished_have_no_average_of_reviews() -> None:
    shown = page(run(reviews=total_reviews((LEFT,))))
    assert "## Reviews\n- Stories done: 0\n- Reviews: 2\n- Changes requested: 2\n" in shown
    assert shown.endswith("⚠️ None today\n")


def test_every_approval_at_the_cap_is_in_the_alert() -> None:
    capped = run(reviews=total_reviews((reviewed(5, capped=True),)))
    wanted = "2 stories were approved at the review cap, and may need manual attention"
    assert find_alerts(sum_runs([capped, capped, run()], DAY, DAY)) == (wanted,)


def test_without_emoji_the_signs_are_words() -> None:
    shown = page(run(), run("ABORTED", "STALL"), emoji=False)
    assert "- Completion rate: 50% missed (target: >70%)" in shown
    assert shown.isascii()
    assert "## Alerts\nNone today\n" in page(emoji=False)


def test_many_skills_are_cut_and_counted() -> None:
    shown = page(*(run(skill=f"s{number:03}") for number in range(50)), run(skill="often"), run(skill="often"))
    assert shown.count("\n### ") == 20 + 1
    assert shown.index("### Often") < shown.index("### S000")
    assert "\nAnd 31 more, with 31 loops.\n" in shown


def test_loops_without_skill_or_agent_have_their_own_heading() -> None:
    shown = page(run(skill="", agent=""))
    assert "### No skill\n" in shown
    assert "### No agent\n" in shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("tdd", "TDD"),
        ("systematic-debugging", "Systematic Debugging"),
        ("code_cleanup", "Code Cleanup"),
        ("api-tests", "API Tests"),
        ("iOS-build", "iOS Build"),
        ("übung", "Übung"),
        ("--", ""),
    ],
)
def test_a_skill_is_a_heading_by_its_words(name: str, shown: str) -> None:
    assert skill_title(name) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("MAX_ITERATIONS", "MAX_ITERATIONS"),
        ("a\n# b\r\n- c", r"a \# b - c"),
        ("<script>x</script>", r"\<script\>x\</script\>"),
        ("[x](http://y)", r"\[x\](http://y)"),
        ("*a* `b` _c_ |d| &amp; ~~e~~", r"\*a\* \`b\` \_c\_ \|d\| \&amp; \~\~e\~\~"),
        ("\x1b[31mred\x07\u202e\u2028\ud800", r"\[31mred"),
        ("back\\slash", r"back\\slash"),
        ("x" * 300, "x" * 100),
    ],
)
def test_a_name_marks_nothing_up_and_stays_in_its_line(name: str, shown: str) -> None:
    assert escape_markdown(name) == shown


@given(st.text(max_size=80))
def test_whatever_a_skill_is_called_the_page_keeps_its_lines(name: str) -> None:
    lines = page(run(skill=name, agent=name)).splitlines()
    assert len(lines) == len(page(run()).splitlines())
    assert all(line.isprintable() for line in lines)
    assert sum(line.startswith("#") for line in lines) == 7


def test_a_file_is_called_by_its_days() -> None:
    assert report_file_name(DAY, DAY, "md") == "ralph-report-2026-02-20.md"
    assert report_file_name(DAY, DAY + 1, "svg") == "ralph-report-2026-02-20_to_2026-02-21.svg"


@given(st.dates())
def test_a_day_has_the_date_of_the_calendar(day: date) -> None:
    number = (day - date(1970, 1, 1)) // timedelta(1)
    assert format_utc_day(number) == day.isoformat()


@given(st.lists(st.integers(0, 50), min_size=1), st.sampled_from([50, 90, 95]))
def test_so_many_percent_lie_at_or_below_the_nearest_rank_and_not_below_less(numbers: list[int], percent: int) -> None:
    found = nearest_rank(numbers, percent)
    assert found is not None
    assert sum(number <= found for number in numbers) * 100 >= percent * len(numbers)
    assert sum(number < found for number in numbers) * 100 < percent * len(numbers)


def test_only_runs_of_the_days_are_added_up() -> None:
    runs = [run(ended_s=DAY * 86_400 - 0.001), run(ended_s=DAY * 86_400.0), run(ended_s=(DAY + 1) * 86_400.0)]
    assert sum_runs(runs, DAY, DAY).runs.count == 1
    assert sum_runs(runs, DAY - 1, DAY + 1).runs.count == 3
    assert sum_runs([], DAY, DAY) == PeriodTotals(DAY, DAY)


# What to expect


def past(*pairs: tuple[int, int | None], skill: str = "tdd") -> list[PastRun]:
    return [PastRun(skill, iterations, micro_usd) for iterations, micro_usd in pairs]


def test_too_few_runs_say_nothing() -> None:
    assert estimate_run(past(*[(3, 10)] * (MIN_PAST_RUNS - 1)), "tdd") is None
    assert estimate_run([]) is None


def test_half_and_nine_of_ten_are_told_with_limits_above() -> None:
    numbers = [(1, 100_000), (2, 200_000), (4, 800_000), (4, 800_000), (4, 900_000)] + [(4, 800_000)] * 4
    found = estimate_run(past(*numbers, (8, 2_100_000), (8, 2_100_000), (8, 2_200_000)), "tdd")
    assert found == RunEstimate(12, QuantityEstimate(4, 8, 12), QuantityEstimate(800_000, 2_100_000, 3_200_000), "tdd")
    assert describe_estimate(replace(found, skill="")) == (
        "12 past runs took 4 iterations (9 of 10 at most 8) and $0.80 (at most $2.10); "
        "proposed: -m 12 --max-cost-usd 3.20"
    )


def test_runs_of_the_same_skill_count_where_there_are_enough() -> None:
    mixed = past(*[(2, None)] * 5) + past(*[(9, None)] * 6, skill="other")
    same, all_of_them = estimate_run(mixed, "tdd"), estimate_run(mixed, "unheard of")
    assert same is not None
    assert all_of_them is not None
    assert (same.runs, same.iterations.median, same.skill) == (5, 2, "tdd")
    assert (all_of_them.runs, all_of_them.iterations.median, all_of_them.skill) == (11, 9, "")
    assert describe_estimate(same).startswith(
        "5 past runs of tdd took 2 iterations (9 of 10 at most 2); proposed: -m 3"
    )


def test_costs_count_only_where_enough_are_known() -> None:
    four = estimate_run(past(*[(1, 500_000)] * 4, *[(1, None)] * 9), "tdd")
    five = estimate_run(past(*[(1, 500_000)] * 5, *[(1, None)] * 9), "tdd")
    assert four is not None
    assert five is not None
    assert four.cost is None
    assert "usd" not in describe_estimate(four)
    assert five.cost == QuantityEstimate(500_000, 500_000, 800_000)


def test_limits_have_a_least_size_that_a_run_may_have() -> None:
    found = estimate_run(past(*[(1, 0)] * 5), "tdd")
    assert found == RunEstimate(5, QuantityEstimate(1, 1, 3), QuantityEstimate(0, 0, 100_000), "tdd")
    assert describe_estimate(found).endswith("took 1 iteration (9 of 10 at most 1) and $0.00 (at most $0.00); "
                                    "proposed: -m 3 --max-cost-usd 0.10")  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 10**6), st.none() | st.integers(0, 10**10)), min_size=5))
def test_a_proposed_limit_is_never_below_what_nine_of_ten_took(numbers: list[tuple[int, int | None]]) -> None:
    found = estimate_run(past(*numbers), "tdd")
    assert found is not None
    for part in filter(None, (found.iterations, found.cost)):
        assert part.median <= part.p90 <= part.limit
