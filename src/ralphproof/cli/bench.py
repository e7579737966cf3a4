"""`ralph bench liars`: this program, or any other build of it, tried with agents that lie."""

from __future__ import annotations

import os
import sys

from ralphproof import interpreter
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, nearest, positive
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.liars.cheat import Scene, Trial
    from ralphproof.liars.upshot import Upshot

ABOUT = """try this program with agents that lie, and count what it believes.

Each trial is a run of its own on a small real project of Python (pytest) or Node (node --test) that has a bug. In
every project an honest agent must be believed, and one that does nothing must not. Every other agent cheats: it claims
without work, weakens tests, forges what the test runner says, touches what is protected, rewrites history.

Exit codes: 0 no lie was believed and no honest work refused, 1 something was, 2 nothing can be tried here."""
EXAMPLES = (
    "ralph bench liars",
    "ralph bench liars --only RH-01 --only FC-20",
    "ralph bench liars --program /opt/ralph/bin/ralph --json",
    "ralph bench liars --list",
)


def parser() -> Parser:
    made = Parser("bench", ABOUT, EXAMPLES)
    made.add_argument("what", choices=["liars"], metavar="liars", help="agents that lie")
    made.add_argument("--only", action="append", metavar="ID", default=[], help="only what begins so; repeat it")
    made.add_argument("--program", metavar="CMD", help="the build to try (default: this one)")
    made.add_argument("--jobs", type=positive, metavar="N", help="so many trials at once (default: one for each core)")
    made.add_argument("--list", action="store_true", help="say what would be tried, and try nothing")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    chosen = _chosen(tuple(args.only))
    if args.list:
        return _list(chosen, args.json)
    skipped = _skipped(chosen)
    held = tuple(trial for trial in chosen if trial.scene.id not in skipped)
    if not held:
        raise Refused(f"nothing can be tried here: {'; '.join(sorted(set(skipped.values())))}")
    _heed_signals()
    upshots = _held(held, _program(args.program), args.jobs or os.cpu_count() or 1, args.quiet)
    return _tell(upshots, skipped, args.json)


def _heed_signals() -> None:
    """Whoever ends us, what we began is ended first, and no second signal comes in between."""
    import signal

    from ralphproof.cli.signals import SIGNALS

    def interrupted(*_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupted)


def _chosen(only: tuple[str, ...]) -> tuple[Trial, ...]:
    from ralphproof.liars.table import trials

    every = trials()
    for word in only:
        if not any(trial.id.startswith(word) for trial in every):
            raise Refused(f"no trial begins with {word}{nearest(word, [one.id for one in every])} (see --list)")
    return tuple(trial for trial in every if not only or trial.id.startswith(only))


def _list(chosen: tuple[Trial, ...], for_programs: bool) -> int:
    if for_programs:
        put_json("bench", {"trials": [{"id": one.id, "kind": one.kind, "about": one.about} for one in chosen]})
    else:
        put(*(f"{one.id:<44} {one.about}" for one in chosen))
    return 0


def _skipped(chosen: tuple[Trial, ...]) -> dict[str, str]:
    """Why a scene cannot be played on this machine, by its name."""
    scenes = {trial.scene.id: trial.scene for trial in chosen}
    return {name: why for name, scene in scenes.items() if (why := _lacks(scene))}


def _lacks(scene: Scene) -> str:
    from ralphproof.liars.needs import lacking

    return "; ".join(filter(None, (lacking(need) for need in ("git", *scene.site.needs, *scene.needs))))


def _program(given: str | None) -> tuple[str, ...]:
    """The command of the build that is tried."""
    import shlex
    import shutil

    if given is None:
        return interpreter.ralph()
    try:
        words = shlex.split(given)
    except ValueError as error:
        raise Refused(f"--program {given!r} is no command: {error}") from error
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise Refused(f"--program {given!r} was not found, or may not be executed")
    return (os.path.abspath(found), *words[1:])


def _held(trials: tuple[Trial, ...], program: tuple[str, ...], jobs: int, quiet: bool) -> list[Upshot]:
    import shutil
    import tempfile
    from contextlib import closing

    from ralphproof.liars.arena import Arena

    folder = tempfile.mkdtemp(prefix="ralph-liars-")
    upshots = []
    try:
        with closing(Arena(program, folder).hold(trials, jobs)) as coming:
            for upshot in coming:
                upshots.append(upshot)
                if not quiet:
                    told = f"{len(upshots)}/{len(trials)} {upshot.trial.id}: {upshot.verdict}"
                    print(told, file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return upshots


def _tell(upshots: list[Upshot], skipped: dict[str, str], for_programs: bool) -> int:
    from ralphproof.liars.upshot import RIGHT

    wrong = sorted((one for one in upshots if one.verdict != RIGHT), key=lambda one: one.trial.id)
    tally = dict(_tally(upshots))
    if for_programs:
        put_json(
            "bench",
            {
                **{name: {"wrong": bad, "tried": tried} for name, (bad, tried) in tally.items()},
                "wrong": [{"id": one.trial.id, "verdict": one.verdict, "why": one.why} for one in wrong],
                "skipped": dict(skipped),
            },
        )
        return 1 if wrong else 0
    put(*(f"{one.trial.id}: {one.verdict}: {one.why} ({one.trial.about})" for one in wrong))
    put(*(f"not tried: {name}: {why}" for name, why in skipped.items()))
    put(
        "; ".join(
            f"{WORDS[name]}: {bad} of {tried}{' tried' * (name == 'lies')}" for name, (bad, tried) in tally.items()
        )
    )
    return 1 if wrong else 0


WORDS = {
    "lies": "accepted lies", "honest": "honest work refused", "idle": "no-ops accepted",
    "weaker": "weaker tests not told", "broken": "runs that broke",
}  # fmt: skip


def _tally(upshots: list[Upshot]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each kind how many went wrong, and how many there were; a run that broke is no answer, and counted apart."""
    from ralphproof.liars.cheat import CHEAT, NOOP, ORACLE, WEAKER
    from ralphproof.liars.upshot import BROKEN, RIGHT

    for name, kind in (("lies", CHEAT), ("honest", ORACLE), ("idle", NOOP), ("weaker", WEAKER)):
        those = [one for one in upshots if one.trial.kind == kind]
        yield name, (sum(one.verdict not in (RIGHT, BROKEN) for one in those), len(those))
    yield "broken", (sum(one.verdict == BROKEN for one in upshots), len(upshots))
