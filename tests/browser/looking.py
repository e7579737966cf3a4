"""A real browser on a real `ralph serve`, for tests: who serves, who looks, and what must never happen meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.needs import require
from tests.ralph import Live, Ralph, until

TOKEN = "a-token-that-only-tests-know-0123456789"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
WIDE, PHONE = (1280, 800), (360, 740)
WAIT_MS = 15_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser of this machine; a test that has none is skipped, or fails in CI."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    require(path is not None, "a Chromium is on PATH")
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Served:
    """`ralph serve` on a project, in another process; it can be killed and started again at the same address."""

    ralph: Ralph
    flags: tuple[str, ...] = ("--control",)
    live: Live | None = None
    port: int = 0
    address: str = ""

    def start(self, token: str = TOKEN) -> Served:
        self.live = self.ralph.start(
            "serve", "--json", "--port", str(self.port), *self.flags, env={"RALPH_SERVE_TOKEN": token}
        )
        out = Path(self.live.out.name)
        until(lambda: out.read_text("utf-8").endswith("\n") or self._over(), "the server says where it is")
        assert not self._over(), Path(self.live.err.name).read_text("utf-8")
        told = json.loads(out.read_text("utf-8"))
        self.port, self.address = told["port"], told["address"]
        return self

    def _over(self) -> bool:
        return self.live is None or self.live.process.poll() is not None

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As a crash would: at once."""
        assert self.live is not None
        os.kill(self.live.process.pid, signal.SIGKILL)
        until(self._over, "the server is dead")


@dataclass
class Watch:
    """What a page did that it must not do: complain, fail, or ask another server."""

    origin: str
    faults: list[str] = field(default_factory=list)
    forgiven: list[str] = field(default_factory=list)

    def at(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self._fault(f"the page failed: {error}"))
        page.on("request", self._request)

    def forgive(self, pattern: str) -> None:
        """A fault that a test provokes."""
        self.forgiven.append(pattern)

    def check(self) -> None:
        bad = [fault for fault in self.faults if not any(re.search(one, fault) for one in self.forgiven)]
        assert bad == []

    def _fault(self, words: str) -> None:
        self.faults.append(words[:500])

    def _console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._fault(f"the page complains: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self._fault(f"a request to somebody else: {request.url}")


@dataclass
class Look:
    """Somebody who looks at one server in one browser."""

    browser: Browser
    served: Served
    watch: Watch
    pages: list[Page] = field(default_factory=list)

    def open(self, place: str = "#/", size: tuple[int, int] = WIDE, dark: bool = False, **more: Any) -> Page:
        """A page in a fresh context, let in by the printed address, at this place."""
        context = self.browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", **more
        )
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        self.watch.at(page)
        page.goto(f"{self.served.address}{place}")
        self.pages.append(page)
        return page

    def close(self) -> None:
        for page in self.pages:
            page.context.close()
        self.watch.check()


def numbers(page: Page) -> list[int]:
    """The iterations that a run's page shows, the newest first."""
    found: list[int] = page.locator(".iteration").evaluate_all("all => all.map(one => Number(one.dataset.number))")
    return found


def width_beyond(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found
