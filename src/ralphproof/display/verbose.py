"""Debug lines of `--verbose`: each record and the reason behind each step."""

from __future__ import annotations

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.engine import records
from ralphproof.engine.events import Event

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

PROMPT_CHARS = 200


@value
class VerboseContext:
    """Facts that records do not have: the iteration limit, the completion word, the command of each check."""

    most: int | None
    wanted: str
    commands: dict[str, str]


class VerboseObserver:
    """Every record as a line or two. `prompt` gives the beginning of what an agent is told in an iteration's turn."""

    def __init__(
        self,
        out: TextIO,
        conditions: VerboseContext,
        prompt: Callable[[int, int], str],
        mask: Callable[[str], str] = str,
    ) -> None:
        self._out, self._conditions, self._prompt, self._mask = out, conditions, prompt, mask

    def on_record(self, record: records.Record) -> None:
        match record:
            case records.RunBegan(run, snapshot, facts):
                self._say(f"Run {run}: {', '.join(f'{name} {fact}' for name, fact in facts.items())}")
                self._say(f"Tree at the start: {snapshot.tree} ({snapshot.ref or 'no ref'})")
            case records.TurnBegan():
                self._turn_began(record)
            case records.TurnEnded(_, _, reply):
                end = reply.exit
                self._say(f"Agent ended ({end.why}, code {end.code}, {end.seconds:.1f}s, {end.out_bytes} bytes)")
            case records.Saved(_, _, snapshot, change, heard):
                self._say(f"Saved as {snapshot.ref}; changed: {', '.join(change.paths[:20]) or 'nothing'}")
                found = heard.claim.word if heard.claim else "no tag"
                uncounted = f" (not counted: {'; '.join(heard.uncounted)})" if heard.uncounted else ""
                self._say(f"Completion detection: looked for {self._conditions.wanted}, found {found}{uncounted}")
            case records.CheckBegan(_, _, check):
                self._say(f"Running guardrail: {self._conditions.commands.get(check, check)}")
            case records.CheckEnded(_, _, finding):
                end_word = f"exited with code {finding.code}" if finding.why == "exit" else f"ended: {finding.why}"
                self._say(f"Guardrail {end_word} ({finding.seconds:.1f}s)")
            case records.Judged(_, _, verdict, elapsed_s):
                self._say(f"Verdict: {type(verdict).__name__} ({elapsed_s:.1f}s since the start)")
            case records.ScmEnded(_, committed, reply, message):
                took = f" (message: {reply.exit.seconds:.1f}s)" if reply else ""
                self._say(f"SCM: {phrases.describe_commit(committed, message)}{took}")
            case records.HookBegan(hook=hook, command=command):
                self._say(f"Running {hook}: {command}")
            case records.HookEnded():
                self._say(f"Hook: {phrases.describe_hook(record)}")
            case records.RunEnded(outcome):
                self._say(f"Run ended: {phrases.describe_outcome(outcome)[-1]}")
            case _:
                pass  # told to people in as many words

    def _turn_began(self, record: records.TurnBegan) -> None:
        self._say(f"Iteration {record.iteration}/{self._conditions.most or '∞'} starting")
        self._say(f"Agent command: {' '.join(record.argv)}")
        prompt = collapse_lines(self._prompt(record.iteration, record.turn))[:PROMPT_CHARS]
        self._say(f"Prompt (first {PROMPT_CHARS} characters): {prompt}")
        self._say(f"Prompt digest: {record.prompt_digest[:16]}")

    def on_events(self, events: list[Event]) -> None:
        """Not used: the console shows them."""

    def tick(self) -> None:
        """Not used."""

    def _say(self, line: str) -> None:
        write_debug_line(self._out, self._mask(line))


def write_debug_line(out: TextIO, line: str) -> None:
    """One such line."""
    out.write(f"[ralph] {collapse_lines(sanitize(line))}\n")
    out.flush()
