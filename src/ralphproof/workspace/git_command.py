"""Git commands: safe repositories, options and environments, disabled filters, and git with the user's settings."""

from __future__ import annotations

import os

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders, is_object_id, read_regular_file
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.base.git_layout import GitFolders


NEVER_WRITTEN = frozenset(("hooks", "info", "modules", "lfs"))  # what nothing of ours writes to
RECURSIVE_FOLDERS = ("logs", "refs")  # written at every depth; the rest at the top alone, objects one folder deeper
OWN_REFS = ("refs", "refs/ralph")  # what a save writes to, besides objects


def refuse_unsafe_repository(root: str, folders: GitFolders) -> None:
    """Raise Refused where git would write elsewhere than into the repository."""
    if unsafe := find_unsafe_path(root, folders):
        raise Refused(describe_unsafe_path(unsafe))


def describe_unsafe_path(path: str) -> str:
    """The message about such a path."""
    return f"git would write elsewhere than into the repository: look at {path}, and remove it"


def find_unsafe_path(root: str, folders: GitFolders) -> str:
    """The first such path; empty where there is none."""
    tops = dict.fromkeys((folders.git_dir, folders.common))
    return find_foreign_git_dir(root, folders) or _first_unsafe(
        folders, (entry for top in tops for entry in _written_entries(top))
    )


def find_unsafe_snapshot_path(root: str, folders: GitFolders, run: str) -> str:
    """The same, only for what a snapshot writes to: objects, and our own refs."""
    common = folders.common
    places = [_list_entries(common, only=("objects", "refs")), _list_entries(os.path.join(common, "objects"))]
    places += [_list_entries(os.path.join(common, folder), only=("ralph", run)) for folder in OWN_REFS]
    return find_foreign_git_dir(root, folders) or _first_unsafe(folders, (entry for place in places for entry in place))


def _first_unsafe(folders: GitFolders, entries: Iterator[os.DirEntry[str]]) -> str:
    inside: tuple[str, ...] = ()
    for entry in entries:
        if entry.is_symlink():
            inside = inside or tuple(os.path.realpath(one) + "/" for one in (folders.git_dir, folders.common))
            if not os.path.realpath(entry.path).startswith(inside):
                return entry.path
        elif not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or _is_socket(entry)):
            return entry.path
    return ""


def _is_socket(entry: os.DirEntry[str]) -> bool:
    """Git's file system monitor has a socket in the repository; git neither blocks on it nor writes through it."""
    import stat

    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def find_foreign_git_dir(root: str, folders: GitFolders) -> str:
    """`.git`, where it is a link or a file that leads to the repository of another work tree."""
    entry = os.path.join(root, ".git")
    whole = os.path.isdir(entry) and not os.path.islink(entry)
    gone = not os.path.lexists(entry)  # which is another matter
    return "" if whole or gone or _belongs_to_work_tree(root, folders) else entry


def _belongs_to_work_tree(root: str, folders: GitFolders) -> bool:
    """Whether an outside repository belongs to this work tree: a worktree, a submodule, or a separate git dir."""
    common = os.path.realpath(folders.common)
    if folders.git_dir != folders.common:
        try:
            named = os.fsdecode(read_regular_file(os.fsencode(os.path.join(folders.git_dir, "gitdir"))).strip())
        except OSError:
            return False
        place = os.path.dirname(os.path.join(folders.git_dir, named))
        return os.path.realpath(place) == os.path.realpath(root) or not os.path.isfile(os.path.join(place, ".git"))
    settings = _read_config(common)
    if named := settings.get("worktree", ""):
        return os.path.realpath(os.path.join(common, named)) == os.path.realpath(root)
    # Otherwise it belongs to the folder that contains it, or to none.
    return os.path.basename(common) != ".git" and settings.get("bare") != "true"


def _read_config(common: str) -> dict[str, str]:
    """The settings of a repository, by the last part of their names."""
    try:
        text = os.fsdecode(read_regular_file(os.fsencode(os.path.join(common, "config"))))
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): rest.strip().strip('"') for name, _, rest in pairs}


def _written_entries(top: str) -> Iterator[os.DirEntry[str]]:
    yield from _list_entries(top)
    yield from _list_entries(os.path.join(top, "objects"))
    for name in RECURSIVE_FOLDERS:
        yield from _entries_below(os.path.join(top, name))


def _entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in _list_entries(folder, but=frozenset()):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries_below(entry.path)


def _list_entries(
    folder: str, only: tuple[str, ...] = (), but: frozenset[str] = NEVER_WRITTEN
) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listed:
            entries = [entry for entry in listed if entry.name in only or (not only and entry.name not in but)]
    except OSError:
        return []
    return sorted(entries, key=lambda entry: entry.name)


def find_git(environ: Mapping[str, str], root: str) -> str:
    """The git program; raises Refused where there is none. One inside the project is never used."""
    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    if git is None:
        raise Refused("git was not found in PATH")
    return git


def require_repository(root: str) -> GitFolders:
    """The folders of the repository whose work tree is `root`; raises Refused where it is none."""
    folders = git_folders(root)
    if folders is None:
        raise Refused(f"{root} is not the top of a git repository")
    return folders


# Git commands: options and environments, disabled filters, and git with the user's settings.


# Git variables that are passed on: the user's identity, their settings, and access to remotes. All others redirect git
# or change its output.
USER_GIT_VARIABLES = ("GIT_AUTHOR_", "GIT_COMMITTER_", "GIT_CONFIG", "GIT_SSH", "GIT_SSL_", "GIT_PROXY_COMMAND")


def user_git_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without variables that redirect git, and without prompts."""
    kept = {
        name: text
        for name, text in environ.items()
        if not name.startswith("GIT_") or name.startswith(USER_GIT_VARIABLES)
    }
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "", "SSH_ASKPASS_REQUIRE": "never",
                   "GIT_EDITOR": ":", "GIT_PAGER": "cat"}  # fmt: skip


def isolated_git_environment(environ: Mapping[str, str], git_dir: str, objects: str, root: str) -> dict[str, str]:
    """For internal git calls: no setting of the user or the repository applies."""
    return {
        "PATH": environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1", "GIT_LITERAL_PATHSPECS": "1", "GIT_PAGER": "cat",
        "GIT_DIR": git_dir, "GIT_OBJECT_DIRECTORY": objects, "GIT_WORK_TREE": root,
    }  # fmt: skip


# On the command line these override any configuration file. Literal pathspecs, because a file may be called `:!x`.
NO_HOOKS_OPTIONS = (
    "--literal-pathspecs", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat",
    "-c", "gc.auto=0", "-c", "maintenance.auto=false",
)  # fmt: skip


# Filters from the repository's own settings, which an agent can write. They are not run; those from the user's own
# settings (Git LFS, say) are.


CONFIG_FILES = ("config", "config.worktree")
LOCAL_SCOPES = ("local", "worktree")  # scopes that the repository has itself
FILTER_COMMANDS = ("clean", "smudge", "process")


def find_local_filters(git: str, root: str, folders: GitFolders, env: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The filters that the repository's own settings name, each with the commands from the user's settings for it.

    Git is run only if those settings mention filters at all.
    """
    if not _may_have_filters(folders):
        return {}
    argv = (git, "-C", root, *NO_HOOKS_OPTIONS, "config", "-z", "--show-scope", "--get-regexp", r"^filter\.")
    words = run_program(argv, env).out.decode("utf-8", "surrogateescape").split("\0")[:-1]
    local: dict[str, dict[str, str]] = {}
    user: dict[str, dict[str, str]] = {}
    for scope, setting in zip(words[::2], words[1::2], strict=False):
        key, _, text = setting.partition("\n")
        name, _, program = key.removeprefix("filter.").rpartition(".")
        if scope in LOCAL_SCOPES:
            local.setdefault(name, {})
        elif program in FILTER_COMMANDS:
            user.setdefault(name, {})[program] = text
    return {name: user.get(name, {}) for name in local}


def _may_have_filters(folders: GitFolders) -> bool:
    for place in {os.path.join(top, name) for top in (folders.git_dir, folders.common) for name in CONFIG_FILES}:
        try:
            text = read_regular_file(os.fsencode(place)).lower()
        except FileNotFoundError:
            continue
        except OSError:
            return True
        if b"filter" in text or b"include" in text:
            return True
    return False


def disabled_filters_environment(filters: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The environment in which git runs only the user's commands for these filters."""
    settings = [
        (f"filter.{name}.{program}", programs.get(program, ""))
        for name, programs in sorted(filters.items())
        for program in FILTER_COMMANDS
    ]
    settings += [(f"filter.{name}.required", "false") for name, programs in sorted(filters.items()) if not programs]
    variables = {f"GIT_CONFIG_KEY_{at}": key for at, (key, _) in enumerate(settings)}
    variables |= {f"GIT_CONFIG_VALUE_{at}": text for at, (_, text) in enumerate(settings)}
    return variables | {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}


USER_GIT_TIMEOUT_S = 120.0
ANSWER_CODES = (0, 1, 2)  # with any other code git did not look at all
FALLBACK_IDENTITY = ("ralph", "ralph@localhost")
# The user's identity on a machine without a configuration file.
IDENTITY_VARIABLES = tuple(f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))


class UserGit:
    """Git, with the user's settings, in the repository whose work tree is `root`. Never changes index, HEAD or files.

    `unused_filters` are configured in the repository only, and are not run.
    """

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = os.path.realpath(root)
        self.folders, self.git, self._environ = require_repository(self.root), find_git(environ, self.root), environ
        refuse_unsafe_repository(self.root, self.folders)
        above = os.path.dirname(self.root)  # a repository around ours is not ours
        self.env = user_git_environment(environ) | {"GIT_CEILING_DIRECTORIES": above, "GIT_OPTIONAL_LOCKS": "0"}
        filters = find_local_filters(self.git, self.root, self.folders, self.env)
        self.unused_filters = frozenset(name for name, programs in filters.items() if not programs)
        self.env |= disabled_filters_environment(filters)

    def run(
        self, *args: str, stdin: bytes = b"", good: tuple[int, ...] = (0,), env: Mapping[str, str] | None = None,
        timeout_s: float = USER_GIT_TIMEOUT_S,
    ) -> ProgramResult:  # fmt: skip
        """The result of a git command; raises Refused where its exit code is not in `good`."""
        argv = [self.git, "-C", self.root, *NO_HOOKS_OPTIONS, *args]
        reply = run_program(argv, {**self.env, **(env or {})}, stdin, timeout_s=timeout_s)
        if reply.code not in good:
            raise Refused(f"git {args[0]}: {reply.said or reply.code}")
        return reply

    def run_line(self, *args: str) -> str:
        """The output without its newline; empty where git found nothing. Raises Refused where git fails."""
        reply = self.run(*args, good=ANSWER_CODES)
        return reply.out.decode("utf-8", "surrogateescape").rstrip("\n") if reply.code == 0 else ""

    def resolve_commit(self, revision: str) -> str:
        """The id of a commit; empty where it does not exist."""
        commit = self.run_line("rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        return commit if is_object_id(commit) else ""

    def check_branch_name(self, name: str) -> None:
        """Raise Refused for an invalid branch name."""
        odd = name.startswith("-") or name == "HEAD" or "\0" in name
        if odd or self.run("check-ref-format", f"refs/heads/{name}", good=(0, 1)).code:
            raise Refused(f"{name!r} cannot be the name of a branch; say another one")

    def branch_commit(self, name: str) -> str:
        """The commit of a branch; empty where there is no such branch."""
        return self.resolve_commit(f"refs/heads/{name}")

    def find_checkout(self, name: str) -> str:
        """The work tree in which this branch is checked out; empty where it is in none."""
        place = ""
        for line in self.run_line("worktree", "list", "--porcelain").splitlines():
            key, _, rest = line.partition(" ")
            place = rest if key == "worktree" else place
            if key == "branch" and rest == f"refs/heads/{name}":
                return place
        return ""

    def commit(self, tree: str, parent: str | None, message: str, at: float | None = None) -> str:
        """Create a commit by the user that no ref names yet. With `at` as its date, the same input makes the same
        commit.
        """
        on = ("-p", parent) if parent else ()
        when = {} if at is None else dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"@{int(at)} +0000")
        who = self.identity_environment() | when
        text = message.encode("utf-8", "replace")
        reply = self.run("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *on, stdin=text, env=who)
        return reply.out.strip().decode()

    def identity(self) -> bytes:
        """The user and the time, in the format of a commit header."""
        return self.run("var", "GIT_COMMITTER_IDENT", env=self.identity_environment()).out.strip()

    def identity_environment(self) -> dict[str, str]:
        """Variables that name the user as author and committer."""
        name, email = self._user_identity()
        who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email}
        who |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
        return who | {key: self._environ[key] for key in IDENTITY_VARIABLES if self._environ.get(key)}

    def contains(self, after: str, before: str) -> bool:
        """Whether `before` is an ancestor of `after`."""
        return self.run("merge-base", "--is-ancestor", before, after, good=(0, 1)).code == 0

    def _user_identity(self) -> tuple[str, str]:
        """Name and email from the user's settings; the fallback unless both are set."""
        identity = self.run_line("config", "user.name"), self.run_line("config", "user.email")
        return identity if all(identity) else FALLBACK_IDENTITY

    def set_branch(self, name: str, commit: str, force: bool) -> None:
        """Point a branch at a commit. Git refuses a branch that is checked out."""
        move = ("--force",) if force else ()
        self.run("branch", "--no-track", *move, name, commit)


class GitFailed(HarnessFailed):
    """An internal git call failed."""
