"""Restore of a repository from its backup; the present one is moved aside.

The new repository is built and verified beside its target. Then the present one is renamed, and the new one takes its
place. After a crash the restore can be repeated: the build starts again, and what was moved aside stays there.
"""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import HarnessFailed, Refused, wrap_os_error
from ralphproof.base.files import remove_tree, sync_folders, write_all
from ralphproof.base.git_layout import find_blocking_files, git_folders
from ralphproof.base.run_program import ProgramResult, find_program, run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.backup import (
    LAST_SUFFIX,
    LINK_MARK,
    PLAIN_MARK,
    CopiedObjects,
    InvalidBundle,
    backup_objects,
    backup_refs,
    describe_loss,
    list_backups,
    metadata_files,
    object_key,
    rev_list_command,
)
from ralphproof.workspace.branches import SHORT_ID_CHARS, STASH
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, isolated_git_environment
from ralphproof.workspace.git_objects import run_ref_name
from ralphproof.workspace.unsafe_paths import find_unsafe_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspace.backup import BackupState
    from ralphproof.workspace.branches import Refs

BUILD_SUFFIX, ASIDE_SUFFIX = ".restoring", ".before-restore-"
EXCLUDE = PLAIN_MARK + b"info/exclude"
TIMEOUT_S = 600.0
OWN_REFS = "refs/ralph/"


@value
class NewerRef:
    """A ref of the present repository with a commit that the backup does not have."""

    ref: str
    commit: str


class RepositoryRestore:
    """Restores the repository of a run, whose backups are in `folder`. Raises Refused if the backup is incomplete."""

    def __init__(self, folder: str, start: BackupState, environ: Mapping[str, str]) -> None:
        self._folder, self.start = folder, start
        self.target = start.common
        self._build_path = self.target + BUILD_SUFFIX
        git = find_program("git", environ.get("PATH", os.defpath), outside=start.root)
        if git is None:
            raise Refused("git was not found in PATH")
        self._git, self._environ = git, environ
        self.restored_state = start  # the state that is put back
        self.extra_refs: list[str] = []  # refs that hold what a later state has besides

    def build(self) -> None:
        """Build the repository beside its target, and verify it."""
        above = os.path.dirname(self.target)
        if not os.path.isdir(above):
            raise Refused(f"{above} is gone; make that folder first")
        if not os.access(above, os.W_OK | os.X_OK):
            raise Refused(f"{above} may not be written to, so nothing can be put there; chmod u+wx it first")
        try:
            remove_tree(self._build_path, strict=True)  # left by one that was killed
            self._assemble()
        except OSError as error:
            raise wrap_os_error(error) from error
        except InvalidBundle as error:
            raise HarnessFailed(f"the copy cannot be read: {error}") from error

    def _assemble(self) -> None:
        states = [one for one in list_backups(self._folder) if one.run == self.start.run]
        last = next((one for one in states if one.path.endswith(LAST_SUFFIX)), None)
        copies = CopiedObjects(self._folder)
        try:
            missing = [path for one in filter(None, (self.start, last)) for path in self._write_objects(copies, one)]
        finally:
            copies.close()
        self._write_metadata(self.start)
        problem = self._missing_objects(self.start)
        if last and not problem and self._continues_start(last):
            self._write_metadata(last)
            if self._missing_objects(last):
                self._write_metadata(self.start)
            else:
                self.restored_state = last
        elif last and not problem:
            self._name_extra_commits(last)
        if problem:
            more = f"; {len(missing)} files of it are missing or damaged" if missing else ""
            raise Refused(f"the copy of {self.start.root} is not whole, so nothing was changed: {problem}{more}")

    def _write_objects(self, copies: CopiedObjects, state: BackupState) -> list[bytes]:
        """Write the objects of a state; return the paths of those without a valid copy."""
        missing, known = [], set[bytes]()
        for path in backup_objects(state):
            target = os.path.join(os.fsencode(self._build_path), path)
            folder = os.path.dirname(target)
            if folder not in known:
                os.makedirs(folder, exist_ok=True)
                known.add(folder)
            if not os.path.lexists(target) and not copies.write_to(object_key(path), target):
                missing.append(path)
        return missing

    def _write_metadata(self, state: BackupState) -> None:
        """Write refs, index, settings and the like of a state, replacing those of another one."""
        top = os.fsencode(self._build_path)
        for name in os.listdir(top) if os.path.isdir(top) else []:
            if name not in (b"objects", b"modules"):
                remove_tree(os.fsdecode(os.path.join(top, name)), strict=True)
        files = metadata_files(state)
        aside = b"/%s%s*" % (os.path.basename(os.fsencode(self.target)), ASIDE_SUFFIX.encode())
        if aside not in files.get(EXCLUDE, b"").splitlines():  # else the next `git add -A` would take it
            files[EXCLUDE] = files.get(EXCLUDE, b"").rstrip(b"\n") + b"\n" + aside + b"\n"
        for folder in (b"objects/pack", b"refs/heads", b"refs/tags", b"info"):
            os.makedirs(os.path.join(top, folder), exist_ok=True)
        for name, content in files.items():
            _write_file(os.path.join(top, name[2:]), name[:2], content)

    def _name_extra_commits(self, last: BackupState) -> None:
        """Give refs of the run to commits of the last state that do not descend from the start, so that they are not
        lost.
        """
        known = set(backup_refs(self.start).values())
        others = {name for ref, name in backup_refs(last).items() if name not in known and not ref.startswith(OWN_REFS)}
        for name in sorted(others) if last.ref_files else ():
            if self._run_git(*rev_list_command(last), name).code == 0:
                ref = run_ref_name(last.run, f"last-{name[:SHORT_ID_CHARS]}")
                _write_file(os.fsencode(os.path.join(self._build_path, ref)), PLAIN_MARK, name.encode() + b"\n")
                self.extra_refs.append(ref)

    def _missing_objects(self, state: BackupState) -> str:
        """What git misses in the build; empty where everything that refs name exists."""
        tips = "".join(f"{tip}\n" for tip in dict.fromkeys(backup_refs(state).values())).encode()
        reply = self._run_git(*rev_list_command(state), "--stdin", stdin=tips) if tips else None
        return reply.said or f"git rev-list: {reply.code}" if reply and reply.code else ""

    def _continues_start(self, last: BackupState) -> bool:
        """Whether the last state has every branch and tag of the start, none of them rewritten."""
        before, now = backup_refs(self.start), backup_refs(last)
        for ref, old in before.items():
            if ref.startswith((OWN_REFS, STASH)) or now.get(ref) == old:
                continue
            new = now.get(ref)
            if new is None or ref.startswith("refs/tags/"):
                return False
            if self._run_git("merge-base", "--is-ancestor", old, new).code:
                return False
        return True

    def newer_refs(self) -> list[NewerRef]:
        """The refs of the present repository with commits that the backup does not have, without our snapshots."""
        if os.path.islink(self.target) or not os.path.isdir(os.path.join(self.target, "objects")):
            return []  # what a link leads to is not touched
        folders = git_folders(self.start.root)
        if any(find_blocking_files(self.target)) or (folders and find_unsafe_path(self.start.root, folders)):
            return []  # nobody can ask; it is moved aside as it is
        env = self._git_environment(self.target)
        listed = self._run_git("for-each-ref", "--format=%(objectname) %(refname)", env=env).out.decode(
            "utf-8", "replace"
        )
        refs = [NewerRef(ref, name) for name, _, ref in (line.partition(" ") for line in listed.splitlines())]
        head = self._run_git("rev-parse", "-q", "--verify", "HEAD", env=env).out.decode("ascii", "replace").strip()
        if head and head not in {one.commit for one in refs}:
            refs.append(NewerRef("HEAD", head))
        refs = [one for one in refs if not one.ref.startswith(OWN_REFS)]
        stdin = "".join(f"{one.commit}\n" for one in refs).encode()
        answers = self._run_git("cat-file", "--batch-check", stdin=stdin).out.splitlines() if refs else []
        return [one for one, line in zip(refs, answers, strict=False) if line.endswith(b" missing")]

    def describe_loss(self) -> str:
        """What the present repository lacks of the backup, in words; empty where it provably has all of it."""
        env = self._git_environment(self.target)

        def ask(*args: str, stdin: bytes = b"") -> ProgramResult:
            return self._run_git(*args, stdin=stdin, env=env)

        def refs() -> bytes:
            return self._run_git("for-each-ref", "--format=%(objectname) %(refname)", env=env).out

        return describe_loss(self.start, ask, refs)

    def refs(self) -> Refs:
        """The refs of the restored state."""
        return backup_refs(self.restored_state)

    def install(self) -> str:
        """Put the build in place. Returns where the present repository was moved, empty where there was none."""
        try:
            self._give_to_owner()
            os.sync()
            aside = ""
            if os.path.lexists(self.target):
                aside = self._moved_aside_path()
                os.rename(self.target, aside)
            os.rename(self._build_path, self.target)
            sync_folders({os.fsencode(os.path.dirname(self.target))})
        except OSError as error:
            raise wrap_os_error(error) from error
        return aside

    def _give_to_owner(self) -> None:
        """When root restores, the files belong to the owner of the project."""
        owner = os.stat(self.start.root)
        if os.geteuid() or not owner.st_uid:
            return
        for folder, names, files in os.walk(self._build_path):
            for name in (*names, *files):
                os.lchown(os.path.join(folder, name), owner.st_uid, owner.st_gid)
        os.lchown(self._build_path, owner.st_uid, owner.st_gid)

    def _moved_aside_path(self) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name, number = f"{self.target}{ASIDE_SUFFIX}{stamp}", 1
        while os.path.lexists(name):
            number += 1
            name = f"{self.target}{ASIDE_SUFFIX}{stamp}-{number}"
        return name

    def list_moved_aside(self) -> list[str]:
        """The repositories that were moved aside here, now or before."""
        above, start = os.path.split(self.target + ASIDE_SUFFIX)
        return [os.path.join(above, name) for name in sorted(os.listdir(above)) if name.startswith(start)]

    def remove_build(self) -> None:
        """Remove a build that was not installed."""
        try:
            remove_tree(self._build_path, strict=True)
        except OSError:
            return  # the next one removes it

    def _git_environment(self, git_dir: str) -> dict[str, str]:
        return isolated_git_environment(self._environ, git_dir, os.path.join(git_dir, "objects"), self.start.root)

    def _run_git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> ProgramResult:
        argv = [self._git, "-C", os.path.dirname(self.target), *NO_HOOKS_OPTIONS, *args]
        return run_program(argv, env or self._git_environment(self._build_path), stdin, timeout_s=TIMEOUT_S)


def _write_file(path: bytes, kind: bytes, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    if kind == LINK_MARK:
        os.symlink(content, path)
        return
    mode = 0o644 if kind == PLAIN_MARK else 0o755
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        write_all(file, content)
    finally:
        os.close(file)
