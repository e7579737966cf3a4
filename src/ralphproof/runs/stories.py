"""Story runs: pre-flight checks of their files, the story plan of a run, and settings that follow from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.json_text import UnusableFile, read_bounded_file
from ralphproof.base.value import TYPE_CHECKING, Json, replace
from ralphproof.runs.open_project import refuse_active_marker
from ralphproof.runs.request import RunRequest
from ralphproof.settings.declarations import SETTINGS_SCHEMA, ScmSettings, Settings, parse_guardrails
from ralphproof.settings.loader import LoadedSettings
from ralphproof.settings.schema import normalize
from ralphproof.store.locks import WORKTREE_HINT
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.stories.files import MARKER, STORIES_FILE, MarkerFacts, StoryFiles, remove_stale_marker
from ralphproof.stories.plan import StoryPlan
from ralphproof.stories.schema import MAX_BYTES
from ralphproof.stories.story_folder import (
    ARCHIVES,
    PROMPT,
    TASKS,
    folder_flags,
    is_marker_ignored,
    is_unedited_template,
    missing_folder_error,
    read_template,
    stories_folder,
    unfinished_archives,
)
from ralphproof.stories.workflow import StoryWorkflow
from ralphproof.tasks.plans import refuse_symlink

if TYPE_CHECKING:
    from ralphproof.runs.spec import RunSpec

ITERATIONS_PER_STORY, ITERATIONS_WITHOUT_REVIEW = 3, 1  # a story is implemented, reviewed, and often fixed once
WORKSPACE_WRITE_ONLY = "guarded (workspace-write)"  # Codex denies its agents .git then; the harness commits for them


class ReadOnlyStoryFiles:
    """Story files before a run begins: only the stories file is read, nothing is written."""

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
    """The workflow of a story run; raises Refused where its files are missing."""
    if request.prompt[0]:
        raise Refused("the stories say what should become true; leave the prompt out, or take another preset")
    if request.skill:
        raise Refused("a run by stories has its own way of working; leave --skill out")
    folder = stories_folder(project.root, request.stories.folder)
    if not os.path.isdir(os.path.join(project.root, folder)):
        raise missing_folder_error(folder)
    prompt = _read_prompt_template(project.root, folder, request.prompt[1])
    return StoryWorkflow(
        folder, settings.review.cap, not settings.review.enabled, settings.review.cap_is_failure, prompt
    )


def open_story_plan(spec: RunSpec, folder: RunFolder, dirty: Callable[[], tuple[str, ...]]) -> StoryPlan:
    """The story plan of a run, with its stored memory. `dirty` returns the paths uncommitted before the run."""
    workflow, max_iterations = spec.story_workflow or StoryWorkflow(), spec.loaded.settings.maximum_iterations
    agents_commit = all(one.permissions != WORKSPACE_WRITE_ONLY for one in spec.selected_agents)
    mode = "direct" if spec.request.sandbox_kind(spec.loaded.settings) is None else "sandbox"
    facts = MarkerFacts(
        folder.run, max_iterations, workflow.skip_review, workflow.cap, workflow.folder, agents_commit, mode
    )

    def others() -> tuple[str, ...]:
        return tuple(path for path in dirty() if path not in workflow.files)

    def template() -> str:
        return _read_prompt_template(spec.project.root, workflow.folder, spec.prompt_file)

    files = StoryFiles(spec.project.root, facts, folder, others)
    return StoryPlan(f"{workflow.folder}/{STORIES_FILE}", workflow, files, template)


def read_story_plan(
    request: RunRequest, root: str, workflow: StoryWorkflow, settings: Settings, remarks: list[str]
) -> tuple[StoryPlan, StoryWorkflow]:
    """The story plan as the files have it, and the workflow with its verify commands.

    A resumed run uses its saved commands: the files may be half-written.
    """
    path = f"{workflow.folder}/{STORIES_FILE}"
    files = ReadOnlyStoryFiles(os.path.join(root, path))
    plan = StoryPlan(path, workflow, files)
    if request.stories.verify_commands is not None:
        return plan, replace(workflow, verify=request.stories.verify_commands)
    refuse_active_marker(root, WORKTREE_HINT, ours=False)  # our own loops hold the directory's lock
    _refuse_unwritten(root, workflow.folder, files.read())
    document = plan.document
    remarks += _estimate_iterations(document["userStories"], workflow, settings)
    return plan, replace(workflow, verify=tuple(document.get("verifyCommands", ())))


def settings_with_verify_commands(loaded: LoadedSettings, commands: tuple[str, ...], root: str) -> LoadedSettings:
    """The settings with these commands added to the guardrails.

    In a git repository, uncommitted work of a turn is committed, unless the user chose another SCM setting.
    """
    configured = {guardrail.command for guardrail in loaded.settings.guardrails}
    additions = {
        "guardrails": [{"command": command} for command in dict.fromkeys(commands) if command not in configured]
    }
    normalized: Any = normalize(additions, SETTINGS_SCHEMA)
    raw = [*loaded.raw["guardrails"], *normalized["guardrails"]]
    in_git = os.path.lexists(os.path.join(root, ".git"))
    scm = loaded.settings.scm or (ScmSettings("git", ("commit",)) if in_git else None)
    return replace(loaded, settings=replace(loaded.settings, guardrails=parse_guardrails(raw), scm=scm))


def _estimate_iterations(stories: list[dict[str, Any]], workflow: StoryWorkflow, settings: Settings) -> list[str]:
    open_stories = [story for story in stories if not workflow.done(story)]
    per_story = ITERATIONS_WITHOUT_REVIEW if workflow.skip_review else ITERATIONS_PER_STORY
    needed, limit = len(open_stories) * per_story, settings.maximum_iterations
    left = f"{len(open_stories)} of {len(stories)} stories to do"
    estimate = f"{left} × ~{per_story} iterations each = ~{needed} iterations needed"
    shortfall = f"; the limit is {limit}: raise it with -m" if needed > limit else ""
    return [estimate + shortfall]


def _refuse_unwritten(root: str, folder: str, data: bytes | None) -> None:
    """Raise Refused where the stories are not written yet, or are in an archive that was interrupted."""
    if data is not None and not is_unedited_template(TASKS, data):
        return
    if cut_off := unfinished_archives(root):
        raise Refused(f"{ARCHIVES}/{cut_off[-1]} was cut off while stories were moved; end that first: ralph archive")
    raise Refused(f"the stories are not written yet: ralph plan{folder_flags(folder)}, or write {folder}/{TASKS}")


def prepare_marker(root: str, run: str) -> list[str]:
    """Remove a dead run's marker, and keep ours out of commits, because agents run `git add -A`; remarks."""
    return [*filter(None, (remove_stale_marker(root, run), _exclude_marker(root)))]


def _exclude_marker(root: str) -> str:
    """Add the marker to .git/info/exclude, unless it is ignored already; a remark."""
    folders = git_folders(root)
    if folders is None or is_marker_ignored(root, os.environ):
        return ""
    exclude_file = os.path.join(folders.common, "info", "exclude")
    content = read_bounded_file(exclude_file)
    before = content if isinstance(content, bytes) else b""
    try:
        os.makedirs(os.path.dirname(exclude_file), exist_ok=True)
        if os.path.islink(os.path.dirname(exclude_file)):
            raise OSError(errno.ELOOP, "it is a symbolic link")
        with open(exclude_file, "ab", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o644)) as file:
            file.write((b"" if not before or before.endswith(b"\n") else b"\n") + f"/{MARKER}\n".encode())
    except OSError as error:
        return f"{MARKER} may get into commits; {exclude_file} cannot be written: {error.strerror}"
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
