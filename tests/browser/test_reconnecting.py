"""A server that dies and comes back, while runs go on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from playwright.sync_api import expect

from ralphproof.store.tasks import TaskRow
from tests.browser.looking import Look, Served, numbers
from tests.browser.past import past
from tests.cli.steering import detached, let, over, reached, waits_for
from tests.cli.tasking import COMPLETION, keep
from tests.ralph import Ralph, done, say, until, write

GONE = "ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"
SOURCES = """window.sources = [];
window.EventSource = class extends EventSource { constructor(at) { super(at); window.sources.push(this); } };"""


def test_nothing_is_missing_after_the_server_was_killed_and_came_back(ralph: Ralph, look: Look) -> None:
    agent = ralph.script(
        [say("the first"), write(a="1"), waits_for("one")], [say("the second"), write(b="2"), done()],
        [say("the third"), write(c="3")], [say("the fourth"), waits_for("four"), write(done="yes"), done()],
    )  # fmt: skip
    run = detached(ralph, agent, "--check", "sh check.sh")
    reached(ralph, "one")
    page, overview = look.open(f"#/run/{run}"), look.open("#/")
    expect(page.locator(".agent .events")).to_contain_text("the first")
    expect(overview.locator("tbody tr")).to_contain_text("running")

    look.watch.forgive(GONE)
    look.served.kill()
    let(ralph, "one")
    reached(ralph, "four")  # two iterations pass, and nobody serves
    expect(page.locator("#banner")).to_contain_text("Not connected, trying again")
    expect(overview.locator("#banner")).to_be_visible()
    assert numbers(page) == [1]

    look.served.start()
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator(".iteration")).to_have_count(4)
    assert numbers(page) == [4, 3, 2, 1]
    expect(page.locator(".iteration[data-number='2']")).to_contain_text("claimed, and the checks refused it")
    expect(page.locator(".agent .events li.said")).to_have_text(["the fourth"])
    let(ralph, "four")
    over(ralph, run)
    expect(page.locator(".standing")).to_contain_text("verified")
    expect(overview.locator("tbody tr")).to_contain_text("verified")


def test_an_agent_is_heard_once_however_often_the_server_comes_back(ralph: Ralph, look: Look) -> None:
    agent = ralph.script([say("one"), waits_for("a"), say("two"), waits_for("b"), say("three"), waits_for("c"), done()])
    run = detached(ralph, agent)
    page = look.open(f"#/run/{run}")
    said = page.locator(".agent .events li.said")
    reached(ralph, "a")
    expect(said).to_have_text(["one"])
    look.watch.forgive(GONE)
    look.served.kill()
    let(ralph, "a")
    reached(ralph, "b")
    look.served.start()
    expect(said).to_have_text(["one", "two"])
    let(ralph, "b")
    expect(said).to_have_text(["one", "two", "three"])
    let(ralph, "c")
    over(ralph, run)
    until(lambda: page.locator(".standing", has_text="claimed only").count(), "the page has seen the end")


def test_a_server_of_another_project_at_the_same_address_shows_its_own(
    ralph: Ralph, look: Look, tmp_path: Path
) -> None:
    """Nothing of the one before is left on a page, and what the new one has not is not mixed into it."""
    ours, theirs = past(ralph, 3), Ralph(tmp_path / "other")
    keep(ralph, TaskRow("T-1", "s", "a task", "a task", completion=COMPLETION))
    theirs.commit()
    other = past(theirs, 2, seed=8)
    runs, tasks, run = look.open("#/"), look.open("#/tasks"), look.open(f"#/run/{ours[0]}")
    expect(runs.locator("tbody tr")).to_have_count(3)
    expect(tasks.locator(".ticket")).to_have_count(1)
    expect(run.locator("#project")).to_have_attribute("title", str(ralph.root))
    look.watch.forgive(GONE)
    look.served.kill()
    away = Served(theirs, port=look.served.port).start()
    expect(runs.locator("tbody tr")).to_have_count(2)
    assert set(runs.locator("tbody code").all_inner_texts()) == set(other)
    expect(runs.locator(".sums")).to_contain_text("2 runs")
    expect(tasks.locator(".empty")).to_contain_text("No tasks")
    expect(run.get_by_role("heading", level=1)).to_have_text("There is no such run")
    for page in (runs, tasks, run):
        expect(page.locator("#project")).to_have_attribute("title", str(theirs.root))
    away.kill()
    look.served.start()
    expect(runs.locator("tbody tr")).to_have_count(3)
    expect(tasks.locator(".ticket")).to_have_count(1)
    theirs.close()


def test_a_page_notices_that_it_may_steer_no_more_and_again(ralph: Ralph, look: Look) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), done()]))
    reached(ralph, "one")
    page = look.open(f"#/run/{run}")
    pause = page.get_by_role("button", name="Pause")
    look.watch.forgive(GONE)
    for flags, there in ((("--control",), 1), ((), 0), (("--control",), 1)):
        look.served.kill()
        look.served.flags = flags
        look.served.start()
        expect(pause).to_have_count(there)
    let(ralph, "one")
    over(ralph, run)


def test_a_server_that_falls_silent_is_told_from_one_that_has_nothing_to_say(look: Look) -> None:
    """One that hangs, or is behind a dead tunnel, closes no connection."""
    page = look.open("#/")
    page.clock.install()
    page.add_init_script(SOURCES)
    page.reload()
    expect(page.locator("#live")).to_have_text("live")
    for _ in range(3):
        page.clock.fast_forward(20_000)
        page.evaluate("sources.at(-1).dispatchEvent(new MessageEvent('still', {data: '{}'}))")
    assert page.evaluate("sources.length") == 1
    expect(page.locator("#live")).to_have_text("live")
    assert look.served.live is not None
    os.kill(look.served.live.process.pid, signal.SIGSTOP)
    page.clock.fast_forward(26_000)
    expect(page.locator("#banner")).to_contain_text("Not connected, trying again")
    expect(page.locator("#live")).to_have_text("not connected")
    assert page.evaluate("sources.length") == 2
    os.kill(look.served.live.process.pid, signal.SIGCONT)
    expect(page.locator("#live")).to_have_text("live")
    expect(page.locator("#banner")).to_be_hidden()


def test_a_server_with_another_token_says_how_to_come_in_again(look: Look) -> None:
    page = look.open("#/")
    expect(page.locator("#live")).to_have_text("live")
    look.watch.forgive(f"{GONE}|status of 401")
    look.served.kill()
    look.served.start("another-token-0123456789-0123456789")
    expect(page.locator("#banner")).to_contain_text("come in by the address that ralph serve printed")
    look.served.kill()
    look.served.start()
    expect(page.locator("#banner")).to_be_hidden()
