"""Rules on permissions and ownership."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.files import HOOK_WRITE, HOOKS
from ralphproof.guard.matching import shown, told
from ralphproof.guard.place import inner, spot, zone
from ralphproof.guard.simple import Simple, has, split
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

FOR_ALL = Rule(
    "chmod-everybody",
    "permissions",
    "lets every user of the machine write",
    "give the one right that is missing: chmod u+w",
)
SPECIAL = Rule("chmod-setuid", "permissions", "lets a program run with its owner's rights", "run it as you are")
OUTSIDE = Rule(
    "permissions-outside", "permissions", "changes rights on what is not part of the project",
    "change the rights of the project's files only",
)  # fmt: skip
OWNER = Rule("chown-tree", "permissions", "gives a whole folder to another user", "change single files, to yourself")
NOTHING = Rule("chmod-nothing", "permissions", "takes all rights from a whole folder", "change single files")
LISTS = Rule(
    "access-lists", "permissions", "changes access lists, attributes or capabilities",
    "use chmod on single files",
)  # fmt: skip
RULES = (FOR_ALL, SPECIAL, OUTSIDE, OWNER, NOTHING, LISTS)
TABLE: Table = {
    "setfacl": (("+-R|--recursive", LISTS), ("+-b|--remove-all", LISTS)), "setcap": (("", LISTS),),
    "chattr": (("", LISTS),), "icacls": (("", LISTS),), "takeown": (("", LISTS),), "chflags": (("", LISTS),),
    "xattr": (("+-r", LISTS),),
}  # fmt: skip
WORLD = re.compile(r"0?[0-7][0-7][2367]|[0-7]{0,2}777|.*\b[ugo]*[oa][ugo]*[+=][rwxXst]*w.*|[+=]w.*")
SETUID = re.compile(r"[2467][0-7]{3}|.*[ug+=]*[+=][rwxX]*s.*")
LONGEST_MODE = 64  # a longer one is none, and would take long to match
BARE = re.compile(r"0+|[ugoa]*-rwx|a=|[ugoa]*=")


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What a command does to rights."""
    if is_contained(one):
        return
    if one.name == "chmod":
        yield from _chmod(one, at)
    elif one.name in ("chown", "chgrp"):
        yield from _chown(one, at)
    else:
        yield from told(one, TABLE, {})


def _chmod(one: Simple, at: Ground) -> Iterator[Objection]:
    words = [
        word
        for word in one.words[1:]
        if not re.fullmatch(r"-[Rvcf]+|--(recursive|verbose|silent|quiet|changes).*", word)
    ]
    tree = has([word for word in one.words[1:] if word not in words], "-R", "--recursive")
    mode, paths = (words[0], words[1:]) if words else ("", [])
    if any(option.startswith("--reference") for option in words):
        return
    mode = mode[:LONGEST_MODE]
    places = [spot(path, one.cwd, at) for path in paths]
    if any(HOOKS.fullmatch(inner(place, at)) for place in places):
        yield HOOK_WRITE.about(shown(one))
    if SETUID.fullmatch(mode):
        yield SPECIAL.about(shown(one))
    elif WORLD.fullmatch(mode):
        yield FOR_ALL.about(shown(one))
    elif any(zone(place, at) == "outside" for place in places):
        yield OUTSIDE.about(shown(one))
    elif tree and BARE.fullmatch(mode):
        yield NOTHING.about(shown(one))


def _chown(one: Simple, at: Ground) -> Iterator[Objection]:
    options, words = split(one.words[1:], ("--from", "--reference"))
    if any(zone(spot(path, one.cwd, at), at) == "outside" for path in words[1:]):
        yield OUTSIDE.about(shown(one))
    elif has(options, "-R", "--recursive") and words:
        yield OWNER.about(shown(one))
