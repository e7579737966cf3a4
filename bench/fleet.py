"""A fleet of 10,000 loops over 100 workers as a simulation: python bench/fleet.py [--quick] [--seed N]

The governor is the real one, and so are the numbers by which workers are missed and loops taken over. Turns, costs,
deaths and outages are made up; the first lines say how. The same seed gives the same figures, CPU times aside.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(sys.path[0], "src"))
from bench.fleet_setting import HOUR_S, USD, Setting, Tally, governor_of, packed_bytes
from bench.fleet_weather import World

from ralphproof.fleet.messages import FleetTiming

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DAY = Setting()
SMALL = replace(DAY, loops=1000, workers=10, submissions=50)
BLOB_BYTES = 2 << 20  # a server takes no larger word
DEADLOCK_S = 2.0  # a workflow's task that takes longer is given up


class Tables:
    """Prints tables, or the same as JSON."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json

    def show(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self._json:
            print(json.dumps({"title": title, "rows": [dict(zip(head, row, strict=True)) for row in rows]}), flush=True)
            return
        widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
        print(title)
        for row in (head, *rows):
            first = row[0].ljust(widths[0])
            print("  ".join([first, *(word.rjust(width) for word, width in zip(row[1:], widths[1:], strict=True))]))
        print(flush=True)


def at(values: Sequence[float], part: float) -> float:
    """The percentile; of nothing, nothing."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def span(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.{0 if seconds > 600 else 1}f} min"
    return f"{seconds / HOUR_S:.1f} h"


def spans(values: Sequence[float]) -> list[str]:
    return [span(at(values, part)) for part in (0.5, 0.95, 0.99)]


def lived(given: Setting) -> tuple[World, Tally]:
    world = World(given)
    return world, world.run()


def used(tally: Tally) -> str:
    return f"{100 * tally.busy_s / tally.alive_s:.0f} %" if tally.alive_s else "-"


def fairness(tally: Tally) -> str:
    """Of the permits that were a submitter's due, how many the worst and the best served got."""
    shares = [tally.served[name] / due for name, due in tally.due.items() if due >= 20]
    return f"{min(shares, default=1):.2f} to {max(shares, default=1):.2f}"


def day(given: Setting, tables: Tables) -> None:
    """One day of the whole fleet."""
    began = time.process_time()
    world, tally = lived(given)
    took_s = time.process_time() - began
    paid, burnt = sum(tally.paid.values()) / USD, sum(tally.burnt.values()) / USD
    turns, lost = tally.turns["begun"] + tally.turns["lost"], tally.turns["lost"]
    small = [wait for name, waits in tally.first_s.items() if name != "big" for wait in waits]
    over = {name: tally.paid[name] - total for name, total in world.totals.items() if tally.paid[name] > total}
    without = [tally.paid[name] - tally.burnt[name] - world.totals[name] for name in over]
    booked = sum(book.micro_usd for book in world.governor.submissions.values()) / USD
    minute = max(tally.minutes.values())
    words = ", ".join(f"{kind} {count:,}" for kind, count in tally.kinds.most_common())
    head = ("", "p50", "p95", "p99")
    rows = [
        ("from the wish for a turn to its agent's start", *spans(tally.queue_s)),
        ("  of it: for a permit", *spans(tally.permit_s)),
        ("  of it: for a worker", *spans(tally.worker_s)),
        ("where --total-cost-usd is short: wish to start", *spans(tally.tight_s)),
        ("first turns of small submitters", *spans(small)),
        ("first turns of the big one", *spans(tally.first_s.get("big", ()))),
        ("from a death to the agent's start elsewhere", *spans(tally.takeover_s)),
    ]
    tables.show(f"{given.loops:,} loops on {given.workers} workers with {given.slots} slots each", head, rows)
    ends = ("completed", "over its limit", "no money", "broken")
    facts = [
        ("all loops were over after", span(tally.ended_s)),
        ("loops that ended: completed, over their own limit, no money left, broken",
         ", ".join(f"{tally.turns[one]:,}" for one in ends)),
        ("slots in use while there were more open loops than slots", used(tally)),
        ("turns begun", f"{turns:,}"),
        ("turns sent to another worker: no slot within the heartbeat, worker gone",
         f"{tally.turns['moved: no slot in time']:,}, {tally.turns['moved: worker gone']:,}"),
        ("machines that died, workers that crashed, turns adopted",
         f"{tally.turns['machines died']}, {tally.turns['workers crashed']}, {tally.turns['adopted']}"),
        ("turns lost", f"{lost} ({100 * lost / turns:.2f} %)"),
        ("  they cost", f"${burnt:,.0f} of ${paid:,.0f} ({100 * burnt / paid:.2f} %)"),
        ("paid in truth, as booked", f"${paid:,.2f}, ${booked:,.2f}"),
        ("submissions that paid more than they allowed", f"{len(over)} of {len(world.totals)}"),
        ("  by at most; without what lost turns cost",
         f"${max(over.values(), default=0) / USD:.2f}, ${max([0, *without]) / USD:.2f}"),
        ("money set aside that the turn did not need", f"{100 - 100 * tally.cost_s / tally.reserved_s:.0f} %"),
        ("money set aside before a worker had begun", f"{100 * tally.idle_s / tally.reserved_s:.1f} %"),
        ("permits of a submitter, to an equal share among those in line", fairness(tally)),
        ("words to the governor", words),
        ("words a second, in the busiest minute", f"{minute / 60:.1f}"),
        ("a task of the governor's: CPU on average, at most",
         f"{1000 * tally.cpu_s / tally.tasks:.1f} ms, {1000 * tally.cpu_most_s:.0f} ms"),
        ("CPU of this simulation", f"{took_s:.0f} s"),
    ]  # fmt: skip
    tables.show("and", ("", "figure"), facts)


def sizes(given: Setting, tables: Tables) -> None:
    """The same work on fewer or more workers."""
    rows = []
    for workers, slots in ((10, 1), (10, 4), (20, 2), (10, 8), (20, 4), (40, 4), (100, 4), (200, 4)):
        _, tally = lived(replace(given, workers=workers, slots=slots, arrive_s=2 * HOUR_S, tight=0.0))
        loops_a_day = given.loops / tally.ended_s * 86400
        rows.append((f"{workers} x {slots}", f"{workers * slots}", span(tally.ended_s), used(tally),
                     *spans(tally.queue_s)[:2], f"{loops_a_day / workers / slots:.0f}"))  # fmt: skip
    head = ("workers x slots", "slots", "all over after", "in use", "queue p50", "p95", "loops a slot and day")
    tables.show(f"{given.loops:,} loops that come in within two hours", head, rows)


def bounds(given: Setting, tables: Tables) -> None:
    """What --fleet-parallel should be."""
    rows = []
    for share in (0.8, 0.9, 1.0, 1.1, 1.25, 1.5, None):
        _, tally = lived(replace(given, parallel=share, arrive_s=4 * HOUR_S))
        idle = f"{100 * tally.idle_s / tally.reserved_s:.0f} %"
        moved = f"{100 * tally.turns['moved: no slot in time'] / tally.turns['begun']:.0f} %"
        rows.append((f"{share:.0%}" if share else "not given", used(tally), span(tally.ended_s), moved, idle,
                     fairness(tally), str(tally.turns["broken"])))  # fmt: skip
    head = ("of all slots", "in use", "all over after", "turns moved", "money idle", "share", "loops broken")
    tables.show(f"--fleet-parallel, {given.loops:,} loops on {given.workers} x {given.slots}", head, rows)


def beats(given: Setting, tables: Tables) -> None:
    """What --heartbeat should be, where the server is away now and then."""
    outages = ((2.0 * HOUR_S, 20.0), (3.0 * HOUR_S, 90.0), (4.0 * HOUR_S, 240.0))
    rows = []
    for heartbeat_s in (5.0, 10.0, 30.0, 60.0, 120.0, 300.0):
        _, tally = lived(replace(given, timing=FleetTiming(heartbeat_s), outages=outages, die_s=4 * HOUR_S, tight=0.0))
        rows.append((f"{heartbeat_s:g} s", *spans(tally.takeover_s)[:2], str(tally.turns["lost"]),
                     f"${sum(tally.burnt.values()) / USD:.0f}", str(tally.turns["adopted"]),
                     str(tally.turns["moved: no slot in time"]), used(tally)))  # fmt: skip
    head = ("--heartbeat", "takeover p50", "p95", "turns lost", "they cost", "adopted", "moved", "in use")
    tables.show(
        "heartbeats, with a machine's death every 4 hours, and a server that is away once for 20, 90 and 240 s",
        head,
        rows,
    )


def deaths(given: Setting, tables: Tables) -> None:
    """What deaths of machines cost."""
    rows = []
    for hours in (1, 4, 24, 24 * 7):
        _, tally = lived(replace(given, die_s=hours * HOUR_S, crash_s=0.0))
        turns = tally.turns["begun"] + tally.turns["lost"]
        paid, burnt = sum(tally.paid.values()), sum(tally.burnt.values())
        rows.append((span(hours * HOUR_S), str(tally.turns["machines died"]), f"{tally.turns['lost']}",
                     f"{100 * tally.turns['lost'] / turns:.2f} %", f"{100 * burnt / paid:.2f} %",
                     f"${burnt / USD / max(1, tally.turns['machines died']):.2f}", *spans(tally.takeover_s)[:2],
                     span(tally.ended_s)))  # fmt: skip
    head = ("a machine dies every", "deaths", "turns lost", "of all", "of the money", "a death", "takeover p50", "p95",
            "all over after")  # fmt: skip
    tables.show(f"deaths, {given.loops:,} loops on {given.workers} x {given.slots}", head, rows)


def governors(tables: Tables) -> None:
    """Where one governor ends: what it carries from history to history, and how long it thinks."""
    rows = []
    for loops in (1000, 2000, 5000, 10_000, 12_000, 20_000):
        governor = governor_of(loops, 400)
        cost = partial(_cpu_ms, lambda governor=governor: governor.grant_turns(1.0))  # type: ignore[misc]
        full, (one, _) = cost(), governor.grant_turns(0.0)
        loop = next(iter(one.permits))
        freed = one.settle(loop, 2, 1, 0, 1.0)
        size = packed_bytes(one)
        rows.append((f"{loops:,}", f"{full:.0f} ms", f"{_cpu_ms(lambda freed=freed: freed.grant_turns(1.0)):.1f} ms",  # type: ignore[misc]
                     f"{size / 1024:,.0f} KB", f"{100 * size / BLOB_BYTES:.0f} %"))  # fmt: skip
    head = ("loops that wait", "to give out 400 turns", "one turn", "carried over", "of what a server takes")
    tables.show(f"one governor; a task may take {DEADLOCK_S:g} s", head, rows)


def _cpu_ms(work: Callable[[], object]) -> float:
    least = 1e9
    for _ in range(3):
        began = time.process_time()
        work()
        least = min(least, time.process_time() - began)
    return least * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleet, and no comparisons")
    parser.add_argument("--json", action="store_true", help="a JSON object a table")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another day (default: 1)")
    args = parser.parse_args()
    tables, whole, small = Tables(args.json), replace(DAY, seed=args.seed), replace(SMALL, seed=args.seed)
    if args.quick:
        whole = replace(whole, loops=1000, workers=10, submissions=40)
    told = [(name, str(value)) for name, value in vars(whole).items()]
    tables.show("made up, or given; seconds and dollars", ("", "value"), told)
    day(whole, tables)
    if not args.quick:
        for compare in (sizes, bounds, beats, deaths):
            compare(small, tables)
        governors(tables)


if __name__ == "__main__":
    main()
