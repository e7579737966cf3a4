"""Objects, trees, commits and refs of a git repository, read and written without hooks or filters."""

from __future__ import annotations

import errno
import hashlib
import os
import select
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.files import AtomicFileBatch, sync_folders, write_all
from ralphproof.base.git_layout import GitFolders, head_commit, is_object_id, read_ref_text, read_regular_file
from ralphproof.base.programs import SIGKILL, ProgramResult, start_program, unregister_child
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, GitFailed

Entry = tuple[bytes, str]  # mode, object id
Overlay = Mapping[bytes, Entry | None]  # None: not there

if TYPE_CHECKING:
    from ralphproof.workspace.private_index import PrivateIndex


MODE_FOLDER = b"40000"
MODE_LINK = b"120000"
MODE_EXECUTABLE = b"100755"
MODE_FILE = b"100644"
MODE_SUBMODULE = b"160000"
MAX_CACHED_TREES = 5000


class TreeStore:
    """Trees of one object store: read, built from changes, compared."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._cache: dict[str, dict[bytes, Entry]] = {}

    def clear_cache(self) -> None:
        """Read everything again: the object store may have been replaced."""
        self._cache.clear()

    def entries(self, tree: str) -> dict[bytes, Entry]:
        """The direct entries of a tree, by name."""
        if tree not in self._cache:
            self._add_to_cache(tree, self._parse(self._objects.read(tree)[1]))
        return self._cache[tree]

    def _add_to_cache(self, tree: str, entries: dict[bytes, Entry]) -> None:
        if len(self._cache) >= MAX_CACHED_TREES:
            self._cache.clear()
        self._cache[tree] = entries

    def _parse(self, body: bytes) -> dict[bytes, Entry]:
        entries, at, width = {}, 0, self._objects.id_bytes
        while at < len(body):
            end = body.index(b"\0", at)
            mode, _, name = body[at:end].partition(b" ")
            at = end + 1 + width
            entries[name] = (mode, body[end + 1 : at].hex())
        return entries

    def build(self, base: str | None, changes: Overlay) -> str:
        """Write the tree that results from these changes to `base`."""
        nested: dict[bytes, object] = {}
        for path, entry in changes.items():
            *folders, name = path.split(b"/")
            here = nested
            for folder in folders:
                below = here.setdefault(folder + b"/", {})
                assert isinstance(below, dict)
                here = below
            here[name] = entry
        return self._build(base, nested) or self._objects.write(b"tree", b"")

    def _build(self, base: str | None, nested: dict[bytes, object]) -> str | None:
        entries = dict(self.entries(base)) if base else {}
        for key, change in nested.items():
            name = key.rstrip(b"/")
            old = entries.get(name)
            if isinstance(change, dict):
                below = self._build(old[1] if old and old[0] == MODE_FOLDER else None, change)
                entry = (MODE_FOLDER, below) if below else None
                if entry is None and (old is None or old[0] != MODE_FOLDER):
                    continue  # nothing below a name that is no folder: it keeps what it is
            else:
                assert change is None or isinstance(change, tuple)
                entry = change
                if entry is None and (old is None or old[0] == MODE_FOLDER):
                    continue  # a file that became a folder: what is below it speaks for itself
            if entry is None:
                del entries[name]
            else:
                entries[name] = entry
        return self._write(entries) if entries else None

    def _write(self, entries: dict[bytes, Entry]) -> str:
        ordered = sorted(entries.items(), key=lambda item: item[0] + b"/" if item[1][0] == MODE_FOLDER else item[0])
        body = b"".join(b"%s %s\0%s" % (mode, name, bytes.fromhex(object_id)) for name, (mode, object_id) in ordered)
        tree = self._objects.write(b"tree", body)
        self._add_to_cache(tree, entries)
        return tree

    def compare(self, before: str | None, after: str | None) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """Every file that differs, as (before, after); only folders that differ are read."""
        return dict(self._differences(before, after, b""))

    def _differences(
        self, before: str | None, after: str | None, prefix: bytes
    ) -> Iterator[tuple[bytes, tuple[Entry | None, Entry | None]]]:
        if before == after:
            return
        old, new = self.entries(before) if before else {}, self.entries(after) if after else {}
        for name in sorted(old.keys() | new.keys()):
            was, now = old.get(name), new.get(name)
            if was == now:
                continue
            was_file, was_folder = _split_entry(was)
            now_file, now_folder = _split_entry(now)
            if was_file or now_file:
                yield prefix + name, (was_file, now_file)
            yield from self._differences(was_folder, now_folder, prefix + name + b"/")


def _split_entry(entry: Entry | None) -> tuple[Entry | None, str | None]:
    if entry is not None and entry[0] == MODE_FOLDER:
        return None, entry[1]
    return entry, None


def decode_path(path: bytes) -> str:
    """A path as text, with undecodable bytes as surrogates."""
    return path.decode("utf-8", "surrogateescape")


# Refs of snapshots, and HEAD. Read and written directly where refs are files, else by git.


START_NAME = "0"  # of the snapshot that a run began with
LOCK_WAIT_S = 1.0
REF_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def run_ref_name(run: str, name: str) -> str:
    """`refs/ralph/<run>/<name>`. Raises ValueError for words that could leave that folder."""
    for word in (run, name):
        if not word or set(word) - REF_CHARACTERS or ".." in word or word[0] in ".-" or word.endswith((".lock", ".")):
            raise ValueError(f"{word!r} cannot be part of a ref")
    return f"refs/ralph/{run}/{name}"


def read_head(index: PrivateIndex) -> str | None:
    """The commit of HEAD; None before the first one."""
    if index.folders.ref_files:
        return head_commit(index.folders)
    reply = index.run("rev-parse", "-q", "--verify", "HEAD", env=_repository_environment(index, index.folders.git_dir))
    if reply.code not in (0, 1):
        raise GitFailed(f"git rev-parse: {reply.said}")
    return reply.out.strip().decode() or None


def read_ref(index: PrivateIndex, ref: str) -> str | None:
    """The commit of one of our refs; None where it does not exist."""
    if index.folders.ref_files:
        text = read_ref_text(index.folders, ref.encode())
        return text.strip().decode("ascii", "replace") if text else None
    reply = index.run("rev-parse", "-q", "--verify", ref, env=_repository_environment(index, index.folders.common))
    return reply.out.strip().decode() if reply.code == 0 else None


def write_ref(index: PrivateIndex, ref: str, commit: str) -> None:
    """Point the ref at the commit, durably."""
    if not index.folders.ref_files:
        index.run_checked("update-ref", ref, commit, env=_repository_environment(index, index.folders.common))
        return
    path = os.path.join(index.folders.common, ref)
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
        raise OSError(errno.ELOOP, "a symbolic link stands in for our refs", folder)
    descriptor = _lock_ref(path + ".lock")
    try:
        write_all(descriptor, commit.encode() + b"\n")
        os.fsync(descriptor)
        os.rename(path + ".lock", path)
    except OSError:
        os.unlink(path + ".lock")
        raise
    finally:
        os.close(descriptor)
    sync_folders({os.fsencode(folder)})


def _lock_ref(path: str) -> int:
    """Take git's own lock of a ref. Nobody else holds one for long, so a lock that stays is left from a crash."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if time.monotonic() > deadline:
                os.unlink(path)
            time.sleep(0.01)


def _repository_environment(index: PrivateIndex, git_dir: str) -> dict[str, str]:
    return {**index.env, "GIT_DIR": git_dir}


# Objects. A written object is on disk before any ref names it.


TIMEOUT_S = 60.0


class ObjectMissing(Exception):
    """Git says that the object store does not have the object."""


class ObjectStore:
    """The object store of one repository. Writes loose objects; `flush` before a ref names what was written."""

    def __init__(self, git: str, folder: str, algorithm: str, env: Mapping[str, str]) -> None:
        self.folder, self.id_bytes = os.fsencode(folder), 32 if algorithm == "sha256" else 20
        self._hash = hashlib.sha256 if algorithm == "sha256" else hashlib.sha1
        self._compress = zlib.compress
        self._git, self._env = git, env
        self._pending = AtomicFileBatch(self.folder, 0o444)
        self._cat_file: tuple[int, int, int] | None = None

    def write(self, kind: bytes, body: bytes) -> str:
        """Store an object unless it exists; return its id."""
        raw = b"%s %d\0%s" % (kind, len(body), body)
        name = self._hash(raw).hexdigest()
        final = b"%s/%s/%s" % (self.folder, name[:2].encode(), name[2:].encode())
        if not self._pending.has(final):
            self._pending.add(final, self._compress(raw, 1))
        return name

    def flush(self) -> None:
        """Make everything written so far durable."""
        self._pending.flush()

    def discard(self) -> None:
        """Forget what was not flushed."""
        self._pending.discard()

    def read(self, name: str) -> tuple[bytes, bytes]:
        """Kind and body of an object. Raises ObjectMissing, or GitFailed where git cannot tell whether it exists."""
        if self._pending:
            self.flush()
        try:
            return self._read_from_cat_file(name)
        except OSError:  # somebody may have ended our helper, as `pkill git` does: another one can tell
            self.close()
        try:
            return self._read_from_cat_file(name)
        except OSError as error:
            self.close()
            raise GitFailed(f"git cat-file could not be asked for {name}: {error}") from error

    def _read_from_cat_file(self, name: str) -> tuple[bytes, bytes]:
        to, back, _ = self._cat_file or self._start_cat_file()
        write_all(to, name.encode() + b"\n")
        head, _, rest = _read_line(back).partition(b"\n")
        words = head.split()
        if len(words) != 3:
            raise ObjectMissing(head.decode("utf-8", "replace"))
        if is_object_id(name) and words[0] != name.encode():
            raise OSError("git cat-file answers something else")
        pieces, left = [rest], int(words[2]) + 1 - len(rest)
        while left > 0:
            pieces.append(piece := _read_bytes(back, min(left, 1 << 20)))
            left -= len(piece)
        return words[1], b"".join(pieces)[:-1]

    def _start_cat_file(self) -> tuple[int, int, int]:
        theirs_in, to = os.pipe()
        back, theirs_out = os.pipe()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = start_program(
                [self._git, *NO_HOOKS_OPTIONS, "cat-file", "--batch"], self._env, theirs_in, theirs_out, nowhere
            )
        except OSError:
            os.close(to)
            os.close(back)
            raise
        finally:
            for end in (theirs_in, theirs_out, nowhere):
                os.close(end)
        self._cat_file = (to, back, pid)
        return self._cat_file

    def close(self) -> None:
        """End the helper process; it may be started again."""
        batch, self._cat_file = self._cat_file, None
        if batch:
            os.close(batch[0])
            os.close(batch[1])
            os.kill(batch[2], SIGKILL)  # it only reads; one that hangs would be waited for in vain
            os.waitpid(batch[2], 0)
            unregister_child(batch[2])


def _read_line(descriptor: int) -> bytes:
    data = b""
    while b"\n" not in data:
        data += _read_bytes(descriptor, 1 << 16)
    return data


def _read_bytes(descriptor: int, most_bytes: int) -> bytes:
    poller = select.poll()  # select() cannot watch descriptors past 1023
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(TIMEOUT_S * 1000):
        raise OSError("git cat-file does not answer")
    piece = os.read(descriptor, most_bytes)
    if not piece:
        raise OSError("git cat-file ended")
    return piece


# Commits, the user's index and lists of refs. Nothing that the repository configures is executed.


MAX_STAGED = 500  # paths that the index is asked for
MAX_COMMITS = 100_000  # of new ones are looked through
LOG_OPTIONS = (
    "--ignore-missing", "--stdin", "--topo-order", "-c", "--no-renames", "--raw", "-z", "--no-abbrev", "--no-color",
    "--format=%H", f"--max-count={MAX_COMMITS + 1}",
)  # fmt: skip


class TooManyCommits(GitFailed):
    """There are more new commits than are searched."""


class CommitStore:
    """The commits of one repository, and refs of runs that keep commits from being pruned."""

    def __init__(self, index: PrivateIndex, objects: ObjectStore, trees: TreeStore) -> None:
        self._index, self._objects, self._trees = index, objects, trees
        self._known_commits: set[str] = set()

    @property
    def folders(self) -> GitFolders:
        """The folders of the repository."""
        return self._index.folders

    def clear_cache(self) -> None:
        self._known_commits.clear()

    def has(self, name: str) -> bool:
        """Whether there is a commit with this id."""
        if name not in self._known_commits:
            try:
                if self._objects.read(name)[0] != b"commit":
                    return False
            except ObjectMissing:
                return False
            self._known_commits.add(name)
        return True

    def header(self, commit: str, field: bytes) -> list[str]:
        """The values of a header field of a commit, such as `parent `."""
        head = self._objects.read(commit)[1].partition(b"\n\n")[0]
        return [line[len(field) :].decode() for line in head.split(b"\n") if line.startswith(field)]

    def is_ancestor(self, before: str, after: str | None) -> bool:
        """Whether `before` is an ancestor of `after`. Raises GitFailed where git cannot tell."""
        if after is None or not (self.has(before) and self.has(after)):
            return False
        if before in self.header(after, b"parent "):
            return True
        reply = self.run("merge-base", "--is-ancestor", before, after)
        if reply.code not in (0, 1):
            raise GitFailed(f"git merge-base: {reply.said}")
        return reply.code == 0

    def run(self, *args: str, stdin: bytes = b"", more: Mapping[str, str] | None = None) -> ProgramResult:
        """Run git without the settings of user and repository, with `more` in its environment."""
        theirs = os.path.join(self.folders.common, "shallow")  # says where the history of a shallow clone ends
        if os.path.exists(theirs):
            self._index.write_note("shallow", read_regular_file(os.fsencode(theirs)))
        return self._index.run(*args, stdin=stdin, env={**self._index.env, **(more or {})})

    def log(self, head: str, lines: int) -> tuple[str, ...]:
        """This commit and those before it, newest first, one line each."""
        if lines < 1:
            return ()
        reply = self.run("log", "--no-color", "--format=%h %s", f"--max-count={lines}", head, "--")
        return tuple(reply.out.decode("utf-8", "replace").split("\n")[:-1]) if reply.code == 0 else ()

    def read_entry(self, revision: str, path: bytes) -> Entry | None:
        """The entry of a commit at a path; None where there is none, or the commit does not exist."""
        entry: Entry | None = (MODE_FOLDER, f"{revision}^{{tree}}")
        try:
            for name in path.split(b"/"):
                if entry is None or entry[0] != MODE_FOLDER:
                    return None
                entry = self._trees.entries(entry[1]).get(name)
        except ObjectMissing:
            return None
        return entry

    def read_blob(self, name: str) -> bytes:
        """The content of a file. Raises ObjectMissing."""
        return self._objects.read(name)[1]

    def list_new_commits(self, tips: Iterable[str], known: Iterable[str]) -> list[tuple[str, list[bytes]]]:
        """The commits reachable from the tips and not from the known commits, newest first, each with the paths that it
        changed.

        Of a merge only changes against all of its parents. Raises TooManyCommits.
        """
        lines = [*tips, *(f"^{name}" for name in known)]
        reply = self.run("log", *LOG_OPTIONS, stdin="".join(f"{line}\n" for line in lines).encode())
        if reply.code != 0:
            raise GitFailed(f"git log: {reply.said}")
        commits: list[tuple[str, list[bytes]]] = []
        words = iter(reply.out.split(b"\0"))
        for word in words:
            if word.lstrip(b"\n").startswith(b":"):
                commits[-1][1].append(next(words))
            elif is_object_id(name := word.decode("ascii", "replace")):
                commits.append((name, []))
        if len(commits) > MAX_COMMITS:
            raise TooManyCommits(f"more than {MAX_COMMITS} new commits: what they hold cannot be told")
        return commits

    def peel_to_commits(self, names: Iterable[str]) -> dict[str, str]:
        """The commit behind each id: itself, or the target of a tag; ids without one are left out."""
        ids = list(names)
        stdin = "".join(f"{name}^{{commit}}\n" for name in ids).encode()
        reply = self.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=stdin)
        if reply.code != 0:
            raise GitFailed(f"git cat-file: {reply.said}")
        answers = (line.split(" ") for line in reply.out.decode("ascii", "replace").splitlines())
        return {name: answer[0] for name, answer in zip(ids, answers, strict=False) if answer[-1] == "commit"}

    def object_exists(self, name: str) -> bool:
        """Whether any object has this id, without the cache."""
        return self.run("cat-file", "-e", name).code == 0

    def list_refs(self) -> bytes:
        """Branches, tags and remote branches as lines `id name`, for repositories whose refs are not files."""
        return self._for_each_ref("refs/heads", "refs/tags", "refs/remotes")

    def list_all_refs(self) -> bytes:
        """Every ref in such lines."""
        return self._for_each_ref()

    def _for_each_ref(self, *kinds: str) -> bytes:
        env = self._index.env | {"GIT_DIR": self.folders.common}
        return self._index.run_checked("for-each-ref", "--format=%(objectname) %(refname)", *kinds, env=env).out

    def read_staged(self, paths: Iterable[bytes]) -> dict[bytes, Entry]:
        """The entries of the user's index at these paths; empty where it cannot be read."""
        wanted = [os.fsdecode(path) for path in paths]
        env = self._index.env | {"GIT_DIR": self.folders.git_dir}
        reply = self._index.run("ls-files", "--stage", "-z", "--", *wanted[:MAX_STAGED], env=env)
        records = (record.partition(b"\t") for record in reply.out.split(b"\0")[:-1])
        return {path: (about.split(b" ")[0], about.split(b" ")[1].decode()) for about, _, path in records}

    def uncommitted_changes(self, run: str, start: str) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """The files of a snapshot that differed from HEAD: HEAD's entry of each, and the saved one."""
        saved = self.find_saved_commit(run, start)
        if saved is None:
            return {}
        heads = self.header(saved, b"parent ")
        tree = self.header(heads[0], b"tree ")[0] if heads else None
        return self._trees.compare(tree, self.header(saved, b"tree ")[0])

    def keep_reachable(self, run: str, name: str, commits: Iterable[str], message: str) -> None:
        """Save a commit with these parents under a ref of the run, so that they are not pruned."""
        who = f"ralph <ralph@localhost> {int(time.time())} +0000"
        parents = "".join(f"parent {commit}\n" for commit in commits)
        tree = self._objects.write(b"tree", b"")
        text = f"tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{message}\n"
        tied = self._objects.write(b"commit", text.encode("utf-8", "surrogateescape"))
        self._objects.flush()
        self.write_run_ref(run, name, tied)

    def find_saved_commit(self, run: str, name: str) -> str | None:
        """The commit of a ref of the run, if it exists."""
        saved = read_ref(self._index, run_ref_name(run, name))
        return saved if saved and is_object_id(saved) and self.has(saved) else None

    def write_run_ref(self, run: str, name: str, target: str) -> None:
        """Point a ref of the run at an object, durably."""
        write_ref(self._index, run_ref_name(run, name), target)
