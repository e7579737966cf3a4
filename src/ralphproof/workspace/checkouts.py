"""Checkouts: temporary ones in a repository of their own, and the worktrees of runs."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.errors import DiskFull, HarnessFailed, RalphError, Refused, TaskWrong, wrap_os_error
from ralphproof.base.files import FileLock, remove_tree, replace_file
from ralphproof.base.git_layout import GitFolders, git_folders, is_object_id, read_if_there, read_regular_file
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.engine.workspace import Snapshot
from ralphproof.workspace.commits import choose_staged_paths, list_raw_changes
from ralphproof.workspace.git_command import (
    NO_HOOKS_OPTIONS,
    UserGit,
    find_git,
    isolated_git_environment,
    require_repository,
    user_git_environment,
)

# The folder of a project's clean checkouts: one at a time, always at the same path.


TREE_FOLDER, STATE_FILE, CACHE_FOLDER, REMOVED_PREFIX = "tree", "state.json", "cache", "removed-"


@value
class CheckoutState:
    """The checkout in the folder: for which check it was made, the number of this attempt, and whether setup was run.

    `cache_names` are the names of its dependency cache entries, computed before any command ran in it.
    """

    owner: str
    number: int
    prepared: bool = False
    cache_names: tuple[str, ...] = ()


class CheckoutFolder:
    """A private folder with one checkout of the repository at `root` at a time, always at the same path.

    A checkout is removed by a rename, so that it is never half removed. Beside it lies a cache of what the `setup`
    commands made, unless `cached` is false.
    """

    def __init__(
        self, folder: str, root: str, environ: Mapping[str, str], setup: tuple[str, ...] = (), cached: bool = True
    ) -> None:
        self.folder, self.tree = folder, os.path.join(folder, TREE_FOLDER)
        self._root, self._environ, self._setup = root, environ, setup
        self._cache = DependencyCache(folder, setup, environ) if setup and cached else None

    @property
    def state(self) -> CheckoutState | None:
        """The checkout in the folder; None where there is none, or its state file cannot be read."""
        try:
            with open(os.path.join(self.folder, STATE_FILE), encoding="utf-8") as file:
                state = unpack(json.loads(file.read(1 << 16)))
        except (OSError, ValueError, TypeError):
            return None
        whole = isinstance(state, CheckoutState) and os.path.isdir(os.path.join(self.tree, ".git"))
        return state if whole else None

    def create(self, work: str | PendingWork, owner: str = "", number: int = 1) -> CheckoutState:
        """Replace the checkout by one of a commit, a tree or a run's pending work; `prepared` where the cache has what
        setup makes.
        """
        self.clear()
        if isinstance(work, PendingWork):
            check_out_pending_work(self._root, work, self.tree, self._environ)
        else:
            check_out(self._root, work, self.tree, self._environ)
        state = CheckoutState(owner, number, prepared=not self._setup)
        if self._cache:
            repository = self._repository()
            names = self._cache.entry_names(repository)
            state = replace(state, prepared=self._cache.restore(repository, names), cache_names=names)
        self._save_state(state)
        return state

    def setup_done(self) -> None:
        """Note that the setup commands succeeded in the checkout, and cache what they made."""
        if (state := self.state) is None:
            return
        if self._cache:
            try:
                self._cache.save(self._repository(), state.cache_names)
            except HarnessFailed:
                pass  # the cache only saves time
        self._save_state(replace(state, prepared=True))

    def clear(self) -> None:
        """Remove the checkout, and the remains of earlier ones."""
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if os.path.lexists(self.tree):
                os.rename(self.tree, os.path.join(self.folder, REMOVED_PREFIX + os.urandom(4).hex()))
            if os.path.lexists(note := os.path.join(self.folder, STATE_FILE)):
                os.unlink(note)
            gone = [name for name in os.listdir(self.folder) if name.startswith(REMOVED_PREFIX)]
        except OSError as error:
            raise wrap_os_error(error) from error
        for name in gone:
            remove_tree(os.path.join(self.folder, name))

    def remove(self) -> None:
        """Remove everything but the dependency cache."""
        if not os.path.isdir(self.folder):
            return
        self.clear()
        if not os.listdir(self.folder):
            os.rmdir(self.folder)

    def _repository(self) -> CheckoutRepository:
        return CheckoutRepository(SourceRepository(self._root, self._environ), self.tree, self._environ)

    def _save_state(self, state: CheckoutState) -> None:
        try:
            replace_file(os.path.join(self.folder, STATE_FILE), json.dumps(pack(state)).encode(), durable=False)
        except OSError as error:
            raise wrap_os_error(error) from error


# A checkout of a commit: a repository that shares the objects of the source and nothing else.


CHECKOUT_TIMEOUT_S = 600.0
MAX_ALTERNATES_DEPTH = 6  # so deep git follows from one object folder to the next
# Names that another system could not store are valid on this one. Missing objects are not fetched.
CHECKOUT_OPTIONS = ("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", "-c", "protocol.allow=never")
# A commit needs an author. The date is one that archives can store.
IDENTITY_ENVIRONMENT = {
    f"GIT_{who}_{what}": text
    for who in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "ralph"), ("EMAIL", "ralph@localhost"), ("DATE", "946684800 +0000"))
}


def resolve_tree(root: str, revision: str, environ: Mapping[str, str]) -> str | None:
    """The tree id of a commit or tree in the repository at `root`; None where it does not exist.

    Nothing that the repository configures is executed.
    """
    if git_folders(root) is None or revision.startswith("-"):
        return None
    return SourceRepository(root, environ).resolve(f"{revision}^{{tree}}")


def check_out(root: str, revision: str, place: str, environ: Mapping[str, str]) -> None:
    """Create a git repository at `place` with exactly the files of this commit or tree of the repository at `root`.

    HEAD is the commit, and tags are there. No setting of the source applies, none of its hooks or filters run, and
    nothing is written to it: a process that is killed leaves only `place` behind. The objects of the source are needed
    as long as `place` is used. Folders of submodules are empty. Files are as git checks them out without filters: LFS
    pointers stay pointers. Raises Refused where git or the revision is missing, or `place` is not empty.
    """
    source = SourceRepository(root, environ)
    checkout = CheckoutRepository(source, place, environ)
    tree = source.resolve(f"{revision}^{{tree}}")
    if tree is None:
        raise Refused(f"{revision} is no commit or tree of the repository at {source.root}")
    checkout.create()
    checkout.check_out(tree, source.resolve(f"{revision}^{{commit}}") or checkout.commit_tree(tree, None))


class SourceRepository:
    """A repository that is only read; its settings do not apply."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        """Raises Refused where there is no repository, or no git."""
        self.root = os.path.realpath(root)
        self.folders, self.git = require_repository(self.root), find_git(environ, self.root)
        self._env = isolated_git_environment(environ, self.folders.git_dir, self.folders.objects, self.root)

    def resolve(self, revision: str) -> str | None:
        """The id that a revision names; None where there is none."""
        if revision.startswith("-") or "\0" in revision:
            return None
        object_id = self.run("rev-parse", "-q", "--verify", revision).out.strip().decode("ascii", "replace")
        return object_id if is_object_id(object_id) else None

    def run(self, *args: str) -> ProgramResult:
        return run_program(
            (self.git, "-C", self.root, *NO_HOOKS_OPTIONS, *CHECKOUT_OPTIONS, *args),
            self._env,
            timeout_s=CHECKOUT_TIMEOUT_S,
        )

    @property
    def tags(self) -> bytes:
        """All tags, in the format of `packed-refs`."""
        return self.run("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags").out


def object_folders(folders: GitFolders) -> tuple[str, ...]:
    """The object folders of a repository: its own, and its alternates."""
    folders_found, next_ones = [folders.objects], [folders.objects]
    for _ in range(MAX_ALTERNATES_DEPTH):
        next_ones = [one for folder in next_ones for one in _alternates(folder) if one not in folders_found]
        folders_found += next_ones
    return tuple(dict.fromkeys(folders_found))


def _alternates(objects: str) -> list[str]:
    try:
        lines = read_regular_file(os.fsencode(os.path.join(objects, "info", "alternates"))).splitlines()
    except OSError:
        return []
    paths = [os.path.join(objects, os.fsdecode(_unquote(line))) for line in lines if line and not line.startswith(b"#")]
    return [os.path.realpath(path) for path in paths if os.path.isdir(path)]


def _unquote(line: bytes) -> bytes:
    if not (line.startswith(b'"') and line.endswith(b'"')):
        return line
    try:
        return line[1:-1].decode("unicode_escape").encode("latin-1")
    except ValueError:
        return line  # git wrote no such line


def _quote(path: str) -> bytes:
    data = os.fsencode(path)
    if not data.startswith((b'"', b"#")) and b"\n" not in data:
        return data
    return b'"%s"' % data.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


class CheckoutRepository:
    """A repository at `place` that borrows the objects of another one."""

    def __init__(self, source: SourceRepository, place: str, environ: Mapping[str, str]) -> None:
        self._source, self.place = source, os.path.abspath(place)
        self.git_dir = os.path.join(self.place, ".git")
        self._env = isolated_git_environment(environ, self.git_dir, os.path.join(self.git_dir, "objects"), self.place)

    def create(self) -> None:
        """Create the repository without files. Raises Refused where the folder is not empty."""
        try:
            os.makedirs(self.place, exist_ok=True)
            if os.listdir(self.place):
                raise Refused(f"{self.place} is not empty, and a checkout needs a folder of its own; name another one")
            self._create()
        except OSError as error:
            raise wrap_os_error(error) from error

    def _create(self) -> None:
        folders = self._source.folders
        named = ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_WORK_TREE")  # git would note them as settings
        env = {name: text for name, text in self._env.items() if name not in named}
        wide = (f"--object-format={folders.algorithm}",) if folders.algorithm != "sha1" else ()
        argv = (self._source.git, *NO_HOOKS_OPTIONS, "init", "-q", "--template=", *wide, self.place)
        require_success(
            run_program(argv, env | {"GIT_DEFAULT_REF_FORMAT": "files", "GIT_DEFAULT_HASH": "sha1"}), "init"
        )
        self._write_file("objects/info/alternates", b"".join(_quote(one) + b"\n" for one in object_folders(folders)))
        self._write_file("packed-refs", self._source.tags)
        try:
            self._write_file("shallow", read_regular_file(os.fsencode(os.path.join(folders.common, "shallow"))))
        except FileNotFoundError:
            pass  # its history is whole

    def _write_file(self, name: str, data: bytes) -> None:
        path = os.path.join(self.git_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def commit_tree(self, tree: str, parent: str | None) -> str:
        """Create a commit of a tree; it is stored in this repository only."""
        before = ("-p", parent) if parent else ()
        return (
            self.run("commit-tree", *before, "-m", "a clean checkout", tree, more=IDENTITY_ENVIRONMENT)
            .out.strip()
            .decode()
        )

    def check_out(self, tree: str, commit: str) -> None:
        """Write the files of the tree; HEAD becomes this commit."""
        self.run("read-tree", "--reset", "-u", tree)
        try:
            self._write_file("HEAD", commit.encode() + b"\n")
        except OSError as error:
            raise wrap_os_error(error) from error

    def remove_file(self, path: bytes) -> None:
        try:
            os.unlink(os.path.join(os.fsencode(self.place), path))
        except OSError as error:
            raise wrap_os_error(error) from error

    @property
    def index_tree(self) -> str:
        """The tree of its index."""
        return self.run("write-tree").out.strip().decode()

    def run(
        self, *args: str, stdin: bytes = b"", more: dict[str, str] | None = None, good: tuple[int, ...] = (0,),
        work_tree: str = "",
    ) -> ProgramResult:  # fmt: skip
        """Run git in this repository, or with it over the files of another folder; raises where git fails."""
        files = work_tree or self.place
        argv = (self._source.git, "-C", files, *NO_HOOKS_OPTIONS, *CHECKOUT_OPTIONS, *args)
        reply = run_program(
            argv, self._env | {"GIT_WORK_TREE": files} | (more or {}), stdin, timeout_s=CHECKOUT_TIMEOUT_S
        )
        return require_success(reply, args[0], good)


def require_success(reply: ProgramResult, what: str, good: tuple[int, ...] = (0,)) -> ProgramResult:
    """The result of a git command that succeeded; raises DiskFull or HarnessFailed with git's message."""
    if reply.code in good:
        return reply
    full = b"No space left on device" in reply.err or b"Disk quota exceeded" in reply.err
    raise (DiskFull if full else HarnessFailed)(f"a clean checkout failed: git {what}: {reply.said or reply.code}")


# A cache of what setup created in a checkout: dependencies, as long as the files that determine them are the same.
#
# What was built from the project's own files is reused for the very same tree only.


MANIFESTS = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml", "yarn.lock",
    "bun.lock", "bun.lockb", ".npmrc", ".yarnrc*", "pyproject.toml", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile*",
    "requirements*.txt", "constraints*.txt", "setup.py", "setup.cfg", "Cargo.toml", "Cargo.lock", "go.mod", "go.sum",
    "Gemfile*", "*.gemspec", "composer.json", "composer.lock", "mix.exs", "mix.lock", ".python-version", ".nvmrc",
    ".node-version", ".tool-versions",
)  # fmt: skip
MAKEFILES = ("Makefile", "makefile", "GNUmakefile", "*.mk")
WORD_SEPARATORS = r"[\s'\"`;&|()<>=]+"  # a file that a command names decides over what it makes
# Folders that contain dependencies only: their content follows from the manifests.
DEPENDENCIES = ("node_modules", ".venv", "venv", ".yarn", ".pnpm-store", "vendor", ".bundle", "deps", "*.egg-info")
ANY_TREE, ONE_TREE = "any", "one"  # what is kept for all trees with these manifests, and for one tree
MAX_ENTRIES, PARTIAL_PREFIX, COPY_TIMEOUT_S = 2, ".half-", 1800.0
PIP_DIRECT_URL = b"direct_url.json"  # pip notes in it where a package came from


class DependencyCache:
    """At most two entries in a private folder. An entry that was not written completely is never used."""

    def __init__(self, folder: str, setup: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self._folder, self._setup, self._environ = os.path.join(folder, CACHE_FOLDER), setup, environ

    def entry_names(self, checkout: CheckoutRepository) -> tuple[str, ...]:
        """Names of the cache entries for a checkout: one for all trees with the same manifests, one for its tree.

        Call it before any command runs in the checkout, which could make the files look like others.
        """
        tree = checkout.run("rev-parse", "HEAD^{tree}").out.strip().decode()
        listed = checkout.run("ls-tree", "-r", "-z", tree).out.split(b"\0")
        entries = (entry.split(b"\t", 1) for entry in listed if entry)
        words = {word.removeprefix("./") for command in self._setup for word in re.split(WORD_SEPARATORS, command)}
        files = (*MANIFESTS, *(MAKEFILES if "make" in words else ()))
        known = [(path, about) for about, path in entries if _matches(path, files) or os.fsdecode(path) in words]
        return _entry_name(ANY_TREE, (self._setup, known)), _entry_name(ONE_TREE, (self._setup, tree))

    def restore(self, checkout: CheckoutRepository, names: tuple[str, ...]) -> bool:
        """Copy a matching entry into a fresh checkout; False where there is none."""
        entry = next((path for name in names if os.path.isdir(path := os.path.join(self._folder, name))), "")
        if not entry:
            return False
        try:
            paths = list(_paths_below(entry, read_regular_file(os.fsencode(os.path.join(entry, "paths"))).split(b"\0")))
            if not all(_is_free(checkout.place, path) for _, path in paths):
                return False
            self._copy(paths, os.fsencode(checkout.place))
            os.utime(entry)  # those that are used stay
        except OSError as error:
            raise wrap_os_error(error) from error
        return True

    def save(self, checkout: CheckoutRepository, names: tuple[str, ...]) -> None:
        """Store what setup created beside the tracked files: under the first name if it is dependencies only, else the
        second.
        """
        listed = checkout.run("ls-files", "-z", "--others", "--directory").out.split(b"\0")
        paths = sorted(path.rstrip(b"/") for path in listed if path)
        if not paths:
            return  # whatever it made lies elsewhere, and is of this tree
        foreign = all(_matches(path, DEPENDENCIES) for path in paths) and not _has_own_code(checkout.place, paths)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            self._remove_partial()
            half = self._copy_partial(os.fsencode(checkout.place), paths)
            os.sync()  # else a loss of power could leave empty files in what looks whole
            remove_tree(whole := os.path.join(self._folder, names[0] if foreign else names[1]))
            os.rename(half, whole)
            self._remove_oldest()
        except OSError as error:
            raise wrap_os_error(error) from error
        finally:
            self._remove_partial()

    def _copy_partial(self, place: bytes, paths: list[bytes]) -> str:
        """Copy these paths into an entry that is not visible yet."""
        half = os.path.join(self._folder, f"{PARTIAL_PREFIX}{os.getpid()}")
        os.makedirs(files := os.path.join(half, "files"))
        self._copy([(os.path.join(place, path), path) for path in paths], os.fsencode(files))
        with open(os.path.join(half, "paths"), "wb") as file:
            file.write(b"\0".join(paths))
        return half

    def _remove_partial(self) -> None:
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if name.startswith(PARTIAL_PREFIX):
                remove_tree(os.path.join(self._folder, name))

    def _copy(self, paths: Iterable[tuple[bytes, bytes]], place: bytes) -> None:
        """Copies, so that changes of one do not reach the other. Links stay links."""
        program = find_program("cp", self._environ.get("PATH", os.defpath), outside="") or "/bin/cp"
        for source, path in paths:
            target = os.path.join(place, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            env = {"PATH": self._environ.get("PATH", os.defpath), "LC_ALL": "C"}
            reply = run_program((program, "-a", "--", source, target), env, timeout_s=COPY_TIMEOUT_S)
            if reply.code != 0:
                full = b"No space left" in reply.err or b"quota exceeded" in reply.err
                raise (DiskFull if full else HarnessFailed)(f"cannot copy what setup made: {reply.said}")

    def _remove_oldest(self) -> None:
        paths = [os.path.join(self._folder, name) for name in os.listdir(self._folder)]
        for path in sorted(paths, key=lambda path: os.stat(path).st_mtime_ns, reverse=True)[MAX_ENTRIES:]:
            remove_tree(path)


def _entry_name(kind: str, inputs: object) -> str:
    return f"{kind}-{hashlib.sha256(repr(inputs).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _paths_below(entry: str, paths: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    files = os.path.join(os.fsencode(entry), b"files")
    return ((os.path.join(files, path), path) for path in paths if path)


def _is_free(place: str, path: bytes) -> bool:
    """Whether nothing exists at the path and its parents are real folders: a link could lead anywhere."""
    *above, _ = path.split(b"/")
    at = os.fsencode(place)
    for name in above:
        at = os.path.join(at, name)
        if os.path.islink(at) or not os.path.isdir(at):
            return not os.path.lexists(at)
    return not os.path.lexists(os.path.join(os.fsencode(place), path))


def _matches(path: bytes, names: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(os.fsdecode(os.path.basename(path)), one) for one in names)


def _has_own_code(place: str, paths: Iterable[bytes]) -> bool:
    """Whether pip installed a copy of the checkout itself: it then contains the files of this tree."""
    from urllib.parse import quote

    here = f"file://{quote(place)}".encode()
    for path in paths:
        if path.endswith(b"node_modules"):
            continue
        for folder, _, files in os.walk(os.path.join(os.fsencode(place), path)):
            if folder.endswith(b".dist-info") and PIP_DIRECT_URL in files:
                note = read_if_there(os.path.join(folder, PIP_DIRECT_URL), 1 << 16) or b""
                if here in note and b'"editable": true' not in note:
                    return True
    return False


# A checkout of what a run would commit: the last commit, and the changes of the run since it began.


USER_INDEX_COMMANDS = ("ls-files", "check-ignore")  # of their index, and of their rules of what is ignored
DELETED_MODE = b"000000"


@value
class PendingWork:
    """Work that a commit would contain: all changes from `began` to `now` that are not the user's own `user_paths`."""

    began: Snapshot
    now: Snapshot
    user_paths: frozenset[str] = frozenset()


def check_out_pending_work(root: str, work: PendingWork, place: str, environ: Mapping[str, str]) -> str:
    """Check out the commit that the run's work would become, as `check_out` does. Returns the id of its tree.

    Commit and tree are created in `place` only. A file that the commit leaves out is as in HEAD, or missing.
    """
    began, now = work.began.tree, work.now.tree
    if began is None or now is None:
        raise Refused(f"the work was not saved: {work.now.problem or work.began.problem or 'its tree is unknown'}")
    source = SourceRepository(root, environ)
    checkout = CheckoutRepository(source, place, environ)
    checkout.create()
    empty = checkout.run("hash-object", "-t", "tree", "-w", "--stdin").out.strip().decode()
    base = work.now.head or empty
    chosen = choose_staged_paths(
        _UserRepositoryQuery(source, checkout, environ), source.root, work.began, work.now, empty, work.user_paths
    )
    wanted = {*chosen.add, *chosen.remove}
    changes = [change for change in list_raw_changes(checkout.run, base, now) if change.path in wanted]
    checkout.run("read-tree", base)
    lines = b"".join(change.index_line for change in changes)
    checkout.run("update-index", "--replace", "-z", "--index-info", stdin=lines)
    return _check_out_index(
        checkout, work.now.head, [change.path for change in changes if change.new_mode != DELETED_MODE]
    )


def _check_out_index(checkout: CheckoutRepository, head: str | None, paths: list[bytes]) -> str:
    """Write the files of the index. These paths were saved as raw bytes, and are converted as a commit would."""
    tree = _commit_index(checkout, head)
    if not paths:
        return tree
    checkout.run("add", "--renormalize", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=b"\0".join(paths))
    for change in list_raw_changes(checkout.run, tree, checkout.index_tree):
        checkout.remove_file(change.path)  # else git takes it for what it would write
    return tree if checkout.index_tree == tree else _commit_index(checkout, head)


def _commit_index(checkout: CheckoutRepository, head: str | None) -> str:
    tree = checkout.index_tree
    checkout.check_out(tree, checkout.commit_tree(tree, head))
    return tree


class _UserRepositoryQuery:
    """Runs git about the user's files with nothing of theirs but index and ignore rules: no filter is executed."""

    def __init__(self, source: SourceRepository, checkout: CheckoutRepository, environ: Mapping[str, str]) -> None:
        self._source, self._fresh = source, checkout
        self._env = user_git_environment(environ) | {
            "GIT_DIR": source.folders.git_dir, "GIT_WORK_TREE": source.root, "GIT_OPTIONAL_LOCKS": "0",
        }  # fmt: skip

    def __call__(self, *args: str, stdin: bytes = b"", good: tuple[int, ...] = (0,)) -> ProgramResult:
        if args[0] not in USER_INDEX_COMMANDS:
            return self._fresh.run(*args, stdin=stdin, good=good, work_tree=self._source.root)
        argv = (self._source.git, "-C", self._source.root, *NO_HOOKS_OPTIONS, *CHECKOUT_OPTIONS, *args)
        return require_success(run_program(argv, self._env, stdin, timeout_s=CHECKOUT_TIMEOUT_S), args[0], good)


# Git worktrees of runs, each on a branch of its own, and repositories nested in them.


# Repositories nested in a work tree, submodules and others, which would be removed with it.


MAX_NESTING, MAX_LISTED = 5, 10
SUBMODULE_MODE = b"160000 "
OFFLINE_OPTIONS = ("-c", "protocol.allow=never", "-c", "core.commitGraph=false")  # nothing is fetched that is not there
REV_LIST_COMMAND = ("rev-list", "--max-count=1", "--ignore-missing")


def find_unshared_repositories(place: str, base: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Repositories below a work tree with commits that neither a remote of theirs nor the commit `base` contains.

    Ignored ones are left out. One that cannot be read counts as having some.
    """
    top = os.path.realpath(place)
    names: list[str] = []
    for path in _nested_repositories(top, environ, MAX_NESTING):
        name = os.path.relpath(path, top)
        known = UserGit(top, environ).run_line("rev-parse", "-q", "--verify", "--end-of-options", f"{base}:{name}")
        if len(names) < MAX_LISTED and _has_own_commits(path, known, environ):
            names.append(name)
    return tuple(names)


def _nested_repositories(place: str, environ: Mapping[str, str], deepest: int) -> Iterator[str]:
    """The repositories in a work tree, recursively."""
    if not deepest or git_folders(place) is None:
        return
    git = UserGit(place, environ)
    linked = (row.partition(b"\t")[2] for row in _listed_rows(git, "-s") if row.startswith(SUBMODULE_MODE))
    others = (row.rstrip(b"/") for row in _listed_rows(git, "-o", "--exclude-standard") if row.endswith(b"/"))
    for name in sorted({*linked, *others}):
        path = os.path.join(place, os.fsdecode(name))
        if os.path.lexists(os.path.join(path, ".git")):
            yield path
            yield from _nested_repositories(path, environ, deepest - 1)


def _listed_rows(git: UserGit, *which: str) -> list[bytes]:
    return git.run("ls-files", "-z", *which, good=(0, 128)).out.split(b"\0")


def _has_own_commits(path: str, known: str, environ: Mapping[str, str]) -> bool:
    """Whether branches, HEAD or stashes contain more than remotes and a known commit."""
    but = ("--not", "--remotes", *([known] if is_object_id(known) else []), "--")
    tips = (("--branches", "--glob=refs/stas[h]"), ("HEAD",))
    try:
        git = UserGit(path, environ)
        return any(git.run(*OFFLINE_OPTIONS, *REV_LIST_COMMAND, *tip, *but, good=(0, 128)).out for tip in tips)
    except Refused:
        return True


# Worktrees of runs, each on a branch of its own. The user's checkout is not touched.


BRANCH_PREFIX = "ralph/"
WORKTREE_TIMEOUT_S = 900.0  # a large checkout, with filters
DISK_FULL_MESSAGES = (b"No space left on device", b"Disk quota exceeded", b"unable to write file")  # in git's own words
NOTE_SUFFIX, LOCK_FILE, MAX_NAMES = ".json", "lock", 1000
SETTINGS_FOLDER = ".ralph"
COPIED_SETTINGS = (
    "settings.json",
    "settings.local.json",
    "skills",
    "templates",
)  # what a run goes by, committed or not


@value
class RunWorktree:
    """A worktree of a run. `base` is its first commit, `branch` its branch, `source` the user's work tree."""

    name: str
    path: str
    branch: str
    base: str
    source: str


class RunWorktrees:
    """The run worktrees of the repository at `root`, in the private `folder`, with a note file for each.

    A worktree without a note was never returned to a caller, so it contains no work. Several processes may use this at
    once.
    """

    def __init__(self, root: str, folder: str, environ: Mapping[str, str]) -> None:
        """Raises Refused where `root` is not the top of a git repository."""
        self._git, self._folder = UserGit(root, environ), os.path.realpath(folder)
        self._env = user_git_environment(environ)

    @property
    def root(self) -> str:
        """The user's work tree."""
        return self._git.root

    def list_all(self) -> tuple[RunWorktree, ...]:
        """All existing run worktrees, by name."""
        if not os.path.isdir(self._folder):
            return ()
        names = sorted(
            name.removesuffix(NOTE_SUFFIX) for name in os.listdir(self._folder) if name.endswith(NOTE_SUFFIX)
        )
        return tuple(one for name in names if (one := self.find(name)) is not None)

    def find(self, name: str) -> RunWorktree | None:
        """The worktree with this name; None where there is none, or its folder is gone."""
        try:
            with open(self._note_path(name), encoding="utf-8") as file:
                worktree = unpack(json.loads(file.read(1 << 16)))
        except (OSError, ValueError, TypeError):
            return None
        if not isinstance(worktree, RunWorktree) or not os.path.lexists(os.path.join(self._folder, name, ".git")):
            return None
        return replace(worktree, name=name, path=os.path.join(self._folder, name))

    def create(self, name: str, base: str) -> RunWorktree:
        """Create a worktree at this commit, or nothing on failure; an existing one of this name is returned."""
        with self._lock():
            if known := self.find(name):
                return known
            commit = self._git.resolve_commit(base)
            if not commit:
                raise Refused(f"{base} is no commit, and a worktree needs one to begin on; commit something first")
            place, branch = os.path.join(self._folder, name), self._free_branch(name)
            if os.path.lexists(self._note_path(name)) and os.path.lexists(place):
                raise TaskWrong(f"{place} was a worktree, and has no .git any more; take what you need, remove it")
            self._clear(place)
            worktree = RunWorktree(name, place, branch, commit, self._git.root)
            try:
                self._add(worktree)
            except RalphError:
                self._clear(place)
                self._git.run("update-ref", "-d", f"refs/heads/{branch}", commit, good=(0, 1, 128))
                raise
            return worktree

    def _add(self, worktree: RunWorktree) -> None:
        self._run_git("worktree", "add", "--quiet", "--no-track", "-b", worktree.branch, worktree.path, worktree.base)
        self._copy_settings(worktree.path)
        self._write_note(worktree)

    def remove(self, worktree: RunWorktree, branch: bool = False) -> None:
        """Remove its files; with `branch` its branch too: the caller knows that its commits are elsewhere."""
        with self._lock():
            tip = self._git.branch_commit(worktree.branch) if branch else ""
            remove_tree(self._note_path(worktree.name), strict=True)
            self._clear(worktree.path)
            if tip:
                self._git.run("update-ref", "-d", f"refs/heads/{worktree.branch}", tip, good=(0, 1, 128))

    def _free_branch(self, name: str) -> str:
        """An unused branch name: the plain one may be the work of an earlier run, or the user's."""
        for number in range(1, MAX_NAMES):
            branch = f"{BRANCH_PREFIX}{name}" if number == 1 else f"{BRANCH_PREFIX}{name}-{number}"
            if not self._git.run_line("for-each-ref", "--count=1", f"refs/heads/{branch}"):  # nor one below it
                return branch
        raise Refused(f"there are {MAX_NAMES} branches {BRANCH_PREFIX}{name}-…; delete those that you do not need")

    def _clear(self, place: str) -> None:
        """Remove the worktree at this path, from disk and from git's list."""
        forget = ("worktree", "remove", "--force", "--force", place)  # a prune would forget the user's own as well
        forgot = self._git.run(*forget, good=tuple(range(256))).code == 0
        remove_tree(place)
        if os.path.lexists(place):
            raise HarnessFailed(f"{place} could not be removed; remove it by hand")
        if not forgot:
            self._git.run(*forget, good=tuple(range(256)))

    def _copy_settings(self, place: str) -> None:
        """Copy settings that are not committed: they are not part of the tree, nor of the work."""
        source, target = os.path.join(self._git.root, SETTINGS_FOLDER), os.path.join(place, SETTINGS_FOLDER)
        try:
            for name in COPIED_SETTINGS:
                mine, theirs = os.path.join(source, name), os.path.join(target, name)
                if os.path.lexists(theirs) or os.path.islink(mine):
                    continue
                if os.path.isdir(mine):
                    shutil.copytree(mine, theirs, symlinks=True)
                elif os.path.isfile(mine):
                    os.makedirs(target, exist_ok=True)
                    shutil.copy2(mine, theirs)
        except (OSError, shutil.Error) as error:
            raise HarnessFailed(f"{source} could not be copied to {target}: {error}") from error

    def _write_note(self, worktree: RunWorktree) -> None:
        try:
            replace_file(self._note_path(worktree.name), json.dumps(pack(worktree)).encode())
        except OSError as error:
            raise wrap_os_error(error) from error

    def _note_path(self, name: str) -> str:
        return os.path.join(self._folder, name + NOTE_SUFFIX)

    def _run_git(self, *args: str) -> None:
        argv = (self._git.git, "-C", self._git.root, *NO_HOOKS_OPTIONS, *args)
        reply = run_program(argv, self._env | {"LC_ALL": "C"}, timeout_s=WORKTREE_TIMEOUT_S)
        if reply.code and any(words in reply.err for words in DISK_FULL_MESSAGES):
            where = f"no space is left in {self._folder} for a worktree, or it may not be written"
            raise DiskFull(f"{where}; make room, or set RALPH_STATE_DIR to another disk")
        if reply.code:
            raise Refused(f"git {' '.join(args[:2])}: {reply.said or reply.code}")

    def _lock(self) -> FileLock:
        """Only one process at a time changes git's list of worktrees."""
        return FileLock(os.path.join(self._folder, LOCK_FILE), remedy="set RALPH_STATE_DIR to a directory of yours")


def has_unshared_commits(worktree: RunWorktree, environ: Mapping[str, str], branch: bool) -> bool:
    """Whether commits would become unreachable with this worktree; with `branch`, with its branch as well."""
    home, there = UserGit(worktree.source, environ), UserGit(worktree.path, environ)
    tips = {there.resolve_commit("HEAD"), home.branch_commit(worktree.branch) if branch else ""} - {""}
    but = (f"--exclude=refs/heads/{worktree.branch}",) if branch else ()
    others = ("--not", "--single-worktree", *but, "--all", "--")
    return bool(tips and home.run_line("rev-list", "--max-count=1", *sorted(tips), *others))


def differing_settings(root: str, place: str) -> Iterator[str]:
    """Committed settings files that differ in the user's checkout: the worktree has the committed version."""
    name = f"{SETTINGS_FOLDER}/{COPIED_SETTINGS[0]}"
    mine, theirs = (read_if_there(os.fsencode(os.path.join(folder, name)), 1 << 20) for folder in (root, place))
    if mine is not None and theirs is not None and mine != theirs:
        yield name
