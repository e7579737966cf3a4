"""Reads that hang or fail: they cost their own answer, never the server and never the truth."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ralphproof.base.errors import HarnessFailed
from ralphproof.views.read_model import ReadModelVersion
from ralphproof.web.api import ReaderPool
from ralphproof.web.event_stream import KEEPALIVE_FRAME, ChangeWatcher, EventStreamResponse, EventStreams
from tests.web.asking import Asked, Server, soon

HANGS = """
import asyncio, threading
from ralphproof.web.api import ReaderPool
readers, begun = ReaderPool(1), threading.Event()
def hang():
    begun.set()
    threading.Event().wait()
async def main():
    task = asyncio.ensure_future(readers(hang))
    await asyncio.to_thread(begun.wait)
    task.cancel()
asyncio.run(main())
readers.close()
"""


def test_a_read_that_hangs_does_not_keep_the_server() -> None:
    assert subprocess.run([sys.executable, "-c", HANGS], timeout=30, check=False).returncode == 0


def test_what_is_read_comes_back_and_so_does_what_went_wrong() -> None:
    async def asked() -> None:
        readers = ReaderPool(2)
        assert await readers(lambda: 42) == 42
        with pytest.raises(ZeroDivisionError):
            await readers(lambda: 1 // 0)
        assert await asyncio.gather(*(readers(lambda n=n: n) for n in range(20))) == [*range(20)]  # type: ignore[misc]
        readers.close()

    asyncio.run(asked())


def test_one_who_is_told_nothing_new_hears_that_the_server_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often something happens meanwhile that is not for this one."""
    monkeypatch.setattr("ralphproof.web.event_stream.KEEPALIVE_S", 0.1)
    sent: list[bytes] = []

    async def looked_on() -> None:
        pulse, left = ChangeWatcher(None, None, print), asyncio.Event()  # type: ignore[arg-type]
        monkeypatch.setattr(pulse, "join", lambda wake: None)

        async def course(wake: asyncio.Event) -> AsyncIterator[bytes]:
            while True:
                asyncio.get_running_loop().call_later(0.01, wake.set)
                yield b""

        async def receive() -> dict[str, str]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if KEEPALIVE_FRAME in sent:
                left.set()

        async with asyncio.timeout(5):
            await EventStreamResponse(pulse, course, False)({}, receive, send)

    asyncio.run(looked_on())
    assert KEEPALIVE_FRAME in sent


class Faulty:
    """A board whose list cannot be read once, at its only change."""

    def __init__(self) -> None:
        self.tried = 0

    def moment(self) -> ReadModelVersion:
        return ReadModelVersion(1, 1, 1)

    def runs(self, _: int) -> dict[str, object]:
        self.tried += 1
        if self.tried == 1:
            raise HarnessFailed("locked")
        return {"seq": 1, "total": 1, "project": "p", "runs": [{"id": "r", "state": "ended"}]}


def test_a_read_that_failed_is_tried_again_although_nothing_changes() -> None:
    async def followed() -> bytes:
        board, readers, notes = Faulty(), ReaderPool(1), list[str]()
        pulse = ChangeWatcher(board, readers, notes.append)  # type: ignore[arg-type]
        wake = asyncio.Event()
        pulse.join(wake)
        told = EventStreams(board, readers, pulse, None, 1, False, notes.append)._runs(wake)  # type: ignore[arg-type]
        assert await anext(told) == b""
        wake.clear()
        async with asyncio.timeout(10):
            await wake.wait()
        found = await anext(told)
        await told.aclose()  # type: ignore[attr-defined]
        pulse.end()
        assert "tried again" in notes[0]
        return found

    assert b'"state":"ended"' in asyncio.run(followed())


class Slow:
    """A board on which patches and turns are not found before they are let."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.let = threading.Event()

    def find(self, name: str) -> str:
        return name

    def runs(self, *_: object) -> dict[str, object]:
        return {"runs": []}

    def diff(self, run: str, _: int | None) -> dict[str, object]:
        return self._slowly(run)

    def activity(self, run: str, *_: object) -> dict[str, object]:
        return self._slowly(run)

    def _slowly(self, run: str) -> dict[str, object]:
        self.begun.append(run)
        assert self.let.wait(30)
        return {"run": run}


@pytest.mark.parametrize(("page", "query"), [("diff", ""), ("activity", "log=agent_001")])
def test_reads_that_take_long_leave_readers_for_all_others(page: str, query: str) -> None:
    async def asked() -> None:
        board = Slow()
        server = Server(board)
        try:
            slow = [server.ask(f"/api/runs/r{number}/{page}", query) for number in range(14)]
            await soon(lambda: board.begun)
            for one in slow:
                one.leave()
            assert (await server.ask("/api/runs").answered()).json == {"runs": [], "control": False}
        finally:
            board.let.set()
            server.close()

    asyncio.run(asked())


def test_a_page_comes_however_busy_the_readers_are() -> None:
    async def asked() -> None:
        let = threading.Event()
        server = Server(None, threads=1)
        try:
            busy = asyncio.ensure_future(server.readers(let.wait))
            for path in ("/", "/static/app.css"):
                assert (await server.ask(path).answered()).status == 200
        finally:
            let.set()
            await busy
            server.close()

    asyncio.run(asked())


@pytest.mark.parametrize(("page", "query"), [("diff", ""), ("activity", "log=agent_001")])
def test_who_has_left_is_not_read_for(page: str, query: str) -> None:
    async def asked() -> None:
        board = Slow()
        server = Server(board)
        try:
            first, second, third = (server.ask(f"/api/runs/{run}/{page}", query) for run in "abc")
            await soon(lambda: board.begun)
            second.leave()
            await second.answered()
            board.let.set()
            assert [(await one.answered()).json["run"] for one in (first, third)] == ["a", "c"]
            assert board.begun == ["a", "c"]
        finally:
            board.let.set()
            server.close()

    asyncio.run(asked())


def test_too_many_who_wait_for_what_takes_long_are_told_to_come_again() -> None:
    async def asked() -> None:
        board = Slow()
        server = Server(board)
        try:
            slow = [server.ask(f"/api/runs/r{number}/diff") for number in range(30)]
            await soon(lambda: any(one.status for one in slow))
            refused = [one for one in slow if one.status == 503]
            assert {one.headers["retry-after"] for one in refused} == {"2"}
            assert {one.json["error"] for one in refused} == {"too many ask for this at once; come again"}
            board.let.set()
            others = [(await one.answered()).status for one in slow if one not in refused]
            assert others == [200] * len(others) != []
        finally:
            board.let.set()
            server.close()

    asyncio.run(asked())


class Still:
    """A board on which nothing changes. `asked` are the records after which a page was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def moment(self) -> ReadModelVersion:
        return ReadModelVersion(1, 1, 1)

    def find(self, name: str) -> str:
        return name

    def last_of(self, _: str) -> int:
        return 1000

    def run(self, _: str, after: int) -> dict[str, object]:
        self.asked.append(after)
        return {"seq": 1000, "timeline": [], "complete": after == 0, "limits": [], "headline": ""}


class Quiet:
    """Overhears nobody."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


async def looks_on(server: Server, after: int) -> Asked:
    """Somebody who has been told of a run."""
    one = server.ask("/api/runs/r/events", f"after={after}")
    await soon(lambda: b"event: run" in one.body)
    return one


def test_what_is_kept_for_those_who_look_on_is_bounded() -> None:
    """However many numbers they know last, while nothing changes."""

    async def followed() -> None:
        board = Still()
        server = Server(board, overhear=lambda *_: Quiet(), onlookers=2)
        stays = await looks_on(server, 0)
        await soon(lambda: 1000 in board.asked)  # the first look of the thread was told as a change
        for after in range(1, 300):
            one = await looks_on(server, after)
            one.leave()
            await one.answered()
        kept = len(server.app.watcher._cache)
        stays.leave()
        await stays.answered()
        server.close()
        assert kept < 100

    asyncio.run(followed())


def test_a_number_that_no_record_has_is_as_good_as_none() -> None:
    """So nothing is read for it alone."""

    async def followed() -> None:
        board = Still()
        server = Server(board, overhear=lambda *_: Quiet(), onlookers=3)
        there = [await looks_on(server, after) for after in (0, 1001, 2**53)]
        for one in there:
            one.leave()
            await one.answered()
        server.close()
        assert set(board.asked) <= {0, 1000}

    asyncio.run(followed())
