"""The `ralph` fixture: the program on a temporary project."""

from __future__ import annotations

from tests.ralph import ralph as ralph
