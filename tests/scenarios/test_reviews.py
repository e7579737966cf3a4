"""Review results of a stories run in text, JSON and reports."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from ralphproof.engine.records import RunEnded
from tests.ralph import Ended, Ralph, Step, say, until

Story = dict[str, Any]
SECRET = "hunter2hunter2"
CAPPED = "[AUTO-APPROVED AT CAP]"


def story(name: str, status: str | None = None, count: int = 0, feedback: str = "", **fields: Any) -> Story:
    return {
        "id": name, "title": f"Make {name}", "acceptanceCriteria": ["made"], "priority": 1, "reviewStatus": status,
        "passes": status == "approved", "reviewCount": count, "reviewFeedback": feedback, "notes": "made", **fields,
    }  # fmt: skip


def text(*stories: Story) -> str:
    about = {"project": "p", "branchName": "b", "description": "d", "verifyCommands": ["test -f done"]}
    return json.dumps({**about, "userStories": list(stories)})


def turn(*stories: Story, **files: str) -> list[Step]:
    return [{"write": {"ralph/tasks.json": text(*stories), **files}}, say("ok")]


def lay(ralph: Ralph, *stories: Story) -> None:
    ralph.write({"ralph/tasks.json": text(*stories), "ralph/prd.md": "# What\n", "ralph/progress.txt": "# Progress\n"})
    ralph.commit()
    for name, told in (("user.name", "user"), ("user.email", "user@localhost")):
        ralph.git("config", name, told)


def loop(ralph: Ralph, *iterations: list[Step], flags: tuple[str, ...] = ()) -> Ended:
    return ralph("run", "--preset", "stories", "--agent", ralph.script(*iterations), *flags)


def a_cycle(ralph: Ralph, title: str, *flags: str) -> Ended:
    """Story A is reviewed twice and approved at the cap, B at its first review."""
    lay(ralph, story("A", title=title), story("B", priority=2))
    b, capped = story("B", priority=2), story("A", "approved", 2, f"{CAPPED} still\nwrong", title=title)
    return loop(
        ralph,
        turn(story("A", "needs_review", title=title), b, done="yes"),
        turn(story("A", "changes_requested", 1, f"wrong: {SECRET}", title=title), b),
        turn(story("A", "needs_review", 1, title=title), b, done="louder"),
        turn(story("A", "changes_requested", 2, "still\nwrong", title=title), b),
        turn(capped, story("B", "needs_review", priority=2), more="x"),
        turn(capped, story("B", "approved", 1, priority=2)),
        flags=("--review-cap", "2", *flags),
    )


def test_reviews_are_in_text_json_and_report(ralph: Ralph) -> None:
    ralph.env["MY_API_KEY"] = SECRET
    title = "Say \x1b]0;owned\x07hello"
    ended = a_cycle(ralph, title, "--json")
    assert ended.code == 0
    assert "\x1b" not in ended.err
    told = ended.err.splitlines()
    at = next(place for place, line in enumerate(told) if line.startswith("Stories: "))
    assert told[at : at + 3] == [
        "Stories: 2 of 2 done; 3 reviews in this run; changes requested 2 times; "
        "1 approved at the review cap and may need manual attention",
        "  A  APPROVED AT THE CAP  2 reviews  Say hello",
        "  B  approved             1 review   Make B",
    ]
    stories = [
        {
            "id": "A", "title": title, "status": "approved", "reviewCount": 2, "cappedApproval": True,
            "reviewsInRun": 2, "changesRequested": 2, "doneInRun": True, "findings": ["wrong: ***", "still\nwrong"],
        },
        {
            "id": "B", "title": "Make B", "status": "approved", "reviewCount": 1, "cappedApproval": False,
            "reviewsInRun": 1, "changesRequested": 0, "doneInRun": True, "findings": [],
        },
    ]  # fmt: skip
    status = ralph("status", "--json").json
    for seen in (ended.lines[-1]["data"], ralph.outcome(), status):
        assert [plain(story) for story in masked(seen["stories"])] == stories
    assert ended.lines[-1]["data"]["concerns"] == ["story A was approved at the review cap: still\nwrong"]
    shown = ralph("status").out
    assert "\n  A  APPROVED AT THE CAP  2 reviews  Say hello\n      asked for: wrong: " in shown
    assert "\n      asked for: still wrong\n  B  approved" in shown
    for seen in (ended.err, ended.out, shown, json.dumps(status), (ralph.run_folder() / "outcome.json").read_text()):
        assert SECRET not in seen
    the_report_of_that(ralph)


def plain(story: Story) -> Story:
    """A story without what every object has, its findings as texts."""
    texts = [finding["message"] for finding in story["findings"]]
    return {**{name: item for name, item in story.items() if name not in ("v", "type")}, "findings": texts}


def masked(stories: list[Story]) -> list[Story]:
    """The same, whatever stands in the place of a secret."""
    mark = stories[0]["findings"][0]["message"].removeprefix("wrong: ")
    return json.loads(json.dumps(stories).replace(json.dumps(mark)[1:-1], "***"))  # type: ignore[no-any-return]


def the_report_of_that(ralph: Ralph) -> None:
    page = ralph("report").out
    assert (
        "## Reviews\n- Stories done: 2\n- Reviews per story: 1.5 (1: 1, 2: 1, 3: 0, 4: 0, 5+: 0)\n"
        "- Approved at the first review: 1 of 2 (50%)\n- Approved at the review cap: 1\n- Reviews: 3\n"
        "- Changes requested: 2\n"
    ) in page
    assert "1 story was approved at the review cap, and may need manual attention\n" in page
    figures = {
        "storiesDone": 2, "reviews": 3, "changesRequested": 2, "cappedApprovals": 1, "approvedAtFirstReview": 1,
        "avgReviewsPerStory": 1.5, "reviewsPerStory": {"1": 1, "2": 1, "3": 0, "4": 0, "5+": 0},
    }  # fmt: skip
    assert ralph("report", "--json").json["reviewTotals"] == {"loops": 1, **figures}
    (line,) = (ralph.root / ".ralph" / "metrics" / "loops.jsonl").read_text().splitlines()
    assert {name: json.loads(line)[name] for name in figures} == figures


def test_other_runs_report_no_stories(ralph: Ralph) -> None:
    ended = ralph("run", "-p", "x", "--agent", ralph.script([say("<response>DONE</response>")]), "--json")
    assert "stories" not in ended.lines[-1]["data"]
    assert "Stories:" not in ended.err
    assert ralph("status", "--json").json["stories"] == []
    assert ralph("report", "--json").json["reviewTotals"] is None


def test_stories_that_take_two_runs_are_counted_once(ralph: Ralph) -> None:
    lay(ralph, story("A"))
    first = loop(
        ralph, turn(story("A", "needs_review"), done="yes"), turn(story("A", "changes_requested", 1, "louder")),
        flags=("-m", "2"),
    )  # fmt: skip
    assert first.code == 1
    assert ralph.outcome()["stories"][0]["doneInRun"] is False
    second = loop(ralph, turn(story("A", "needs_review", 1), done="louder"), turn(story("A", "approved", 2)))
    assert second.code == 0
    (one,) = ralph.outcome()["stories"]
    assert (one["reviewCount"], one["reviewsInRun"], one["changesRequested"], one["findings"]) == (2, 1, 0, [])
    told = ralph("report", "--json").json["reviewTotals"]
    assert (told["loops"], told["storiesDone"], told["reviews"], told["changesRequested"]) == (2, 1, 2, 1)
    assert (told["avgReviewsPerStory"], told["reviewsPerStory"]["2"]) == (2.0, 1)


def test_reviews_are_reported_during_a_run_and_after_a_crash(ralph: Ralph) -> None:
    ralph.env["MY_API_KEY"] = SECRET
    lay(ralph, story("A"))
    agent = ralph.script(
        turn(story("A", "needs_review"), done="yes"),
        turn(story("A", "changes_requested", 1, f"louder {SECRET}")),
        [{"write": {"started": "yes", "ralph/tasks.json": text(story("A", "needs_review", 1))}}, {"sleep": 120}],
    )
    live = ralph.start("run", "--preset", "stories", "--agent", agent)
    until(lambda: (ralph.root / "started").exists(), "the third turn is at work")
    running = ralph("status", "--json").json
    assert running["state"] == "running"
    (one,) = running["stories"]
    assert (one["status"], one["reviewCount"], one["changesRequested"]) == ("changes_requested", 1, 1)
    assert "asked for: louder " in ralph("status").out
    assert SECRET not in json.dumps(running) + ralph("status").out
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()
    assert ralph("cancel").code == 0
    assert ralph.outcome()["stories"] == ralph("status", "--json").json["stories"] == [one]
    end = ralph.records()[-1]
    assert isinstance(end, RunEnded)
    assert end.metrics is not None
    assert end.metrics.reviews is not None
    assert (end.metrics.reviews.reviews, end.metrics.reviews.stories) == (1, 0)


def test_stories_are_reported_without_reviews(ralph: Ralph) -> None:
    lay(ralph, story("A"))
    ended = loop(ralph, turn(story("A", passes=True), done="yes"), flags=("--skip-review",))
    assert ended.code == 0
    assert "Stories: 1 of 1 done\n  A  done, not reviewed  0 reviews  Make A\n" in ended.err
    assert ralph.outcome()["stories"][0]["status"] == "passes"
    assert "## Reviews\n- Stories done: 1 (1 without review)\n- Reviews: 0\n" in ralph("report").out


def test_a_refused_stories_file_reports_no_stories(ralph: Ralph) -> None:
    lay(ralph, story("A", priority="high"))
    assert loop(ralph, turn(story("A"))).code == 2
    assert ralph("report").code == 0
