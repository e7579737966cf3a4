"""Path patterns with `*`, `?` and `**`, as protected paths use them."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from re import Pattern

# One character of UTF-8, or a byte that is none.
_ONE_CHARACTER = rb"(?:[^/\x80-\xff]|[\xc0-\xff][\x80-\xbf]*|[\x80-\xbf])"
_SPECIAL = "*?\\"
_PROTECTABLE_IN_RALPH = (".ralph/settings.json", ".ralph/settings.local.json", ".ralph/skills")
GIT_FOLDER = b".git"
# What package managers write, and ralph itself: a pattern that roams the whole project does not mean that.
SKIPPED_FOLDERS = frozenset((b"node_modules", b".venv", b".ralph", b".ralph-active"))


def explain_bad_pattern(pattern: str) -> str:
    """What is wrong with a protected path, in words that follow its name; empty where nothing is."""
    parts = split_pattern(pattern)
    if "\0" in pattern:
        return "holds a NUL character"
    if pattern.startswith("/"):
        return "is absolute; write it from the project's root: " + (pattern.lstrip("/") or "src/auth/")
    if ".." in parts or pattern.startswith("~/"):
        return "leads out of the project"
    if not parts:
        return "names nothing; write a file or folder from the project's root, such as src/auth/"
    if any(after not in _SPECIAL for after in _escaped_characters(pattern)):
        return "holds a backslash; folders are separated by /"
    if all(set(part) == {"*"} for part in parts):
        return "would protect every file, so that no agent could work"
    return _explain_reserved(parts)


def _explain_reserved(parts: list[str]) -> str:
    if ".git" in parts:
        return "names .git, where git itself writes; hooks, and settings that execute something, are watched anyway"
    path = "/".join(parts)
    allowed = any(path == name or path.startswith(f"{name}/") for name in _PROTECTABLE_IN_RALPH)
    if parts[0] in (".ralph", ".ralph-active") and not allowed:
        return f"names {parts[0]}, where ralph itself writes; settings and skills there are watched anyway"
    return ""


def _escaped_characters(pattern: str) -> list[str]:
    """What follows each backslash that is not itself escaped."""
    found, at = [], 0
    while (at := pattern.find("\\", at)) >= 0:
        found.append(pattern[at + 1 : at + 2] or "end")
        at += 2
    return found


def split_pattern(pattern: str) -> list[str]:
    """The names between slashes."""
    return [part for part in pattern.split("/") if part not in ("", ".")]


def escape_pattern(path: str) -> str:
    """The pattern that means this path and no other."""
    for special in ("\\", "*", "?"):
        path = path.replace(special, "\\" + special)
    return path


def is_glob(pattern: str) -> bool:
    """Whether the pattern stands for more than one name."""
    plain = pattern.replace("\\\\", "").replace("\\*", "").replace("\\?", "")
    return "*" in plain or "?" in plain


def literal_path(pattern: str) -> bytes:
    """The one path that a pattern without `*` and `?` means."""
    joined = "/".join(split_pattern(pattern))
    for special in ("*", "?", "\\"):
        joined = joined.replace("\\" + special, special)
    return joined.encode("utf-8", "surrogateescape")


def search_scope(pattern: str) -> tuple[bytes, int | None]:
    """The folder below which a pattern of many names finds all of them, and how deep there; None is at any depth."""
    parts = _rooted_parts(pattern)
    fixed = next(place for place, part in enumerate(parts) if is_glob(part))
    return literal_path("/".join(parts[:fixed])), None if "**" in parts else len(parts) - fixed


def _rooted_parts(pattern: str) -> list[str]:
    """As in a `.gitignore`, a single name with `*` or `?` in it is looked for in every folder."""
    parts = split_pattern(pattern)
    return ["**", *parts] if len(parts) == 1 and is_glob(pattern) else parts


def pattern_covers(pattern: str, path: str) -> bool:
    """Whether the path is one that the pattern means, or lies below such a one."""
    named = path.encode("utf-8", "surrogateescape")
    if GIT_FOLDER in named.split(b"/") or is_temporary_file(named):
        return False
    if not is_glob(pattern):
        fixed = literal_path(pattern)
        return named == fixed or named.startswith(fixed + b"/")
    return (
        not skipped_folders(pattern) & set(named.split(b"/")) and compile_patterns(pattern).fullmatch(named) is not None
    )


def skipped_folders(pattern: str) -> frozenset[bytes]:
    """Folders that a pattern of many names does not look into, because it does not name them."""
    named = {part.encode("utf-8", "surrogateescape") for part in split_pattern(pattern)}
    return frozenset((SKIPPED_FOLDERS | {GIT_FOLDER}) - named)


def compile_patterns(*patterns: str) -> Pattern[bytes]:
    """Matches, whole, the paths that any of the patterns means, and all below them."""
    import re

    return re.compile(
        b"(?:%s)(?:/.*)?" % b"|".join(_translate_parts(_rooted_parts(one)) for one in patterns), re.DOTALL
    )


def _translate_parts(parts: list[str]) -> bytes:
    made = b""
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            made += b"[^/]+" if last else b"(?:[^/]+/)*"
        else:
            made += _translate_name(part) + (b"" if last else b"/")
    return made


def _translate_name(part: str) -> bytes:
    import re

    made, escaped = b"", False
    for letter in part:
        if not escaped and letter in _SPECIAL:
            escaped = letter == "\\"
            made += {"*": b"[^/]*", "?": _ONE_CHARACTER, "\\": b""}[letter]
            continue
        made, escaped = made + re.escape(letter.encode("utf-8", "surrogateescape")), False
    return made


def is_temporary_file(path: bytes) -> bool:
    """Whether a file comes and goes by itself.

    Running tests writes compiled modules beside the sources, and looking into a folder on macOS leaves a file there.
    Neither is a touch of what is protected.
    """
    if not path.endswith((b".pyc", b".DS_Store")):
        return False
    *folders, name = path.split(b"/")
    return name == b".DS_Store" or (name.endswith(b".pyc") and folders[-1:] == [b"__pycache__"])
