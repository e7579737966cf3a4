"""The colours that we use ourselves."""

from __future__ import annotations

GREEN, RED, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"
