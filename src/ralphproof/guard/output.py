"""What a command prints, as far as its words tell."""

from __future__ import annotations

import os.path

from ralphproof.base.shell import SOME, UNKNOWN, unescape
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.command import FILE, OUTPUT, QUIET, SimpleCommand, label_substitution, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.guard.verdict import Ground

TEMPORARY_FILE = "/tmp/tmp.made"  # noqa: S108 (stands for what mktemp makes)
PASS_ON = {  # print nothing but (parts of) what they read
    "awk", "cat", "cut", "egrep", "fgrep", "gawk", "grep", "head", "rev", "sed", "shuf", "sort", "tac", "tail", "tee",
    "tr", "uniq",
}  # fmt: skip
PRINT_SOMETHING = {"basename", "date", "hostname", "id", "nproc", "seq", "stat", "uname", "uuidgen", "wc", "whoami"}
NAME_TESTS = {"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-empty", "-inum", "-samefile"}


def exact_output(command: SimpleCommand) -> str | None:
    """The exact text that a command prints; None where it is not known."""
    match command.name:
        case "echo":
            options, words = "", command.words[1:]
            while words and len(words[0]) > 1 and words[0].startswith("-") and not words[0].strip("neE-"):
                options, words = options + words[0][1:], words[1:]
            text = " ".join(words)
            return (unescape(text) if "e" in options else text) + ("" if "n" in options else "\n")
        case "printf":
            return _printf(list(command.words[1:]))
        case "cat" | "tee" if command.text is not None:
            files = command.operands()[: command.name == "cat"]
            return command.text if all(word == "-" for word in files) else None
        case _:
            return None


def _printf(words: list[str]) -> str | None:
    words = words[2:] if words[:1] == ["-v"] else words
    words = words[1:] if words[:1] == ["--"] else words
    if not words:
        return None
    form, values = unescape(words[0]), words[1:]
    if not values:
        return form.replace("%%", "%")
    for kind in ("%s", "%b", "%q", "%d"):
        if form.rstrip("\n") == kind:
            return form.replace(kind, "").join(unescape(text) if kind == "%b" else text for text in values)
    return None


def output_of_all(commands: Sequence[SimpleCommand]) -> str | None:
    """The exact text that commands print one after the other; None where it is not known."""
    texts = [exact_output(one) for one in commands]
    known = [text for text in texts if text is not None]
    return "".join(known) if commands and len(known) == len(texts) else None


def substitution(kind: str, found: Sequence[SimpleCommand], at: Ground) -> str:
    """What is known of the output of a substitution in which these commands run."""
    ran = [one for one in found if one.name not in QUIET]
    text = _single_output(ran[0], at) if len(ran) == 1 and kind == "command_substitution" else None
    if text is not None:
        return text
    mark = FILE if kind == "process_substitution" else OUTPUT
    return label_substitution(mark, ran[0].words[:2] if ran else (), (one.name for one in ran))


def _single_output(command: SimpleCommand, at: Ground) -> str | None:
    words = command.operands()
    match command.name:
        case "echo" | "printf" | "cat":
            text = exact_output(command)
            return None if text is None else text.rstrip("\n")
        case "pwd":
            return command.cwd or None
        case "mktemp":
            return _mktemp(command)
        case "which" | "type" | "command":
            return words[-1] if words else None
        case "git" if "--show-toplevel" in command.words:
            return at.root
        case "git" if command.words[1:2] in (("rev-parse",), ("describe",), ("log",), ("branch",)):
            return SOME
        case "dirname" | "realpath" | "readlink" if len(words) == 1 and UNKNOWN not in words[0]:
            return os.path.dirname(words[0]) or "." if command.name == "dirname" else words[0]
        case name if name in PRINT_SOMETHING:
            return SOME
        case _:
            return None


def _mktemp(command: SimpleCommand) -> str | None:
    """Below the temporary folder, unless it was given another place."""
    options, words = split(command.words[1:], ("-p", "--tmpdir", "--suffix"))
    if any(option.startswith(("-p", "--tmpdir=")) for option in options):
        return None
    return words[0].replace("XXX", "xxx") if words and "/" in words[0] else TEMPORARY_FILE


def listed_paths(sources: Sequence[SimpleCommand]) -> list[str] | None:
    """The paths that flow out of a pipeline; None where nothing is known of them."""
    for one in reversed(sources):
        if one.name not in PASS_ON or one.text is not None or not one.sources:
            return _paths_from(one)
    return None


def _paths_from(command: SimpleCommand) -> list[str] | None:
    text = exact_output(command)
    if text is not None:
        return text.split()
    match command.name:
        case "find":
            return found_by(command)
        case "ls":
            options, words = split(command.words[1:])
            return words if words and any("d" in option for option in options) else [SOME]
        case "grep" | "egrep":
            return [f"{word}/{SOME}" for word in command.operands("-e", "-f", "--include")[1:]] or [SOME]
        case "fd" | "fdfind" | "rg":
            return [f"{word}/{SOME}" for word in command.operands("-e", "-g", "-t", "-x")[1:]] or [SOME]
        case "git" if not any(word.startswith(("-C", "--git-dir")) for word in command.words):
            return [SOME]
        case "seq":
            return [SOME]
        case _:
            return None


def found_by(command: SimpleCommand) -> list[str]:
    """What `find` hands on: everything in its roots, or only something, where it looks at names."""
    words = list(command.words[1:])
    while words and words[0] in ("-H", "-L", "-P"):
        words.pop(0)
    cut = next((i for i, word in enumerate(words) if word[:1] in ("-", "!", "(")), len(words))
    tests = list(zip(words[cut:], [*words[cut + 1 :], ""], strict=False))
    names = [name for test, name in tests if test in NAME_TESTS and (test == "-empty" or name.strip("*/."))]
    literal = [name for test, name in tests if test == "-name" and name in names and not set(name) & set("*?[")]
    below = f"/{literal[0]}" if len(names) == len(literal) == 1 else f"/{SOME}"
    return [root.rstrip("/") + (below if names else "/*") for root in words[:cut] or ["."]]
