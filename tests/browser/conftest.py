"""One browser for each worker; a project, a server and somebody who looks for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.looking import Look, Served, Watch, chromium
from tests.ralph import Ralph
from tests.ralph import ralph as ralph


@pytest.fixture(scope="package")  # while it is there, nobody else in this process can have an event loop
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def served(ralph: Ralph) -> Served:
    """A server that may steer, on a project with one commit."""
    ralph.write({"check.sh": "test -f done\n", "README": "a project\n"})
    ralph.commit()
    return Served(ralph).start()


@pytest.fixture
def look(browser: Browser, served: Served) -> Iterator[Look]:
    made = Look(browser, served, Watch(served.origin))
    yield made
    made.close()
