"""Git as the user has it, for questions and for branches: with their settings, and without any hook."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.astray import refuse_astray
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call, find_program, plain_environment
from ralphproof.workspaces.layout import git_folders, is_id
from ralphproof.workspaces.local_filters import local_filters, without

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 120.0
NO_ANSWER = (0, 1, 2)  # with any other code git did not look at all
NOBODY = ("ralph", "ralph@localhost")
# What the user says of themselves on a machine without a file of settings.
WHO = tuple(f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL"))


class UsersGit:
    """The repository whose work tree begins at `root`. Nothing here touches the index, HEAD or files.

    `unused_filters` are set up in the repository alone, and are not run.
    """

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        self.root = os.path.realpath(root)
        folders, git = git_folders(self.root), find_program("git", environ.get("PATH", os.defpath), outside=self.root)
        if folders is None or git is None:
            raise Refused(f"{self.root}: no git repository, or no git")
        refuse_astray(self.root, folders)
        self.folders, self.git, self._given = folders, git, environ
        above = os.path.dirname(self.root)  # a repository around ours is not ours
        self.env = plain_environment(environ) | {"GIT_CEILING_DIRECTORIES": above, "GIT_OPTIONAL_LOCKS": "0"}
        filters = local_filters(git, self.root, folders, self.env)
        self.unused_filters = frozenset(name for name, programs in filters.items() if not programs)
        self.env |= without(filters)

    def ask(
        self, *args: str, stdin: bytes = b"", good: tuple[int, ...] = (0,), env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Reply:  # fmt: skip
        """What git answers; raises Refused where it ends with another code than a good one."""
        argv = [self.git, "-C", self.root, *NOTHING_RUNS, *args]
        reply = call(argv, {**self.env, **(env or {})}, stdin, timeout_s=timeout_s)
        if reply.code not in good:
            raise Refused(f"git {args[0]}: {reply.said or reply.code}")
        return reply

    def line(self, *args: str) -> str:
        """The answer in one line; empty where git has none. Raises Refused where git itself gives up, and says why."""
        reply = self.ask(*args, good=NO_ANSWER)
        return reply.out.decode("utf-8", "surrogateescape").rstrip("\n") if reply.code == 0 else ""

    def commit_of(self, revision: str) -> str:
        """The id of a commit; empty where it is not there."""
        found = self.line("rev-parse", "-q", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        return found if is_id(found) else ""

    def must_be_a_branch_name(self, name: str) -> None:
        """Raise Refused for what git does not take as the name of a branch."""
        odd = name.startswith("-") or name == "HEAD" or "\0" in name
        if odd or self.ask("check-ref-format", f"refs/heads/{name}", good=(0, 1)).code:
            raise Refused(f"{name!r} cannot be the name of a branch; say another one")

    def branch(self, name: str) -> str:
        """The commit that a branch names; empty where there is no such branch."""
        return self.commit_of(f"refs/heads/{name}")

    def checked_out(self, name: str) -> str:
        """The work tree in which this branch is checked out; empty where it is in none."""
        place = ""
        for line in self.line("worktree", "list", "--porcelain").splitlines():
            key, _, rest = line.partition(" ")
            place = rest if key == "worktree" else place
            if key == "branch" and rest == f"refs/heads/{name}":
                return place
        return ""

    def commit(self, tree: str, parent: str | None, message: str, at: float | None = None) -> str:
        """A commit by the user that no ref names yet, made now or `at` that time: then twice the same is one commit."""
        on = ("-p", parent) if parent else ()
        when = {} if at is None else dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), f"@{int(at)} +0000")
        who = self._signed() | when
        text = message.encode("utf-8", "replace")
        made = self.ask("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, *on, stdin=text, env=who)
        return made.out.strip().decode()

    def ident(self) -> bytes:
        """The user and the time, as a commit says who made it."""
        return self.ask("var", "GIT_COMMITTER_IDENT", env=self._signed()).out.strip()

    def _signed(self) -> dict[str, str]:
        name, email = self._who()
        who = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email}
        who |= {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}
        return who | {key: self._given[key] for key in WHO if self._given.get(key)}

    def holds(self, after: str, before: str) -> bool:
        """Whether a commit has another in its history."""
        return self.ask("merge-base", "--is-ancestor", before, after, good=(0, 1)).code == 0

    def _who(self) -> tuple[str, str]:
        """The user by their settings: both halves, or nobody."""
        found = self.line("config", "user.name"), self.line("config", "user.email")
        return found if all(found) else NOBODY

    def let(self, name: str, commit: str, force: bool) -> None:
        """Let a branch name a commit. Git itself refuses one that is checked out."""
        move = ("--force",) if force else ()
        self.ask("branch", "--no-track", *move, name, commit)
