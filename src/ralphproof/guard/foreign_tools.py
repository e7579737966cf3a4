"""Unknown tools, such as those of MCP servers, judged by the names and shapes of their arguments."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.tools import deleted, fetched, looked_at, written
from ralphproof.guard.verdict import Act

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.guard.verdict import Ground

COMMANDS = {"command", "cmd", "script", "shell", "commands", "argv", "bash", "commandline", "command_line"}
QUERIES = {"query", "sql", "statement", "queries"}
PATHS = re.compile(
    r"(?i).*(path|file|filename|dir|directory|folder|source|destination|target)s?|from|to|src|dst|dest|cwd"
)
ADDRESS = re.compile(r"(?i)(https?|ftp|file|wss?|gopher|data|javascript):\S+")
WRITES = re.compile(
    r"(?i)write|edit|create|move|rename|update|put|append|save|patch|copy|insert|replace|mkdir|touch|download"
)
DELETES = re.compile(r"(?i)delete|remove|rmdir|unlink|trash|(^|_)rm(_|$)")


def guessed(tool: str, given: Any, at: Ground, name: str = "") -> Iterator[Act]:
    """What a call would do if each argument means what its name and its shape say."""
    if isinstance(given, dict):
        for key, inner in given.items():
            yield from guessed(tool, inner, at, str(key).lower())
    elif isinstance(given, list) and name in COMMANDS and given and all(isinstance(word, str) for word in given):
        yield from _command(given, at)
    elif isinstance(given, list | tuple):
        for inner in given:
            yield from guessed(tool, inner, at, name)
    elif isinstance(given, str) and given:
        yield from _text(tool, given, at, name)


def _command(words: list[str], at: Ground) -> Iterator[Act]:
    """Either words of one command, or a list of commands."""
    from ralphproof.guard.lines import acts_of, words_of

    yield from words_of(words, at)
    for word in words:
        if " " in word:
            yield from acts_of(word, at)


def _text(tool: str, text: str, at: Ground, name: str) -> Iterator[Act]:
    if name in COMMANDS:
        from ralphproof.guard.lines import acts_of

        yield from acts_of(text, at)
    elif name in QUERIES:
        from ralphproof.guard.lines import words_of
        from ralphproof.guard.nested import SQL

        yield from words_of([SQL, text], at)
    elif ADDRESS.fullmatch(text) or name in ("url", "uri", "href", "endpoint"):
        yield fetched(tool, text)
    elif PATHS.fullmatch(name) or re.match(r"(/|~/|\.\.?/)\S+$", text):
        yield from _path(tool, text, at)


def _path(tool: str, path: str, at: Ground) -> Iterator[Act]:
    verb = tool.rpartition("__")[2]
    if DELETES.search(verb):
        yield deleted(tool, path, at)
    elif WRITES.search(verb):
        yield written(tool, path, at)
    yield looked_at(tool, path, at)
