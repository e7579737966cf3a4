"""Runs that are steered from the page, and pages that may not steer."""

from __future__ import annotations

from playwright.sync_api import expect

from ralphproof.engine.records import UserMessageAdded
from tests.browser.looking import Look, Served
from tests.cli.steering import detached, let, over, reached, rests, waits_for
from tests.ralph import Ralph, done, say, write


def test_pause_say_resume_and_cancel_from_the_page(ralph: Ralph, look: Look) -> None:
    agent = ralph.script(
        [say("first"), waits_for("one")], [say("second"), waits_for("two")], [say("third"), {"until": "../never"}]
    )
    run = detached(ralph, agent, "--check", "sh check.sh")
    reached(ralph, "one")
    page = look.open(f"#/run/{run}")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".standing")).to_contain_text("about to rest")
    let(ralph, "one")
    rests(ralph, run)
    expect(page.locator(".standing")).to_contain_text("paused")

    page.get_by_role("button", name="Say").click()
    page.get_by_label("What the agent is told").fill("leave the <b>interface</b> as it is")
    page.get_by_role("button", name="Leave the words").click()
    expect(page.locator(".way")).to_contain_text("1 message of yours")

    page.get_by_role("button", name="Resume").click()
    reached(ralph, "two")
    expect(page.locator(".standing")).to_contain_text("iteration 2: the agent works")
    assert [one.text for one in ralph.records(run) if isinstance(one, UserMessageAdded)] == [
        "leave the <b>interface</b> as it is"
    ]
    let(ralph, "two")
    expect(page.locator(".agent .events")).to_contain_text("third")

    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_contain_text("Nothing takes a cancel back")
    page.keyboard.press("Escape")  # no
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator(".standing")).to_contain_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    assert over(ralph, run)["reason"] == "CANCELLED"
    expect(page.locator(".standing")).to_contain_text("cancelled")
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_refusal_is_told_where_it_was_asked_for(ralph: Ralph, look: Look) -> None:
    agent = ralph.script([waits_for("one"), write(done="yes"), done()])
    run = detached(ralph, agent, "--check", "sh check.sh")
    reached(ralph, "one")
    page = look.open(f"#/run/{run}")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    refused = {"error": "run x has ended; go on: ralph run --resume x"}
    page.route("**/pause", lambda route: route.fulfill(status=400, json=refused))
    look.watch.forgive("status of 400")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".steering .said")).to_have_text(refused["error"])
    let(ralph, "one")
    over(ralph, run)


def test_a_server_that_only_looks_on_shows_no_buttons(ralph: Ralph, look: Look) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), write(done="yes"), done()]), "--check", "sh check.sh")
    reached(ralph, "one")
    look.served = Served(ralph, flags=()).start()
    look.watch.origin = look.served.origin
    page = look.open(f"#/run/{run}")
    expect(page.locator(".standing")).to_contain_text("running")
    expect(page.locator("#project")).to_have_text("project")  # what it says of itself has come
    expect(page.locator(".steering")).to_be_hidden()
    let(ralph, "one")
    over(ralph, run)
