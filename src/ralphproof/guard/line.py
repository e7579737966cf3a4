"""A shell line: every command that would run, in order, with what each one changes for the next."""

from __future__ import annotations

import os.path
import re

from ralphproof.base.shell import (
    INTERPRETERS,
    SOME,
    SPLIT,
    Expander,
    is_too_deep,
    parse,
    regular_spelling,
    steps_of,
    unknown,
)
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard import nesting
from ralphproof.guard.command import BOMB, QUIET, SimpleCommand, split, value_of
from ralphproof.guard.nesting import NestedCode, exact_output, listed_paths, output_of_all, substitution
from ralphproof.guard.paths import is_below, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphproof.base.shell import Node
    from ralphproof.guard.verdict import Ground

MAX_STEPS, MAX_COMMANDS = 150_000, 5000
MAX_SHELLS = 8  # shells in shells
MAX_ROUNDS = 6  # of a loop with a list
MAX_STAGES = 100  # of a pipeline; each looks at all before it
# Set in every shell, never empty, and never a path or a command.
FILLED = ("$", "?", "#", "!", "0", "-", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "USER", "LOGNAME", "HOSTNAME")
FETCHERS = {"curl", "wget", "fetch", "aria2c", "lynx", "http", "https", "xh", "axel", "w3m", "links", "gh", "scp", "nc"}
CURL_TAKES = ("-H", "-X", "-d", "-u", "-A", "-e", "-b", "-c", "-F", "-m", "--retry", "--header", "--data", "--request")
ODD_SUBSTITUTION = r"(\$\(|`)\s*(echo|printf|tr|rev|base64|xxd|sed|awk|cat|cut|head)\b"
REDIRECTS = ("file_redirect", "herestring_redirect", "heredoc_redirect")
LOOP_WORDS = ("for", "select", "in", ";", "variable_name", "do_group", "compound_statement", "\n", "comment")


class ShellState:
    """What a shell would know at one point of a line: variables, the folder, what was written before.

    A subshell works on a copy.
    """

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.cwd = at.cwd
        self.stack: tuple[str, ...] = ()
        self.variables: dict[str, str] = dict.fromkeys(FILLED, SOME)
        self.variables |= {"HOME": at.home, "OLDPWD": "", "TMPDIR": "/tmp", "SHELL": "/bin/sh"}  # noqa: S108
        self.scripts: dict[str, str] = {}  # files that the line itself has written, and their text
        self.functions: dict[str, tuple[bytes, Node]] = {}
        self.fetched: set[str] = set()  # files and remotes that came from elsewhere in this line
        self.sources: tuple[SimpleCommand, ...] = ()  # what flows into this shell
        self.text: str | None = None

    def copy(self) -> ShellState:
        """The state of a subshell. Files that it writes are seen outside, so they are held in common."""
        twin = ShellState(self.at)
        twin.__dict__ |= self.__dict__
        twin.variables, twin.functions = dict(self.variables), dict(self.functions)
        return twin

    def look_up(self, name: str) -> str:
        """The value of a variable."""
        if name == "IFS" and name not in self.variables:
            return " "
        if name == "PWD":
            return self.cwd or unknown(name)
        return self.variables.get("@" if name == "*" else name, unknown(name))

    def path(self, word: str) -> str:
        """The real path that a word names; empty where it names none for sure."""
        place = locate(word, self.cwd, self.at)
        return "" if place.tail else place.path

    def set_arguments(self, words: Sequence[str]) -> None:
        """Set `$1`, `$2`, and so on."""
        self.variables |= {str(i): word for i, word in enumerate(words, 1)}
        self.variables["@"] = SPLIT.join(words)

    def note_written(self, word: str, produced: Sequence[SimpleCommand], adds: bool = False) -> None:
        """Note what commands have put into a file."""
        path = self.path(word)
        text = output_of_all(produced)
        if path and text is not None:
            self.scripts[path] = (self.scripts.get(path, "") if adds else "") + text
        if path and any(one.name in FETCHERS for one in produced):
            self.fetched.add(path)

    def follow(self, one: SimpleCommand) -> None:
        """Follow a command that moves, names or writes something."""
        words = one.operands()
        match one.name:
            case "cd" | "pushd":
                if one.name == "pushd":
                    self.stack = (*self.stack, self.cwd)
                before, goal = self.cwd, words[0] if words else "~"
                goal = (self.variables.get("OLDPWD", "") or unknown()) if goal == "-" else goal
                place = locate(goal, self.cwd, self.at)
                self.cwd = f"{place.path}/{SOME}" if place.tail and place.path else place.path
                self.variables["OLDPWD"] = before
            case "popd":
                self.cwd, self.stack = (self.stack[-1], self.stack[:-1]) if self.stack else ("", ())
            case "read" | "mapfile" | "readarray":
                flowing = one.text.split("\n")[:1] if one.text is not None else listed_paths(one.sources)
                first = flowing[0] if flowing is not None and len(flowing) == 1 else unknown("read")
                names = one.operands("-p", "-t", "-d", "-n", "-N", "-u", "-i") or ["REPLY"]
                self.variables |= dict.fromkeys(names, first)
            case "printf" if one.words[1:2] == ("-v",) and len(one.words) > 2:
                self.variables[one.words[2]] = exact_output(one) or unknown()
            case "set" if "--" in one.words:
                self.set_arguments(one.words[one.words.index("--") + 1 :])
            case "tee":
                for word in words:
                    self.note_written(word, [one])
                    if any(source.name in FETCHERS for source in one.sources):
                        self.fetched.add(self.path(word))
            case "cp" | "mv" if len(words) == 2:
                old, new = self.path(words[0]), self.path(words[1])
                if old in self.scripts:
                    self.scripts[new] = self.scripts[old]
                if old in self.fetched:
                    self.fetched.add(new)
            case "git":
                self._git(one.operands("-b", "--branch", "--depth", "-o", "--origin", "-C", "-c", "--reference"))
            case "curl" | "wget" | "aria2c" | "fetch":
                self.fetched |= {path for word in downloads(one) if (path := self.path(word))}

    def _git(self, words: list[str]) -> None:
        """The folder that git clones into, or the remote that it is told of."""
        if words[:1] == ["clone"] and len(words) > 1:
            goal = words[2] if len(words) > 2 else words[1].rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
            self.fetched |= {path for path in [self.path(goal)] if path}
        elif words[:2] in (["remote", "add"], ["remote", "set-url"]) and len(words) > 3:
            self.fetched.add(f"remote {words[2]}")

    def brought(self, one: SimpleCommand, script: str) -> bool:
        """Whether a command runs a file, or pushes to a remote, that came from elsewhere in this line."""
        if one.name == "git":
            return one.words[1:2] == ("push",) and any(f"remote {word}" in self.fetched for word in one.words[2:])
        return bool(script) and any(is_below(script, path) for path in self.fetched)


def downloads(one: SimpleCommand) -> list[str]:
    """The files in which a fetcher keeps what it brings."""
    options, words = split(one.words[1:], (*CURL_TAKES, "-o", "-O", "--output", "--output-document", "-P"))
    last = os.path.basename(words[-1].partition("?")[0]) if words else ""
    if one.name != "curl":
        return [value_of(options, "-O", "-o", "--output-document", "-qO", "--out") or last]
    urls = [option.removeprefix("-O=") for option in options if option.startswith("-O=")]
    named = value_of([option for option in options if not option.startswith("-O=")], "-o", "--output")
    by_remote_name = urls or any(re.fullmatch(r"-[a-zA-Z]*O|--remote-name", option) for option in options)
    return [named] if named else [os.path.basename(url) for url in urls if url] or ([last] if by_remote_name else [])


class Line:
    """The commands of a line in the order in which they would run; `trouble` says what could not be read."""

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.found: list[SimpleCommand] = []
        self.state = ShellState(at)
        self.trouble = ""
        self.broken: list[str] = []  # texts that are no shell grammar
        self.depth = 0
        self.steps_left = MAX_STEPS
        self.uncalled: dict[str, tuple[bytes, Node]] = {}

    def read(self, text: str) -> None:
        """Go through a text in the present state."""
        source = regular_spelling(text).encode("utf-8", "replace")
        root = parse(source)
        if self.depth >= MAX_SHELLS or is_too_deep(root):
            self.trouble = "it is nested too deeply"
            return
        if root.has_error:
            self.broken.append(text)
        self.depth += 1
        _Walk(self, source).visit(root)
        self.depth -= 1
        while self.uncalled and not self.depth:  # functions that are only defined: what they do, they do later
            _, (source, body) = self.uncalled.popitem()
            _Walk(self, source).visit(body)

    def run(self, one: SimpleCommand) -> None:
        """Note a command, what it wraps, what it runs, and what it changes."""
        levels = list(nesting.unwrapped(one))
        if len(levels) > nesting.MAX_WRAPPERS:
            self.trouble = "it has too many commands around one"
        core, state = levels[-1], self.state
        script = nesting.script_of(core) if state.fetched or state.scripts else ""
        path = state.path(script) if script else ""
        if state.brought(core, path):
            core = levels[-1] = replace(core, fetched=True)
        self.found.extend(SimpleCommand(("=", name, text), core.cwd) for name, text in core.given)
        self.found.extend(levels)
        if len(self.found) > MAX_COMMANDS:
            self.trouble = "it has too many commands"
        if self.trouble:
            return
        for level in levels:
            for item in nesting.commands_run_by(level):
                self._enter(item, level)
        if path in state.scripts:
            self._enter(_script(core, path, state.scripts[path]), core)
        if core.name in ("make", "gmake"):
            for item in nesting.makefile_recipes(state.scripts.get(state.path("Makefile"), "")):
                self._enter(item, core)
        if not core.contained:
            state.follow(core)
        if core.name in state.functions:
            self._call(core)

    def _enter(self, item: NestedCode, one: SimpleCommand) -> None:
        if self.trouble or self.depth > MAX_SHELLS:
            self.trouble = self.trouble or "it is nested too deeply"
            return
        self.depth += 1
        if item.code is not None:
            from ralphproof.guard.code import effects_of_code

            for effect in effects_of_code(item.language, item.code):
                self._enter(effect, replace(one, text=None, sources=()))
        elif item.words and item.words[0]:
            self.run(SimpleCommand(item.words, self.state.cwd, (), one.sources, one.text, contained=one.contained))
        self.depth -= 1
        if item.shell is not None:
            self._shell(item, one)

    def _shell(self, item: NestedCode, one: SimpleCommand) -> None:
        outer = self.state
        if not item.shares:
            self.state = outer.copy()
            self.state.text, self.state.sources = None, ()
            if item.arguments:
                self.state.set_arguments(item.arguments)
            self.state.variables |= dict(one.given)
            self.state.cwd = "" if item.away else outer.cwd
        start = len(self.found)
        self.read(item.shell or "")
        if one.contained:
            self.found[start:] = [replace(inner, contained=True) for inner in self.found[start:]]
        self.state = outer

    def _call(self, one: SimpleCommand) -> None:
        source, body = self.state.functions[one.name]
        self.uncalled.pop(one.name, None)
        outer, self.state = self.state, self.state.copy()
        del self.state.functions[one.name]  # a function that calls itself says nothing new
        self.state.set_arguments(one.words[1:])
        _Walk(self, source).visit(body)
        outer.cwd, self.state = self.state.cwd, outer


def _script(one: SimpleCommand, path: str, text: str) -> NestedCode:
    language = one.name if one.name in INTERPRETERS else ""
    shebang = re.match(r"#!.*\b(python|perl|ruby|node|php)", text)
    language = language or (shebang[1] if shebang else "python" if path.endswith(".py") else "")
    if language:
        return NestedCode(language=language, code=text)
    return NestedCode(shell=text, shares=one.name in ("source", "."))


class _Walk:
    """Goes through the tree of one text as a shell would."""

    def __init__(self, line: Line, source: bytes) -> None:
        self.line, self.source = line, source

    @property
    def expand(self) -> Expander:
        """Words as they read in the state of now."""
        state = self.line.state
        return Expander(self.source, state.look_up, self._substitute, state.variables.get("IFS") or " \t\n")

    def visit(self, node: Node) -> None:
        """Run a statement, or whatever runs in a node."""
        self.line.steps_left -= 1
        if self.line.steps_left < 0:
            self.line.trouble = "it has too many parts"
        if self.line.trouble:
            return
        visit = _VISITS.get(node.type)
        if visit is not None:
            visit(self, node)
            return
        for child in steps_of(node) if node.type == "list" else node.children:
            self.visit(child)

    def subshell(self, node: Node) -> None:
        outer, self.line.state = self.line.state, self.line.state.copy()
        for child in node.children:
            self.visit(child)
        self.line.state = outer

    def _substitute(self, node: Node) -> str:
        start = len(self.line.found)
        self.subshell(node)
        return substitution(node.type, self.line.found[start:], self.line.at)

    def pipeline(self, node: Node, before: tuple[SimpleCommand, ...] = ()) -> None:
        """Every stage in a shell of its own, with what the ones before it print."""
        line, text = self.line, output_of_all(before) if before else self.line.state.text
        stages = [child for child in node.children if child.type not in ("|", "|&")]
        if len(stages) > MAX_STAGES:
            line.trouble = "it has too many parts"
            return
        outer, start = line.state, len(line.found)
        first = before or outer.sources
        for stage in stages:
            line.state = outer.copy()
            line.state.sources, line.state.text = (*first, *_ran(line.found[start:])), text
            mark = len(line.found)
            self.visit(stage)
            text = output_of_all(_ran(line.found[mark:]))
        line.state = outer

    def command(self, node: Node, extra: Sequence[str] = ()) -> None:
        """A simple command, with what it is given in front, in words and on its input."""
        state, given, words, redirections, odd, end = self.line.state, [], list[str](), [], False, -1
        for child in node.children:
            if child.type == "variable_assignment":
                given.append(self._assignment(child))
            elif child.type in REDIRECTS:
                redirections.append(child)
            elif child.type != "$":
                odd = odd or (child.type == "command_name" and self._is_odd(child))
                more = self.expand.words(child)
                if child.start_byte == end and words and more:  # `'r'\m` is one word; the tree has two
                    more[0] = words.pop() + more[0]
                words.extend(more)
                end = child.end_byte
        text, sources = state.text, state.sources
        for child in redirections:
            text, sources, rest = self._input(child, text, sources)
            words.extend(rest)
        words.extend(extra)
        start = len(self.line.found)
        if words and words[0]:
            self.line.run(SimpleCommand(tuple(words), state.cwd, tuple(given), sources, text, odd=odd))
        else:
            state.variables |= dict(given)
        self._outputs(redirections, start)

    def _is_odd(self, node: Node) -> bool:
        """Whether a command's name is spelled so that nobody would read it."""
        raw = self.expand.raw(node)
        pattern = re.search(r"[*?]|\[.", raw) and not re.search(r"[\s'\"$`]", raw) and raw != "[["
        return bool(re.match(ODD_SUBSTITUTION, raw) or ("$'" in raw and "\\" in raw) or pattern)

    def _input(
        self, node: Node, text: str | None, sources: tuple[SimpleCommand, ...]
    ) -> tuple[str | None, tuple[SimpleCommand, ...], list[str]]:
        """What flows in through a redirection, and words that the tree takes for part of it."""
        if node.type == "herestring_redirect":
            return self.expand.one(node.children[-1]) + "\n", (), []
        if node.type == "heredoc_redirect":
            kinds = ("word", "string", "raw_string")
            stray = [word for child in node.children if child.type in kinds for word in self.expand.words(child)]
            return self._heredoc(node), (), stray
        goals = [child for child in node.children if child.type not in ("file_descriptor", "ERROR")]
        stray = [word for child in goals[2:] for word in self.expand.words(child)]
        if goals[0].type != "<" or len(goals) < 2:
            return text, sources, stray
        start = len(self.line.found)
        word = self.expand.one(goals[1])
        if goals[1].type == "process_substitution":
            return None, _ran(self.line.found[start:]), stray
        fed = SimpleCommand(("<", word), self.line.state.cwd)
        self.line.found.append(fed)
        return self.line.state.scripts.get(self.line.state.path(word)), (fed,), stray

    def _heredoc(self, node: Node) -> str:
        parts = {child.type: child for child in node.children}
        body, start = parts.get("heredoc_body"), parts.get("heredoc_start")
        if body is None or start is None:
            return ""
        if re.search(r"[\"'\\]", self.expand.raw(start)):
            return self.expand.raw(body)
        for ticked in re.findall(r"(?<!\\)`([^`]+)`", self.expand.raw(body)):
            self.line.read(ticked)
        return self.expand.text(body, quoted=True)

    def _outputs(self, redirections: Sequence[Node], start: int) -> None:
        line = self.line
        produced = _ran(line.found[start:])
        for node in redirections:
            for one in [node, *node.children] if node.type == "heredoc_redirect" else [node]:
                goals = [child for child in one.children if child.type not in ("file_descriptor", "ERROR")]
                if one.type != "file_redirect" or len(goals) < 2 or not goals[0].type.startswith((">", "&>")):
                    continue
                if goals[1].type == "number" or self.expand.raw(goals[1]) == "-":
                    continue
                word = self.expand.one(goals[1])
                line.found.append(SimpleCommand((">", word), line.state.cwd, sources=produced))
                line.state.note_written(word, produced, goals[0].type in (">>", "&>>"))

    def bare_redirect(self, node: Node) -> None:
        """A redirection without a command, as in `$(< file)`."""
        self._input(node, None, ())
        self._outputs([node], len(self.line.found))

    def redirected(self, node: Node) -> None:
        """A statement with redirections behind it; after a here-document the rest of the line is in there."""
        redirections = [child for child in node.children if child.type in REDIRECTS]
        bodies = [step for child in node.children if child.type not in REDIRECTS for step in steps_of(child)]
        for step in bodies[:-1]:  # the tree hangs the redirections of `b` in `a && b > x` on both
            self.visit(step)
        state, start = self.line.state, len(self.line.found)
        held = text, sources = state.text, state.sources
        extra = []
        for child in redirections:
            text, sources, rest = self._input(child, text, sources)
            extra.extend(rest)
        state.text, state.sources = text, sources
        for child in bodies[-1:]:
            if child.type == "command":
                self.command(child, extra)
            else:
                self.visit(child)
        state.text, state.sources = held
        self._outputs(redirections, start)
        produced = _ran(self.line.found[start:])
        for child in (inner for one in redirections if one.type == "heredoc_redirect" for inner in one.children):
            if child.type == "pipeline" and child.children and child.children[0].type in ("|", "|&"):
                self.pipeline(child, produced)
            elif child.type not in ("heredoc_body", "file_redirect", "word", "string", "raw_string"):
                self.visit(child)

    def loop(self, node: Node) -> None:
        """The body once for each of the first values."""
        state = self.line.state
        name = next((self.expand.raw(child) for child in node.children if child.type == "variable_name"), "")
        listed = [child for child in node.children if child.type not in LOOP_WORDS]
        values = {word for child in listed for word in self.expand.words(child)}
        ordered = sorted(values, key=lambda word: (not word.startswith(("/", "~", "..", unknown()[0])), word))
        bodies = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        for word in ordered[:MAX_ROUNDS] or [state.variables.get("@", unknown("@"))]:
            state.variables[name] = word
            for body in bodies:
                self.visit(body)

    def define(self, node: Node) -> None:
        """A function runs where it is called."""
        name = next((self.expand.raw(child) for child in node.children if child.type == "word"), "")
        body = self.source, node.children[-1]
        self.line.state.functions[name] = self.line.uncalled[name] = body
        if re.search(rf"(?<!\w){re.escape(name)}\s*\|\s*{re.escape(name)}\s*&", self.expand.raw(node)):
            self.line.found.append(SimpleCommand((BOMB, self.expand.raw(node)), self.line.state.cwd))

    def assign(self, node: Node) -> None:
        """A variable for the rest of the shell."""
        name, text = self._assignment(node)
        self.line.state.variables[name] = text
        self.line.found.append(SimpleCommand(("=", name, text), self.line.state.cwd))

    def _assignment(self, node: Node) -> tuple[str, str]:
        name = re.split(r"[\[+=]", self.expand.raw(node), maxsplit=1)[0]
        last = node.children[-1] if node.children else None
        text = self.expand.one(last) if last is not None and last.type not in ("=", "+=", "variable_name") else ""
        adds = any(child.type == "+=" for child in node.children)
        return name, (self.line.state.variables.get(name, "") if adds else "") + text

    def declare(self, node: Node) -> None:
        """`export`, `declare`, `local` and the like."""
        words = []
        for child in node.children:
            if child.type != "variable_assignment":
                words.extend(self.expand.words(child))
                continue
            self.assign(child)
            _, name, text = self.line.found[-1].words
            words.append(f"{name}={text}")
            if "-n" in words:  # the name of another variable
                self.line.state.variables[name] = self.line.state.look_up(text)
        if words:
            self.line.found.append(SimpleCommand(tuple(words), self.line.state.cwd))


def _ran(found: Sequence[SimpleCommand]) -> tuple[SimpleCommand, ...]:
    """The commands themselves: without redirections, assignments and wrappers."""
    ran = [one for one in found if one.name not in QUIET]
    outer = {words for one in ran for words in one.outer}
    return tuple(one for one in ran if one.words not in outer)


_VISITS: dict[str, Callable[[_Walk, Node], None]] = {
    "subshell": _Walk.subshell, "command_substitution": _Walk.subshell, "process_substitution": _Walk.subshell,
    "pipeline": _Walk.pipeline, "command": _Walk.command, "redirected_statement": _Walk.redirected,
    "file_redirect": _Walk.bare_redirect, "for_statement": _Walk.loop, "function_definition": _Walk.define,
    "variable_assignment": _Walk.assign, "declaration_command": _Walk.declare,
}  # fmt: skip
