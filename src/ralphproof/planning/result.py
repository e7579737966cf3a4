"""The result of planning, and the command that comes next."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.display.output import align_columns, print_json, print_lines
from ralphproof.engine.metrics import ABORTED, COMPLETED
from ralphproof.engine.outcome import outcome_json
from ralphproof.runs.stories import ITERATIONS_PER_STORY, ITERATIONS_WITHOUT_REVIEW
from ralphproof.settings.loader import load_settings
from ralphproof.stories.story_folder import folder_flags

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.workspace import Change
    from ralphproof.planning.plan_files import Desk
    from ralphproof.store.project import Project

SENT_BACK = 5  # times at most
NAMED = 10  # of files
STORIES = "stories"


@value
class Planned:
    """How planning ended. `problems` are what is still wrong; where nobody looked on, it was a `run`."""

    exit_code: int
    sent_back: int = 0
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    run: str = ""
    outcome: Outcome | None = None


@value
class Onward:
    """What comes after a plan: the command that begins the loop, how often a story is worked on, and the limit."""

    command: str
    each: int
    most: int

    def estimate(self, stories: int) -> str:
        """How many iterations the stories will take, as far as can be told."""
        needed = stories * self.each
        about = f"{stories} {'story' if stories == 1 else 'stories'} × ~{self.each} iterations each"
        short = f"; the limit is {self.most}: raise it with -m" if needed > self.most else ""
        return f"{about} = ~{needed} iterations{short}"


def onward_of(project: Project, folder: str) -> Onward:
    """How a loop over these stories would be begun; raises SettingsWrong where it could not."""
    own = load_settings(project.root, os.environ).settings.preset
    settings = load_settings(project.root, os.environ, {"preset": STORIES}).settings
    preset = "" if own == STORIES else f" --preset {STORIES}"
    each = ITERATIONS_PER_STORY if settings.review.enabled else ITERATIONS_WITHOUT_REVIEW
    return Onward(f"ralph run{preset}{folder_flags(folder)}", each, settings.maximum_iterations)


def first_of(problems: tuple[str, ...]) -> str:
    """The first of them, and how many more there are."""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return problems[0] + more


def outside(change: Change, folder: str) -> list[str]:
    """What was changed beside the plan. It may be the user's own doing: it is named, and left as it is."""
    if not change.known:
        return [f"whether anything was changed outside {folder}/ cannot be told"]
    paths = [path for path in change.paths if not path.startswith(f"{folder}/")]
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    told = [f"changed outside {folder}/, and left as it is: {', '.join(paths[:NAMED])}{more}"] if paths else []
    return [*told, *(["a commit was made meanwhile, and stays"] if change.committed else [])]


def publish(planned: Planned, desk: Desk, onward: Onward, project: Project) -> None:
    """The result for programs."""
    document = desk.document()
    stories: list[Json] = [_told(one) for one in document["userStories"]] if document else []
    told = outcome_json(planned.outcome) if planned.outcome else {"status": ABORTED if planned.exit_code else COMPLETED}
    data: dict[str, Json] = {
        **{name: inner for name, inner in told.items() if name not in ("output", "lastOutput")},
        "mode": desk.mode, "valid": document is not None, "prd": desk.prd, "tasks": desk.tasks, "stories": stories,
        "estimate": len(stories) * onward.each, "sentBack": planned.sent_back,
        "problems": [project.mask(line) for line in planned.problems],
        "remarks": [project.mask(line) for line in planned.remarks],
        "copies": desk.place if desk.kept else None,
        "run": planned.run or None, "next": onward.command if document else None, "exitCode": planned.exit_code,
    }  # fmt: skip
    print_json("plan", data)


def _told(one: dict[str, Any]) -> dict[str, Json]:
    return {
        "id": one["id"], "title": one["title"], "priority": one["priority"], "dependsOn": one.get("dependsOn", []),
        "acceptanceCriteria": len(one["acceptanceCriteria"]),
    }  # fmt: skip


def show(planned: Planned, desk: Desk, onward: Onward, project: Project) -> None:
    """The result for people."""
    lines = _valid(desk, onward) if planned.exit_code == 0 else _invalid(planned, desk, onward)
    notes = [f"note: {one}" for one in planned.remarks]
    print_lines(*(project.mask(line) for line in (*lines[:-1], *notes, *lines[-1:])))


def _valid(desk: Desk, onward: Onward) -> list[str]:
    document = desk.document() or {}
    stories = document.get("userStories", [])
    rows = [
        (one["id"], f"{one['priority']:g}", ", ".join(one.get("dependsOn", ())), str(len(one["acceptanceCriteria"])),
         one["title"])
        for one in stories
    ]  # fmt: skip
    return [
        *align_columns([("id", "priority", "depends on", "criteria", "title"), *rows]),
        *(f"verify: {command}" for command in document.get("verifyCommands", ())),
        onward.estimate(len(stories)),
        f"review {desk.prd} and {desk.tasks}, then begin: {onward.command}",
    ]


def _invalid(planned: Planned, desk: Desk, onward: Onward) -> list[str]:
    ended = phrases.describe_outcome(planned.outcome) if planned.outcome else []
    still = [f"  {line}" for line in planned.problems]
    if planned.exit_code == 130:
        stands = ["as it stands the plan is not valid:", *still] if still else []
        valid = "" if still else f"; as it stands it is valid, and {onward.command} would begin with it"
        return [*ended, *stands, f"interrupted; what was written stays in {desk.folder}/{valid}"]
    head = f"the plan is not valid, sent back {phrases.format_count(planned.sent_back, 'time')}; still wrong:"
    return [
        *([head, *still] if still else []),
        *ended,
        f"{desk.folder}/ is left as it is; mend it by hand, or plan again: ralph plan{folder_flags(desk.folder)}",
    ]
