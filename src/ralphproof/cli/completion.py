"""`ralph completion`: a shell completion script with every verb and flag."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ralphproof.base.value import replace
from ralphproof.cli.parser import SUPPRESS, Parser
from ralphproof.cli.verbs import VERBS
from ralphproof.display.output import print_json
from ralphproof.setup.completion import CompletedFlag, CompletedVerb, bash_script, fish_script, zsh_script

ABOUT = "Print a script that completes commands and flags in your shell."
EXAMPLES = (
    "source <(ralph completion bash)",
    "ralph completion zsh > ~/.zfunc/_ralph",
    "ralph completion fish > ~/.config/fish/completions/ralph.fish",
)


def build_parser() -> Parser:
    parser = Parser("completion", ABOUT, EXAMPLES)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    write: dict[str, Callable[[list[CompletedVerb]], str]] = {
        "bash": bash_script,
        "zsh": zsh_script,
        "fish": fish_script,
    }
    script = write[args.shell](describe_verbs())
    if args.json:
        print_json("completion", {"shell": args.shell, "script": script})
    else:
        print(script, end="")
    return 0


def describe_verbs() -> list[CompletedVerb]:
    """Every verb as its own parser describes it."""
    return [describe_verb(name, about, import_module(f"ralphproof.cli.{name}")) for name, about in VERBS.items()]


def describe_verb(name: str, about: str, module: Any) -> CompletedVerb:
    """A verb with its subverbs, by its module."""
    described = _describe_parser(name, about, module.build_parser())
    if not hasattr(module, "SUBVERBS"):
        return described
    about_each, parsers = module.SUBVERBS.verbs, module.SUBVERBS.build_parsers()
    return replace(
        described, inner=tuple(_describe_parser(verb, about_each[verb], parsers[verb], True) for verb in parsers)
    )


def _describe_parser(name: str, about: str, parser: Parser, every: bool = False) -> CompletedVerb:
    """Flags and words of a parser; with `every`, hidden flags too."""
    flags, words = [], tuple[str, ...]()
    for action in parser._actions:
        hidden = action.help == SUPPRESS
        if action.option_strings and (every or not hidden):
            about_it = "" if hidden else action.help or ""
            flags.append(CompletedFlag(tuple(action.option_strings), about_it, action.nargs != 0))
        elif action.choices and not hidden:
            words += tuple(action.choices)
    return CompletedVerb(name, about, tuple(flags), words)
