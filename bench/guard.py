"""What the command guard catches, misses and cries wolf at: python bench/guard.py [--json]

The lines are those of tests/guard/: dangerous ones with their category, harmless ones, and both in wrappings that a
shell takes off again. Nothing is run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict, dataclass

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from tests.guard.samples import dangerous, harmless, judged, known_misses
from tests.guard.wrappings import WAYS, fits

from ralphproof.guard.rules import CATEGORIES


@dataclass(frozen=True)
class Figures:
    """Of so many dangerous lines, how many are objected to; of so many harmless ones, how many are."""

    what: str
    dangerous: int
    caught: int
    harmless: int = 0
    alarms: int = 0


def count(what: str, bad: list[str], good: list[str]) -> Figures:
    caught, alarms = (sum(judged(line) is not None for line in lines) for lines in (bad, good))
    return Figures(what, len(bad), caught, len(good), alarms)


def by_category() -> list[Figures]:
    rows = [(name, [line for category, line in dangerous() if category == name]) for name in CATEGORIES]
    return [count(name, lines, []) for name, lines in rows]


def by_wrapping() -> list[Figures]:
    bad = [line for _, line in dangerous() if line not in known_misses()]
    rows = []
    for way, change in WAYS.items():
        those, these = ([line for line in lines if fits(way, line)] for lines in (bad, harmless()))
        rows.append(count(way, *([change(line.replace("␤", "\n")) for line in lines] for lines in (those, these))))
    return rows


def show(title: str, rows: list[Figures]) -> None:
    print(f"{title:<18}  dangerous  caught  missed  harmless  alarms")
    for row in rows:
        missed = row.dangerous - row.caught
        print(f"{row.what:<18}  {row.dangerous:>9}  {row.caught:>6}  {missed:>6}  {row.harmless:>8}  {row.alarms:>6}")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="a JSON object instead of tables")
    as_json = parser.parse_args().json
    began = time.process_time()
    overall = count("all", [line for _, line in dangerous()], harmless())
    each_ms = (time.process_time() - began) * 1000 / (overall.dangerous + overall.harmless)
    categories, wrappings = by_category(), by_wrapping()
    misses = [f"{category}\t{line}" for category, line in dangerous() if judged(line) is None]
    alarms = [f"{found.rule}\t{line}" for line in harmless() if (found := judged(line)) is not None]
    if as_json:
        tables = {"overall": asdict(overall), "categories": [asdict(row) for row in categories]}
        more = {"wrappings": [asdict(row) for row in wrappings], "misses": misses, "alarms": alarms, "ms": each_ms}
        print(json.dumps(tables | more))
        return
    show("lines", [overall])
    show("category", categories)
    show("wrapping", wrappings)
    print(f"{each_ms:.1f} ms of CPU a line, the parser loaded\n")
    print(*(f"missed: {line}" for line in misses), *(f"false alarm: {line}" for line in alarms), sep="\n")


if __name__ == "__main__":
    main()
