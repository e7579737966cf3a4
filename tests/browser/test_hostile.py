"""Whatever agents, repositories and file names say, the page shows it and does nothing else."""

from __future__ import annotations

import json
from urllib.parse import quote

from playwright.sync_api import Dialog, Page, expect

from ralphproof.store.tasks import TaskRow
from tests.browser.demo import emit, todos
from tests.browser.looking import PHONE, WIDE, Look, width_beyond
from tests.cli.steering import let, over, reached, waits_for
from tests.cli.tasking import COMPLETION, keep
from tests.ralph import Ralph, say

SCRIPT = "<script>window.pwned = 1</script>"
IMAGE = '<img src=x onerror="window.pwned = 2">'
LINK = '<a href="javascript:window.pwned=3">here</a> [here](javascript:window.pwned=4)'
TURNED = "invoice\u202egpj.exe"
FORGED = "".join(f"{end}diff --git a/README b/README" for end in "\r\u2028\u2029\x0b\x0c\x1c\x85")  # no end of a line
ALL = f"{SCRIPT} {IMAGE} {LINK} {TURNED} \x1b]0;title\x07 \x00 \u2066 \U000e0041 {FORGED}"
TEXT = ALL.replace("\0", "")  # of a binary file no line is shown
LONG = "w" * 10_000
MADE = ("img", "script", "iframe", "object", "style", "base", "form[action]")
PLACES = ("", "/diff", "/logs?name=agent_001", "/facts")


def unharmed(page: Page) -> None:
    """Nothing was executed, nothing became an element, no link leads away, and the page is no wider than its window."""
    assert page.evaluate("window.pwned") is None
    assert page.locator(", ".join(f"main {tag}" for tag in MADE)).count() == 0
    links = page.locator("a").evaluate_all("all => all.map(one => one.href)")
    origin = page.evaluate("location.origin")
    assert [link for link in links if not link.startswith(f"{origin}/")] == []
    text = page.locator("body").inner_text()
    assert "\u202e" not in text
    assert "\u2066" not in text
    assert width_beyond(page) <= 0
    names = page.locator("*").evaluate_all("all => all.flatMap(one => one.getAttributeNames())")
    assert [name for name in names if name.startswith("on")] == []


def test_what_anybody_wrote_is_shown_as_text_and_executed_by_nobody(ralph: Ralph, look: Look) -> None:
    """WB-01."""
    run, task = _hostile(ralph)
    reached(ralph, "one")
    pages = [look.open(f"#/run/{run}", size) for size in (WIDE, PHONE)]
    dialogs: list[str] = []

    def dismiss(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    for page in pages:
        page.on("dialog", dismiss)
        events = page.locator(".agent .events")
        expect(events).to_contain_text(SCRIPT)
        expect(events).to_contain_text("[U+202E]gpj.exe")
        expect(events).to_contain_text("[U+E0041]")
        expect(page.locator(".todos")).to_contain_text("[U+202E]")
        unharmed(page)
    let(ralph, "one")
    over(ralph, run)
    for page in pages:
        expect(page.locator(".iteration .claim")).to_contain_text("claimed, and the checks refused it")
        for place in PLACES:
            page.goto(f"{look.served.origin}/#/run/{run}{place}")
            page.locator(".iteration .files, .lines .add, .log, .facts").first.wait_for()
            if place != "/facts":
                expect(page.locator(".panel")).to_contain_text("<script>")
            if place == "/diff":
                expect(page.locator(".file summary")).to_have_count(2)  # no change passes for that of another file
                expect(page.locator(".file summary", has_text="README")).to_have_count(0)
            page.locator(".panel details:not([open]) > summary").evaluate_all("all => all.forEach(one => one.click())")
            unharmed(page)
        for place in ("#/", "#/tasks", f"#/tasks/{quote(task, safe='')}", "#/report"):
            page.goto(f"{look.served.origin}/{place}")
            page.locator(".runs tbody tr, .ticket, .acceptance, .tiles").first.wait_for()
            unharmed(page)
        for place in ("#/constructor", "#/__proto__/x", "#/%E0%A4%A", "#//evil.example/"):
            page.goto(f"{look.served.origin}/{place}")
            expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    assert dialogs == []


def _hostile(ralph: Ralph) -> tuple[str, str]:
    """A run and a task in which everything that has a name or says something is meant to do harm."""
    name = f"{IMAGE.replace('/', '')}{TURNED}.txt"
    ralph.git("checkout", "-qb", "<img-src=x-onerror=window.pwned=5>")
    ralph.write({"check.sh": "cat words; exit 1\n", "words": f"{ALL}\n{LONG}\n"})
    ralph.commit()
    task = f"T{IMAGE}"
    keep(ralph, TaskRow(task, SCRIPT, f"{IMAGE}{TURNED}{LONG[:500]}", ALL, completion=COMPLETION))
    agent = ralph.script(
        [
            say(ALL), say(LONG), {"tool": {"name": SCRIPT, "summary": ALL, "output": f"{ALL}\n{LONG}"}},
            todos((ALL, "active"), (LONG, "pending"), ("x", "constructor")), emit("Denied", tool=IMAGE, why=ALL),
            emit("Asked", question=ALL),
            {"raw": f"{ALL}\n".encode().decode("latin-1")}, {"write": {name: f"{TEXT}\n{LONG}\n"}},
            {"write": {SCRIPT.replace("/", ""): "1\n"}}, waits_for("one"), say(f"{ALL}\n<response>DONE</response>"),
        ],
    )  # fmt: skip
    title = f"{SCRIPT}{IMAGE}{TURNED}{LONG[:200]}"
    flags = ("--check", "sh check.sh", "--check", f"true {SCRIPT!r}", "-m", "1")
    told = ralph("run", "-p", title, "--agent", agent, "--detach", "--json", *flags)
    assert told.code == 0, told
    return told.json["run"], task


def test_the_page_itself_may_run_nothing_that_was_written_into_it(look: Look) -> None:
    """WB-01: even where markup would get in, the browser is told not to run it."""
    page = look.open("#/")
    look.watch.forgive(r"Content Security Policy|/x\)$")
    page.locator("h1").wait_for()
    page.evaluate(f"document.querySelector('main').innerHTML = {json.dumps(IMAGE + SCRIPT)}")
    page.evaluate("""() => {
        const inline = document.createElement('script');
        inline.textContent = 'window.pwned = 6';
        document.body.append(inline);
        const far = document.createElement('script');
        far.src = 'data:text/javascript,window.pwned=7';
        document.body.append(far);
    }""")
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
