"""Values in the agents' own JSON configuration files."""

from __future__ import annotations

import os

import msgspec

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

MAX_FILE_BYTES = 1 << 20
URL_KEYS = ("baseUrl", "baseURL")  # how agents call the place of a service


def read_json_setting(file: str, *names: str) -> str | None:
    """The text at this place in a JSON file (`~` is the home folder); None where there is none that can be read."""
    found = _load_json(file)
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None


def find_service_urls(file: str) -> tuple[str, ...]:
    """The service addresses that a JSON configuration file names, at any depth."""
    return tuple(dict.fromkeys(text for text in _iter_strings(_load_json(file), URL_KEYS) if "://" in text))


def find_key_variables(file: str, key: str, before: str = "", after: str = "") -> tuple[str, ...]:
    """The environment variables that a JSON file names under this key, each between these two texts."""
    told = (
        text.removeprefix(before).removesuffix(after)
        for text in _iter_strings(_load_json(file), (key,))
        if before in text
    )
    return tuple(dict.fromkeys(name for name in told if name.isidentifier() and name.isupper()))


def _iter_strings(found: Any, names: tuple[str, ...]) -> Iterator[str]:
    """All texts at keys of these names, at any depth."""
    inner = found.items() if isinstance(found, dict) else ((None, one) for one in found)
    for name, one in inner:
        if isinstance(one, str):
            yield from [one] if name in names else []
        elif isinstance(one, dict | list):
            yield from _iter_strings(one, names)


def _load_json(file: str) -> Any:
    """The file's content; an empty object where it cannot be read."""
    path = os.path.expanduser(file)
    if not os.path.isfile(path):  # a pipe would be waited for
        return {}
    try:
        with open(path, "rb") as opened:
            found = msgspec.json.decode(opened.read(MAX_FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict | list) else {}
