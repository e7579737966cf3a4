"""Whether a path belongs to a protected one, or holds it. The patterns mean what the workspace means by them."""

from __future__ import annotations

import re

SPECIAL = {"*": "[^/]*", "?": "[^/]"}


def guards(pattern: str, path: str, whole: bool) -> bool:
    """Whether a path from the root is one that the pattern means, or lies below it; `whole` folders also above it."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if not parts or ".git" in path.split("/"):
        return False
    if len(parts) == 1 and any(sign in pattern for sign in SPECIAL):
        parts = ["**", *parts]  # as in a .gitignore: in every folder
    if re.fullmatch(f"{_translated(parts)}(/.*)?", path, re.DOTALL):
        return True
    return whole and _plain(parts).startswith(path + "/")


def _plain(parts: list[str]) -> str:
    return re.sub(r"\\(.)", r"\1", "/".join(parts))


def _translated(parts: list[str]) -> str:
    made = ""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            made += "[^/]+" if last else "(?:[^/]+/)*"
        else:
            made += _name(part) + ("" if last else "/")
    return made


def _name(part: str) -> str:
    pieces = re.findall(r"\\?.", part, re.DOTALL)
    return "".join(SPECIAL.get(piece) or re.escape(piece[-1]) for piece in pieces)
