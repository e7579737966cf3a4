"""The program on a throw-away project."""

from __future__ import annotations

from tests.ralph import ralph as ralph
