"""A private git index over the work tree: the files to save, ignore rules, and the resulting tree object."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Mapping

from ralphproof.base.git_layout import GitFolders, read_if_there
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.files import MAX_FILE_BYTES, OWN_NAMES, FileReader, UnreadableFile
from ralphproof.workspace.git_command import (
    NO_HOOKS_OPTIONS,
    GitFailed,
    find_git,
    isolated_git_environment,
    user_git_environment,
)
from ralphproof.workspace.git_objects import MODE_LINK, ObjectMissing, ObjectStore, TreeStore, decode_path

if TYPE_CHECKING:
    from ralphproof.workspace.git_objects import Entry


# The private index. git stats the files; no setting of the repository applies.


MAX_NOTE_BYTES = 1 << 20  # of ignore rules
CLOCK_LAG_S = 0.02  # the clock that stamps files goes in steps, behind the one that we ask
TIMEOUT_S = 60.0  # a FIFO named .gitignore holds git up for ever
EXCLUDE_OWN_NAMES = [
    f"--exclude=/{name.decode()}" for name in OWN_NAMES
]  # on the command line: a `!` rule cannot undo it
RAW_ATTRIBUTES = "* -text -filter -ident -working-tree-encoding !diff\n"  # raw bytes, no driver
CONFIG_TEMPLATE = """[core]
\trepositoryformatversion = {version}
\tbare = false
\tlooseCompression = 1
\tignoreCase = false
\tprotectNTFS = false
\tprotectHFS = false
\tfsync = loose-object
\tfsyncMethod = batch
[extensions]
{extensions}
"""


class PrivateIndex:
    """The index in `folder`, over the files of `root` and the object store of `folders`.

    git compares ctimes by the second. Files in `racy_paths` changed in the very second in which the index was written:
    if one changes again within that second, and gets its old size and mtime, git does not notice.
    """

    def __init__(self, root: str, folder: str, folders: GitFolders, environ: Mapping[str, str]) -> None:
        self.root, self.folder, self.folders = root, folder, folders
        self.git = find_git(environ, root)
        self.environ = dict(environ)
        self.env = isolated_git_environment(environ, folder, folders.objects, root)
        self._last_signature: tuple[int, ...] | None = None
        self.racy_paths: set[bytes] = set()

    def run(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> ProgramResult:
        """Run git with the private index. Raises GitFailed where git gives no answer."""
        argv = [self.git, "-C", self.root, *NO_HOOKS_OPTIONS, *args]
        reply = run_program(argv, env or self.env, stdin, timeout_s=TIMEOUT_S)
        if b"No space left on device" in reply.err or b"Disk quota exceeded" in reply.err:
            raise OSError(errno.ENOSPC, reply.said)
        if reply.lost:
            raise GitFailed(f"git {args[0]}: {reply.said or reply.code}")
        return reply

    def run_checked(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> ProgramResult:
        reply = self.run(*args, stdin=stdin, env=env)
        if reply.code != 0:
            raise GitFailed(f"git {args[0]}: {reply.said}")
        return reply

    def create(self) -> None:
        """Create the private folder such that git accepts it as a repository."""
        for name in ("refs/heads", "info"):
            os.makedirs(os.path.join(self.folder, name), mode=0o700, exist_ok=True)
        wide = self.folders.algorithm == "sha256"
        config = CONFIG_TEMPLATE.format(version=int(wide), extensions="\tobjectFormat = sha256" if wide else "")
        self._write_file("HEAD", "ref: refs/heads/none\n")
        self._write_file("config", config)
        self._write_file("info/attributes", RAW_ATTRIBUTES)

    def _write_file(self, name: str, text: str | bytes) -> None:
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def copy_ignore_rules(self) -> None:
        """Copy the ignore rules from outside the work tree, so that later edits of them have no effect."""
        env = user_git_environment(self.environ) | {"GIT_DIR": self.folders.git_dir}
        named = self.run("config", "--path", "--get", "core.excludesFile", env=env)
        home = os.path.join(self.environ.get("HOME", "/nonexistent"), ".config")
        usual = os.path.join(self.environ.get("XDG_CONFIG_HOME") or home, "git", "ignore")
        wide = named.out.rstrip(b"\n") if named.code == 0 else os.fsencode(usual)
        own = os.fsencode(os.path.join(self.folders.common, "info", "exclude"))
        rules = [read_if_there(path, MAX_NOTE_BYTES) or b"" for path in (wide, own)]
        self._write_file("info/exclude", b"\n".join(rules))

    def write_note(self, name: str, text: str | bytes) -> str:
        """Write a file in the private folder; return its path."""
        self._write_file(name, text)
        return os.path.join(self.folder, name)

    def read_note(self, name: str) -> bytes:
        """The content of such a file, or nothing."""
        return read_if_there(os.fsencode(os.path.join(self.folder, name)), MAX_NOTE_BYTES) or b""

    def rebuild(self, paths: Iterable[bytes]) -> tuple[str, set[bytes]]:
        """Create the index from these paths; return its tree and the paths that could not be read."""
        for name in ("index", "index.lock"):
            if os.path.exists(os.path.join(self.folder, name)):
                os.unlink(os.path.join(self.folder, name))
        self.racy_paths = set()
        return self._add(paths)

    def update(self, paths: Iterable[bytes]) -> str:
        """Update the index at these paths; return its tree."""
        tree, unreadable = self._add(paths)
        if unreadable:
            raise GitFailed("files became unreadable")
        return tree

    def refresh(self) -> None:
        """Store the times of files that were touched but not changed."""
        self.run("update-index", "-q", "--refresh")
        self._last_signature = self._signature()
        self._update_racy_paths(self._change_times(self.run_checked("ls-files", "-z").out.split(b"\0")[:-1]))

    @property
    def racy_window_over(self) -> bool:
        """Whether the second is over in which `racy_paths` can change unnoticed."""
        return bool(self.racy_paths) and time.time() >= self._index_written_s() + 1 + CLOCK_LAG_S

    def _change_times(self, paths: Iterable[bytes]) -> dict[bytes, float]:
        """The paths, without files over the size limit, with their ctime; 0 where nothing exists."""
        root, times = os.fsencode(self.root), {}
        for path in paths:
            try:
                state = os.lstat(os.path.join(root, path))
            except OSError:
                times[path] = 0.0
                continue
            if state.st_size <= MAX_FILE_BYTES:
                times[path] = state.st_ctime
        return times

    def _update_racy_paths(self, seconds: Mapping[bytes, float]) -> None:
        written_s = self._index_written_s()
        self.racy_paths = (self.racy_paths - seconds.keys()) | {path for path, at in seconds.items() if at >= written_s}

    def _index_written_s(self) -> int:
        return int(os.stat(os.path.join(self.folder, "index")).st_ctime)

    def _add(self, candidates: Iterable[bytes]) -> tuple[str, set[bytes]]:
        paths, unreadable = self._change_times(candidates), set[bytes]()
        for _ in range(100):
            wanted = b"".join(path + b"\0" for path in paths if path not in unreadable)
            reply = self.run("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=wanted)
            if reply.code == 0:
                break
            _, found, path = reply.err.rpartition(b"fatal: Unable to process path ")
            if not found or path.rstrip(b"\n") in unreadable:
                raise GitFailed(f"git update-index: {reply.said}")
            unreadable.add(path.removesuffix(b"\n"))
        else:
            raise GitFailed(f"too many files cannot be read, among them {min(unreadable)!r}")
        tree = self.run_checked("write-tree", "--missing-ok").out.strip().decode()
        self._last_signature = self._signature()
        self._update_racy_paths({path: at for path, at in paths.items() if path not in unreadable})
        return tree, unreadable

    @property
    def is_unmodified(self) -> bool:
        """Whether the index file is still the one that we wrote."""
        return self._last_signature is not None and self._last_signature == self._signature()

    def _signature(self) -> tuple[int, ...] | None:
        try:
            state = os.stat(os.path.join(self.folder, "index"))
        except FileNotFoundError:
            return None
        return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


MAX_HIDDEN_FILES = 2000  # newly ignored files in one folder: past this it is a build's output, named and not saved
MAX_NESTING = 8
VANISHED_MESSAGES = (": No such file or directory", ": Not a directory")


class PathLister:
    """Lists paths that differ from the private index, and collects git's error messages."""

    def __init__(self, index: PrivateIndex, own: frozenset[bytes]) -> None:
        self._index, self._own = index, own
        self._user_index_signature: tuple[int, ...] | None = None
        self._tracked_ignored: set[bytes] = set()
        self._indexed: set[bytes] = set()
        self.complaints: set[str] = set()

    def list_changed(self) -> set[bytes]:
        """Modified, deleted and new paths; files inside nested repositories one by one."""
        self.complaints = set()
        reply = self._list("-t", "-m", "-d", "-o", "--exclude-standard", *EXCLUDE_OWN_NAMES)
        paths = {record[2:] for record in reply.split(b"\0") if record}
        return self._expand_nested(paths) | (self._ignored_but_tracked() - self._indexed)

    def mark_indexed(self, unreadable: set[bytes]) -> None:
        """The private index now contains everything that was listed, except these."""
        self._indexed = self._tracked_ignored - unreadable

    def list_all(self) -> set[bytes]:
        """Every path that is not ignored, tracked or not; the private index must be empty."""
        self.complaints = set()
        self._user_index_signature = None
        env = self._index.env | {"GIT_INDEX_FILE": os.path.join(self._index.folder, "none")}
        reply = self._list("-o", "--exclude-standard", *EXCLUDE_OWN_NAMES, env=env)
        return self._expand_nested(set(reply.split(b"\0")) - {b""}) | self._ignored_but_tracked()

    def list_not_ignored(self, rules: str) -> set[bytes]:
        """Every path outside the private index that these rules alone do not ignore."""
        reply = self._list("-o", f"--exclude-from={rules}", *EXCLUDE_OWN_NAMES)
        return self._expand_nested(set(reply.split(b"\0")) - {b""})

    def _list(self, *args: str, env: dict[str, str] | None = None) -> bytes:
        reply = self._index.run_checked("ls-files", "-z", *args, env=env)
        lines = reply.err.decode("utf-8", "replace").splitlines()
        self.complaints |= {line for line in lines if line and not line.endswith(VANISHED_MESSAGES)}
        return reply.out

    def _expand_nested(self, paths: set[bytes]) -> set[bytes]:
        nested = {path for path in paths if path.endswith(b"/")}
        files = paths - nested
        for folder in nested:
            files |= self._nested(folder, MAX_NESTING)
        return {path for path in files - self._own if path.split(b"/", 1)[0] not in OWN_NAMES}

    def _nested(self, folder: bytes, deepest: int) -> set[bytes]:
        """The files of a repository inside the work tree: git alone would store only a link to its commit."""
        if deepest == 0:
            raise GitFailed("repositories are nested too deeply")
        inside = os.path.join(self._index.root, os.fsdecode(folder))
        env = self._index.env | {"GIT_WORK_TREE": inside, "GIT_INDEX_FILE": os.path.join(self._index.folder, "none")}
        files: set[bytes] = set()
        for path in set(self._list_in(inside, env).split(b"\0")) - {b""}:
            files |= self._nested(folder + path, deepest - 1) if path.endswith(b"/") else {folder + path}
        return files

    def _list_in(self, folder: str, env: dict[str, str]) -> bytes:
        reply = self._index.run("-C", folder, "ls-files", "-z", "-o", "--exclude-standard", env=env)
        if reply.code != 0 and os.path.isdir(folder):
            raise GitFailed(f"git ls-files: {reply.said}")
        return reply.out if reply.code == 0 else b""

    def _ignored_but_tracked(self) -> set[bytes]:
        """Files that match an ignore rule and are in the user's index nevertheless."""
        git_dir = self._index.folders.git_dir
        try:
            state = os.stat(os.path.join(git_dir, "index"))
        except OSError:
            return self._tracked_ignored
        theirs = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if theirs != self._user_index_signature:
            env = {name: text for name, text in self._index.env.items() if name != "GIT_OBJECT_DIRECTORY"}
            reply = self._index.run("ls-files", "-z", "-c", "-i", "--exclude-standard", *EXCLUDE_OWN_NAMES,
                                    env=env | {"GIT_DIR": git_dir})  # fmt: skip
            if reply.code == 0:
                tracked = {path for path in reply.out.split(b"\0") if path and path.split(b"/", 1)[0] not in OWN_NAMES}
                self._tracked_ignored, self._user_index_signature = self._tracked_ignored | tracked, theirs
        return self._tracked_ignored


def group_hidden_files(hidden: set[bytes]) -> tuple[set[bytes], set[bytes]]:
    """The newly ignored files to save, and the folders that contain too many of them."""
    counts: dict[bytes, int] = {}
    for path in hidden:
        top = path.split(b"/", 1)[0]
        counts[top] = counts.get(top, 0) + 1
    heavy = {top for top, count in counts.items() if count > MAX_HIDDEN_FILES}
    return {path for path in hidden if path.split(b"/", 1)[0] not in heavy}, {top + b"/" for top in heavy}


# Ignore rules of one moment in one file, independent of later edits of a `.gitignore`.


IGNORE_FILE = b".gitignore"


def is_ignore_file(path: bytes) -> bool:
    return path == IGNORE_FILE or path.endswith(b"/" + IGNORE_FILE)


def flatten_ignore_rules(files: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The rules of many `.gitignore` files (path, content) as one list from the root.

    In git the deepest file decides, and within a file the last line; so the deepest come last.
    """
    lines: list[bytes] = []
    for path, content in sorted(files, key=lambda item: (item[0].count(b"/"), item[0])):
        folder = path[: -len(IGNORE_FILE)].rstrip(b"/")
        if b"\n" not in folder:  # such a folder cannot be written in a rule: its files are saved
            lines += (_rebase_rule(line, folder) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return b"\n".join(line for line in lines if line) + b"\n"


def _rebase_rule(line: bytes, folder: bytes) -> bytes:
    line = line.removesuffix(b"\r")
    if not line or line.startswith(b"#"):
        return b""
    if not folder:
        return line
    sign, pattern = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
    anchored = b"/" in pattern.rstrip(b" ").removesuffix(b"/")
    between = b"/" if anchored else b"/**/"
    return sign + b"/" + _escape_folder(folder) + between + pattern.removeprefix(b"/")


def _escape_folder(folder: bytes) -> bytes:
    for special in (b"\\", b"*", b"?", b"["):
        folder = folder.replace(special, b"\\" + special)
    return folder


# The work tree as a tree object: a base that git indexed, and what differs from it.


ABSORB_THRESHOLD = 500  # changed paths that are looked at one by one; more go into the private index
SLOW_LISTING_S = 0.05


@value
class TreeScan:
    """One scan of all files. `problem` names what could not be read and may have changed."""

    tree: str
    left_out: tuple[str, ...]
    problem: str


class WorkTreeScanner:
    """Scans the work tree repeatedly, reading only files that may have changed."""

    def __init__(self, index: PrivateIndex, objects: ObjectStore, trees: TreeStore, own: frozenset[bytes]) -> None:
        self._index, self._objects, self._trees = index, objects, trees
        self._files = FileReader(index.root, lambda content: objects.write(b"blob", content))
        self._listing = PathLister(index, own)
        self._base: str | None = None
        self._overlay: dict[bytes, Entry | None] = {}
        self._start: str | None = None
        self._rules: str | None = None  # the ignore rules of the start, flattened into a file
        self._rules_changed = False
        self._fastest_listing_s, self._listing_was_slow, self._index_missed_change = float("inf"), False, False
        self._unreadable: dict[bytes, tuple[int, ...]] = {}
        self._known_unreadable: tuple[dict[bytes, tuple[int, ...]], set[str]] | None = None

    def reset(self) -> None:
        """Forget everything: the next scan sets the ignore rules."""
        self.invalidate()
        self._start = self._rules = self._known_unreadable = None
        self._rules_changed = False

    def invalidate(self) -> None:
        """Discard everything that was read before."""
        self._base = None
        self._files.clear_cache()

    @property
    def ready(self) -> bool:
        return self._base is not None and self._index.is_unmodified

    def index_all(self, start: str | None) -> None:
        """Index everything again. `start` is the tree of the run's start, None when this is the start."""
        self._overlay = {}
        self._base, unreadable = self._index.rebuild(self._listing.list_all())
        self._listing.mark_indexed(unreadable)
        self._files.clear_cache()
        if start and start != self._start:
            self._start, self._rules = start, None
        if self._start:
            self._rules_changed = self._rules_differ(self._start, self._base)

    def _rules_differ(self, start: str, base: str) -> bool:
        try:
            return any(map(is_ignore_file, self._trees.compare(start, base)))
        except ObjectMissing:  # the object store is another one than at the start
            self._start = self._rules = None
            return False

    def scan(self) -> TreeScan:
        """The present tree."""
        assert self._base is not None, "prepare comes first"
        self._unreadable = {}
        self._files.start_scan()
        paths = self._timed_listing()
        overlay = self._racy_entries(paths) | self._entries(paths)
        heavy: set[bytes] = set()
        if self._start and (self._rules_changed or any(map(is_ignore_file, overlay))):
            kept, heavy = group_hidden_files(self._listing.list_not_ignored(self._start_rules(self._start)) - paths)
            overlay |= self._entries(kept)
        self._overlay = overlay
        tree = self._trees.build(self._base, overlay)
        self._start = self._start or tree
        return self._to_scan(tree, heavy)

    def _racy_entries(self, paths: set[bytes]) -> dict[bytes, Entry | None]:
        """Files that may have changed unnoticed by git. An index that missed a change is not used again."""
        ripe = self._index.racy_window_over  # asked before they are read: what changes from now on, git sees
        entries = self._entries(self._index.racy_paths - paths)
        self._index_missed_change = bool(entries) and self._trees.build(self._base, entries) != self._base
        if ripe and not self._index_missed_change:
            self._index.racy_paths = set()
        return entries

    def _timed_listing(self) -> set[bytes]:
        started = time.monotonic()
        paths = self._listing.list_changed()
        took_s = time.monotonic() - started
        self._fastest_listing_s = min(self._fastest_listing_s, took_s)
        self._listing_was_slow = took_s > SLOW_LISTING_S + 2 * self._fastest_listing_s
        return paths

    def _entries(self, paths: set[bytes]) -> dict[bytes, Entry | None]:
        overlay: dict[bytes, Entry | None] = {}
        for path in sorted(paths):
            try:
                overlay[path] = self._files.read_entry(path)
            except UnreadableFile as error:
                self._unreadable[path] = error.signature
                if path in self._overlay:
                    overlay[path] = self._overlay[path]
        return overlay

    def _to_scan(self, tree: str, heavy: set[bytes]) -> TreeScan:
        """What was unreadable at the start and is unchanged is left out; anything newer is a problem."""
        complaints = self._listing.complaints
        first = self._known_unreadable is None
        known, known_complaints = self._known_unreadable = self._known_unreadable or (
            dict(self._unreadable),
            set(complaints),
        )
        newly_unreadable = sorted(path for path, signature in self._unreadable.items() if known.get(path) != signature)
        problems = [f"cannot read {decode_path(path)}" for path in newly_unreadable[:5]] + sorted(
            complaints - known_complaints
        )[:5]
        if first:
            problems = [f"cannot read {decode_path(path)}" for path in sorted(known)[:5]] + sorted(complaints)[:5]
        left_out = self._files.too_large | heavy | self._unreadable.keys()
        return TreeScan(tree, tuple(sorted(map(decode_path, left_out))), "; ".join(problems))

    def update_base(self) -> bool:
        """Keep the next scan short; return whether there is a new base.

        A long list of changes goes into the index. After a checkout that touched many files, their new times do.
        """
        try:
            if not self._index_missed_change:
                return self._update_base()
        except GitFailed:
            pass
        self.invalidate()
        return False

    def _update_base(self) -> bool:
        if len(self._overlay) <= ABSORB_THRESHOLD:
            if self._listing_was_slow:
                self._index.refresh()
            return False
        self._rules_changed = self._rules_changed or any(map(is_ignore_file, self._overlay))
        self._base, self._overlay = self._index.update(self._overlay), {}
        return True

    def _start_rules(self, start: str) -> str:
        if self._rules is None:
            listed = self._index.run_checked("ls-tree", "-r", "-z", "--full-tree", start).out
            rules = []
            for record in listed.split(b"\0")[:-1]:
                about, _, path = record.partition(b"\t")
                mode, _, name = about.split(b" ", 2)
                if is_ignore_file(path) and mode != MODE_LINK:
                    rules.append((path, self._objects.read(name.decode())[1]))
            text = self._index.read_note("info/exclude") + b"\n" + flatten_ignore_rules(rules)
            self._rules = self._index.write_note("rules-of-the-start", text)
        return self._rules
