"""The stories folder that `ralph init --preset stories` creates."""

from __future__ import annotations

import os
import stat
import time

from ralphproof.base.errors import Refused
from ralphproof.base.files import explain_os_error, read_file_start, write_atomically
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.checks.discovery import discover_checks
from ralphproof.stories import story_folder
from ralphproof.stories.files import MARKER
from ralphproof.stories.story_folder import (
    FILES,
    TASKS,
    create_file,
    folder_flags,
    gitignore_with_marker,
    open_folder,
    stat_name,
    stories_folder,
    write_gitignore,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ralphproof.base.value import Json


MAX_FILE_BYTES = 1 << 24  # read of an existing file


class StoriesFolderLayout:
    """The files of a stories folder to be created; an impossible one is refused at once, before anything is written.

    `found` has the checks that the project's files name: they become the verify commands.
    """

    def __init__(
        self, root: str, name: str | None, folder: str | None, force: bool, environ: Mapping[str, str]
    ) -> None:
        self._root, self._force, self._environ = root, force, environ
        self._folder = stories_folder(root, folder)
        self._refuse_irregular_files()
        self._refuse_unused_name(name)
        self.found = discover_checks(root, environ)
        self._rule = gitignore_with_marker(root, environ)
        verify = [proposal.command for proposal in self.found.proposals]
        branch = story_folder.branch_name(name) if name is not None else ""
        project = story_folder.project_name(root, name)
        self._texts = story_folder.scaffold_files(project, verify, time.strftime("%Y-%m-%d"), branch)
        self._written: list[str] = []
        self._kept: list[str] = []
        self._asides: dict[str, str] = {}

    def write(self, before: Callable[[], None], refuse: str = "") -> None:
        """Write missing files; with force also existing ones, whose old content is kept under another name.

        `before` is called first; if it fails, nothing is written. If there is nothing to write, a non-empty `refuse`
        is raised as the reason.
        """
        here = [name for name in FILES if os.path.lexists(os.path.join(self._root, self._folder, name))]
        if refuse and len(here) == len(FILES) and self._rule is None:
            raise Refused(f"{refuse}; overwrite them with --force")
        if here and self._force:
            self._write_locked(before)
        else:
            before()
            self._write_files()

    def _write_locked(self, before: Callable[[], None]) -> None:
        """Overwrite stories only while no loop works on them."""
        from ralphproof.runs.open_project import open_project
        from ralphproof.runs.project_lock import ProjectLock

        with ProjectLock(open_project(self._root, self._environ), "init"):
            before()
            self._write_files()

    def _write_files(self) -> None:
        try:
            folder = open_folder(self._root, self._folder, make=True)
            try:
                for name, data in self._texts.items():
                    self._write_file(folder, name, data)
            finally:
                os.close(folder)
        except OSError as error:
            raise explain_os_error(error, os.path.join(self._root, self._folder), story_folder.REMEDY) from error
        if self._rule is not None:
            write_gitignore(self._root, self._rule)

    def _write_file(self, folder: int, name: str, data: bytes) -> None:
        if self._force:
            self._set_aside(folder, name)
            write_atomically(folder, name, data, private=False)
        elif not create_file(folder, name, data):
            self._kept.append(self._path(name))
            return
        self._written.append(self._path(name))

    def _set_aside(self, folder: int, name: str) -> None:
        """Rename an edited file to NAME.before-init."""
        if not stat_name(folder, name) or story_folder.is_unedited_template(
            name, read_file_start(folder, name, MAX_FILE_BYTES) or b""
        ):
            return
        aside, number = f"{name}.before-init", 1
        while stat_name(folder, aside):
            number += 1
            aside = f"{name}.before-init-{number}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        self._asides[self._path(name)] = self._path(aside)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _refuse_irregular_files(self) -> None:
        """Refuse anything but regular files, or without force links inside the project, at these paths."""
        for name in FILES:
            path = os.path.join(self._root, self._folder, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            except NotADirectoryError as error:
                raise Refused(f"{self._folder} is no folder; {story_folder.REMEDY}. Nothing was changed") from error
            if stat.S_ISREG(mode):
                continue
            inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(self._root), ""))
            if not stat.S_ISLNK(mode) or self._force or not inside:
                raise Refused(f"{self._path(name)} is no file of its own; move it away. Nothing was changed")

    def _refuse_unused_name(self, name: str | None) -> None:
        """Refuse --name if tasks.json exists: nothing else would contain it."""
        if name is not None and not self._force and os.path.lexists(os.path.join(self._root, self._path(TASKS))):
            raise Refused(f"{self._path(TASKS)} exists; --name changes nothing there")

    def as_json(self) -> dict[str, Json]:
        return {
            "folder": self._folder,
            "written": [*self._written],
            "kept": [*self._kept],
            "setAside": {**self._asides},
            "ignored": self._rule is not None,
            "verifyCommands": [proposal.command for proposal in self.found.proposals],
        }

    def lines(self, preset: str) -> Iterator[str]:
        """Lines for the user: what was written, and the next commands for the configured preset."""
        if self._written:
            yield f"Stories created: {', '.join(self._written)}"
        yield from (f"Set aside: {path} is now {aside}" for path, aside in self._asides.items())
        yield from (f"Kept existing {path}" for path in self._kept)
        if self._rule is not None:
            yield f"{MARKER} was added to .gitignore"
        flags = folder_flags(self._folder)
        preset_flag = "" if preset == "stories" else " --preset stories"
        if preset_flag:
            yield f'Note: the settings name the preset {preset}; "preset": "stories" there makes it the usual one'
        yield "Next:"
        by_hand = f"or write {self._path(story_folder.PRD)} and {self._path(story_folder.TASKS)} yourself"
        yield f"  ralph plan{flags}    (with an agent; {by_hand})"
        yield f"  ralph run{preset_flag}{flags}"
