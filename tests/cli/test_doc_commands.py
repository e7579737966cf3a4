"""Every command line that README, docs and examples show: its verb, its flags and its arguments are the program's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import RalphError
from ralphproof.cli.dispatch import BUILTIN_VERBS, split_verb
from ralphproof.cli.parser import Parser
from ralphproof.cli.verbs import VERBS, verb_function, verb_module

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
FENCE = re.compile(r"```(?:sh|bash|console|)\n(.*?)```", re.DOTALL)
SPAN = re.compile(r"(?<!`)`((?:[A-Z_]+=\S+ )*ralph(?: (?!guard \[)[^`]+)?)`(?!`)")
COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*ralph(?: (?!guard \[)|$)")  # the guard's own messages aside
OPEN = re.compile(r"…|\.\.\.|\[|<|\bVERB\b|\bNOUN\b")  # a form for many command lines, not one of them


def command_lines(text: str) -> tuple[list[str], list[str]]:
    """Whole command lines of code blocks, with continuations joined; and forms and mentions, in blocks and in text."""
    code = [line.strip() for block in FENCE.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    lines = [line for line in code if COMMAND.match(line)]
    mentions = [" ".join(span.split()) for span in SPAN.findall(FENCE.sub("", text))]
    return [line for line in lines if not OPEN.search(line)], [line for line in lines if OPEN.search(line)] + mentions


def words_of(line: str) -> list[str]:
    """The arguments of `ralph` in a line, up to what the shell takes over."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words = list(lexer)
    words = words[next(at for at, word in enumerate(words) if word == "ralph") + 1 :]
    end = next((at for at, word in enumerate(words) if word and set(word) <= set("|&;<>")), len(words))
    return words[:end]


class Understood(Exception):
    """The arguments were parsed, and nothing was done."""


def understand(line: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Why the program does not understand a command line; empty where it does."""
    parse = Parser.parse_known_args

    def parse_only(parser: Parser, *args: Any, **kwargs: Any) -> Any:
        known, rest = parse(parser, *args, **kwargs)
        if not rest:
            raise Understood
        return known, rest

    monkeypatch.setattr(Parser, "parse_known_args", parse_only)
    try:
        verb, argv = split_verb(words_of(line))
        (BUILTIN_VERBS.get(verb) or verb_function(verb, "main"))(argv)
    except Understood:
        return ""
    except (RalphError, ValueError) as error:
        return str(error)
    except SystemExit as ended:
        return f"exit {ended.code}" if ended.code else ""
    return ""


def misnamed(line: str) -> str:
    """The verb or the flags of a form, such as `ralph run [--check CMD]…`, that the program does not know."""
    words: list[str] = re.findall(r"[\w-]+", line.partition(" -- ")[0])[1:]
    words = words[next((at for at, word in enumerate(words) if word in VERBS), 0) :]
    flags: list[str] = re.findall(r"(?<![\w-])--[a-z][a-z-]+", line.partition(" -- ")[0])
    if words and re.fullmatch("[a-z][a-z-]*", words[0]) and words[0] not in {*VERBS, "help"}:
        return words[0]
    verb = words[0] if words and words[0] in VERBS else "run"
    module = verb_module(verb)
    inner = module.SUBVERBS.build_parsers().values() if hasattr(module, "SUBVERBS") else ()
    parsers = [verb_function(verb, "parser")(), *inner]
    known = {flag for parser in parsers for action in parser._actions for flag in action.option_strings}
    return ", ".join(flag for flag in flags if flag not in known and flag.rstrip("-") not in known)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_program_understands_every_command_line_of_a_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, forms = command_lines(page.read_text("utf-8"))
    wrong = {line: problem for line in whole if (problem := understand(line, monkeypatch))}
    wrong |= {line: problem for line in forms if (problem := misnamed(line))}
    assert wrong == {}


@pytest.mark.parametrize(
    "line", ["ralph statsu", "ralph run --chek x", "ralph status a b c", "ralph run --maximum-iterations many"]
)
def test_a_wrong_command_line_is_noticed(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert understand(line, monkeypatch)


@pytest.mark.parametrize("line", ["ralph statsu RUN", "ralph run [--chek CMD]"])
def test_a_wrong_form_is_noticed(line: str) -> None:
    assert misnamed(line)
