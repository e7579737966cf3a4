"""Rules on deleting, with rm and its like or by moving away."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.files import to_delete
from ralphproof.guard.matching import shown
from ralphproof.guard.place import spot
from ralphproof.guard.simple import Simple, has, split, value_of
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.verdict import Ground

NO_PRESERVE = Rule(
    "rm-everything", "outside-project", "deletes the whole file system", "delete only files of the project",
)  # fmt: skip
GIT_RM_ALL = Rule(
    "git-rm-all", "project-state", "removes every file of the project", "name the files that are to go",
)  # fmt: skip
RULES = (NO_PRESERVE, GIT_RM_ALL)
TAKES = {"shred": "-n -s --iterations --size", "truncate": "-s -r --size", "rmdir": ""}
RECURSIVE = {"rimraf", "del-cli", "del", "trash", "trash-put", "rip", "srm"}


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What a command deletes that had better stay."""
    if is_contained(one):
        return
    options, words = split(one.words[1:], TAKES.get(one.name, "").split())
    match one.name:
        case "git":
            yield from _git(one, at)
        case "mv":
            yield from _each(one, words[:-1] if _into(options) is None else words, at, recursive=True)
        case "rsync":
            if has(
                options, "--delete", "--delete-after", "--delete-before", "--delete-excluded", "--remove-source-files"
            ):
                yield from _each(one, words[-1:], at, recursive=True)
        case _:
            if has(options, "--no-preserve-root"):
                yield NO_PRESERVE.about(shown(one))
            recursive = one.name in RECURSIVE or has(options, "-r", "-R", "--recursive")
            yield from _each(one, words, at, recursive)


def _into(options: list[str]) -> str | None:
    return value_of(options, "-t", "--target-directory")


def _each(one: Simple, words: list[str], at: Ground, recursive: bool) -> Iterator[Objection]:
    for word in words:
        rule = to_delete(spot(word, one.cwd, at, follow=False), at, recursive)
        if rule is not None:
            yield rule.about(shown(one))


def _git(one: Simple, at: Ground) -> Iterator[Objection]:
    from ralphproof.guard.nest import git_words

    words = git_words(one)
    options, paths = split(words[1:])
    if words[:1] == ["rm"] and has(options, "-r") and not has(options, "--cached", "-n", "--dry-run"):
        for path in paths:
            place = spot(path, one.cwd, at)
            if path == ":/" or (place.path == at.root and place.tail != "some"):
                yield GIT_RM_ALL.about(shown(one))
