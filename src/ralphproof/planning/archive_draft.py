"""The archive that is to be made of a stories folder: name, summary page, and fresh files."""

from __future__ import annotations

import os
import stat
import time

from ralphproof.base.errors import Refused
from ralphproof.base.files import read_file_start
from ralphproof.base.git_layout import git_folders, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.planning.archive_files import AWAY, MOVED, Transit, free_name
from ralphproof.planning.archive_record import safe_label, with_record
from ralphproof.planning.archive_summary import account_of, began, summary
from ralphproof.stories import schema, story_folder
from ralphproof.stories.story_folder import PROGRESS, TASKS, open_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.planning.archive_summary import StoryAccount


class NothingToArchive(Refused):
    """The folder says no more than its templates."""


@value
class ArchiveDraft:
    """The archive's name, what is to be moved and put in its place, and its page."""

    name: str
    transit: Transit
    page: bytes


def drafted(root: str, folder: str, label: str | None, environ: Mapping[str, str], commits: bool) -> ArchiveDraft:
    """What an archive of this folder would be. Raises NothingToArchive, and writes nothing."""
    contents, oldest = _contents(root, folder)
    if all(story_folder.is_unedited_template(file, data) for file, data in contents.items()):
        raise NothingToArchive(f"there is nothing to archive: {folder} says no more than its templates")
    account, now = account_of(contents.get(TASKS)), time.time()
    first, today = began(contents.get(PROGRESS, b""), _day(oldest)), _day(now)
    called = _label(root, label, account)
    transit = Transit(AWAY, folder, tuple(contents), _fresh(root, today, environ), commits, called)
    page = summary(called, account, (first, today), tuple(contents))
    return ArchiveDraft(
        free_name(root, f"{today}-{called}"), transit, with_record(page, called, folder, transit.fresh, now)
    )


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _contents(root: str, folder: str) -> tuple[dict[str, bytes], float]:
    """Every file that is to be moved, as far as it can be read, and when the oldest was last written."""
    found: dict[str, bytes] = {}
    times = [time.time()]
    home = open_folder(root, folder)
    try:
        for file in MOVED:
            if (state := story_folder.stat_name(home, file)) is None:
                continue
            if not stat.S_ISREG(state.st_mode):
                raise Refused(f"{os.path.join(folder, file)} is no file of its own; nothing was moved")
            found[file] = read_file_start(home, file, schema.MAX_BYTES + 1) or b""
            times.append(state.st_mtime)
    finally:
        os.close(home)
    return found, min(times)


def _fresh(root: str, today: str, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The files as `ralph init` lays them out where no name is given: what comes next has none yet."""
    from ralphproof.checks.discovery import discover_checks

    verify = [proposal.command for proposal in discover_checks(root, environ).proposals]
    texts = story_folder.scaffold_files(story_folder.project_name(root, None), verify, today)
    return {file: texts[file] for file in MOVED}


def _label(root: str, given: str | None, account: StoryAccount) -> str:
    """What the archive is called: as the user says, else like the stories' branch, else like the one at hand."""
    if given is not None:
        if made := safe_label(given):
            return made
        raise Refused(f"--label {given!r} has nothing in it that a folder can be called")
    named = account.branch if account.branch != story_folder.template_branch() else ""
    found = (safe_label(branch.removeprefix(story_folder.BRANCH_PREFIX)) for branch in (named, _branch(root)))
    return next(filter(None, found), "stories")


def _branch(root: str) -> str:
    """The branch that is checked out; empty where it is none, or cannot be told."""
    start, folders = "ref: refs/heads/", git_folders(root)
    if folders is None or not folders.ref_files:
        return ""
    try:
        text = read_regular_file(os.fsencode(os.path.join(folders.git_dir, "HEAD"))).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    return text.removeprefix(start) if text.startswith(start) else ""
