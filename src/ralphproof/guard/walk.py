"""Reads a line as a shell would and notes every command that would run, wherever it stands."""

from __future__ import annotations

import re

from ralphproof.guard import effects
from ralphproof.guard.nested import BOMB
from ralphproof.guard.prints import label, replied, said
from ralphproof.guard.simple import FILE, OUTPUT, QUIET, Simple, unknown
from ralphproof.guard.tree import steps
from ralphproof.guard.word import Speech
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ralphproof.guard.line import Line
    from ralphproof.guard.tree import Node

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
