"""The page in a real browser. What the helpers assert tells why it failed."""

import pytest

pytest.register_assert_rewrite("tests.browser.looking")
