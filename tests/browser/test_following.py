"""A page that follows runs which go on in other processes."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.looking import Look, numbers
from tests.cli.steering import let, over, reached, waits_for
from tests.ralph import Ralph, done, say, write

SHOWS = "text => document.querySelector('.log').textContent.includes(text)"  # a failure of this is not a page long


def test_a_run_goes_red_lies_and_goes_green_while_the_page_follows(ralph: Ralph, look: Look) -> None:
    agent = ralph.script(
        [say("I look around first."), waits_for("one")],
        [{"tool": {"name": "Edit", "summary": "notes.md"}}, write(notes__md="all done"), done(), waits_for("two")],
        [say("Now in earnest."), write(done="yes"), done(), waits_for("three"), done()],
    )
    page = look.open("#/")
    expect(page.locator(".empty")).to_contain_text("No run yet")
    told = ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "--detach", "--json")
    run = told.json["run"]
    row = page.locator("tbody tr")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("unknown")  # what it costs: nobody has said it, so it is not zero
    row.get_by_role("link").click()
    expect(page.locator(".standing")).to_contain_text("iteration 1: the agent works")
    expect(page.locator(".agent .events")).to_contain_text("I look around first.")

    reached(ralph, "one")
    let(ralph, "one")
    first = page.locator(".iteration[data-number='1']")
    expect(first).to_contain_text("once more")
    expect(first.locator("summary .chip", has_text="refused")).to_have_count(0)  # it claimed nothing

    reached(ralph, "two")
    expect(page.locator(".agent .events")).to_contain_text("Edit")
    let(ralph, "two")
    lie = page.locator(".iteration[data-number='2']")
    expect(lie.locator("summary").first).to_contain_text("claimed, and the checks refused it")
    lie.locator("summary").first.click()
    expect(lie.locator(".claim")).to_contain_text("sh check.sh said no")
    expect(lie.locator(".checks")).to_contain_text("failed")
    expect(lie.locator(".files")).to_contain_text("notes.md")

    reached(ralph, "three")
    let(ralph, "three")
    expect(page.locator(".standing")).to_contain_text("verified")
    expect(page.locator("#told")).to_contain_text("verified")  # said to a screen reader too
    assert numbers(page) == [3, 2, 1]
    expect(page.locator(".course")).to_contain_text("1 → 1 → 1 → 0")
    over(ralph, run)
    page.get_by_role("link", name="Runs", exact=True).first.click()
    expect(page.locator("tbody tr")).to_contain_text("verified")


def test_what_is_pressed_is_not_replaced_under_the_finger(ralph: Ralph, look: Look) -> None:
    agent = ralph.script([say("a"), waits_for("one")], [say("b"), waits_for("two")], [write(done="yes"), done()])
    told = ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "--detach", "--json")
    page, other = look.open("#/"), look.open("#/")
    reached(ralph, "one")
    row = page.locator("tbody tr")
    expect(row).to_contain_text("iteration 1: the agent works")
    row.get_by_role("link").hover()
    page.mouse.down()
    let(ralph, "one")
    expect(other.locator("tbody tr")).to_contain_text("iteration 2: the agent works")
    page.mouse.up()
    expect(page.locator(".standing")).to_contain_text("iteration 2: the agent works")
    let(ralph, "two")
    expect(page.locator(".standing")).to_contain_text("verified")
    over(ralph, told.json["run"])


def test_diff_logs_and_facts_tell_what_the_run_left(ralph: Ralph, look: Look) -> None:
    steps = [{"tool": {"name": "Bash", "summary": "date", "output": "noon"}}, write(done="yes\n", other="x\n")]
    agent = ralph.script([*steps, {"stderr": "a word aside"}, done()])
    assert ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh").code == 0
    run = ralph.runs()[0].id
    page = look.open(f"#/run/{run}")
    card = page.locator(".iteration")
    card.get_by_text("what it did").click()
    expect(card.locator(".activity .events")).to_contain_text("Bash")
    tabs = page.get_by_role("navigation", name="Parts of this run")
    tabs.get_by_role("link", name="Diff").click()
    expect(page.locator(".lines .add").first).to_have_text("+yes")
    page.get_by_label("What changed in").select_option("1")
    expect(page.locator(".diff .sums")).to_contain_text("2 files")
    tabs.get_by_role("link", name="Logs").click()
    page.get_by_role("link", name="agent_001").click()
    expect(page.locator(".log")).to_contain_text('"Said"')
    page.get_by_role("link", name="stderr").click()
    expect(page.locator(".log")).to_have_text("a word aside\n")
    page.get_by_role("link", name="prompt").click()
    expect(page.locator(".log")).to_contain_text("make it so")
    tabs.get_by_role("link", name="Facts").click()
    expect(page.locator(".facts").first).to_contain_text("COMPLETED")


def test_a_log_is_read_in_pieces_and_followed_while_it_grows(ralph: Ralph, look: Look) -> None:
    lines = "".join(f"line {number:05d} of a long log\n" for number in range(6000))  # more than two pieces
    agent = ralph.script([{"raw": lines}, waits_for("long"), {"raw": "the last of it\n"}, waits_for("end"), done()])
    told = ralph("run", "-p", "make it so", "--agent", agent, "--detach", "--json")
    run = told.json["run"]
    reached(ralph, "long")
    page = look.open(f"#/run/{run}/logs?name=agent_001")
    log = page.locator(".log")
    expect(log).to_contain_text("line 05999")
    expect(log).not_to_contain_text("line 00000")
    _load_all(page)
    shown = [line for line in log.inner_text().splitlines() if line.startswith("line")]
    assert shown == lines.splitlines()  # nothing twice, nothing lost
    let(ralph, "long")
    reached(ralph, "end")
    expect(log).to_contain_text("the last of it")
    let(ralph, "end")
    over(ralph, run)


def test_a_log_that_grows_fast_is_followed_and_what_is_left_out_is_told(ralph: Ralph, look: Look) -> None:
    """What fits on the page is read at once; of more the end is shown, and the page does not grow with it."""
    much, flood = ({"run": ["seq", "-f", f"{word} %08g of many lines", "30000"]} for word in ("much", "flood"))
    steps = [{"raw": "first\n"}, waits_for("one"), much, waits_for("two"), *[flood] * 4, waits_for("three"), done()]
    told = ralph("run", "-p", "make it so", "--agent", ralph.script(steps), "--detach", "--json")
    reached(ralph, "one")
    page = look.open(f"#/run/{told.json['run']}/logs?name=agent_001")
    log = page.locator(".log")
    expect(log).to_contain_text("first")
    let(ralph, "one")
    reached(ralph, "two")
    page.wait_for_function(SHOWS, arg="much 00030000", timeout=8000)
    assert log.inner_text().count("of many lines") == 30000
    look.watch.forgive("ERR_FAILED")
    page.route("**/log?**", lambda route: route.abort())
    let(ralph, "two")
    reached(ralph, "three")
    page.unroute("**/log?**")
    page.wait_for_function(SHOWS, arg="flood 00030000", timeout=8000)
    expect(page.get_by_text("before that came too fast to be shown")).to_be_visible()
    assert len(log.inner_text()) < 1 << 20
    let(ralph, "three")
    over(ralph, told.json["run"])


def test_what_went_off_the_page_can_be_loaded_again_without_a_hole(ralph: Ralph, look: Look) -> None:
    """Whatever is longer or shorter on the page than in the log: colours, signs that nobody sees, letters."""
    line = "\033[31mline\033[0m {} \033[1;32m\u202e\u00e4\033[0m of a coloured log"
    first, second = ({"run": ["seq", "-f", line.format(f"{half}%05g"), "15000"]} for half in (1, 2))
    told = ralph(
        "run", "-p", "x", "--agent", ralph.script([first, waits_for("one"), second, waits_for("two"), done()]),
        "--detach", "--json",
    )  # fmt: skip
    reached(ralph, "one")
    page = look.open(f"#/run/{told.json['run']}/logs?name=agent_001")
    page.wait_for_function(SHOWS, arg="line 115000")
    earlier, log = page.get_by_role("button", name="Load earlier"), page.locator(".log")
    _load_all(page)
    let(ralph, "one")
    reached(ralph, "two")
    page.wait_for_function(SHOWS, arg="line 215000")
    assert earlier.is_enabled()
    _load_all(page)
    shown = re.findall(r"(?<= )[12]\d{5}(?= )", log.inner_text())
    assert shown == [f"{half}{number:05d}" for half in (1, 2) for number in range(1, 15001)]
    let(ralph, "two")
    over(ralph, told.json["run"])


def _load_all(page: Page) -> None:
    earlier = page.get_by_role("button", name="Load earlier")
    while earlier.is_enabled():
        before = page.evaluate("document.querySelector('.log').textContent.length")
        earlier.click()
        page.wait_for_function("before => document.querySelector('.log').textContent.length > before", arg=before)


def test_the_last_words_of_a_log_are_shown_though_it_ends_with_them(ralph: Ralph, look: Look) -> None:
    agent = ralph.script([{"raw": "it begins\n"}, waits_for("one"), {"raw": "the sum of it all\n"}, done()])
    told = ralph("run", "-p", "make it so", "--agent", agent, "--detach", "--json")
    reached(ralph, "one")
    follows, rests = [look.open(f"#/run/{told.json['run']}/logs?name=agent_001") for _ in range(2)]
    look.watch.forgive("ERR_FAILED")
    for page in (follows, rests):
        expect(page.locator(".log")).to_contain_text("it begins")
        expect(page.locator(".loglist")).to_contain_text("live")
    rests.get_by_label("follow").uncheck()
    follows.route("**/log?**", lambda route: route.abort())  # no second in which it would be asked in time
    let(ralph, "one")
    for page in (follows, rests):
        expect(page.locator(".loglist li").filter(has_text="agent_001")).not_to_contain_text("live")
    follows.unroute("**/log?**")
    rests.get_by_role("button", name="Load later").click()
    for page in (follows, rests):
        expect(page.locator(".log")).to_contain_text("the sum of it all")
        expect(page.get_by_role("button", name="Load later")).to_be_disabled()
    over(ralph, told.json["run"])


def test_a_run_that_there_is_not(look: Look) -> None:
    page = look.open("#/run/20010101-000000-none")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such run")


def test_a_beginning_that_several_runs_have_says_so(look: Look, ralph: Ralph) -> None:
    for _ in range(2):
        assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    page = look.open("#/run/2")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such run")
    expect(page.get_by_role("main")).to_contain_text("several runs begin with '2'")
