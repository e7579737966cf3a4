"""The board without a terminal: what its screen says, as text, and keys that are pressed."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from ralphproof.runs.control import RunControl
from ralphproof.tui.app import Dashboard
from ralphproof.tui.page import DashboardContext, EventListener
from ralphproof.tui.style import ASCII, UNICODE
from ralphproof.views.events import EventBatch, LiveEvents
from ralphproof.views.read_model import ReadModel
from tests.ralph import Ralph

SNAPSHOTS = Path(__file__).with_name("snapshots")
SMALL, LARGE = (80, 24), (200, 60)
WAIT_S, LOOK_S = 20.0, 0.08

# What differs from one time to the next. Numbers that stand in a column keep its width.
_RUN = re.compile(r"\d{8}-\d{6}-\w{4}")
_LASTED = r"\d+(?:\.\d)? s|\d+ m \d\d s|\d+ h \d\d m|\d+ [mhd]\b|\d+(?:\.\d)? (?:B|kB)"
_IN_COLUMN, _IN_TEXT = re.compile(rf"(?<=  )( *)(?:{_LASTED})"), re.compile(rf"(?<= )(?:{_LASTED})")


class Onlooker:
    """Somebody who looks at the board and presses keys."""

    def __init__(self, app: Dashboard, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """The whole screen, line by line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def sees(self, *texts: str, without: str = "") -> str:
        """Wait until the screen shows all of these; the screen."""
        deadline = time.monotonic() + WAIT_S
        while not all(text in self.text for text in texts) or (without and without in self.text):
            assert time.monotonic() < deadline, f"waited for {texts}, the screen shows:\n{self.text}"
            await asyncio.sleep(LOOK_S)
        return self.text

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain: {what}; the screen shows:\n{self.text}"
            await asyncio.sleep(LOOK_S)


def outlook_of(ralph: Ralph, plain: bool = False, read_model: ReadModel | None = None) -> DashboardContext:
    """What `ralph watch` looks at, on this project."""
    project = ralph.project

    def listen(run: str, hear: Callable[[EventBatch], None]) -> EventListener:
        return LiveEvents(project, run, hear)

    return DashboardContext(read_model or ReadModel(project), RunControl(project), listen, ASCII if plain else UNICODE)


@asynccontextmanager
async def opened(
    context: DashboardContext, size: tuple[int, int] = SMALL, initial_run: str = "", colour: bool = False
) -> AsyncIterator[Onlooker]:
    """The board, drawn on nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NO_COLOR", raising=False)
        if not colour:
            patch.setenv("NO_COLOR", "1")
        app = Dashboard(context, initial_run, colour)
        async with app.run_test(size=size) as pilot:
            yield Onlooker(app, pilot)


def run_async(look: Coroutine[Any, Any, None]) -> None:
    """Do it."""
    asyncio.run(look)


def steady(text: str) -> str:
    """The screen without what differs from one time to the next."""
    text = _RUN.sub("20260101-000000-aaaa", text)
    text = _IN_COLUMN.sub(lambda found: f"{'T':>{len(found[0])}}", text)
    return _IN_TEXT.sub("T", text)


def as_stored(name: str, text: str) -> None:
    """Compare with what is kept; RALPH_UPDATE_SNAPSHOTS=1 keeps it anew."""
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("RALPH_UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(steady(text) + "\n", encoding="utf-8")
    assert steady(text) + "\n" == path.read_text(encoding="utf-8"), f"{name}: RALPH_UPDATE_SNAPSHOTS=1 keeps it anew"
