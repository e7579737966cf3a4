"""Rules on git: destroyed history or uncommitted work, and pushes."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import fits, shown
from ralphproof.guard.nest import git_words
from ralphproof.guard.place import spot, zone
from ralphproof.guard.simple import UNKNOWN, Simple, has, split
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.verdict import Ground

HARD = Rule(
    "git-reset-hard", "git-history", "throws uncommitted work away, and commits with it",
    "commit first; undo with `git revert`, or `git restore FILE` for one file",
)  # fmt: skip
CLEAN = Rule(
    "git-clean", "git-history", "deletes files that git does not know",
    "look with `git clean -n`, and delete by name",
)  # fmt: skip
DISCARD = Rule(
    "git-discard", "git-history", "throws all uncommitted changes away",
    "name single files, or commit first",
)  # fmt: skip
STASH = Rule("git-stash-drop", "git-history", "throws stashed work away", "leave it in the stash, or `git stash pop`")
EXPIRE = Rule("git-expire", "git-history", "deletes what git could still bring back", "leave it to git's own schedule")
REWRITE = Rule("git-rewrite", "git-history", "rewrites the whole history", "add commits that put it right")
BRANCH = Rule(
    "git-branch-delete", "git-history", "deletes a branch that is not merged",
    "use `git branch -d`, which checks that",
)  # fmt: skip
REF = Rule("git-ref", "git-history", "moves or deletes a reference past all checks", "use `git branch` or `git merge`")
WORKTREE = Rule(
    "git-worktree-force", "git-history", "deletes a working tree with changes in it",
    "commit them first, without --force",
)  # fmt: skip
FORCE = Rule(
    "git-push-force", "git-remote", "replaces what others have",
    "push new commits; say so where history must change",
)  # fmt: skip
DELETE = Rule("git-push-delete", "git-remote", "deletes what others have", "leave remote branches and tags alone")
RULES = (HARD, CLEAN, DISCARD, STASH, EXPIRE, REWRITE, BRANCH, REF, WORKTREE, FORCE, DELETE)
# Subcommand: pattern of its operands and options, and the rule.
TABLE: dict[str, tuple[tuple[str, Rule], ...]] = {
    "clean": (("+-f|--force !-n|--dry-run", CLEAN), ("+-i", CLEAN)), "stash": (("clear", STASH), ("drop", STASH)),
    "reflog": (("expire|delete", EXPIRE),), "gc": (("+--prune", EXPIRE),), "prune": (("!-n|--dry-run", EXPIRE),),
    "filter-branch": (("", REWRITE),), "filter-repo": (("", REWRITE),), "replace": (("*", REWRITE),),
    "branch": (("* +-D", BRANCH), ("* +-d|--delete +-f|--force", BRANCH)), "update-ref": (("", REF),),
    "symbolic-ref": (("* *", REF),),
    "worktree": (("remove +-f|--force", WORKTREE),), "switch": (("+--discard-changes|-f|--force", DISCARD),),
    "read-tree": (("+--reset +-u", HARD),), "checkout-index": (("+-f|--force +-a|--all", DISCARD),),
    "submodule": (("deinit +-f|--force", CLEAN),), "rm": (), "lfs": (("prune", EXPIRE),),
}  # fmt: skip
TAKES = ("-b", "-B", "-m", "-o", "--push-option", "--repo", "-s", "--source", "--receive-pack")
WHOLE = (".", ":/", "*", "./", ":/*", "*.*")


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What a git command would lose."""
    words = git_words(one)
    if not words or _temporary(one, at):
        return
    options, rest = split(words[1:], TAKES)
    for pattern, rule in TABLE.get(words[0], ()):
        if fits(pattern, options, rest):
            yield rule.about(shown(one))
    match words[0]:
        case "reset" if has(options, "--hard", "--merge", "--keep"):
            yield HARD.about(shown(one))
        case "checkout" | "restore":
            yield from _thrown(one, words[0], options, rest, words)
        case "push":
            yield from _pushed(one, options, rest)


def _temporary(one: Simple, at: Ground) -> bool:
    """A repository in the temporary folder is nobody's work."""
    where = zone(spot(one.cwd, one.cwd, at), at) if one.cwd and UNKNOWN not in one.cwd else "unknown"
    return where == "temporary" and not has(one.words[1:3], "-C")


def _thrown(one: Simple, name: str, options: list[str], rest: list[str], words: list[str]) -> Iterator[Objection]:
    if name == "restore" and has(options, "--staged", "-S") and not has(options, "--worktree", "-W"):
        return
    if name == "checkout" and has(options, "-f", "--force", takes="bB"):
        yield DISCARD.about(shown(one))
        return
    paths = words[words.index("--") + 1 :] if "--" in words else rest
    if any(path in WHOLE for path in paths):
        yield DISCARD.about(shown(one))


def _pushed(one: Simple, options: list[str], rest: list[str]) -> Iterator[Objection]:
    if has(options, "-f", "--force", "--force-with-lease", "--mirror", takes="o") or any(
        w.startswith("+") for w in rest[1:]
    ):
        yield FORCE.about(shown(one))
    elif has(options, "-d", "--delete", "--prune") or any(word.startswith(":") and len(word) > 1 for word in rest[1:]):
        yield DELETE.about(shown(one))
