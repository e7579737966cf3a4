"""Command-line parsing: one parser for the verb at hand, errors in one line with a suggestion."""

from __future__ import annotations

import argparse
import os

from ralphproof import __version__
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn


ALONE = {"--sandbox": "auto"}  # what a flag means without its `=VALUE`
SUPPRESS = argparse.SUPPRESS  # the help of a flag that help does not show


class Parser(argparse.ArgumentParser):
    """A verb's arguments. The first line of `about` says what it does; `examples` stand at the end of its help.

    `absent` has flags that one might expect, and why there are none.
    """

    def __init__(
        self, verb: str, about: str, examples: Iterable[str], absent: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._absent = dict(absent)
        shown = "examples:\n" + "\n".join(f"  {line}" for line in examples)
        super().__init__(
            prog=f"ralph {verb}".strip(), description=about, epilog=shown, allow_abbrev=False, add_help=False,
            formatter_class=_formatter,
        )  # fmt: skip
        common = self.add_argument_group("everywhere")
        common.add_argument("-h", "--help", action="help", help="show this help")
        common.add_argument(
            "-v", "--version", action="version", version=f"ralph {__version__}", help="show the version"
        )
        common.add_argument("-d", "--project-dir", metavar="DIR", help="the project; else found upwards from here")
        common.add_argument("--json", action="store_true", help="the result as JSON on standard output")
        common.add_argument("--no-color", action="store_true", help="no colour, as NO_COLOR does")
        common.add_argument("--no-emoji", action="store_true", help="plain signs instead of emoji")
        common.add_argument("-q", "--quiet", action="store_true", help="no progress, only the result")
        common.add_argument("-V", "--verbose", action="store_true", help="say what is done and why, on standard error")

    def parse(self, argv: list[str]) -> argparse.Namespace:
        """The arguments; unknown ones are refused with the reason, or else with the nearest known flag."""
        known, unknown = self.parse_known_args(self._whole(argv))
        for flag in unknown:
            if why := self._absent.get(flag.split("=")[0]):
                raise Refused(why)
        if unknown:
            raise Refused(f"unknown argument {unknown[0]}{self._nearest(unknown[0])} (see {self.prog} --help)")
        return known

    def _whole(self, argv: list[str]) -> list[str]:
        """The same with the value of each flag that may be given without: the word behind it is never that."""
        at = argv.index("--") if "--" in argv else len(argv)
        return [f"{word}={ALONE[word]}" if word in ALONE else word for word in argv[:at]] + argv[at:]

    def flags(self) -> list[str]:
        """Every flag that this verb takes."""
        return sorted(flag for action in self._actions for flag in action.option_strings)

    def error(self, message: str) -> NoReturn:
        raise Refused(f"{message} (see {self.prog} --help)")

    def _nearest(self, flag: str) -> str:
        return nearest(flag.split("=")[0], self.flags())


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Told its width: to find out for itself, argparse imports `shutil` for every command line, help or not."""
    try:
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
    except (OSError, ValueError):
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns or 80) - 2)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def positive(text: str) -> int:
    """A whole number above zero."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def delay(text: str) -> float:
    """A finite number of seconds; none is one too."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return number


def amount(text: str) -> float:
    """A finite number above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero")
    return number
