"""A line of a shell: every command that would run, in order, with what each one changes for the next."""

from __future__ import annotations

import re

from ralphproof.guard import effects, nest
from ralphproof.guard.nested import Nested
from ralphproof.guard.place import below
from ralphproof.guard.scene import Scene
from ralphproof.guard.simple import Simple
from ralphproof.guard.tree import parsed, too_deep
from ralphproof.guard.walk import Walk
from ralphproof.guard.wrap import MOST, is_contained, unwrapped
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.guard.tree import Node
    from ralphproof.guard.verdict import Ground

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
