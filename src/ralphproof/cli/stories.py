"""A run by stories: what its files say before it begins, and what there is to tell of it."""

from __future__ import annotations

import errno
import os

from ralphproof.cli.alone import refuse_marker
from ralphproof.cli.story_folder import ARCHIVES, PROMPT, TASKS, flags_for, folder_in, no_folder, template, untouched
from ralphproof.config.jsontext import Unusable, contents
from ralphproof.errors import Refused
from ralphproof.ledgers.lock import WORKTREE
from ralphproof.ledgers.shelf import FILE, MARKER, Facts, Shelf, clear_stale
from ralphproof.plans.inline import refuse_link
from ralphproof.plans.story_book import StoryBook
from ralphproof.plans.story_tasks import Manner
from ralphproof.story import MOST_BYTES
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.cli.order import Order, Wish
    from ralphproof.config.load import Loaded
    from ralphproof.config.settings import Settings
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.value import Json
    from ralphproof.views.project import Project

USUAL_ITERATIONS, WITHOUT_REVIEW = 3, 1  # of a story: it is implemented, reviewed, and often fixed once
NO_COMMITS = "guarded (workspace-write)"  # Codex keeps its agents from .git then; the harness commits for them


class Peek:
    """The file alone, before a run of it begins: nothing is remembered, nothing written."""

    def __init__(self, path: str) -> None:
        self._path = path

    def look(self) -> bytes | None:
        data = contents(self._path, MOST_BYTES)
        if isinstance(data, Unusable):
            raise Refused(f"{self._path} {data.why}")
        return data

    def noted(self, name: str) -> Json | None:
        return None

    def write(self, data: bytes) -> None:
        raise AssertionError("nothing is written before a run begins")

    def others(self) -> dict[str, bytes | None]:
        return {}

    def restore(self, name: str, data: bytes | None) -> None:
        raise AssertionError("nothing is written before a run begins")

    def note(self, name: str, data: Json) -> None:
        raise AssertionError("nothing is remembered before a run begins")

    def light(self, marker: dict[str, Json]) -> None:
        raise AssertionError("no turn is taken before a run begins")

    def quench(self) -> None:
        """Nothing is lit."""


def manner_of(wish: Wish, project: Project, settings: Settings) -> Manner:
    """How the stories are gone through; raises Refused where their files are not there."""
    if wish.prompt[0]:
        raise Refused("the stories say what should become true; leave the prompt out, or take another preset")
    if wish.skill:
        raise Refused("a run by stories has its own way of working; leave --skill out")
    folder = folder_in(project.root, wish.stories)
    if not os.path.isdir(os.path.join(project.root, folder)):
        raise no_folder(folder)
    prompt = _prompt(project.root, folder, wish.prompt[1])
    return Manner(folder, settings.review.cap, not settings.review.enabled, settings.review.cap_is_failure, prompt)


def book_of(order: Order, folder: RunFolder, dirty: Callable[[], tuple[str, ...]]) -> StoryBook:
    """The stories of a run, with what it remembers of them. `dirty` tells what was uncommitted before it."""
    manner, most = order.stories or Manner(), order.loaded.settings.maximum_iterations
    commits = all(one.permissions != NO_COMMITS for one in order.crew)
    mode = "direct" if order.wish.boxed_by(order.loaded.settings) is None else "sandbox"
    facts = Facts(folder.run, most, manner.skip_review, manner.cap, manner.folder, commits, mode)

    def others() -> tuple[str, ...]:
        return tuple(path for path in dirty() if path not in manner.files)

    def template() -> str:
        return _prompt(order.project.root, manner.folder, order.prompt_file)

    shelf = Shelf(order.project.root, facts, folder, others)
    return StoryBook(f"{manner.folder}/{FILE}", manner, shelf, template)


def begun(wish: Wish, root: str, manner: Manner, settings: Settings, remarks: list[str]) -> tuple[StoryBook, Manner]:
    """The stories as the files have them, with their verify commands.

    A run that is taken up knows its own: its files may be half-written.
    """
    path = f"{manner.folder}/{FILE}"
    peek = Peek(os.path.join(root, path))
    book = StoryBook(path, manner, peek)
    if wish.verify is not None:
        return book, replace(manner, verify=wish.verify)
    refuse_marker(root, WORKTREE, ours=False)  # of our own the directory's lock tells
    _refuse_unwritten(root, manner.folder, peek.look())
    document = book.document
    remarks += _told(document["userStories"], manner, settings)
    return book, replace(manner, verify=tuple(document.get("verifyCommands", ())))


def settings_for(loaded: Loaded, commands: tuple[str, ...], root: str) -> Loaded:
    """The settings with these commands as guardrails beside their own.

    In a git repository what a turn leaves uncommitted is committed for it, unless the user chose another way.
    """
    from ralphproof.config.guardrails import guardrails_of
    from ralphproof.config.schema import normal
    from ralphproof.config.settings import ScmSettings

    known = {guardrail.command for guardrail in loaded.settings.guardrails}
    more = {"guardrails": [{"command": command} for command in dict.fromkeys(commands) if command not in known]}
    filled: Any = normal(more)
    raw = [*loaded.raw["guardrails"], *filled["guardrails"]]
    in_git = os.path.lexists(os.path.join(root, ".git"))
    scm = loaded.settings.scm or (ScmSettings("git", ("commit",)) if in_git else None)
    return replace(loaded, settings=replace(loaded.settings, guardrails=guardrails_of(raw), scm=scm))


def _told(stories: list[dict[str, Any]], manner: Manner, settings: Settings) -> list[str]:
    left = [one for one in stories if not manner.done(one)]
    each = WITHOUT_REVIEW if manner.skip_review else USUAL_ITERATIONS
    needed, most = len(left) * each, settings.maximum_iterations
    about = f"{len(left)} of {len(stories)} stories to do × ~{each} iterations each = ~{needed} iterations needed"
    short = f"; the limit is {most}: raise it with -m" if needed > most else ""
    return [about + short]


def _refuse_unwritten(root: str, folder: str, data: bytes | None) -> None:
    """Raise Refused where nobody has written stories yet, or an archive that was cut off has them."""
    if data is not None and not untouched(TASKS, data):
        return
    from ralphproof.cli.archive_folder import marked

    if cut_off := marked(root):
        raise Refused(f"{ARCHIVES}/{cut_off[-1]} was cut off while stories were moved; end that first: ralph archive")
    raise Refused(f"the stories are not written yet: ralph plan{flags_for(folder)}, or write {folder}/{TASKS}")


def marker_told(root: str, run: str) -> list[str]:
    """Take a dead run's marker away, and keep ours out of commits: agents say `git add -A`. What there is to say."""
    return [*filter(None, (clear_stale(root, run), _excluded(root)))]


def _excluded(root: str) -> str:
    """A line in git's own list of this clone, unless a rule ignores the marker already."""
    from ralphproof.cli.ignoring import ignored

    folders = git_folders(root)
    if folders is None or ignored(root, os.environ):
        return ""
    place = os.path.join(folders.common, "info", "exclude")
    known = contents(place)
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


def _prompt(root: str, folder: str, own: str | None) -> str:
    for path in (own, os.path.join(os.path.realpath(root), folder, PROMPT)):
        if path:
            refuse_link(path, f"prompt file {path}")
        data = contents(path) if path else None
        if isinstance(data, Unusable):
            raise Refused(f"{path} {data.why}")
        if data is not None:
            return data.decode("utf-8", "surrogateescape")
        if path and path == own:
            raise Refused(f"prompt file {path} does not exist")
    return template(PROMPT)
