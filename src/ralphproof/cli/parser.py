"""Command-line parsing: the parser of one verb, and verbs with subverbs."""

from __future__ import annotations

import argparse
import os
import sys

from ralphproof import __version__
from ralphproof.base.errors import Refused
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.verbs import verb_function
from ralphproof.display.output import print_result

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterable
    from typing import Any, NoReturn

    from ralphproof.settings.schema import SettingKey
    from ralphproof.store.ledger import RunRow, SqliteLedger


def find_named_run(ledger: SqliteLedger, name: str | None, args: Namespace, shown: bool = False) -> RunRow:
    """The run of this name, else the latest.

    The latest is named on standard error, unless the command shows the id itself.
    """
    from ralphproof.store.ledger import LATEST
    from ralphproof.store.run_state import find_run

    row = find_run(ledger, name)
    if name in (None, LATEST) and not (shown or args.json or args.quiet):
        print(f"the latest run is {row.id}", file=sys.stderr)
    return row


IMPLIED_VALUES = {"--sandbox": "auto"}  # the value of a flag given without `=VALUE`
SUPPRESS = argparse.SUPPRESS  # help of a hidden flag


class Parser(argparse.ArgumentParser):
    """The arguments of one verb.

    The first line of `about` is its summary; `examples` end its help; `absent` maps flags that a user might expect to
    the reason why they do not exist.
    """

    def __init__(
        self, verb: str, about: str, examples: Iterable[str], absent: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._absent = dict(absent)
        epilog = "examples:\n" + "\n".join(f"  {line}" for line in examples)
        super().__init__(
            prog=f"ralph {verb}".strip(), description=about, epilog=epilog, allow_abbrev=False, add_help=False,
            formatter_class=_formatter,
        )  # fmt: skip
        self.set_defaults(verb=verb)
        common = self.add_argument_group("common options")
        common.add_argument("-h", "--help", action="help", help="show this help")
        common.add_argument(
            "-v", "--version", action="version", version=f"ralph {__version__}", help="show the version"
        )
        common.add_argument(
            "-d", "--project-dir", metavar="DIR", help="project directory (default: searched upwards from here)"
        )
        common.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
        common.add_argument("--no-color", action="store_true", help="print no color, like NO_COLOR")
        common.add_argument("--no-emoji", action="store_true", help="print plain symbols instead of emoji")
        common.add_argument("-q", "--quiet", action="store_true", help="print only the result, no progress")
        common.add_argument("-V", "--verbose", action="store_true", help="log what is done and why on standard error")

    def add(self, spec: str, about: str, to: argparse._ActionsContainer | None = None, **options: Any) -> None:
        """Add an argument as its help shows it: `-o, --output FILE`, `--force` (a switch), or `name` of a positional.

        `to` is a group of this parser; `options` are those of `add_argument`.
        """
        words = spec.replace(",", " ").split()
        names = [word for word in words if word.startswith("-")]
        if not names:
            names = [spec]
        elif len(words) > len(names):
            options["metavar"] = words[-1]
        elif not options.keys() & {"action", "choices", "metavar"}:
            options["action"] = "store_true"
        (to or self).add_argument(*names, help=about, **options)

    def add_run(self, about: str = "run id or unique prefix (default: the latest run)") -> None:
        """Add the optional argument RUN."""
        self.add("run", about, nargs="?", metavar="RUN")

    def add_setting_flags(self) -> None:
        """Add the flags of this verb that are declared with settings."""
        from ralphproof.settings.declarations import flags_of
        from ralphproof.settings.implementations import BUILTIN

        sandboxes = ", ".join(BUILTIN["sandboxes"])
        for _, key, flag in flags_of(self.get_default("verb")):
            about = flag.help.format(default=key.default, sandboxes=sandboxes)
            if flag.constant is not None:
                self.add_argument(*flag.names, action="store_const", const=flag.constant, dest=flag.dest, help=about)
            elif flag.adds:
                self.add_argument(*flag.names, action="append", metavar=flag.metavar, dest=flag.dest, help=about)
            else:
                kind = _number_of(key) if key.kind in ("integer", "number") else str
                self.add_argument(*flag.names, type=kind, metavar=flag.metavar, dest=flag.dest, help=about)

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """Parse the arguments; refuse unknown ones with the reason or the nearest known flag."""
        known, unknown = self.parse_known_args(self._with_implied_values(argv))
        for flag in unknown:
            if why := self._absent.get(flag.split("=")[0]):
                raise Refused(why)
        if unknown:
            raise Refused(f"unknown argument {unknown[0]}{self._nearest(unknown[0])} (see {self.prog} --help)")
        return known

    def _with_implied_values(self, argv: list[str]) -> list[str]:
        """Write out the value of flags whose value is optional: the next word is never taken as that value."""
        at = argv.index("--") if "--" in argv else len(argv)
        return [f"{word}={IMPLIED_VALUES[word]}" if word in IMPLIED_VALUES else word for word in argv[:at]] + argv[at:]

    def flags(self) -> list[str]:
        """All flags of this verb, sorted."""
        return sorted(flag for action in self._actions for flag in action.option_strings)

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message} (see {self.prog} --help)")

    def _nearest(self, flag: str) -> str:
        return did_you_mean(flag.split("=")[0], self.flags())


def _formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter with a given width: without it argparse imports `shutil` for every command line."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or 80) - 2)


def _number_of(key: SettingKey) -> Callable[[str], float]:
    """A function that parses the number of a setting, within its bounds."""

    def parse(text: str) -> float:
        from ralphproof.settings.schema import parse_number

        try:
            return parse_number(text, key)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def positive_int(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def seconds(text: str) -> float:
    """A finite number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return number


def positive_number(text: str) -> float:
    """A finite number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return number


@value
class Subverbs:
    """A verb with subverbs, each with its one-line help.

    `about` contains `{verbs}`, which becomes the list of subverbs; `usual` is a subverb that needs no arguments.
    """

    name: str
    about: str
    examples: tuple[str, ...]
    verbs: dict[str, str]
    usual: str

    def build_parser(self) -> Parser:
        """The parser of the verb itself, for its help."""
        verbs = "\n".join(f"    {name:<10} {about}" for name, about in self.verbs.items())
        parser = Parser(self.name, self.about.format(verbs=verbs), self.examples)
        parser.add("what", "one of the verbs listed above", choices=tuple(self.verbs), metavar="VERB")
        return parser

    def build_parsers(self) -> dict[str, Parser]:
        """The parser of each subverb."""
        return {verb: verb_function(f"{self.name} {verb}", "parser")() for verb in self.verbs}

    def main(self, argv: list[str]) -> int:
        """Run the subverb that `argv` names, or list all."""
        at = 0
        while at < len(argv) and argv[at].startswith("-"):
            at += 2 if takes_folder(argv[at]) else 1
        if at >= len(argv):
            parser = self.build_parser()
            parser.parse([*argv, self.usual])  # flags are validated all the same
            print_result("--json" in argv, self.name, {"verbs": dict(self.verbs)}, *parser.format_help().splitlines())
            return 0
        verb, rest = argv[at], [*argv[:at], *argv[at + 1 :]]
        if verb not in self.verbs:
            name = self.name
            raise Refused(f"unknown command {name} {verb}{did_you_mean(verb, self.verbs)} (see ralph {name} --help)")
        code: int = verb_function(f"{self.name} {verb}", "main")(rest)
        return code


def takes_folder(flag: str) -> bool:
    """Whether the next word is the value of this common flag: only `-d` takes one."""
    return flag == "--project-dir" or (flag.endswith("d") and not flag.startswith("--"))
