from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.misbehaviour.invariants")

from tests.ralph import ralph as ralph  # noqa: E402  # the line above comes first, or failures tell nothing
