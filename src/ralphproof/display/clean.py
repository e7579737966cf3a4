"""What may reach a terminal: text and colours. Everything else that a stranger's output can hold is taken out."""

from __future__ import annotations

import re

# String sequences (OSC, DCS, SOS, PM, APC) with their content, CSI but for colour, other escapes, control characters.
_UNSAFE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)"
    r"|(?:\x1b\[|\x9b)(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-9;:]*m"
    r"|\x1b(?!\[)[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
    re.DOTALL,
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")


def clean(text: str, colour: bool = False) -> str:
    """`text` with nothing in it that moves the cursor, sets the title, or hides what it says."""
    safe = _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return (safe if colour else _COLOUR.sub("", safe)).encode("utf-8", "replace").decode()
