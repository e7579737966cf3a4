"""Rules on writing: redirections, copies, and whatever else puts bytes into a file."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.effects import CURL_TAKES, saved
from ralphproof.guard.files import to_write
from ralphproof.guard.matching import shown
from ralphproof.guard.place import spot
from ralphproof.guard.simple import Simple, has, split, value_of
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.verdict import Ground

WIDE_LINK = Rule(
    "wide-link", "outside-project", "makes a link in the project to a folder that holds it, or to the user's home",
    "link to the file or folder that is needed",
)  # fmt: skip
RULES = (WIDE_LINK,)
INTO = ("-t", "--target-directory")
TAKES = {
    "install": "-m -o -g -t --mode --owner --group", "cp": "-t --suffix", "mv": "-t --suffix", "ln": "-t --suffix",
    "rsync": "-e --rsh --exclude --include --filter -f", "truncate": "-s -r --size", "touch": "-d -t -r --date",
    "tar": "-C -f --directory --file --exclude -T", "unzip": "-d -x", "sort": "-o -k -t -S -T --output", "7z": "",
    "curl": " ".join((*CURL_TAKES, "-o", "--output")), "wget": "-O -P -o --output-document", "patch": "-d -i -p",
}  # fmt: skip


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """What a command writes to that is not the project's, or not the agent's."""
    if is_contained(one):
        return
    if one.name == "ln":
        yield from _link(one, at)
    for word in targets(one):
        rule = to_write(spot(word, one.cwd, at), at)
        if rule is not None:
            yield rule.about(shown(one))


def targets(one: Simple) -> list[str]:
    """The words of a command that name what it writes."""
    options, words = split(one.words[1:], TAKES.get(one.name, "").split())
    match one.name:
        case ">" | "tee" | "sponge" | "touch" | "truncate":
            return words
        case "cp" | "mv" | "ln" | "install":
            into = value_of(options, *INTO)
            return [into] if into else words[-1:] if len(words) > 1 or one.name == "install" else []
        case "rsync":
            return [word for word in words[-1:] if len(words) > 1 and ":" not in word.partition("/")[0]]
        case "dd":
            return [word[3:] for word in words if word.startswith("of=")]
        case "sed" | "gsed" | "perl" | "ruby":
            return _in_place(one)
        case "tar" | "bsdtar":
            return _unpacked(one, options, words)
        case "unzip":
            return [into for into in [value_of(options, "-d")] if into]
        case "sort":
            return [into for into in [value_of(options, "-o", "--output")] if into]
        case "curl" | "wget" | "aria2c":
            return [word for word in saved(one) if word not in ("-", "")] + _into_folder(one, options)
        case _:
            return []


def _into_folder(one: Simple, options: list[str]) -> list[str]:
    into = value_of(options, "-P", "--directory-prefix") if one.name == "wget" else None
    return [into] if into else []


def _in_place(one: Simple) -> list[str]:
    """The files that an editor of streams changes where they lie."""
    options, words = split(one.words[1:], ("-e", "-f", "-E", "--expression", "--file"))
    if not has(options, "-i", "--in-place", takes="efE"):
        return []
    given = any(option.startswith(("-e", "-f", "-E", "--expression", "--file")) for option in options)
    return words if given else words[1:]


def _unpacked(one: Simple, options: list[str], words: list[str]) -> list[str]:
    old = words[0] if words and not one.words[1].startswith("-") else ""
    unpacks = has(options, "-x", "--extract", takes="fCT") or "x" in old
    into = value_of([option for option in options if option.startswith(("-C", "--directory"))], "-C", "--directory")
    packed = value_of([option for option in options if option.startswith(("-f", "--file"))], "-f", "--file")
    if unpacks:
        return [into] if into else []
    return [packed] if packed and packed != "-" else []


def _link(one: Simple, at: Ground) -> Iterator[Objection]:
    options, words = split(one.words[1:], TAKES["ln"].split())
    goal = spot(words[0], one.cwd, at) if words and has(options, "-s", "--symbolic") else None
    if goal is not None and goal.path in ("/", at.home, at.root.rpartition("/")[0]):
        yield WIDE_LINK.about(shown(one))
