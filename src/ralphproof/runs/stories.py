"""Runs by stories: pre-flight checks of their files, the story plan of a run, and settings that follow from them."""

from __future__ import annotations

import errno
import os

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.json_text import UnusableFile, read_bounded_file
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.runs.project_lock import refuse_active_marker
from ralphproof.store.locks import WORKTREE_HINT
from ralphproof.stories.files import MARKER, STORIES_FILE, MarkerFacts, StoryFiles, remove_stale_marker
from ralphproof.stories.plan import StoryPlan
from ralphproof.stories.schema import MAX_BYTES
from ralphproof.stories.story_folder import (
    ARCHIVES,
    PROMPT,
    TASKS,
    folder_flags,
    is_unedited_template,
    missing_folder_error,
    read_template,
    stories_folder,
)
from ralphproof.stories.workflow import StoryWorkflow
from ralphproof.tasks.plans import refuse_symlink

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.settings.loader import LoadedSettings
    from ralphproof.settings.model import Settings
    from ralphproof.store.project import Project
    from ralphproof.store.run_folder import RunFolder

ITERATIONS_PER_STORY, ITERATIONS_WITHOUT_REVIEW = 3, 1  # of a story: it is implemented, reviewed, and often fixed once
WORKSPACE_WRITE_ONLY = (
    "guarded (workspace-write)"  # Codex keeps its agents from .git then; the harness commits for them
)


class ReadOnlyStoryFiles:
    """The file alone, before a run of it begins: nothing is remembered, nothing written."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> bytes | None:
        data = read_bounded_file(self._path, MAX_BYTES)
        if isinstance(data, UnusableFile):
            raise Refused(f"{self._path} {data.why}")
        return data

    def noted(self, name: str) -> Json | None:
        return None

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written before a run begins")

    def read_only_files(self) -> dict[str, bytes | None]:
        return {}

    def restore(self, name: str, data: bytes | None) -> None:
        raise AssertionError("nothing is written before a run begins")

    def note(self, name: str, data: Json) -> None:
        raise AssertionError("nothing is remembered before a run begins")

    def write_marker(self, marker: dict[str, Json]) -> None:
        raise AssertionError("no turn is taken before a run begins")

    def remove_marker(self) -> None:
        """No marker was written."""


def prepare_workflow(request: RunRequest, project: Project, settings: Settings) -> StoryWorkflow:
    """How the stories are gone through; raises Refused where their files are not there."""
    if request.prompt[0]:
        raise Refused("the stories say what should become true; leave the prompt out, or take another preset")
    if request.skill:
        raise Refused("a run by stories has its own way of working; leave --skill out")
    folder = stories_folder(project.root, request.story_folder)
    if not os.path.isdir(os.path.join(project.root, folder)):
        raise missing_folder_error(folder)
    prompt = _read_prompt_template(project.root, folder, request.prompt[1])
    return StoryWorkflow(
        folder, settings.review.cap, not settings.review.enabled, settings.review.cap_is_failure, prompt
    )


def open_story_plan(spec: RunSpec, folder: RunFolder, dirty: Callable[[], tuple[str, ...]]) -> StoryPlan:
    """The stories of a run, with what it remembers of them. `dirty` tells what was uncommitted before it."""
    manner, most = spec.story_workflow or StoryWorkflow(), spec.loaded.settings.maximum_iterations
    commits = all(one.permissions != WORKSPACE_WRITE_ONLY for one in spec.selected_agents)
    mode = "direct" if spec.request.sandbox_kind(spec.loaded.settings) is None else "sandbox"
    facts = MarkerFacts(folder.run, most, manner.skip_review, manner.cap, manner.folder, commits, mode)

    def others() -> tuple[str, ...]:
        return tuple(path for path in dirty() if path not in manner.files)

    def template() -> str:
        return _read_prompt_template(spec.project.root, manner.folder, spec.prompt_file)

    shelf = StoryFiles(spec.project.root, facts, folder, others)
    return StoryPlan(f"{manner.folder}/{STORIES_FILE}", manner, shelf, template)


def read_story_plan(
    request: RunRequest, root: str, manner: StoryWorkflow, settings: Settings, remarks: list[str]
) -> tuple[StoryPlan, StoryWorkflow]:
    """The stories as the files have them, with their verify commands.

    A run that is taken up knows its own: its files may be half-written.
    """
    path = f"{manner.folder}/{STORIES_FILE}"
    peek = ReadOnlyStoryFiles(os.path.join(root, path))
    book = StoryPlan(path, manner, peek)
    if request.verify_commands is not None:
        return book, replace(manner, verify=request.verify_commands)
    refuse_active_marker(root, WORKTREE_HINT, ours=False)  # of our own the directory's lock tells
    _refuse_unwritten(root, manner.folder, peek.read())
    document = book.document
    remarks += _estimate_iterations(document["userStories"], manner, settings)
    return book, replace(manner, verify=tuple(document.get("verifyCommands", ())))


def settings_with_verify_commands(loaded: LoadedSettings, commands: tuple[str, ...], root: str) -> LoadedSettings:
    """The settings with these commands as guardrails beside their own.

    In a git repository what a turn leaves uncommitted is committed for it, unless the user chose another way.
    """
    from ralphproof.settings.model import ScmSettings, parse_guardrails
    from ralphproof.settings.validation import normalize_settings

    known = {guardrail.command for guardrail in loaded.settings.guardrails}
    more = {"guardrails": [{"command": command} for command in dict.fromkeys(commands) if command not in known]}
    filled: Any = normalize_settings(more)
    raw = [*loaded.raw["guardrails"], *filled["guardrails"]]
    in_git = os.path.lexists(os.path.join(root, ".git"))
    scm = loaded.settings.scm or (ScmSettings("git", ("commit",)) if in_git else None)
    return replace(loaded, settings=replace(loaded.settings, guardrails=parse_guardrails(raw), scm=scm))


def _estimate_iterations(stories: list[dict[str, Any]], manner: StoryWorkflow, settings: Settings) -> list[str]:
    left = [one for one in stories if not manner.done(one)]
    each = ITERATIONS_WITHOUT_REVIEW if manner.skip_review else ITERATIONS_PER_STORY
    needed, most = len(left) * each, settings.maximum_iterations
    about = f"{len(left)} of {len(stories)} stories to do × ~{each} iterations each = ~{needed} iterations needed"
    short = f"; the limit is {most}: raise it with -m" if needed > most else ""
    return [about + short]


def _refuse_unwritten(root: str, folder: str, data: bytes | None) -> None:
    """Raise Refused where nobody has written stories yet, or an archive that was cut off has them."""
    if data is not None and not is_unedited_template(TASKS, data):
        return
    from ralphproof.stories.story_folder import unfinished_archives

    if cut_off := unfinished_archives(root):
        raise Refused(f"{ARCHIVES}/{cut_off[-1]} was cut off while stories were moved; end that first: ralph archive")
    raise Refused(f"the stories are not written yet: ralph plan{folder_flags(folder)}, or write {folder}/{TASKS}")


def prepare_marker(root: str, run: str) -> list[str]:
    """Take a dead run's marker away, and keep ours out of commits: agents say `git add -A`. What there is to say."""
    return [*filter(None, (remove_stale_marker(root, run), _exclude_marker(root)))]


def _exclude_marker(root: str) -> str:
    """A line in git's own list of this clone, unless a rule ignores the marker already."""
    from ralphproof.stories.story_folder import is_marker_ignored

    folders = git_folders(root)
    if folders is None or is_marker_ignored(root, os.environ):
        return ""
    place = os.path.join(folders.common, "info", "exclude")
    known = read_bounded_file(place)
    before = known if isinstance(known, bytes) else b""
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(os.path.dirname(place)):
            raise OSError(errno.ELOOP, "a link stands in its place")
        with open(place, "ab", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
            file.write((b"" if not before or before.endswith(b"\n") else b"\n") + f"/{MARKER}\n".encode())
    except OSError as error:
        return f"{MARKER} may get into commits; {place} cannot be written: {error.strerror}"
    return f"{MARKER} is kept out of commits by .git/info/exclude; in .gitignore it would be so for everybody"


def _read_prompt_template(root: str, folder: str, own: str | None) -> str:
    for path in (own, os.path.join(os.path.realpath(root), folder, PROMPT)):
        if path:
            refuse_symlink(path, f"prompt file {path}")
        data = read_bounded_file(path) if path else None
        if isinstance(data, UnusableFile):
            raise Refused(f"{path} {data.why}")
        if data is not None:
            return data.decode("utf-8", "surrogateescape")
        if path and path == own:
            raise Refused(f"prompt file {path} does not exist")
    return read_template(PROMPT)
