"""Commands that run other commands given to them, and what those are."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard import nested
from ralphproof.guard.nested import Nested, shell
from ralphproof.guard.prints import found_by
from ralphproof.guard.simple import UNKNOWN, Simple, has, operands, split, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SHELLS = {"sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "csh", "tcsh", "pwsh"}
SHELL_TAKES = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
# Interpreter: the options that are followed by code, and those that are followed by something else.
INTERPRETERS = {
    "python": (r"-[bBdEiIOqsSuvx]*c", "-W -X -m"), "pypy": ("-c", "-W -X -m"), "ipython": ("-c", ""),
    "perl": (r"-[a-zA-Z0-9]*[eE]", "-I"), "ruby": (r"-[a-zA-Z0-9]*e", "-I -C"),
    "node": (r"-e|-p|-pe|--eval|--print", "-r --require"), "nodejs": (r"-e|-p|--eval", "-r"),
    "bun": (r"-e|-p|--eval", ""), "tsx": (r"-e|--eval", ""), "deno": ("--eval", ""), "php": ("-r", "-d -c"),
    "lua": ("-e", "-l"), "osascript": ("-e", "-l"), "Rscript": ("-e", ""),
}  # fmt: skip
EXECS = ("-exec", "-execdir", "-ok", "-okdir")
SSH_TAKES = tuple("-" + letter for letter in "bcDEeFIiJLlmOopQRSWw")


def of(one: Simple) -> Iterator[Nested]:
    """What a command would run. What it reads from elsewhere is a matter of the rules."""
    if one.name in SHELLS:
        yield from _of_shell(one)
    elif one.name in INTERPRETERS:
        yield from _of_interpreter(one)
    elif one.name in GIVEN:
        yield from GIVEN[one.name](one)


def _of_shell(one: Simple) -> Iterator[Nested]:
    options, words = split(one.words[1:], SHELL_TAKES)
    if any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", option) for option in options):
        if words:
            yield shell(words[0], *words[2:])
    elif one.text is not None and (not words or words[0] == "-" or has(options, "-s")):
        yield shell(one.text, *words)


def _of_interpreter(one: Simple) -> Iterator[Nested]:
    given, words, module = _parts(one)
    if one.name == "deno" and words[:1] == ["eval"] and words[1:]:
        given = [words[1]]
    if given:
        yield nested.code(one.name, "\n".join(given))
    elif one.text is not None and (not words or words[0] == "-") and not module:
        yield nested.code(one.name, one.text)


def _parts(one: Simple) -> tuple[list[str], list[str], bool]:
    """(code, operands, whether it runs a module) of an interpreter's words."""
    coded, takes = INTERPRETERS[one.name]
    given: list[str] = []
    rest, others = list(one.words[1:]), takes.split()
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        if word == "-m":
            return given, rest, True
        if re.fullmatch(coded, word):
            given.extend(rest[:1])
            rest = rest[1:]
        elif one.name == "python" and word.startswith("-c"):
            given.append(word[2:])
        elif word in others:
            rest = rest[1:]
        if given and one.name == "python":
            break
    return given, rest, False


def script(one: Simple) -> str:
    """The file that a command would run, as it is written; empty where it runs none."""
    if one.name in SHELLS:
        options, words = split(one.words[1:], SHELL_TAKES)
        return words[0] if words and not any(re.fullmatch("-[a-zA-Z]*[cs][a-zA-Z]*", one) for one in options) else ""
    if one.name in INTERPRETERS:
        given, words, module = _parts(one)
        words = words[1:] if one.name in ("deno", "bun") and words[:1] == ["run"] else words
        return words[0] if words and not given and not module else ""
    if one.name in ("source", "."):
        return one.words[1] if len(one.words) > 1 else ""
    return one.words[0] if "/" in one.words[0] else ""


def reads_code(one: Simple) -> bool:
    """Whether a command takes what flows in for code."""
    if one.name in SHELLS:
        options, words = split(one.words[1:], SHELL_TAKES)
        coded = any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", option) for option in options)
        return not coded and (not words or words[0] in ("-", "/dev/stdin") or has(options, "-s"))
    if one.name in INTERPRETERS:
        given, words, module = _parts(one)
        return not given and not module and (not words or words[0] in ("-", "/dev/stdin")) and len(one.words) < 4
    return one.name in ("source", ".") and one.words[1:2] == ("/dev/stdin",)


def _eval(one: Simple) -> Iterator[Nested]:
    text = " ".join(word for word in one.words[1:] if word != "--")
    if not text.startswith(UNKNOWN):
        yield shell(text, shares=True)


def _first(one: Simple) -> Iterator[Nested]:
    yield from (shell(word, shares=True) for word in operands(one)[:1])


def _every(one: Simple) -> Iterator[Nested]:
    yield from (shell(word) for word in operands(one, ("-n", "-r", "-w", "-m", "--names", "-e", "-d", "-i")))


def _joined(one: Simple) -> Iterator[Nested]:
    words = operands(one, ("-n", "-d", "--interval"))
    if words:
        yield shell(" ".join(words))


def _alias(one: Simple) -> Iterator[Nested]:
    yield from (shell(word.partition("=")[2]) for word in operands(one) if "=" in word)


def _option(*names: str) -> Callable[[Simple], Iterator[Nested]]:
    """The text after one of these options."""

    def found(one: Simple) -> Iterator[Nested]:
        options, _ = split(one.words[1:], names)
        text = value_of(options, *names)
        if text:
            yield shell(text)

    return found


def _env(one: Simple) -> Iterator[Nested]:
    """Only its own options: what follows belongs to the command that it runs."""
    words = list(one.words[1:])
    while words and (words[0].startswith("-") or "=" in words[0]):
        if words[0] in ("-S", "--split-string"):
            yield shell(" ".join(words[1:]))
            return
        if words[0].startswith(("-S", "--split-string=")):
            yield shell(" ".join([words[0].removeprefix("--split-string=").removeprefix("-S"), *words[1:]]))
            return
        words = words[2:] if words[0] in ("-u", "-C") else words[1:]


def _find(one: Simple) -> Iterator[Nested]:
    words, targets = list(one.words), found_by(one)
    if "-delete" in words:
        yield nested.words("rm", "-rf", *targets)
    for start in (i + 1 for i, word in enumerate(words) if word in EXECS):
        end = next((i for i in range(start, len(words)) if words[i] in (";", "+")), len(words))
        for target in targets[:4]:
            yield nested.words(*(word.replace("{}", target) for word in words[start:end]))


def _ssh(one: Simple) -> Iterator[Nested]:
    options, words = split(one.words[1:], SSH_TAKES)
    for option in options:
        head, _, setting = option.partition("=")
        if head == "-o" and setting.lower().startswith(("proxycommand", "localcommand")):
            yield shell(re.sub(r"^\w+[= ]", "", setting))
    cut = next((i for i, word in enumerate(one.words) if words and word == words[0] and i), len(one.words))
    if one.words[cut + 1 :]:
        yield Nested(shell=" ".join(one.words[cut + 1 :]), away=True)


def _awk(one: Simple) -> Iterator[Nested]:
    yield from (nested.code("awk", word) for word in operands(one, ("-F", "-v", "-f"))[:1])


def _sed(one: Simple) -> Iterator[Nested]:
    options, words = split(one.words[1:], ("-e", "-f", "--expression"))
    given = [option.partition("=")[2] for option in options if option.startswith(("-e=", "--expression="))] or words[:1]
    for text in given:
        for found in re.finditer(r"(?:^|[;{}\n])\s*(?:\d+|\$|/[^/]*/)?\s*e\s+([^\n]+)", text):
            yield shell(found[1])


def _editor(one: Simple) -> Iterator[Nested]:
    for word in one.words[1:]:
        found = re.match(r"(?:-c|--cmd|\+)?:*!\s*(.+)|(?:shell|:?call system\()\s*['\"]?(.+)", word, re.DOTALL)
        if found:
            yield shell(found[1] or found[2])


def _tar(one: Simple) -> Iterator[Nested]:
    options, _ = split(one.words[1:], ("-I", "--use-compress-program", "--to-command", "--checkpoint-action"))
    text = value_of(options, "--to-command", "-I", "--use-compress-program")
    if text:
        yield shell(text)
    for option in options:
        if option.startswith("--checkpoint-action=exec="):
            yield shell(option.partition("=exec=")[2])


def _make(one: Simple) -> Iterator[Nested]:
    """A makefile that is handed in on the spot."""
    if one.text is not None and any(word in ("-", "-f-", "/dev/stdin") for word in one.words):
        yield from recipes(one.text)


def recipes(text: str) -> Iterator[Nested]:
    """The commands in a makefile."""
    for found in re.finditer(r"^(?:\t|[\w./%-]+\s*:[^=\n;]*;)[@+-]*(.+)$", text, re.MULTILINE):
        yield shell(found[1].replace("$$", "$"))


GIT_TAKES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
GIT_SHELLS = ("core.sshcommand", "core.editor", "core.pager", "sequence.editor", "diff.external", "credential.helper")


def _git(one: Simple) -> Iterator[Nested]:
    for i, word in enumerate(one.words[1:], 1):
        if one.words[i - 1] == "-c":
            name, _, text = word.partition("=")
            if name.lower().startswith("alias.") and text.startswith("!"):
                yield shell(text[1:])
            elif name.lower() in GIT_SHELLS:
                yield shell(text.removeprefix("!"))
    for name, text in one.given:
        if name in ("GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "PAGER"):
            yield shell(text)
    words = git_words(one)
    options, rest = split(words[1:], ("-x", "--exec", "--tree-filter", "--index-filter", "--msg-filter"))
    filtered = value_of(options, "--exec", "-x", "--tree-filter", "--index-filter")
    if words[:1] in (["rebase"], ["filter-branch"]) and filtered:
        yield shell(filtered)
    if words[:2] == ["submodule", "foreach"] and rest[1:]:
        yield shell(" ".join(words[words.index(rest[1]) :]))
    if words[:2] == ["bisect", "run"] and words[2:]:
        yield nested.words(*words[2:])


def git_words(one: Simple) -> list[str]:
    """The subcommand of git and its arguments, without git's own options."""
    words = list(one.words[1:])
    while words and words[0].startswith("-"):
        words = words[2:] if words[0] in GIT_TAKES else words[1:]
    return words


GIVEN: dict[str, Callable[[Simple], Iterator[Nested]]] = {
    "eval": _eval, "trap": _first, "alias": _alias, "watch": _joined, "find": _find, "ssh": _ssh, "awk": _awk,
    "gawk": _awk, "mawk": _awk, "nawk": _awk, "sed": _sed, "gsed": _sed, "vim": _editor, "vi": _editor, "ex": _editor,
    "nvim": _editor, "gdb": _editor, "less": _editor, "tar": _tar, "git": _git, "make": _make, "gmake": _make,
    "concurrently": _every, "hyperfine": _every, "su": _option("-c", "--command"),
    "env": _env,
    "runuser": _option("-c", "--command"), "flock": _option("-c", "--command"), "script": _option("-c", "--command"),
    "npm": _option("-c", "--call"), "npx": _option("-c", "--call"), "nix-shell": _option("--run", "--command"),
    "nodemon": _option("--exec", "-x"), "rsync": _option("-e", "--rsh"), "expect": _option("-c"),
    "man": _option("-P", "--pager"), "autossh": _ssh,
}  # fmt: skip
