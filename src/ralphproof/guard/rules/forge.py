"""Rules on forges: what others see of a repository beside its commits."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.simple import Simple, split, value_of
from ralphproof.guard.verdict import Objection, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

REPOSITORY = Rule(
    "forge-repository", "git-remote", "deletes, hides or opens a whole repository",
    "say in your answer what should change",
)  # fmt: skip
RELEASE = Rule("forge-release", "git-remote", "deletes what has been released", "make a new release instead")
MERGE = Rule(
    "forge-merge", "git-remote", "merges past the rules of the repository",
    "open a pull request and leave it to review",
)  # fmt: skip
ACCESS = Rule(
    "forge-access", "git-remote", "changes keys, secrets, workflows or rights of a repository",
    "say in your answer what is needed",
)  # fmt: skip
CALL = Rule(
    "forge-api", "git-remote", "changes a repository through the forge's interface",
    "use the command that is made for it",
)  # fmt: skip
RULES = (REPOSITORY, RELEASE, MERGE, ACCESS, CALL)
TABLE: Table = {
    "gh": (
        ("repo delete|archive|rename", REPOSITORY), ("repo edit +--visibility|--default-branch", REPOSITORY),
        ("repo deploy-key add|delete", ACCESS), ("release delete|delete-asset", RELEASE), ("pr merge +--admin", MERGE),
        ("secret|variable set|delete|remove", ACCESS), ("workflow disable", ACCESS),
        ("ssh-key|gpg-key add|delete", ACCESS),
        ("issue delete|transfer", RELEASE), ("gist delete", RELEASE), ("ruleset delete", ACCESS),
        ("auth login|logout|refresh", ACCESS),
        ("run delete", RELEASE), ("label delete", RELEASE), ("cache delete", RELEASE),
    ),
    "glab": (
        ("repo|project delete|archive|transfer", REPOSITORY), ("release delete", RELEASE),
        ("variable set|delete", ACCESS), ("ssh-key add|delete", ACCESS), ("mr merge +--yes|-y", MERGE),
        ("mr delete", RELEASE),
    ),
    "hub": (("delete", REPOSITORY), ("release delete", RELEASE)), "tea": (("repos delete", REPOSITORY),),
}  # fmt: skip
TAKES = {"gh": "-R --repo --hostname", "glab": "-R --repo"}
CHANGES = {"DELETE", "PATCH", "PUT"}


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command changes on a forge."""
    yield from told(one, TABLE, TAKES)
    if one.words[1:2] == ("api",):
        options, __ = split(one.words[2:], ("-X", "--method", "-f", "-F", "-H"))
        if (value_of(options, "-X", "--method") or "").upper() in CHANGES:
            yield CALL.about(shown(one))
