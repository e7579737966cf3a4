"""What is done and why, for whoever looks for a fault: `[ralph] …` lines."""

from __future__ import annotations

from ralphproof import record as told
from ralphproof.display.clean import clean
from ralphproof.event import Event
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.value import Json


class Verbose:
    """Every record as a line or two."""

    def __init__(self, out: TextIO, facts: dict[str, Json], mask: Callable[[str], str] = str) -> None:
        self._out, self._most, self._mask = out, facts.get("maximumIterations") or "∞", mask

    def saw(self, record: told.Record) -> None:
        match record:
            case told.RunBegan(run, snapshot, facts):
                self._say(f"Run {run}: {', '.join(f'{name} {fact}' for name, fact in facts.items())}")
                self._say(f"Tree at the start: {snapshot.tree} ({snapshot.ref or 'no ref'})")
            case told.Picked():
                pass
            case told.TurnBegan(iteration, _, digest, argv):
                self._say(f"Iteration {iteration}/{self._most} starting")
                self._say(f"Agent command: {' '.join(argv)}")
                self._say(f"Prompt digest: {digest[:16]}")
            case told.TurnEnded(_, _, reply):
                end = reply.exit
                self._say(f"Agent ended ({end.why}, code {end.code}, {end.seconds:.1f}s, {end.out_bytes} bytes)")
            case told.Saved(_, _, snapshot, change, heard):
                self._say(f"Saved as {snapshot.ref}; changed: {', '.join(change.paths[:20]) or 'nothing'}")
                claim = heard.claim.word if heard.claim else "no claim"
                self._say(f"Completion: {claim}{_uncounted(heard.uncounted)}")
            case told.CheckBegan(_, _, check):
                self._say(f"Running guardrail: {check}")
            case told.CheckEnded(_, _, finding):
                end_word = f"exited with code {finding.code}" if finding.why == "exit" else f"ended: {finding.why}"
                self._say(f"Guardrail {end_word} ({finding.seconds:.1f}s)")
            case told.Judged(_, _, verdict, elapsed_s):
                self._say(f"Verdict: {type(verdict).__name__} ({elapsed_s:.1f}s since the start)")
            case _:
                self._say(type(record).__name__)

    def heard(self, event: Event) -> None:
        """The stream itself is shown elsewhere."""

    def tick(self) -> None:
        """Nothing to say of time."""

    def _say(self, line: str) -> None:
        self._out.write(f"[ralph] {clean(self._mask(line))}\n")
        self._out.flush()


def _uncounted(reasons: tuple[str, ...]) -> str:
    return f" (not counted: {'; '.join(reasons)})" if reasons else ""
