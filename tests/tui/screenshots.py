"""The pictures of the board in `docs/images/`: `python -m tests.tui.screenshots` makes them anew.

They show real runs of a scripted agent. Chromium turns Textual's SVG into PNG; without it the SVG is kept.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from tests.cli.steering import let, over, reached
from tests.house.source import ROOT
from tests.ralph import Ralph
from tests.tui.looking import Onlooker, opened, outlook_of
from tests.tui.scene import at_work, build, with_stories

IMAGES = ROOT / "docs" / "images"
SIZE = (124, 30)
SETTLED_S = 0.5
COLOURS = 200  # a picture of text has few
Pages = dict[str, tuple[tuple[str, ...], str]]
# name of the picture: keys from the page before, and what it shows then
WALK: Pages = {
    "runs": ((), "Make the parser"),
    "run": (("enter",), "Nesting needs a stack"),
    "say": (("s", *"keep the public interface"), "keep the public"),
    "iteration": (("escape", "k", "enter"), "failing: "),
    "diff": (("d",), "+++ b/src/parser.py"),
    "log": (("escape", "l", "j", "enter"), "FAILED"),
    "board": (("2",), "Issue tokens"),
    "task": (("l", "l", "enter"), "Acceptance criteria"),
    "help": (("question_mark",), "leave; every run goes on"),
}
STORIES: Pages = {"stories": (("enter", "b"), "Lock an account")}


async def walk(onlooker: Onlooker, pages: Pages) -> dict[str, str]:
    """The pages as Textual draws them."""
    drawn = {}
    for name, (keys, shows) in pages.items():
        for key in keys:
            await onlooker.press(key)
        await onlooker.sees(shows)
        await asyncio.sleep(SETTLED_S)
        drawn[name] = onlooker.app.export_screenshot(title="ralph watch")
    return drawn


async def taken(ralph: Ralph, pages: Pages) -> dict[str, str]:
    async with opened(outlook_of(ralph), SIZE, colour=True) as onlooker:
        return await walk(onlooker, pages)


def keep(name: str, svg: str) -> Path:
    """Write one picture; its fonts are those of the machine, and nothing in it is fetched."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
    IMAGES.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        path = IMAGES / f"watch-{name}.svg"
        path.write_text(svg, encoding="utf-8")
        return path
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert found, "Textual's SVG says how large it is"
    width, height = (round(float(part)) for part in found.groups())
    path = IMAGES / f"watch-{name}.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f"<body style='margin:0'>{svg}</body>", encoding="utf-8")
        command = [
            chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--screenshot={path}",
            f"--window-size={width},{height}", "--default-background-color=00000000", f"--user-data-dir={folder}/data",
            page.as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(path) as image:
        few = image.convert("RGB").quantize(COLOURS)
    few.save(path, optimize=True)
    return path


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        shop, tale = Ralph(Path(folder) / "shop"), Ralph(Path(folder) / "tale")
        build(shop)
        with_stories(tale)
        run = at_work(shop)
        reached(shop, "second")
        drawn = asyncio.run(taken(shop, WALK)) | asyncio.run(taken(tale, STORIES))
        let(shop, "second")
        over(shop, run)
        shop.close()
        tale.close()
    for name, svg in drawn.items():
        path = keep(name, svg)
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
