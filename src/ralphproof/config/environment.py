"""Settings from environment variables: `RALPH__AGENT__TIMEOUT_SECONDS=60` is `agent.timeoutSeconds`."""

from __future__ import annotations

from ralphproof.config.jsontext import parse
from ralphproof.config.keys import KEYS, Key, leaves
from ralphproof.config.layers import Layer
from ralphproof.config.schema import Problem, expects, nearest
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

PREFIX = "RALPH__"


def variable(path: str) -> str:
    """The variable that sets a path."""
    snake = "".join(f"_{letter}" if letter.isupper() else letter for letter in path)
    return PREFIX + snake.replace(".", "__").upper()


def environment(environ: Mapping[str, str]) -> tuple[list[Layer], list[Problem]]:
    """One layer for each variable, the more exact path last, and what is wrong with variables."""
    layers: list[Layer] = []
    problems: list[Problem] = []
    taken: dict[tuple[str, ...], str] = {}
    names = [name for name in environ if name.upper().startswith(PREFIX)]
    for name in sorted(names, key=lambda name: (name.count("__"), name)):
        found = _locate(name)
        if isinstance(found, Problem):
            problems.append(found)
            continue
        path, key = found
        if (other := taken.setdefault(path, name)) != name:
            problems.append(Problem(name, ".".join(path), f"sets {'.'.join(path)}, which {other} sets too"))
            continue
        data, wrong = _value(environ[name], key)
        if wrong:
            problems.append(Problem(name, ".".join(path), wrong))
        else:
            layers.append(Layer(name, _nested(path, data)))
    return layers, problems


def _locate(name: str) -> tuple[tuple[str, ...], Key] | Problem:
    parts = name[len(PREFIX) :].split("__")
    key, path = KEYS, tuple[str, ...]()
    for place, part in enumerate(parts):
        if key.kind == "map" and part:
            return (*path, "__".join(parts[place:])), key.item or key
        if key.kind == "list":
            whole = variable(".".join(path))
            return Problem(name, ".".join(path), f"{'.'.join(path)} is a list: give all of it as JSON in {whole}")
        match = next((known for known in key.keys or {} if known.casefold() == _folded(part)), None)
        if match is None:
            return Problem(name, "", f"there is no such setting{nearest(name, _variables())}")
        key, path = (key.keys or {})[match], (*path, match)
    return path, key


def _folded(part: str) -> str:
    return part.replace("_", "").casefold()


def _variables() -> list[str]:
    return [variable(path) for path, _ in leaves() if "[" not in path and "*" not in path] + [variable("guardrails")]


def _value(text: str, key: Key) -> tuple[Any, str]:
    """What a variable says, and what is wrong with it. Text stands for itself, anything else is JSON; so is `null`."""
    if key.kind in ("text", "word", "choice") and not (key.nullable and not key.blank and text == "null"):
        return text, ""
    if key.single and not text.lstrip().startswith("["):
        return text, ""
    parsed = parse(text)
    if parsed.faults:
        return None, f"must be {expects(key)}, as JSON: {'; '.join(parsed.faults)}"
    return parsed.data, ""


def _nested(path: tuple[str, ...], data: Any) -> dict[str, Any]:
    for name in reversed(path):
        data = {name: data}
    return data  # type: ignore[no-any-return]
