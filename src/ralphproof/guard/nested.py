"""Nested commands: words, shell text, or code of another language."""

from __future__ import annotations

from ralphproof.base.value import value

# Names of commands that nobody can type, for what code does without a command.
OPAQUE, REMOTE, REVERSE, SQL, BOMB = "(opaque)", "(remote)", "(reverse-shell)", "(sql)", "(bomb)"


@value
class Nested:
    """One of `words`, `shell` and `code`; `shares` the shell that it is in, as `eval` does; or it is `away` by ssh."""

    words: tuple[str, ...] = ()
    shell: str | None = None
    code: str | None = None
    language: str = ""
    arguments: tuple[str, ...] = ()
    shares: bool = False
    away: bool = False


def shell(text: str, *arguments: str, shares: bool = False) -> Nested:
    """Text for a shell."""
    return Nested(shell=text, arguments=arguments, shares=shares)


def words(*given: str) -> Nested:
    """A command as words."""
    return Nested(words=given)


def code(language: str, text: str) -> Nested:
    """Code of another language."""
    return Nested(language=language, code=text)
