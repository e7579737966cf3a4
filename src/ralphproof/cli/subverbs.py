"""A verb that has verbs of its own, each in a module `<verb>_<own verb>`."""

from __future__ import annotations

from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser, nearest
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@value
class Subverbs:
    """`about` has the place `{verbs}` for the list of them; `usual` is one that takes no more than every verb takes."""

    name: str
    about: str
    examples: tuple[str, ...]
    verbs: dict[str, str]
    usual: str

    def parser(self) -> Parser:
        """The parser of the verb itself, for its help."""
        verbs = "\n".join(f"    {name:<10} {about}" for name, about in self.verbs.items())
        made = Parser(self.name, self.about.format(verbs=verbs), self.examples)
        choices = tuple(self.verbs)
        made.add_argument("what", choices=choices, metavar="VERB", help="what to do; all of them are said above")
        return made

    def parsers(self) -> dict[str, Parser]:
        """The parser of each of its verbs."""
        return {verb: self._module(verb).parser() for verb in self.verbs}

    def main(self, argv: list[str]) -> int:
        """Carry out what is asked of one of them."""
        at = 0
        while at < len(argv) and argv[at].startswith("-"):
            at += _width(argv[at])
        if at >= len(argv):
            return self._help(argv)
        verb, rest = argv[at], [*argv[:at], *argv[at + 1 :]]
        if verb not in self.verbs:
            name = self.name
            raise Refused(f"unknown command {name} {verb}{nearest(verb, self.verbs)} (see ralph {name} --help)")
        main: Callable[[list[str]], int] = self._module(verb).main
        return main(rest)

    def _help(self, argv: list[str]) -> int:
        """Without a verb: what the verbs are. Flags are looked at all the same."""
        made = self.parser()
        made.parse([*argv, self.usual])
        if "--json" in argv:
            put_json(self.name, {"verbs": dict(self.verbs)})
        else:
            print(made.format_help(), end="")
        return 0

    def _module(self, verb: str) -> Any:
        from importlib import import_module

        return import_module(f"ralphproof.cli.{self.name}_{verb}")


def _width(flag: str) -> int:
    """How many words a flag is long that every verb takes: one of them names a folder."""
    return 2 if flag == "--project-dir" or (flag.endswith("d") and not flag.startswith("--")) else 1
