"""The summary page of an archive: stories, reviews and concerns."""

from __future__ import annotations

import re

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.phrases import format_count
from ralphproof.stories import schema
from ralphproof.stories.review import approval_concerns, is_approved_at_cap
from ralphproof.stories.story_folder import TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

STARTED = re.compile(r"^Started:\s*(\d{4}-\d\d-\d\d)", re.MULTILINE)
WORDS = {
    None: "not begun",
    schema.NEEDS_REVIEW: "waits for its review",
    schema.CHANGES_REQUESTED: "changes requested",
    schema.APPROVED: "approved",
}


@value
class StoryAccount:
    """What a tasks.json says, as far as it can be read. `faults` has what cannot, or should not be.

    Every one of `stories` has an id, a title, passes, reviewStatus, reviewCount and reviewFeedback.
    """

    project: str
    branch: str
    stories: tuple[dict[str, Any], ...]
    faults: tuple[str, ...]

    @property
    def done(self) -> int:
        return sum(one["passes"] for one in self.stories)


def account_of(data: bytes | None) -> StoryAccount:
    """The account of a file that may be malformed, or not there at all (None)."""
    document = (
        schema.UnreadableStories("there is no such file that can be read")
        if data is None
        else schema.parse_stories(data)
    )
    if isinstance(document, schema.UnreadableStories):
        return StoryAccount("", "", (), (document.why,))
    stories = document.get("userStories")
    listed = [one for one in stories if isinstance(one, dict)] if isinstance(stories, list) else []
    named = tuple(_readable(one, place) for place, one in enumerate(listed, 1))
    return StoryAccount(
        _line(document.get("project")), _line(document.get("branchName")), named, schema.validate_stories(document)
    )


def _readable(one: dict[str, Any], place: int) -> dict[str, Any]:
    """A story with every field that is told of, each of its kind."""
    status, times, passes = one.get("reviewStatus"), one.get("reviewCount"), one.get("passes")
    feedback = one.get("reviewFeedback")
    return {
        "id": _line(one.get("id")) or f"#{place}",
        "title": _line(one.get("title")),
        "passes": passes is True,
        "reviewStatus": status if isinstance(status, str) else None,
        "reviewCount": times if isinstance(times, int) and not isinstance(times, bool) and 0 < times < 10**6 else 0,
        "reviewFeedback": feedback if isinstance(feedback, str) else "",
    }


def _line(given: object) -> str:
    """A text on one line, with nothing in it that a terminal would obey."""
    return collapse_lines(sanitize(given)).strip()[:500] if isinstance(given, str) else ""


def began(progress: bytes, otherwise: str) -> str:
    """The day that a progress log names as its first."""
    found = STARTED.search(progress.decode("utf-8", "replace"))
    return found[1] if found else otherwise


def summary(label: str, account: StoryAccount, dates: tuple[str, str], files: tuple[str, ...]) -> str:
    """The page."""
    return "\n".join([*_head(label, account, dates, files), *_table(account), *_reviews(account), *_concerns(account)])


def _head(label: str, account: StoryAccount, dates: tuple[str, str], files: tuple[str, ...]) -> Iterator[str]:
    yield f"# Archive: {_text(label)}"
    yield ""
    yield f"- Project: {_text(account.project) or '(not named)'}"
    yield f"- Branch: {_text(account.branch) or '(not named)'}"
    yield f"- Dates: {dates[0]} to {dates[1]}"
    yield f"- Stories: {account.done} of {len(account.stories)} completed"
    yield f"- Files: {', '.join(files)}"
    if account.faults:
        yield f"- {TASKS} is malformed; it is archived as it was found:"
        yield from (f"  - {_text(fault)}" for fault in account.faults)
    yield ""


def _table(account: StoryAccount) -> Iterator[str]:
    if not account.stories:
        return
    yield from ("## Stories", "", "| Story | Title | Status | Reviews |", "| --- | --- | --- | --- |")
    for one in account.stories:
        yield f"| {_text(one['id'])} | {_text(one['title'])} | {_text(_status(one))} | {one['reviewCount']} |"
    yield ""


def _status(one: dict[str, Any]) -> str:
    if one["passes"] and is_approved_at_cap(one):
        return "approved at the review cap"
    if one["passes"] and one["reviewStatus"] != schema.APPROVED:
        return "done, not reviewed"
    return WORDS.get(one["reviewStatus"], _line(one["reviewStatus"]))


def _reviews(account: StoryAccount) -> Iterator[str]:
    """How often stories were reviewed: mostly once says that reviews cost little, often that they find something."""
    times = [one["reviewCount"] for one in account.stories if one["reviewCount"]]
    if not account.stories:
        return
    yield from ("## Reviews", "")
    of_each = f", {sum(times) / len(times):.1f} of each" if times else ""
    yield f"- {format_count(sum(times), 'review')} of {_stories(len(times))}{of_each}"
    for number in sorted(set(times)):
        yield f"- reviewed {format_count(number, 'time')}: {_stories(times.count(number))}"
    capped = [_text(one["id"]) for one in account.stories if one["passes"] and is_approved_at_cap(one)]
    yield f"- approved at the review cap: {', '.join(capped) or 'none'}"
    yield ""


def _stories(number: int) -> str:
    return f"{number} story" if number == 1 else f"{number} stories"


def concerns_of(account: StoryAccount) -> Iterator[str]:
    """What somebody should look at, a line each."""
    yield from map(_line, approval_concerns({"userStories": account.stories}))
    for one in account.stories:
        if not one["passes"]:
            said = f": {_line(one['reviewFeedback'])}" if one["reviewFeedback"].strip() else ""
            yield f"story {one['id']} is not completed ({_status(one)}){said}"


def _concerns(account: StoryAccount) -> Iterator[str]:
    if told := [f"- {_text(line)}" for line in concerns_of(account)]:
        yield from ("## Concerns", "", *told, "")


def _text(line: str) -> str:
    """A line that stays in its cell, and begins no tag and no comment."""
    return line.replace("|", "\\|").replace("<", "&lt;")
