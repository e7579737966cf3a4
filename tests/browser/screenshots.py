"""Pictures of the page for the documents: `python -m tests.browser.screenshots [FOLDER] [NAME ...]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

from tests.browser.demo import whole
from tests.browser.looking import PHONE, WIDE, Look, Served, Watch, chromium

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
WANTED = ("overview", "run", "lie", "tasks", "report")
COLOURS = 256


def main(folder: Path, wanted: tuple[str, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ralph-demo-") as place, chromium() as browser:
        ralph, ids = whole(f"{place}/demo")
        try:
            served = Served(ralph).start()
            look = Look(browser, served, Watch(served.origin))
            shots = shots_of(ids)
            for name in wanted:
                for dark in (False, True):
                    page = look.open(shots[name][0], WIDE, dark)
                    shoot(page, shots[name][1], folder / f"web-{name}-{'dark' if dark else 'light'}.png")
            for name in ("overview", "run"):
                shoot(look.open(shots[name][0], PHONE), shots[name][1], folder / f"web-{name}-phone.png")
            look.close()
        finally:
            ralph.close()


def shots_of(ids: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Every place, and what is seen there when it is ready."""
    green = f"#/run/{ids['green']}"
    return {
        "overview": ("#/", ".runs tbody tr:nth-child(4)"), "run": (f"#/run/{ids['running']}", ".events .tool"),
        "lie": (green, ".iteration.refused summary"), "diff": (f"{green}/diff", ".lines .add"),
        "logs": (f"{green}/logs", ".log:not(:empty)"), "facts": (f"{green}/facts", ".facts"),
        "tasks": ("#/tasks", ".ticket"), "task": ("#/tasks/EXP-1", ".passages li"),
        "stories": (f"#/run/{ids['stories']}/stories", ".ticket"), "report": ("#/report", ".u-wrap canvas"),
    }  # fmt: skip


def shoot(page: Page, ready: str, file: Path) -> None:
    """Take a picture once it shows what it is about; a lie is opened first."""
    page.locator(ready).first.wait_for()
    if "refused" in ready:
        page.locator(".iteration > details[open] > summary").first.click()
        page.locator(ready).first.click()
        page.mouse.move(0, 0)
    page.wait_for_timeout(400)
    page.screenshot(path=str(file), animations="disabled")
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE)
    small.save(file, optimize=True)
    print(file.name, file.stat().st_size // 1024, "KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES, tuple(sys.argv[2:]) or WANTED)
