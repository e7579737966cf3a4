"""Shell text: its syntax tree (tree-sitter-bash), its words as a shell expands them, its commands, and its quoting."""

from __future__ import annotations

import fnmatch
import os
import re
from bisect import bisect_left

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

# The parser is loaded when it is first needed: it takes longer to load than most commands take to run.

MAX_DEPTH = 150  # levels of nesting; a chain of commands with redirections takes two for each
MAX_CHARS = 256 * 1024
# The same operator over and over takes the parser (0.25) long: its time grows with the square of what is wrong.
_REPEATED = re.compile(r"(.{1,4}?)\1{600}", re.DOTALL)
_HARMLESS_REPEATED = r"[\w\s=#*~.-]+"
# Spellings that the grammar (0.25) takes apart wrongly: `rm$IFS-rf`, `{rm,-rf}`, a backslash at the start of a line.
_GLUED = re.compile(r"(?<=[\w/-])\$(?:\{IFS\}|IFS(?!\w))")
_ESCAPED_START = re.compile(r"(?<=\n)([ \t]*)\\(?:\n|(?=\w))")
_BRACED_COMMAND = re.compile(r"((?:^|[;&|\n(])[ \t]*)\{([^{}\s,'\"]+,[^{}\s'\"]*)\}")
_PARSERS: list[Any] = []


class Node(Protocol):
    """A node of the syntax tree."""

    @property
    def type(self) -> str: ...
    @property
    def children(self) -> Sequence[Node]: ...
    @property
    def start_byte(self) -> int: ...
    @property
    def end_byte(self) -> int: ...
    @property
    def has_error(self) -> bool: ...


def parse(source: bytes) -> Node:
    """The root of a text's syntax tree. Look at `repeats_itself` first."""
    if not _PARSERS:
        try:
            import tree_sitter_bash
            from tree_sitter import Language, Parser
        except ImportError as error:
            raise Refused(f"{error.name} is not installed, and reads shell commands; pip install ralphproof") from error
        _PARSERS.append(Parser(Language(tree_sitter_bash.language())))
    root: Node = _PARSERS[0].parse(source).root_node
    return root


def repeats_itself(text: str) -> bool:
    """Whether a text would take the parser too long."""
    return any(not re.fullmatch(_HARMLESS_REPEATED, found[1]) for found in _REPEATED.finditer(text))


def regular_spelling(text: str) -> str:
    """The text without the spellings that the grammar takes apart wrongly."""
    text = _ESCAPED_START.sub(r"\1", _GLUED.sub(" ", text.replace("\\\r\n", "\n")))
    return _BRACED_COMMAND.sub(lambda found: found[1] + found[2].replace(",", " "), text)


def is_too_deep(root: Node) -> bool:
    """Whether a tree is nested so deeply that it cannot be walked; chains of `&&` do not count."""
    layer, depth = [root], 0
    while layer:
        depth += 1
        if depth > MAX_DEPTH:
            return True
        flat = (inner for node in layer for child in node.children for inner in steps_of(child))
        layer = [node for node in flat if node.children]
    return False


def steps_of(node: Node) -> list[Node]:
    """The parts of `a && b || c` in order (the tree nests them to the left); any other node is its only step."""
    found: list[Node] = []
    while node.type == "list" and node.children:
        found.extend(reversed(node.children[1:]))
        node = node.children[0]
    return [node, *reversed(found)]


# Words as a shell expands them. Characters that Unicode leaves to programs stand for what is not known; callers take
# them out of the text first.

UNKNOWN = "\ufdd0"  # around the name of something that may be empty
SOME = "\ufdd1"  # something that is not empty
SPLIT = "\ufdd2"  # parts the words that one unquoted expansion makes
_OPEN, _COMMA, _CLOSE = "\ufdd3", "\ufdd4", "\ufdd5"  # braces outside of quotes
MARKS = UNKNOWN + SOME + SPLIT + _OPEN + _COMMA + _CLOSE + "\ufdd6\ufdd7\ufdd8\ufdd9"
MAX_WORD_CHARS = 20_000  # doubling a variable again and again makes gigabytes
_MAX_BRACE_WORDS = 64
_BRACES = str.maketrans("{,}", _OPEN + _COMMA + _CLOSE)
_NO_BRACES = str.maketrans(_OPEN + _COMMA + _CLOSE, "{,}")
_BRACE_GROUP = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*{_COMMA}[^{_OPEN}{_CLOSE}]*){_CLOSE}")
_ESCAPE = r"(?s)\\(x[0-9a-fA-F]{1,2}|[uU][0-9a-fA-F]{1,8}|[0-7]{1,3}|c.|.)"
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}


def unknown(name: str = "") -> str:
    """Text of which only a name is known."""
    return f"{UNKNOWN}{name}{UNKNOWN}"


def without_marks(text: str) -> str:
    """The text without the characters that stand for what is not known."""
    return text.translate({ord(mark): None for mark in MARKS})


class Expander:
    """Expands the words of one text.

    `look_up` gives the value of a variable, `substitute` what is known of the output of `$(…)` and `<(…)`.
    """

    def __init__(
        self, source: bytes, look_up: Callable[[str], str], substitute: Callable[[Node], str], ifs: str = " \t\n"
    ) -> None:
        self.source, self._look_up, self._substitute, self._ifs = source, look_up, substitute, ifs

    def raw(self, node: Node) -> str:
        """The text as it is written."""
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def words(self, node: Node) -> list[str]:
        """The words that one word becomes: none for an unset variable, more for a list in braces."""
        text = self.text(node)
        if len(text) > MAX_WORD_CHARS:
            return [unknown()]
        found = [word.translate(_NO_BRACES) for one in _expand_braces(text) for word in one.split(SPLIT)]
        quoted = node.type in ("string", "raw_string", "concatenation", "ansi_c_string")
        return [word for word in found if word] or ([""] if quoted else [])

    def one(self, node: Node) -> str:
        """A word that is not split, such as the value of a variable."""
        text = self.text(node, quoted=True).translate(_NO_BRACES)
        return text if len(text) <= MAX_WORD_CHARS else unknown()

    def text(self, node: Node, quoted: bool = False) -> str:
        """The text of a node with marks in it for what is not known."""
        match node.type:
            case "raw_string":
                return self.raw(node)[1:-1]
            case "ansi_c_string":
                return unescape(self.raw(node)[2:-1])
            case "string" | "translated_string":
                return self._join(node, quoted=True)
            case "array":
                elements = [child for child in node.children if child.type not in ("(", ")")]
                return SPLIT.join(word for child in elements for word in self.words(child))
            case "simple_expansion":
                return self._split(self._look_up(self.raw(node)[1:]), quoted)
            case "expansion":
                return self._split(self._expansion(node), quoted)
            case "command_substitution" | "process_substitution":
                return self._split(self._substitute(node), quoted)
            case "arithmetic_expansion" | "brace_expression":
                self._join(node, quoted=True)
                return SOME
            case "string_content" | "heredoc_content":
                return re.sub(r'\\([\\"$`]|\n)', lambda found: found[1].replace("\n", ""), self.raw(node))
            case _:
                return self._join(node, quoted) if node.children else _unquote(self.raw(node))

    def _join(self, node: Node, quoted: bool) -> str:
        """The parts of a node with what stands between them; the tree leaves blanks out."""
        out, position = [], node.start_byte
        for child in node.children:
            out.append(self.source[position : child.start_byte].decode("utf-8", "replace"))
            if child.type not in ('"', '$"'):
                out.append(self.text(child, quoted))
            position = child.end_byte
        if node.type == "heredoc_body":
            out.append(self.source[position : node.end_byte].decode("utf-8", "replace"))
        return "".join(out)

    def _split(self, text: str, quoted: bool) -> str:
        return text if quoted else re.sub(f"[{re.escape(self._ifs)}]+", SPLIT, text)

    def _expansion(self, node: Node) -> str:
        """`${…}`: every part is read, since a default that is not used may still run something."""
        parts = [child for child in node.children if child.type not in ("${", "}")]
        names = [child for child in parts if child.type in ("variable_name", "special_variable_name", "subscript")]
        if not names:
            return unknown("".join(self.text(child, quoted=True) for child in parts).replace(UNKNOWN, ""))
        after = parts[parts.index(names[0]) + 1 :]
        rest = "".join(self.one(child) for child in after[1:])
        name = re.match(r"\w+|.", self.raw(names[0]))
        if parts[0].type == "!":
            return unknown("!")
        if parts[0].type == "#":
            return SOME
        operator = after[0].type if after else ""
        return _operate(self._look_up(name[0] if name else ""), operator, rest, self.raw(node)[2:-1])


def _operate(text: str, operator: str, rest: str, raw: str) -> str:
    known = UNKNOWN not in text
    match operator:
        case "" | ":?" | "?":
            return text
        case ":-" | "-" | ":=" | "=":
            return text if known and text else rest
        case ":+" | "+":
            return rest
        case "%%" | "%" | "##" | "#" if known and SOME not in text and len(text) < 300:
            return _trim(text, operator, rest)
    part = re.search(r":\s*(\d+)(?::\s*(\d+))?$", raw)
    if operator == ":" and part and known:
        start = int(part[1])
        return text[start:] if part[2] is None else text[start : start + int(part[2])]
    return unknown()


def _trim(text: str, operator: str, pattern: str) -> str:
    cuts = range(len(text) + 1)
    longest = len(operator) == 2
    if operator[0] == "%":
        ends = cuts if longest else reversed(cuts)
        return next((text[:cut] for cut in ends if fnmatch.fnmatchcase(text[cut:], pattern)), text)
    starts = reversed(cuts) if longest else cuts
    return next((text[cut:] for cut in starts if fnmatch.fnmatchcase(text[:cut], pattern)), text)


def _unquote(raw: str) -> str:
    pieces = re.split(r"\\(.)", raw, flags=re.DOTALL)
    return "".join(piece.replace("\n", "") if i % 2 else piece.translate(_BRACES) for i, piece in enumerate(pieces))


def _expand_braces(text: str) -> list[str]:
    done: list[str] = []
    todo = [text]
    while todo:
        one = todo.pop(0)
        found = _BRACE_GROUP.search(one)
        if found is None or len(todo) + len(done) > _MAX_BRACE_WORDS:
            done.append(one)
            continue
        todo = [one[: found.start()] + piece + one[found.end() :] for piece in found[1].split(_COMMA)] + todo
    return done


def unescape(text: str) -> str:
    """The text behind `$'…'` or `printf '…'`."""
    return re.sub(_ESCAPE, _character, text)


def _character(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        number = int(code[1:], 16)
    elif code[0] in "01234567":
        number = int(code, 8)
    else:
        return _LETTERS.get(code, code)
    usable = 0 < number < 0x110000 and not 0xD800 <= number < 0xE000
    return chr(number) if usable and chr(number) not in MARKS else ""


# Programs that run another program.

SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash", "fish", "mksh", "csh", "tcsh", "pwsh"))
SHELL_CODE_OPTION = r"-[a-zA-Z]*c[a-zA-Z]*|--command"
# Interpreter: the options that are followed by code, and those that are followed by something else.
INTERPRETERS = {
    "python": (r"-[bBdEiIOqsSuvx]*c", "-W -X -m"), "pypy": ("-c", "-W -X -m"), "ipython": ("-c", ""),
    "perl": (r"-[a-zA-Z0-9]*[eE]", "-I"), "ruby": (r"-[a-zA-Z0-9]*e", "-I -C"),
    "node": (r"-e|-p|-pe|--eval|--print", "-r --require"), "nodejs": (r"-e|-p|--eval", "-r"),
    "bun": (r"-e|-p|--eval", ""), "tsx": (r"-e|--eval", ""), "deno": ("--eval", ""), "php": ("-r", "-d -c"),
    "lua": ("-e", "-l"), "osascript": ("-e", "-l"), "Rscript": ("-e", ""),
}  # fmt: skip
# Name, or name and subcommand: the options that are followed by an argument; `+1`: a word comes before the command.
WRAPPERS = {
    "sudo": "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir", "doas": "-u -C -a",
    "pkexec": "--user", "run0": "-u --user", "env": "-u -C --unset --chdir", "nohup": "", "nice": "-n --adjustment",
    "ionice": "-c -n -p", "chrt": "+1", "taskset": "+1", "timeout": "-s -k --signal --kill-after +1",
    "gtimeout": "-s -k +1", "time": "-f -o", "command": "", "builtin": "", "exec": "-a", "coproc": "",
    "stdbuf": "-i -o -e", "setsid": "", "unbuffer": "", "caffeinate": "-t -w", "strace": "-e -o -p -s -P",
    "ltrace": "-e -o -p", "valgrind": "", "chroot": "+1", "flock": "-w -E --timeout +1", "busybox": "", "toybox": "",
    "xargs": "-I -n -P -L -d -a -s -E --max-args --max-procs --delimiter --arg-file --replace",
    "parallel": "-j -a -S --jobs", "xvfb-run": "-s -n", "dbus-run-session": "", "systemd-run": "-p --property --unit",
    "cross-env": "", "sshpass": "-p -f", "entr": "", "dotenv": "-f -e -c", "npx": "-p --package", "bunx": "",
    "pnpx": "", "uvx": "--from --with --python", "npm exec": "-p --package -w", "npm x": "-p --package -w",
    "pnpm exec": "", "pnpm dlx": "--package", "yarn exec": "", "yarn dlx": "-p", "poetry run": "", "pipenv run": "",
    "uv run": "--with --python --extra --group -p", "uvx run": "", "pipx run": "--spec", "bundle exec": "",
    "rbenv exec": "", "mise exec": "", "conda run": "-n -p", "direnv exec": "+1", "op run": "--env-file",
    "doppler run": "-p -c", "perf stat": "-e -o", "pdm run": "-p", "rye run": "", "hatch run": "", "pixi run": "",
    "coverage run": "--rcfile", "eatmydata": "", "faketime": "+1", "chronic": "", "catchsegv": "",
}  # fmt: skip
_VERSIONED = r"(python|pip|perl|ruby|php|node|lua|pypy|psql|clang|gcc)[\d.]+"
_ASSIGNMENT = r"(?s)([A-Za-z_]\w*)=(.*)"


def program_name(word: str) -> str:
    """A program's name without its folder and version; with unknown parts as they are."""
    name = word.rsplit("/", 1)[-1].removesuffix(".exe")
    versioned = re.fullmatch(_VERSIONED, name)
    return versioned[1] if versioned else name


@value
class Unwrapped:
    """The command behind a wrapper, the assignments in front of it, and the wrapper's own options."""

    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()


def unwrap(words: Sequence[str], table: dict[str, str] = WRAPPERS) -> Unwrapped | None:
    """What a wrapper such as `timeout 5 make` runs; None where the command is no wrapper."""
    keys = (" ".join((program_name(words[0]), *words[1:count])) for count in (3, 2, 1) if len(words) >= count)
    key = next((key for key in keys if key in table), None)
    if key is None:
        return None
    takes = [word for word in table[key].split() if word[0] == "-"]
    rest, assignments, options = list(words[key.count(" ") + 1 :]), [], []
    while rest:
        assignment = re.fullmatch(_ASSIGNMENT, rest[0])
        if assignment:
            assignments.append((assignment[1], assignment[2]))
        elif rest[0].startswith("-") and rest[0] != "--" and len(rest[0]) > 1:
            options.append(rest[0])
            if rest[0] in takes and len(rest) > 1:
                options[-1] += "=" + rest.pop(1)
        else:
            break
        rest = rest[1:]
    rest = rest[1:] if rest[:1] == ["--"] else rest
    rest = rest[1:] if "+1" in table[key].split() else rest
    while rest and (rest[0] == "--" or (table is not WRAPPERS and rest[0].startswith("-"))):
        rest = rest[1:]
    return Unwrapped(tuple(rest), tuple(assignments), tuple(options))


# The commands in a text.

_MAX_WORDS, _MAX_WRAPPERS, _MAX_HEREDOCS = 500, 8, 4  # the last: here-documents in here-documents


@value
class ShellCommand:
    """One command: the program as it is written, its words, and the folder from the root that it would run in."""

    program: str
    words: tuple[str, ...] = ()
    folder: str = "."
    sets: tuple[str, ...] = ()  # what it is started with: NAME=VALUE

    @property
    def name(self) -> str:
        return os.path.basename(self.program)


# Words without any character or reserved word of the shell's: most checks are one command, and need no parser.
_PLAIN_COMMAND = re.compile(
    r"(?!(?:if|for|while|until|case|select|function|coproc|time)\b)[\w./:@%+,-]{1,200}(?: [\w./:@%+,=-]{1,200}){0,100}"
)


def commands_in(text: str, folder: str = ".") -> Iterator[ShellCommand]:
    """Every simple command of a text, in order, and each that another one starts.

    Variables stay as they are written. A `cd` counts until its parenthesis closes.
    """
    yield from _commands_in(text, folder, _MAX_HEREDOCS)


def _commands_in(text: str, folder: str, levels: int) -> Iterator[ShellCommand]:
    text = without_marks(text[:MAX_CHARS])
    if not text.strip() or repeats_itself(text) or not levels:
        return
    if _PLAIN_COMMAND.fullmatch(text):
        yield from _CommandReader(b"", folder, levels).unwrapped(text.split(), [])
        return
    source = regular_spelling(text).encode("utf-8", "replace")
    root = parse(source)
    if not is_too_deep(root):
        yield from _CommandReader(source, folder, levels).visit(root)


class _CommandReader:
    """Walks the tree of one text in the folder of now."""

    def __init__(self, source: bytes, folder: str, levels: int) -> None:
        self._expand = Expander(source, lambda name: f"${name}", lambda node: self._expand.raw(node))
        self._folder, self._levels = folder, levels

    def visit(self, node: Node) -> Iterator[ShellCommand]:
        before = self._folder
        if node.type == "command":
            yield from self._command(node)
        elif node.type == "heredoc_body":
            yield from _commands_in(self._expand.raw(node), self._folder, self._levels - 1)
        for child in steps_of(node) if node.type == "list" else node.children:
            yield from self.visit(child)
        if node.type in ("subshell", "command_substitution", "process_substitution"):
            self._folder = before

    def _command(self, node: Node) -> Iterator[ShellCommand]:
        sets = [self._expand.one(child) for child in node.children if child.type == "variable_assignment"]
        skipped = ("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect", "comment")
        words = [word for child in node.children if child.type not in skipped for word in self._expand.words(child)]
        yield from self.unwrapped(words[:_MAX_WORDS], sets)

    def unwrapped(self, words: list[str], sets: list[str]) -> Iterator[ShellCommand]:
        """A command, and those that it starts."""
        while words and not words[0].lstrip("@+-"):  # a recipe's marks
            words.pop(0)
        for _ in range(_MAX_WRAPPERS):
            if not words or not words[0]:
                return
            command = ShellCommand(words[0].lstrip("@+-"), tuple(words[1:]), self._folder, tuple(sets))
            yield command
            if command.name in ("cd", "pushd"):
                self._folder = _folder_after(command)
            inner = unwrap((command.program, *command.words))
            if inner is None:
                return
            sets += [f"{name}={text}" for name, text in inner.assignments]
            words = list(inner.words)


def _folder_after(command: ShellCommand) -> str:
    to = next((word for word in command.words if not word.startswith("-")), "")
    if not to or "$" in to or to.startswith(("/", "~")):
        return command.folder
    return os.path.normpath(os.path.join(command.folder, to))


# Where in a text something stands: outside of quotes, inside of them, or where it cannot be determined.

UNQUOTED, DOUBLE_QUOTED, SINGLE_QUOTED, UNKNOWN_QUOTING = "bare", "double", "single", "unclear"
_COMMENT = "comment"
_UNKNOWN_NODES = frozenset(
    ("ERROR", "ansi_c_string", "translated_string", "heredoc_redirect", "heredoc_body", "expansion",
     "simple_expansion",
     "arithmetic_expansion", "brace_expression", "c_style_for_statement")
)  # fmt: skip
_PARSE_AGAIN = frozenset(("eval", "ssh", "trap", "su"))  # any of their words may be code


@value
class QuotedMatch:
    """Where one match stands, and how."""

    start: int
    end: int
    name: str
    how: str


def find_quoted_matches(command: str, place: str) -> Iterator[QuotedMatch]:
    """Every match of the pattern `place`, which has one group: its name. Comments are passed over."""
    found = list(re.finditer(place, command))
    if not found:
        return
    # For the parser each match is one plain word of the same length.
    source = re.sub(place, lambda match: "x" * len(match[0].encode()), command).encode("utf-8", "replace")
    readable = len(command) <= MAX_CHARS and not repeats_itself(command)
    root = parse(source) if readable else None
    starts = [len(command[: match.start()].encode("utf-8", "replace")) for match in found]
    known = dict(_quotings(root, source, starts)) if root and not root.has_error and not is_too_deep(root) else {}
    for match, start in zip(found, starts, strict=True):
        how = known.get(start, UNKNOWN_QUOTING)
        if how != _COMMENT:
            yield QuotedMatch(match.start(), match.end(), match[1], how)


def _quotings(node: Node, source: bytes, starts: list[int], how: str = UNQUOTED) -> Iterator[tuple[int, str]]:
    """How the text at each of these offsets in a node is quoted, in order."""
    begins = node.children[0].type if node.children else ""
    if node.type == "comment":
        how = _COMMENT
    elif node.type in _UNKNOWN_NODES or begins in ("`", "(("):
        how = UNKNOWN_QUOTING
    elif node.type in ("command_substitution", "process_substitution"):
        how = UNQUOTED
    elif node.type in ("string", "raw_string"):
        how = DOUBLE_QUOTED if node.type == "string" else SINGLE_QUOTED
    left = list(starts)
    code = _code_arguments(node, source) if node.type == "command" else ()
    for place, child in enumerate(node.children) if how not in (UNKNOWN_QUOTING, _COMMENT) else ():
        inside = starts[bisect_left(starts, child.start_byte) : bisect_left(starts, child.end_byte)]
        if inside:
            yield from (
                ((at, UNKNOWN_QUOTING) for at in inside) if place in code else _quotings(child, source, inside, how)
            )
            del left[: len(inside)]
    for at in left:
        before = source[max(0, at - 99) : at]
        escaped = (len(before) - len(before.rstrip(b"\\"))) % 2
        yield at, UNKNOWN_QUOTING if escaped and how in (UNQUOTED, DOUBLE_QUOTED) else how


def _code_arguments(command: Node, source: bytes) -> set[int]:
    """The places of the children of a command that it takes for code, which it would parse once more."""
    places = [place for place, child in enumerate(command.children) if child.type != "variable_assignment"]
    nodes = [command.children[place] for place in places]
    words = [source[node.start_byte : node.end_byte].decode("utf-8", "replace").strip("'\"") for node in nodes]
    inner: Sequence[str] = words
    while inner:
        if program_name(inner[0]) in _PARSE_AGAIN:
            return set(places[1:])
        unwrapped = unwrap(inner)
        inner = unwrapped.words if unwrapped else ()
    found, options = set(), set[str]()
    for place, before, word in zip(places, ["", *words], words, strict=False):
        if any(re.fullmatch(option, before) or re.match(rf"(?:{option})['\"]", word) for option in options):
            found.add(place)
        name = program_name(word)
        options |= {SHELL_CODE_OPTION} if name in SHELLS else set(INTERPRETERS.get(name, ())[:1])
    return found
