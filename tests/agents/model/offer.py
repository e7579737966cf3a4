"""The tools that a request offers, and how a scripted call is said with one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.agents.model.script import Json

Offer = Mapping[str, Json]
"""Each tool's name and the schema of its input; an empty schema where the request tells none."""
Call = tuple[str, Any]
"""A tool's name and its input."""


def _described(command: str) -> Json:
    return {"command": command, "description": "run it"}


def _under_bash(command: str) -> Json:
    return {"command": ["bash", "-lc", command]}


def _gemini_shell(command: str) -> Json:
    return {"command": command, "description": "run it", "is_background": False}


def _content(path: str, content: str) -> Json:
    """Every spelling of a path; the schema keeps the one that the tool knows."""
    return {"file_path": path, "filePath": path, "path": path, "content": content}


def _path(path: str) -> Json:
    return {"file_path": path, "filePath": path, "path": path, "absolute_path": path}


# In the order of preference. Claude Code, pi and Copilot, Codex (three names over time), Gemini.
SHELLS: Mapping[str, Callable[[str], Json]] = {
    "Bash": _described, "bash": _described, "exec_command": lambda command: {"cmd": command},
    "shell_command": lambda command: {"command": command}, "shell": _under_bash, "local_shell": _under_bash,
    "run_shell_command": _gemini_shell,
}  # fmt: skip
WRITERS: Mapping[str, Callable[[str, str], Json]] = {
    "Write": _content, "write": _content, "write_file": _content,
    "create": lambda path, content: {"path": path, "file_text": content},
}  # fmt: skip
READERS: Mapping[str, Callable[[str], Json]] = {"Read": _path, "read": _path, "read_file": _path, "view": _path}


def said(call: Json, offer: Offer) -> Call:
    """The call in the words of the tools on offer; without a fitting tool, through the shell."""
    match call:
        case {"tool": str(name), **rest}:
            return name, rest.get("input", {})
        case {"shell": str(command)}:
            return _first(SHELLS, offer, command) or ("shell", {"command": command})
        case {"write": [str(path), str(content)]}:
            here = f"cat > '{path}' <<'END'\n{content.removesuffix(chr(10))}\nEND"
            return _first(WRITERS, offer, path, content) or said({"shell": here}, offer)
        case {"read": str(path)}:
            return _first(READERS, offer, path) or said({"shell": f"cat '{path}'"}, offer)
        case _:
            raise ValueError(f"no such call in a script: {call}")


def _first(known: Mapping[str, Callable[..., Json]], offer: Offer, *words: str) -> Call | None:
    for name, form in known.items():
        if name in offer:
            return name, _known_to(offer[name], form(*words))
    return None


def _known_to(schema: Json, given: Json) -> Json:
    """`given` without what a strict schema would refuse."""
    properties = schema.get("properties")
    return {key: value for key, value in given.items() if key in properties} if properties else given
