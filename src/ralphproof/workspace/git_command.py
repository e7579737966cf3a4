"""Git commands: options and environments, disabled filters, and git with the user's settings."""

from __future__ import annotations

import os

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders, is_object_id, read_regular_file
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.unsafe_paths import refuse_unsafe_repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.base.git_layout import GitFolders


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
        folders, git = git_folders(self.root), find_program("git", environ.get("PATH", os.defpath), outside=self.root)
        if folders is None or git is None:
            raise Refused(f"{self.root}: no git repository, or no git")
        refuse_unsafe_repository(self.root, folders)
        self.folders, self.git, self._environ = folders, git, environ
        above = os.path.dirname(self.root)  # a repository around ours is not ours
        self.env = user_git_environment(environ) | {"GIT_CEILING_DIRECTORIES": above, "GIT_OPTIONAL_LOCKS": "0"}
        filters = find_local_filters(git, self.root, folders, self.env)
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
