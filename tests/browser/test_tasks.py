"""Tasks and stories, in their lanes."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser import demo
from tests.browser.looking import Look
from tests.ralph import Ralph


def test_tasks_stand_in_the_lanes_of_their_stages_and_tell_their_history(ralph: Ralph, look: Look) -> None:
    page = look.open("#/tasks")
    expect(page.locator(".empty")).to_contain_text("No tasks")
    demo.tasks(ralph)  # while somebody looks
    expect(page.get_by_role("region", name="Done").locator(".ticket")).to_contain_text("verified")
    expect(page.get_by_role("region", name="Reviewer").locator(".ticket")).to_contain_text("IMP-1")
    expect(page.get_by_role("region", name="Tester").locator(".ticket")).to_contain_text("tester 1/10")
    expect(page.get_by_role("region", name="To do").locator(".ticket")).to_have_count(2)
    done = page.get_by_role("region", name="Done").locator(".ticket")
    expect(done).to_contain_text("5 iterations")
    expect(done).to_contain_text("at least $0.48")  # the judges of it told no cost
    done.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Export the stock as CSV")
    expect(page.locator(".acceptance li").first).to_contain_text("met")
    expect(page.locator(".acceptance li").last).to_contain_text("nobody has judged it")
    back = page.locator(".passages li.back")
    expect(back).to_contain_text("reviewer")
    expect(back.get_by_label("Review feedback")).to_contain_text("The separator is missing in empty rows.")
    page.locator(".passages a").first.click()
    expect(page.locator(".iteration[data-number='2']")).to_contain_text("sent back")


def test_stories_stand_in_their_lanes(ralph: Ralph, look: Look) -> None:
    demo.lay(ralph)
    run = demo.stories(ralph)
    page = look.open(f"#/run/{run}")
    page.get_by_role("navigation", name="Parts of this run").get_by_role("link", name="Stories").click()
    expect(page.get_by_role("region", name="Approved").locator(".ticket")).to_contain_text("List the articles")
    expect(page.get_by_role("region", name="Open").locator(".ticket")).to_contain_text("Order what runs out")
    sent = page.get_by_role("region", name="Changes requested").locator(".ticket")
    sent.locator("summary", has_text="finding").click()
    expect(sent).to_contain_text("a code with a dash is not found")
    expect(sent.locator(".dim").first).to_contain_text("iteration")
    sent.locator("summary", has_text="Verification").click()
    expect(sent.locator("li").last).to_contain_text("implement: done")
