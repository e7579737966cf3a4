"""Every page of the board on a project in which much has happened: how it looks, and how one gets there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ralphproof.tui.page import KEY_HELP
from tests.ralph import Ralph
from tests.tui.looking import LARGE, SMALL, Onlooker, as_stored, opened, outlook_of, run_async
from tests.tui.scene import build, with_stories


@dataclass(frozen=True)
class Place:
    """A project and the runs that are known in it."""

    ralph: Ralph
    runs: dict[str, str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    ralph = Ralph(tmp_path_factory.mktemp("watch") / "much")
    yield Place(ralph, build(ralph))
    ralph.close()


@pytest.fixture(scope="module")
def tale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    ralph = Ralph(tmp_path_factory.mktemp("watch") / "stories")
    yield Place(ralph, {"stories": with_stories(ralph)})
    ralph.close()


Pages = dict[str, tuple[tuple[str, ...], str]]
# page: the keys that lead there from the page before, and what it shows when it is there
PAGES: Pages = {
    "runs": ((), "Make the parser"),
    "filter": (("slash", *"port"), "MAX_ITERATIONS"),
    "run": (("escape", "G", "enter"), "COMPLETED, verified"),
    "iteration": (("enter",), "it claims: DONE"),
    "iteration-before": (("left_square_bracket",), "iteration 2"),
    "diff": (("escape", "d"), "+++ b/src/parser.py"),
    "diff-of-one": (("right_square_bracket",), "diff of 1"),
    "logs": (("escape", "l"), "guardrail_002"),
    "log": (("j", "enter"), '"is": "Ended"'),
    "log-prompt": (("tab", "tab"), "Make the parser's tests pass"),
    "say": (("escape", "escape", "s"), "Say to run"),
    "cancel": (("escape", "c"), "Nothing takes a cancel back"),
    "board": (("n", "2"), "Issue tokens"),
    "task": (("l", "l", "enter"), "Acceptance criteria"),
    "help": (("escape", "question_mark"), "leave; every run goes on"),
}
STORY_PAGES: Pages = {
    "stories": (("enter", "b"), "Lock an account"),
    "story": (("l", "l", "enter"), "What reviews found"),
}


async def walk(onlooker: Onlooker, pages: Pages) -> dict[str, str]:
    """Every page as it looks once nothing changes any more."""
    seen = {}
    await onlooker.sees(" in all")  # the list is there, and hears keys
    for name, (keys, shows) in pages.items():
        for key in keys:
            await onlooker.press(key)
        await onlooker.sees(shows)
        before = ""
        while onlooker.text != before:
            before = onlooker.text
            await asyncio.sleep(0.12)
        seen[name] = onlooker.text
    return seen


SIZES = {"80x24": SMALL, "200x60": LARGE}
BARS = frozenset("▁▂▃▄▅▆▇▔▍▎▏▌▋▊▉█")  # Textual draws scroll bars with parts of blocks


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("where", "pages"), [("place", PAGES), ("tale", STORY_PAGES)], ids=["runs", "stories"])
def test_every_page_looks_as_it_did(request: pytest.FixtureRequest, where: str, pages: Pages, size: str) -> None:
    """Without colour; in the smaller size with plain signs."""
    ralph, (width, height), small = request.getfixturevalue(where).ralph, SIZES[size], size == "80x24"
    seen: dict[str, str] = {}

    async def look() -> None:
        async with opened(outlook_of(ralph, plain=small), SIZES[size]) as onlooker:
            seen.update(await walk(onlooker, pages))

    run_async(look())
    for page, text in seen.items():
        lines = text.splitlines()
        assert (len(lines) <= height, max(map(len, lines)) <= width) == (True, True), page
        assert not small or [sign for sign in text if ord(sign) > 127 and sign not in BARS] == [], page
        as_stored(f"{page}-{size}", text)


def test_enter_goes_in_and_escape_comes_back(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph)) as onlooker:
            await onlooker.sees("Make the parser")
            await onlooker.press("end", "enter")
            await onlooker.sees("COMPLETED, verified", place.runs["verified"])
            await onlooker.press("up", "k", "enter")
            await onlooker.sees("iteration 1", "failing: ")
            await onlooker.press("escape")
            await onlooker.sees("COMPLETED, verified")
            await onlooker.press("escape")
            await onlooker.sees("in all")
            await onlooker.press("escape")  # there is nothing before the first page
            await onlooker.sees("in all")

    run_async(look())


def test_j_and_k_and_arrows_move(place: Place) -> None:
    def at(text: str) -> str:
        return next(line[:38] for line in text.splitlines() if line.startswith("›"))  # its age grows

    async def look() -> None:
        async with opened(outlook_of(place.ralph)) as onlooker:
            first = at(await onlooker.sees("Make the parser", "›"))
            await onlooker.press("j", "down", "j", "k")
            await onlooker.until(lambda: at(onlooker.text) != first, "the cursor has moved")
            await onlooker.press("G")
            await onlooker.until(lambda: "Make the parser" in at(onlooker.text), "it is at the end")
            await onlooker.press("g")
            await onlooker.until(lambda: at(onlooker.text) == first, "it is at the beginning")
            await onlooker.press("pagedown")
            await onlooker.until(lambda: "Make the parser" in at(onlooker.text), "a page leaps to the end")

    run_async(look())


def test_tab_and_numbers_switch_between_runs_and_board(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph), LARGE) as onlooker:
            await onlooker.sees("Make the parser")
            await onlooker.press("G", "enter")
            await onlooker.sees("COMPLETED, verified")
            await onlooker.press("2")
            await onlooker.sees("Hash passwords", "reviewer 1/5")
            await onlooker.press("tab")  # the run is still open there
            await onlooker.sees("COMPLETED, verified")
            await onlooker.press("b")
            await onlooker.sees("Hash passwords")
            await onlooker.press("1")
            await onlooker.sees("COMPLETED, verified")

    run_async(look())


def test_a_filter_narrows_the_list_and_escape_clears_it(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph)) as onlooker:
            await onlooker.sees("Make the parser", "Port it")
            await onlooker.press("slash", *"wri read")
            await onlooker.sees("Write a README", without="Make the parser")
            await onlooker.press("enter", "enter")  # it is kept, and the list has the keys again
            await onlooker.sees("CLAIMED by the agent")
            await onlooker.press("escape")
            await onlooker.sees("wri read", "Write a README", without="Make the parser")
            await onlooker.press("escape")
            await onlooker.sees("Make the parser", "Port it")

    run_async(look())


def test_from_a_task_to_its_run(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph), LARGE) as onlooker:
            await onlooker.sees("Make the parser")
            await onlooker.press("2")
            await onlooker.sees("Refresh tokens")
            await onlooker.press("right", "right", "enter")
            await onlooker.sees("✗ an expired token is refused", "the clock is never asked", "Verification")
            await onlooker.press("o")
            await onlooker.sees(place.runs["task"], "iterations")

    run_async(look())


def test_help_tells_every_key(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph), LARGE) as onlooker:
            await onlooker.press("question_mark")
            text = await onlooker.sees("leave; every run goes on")
            assert [what for _, keys in KEY_HELP for _, what in keys if what not in text] == []
            await onlooker.press("question_mark")
            await onlooker.sees("Make the parser", without="leave; every run goes on")

    run_async(look())


def test_what_is_no_run_is_steered_by_nobody(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph)) as onlooker:
            await onlooker.press("2")
            await onlooker.sees("Limit the rate")
            await onlooker.press("p")
            await onlooker.sees("there is no run here to pause")

    run_async(look())


def test_a_run_that_is_over_refuses_and_says_why(place: Place) -> None:
    async def look() -> None:
        async with opened(outlook_of(place.ralph), initial_run=place.runs["verified"]) as onlooker:
            await onlooker.sees("COMPLETED, verified")
            await onlooker.press("p")
            await onlooker.sees("✗", "ended")
            await onlooker.press("c", "y")
            await onlooker.sees("has ended already")

    run_async(look())


def test_an_empty_project_says_how_to_begin(ralph: Ralph) -> None:
    async def look() -> None:
        async with opened(outlook_of(ralph)) as onlooker:
            await onlooker.sees("no run yet; begin one: ralph run")
            await onlooker.press("enter", "d", "l", "2")
            await onlooker.sees("no task yet; make one: ralph task create")

    run_async(look())
