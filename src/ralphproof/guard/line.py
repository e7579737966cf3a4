"""A shell line: every command that would run, in order, with its effect on the next."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard import effects, nest
from ralphproof.guard.nested import BOMB, Nested
from ralphproof.guard.place import below, spot
from ralphproof.guard.prints import label, replied, said
from ralphproof.guard.simple import FILE, OUTPUT, QUIET, SOME, Simple, unknown
from ralphproof.guard.tree import parsed, steps, too_deep
from ralphproof.guard.word import Speech
from ralphproof.guard.wrap import MOST, is_contained, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphproof.guard.tree import Node
    from ralphproof.guard.verdict import Ground


# What a shell would know at one point of a line: variables, the folder, what was written before.


# Set in every shell, never empty, and never a path or a command.
FILLED = ("$", "?", "#", "!", "0", "-", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "USER", "LOGNAME", "HOSTNAME")


class Scene:
    """The state of one shell; a subshell works on a copy."""

    __slots__ = ("aliases", "at", "cwd", "fetched", "functions", "scripts", "sources", "stack", "text", "variables")

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.cwd = at.cwd
        self.stack: list[str] = []
        self.variables: dict[str, str] = dict.fromkeys(FILLED, SOME)
        self.variables |= {"HOME": at.home, "OLDPWD": "", "TMPDIR": "/tmp", "SHELL": "/bin/sh"}  # noqa: S108
        self.scripts: dict[str, str] = {}  # files that the line itself has written, and their text
        self.aliases: dict[str, str] = {}
        self.functions: dict[str, tuple[bytes, Node]] = {}
        self.fetched: set[str] = set()  # files and remotes that came from elsewhere in this line
        self.sources: tuple[Simple, ...] = ()  # what flows into this shell
        self.text: str | None = None

    def copy(self) -> Scene:
        """The state of a subshell. Files that it writes are seen outside, so they are held in common."""
        twin = Scene.__new__(Scene)
        for name in Scene.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.variables, twin.aliases, twin.functions = dict(self.variables), dict(self.aliases), dict(self.functions)
        twin.stack = list(self.stack)
        return twin

    def path(self, word: str) -> str:
        """The real path that a word names; empty where it names none for sure."""
        place = spot(word, self.cwd, self.at)
        return "" if place.tail else place.path

    def go(self, word: str) -> None:
        """Change the folder."""
        place = spot(word, self.cwd, self.at)
        self.cwd = f"{place.path}/{SOME}" if place.tail and place.path else place.path


# Reads a line as a shell would and notes every command that would run, wherever it stands.


MOST_ROUNDS = 6  # of a loop with a list
MOST_STAGES = 100  # of a pipeline; each looks at all before it
SUBSTITUTED = re.compile(r"(\$\(|`)\s*(echo|printf|tr|rev|base64|xxd|sed|awk|cat|cut|head)\b")


class Walk:
    """Goes through the tree of one text."""

    def __init__(self, line: Line, source: bytes) -> None:
        self.line, self.source = line, source

    @property
    def speech(self) -> Speech:
        """Words as they read in the scene of now."""
        return Speech(self.source, self.line.scene, self._substitute)

    def visit(self, node: Node) -> None:
        """Run a statement, or whatever runs in a node."""
        line = self.line
        line.left -= 1
        if line.left < 0:
            line.trouble = "it has too many parts"
        if line.trouble:
            return
        how = HOW.get(node.type)
        if how is not None:
            how(self, node)
        else:
            for child in node.children:
                self.visit(child)

    def steps(self, node: Node) -> None:
        """One after the other."""
        for step in steps(node):
            self.visit(step)

    def inside(self, node: Node) -> None:
        """In a shell of its own."""
        outer, self.line.scene = self.line.scene, self.line.scene.copy()
        for child in node.children:
            self.visit(child)
        self.line.scene = outer

    def _substitute(self, node: Node) -> str:
        start = len(self.line.found)
        self.inside(node)
        found = self.line.found[start:]
        if node.type == "process_substitution":
            return label(FILE, found)
        reply = replied(found, self.line.at)
        return label(OUTPUT, found) if reply is None else reply

    def pipeline(self, node: Node) -> None:
        """Every stage in a shell of its own, with what the ones before it print."""
        self.stages([child for child in node.children if child.type not in ("|", "|&")], ())

    def stages(self, nodes: Sequence[Node], before: tuple[Simple, ...]) -> None:
        """Go on with a pipeline whose first commands have run."""
        line, text = self.line, _said(before) if before else self.line.scene.text
        if len(nodes) > MOST_STAGES:
            line.trouble = "it has too many parts"
            return
        outer, start = line.scene, len(line.found)
        first = before or outer.sources
        for node in nodes:
            line.scene = outer.copy()
            line.scene.sources, line.scene.text = (*first, *_ran(line.found[start:])), text
            mark = len(line.found)
            self.visit(node)
            text = _said(_ran(line.found[mark:]))
        line.scene = outer

    def command(self, node: Node, extra: Sequence[str] = ()) -> None:
        """A simple command, with what it is given in front, in words and on its input."""
        scene, given, words, redirections, odd, end = self.line.scene, [], list[str](), [], False, -1
        for child in node.children:
            match child.type:
                case "variable_assignment":
                    given.append(self._assignment(child))
                case "file_redirect" | "herestring_redirect" | "heredoc_redirect":
                    redirections.append(child)
                case "$":
                    continue
                case _:
                    odd = odd or (child.type == "command_name" and self._odd(child))
                    more = self.speech.words(child)
                    if child.start_byte == end and words and more:  # `'r'\m` is one word; the tree has two
                        more[0] = words.pop() + more[0]
                    words.extend(more)
                    end = child.end_byte
        text, sources = scene.text, scene.sources
        for child in redirections:
            text, sources, rest = self._input(child, text, sources)
            words.extend(rest)
        words.extend(extra)
        start = len(self.line.found)
        if words and words[0]:
            self.line.run(Simple(tuple(words), scene.cwd, tuple(given), sources, text, odd=odd))
        else:
            scene.variables |= dict(given)
        self._outputs(redirections, start)

    def _odd(self, node: Node) -> bool:
        raw = self.speech.raw(node)
        return bool(SUBSTITUTED.match(raw)) or ("$'" in raw and "\\" in raw)

    def _input(
        self, node: Node, text: str | None, sources: tuple[Simple, ...]
    ) -> tuple[str | None, tuple[Simple, ...], list[str]]:
        """What flows in through a redirection, and words that the tree takes for part of it."""
        match node.type:
            case "herestring_redirect":
                return self.speech.one(node.children[-1]) + "\n", (), []
            case "heredoc_redirect":
                return self._heredoc(node), (), self._stray(node.children, ("word", "string", "raw_string"))
        goals = [child for child in node.children if child.type not in ("file_descriptor", "ERROR")]
        stray = [word for child in goals[2:] for word in self.speech.words(child)]
        if goals[0].type != "<" or len(goals) < 2:
            return text, sources, stray
        start = len(self.line.found)
        word = self.speech.one(goals[1])
        if goals[1].type == "process_substitution":
            return None, _ran(self.line.found[start:]), stray
        fed = Simple(("<", word), self.line.scene.cwd)
        self.line.found.append(fed)
        return self.line.scene.scripts.get(self.line.scene.path(word)), (fed,), stray

    def _stray(self, nodes: Sequence[Node], kinds: tuple[str, ...]) -> list[str]:
        return [word for child in nodes if child.type in kinds for word in self.speech.words(child)]

    def _heredoc(self, node: Node) -> str:
        parts = {child.type: child for child in node.children}
        body, start = parts.get("heredoc_body"), parts.get("heredoc_start")
        if body is None or start is None:
            return ""
        if re.search(r"[\"'\\]", self.speech.raw(start)):
            return self.speech.raw(body)
        for ticked in re.findall(r"(?<!\\)`([^`]+)`", self.speech.raw(body)):
            self.line.read(ticked)
        return self.speech.text(body, quoted=True)

    def _outputs(self, redirections: Sequence[Node], start: int) -> None:
        line = self.line
        produced = _ran(line.found[start:])
        for node in redirections:
            for one in [node, *node.children] if node.type == "heredoc_redirect" else [node]:
                goals = [child for child in one.children if child.type not in ("file_descriptor", "ERROR")]
                if one.type != "file_redirect" or len(goals) < 2 or not goals[0].type.startswith((">", "&>")):
                    continue
                if goals[1].type == "number" or self.speech.raw(goals[1]) == "-":
                    continue
                word = self.speech.one(goals[1])
                line.found.append(Simple((">", word), line.scene.cwd, sources=produced))
                effects.wrote(word, produced, line.scene, goals[0].type in (">>", "&>>"))

    def bare(self, node: Node) -> None:
        """A redirection without a command, as in `$(< file)`."""
        self._input(node, None, ())
        self._outputs([node], len(self.line.found))

    def redirected(self, node: Node) -> None:
        """A statement with redirections behind it; after a here-document the rest of the line is in there."""
        kinds = ("file_redirect", "herestring_redirect", "heredoc_redirect")
        redirections = [child for child in node.children if child.type in kinds]
        bodies = [step for child in node.children if child.type not in kinds for step in steps(child)]
        for step in bodies[:-1]:  # the tree hangs the redirections of `b` in `a && b > x` on both
            self.visit(step)
        scene, start = self.line.scene, len(self.line.found)
        text, sources, extra = scene.text, scene.sources, []
        for child in redirections:
            text, sources, rest = self._input(child, text, sources)
            extra.extend(rest)
        held = (scene.text, scene.sources)
        scene.text, scene.sources = text, sources
        for child in bodies[-1:]:
            if child.type == "command":
                self.command(child, extra)
            else:
                self.visit(child)
        scene.text, scene.sources = held
        self._outputs(redirections, start)
        produced = _ran(self.line.found[start:])
        for child in redirections:
            if child.type == "heredoc_redirect":
                self._after(child, produced)

    def _after(self, node: Node, produced: tuple[Simple, ...]) -> None:
        for child in node.children:
            if child.type == "pipeline" and child.children and child.children[0].type in ("|", "|&"):
                self.stages([one for one in child.children if one.type not in ("|", "|&")], produced)
            elif child.type not in ("heredoc_body", "file_redirect", "word", "string", "raw_string"):
                self.visit(child)

    def loop(self, node: Node) -> None:
        """The body once for each of the first values."""
        scene = self.line.scene
        name = next((self.speech.raw(child) for child in node.children if child.type == "variable_name"), "")
        listed = [child for child in node.children if child.type not in LOOP_WORDS]
        values = [word for child in listed for word in self.speech.words(child)]
        values = sorted(set(values), key=lambda word: (not word.startswith(("/", "~", "..", unknown()[0])), word))
        bodies = [child for child in node.children if child.type in ("do_group", "compound_statement")]
        for word in values[:MOST_ROUNDS] or [scene.variables.get("@", unknown("@"))]:
            scene.variables[name] = word
            for body in bodies:
                self.visit(body)

    def define(self, node: Node) -> None:
        """A function runs where it is called."""
        name = next((self.speech.raw(child) for child in node.children if child.type == "word"), "")
        body = self.source, node.children[-1]
        self.line.scene.functions[name] = self.line.uncalled[name] = body
        again = rf"(?<!\w){re.escape(name)}\s*\|\s*{re.escape(name)}\s*&"
        if re.search(again, self.speech.raw(node)):
            self.line.found.append(Simple((BOMB, self.speech.raw(node)), self.line.scene.cwd))

    def assign(self, node: Node) -> None:
        """A variable for the rest of the shell."""
        name, text = self._assignment(node)
        self.line.scene.variables[name] = text
        self.line.found.append(Simple(("=", name, text), self.line.scene.cwd))

    def _assignment(self, node: Node) -> tuple[str, str]:
        name = re.split(r"[\[+=]", self.speech.raw(node), maxsplit=1)[0]
        last = node.children[-1] if node.children else None
        text = self.speech.one(last) if last is not None and last.type not in ("=", "+=", "variable_name") else ""
        adds = any(child.type == "+=" for child in node.children)
        return name, (self.line.scene.variables.get(name, "") if adds else "") + text

    def declare(self, node: Node) -> None:
        """`export`, `declare`, `local` and the like."""
        words = []
        for child in node.children:
            if child.type == "variable_assignment":
                self.assign(child)
                words.append("=".join(self.line.found[-1].words[1:]))
            else:
                words.extend(self.speech.words(child))
        if words:
            self.line.found.append(Simple(tuple(words), self.line.scene.cwd))


def _ran(found: Sequence[Simple]) -> tuple[Simple, ...]:
    """The commands themselves: without redirections, assignments and wrappers."""
    ran = [one for one in found if one.name not in QUIET]
    outer = {words for one in ran for words in one.outer}
    return tuple(one for one in ran if one.words not in outer)


def _said(ran: Sequence[Simple]) -> str | None:
    texts = [said(one) for one in ran]
    known = [text for text in texts if text is not None]
    return "".join(known) if ran and len(known) == len(texts) else None


LOOP_WORDS = ("for", "select", "in", ";", "variable_name", "do_group", "compound_statement", "\n", "comment")
HOW: dict[str, Callable[[Walk, Node], None]] = {
    "list": Walk.steps, "subshell": Walk.inside, "command_substitution": Walk.inside,
    "process_substitution": Walk.inside, "pipeline": Walk.pipeline, "command": Walk.command,
    "redirected_statement": Walk.redirected, "file_redirect": Walk.bare, "for_statement": Walk.loop,
    "function_definition": Walk.define, "variable_assignment": Walk.assign,
    "declaration_command": Walk.declare,
}  # fmt: skip


# A line of a shell: every command that would run, in order, with what each one changes for the next.


MOST_STEPS = 150_000
MOST_COMMANDS = 5000
DEEPEST = 8  # shells in shells
GLUED = re.compile(r"(?<=[\w/-])\$(?:\{IFS\}|IFS(?!\w))")
ESCAPED = re.compile(r"(?<=\n)([ \t]*)\\(?:\n|(?=\w))")
BRACED = re.compile(r"((?:^|[;&|\n(])[ \t]*)\{([^{}\s,'\"]+,[^{}\s'\"]*)\}")


class Line:
    """The commands of a line in the order in which they would run; `trouble` says what could not be read."""

    def __init__(self, at: Ground) -> None:
        self.at = at
        self.found: list[Simple] = []
        self.scene = Scene(at)
        self.trouble = ""
        self.broken: list[str] = []  # texts that are no shell grammar
        self.depth = 0
        self.left = MOST_STEPS
        self.uncalled: dict[str, tuple[bytes, Node]] = {}

    def read(self, text: str) -> None:
        """Go through a text in the present scene."""
        source = _regular(text).encode("utf-8", "replace")
        root = parsed(source)
        if self.depth >= DEEPEST or too_deep(root):
            self.trouble = "it is nested too deeply"
            return
        if root.has_error:
            self.broken.append(text)
        self.depth += 1
        Walk(self, source).visit(root)
        self.depth -= 1
        if not self.depth:
            self._uncalled()

    def run(self, one: Simple) -> None:
        """Note a command, what it wraps, what it runs, and what it changes."""
        levels = list(unwrapped(one))
        if len(levels) > MOST:
            self.trouble = "it has too many commands around one"
        core = levels[-1]
        script = nest.script(core) if self.scene.fetched or self.scene.scripts else ""
        path = self.scene.path(script) if script else ""
        if self._fetched(core, path):
            core = levels[-1] = replace(core, fetched=True)
        self.found.extend(levels)
        if len(self.found) > MOST_COMMANDS:
            self.trouble = "it has too many commands"
        if self.trouble:
            return
        for level in levels:
            for item in nest.of(level):
                self._enter(item, level)
        if path in self.scene.scripts:
            self._enter(_as_code(core, path, self.scene.scripts[path]), core)
        if core.name in ("make", "gmake"):
            for item in nest.recipes(self.scene.scripts.get(self.scene.path("Makefile"), "")):
                self._enter(item, core)
        if not is_contained(core):
            effects.apply(core, self.scene)
        if core.name in self.scene.functions:
            self._call(core)

    def _fetched(self, one: Simple, path: str) -> bool:
        if one.name == "git":
            return any(effects.remote(word) in self.scene.fetched for word in one.words[2:] if one.words[1] == "push")
        return bool(path) and any(below(path, brought) for brought in self.scene.fetched)

    def _enter(self, item: Nested, one: Simple) -> None:
        if self.trouble or self.depth > DEEPEST:
            self.trouble = self.trouble or "it is nested too deeply"
        elif item.code is not None:
            self.depth += 1
            for act in _acts(item.language, item.code):
                self._enter(act, replace(one, text=None, sources=()))
            self.depth -= 1
        elif item.words and item.words[0]:
            self.depth += 1
            self.run(Simple(item.words, self.scene.cwd, sources=one.sources, text=one.text))
            self.depth -= 1
        elif item.shell is not None:
            self._shell(item, one)

    def _shell(self, item: Nested, one: Simple) -> None:
        outer = self.scene
        if not item.shares:
            self.scene = outer.copy()
            self.scene.text, self.scene.sources = None, ()
            if item.arguments:
                effects.position(self.scene, item.arguments)
            self.scene.variables |= dict(one.given)
            self.scene.cwd = "" if item.away else outer.cwd
        self.read(item.shell or "")
        self.scene = outer

    def _call(self, one: Simple) -> None:
        source, body = self.scene.functions[one.name]
        self.uncalled.pop(one.name, None)
        outer, self.scene = self.scene, self.scene.copy()
        del self.scene.functions[one.name]  # a function that calls itself says nothing new
        effects.position(self.scene, one.words[1:])
        Walk(self, source).visit(body)
        outer.cwd, self.scene = self.scene.cwd, outer

    def _uncalled(self) -> None:
        """Functions that are only defined: what they do, they do later."""
        while self.uncalled:
            _, (source, body) = self.uncalled.popitem()
            Walk(self, source).visit(body)


def _regular(text: str) -> str:
    """The text without spellings that the grammar (0.25) takes apart wrongly.

    These are `rm$IFS-rf`, `{rm,-rf}`, a backslash at the beginning of a line, and one before a carriage return.
    """
    text = ESCAPED.sub(r"\1", GLUED.sub(" ", text.replace("\\\r\n", "\n")))
    return BRACED.sub(lambda found: found[1] + found[2].replace(",", " "), text)


def _acts(language: str, text: str) -> Iterable[Nested]:
    if language in ("python", "pypy", "ipython"):
        from ralphproof.guard.python_code import done_by

        return done_by(text)
    from ralphproof.guard.other_code import done_by as done_by_other

    return done_by_other(language, text)


def _as_code(one: Simple, path: str, text: str) -> Nested:
    language = one.name if one.name in nest.INTERPRETERS else ""
    shebang = re.match(r"#!.*\b(python|perl|ruby|node|php)", text)
    language = language or (shebang[1] if shebang else "python" if path.endswith(".py") else "")
    if language:
        return Nested(language=language, code=text)
    return Nested(shell=text, shares=one.name in ("source", "."))
