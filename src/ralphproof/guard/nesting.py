"""What a command runs and prints: wrappers, shells, interpreters, options that take a command, known output."""

from __future__ import annotations

import os.path
import re

from ralphproof.base.shell import (
    INTERPRETERS,
    SHELL_CODE_OPTION,
    SHELLS,
    SOME,
    UNKNOWN,
    Unwrapped,
    unescape,
    unknown,
    unwrap,
)
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.guard.command import FILE, OUTPUT, QUIET, SimpleCommand, has, label_substitution, split, value_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.guard.verdict import Ground

MAX_WRAPPERS = 12
# As `WRAPPERS`, for commands that run in a container: their paths are not ours.
CONTAINERS = {
    "docker exec": "-u -e -w --user --env --workdir --env-file +1",
    "podman exec": "-u -e -w --user --env --workdir +1",
    "docker compose exec": "-u -e -w --user --env --workdir --index +1",
    "docker compose run": "-u -e -w --user --env --workdir --name +1",
    "docker-compose exec": "-u -e -w +1", "docker-compose run": "-u -e -w +1",
    "kubectl exec": "-n -c --namespace --container +1", "heroku run": "-a --app", "fly ssh": "-C -a +1",
}  # fmt: skip
SHELL_TAKES = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
GIT_TAKES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")
GIT_SETTINGS_THAT_RUN = (
    "core.sshcommand", "core.editor", "core.pager", "sequence.editor", "diff.external", "credential.helper",
)  # fmt: skip
GIT_VARIABLES_THAT_RUN = (
    "GIT_SSH_COMMAND", "GIT_EDITOR", "GIT_EXTERNAL_DIFF", "GIT_SEQUENCE_EDITOR", "GIT_PAGER", "PAGER",
)  # fmt: skip
EDITORS = ("vim", "vi", "ex", "nvim", "gdb", "less")
# Program: its options that are followed by a command.
COMMAND_OPTIONS = {
    "su": "-c --command", "runuser": "-c --command", "flock": "-c --command", "script": "-c --command",
    "npm": "-c --call", "npx": "-c --call", "nix-shell": "--run --command", "nodemon": "--exec -x",
    "rsync": "-e --rsh", "expect": "-c", "man": "-P --pager",
    "tar": "-I --use-compress-program --to-command --checkpoint-action",
    "git rebase": "-x --exec", "git filter-branch": "--tree-filter --index-filter", "git difftool": "-x --extcmd",
    "git grep": "-O --open-files-in-pager",
}  # fmt: skip


@value
class NestedCode:
    """One of `words`, `shell` and `code`; `shares` the shell that it is in, as `eval` does; or it is `away` by ssh."""

    words: tuple[str, ...] = ()
    shell: str | None = None
    code: str | None = None
    language: str = ""
    arguments: tuple[str, ...] = ()
    shares: bool = False
    away: bool = False


def shell(text: str, *arguments: str, shares: bool = False) -> NestedCode:
    """Text for a shell."""
    return NestedCode(shell=text, arguments=arguments, shares=shares)


def words(*given: str) -> NestedCode:
    """A command as words."""
    return NestedCode(words=given)


def unwrapped(one: SimpleCommand) -> Iterator[SimpleCommand]:
    """The command as it stands, then without its wrapper, and so on to the innermost."""
    yield one
    for _ in range(MAX_WRAPPERS):
        inner = _unwrap_once(one)
        if inner is None:
            return
        one = replace(inner, outer=(*one.outer, one.words))
        yield one


def _unwrap_once(one: SimpleCommand) -> SimpleCommand | None:
    found = unwrap(one.words)
    contained = one.contained
    if found is None:
        found, contained = unwrap(one.words, CONTAINERS), True
    if found is None or (one.name == "command" and has(found.options, "-v", "-V")):
        return None
    inner = _fed_words(one, found) if one.name in ("xargs", "parallel") else found.words
    if not inner or not inner[0]:
        return None
    cwd = "" if one.name == "chroot" else one.cwd
    return replace(one, words=tuple(inner), given=(*one.given, *found.assignments), cwd=cwd, contained=contained)


def _fed_words(one: SimpleCommand, found: Unwrapped) -> list[str]:
    """The words that xargs or parallel runs, with what flows in put in its place."""
    given = list(found.words)
    if ":::" in given:
        given.remove(":::")
        return given
    flowing = one.text.split() if one.text is not None else listed_paths(one.sources)
    items = [unknown()] if flowing is None else flowing
    mark = next((option[2:].lstrip("=") or "{}" for option in found.options if option.startswith("-I")), "")
    if not mark and one.name == "parallel" and any("{}" in word for word in given):
        mark = "{}"
    if not mark:
        return [*given, *items] if given else []
    out = []
    for word in given:
        out.extend([word.replace(mark, item) for item in items[:8]] if mark in word else [word])
    return out


def git_words(one: SimpleCommand) -> list[str]:
    """The subcommand of git and its arguments, without git's own options."""
    rest = list(one.words[1:])
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in GIT_TAKES else rest[1:]
    return rest


# Which file or text a command runs as code.


def script_of(one: SimpleCommand) -> str:
    """The file that a command would run, as it is written; empty where it runs none."""
    if one.name in SHELLS:
        options, rest = split(one.words[1:], SHELL_TAKES)
        inline = any(re.fullmatch("-[a-zA-Z]*[cs][a-zA-Z]*", option) for option in options)
        return rest[0] if rest and not inline else ""
    if one.name in INTERPRETERS:
        code, rest, module = _interpreter_words(one)
        rest = rest[1:] if one.name in ("deno", "bun") and rest[:1] == ["run"] else rest
        return rest[0] if rest and not code and not module else ""
    if one.name in ("source", "."):
        return one.words[1] if len(one.words) > 1 else ""
    return one.words[0] if "/" in one.words[0] else ""


def reads_code(one: SimpleCommand) -> bool:
    """Whether a command takes what flows in for code."""
    if one.name in SHELLS:
        options, rest = split(one.words[1:], SHELL_TAKES)
        inline = any(re.fullmatch(SHELL_CODE_OPTION, option) for option in options)
        return not inline and (not rest or rest[0] in ("-", "/dev/stdin") or has(options, "-s"))
    if one.name in INTERPRETERS:
        code, rest, module = _interpreter_words(one)
        return not code and not module and (not rest or rest[0] in ("-", "/dev/stdin")) and len(one.words) < 4
    return one.name in ("source", ".") and one.words[1:2] == ("/dev/stdin",)


def _interpreter_words(one: SimpleCommand) -> tuple[list[str], list[str], bool]:
    """(code, operands, whether it runs a module) of an interpreter's words."""
    code_option, takes = INTERPRETERS[one.name]
    code: list[str] = []
    rest = list(one.words[1:])
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        word = rest.pop(0)
        if word == "-m":
            return code, rest, True
        if re.fullmatch(code_option, word):
            text = rest.pop(0) if rest else ""
            code.append(f"console.log({text})" if "p" in word and one.name in ("node", "nodejs", "bun") else text)
        elif one.name == "python" and word.startswith("-c"):
            code.append(word[2:])
        elif word in takes.split():
            rest = rest[1:]
        if code and one.name == "python":
            break
    if one.name == "deno" and rest[:1] == ["eval"]:
        return rest[1:2], [], False
    return code, rest, False


def commands_run_by(one: SimpleCommand) -> Iterator[NestedCode]:
    """What a command would run. What it reads from elsewhere is a matter of the rules."""
    rest = git_words(one) if one.name == "git" else list(one.words[1:])
    name = f"git {rest[0]}" if one.name == "git" and rest else one.name
    if name in COMMAND_OPTIONS:
        options, _ = split(rest, COMMAND_OPTIONS[name].split())
        text = value_of(options, *COMMAND_OPTIONS[name].split())
        if text:
            yield shell(text.removeprefix("exec="))
    match one.name:
        case name if name in SHELLS:
            options, rest = split(rest, SHELL_TAKES)
            if any(re.fullmatch(SHELL_CODE_OPTION, option) for option in options):
                yield from (shell(text, *rest[2:]) for text in rest[:1])
            elif one.text is not None and (not rest or rest[0] == "-" or has(options, "-s")):
                yield shell(one.text, *rest)
        case name if name in INTERPRETERS:
            code, rest, module = _interpreter_words(one)
            if code:
                yield NestedCode(language=one.name, code="\n".join(code))
            elif one.text is not None and (not rest or rest[0] == "-") and not module:
                yield NestedCode(language=one.name, code=one.text)
        case "awk" | "gawk" | "mawk" | "nawk":
            yield from (NestedCode(language="awk", code=text) for text in one.operands("-F", "-v", "-f")[:1])
        case "eval":
            text = " ".join(word for word in rest if word != "--")
            if not text.startswith(UNKNOWN):
                yield shell(text, shares=True)
        case "trap":
            yield from (shell(word, shares=True) for word in one.operands()[:1])
        case "alias":
            yield from (shell(word.partition("=")[2]) for word in one.operands() if "=" in word)
        case "watch":
            yield shell(" ".join(one.operands("-n", "-d", "--interval")))
        case "concurrently" | "hyperfine":
            takes = ("-n", "-r", "-w", "-m", "--names", "-e", "-d", "-i")
            yield from (shell(word) for word in one.operands(*takes))
        case "env":
            yield from _env_split_string(rest)
        case "find":
            yield from _find(one)
        case "fd" | "fdfind":
            start = next(
                (i for i, word in enumerate(rest) if word in ("-x", "-X", "--exec", "--exec-batch")), len(rest)
            )
            roots = split(rest[:start], ("-e", "-t", "-d", "-E"))[1][1:] or ["."]
            yield from (words(*rest[start + 1 :], f"{root}/{SOME}") for root in roots if rest[start + 1 :])
        case "ssh" | "autossh":
            yield from _ssh(one)
        case "sed" | "gsed":
            for text in sed_scripts(one):
                for found in re.finditer(r"(?:^|[;{}\n])\s*(?:\d+|\$|/[^/]*/)?\s*e\s+([^\n]+)", text):
                    yield shell(found[1])
        case name if name in EDITORS:
            for word in rest:
                typed = re.match(r"(?s)(?:-c|--cmd|\+)?:*!\s*(.+)|(?:shell|:?call system\()\s*['\"]?(.+)", word)
                if typed:
                    yield shell(typed[1] or typed[2])
        case "make" | "gmake":
            if one.text is not None and any(word in ("-", "-f-", "/dev/stdin") for word in rest):
                yield from makefile_recipes(one.text)
        case "git":
            yield from _git(one, rest)


def makefile_recipes(text: str) -> Iterator[NestedCode]:
    """The commands in a makefile."""
    for found in re.finditer(r"^(?:\t|[\w./%-]+\s*:[^=\n;]*;)[@+-]*(.+)$", text, re.MULTILINE):
        yield shell(found[1].replace("$$", "$"))


def sed_scripts(one: SimpleCommand) -> list[str]:
    """The scripts that sed is given as words."""
    options, rest = split(one.words[1:], ("-e", "-f", "--expression"))
    given = [option.partition("=")[2] for option in options if option.startswith(("-e=", "--expression="))]
    return given or rest[:1]


def _env_split_string(rest: list[str]) -> Iterator[NestedCode]:
    """Only options of env itself: what follows belongs to the command that it runs."""
    while rest and (rest[0].startswith("-") or "=" in rest[0]):
        if rest[0].startswith(("-S", "--split-string")):
            yield shell(" ".join([re.sub(r"^(-S|--split-string=?)", "", rest[0]), *rest[1:]]))
            return
        rest = rest[2:] if rest[0] in ("-u", "-C") else rest[1:]


def _find(one: SimpleCommand) -> Iterator[NestedCode]:
    rest, targets = list(one.words), found_by(one)
    if "-delete" in rest:
        yield words("rm", "-rf", *targets)
    for start in (i + 1 for i, word in enumerate(rest) if word in ("-exec", "-execdir", "-ok", "-okdir")):
        end = next((i for i in range(start, len(rest)) if rest[i] in (";", "+")), len(rest))
        for target in targets[:4]:
            yield words(*(word.replace("{}", target) for word in rest[start:end]))


def _ssh(one: SimpleCommand) -> Iterator[NestedCode]:
    options, rest = split(one.words[1:], [f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw"])
    for option in options:
        head, _, setting = option.partition("=")
        if head == "-o" and setting.lower().startswith(("proxycommand", "localcommand")):
            yield shell(re.sub(r"^\w+[= ]", "", setting))
    host = next((i for i, word in enumerate(one.words) if rest and word == rest[0] and i), len(one.words))
    if one.words[host + 1 :]:
        yield NestedCode(shell=" ".join(one.words[host + 1 :]), away=True)


def _git(one: SimpleCommand, rest: list[str]) -> Iterator[NestedCode]:
    for before, word in zip(one.words, one.words[1:], strict=False):
        name, _, text = word.partition("=")
        if before == "-c" and name.lower().startswith("alias.") and text.startswith("!"):
            yield shell(text[1:])
        elif before == "-c" and name.lower() in GIT_SETTINGS_THAT_RUN:
            yield shell(text.removeprefix("!"))
    yield from (shell(text) for name, text in one.given if name in GIT_VARIABLES_THAT_RUN)
    if rest[:2] == ["submodule", "foreach"]:
        yield shell(" ".join(word for word in rest[2:] if word not in ("--recursive", "--quiet")))
    elif rest[:2] == ["bisect", "run"]:
        yield words(*rest[2:])


# What a command prints, as far as its words tell.


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
