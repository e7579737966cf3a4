"""Texts that hold secrets of the environment, written with the names of the variables in their place."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.secret import secrets_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.value import Json

EDGE = "\x1a"  # no command line and no prompt holds it


def hidden(data: Json, environ: Mapping[str, str], mask: Callable[[str], str]) -> Json:
    """The same without secrets: those of the environment can be brought back, other ones are masked."""
    names = {secret: reference for secret in secrets_in(environ) if (reference := _reference(secret, environ))}

    def hide(text: str) -> str:
        for secret, reference in names.items():
            text = text.replace(secret, reference)
        return mask(text)

    return each(data, hide)


def revealed(data: Json, environ: Mapping[str, str]) -> Json:
    """The same with the secrets of the environment as it now is; raises Refused where a variable is missing."""

    def reveal(text: str) -> str:
        pieces = text.split(EDGE)
        return "".join(_value(piece, environ) if place % 2 else piece for place, piece in enumerate(pieces))

    return each(data, reveal)


def _reference(secret: str, environ: Mapping[str, str]) -> str:
    """Which variable holds a secret, whole or as a part of it."""
    for name, text in environ.items():
        if text.strip() == secret:
            return f"{EDGE}{name}{EDGE}"
    for name, text in environ.items():
        if (at := text.find(secret)) >= 0:
            return f"{EDGE}{name}:{at}:{len(secret)}{EDGE}"
    return ""


def _value(reference: str, environ: Mapping[str, str]) -> str:
    name, _, part = reference.partition(":")
    if name not in environ:
        raise Refused(f"this run was begun with the value of {name}, which is not set now; set it")
    at, _, length = part.partition(":")
    if not (at.isdigit() and length.isdigit()):
        return environ[name].strip()
    return environ[name][int(at) : int(at) + int(length)]


def each(data: Json, change: Callable[[str], str]) -> Json:
    """The same with every text in it changed so; names stay."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [each(item, change) for item in data]
    return {name: each(item, change) for name, item in data.items()} if isinstance(data, dict) else data
