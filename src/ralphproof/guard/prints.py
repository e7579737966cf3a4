"""What a command would print, as far as its words tell."""

from __future__ import annotations

import os.path

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.simple import QUIET, SOME, UNKNOWN, Simple, named, operands, split, substituted
from ralphproof.guard.word import unescaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.verdict import Ground

MADE = "/tmp/tmp.made"  # noqa: S108 (stands for what mktemp makes)
PASSING = {  # print nothing but (parts of) what they read
    "awk", "cat", "cut", "egrep", "fgrep", "gawk", "grep", "head", "rev", "sed", "shuf", "sort", "tac", "tail", "tee",
    "tr", "uniq",
}  # fmt: skip
FILLED = {"basename", "date", "hostname", "id", "nproc", "seq", "stat", "uname", "uuidgen", "wc", "whoami"}
NAMING = {"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-empty", "-inum", "-samefile"}


def said(one: Simple) -> str | None:
    """The exact text that a command prints; None where it is not known."""
    match one.name:
        case "echo":
            options, words = _echo(one.words[1:])
            text = " ".join(words)
            return (unescaped(text) if "e" in options else text) + ("" if "n" in options else "\n")
        case "printf":
            return _printf(list(one.words[1:]))
        case "cat" | "tee" if one.text is not None and all(word == "-" for word in operands(one)[: one.name == "cat"]):
            return one.text
        case _:
            return None


def _echo(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    options = ""
    while words and words[0] and not words[0].strip("neE-") and words[0].startswith("-") and len(words[0]) > 1:
        options += words[0][1:]
        words = words[1:]
    return options, words


def _printf(words: list[str]) -> str | None:
    if words[:1] == ["-v"]:
        words = words[2:]
    if words[:1] == ["--"]:
        words = words[1:]
    if not words:
        return None
    form, values = unescaped(words[0]), words[1:]
    if not values:
        return form.replace("%%", "%")
    for kind in ("%s", "%b", "%q", "%d"):
        if form.rstrip("\n") == kind:
            return form.replace(kind, "").join(unescaped(text) if kind == "%b" else text for text in values)
    return None


def replied(found: Sequence[Simple], at: Ground) -> str | None:
    """What is known of the output of a substitution in which these commands run."""
    ran = [one for one in found if one.name not in QUIET]
    if not ran or len(ran) > 1:
        return None
    one, words = ran[0], operands(ran[0])
    match one.name:
        case "echo" | "printf" | "cat":
            text = said(one)
            return None if text is None else text.rstrip("\n")
        case "pwd":
            return one.cwd or None
        case "mktemp":
            return _made(one)
        case "which" | "type" | "command":
            return words[-1] if words else None
        case "git" if "--show-toplevel" in one.words:
            return at.root
        case "git" if one.words[1:2] in (("rev-parse",), ("describe",), ("log",), ("branch",)):
            return SOME
        case "dirname" | "realpath" | "readlink" if len(words) == 1 and UNKNOWN not in words[0]:
            return os.path.dirname(words[0]) or "." if one.name == "dirname" else words[0]
        case name if name in FILLED:
            return SOME
        case _:
            return None


def _made(one: Simple) -> str | None:
    """Below the temporary folder, unless it was given another place."""
    options, words = split(one.words[1:], ("-p", "--tmpdir", "--suffix"))
    if any(option.startswith(("-p", "--tmpdir=")) for option in options):
        return None
    return words[0].replace("XXX", "xxx") if words and "/" in words[0] else MADE


def listed(sources: Sequence[Simple]) -> list[str] | None:
    """The paths that flow out of a pipeline; None where nothing is known of them."""
    for one in reversed(sources):
        if one.name in PASSING and one.text is None and one.sources:
            continue
        return _paths(one)
    return None


def _paths(one: Simple) -> list[str] | None:
    text = said(one)
    if text is not None:
        return text.split()
    match one.name:
        case "find":
            return found_by(one)
        case "ls":
            options, words = split(one.words[1:])
            return words if words and any("d" in option for option in options) else [SOME]
        case "grep" | "egrep":
            return [f"{word}/{SOME}" for word in operands(one, ("-e", "-f", "--include"))[1:]] or [SOME]
        case "fd" | "fdfind" | "rg":
            return [f"{word}/{SOME}" for word in operands(one, ("-e", "-g", "-t", "-x"))[1:]] or [SOME]
        case "git" if not any(word.startswith(("-C", "--git-dir")) for word in one.words):
            return [SOME]
        case "seq":
            return [SOME]
        case _:
            return None


def found_by(one: Simple) -> list[str]:
    """What `find` hands on: everything in its roots, or only something, where it looks at names."""
    words = list(one.words[1:])
    while words and words[0] in ("-H", "-L", "-P"):
        words.pop(0)
    cut = next((i for i, word in enumerate(words) if word[:1] in ("-", "!", "(")), len(words))
    tests = [(word, words[i + 1] if i + 1 < len(words) else "") for i, word in enumerate(words) if i >= cut]
    names = [value for test, value in tests if test in NAMING and not (test != "-empty" and not value.strip("*/."))]
    literal = [value for test, value in tests if test == "-name" and value in names and not set(value) & set("*?[")]
    below = f"/{literal[0]}" if len(names) == len(literal) == 1 else f"/{SOME}"
    return [root.rstrip("/") + (below if names else "/*") for root in words[:cut] or ["."]]


def label(kind: str, found: Sequence[Simple]) -> str:
    """A mark that tells which commands make the unknown text."""
    ran = [one for one in found if one.name not in QUIET]
    return substituted(kind, ran[0].words[:2] if ran else (), (named(one.words[0]) for one in ran))
