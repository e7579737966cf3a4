"""The program on a throw-away project."""

from tests.ralph import ralph as ralph
