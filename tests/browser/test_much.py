"""Many runs, and an agent that says very much."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.looking import Look
from tests.browser.past import past
from tests.cli.steering import detached, let, over, reached, waits_for
from tests.ralph import Ralph, done, say

FRAMES = """() => { window.gaps = []; let last = performance.now();
  const frame = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame); }"""
SECONDS, EACH = 2, 1000
FLOOD = Path(__file__).parent / "flood.py"


def test_two_hundred_runs_are_listed_filtered_and_kept_up(ralph: Ralph, look: Look) -> None:
    ids = past(ralph, 230)
    child = past(ralph, 1, parent=ids[-2])[0]
    page = look.open("#/")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(200)
    page.evaluate(FRAMES)
    page.get_by_role("button", name="Older runs").click()
    expect(rows).to_have_count(231)
    below = rows.locator("code").all_inner_texts()
    assert below.index(child) == below.index(ids[-2]) + 1
    expect(rows.filter(has_text=child)).to_contain_text("begun by the run above")
    expect(page.get_by_role("button", name="Older runs")).to_be_hidden()

    page.get_by_label("Filter runs").fill("accents claude")
    shown = rows.all_inner_texts()
    assert shown
    assert all("accents" in text and "claude" in text for text in shown)
    page.get_by_label("Filter runs").fill("nothing has this name")
    expect(page.locator(".empty")).to_have_text("No run matches the filter.")
    page.get_by_label("Filter runs").fill("")
    run = detached(ralph, ralph.script([say("hello"), waits_for("one"), done()]))
    expect(rows.first).to_contain_text("running")
    expect(rows).to_have_count(232)
    let(ralph, "one")
    over(ralph, run)
    expect(rows.first).to_contain_text("claimed only")
    worst = page.evaluate("Math.max(...window.gaps)")
    assert worst < 1500, f"the page stood still for {worst} ms"


def test_a_thousand_events_a_second_do_not_leave_the_page_behind(ralph: Ralph, look: Look) -> None:
    flood = {"run": [sys.executable, "-I", "-S", str(FLOOD), str(SECONDS), str(EACH)]}
    agent = ralph.script([waits_for("start"), flood, say("that was all"), waits_for("end"), done()])
    run = detached(ralph, agent)
    page = look.open(f"#/run/{run}")
    reached(ralph, "start")
    expect(page.locator(".agent .events")).to_contain_text("begins")
    page.evaluate(FRAMES)
    let(ralph, "start")
    reached(ralph, "end")
    expect(page.locator(".agent .events li.said").last).to_have_text("that was all", timeout=3000)
    assert page.locator(".agent").get_attribute("data-last") == str(SECONDS * EACH + 1)  # and it began with one more
    assert page.locator(".agent .events li").count() <= 500
    assert page.evaluate("document.querySelectorAll('*').length") < 3500
    worst = page.evaluate("Math.max(...window.gaps)")
    assert worst < 1000, f"the page stood still for {worst} ms"
    shown = page.locator(".agent .events li.said").all_inner_texts()
    figures = [int(text.split()[1]) for text in shown if text.startswith("word")]
    assert figures == sorted(set(figures))
    assert figures[-1] >= SECONDS * EACH - 2
    let(ralph, "end")
    over(ralph, run)
