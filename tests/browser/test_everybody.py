"""The page for everybody: by keyboard, by screen reader, in the dark, on a phone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from ralphproof.store.tasks import TaskRow
from tests.browser.looking import PHONE, Look, width_beyond
from tests.browser.past import past
from tests.cli.tasking import COMPLETION, keep
from tests.ralph import Ralph, done, say, write

STATIC = Path(__file__).resolve().parents[2] / "src/ralphproof/web/static"
CONTRAST = (Path(__file__).parent / "contrast.js").read_text("utf-8")
LEAST = 4.5
MARKUP = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
CONTROLS = r"^\s*- (?:button|link|textbox|searchbox|combobox|checkbox|dialog|img|meter)(?::|$)"  # with no name
NO_LABEL = "all => all.filter(one => !one.labels.length && !one.ariaLabel).length"


@pytest.fixture
def places(ralph: Ralph, look: Look) -> dict[str, str]:
    """A project with something on every page; each place and what tells that it is there."""
    past(ralph, 12)
    keep(ralph, TaskRow("T-1", "spec", "Make it so", "Make it so.", completion=COMPLETION))
    agent = ralph.script([say("no"), {"cost": 0.1}, done()], [write(done="yes\n", b="x\n"), {"cost": 0.2}, done()])
    assert ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh").code == 0
    run = ralph.runs()[0].id
    return {
        "#/": "tbody tr", f"#/run/{run}": ".events li", f"#/run/{run}/diff": ".lines .add",
        f"#/run/{run}/logs": ".log:not(:empty)", f"#/run/{run}/facts": ".facts", "#/tasks": ".ticket",
        "#/tasks/T-1": ".acceptance", "#/report": ".u-wrap canvas",
    }  # fmt: skip


def visit(page: Page, place: str, sign: str) -> None:
    page.evaluate("place => { location.hash = place; }", place)
    page.locator(sign).first.wait_for()
    page.locator("main details:not([open]) > summary").evaluate_all("all => all.forEach(one => one.click())")


def test_every_page_can_be_read_in_both_colours_and_on_a_phone(look: Look, places: dict[str, str]) -> None:
    for dark in (False, True):
        page = look.open("#/", PHONE if dark else (1280, 800), dark)
        for place, sign in places.items():
            visit(page, place, sign)
            faint: list[Any] = page.evaluate(CONTRAST, LEAST)
            assert faint == [], f"{place} {'dark' if dark else 'light'}: {faint}"
    for size in (PHONE, (800, 600), (1280, 800)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        for place, sign in places.items():
            visit(page, place, sign)
            assert width_beyond(page) <= 0, f"{place} at {size[0]}"


def test_every_control_has_a_name_and_every_page_its_landmarks(look: Look, places: dict[str, str]) -> None:
    page = look.open("#/")
    for place, sign in places.items():
        visit(page, place, sign)
        expect(page.get_by_role("main")).to_have_count(1)
        expect(page.get_by_role("banner")).to_have_count(1)
        expect(page.get_by_role("navigation", name="Pages")).to_have_count(1)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("link", name="Skip to the content")).to_have_count(1)
        assert page.title().endswith("· ralph")
        tree = page.locator("body").aria_snapshot()
        assert re.findall(CONTROLS, tree, re.M) == [], place
        heads = page.locator("table:not([aria-hidden]) th:not([scope])").count()
        assert heads == 0, place
        assert page.locator("input, select, textarea").evaluate_all(NO_LABEL) == 0, place
        ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
        assert len(ids) == len(set(ids)), place
    assert page.locator("[aria-live=polite]").count() == 1  # what happens is told once, not by every event
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_walk_with_the_keyboard_alone(look: Look, places: dict[str, str]) -> None:
    page = look.open("#/")
    page.locator("tbody tr").first.wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()

    page.keyboard.press("/")
    expect(page.get_by_label("Filter runs")).to_be_focused()
    page.keyboard.type("make it so")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator("tbody tr")).to_have_count(13)
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    expect(page.locator("tbody tr").nth(1).get_by_role("link")).to_be_focused()
    page.keyboard.press("k")
    first = page.locator("tbody tr").first.get_by_role("link")
    expect(first).to_be_focused()
    assert first.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("make it so")
    expect(page.get_by_role("heading", level=1)).to_be_focused()

    page.locator(".iteration").first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    older = page.locator(".iteration[data-number='1'] > details")
    expect(older.locator("> summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(older).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    page.keyboard.press("2")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
    page.locator(".ticket").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Make it so")
    page.keyboard.press("3")
    expect(page.get_by_role("heading", level=1)).to_have_text("Report")


def test_the_colours_follow_the_system_until_somebody_wants_others(look: Look) -> None:
    page = look.open("#/", dark=True)
    page.locator("h1").wait_for()

    def shade() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    dark = shade()
    page.keyboard.press("t")
    light = shade()
    assert light != dark
    page.reload()
    page.locator("h1").wait_for()
    assert shade() == light  # it is remembered
    page.get_by_role("button", name="Colours: light").click()
    page.get_by_role("button", name="Colours: dark").click()
    assert shade() == dark
    page.emulate_media(color_scheme="light")
    assert shade() == light


def test_the_report_says_in_a_table_what_it_draws(look: Look, places: dict[str, str]) -> None:
    page = look.open("#/report")
    page.locator(".u-wrap canvas").first.wait_for()
    expect(page.locator(".tiles")).to_contain_text("13")
    expect(page.locator(".tiles")).to_contain_text("at least")
    expect(page.locator("table.figures").first).to_contain_text("Completed")
    page.get_by_role("button", name="Today").click()
    expect(page.locator("table.figures th").first).to_have_text("Hour (UTC)")
    page.get_by_label("from").fill("2001-01-01")
    page.get_by_label("to", exact=True).fill("2001-01-02")
    expect(page.locator(".empty")).to_have_text("No run ended in these days.")


def test_the_source_of_the_page_has_no_way_in_for_markup() -> None:
    """What the page is made of: few and small files, no markup out of text, nothing from elsewhere."""
    own = [path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts]
    for path in own:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 300, path.name
        if path.suffix == ".js":
            assert re.findall(MARKUP, text) == [], path.name
        if path.suffix == ".html":
            assert re.findall(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=|<style", text) == []
        if path.suffix != ".svg":
            assert re.findall(r"https?:(?!//www\.w3\.org/2000/svg)", text) == [], path.name
    listed = (STATIC / "vendor/README.md").read_text("utf-8")
    assert "uPlot" in listed
    assert (STATIC / "vendor/uplot/LICENSE").read_text("utf-8").startswith("The MIT License")
