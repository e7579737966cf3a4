"""The colours that we use ourselves."""

from __future__ import annotations

GREEN, RED, YELLOW, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"

Line = tuple[str, str]  # a line for people, and its colour
