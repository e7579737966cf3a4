"""The archiver: puts the stories of a finished loop into ralph-archive/DATE-LABEL/ and lays out fresh ones.

The archive is staged, synced and renamed into place at once. Only then do the sources go, and fresh files take their
place, and all of it is committed. A mark in the archive stands until that is done, so that the next call finishes what
a crash interrupted. Nothing is undone, and a source goes only where the archive holds the same bytes.
"""

from __future__ import annotations

import os
import re
import shutil
import time
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.files import create_file, read_file_start, remove_file, sync_file, write_atomically
from ralphproof.base.git_layout import enclosing_repository, git_folders
from ralphproof.base.programs import find_program
from ralphproof.base.value import Json, value
from ralphproof.checks.discovery import discover_checks
from ralphproof.stories import schema, story_folder
from ralphproof.stories.review import approval_concerns, is_approved_at_cap
from ralphproof.stories.story_folder import (
    ARCHIVE_MARK,
    ARCHIVE_SUMMARY,
    ARCHIVES,
    PRD,
    PROGRESS,
    TASKS,
    open_folder,
    stories_folder,
    unfinished_archives,
)
from ralphproof.workspace.commits import UNFINISHED_OPERATIONS, git_ignored_paths
from ralphproof.workspace.git_command import UserGit

ARCHIVED, FINISHED = "archived", "finished"
ARCHIVED_FILES = (TASKS, PRD, PROGRESS)  # first the one that a run cannot begin without
STAGED = ".staged"  # the folder in which an archive comes into being
MAX_FILE_BYTES = 64 << 20
MAX_LABEL_BYTES = 100
STARTED = re.compile(r"^Started:\s*(\d{4}-\d\d-\d\d)", re.MULTILINE)
STATUS_WORDS = {
    None: "not begun",
    schema.NEEDS_REVIEW: "waits for its review",
    schema.CHANGES_REQUESTED: "changes requested",
    schema.APPROVED: "approved",
}


class NothingToArchive(Refused):
    """The folder says no more than its templates."""


@value
class ArchiveResult:
    """An archive that is complete: just made, or one that an earlier call had left unfinished."""

    action: str
    place: str
    folder: str
    commit: str | None
    completed: int
    total: int
    concerns: tuple[str, ...]

    def as_json(self) -> dict[str, Json]:
        return {
            "action": self.action,
            "archive": self.place,
            "folder": self.folder,
            "commit": self.commit,
            "completed": self.completed,
            "total": self.total,
            "concerns": [*self.concerns],
        }


class Archiver:
    """Archives the stories of one project, which nobody else may change meanwhile. `remarks` are for the user."""

    def __init__(self, root: str, environ: Mapping[str, str], commits: bool) -> None:
        self._root, self._environ, self._commits = root, environ, commits
        self.remarks: list[str] = []
        self._git = self._open_repository()

    def _open_repository(self) -> UserGit | None:
        if git_folders(self._root) is None:
            if self._commits and (around := enclosing_repository(self._root)):
                self.remarks.append(f"nothing was committed: the project is a folder of the repository at {around}")
            return None
        if find_program("git", self._environ.get("PATH", os.defpath), outside=self._root) is None:
            self.remarks.append("nothing was committed: git is not on PATH")
            return None
        return UserGit(self._root, self._environ)

    def archive(self, folder: str, label: str | None) -> ArchiveResult:
        """Archive the stories in this folder; raises NothingToArchive where nobody has written any."""
        files, oldest = self._read_files(folder)
        if all(story_folder.is_unedited_template(file, data) for file, data in files.items()):
            raise NothingToArchive(f"there is nothing to archive: {folder} says no more than its templates")
        overview = read_overview(files.get(TASKS))
        label, today = self._label(label, overview), _date(time.time())
        started = STARTED.search(files.get(PROGRESS, b"").decode("utf-8", "replace"))
        summary = summary_page(label, overview, started[1] if started else _date(oldest), today, tuple(files))
        self._refuse_busy_repository()
        name = self._free_name(f"{today}-{label}")
        self._stage(name, files | {ARCHIVE_SUMMARY: summary.encode(), ARCHIVE_MARK: os.fsencode(folder)})
        return self._finish(name, ARCHIVED)

    def finish_interrupted(self) -> list[ArchiveResult]:
        """Finish what earlier calls left unfinished."""
        interrupted = unfinished_archives(self._root)
        if interrupted:
            self._refuse_busy_repository()
        return [self._finish(name, FINISHED) for name in interrupted]

    def _read_files(self, folder: str) -> tuple[dict[str, bytes], float]:
        """The files to archive, and when the oldest was last written."""
        files: dict[str, bytes] = {}
        oldest = time.time()
        home = open_folder(self._root, folder)
        try:
            for file in ARCHIVED_FILES:
                if (state := story_folder.stat_name(home, file)) is None:
                    continue
                data = read_file_start(home, file, MAX_FILE_BYTES + 1)
                if data is None or len(data) > MAX_FILE_BYTES:
                    limit = f"a readable file of at most {MAX_FILE_BYTES >> 20} MiB"
                    raise Refused(f"{folder}/{file} must be {limit}; nothing was moved")
                files[file], oldest = data, min(oldest, state.st_mtime)
        finally:
            os.close(home)
        return files, oldest

    def _label(self, given: str | None, overview: Overview) -> str:
        """The given label, else the branch of the stories, else the one that is checked out."""
        if given is not None:
            if label := safe_label(given):
                return label
            raise Refused(f"--label {given!r} has nothing in it that a folder can be called")
        branches = [overview.branch] if overview.branch != story_folder.template_branch() else []
        if self._git is not None:
            branches.append(self._git.run_line("symbolic-ref", "-q", "--short", "HEAD"))
        labels = (safe_label(branch.removeprefix(story_folder.BRANCH_PREFIX)) for branch in branches)
        return next(filter(None, labels), "stories")

    def _free_name(self, wanted: str) -> str:
        name, number = wanted, 1
        while os.path.lexists(os.path.join(self._root, ARCHIVES, name)):
            number += 1
            name = f"{wanted}-{number}"
        return name

    def _stage(self, name: str, files: Mapping[str, bytes]) -> None:
        """Make the whole archive, durably, before it gets its name."""
        top = open_folder(self._root, ARCHIVES, make=True)
        staged = os.path.join(self._root, ARCHIVES, STAGED)
        try:
            shutil.rmtree(staged, ignore_errors=True)  # of a call that died
            os.mkdir(STAGED, dir_fd=top)
            folder = open_folder(self._root, os.path.join(ARCHIVES, STAGED))
            try:
                for file, data in files.items():
                    write_atomically(folder, file, data, private=False)
            finally:
                os.close(folder)
            os.rename(STAGED, name, src_dir_fd=top, dst_dir_fd=top)
            sync_file(top)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
            os.close(top)

    def _finish(self, name: str, action: str) -> ArchiveResult:
        """Replace the sources by fresh files, commit, and remove the mark. What was written since stays as it is."""
        place = os.path.join(ARCHIVES, name)
        away = open_folder(self._root, place)
        try:
            folder = self._marked_folder(away, place)
            home = open_folder(self._root, folder, make=True)
            try:
                fresh = self._replace_sources(home, away)
            finally:
                os.close(home)
            archived = [file for file in (*ARCHIVED_FILES, ARCHIVE_SUMMARY) if story_folder.stat_name(away, file)]
            commit = self._commit(
                place, [f"{place}/{file}" for file in archived] + [f"{folder}/{file}" for file in fresh]
            )
            remove_file(away, ARCHIVE_MARK)
            sync_file(away)
            overview = read_overview(read_file_start(away, TASKS, MAX_FILE_BYTES))
        finally:
            os.close(away)
        return ArchiveResult(
            action, place, folder, commit, overview.completed, len(overview.stories), tuple(concerns(overview))
        )

    def _marked_folder(self, away: int, place: str) -> str:
        """The stories folder that the mark names. Others may have written it: it leads nowhere else."""
        mark = os.fsdecode(read_file_start(away, ARCHIVE_MARK, 4096) or b"")
        try:
            if mark and "\0" not in mark:
                return stories_folder(self._root, mark)
        except Refused:
            pass
        raise Refused(f"{place}/{ARCHIVE_MARK} names no stories folder; move the files by hand, then remove it")

    def _replace_sources(self, home: int, away: int) -> list[str]:
        """Replace each source by a fresh file, unless it differs from its copy; the names of those that are fresh."""
        verify = [proposal.command for proposal in discover_checks(self._root, self._environ).proposals]
        project = story_folder.project_name(self._root, None)
        fresh = story_folder.scaffold_files(project, verify, _date(time.time()))
        for file in ARCHIVED_FILES:
            copy, source = (read_file_start(folder, file, MAX_FILE_BYTES + 1) for folder in (away, home))
            if copy is not None and copy == source:
                # Moved over its copy, not deleted: an editor may save at this moment.
                os.rename(file, file, src_dir_fd=home, dst_dir_fd=away)
                sync_file(away)
            create_file(home, file, fresh[file])
        story_folder.remove_temporary_files(home)
        now = {file: read_file_start(home, file, MAX_FILE_BYTES) or b"" for file in ARCHIVED_FILES}
        return [file for file, data in now.items() if story_folder.is_unedited_template(file, data)]

    # Git

    def _refuse_busy_repository(self) -> None:
        """Raise Refused during a merge or the like, or while another git process runs."""
        if self._git is None or not self._commits:
            return
        git_dir = self._git.folders.git_dir
        for name in UNFINISHED_OPERATIONS:
            if os.path.lexists(os.path.join(git_dir, name)):
                raise Refused(f"a merge, rebase or the like is in progress ({name}); finish it first")
        lock = os.path.join(git_dir, "index.lock")
        if os.path.lexists(lock):
            raise Refused(f"another git process seems to be at work: {lock} exists")

    def _commit(self, place: str, paths: list[str]) -> str | None:
        """Commit exactly these paths, without hooks; what else is staged stays staged."""
        if self._git is None or not self._commits:
            return None
        git = self._git
        try:
            ignored = git_ignored_paths(git.run, map(os.fsencode, paths))
            kept = [path for path in paths if os.fsencode(path) not in ignored]
            if not kept or not git.run("status", "--porcelain", "-uall", "--", *kept).out:
                self.remarks.append("git has nothing to commit of this: it ignores these paths, or has them already")
                return None
            git.run("add", "--intent-to-add", "--", *kept)
            message = f"chore: archive ralph stories ({os.path.basename(place)[len('YYYY-MM-DD-') :]})"
            options = ("--only", "--quiet", "--no-gpg-sign", "--cleanup=whitespace", "-m", message)
            git.run("commit", *options, "--", *kept, env=git.identity_environment())
        except Refused as error:
            remedy = "say ralph archive again, or ralph archive --no-commit"
            raise Refused(f"{error}; the stories are in {place}, not committed yet; {remedy}") from error
        if any(path.startswith(os.fsencode(f"{place}/")) for path in ignored):
            self.remarks.append(f"git ignores {place}: it is on this disk alone")
        return git.resolve_commit("HEAD")


def safe_label(text: str) -> str:
    """As much of a text as a folder can be called; empty where that is nothing."""
    plain = re.sub(r"[^\w.-]+", "-", unicodedata.normalize("NFC", text)).strip(".-")
    return plain.encode("utf-8", "replace")[:MAX_LABEL_BYTES].decode(errors="ignore").strip(".-")


def _date(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


# The summary


@value
class Overview:
    """What a tasks.json says, as far as it can be read, and its faults.

    Every story has id, title, passes, reviewStatus, reviewCount and reviewFeedback, each of its type.
    """

    project: str = ""
    branch: str = ""
    stories: tuple[dict[str, Any], ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def completed(self) -> int:
        return sum(story["passes"] for story in self.stories)


def read_overview(data: bytes | None) -> Overview:
    """The overview of a file that may be malformed, or missing (None)."""
    if data is None:
        return Overview(faults=("there is no such file",))
    document = schema.parse_stories(data)
    if isinstance(document, schema.UnreadableStories):
        return Overview(faults=(document.why,))
    listed = document.get("userStories")
    stories = [story for story in listed if isinstance(story, dict)] if isinstance(listed, list) else []
    return Overview(
        _line(document.get("project")),
        _line(document.get("branchName")),
        tuple(_readable_story(story, place) for place, story in enumerate(stories, 1)),
        schema.validate_stories(document),
    )


def _readable_story(story: dict[str, Any], place: int) -> dict[str, Any]:
    status, reviews = story.get("reviewStatus"), story.get("reviewCount")
    return {
        "id": _line(story.get("id")) or f"#{place}",
        "title": _line(story.get("title")),
        "passes": story.get("passes") is True,
        "reviewStatus": _line(status) or None,
        "reviewCount": reviews if isinstance(reviews, int) and reviews in range(10**6) else 0,
        "reviewFeedback": _line(story.get("reviewFeedback")),
    }


def _line(given: object) -> str:
    """A text on one line, without anything that a terminal would obey."""
    return collapse_lines(sanitize(given)).strip()[:500] if isinstance(given, str) else ""


def summary_page(label: str, overview: Overview, first: str, last: str, files: tuple[str, ...]) -> str:
    """The summary of an archive, in Markdown."""
    lines = [
        f"# Archive: {_cell(label)}",
        "",
        f"- Project: {_cell(overview.project) or '(not named)'}",
        f"- Branch: {_cell(overview.branch) or '(not named)'}",
        f"- Dates: {first} to {last}",
        f"- Stories: {overview.completed} of {len(overview.stories)} completed",
        f"- Files: {', '.join(files)}",
    ]
    if overview.faults:
        lines.append(f"- {TASKS} is malformed; it is archived as it was found:")
        lines += (f"  - {_cell(fault)}" for fault in overview.faults)
    if overview.stories:
        lines += ("", "## Stories", "", "| Story | Title | Status | Reviews |", "| --- | --- | --- | --- |")
    for story in overview.stories:
        cells = (story["id"], story["title"], _status(story), str(story["reviewCount"]))
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    if told := [f"- {_cell(concern)}" for concern in concerns(overview)]:
        lines += ("", "## Concerns", "", *told)
    return "\n".join((*lines, ""))


def concerns(overview: Overview) -> Iterator[str]:
    """What a person should look at, a line each."""
    yield from map(_line, approval_concerns({"userStories": overview.stories}))
    for story in overview.stories:
        if not story["passes"]:
            feedback = f": {story['reviewFeedback']}" if story["reviewFeedback"] else ""
            yield f"story {story['id']} is not completed ({_status(story)}){feedback}"


def _status(story: dict[str, Any]) -> str:
    if story["passes"] and is_approved_at_cap(story):
        return "approved at the review cap"
    if story["passes"] and story["reviewStatus"] != schema.APPROVED:
        return "done, not reviewed"
    return STATUS_WORDS.get(story["reviewStatus"], str(story["reviewStatus"]))


def _cell(line: str) -> str:
    """A line that stays in its table cell, and begins no tag and no comment."""
    return line.replace("|", "\\|").replace("<", "&lt;")
