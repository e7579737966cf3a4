"""What of a run is worth telling people who are elsewhere, and in which words."""

from __future__ import annotations

import re
import time

from ralphproof.budget import Spend, dollars
from ralphproof.limit import WAITING
from ralphproof.record import Record, RunEnded, TurnAgain, Warned
from ralphproof.value import TYPE_CHECKING, assert_never, value
from ralphproof.verdict import Aborted, Completed, Failed, Outcome, result

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.value import Json

VERSION = 1
ENDED, WAITS, WARNED = "run.ended", "run.waiting", "run.warned"
TITLE_CHARS, BODY_CHARS, NAME_CHARS = 120, 1000, 60
SHORT_WAIT_S = 60.0  # not worth telling
FACTS = ("iterations", "costUSD", "costAtLeast", "durationSeconds", "exitCode", "verificationPassed")
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@value
class Note:
    """One thing that is told. `facts` are for programs; title and body are for people, masked, clean and short."""

    event: str
    title: str
    body: str
    run: str
    project: str
    status: str
    reason: str = ""
    facts: tuple[tuple[str, Json], ...] = ()
    at_s: float = 0.0

    def published(self) -> dict[str, Json]:
        """The note as programs read it."""
        return {
            "v": VERSION,
            "event": self.event,
            "at": _iso(self.at_s),
            "run": self.run,
            "project": self.project,
            "title": self.title,
            "message": self.body,
            "status": self.status,
            "reason": self.reason,
            **dict(self.facts),
        }


def note_of(record: Record, run: str, project: str, mask: Callable[[str], str], now: float) -> Note | None:
    """What a record is worth telling; nothing for most of them. `now` is in epoch seconds."""
    match record:
        case RunEnded(outcome):
            event, (title, body), published = ENDED, _end(outcome), result(outcome)
            status, reason = str(published["status"]), str(published.get("reason", ""))
            facts: dict[str, Json] = {name: published[name] for name in FACTS if name in published}
        case TurnAgain(iteration, until=until) if until - now > SHORT_WAIT_S:
            event, status, reason = WAITS, "WAITING", ""
            at = time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(until)).strip()
            title, body = (
                f"waits until {at}",
                f"{record.why.rstrip(' .')}. At {at} iteration {iteration} is taken again.",
            )
            facts = {"iteration": iteration, "until": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))}
        case Warned(iteration, what, message):
            event, status, reason, facts = WARNED, "RUNNING", what, {"iteration": iteration}
            title, body = "a limit comes near", message.removeprefix("[Ralph] ")
        case _:
            return None
    name = _short(_clean(mask(project)).replace("\n", " "), NAME_CHARS)
    title, body = _short(_clean(mask(f"{name}: {title}")), TITLE_CHARS), _short(_clean(mask(body)), BODY_CHARS)
    return Note(event, title, body, run, name, status, reason, tuple(facts.items()), now)


def _iso(epoch_s: float) -> str:
    """A moment in UTC, to the millisecond: what arrives late can be put in its order."""
    whole, milliseconds = divmod(round(epoch_s * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def _end(outcome: Outcome) -> tuple[str, str]:
    """How a run ended: in a title, and in a few lines."""
    count, seconds = outcome.iterations, outcome.seconds
    took = f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.0f} min"
    used = f"{count} iteration{'' if count == 1 else 's'}, {took}, {_cost(outcome.spend)}"
    match outcome:
        case Completed(concerns=concerns):
            title = f"COMPLETED, {outcome.proof}" + ("" if outcome.verification_passed else "; nothing verified it")
            lines = [used, *(f"concern: {item}" for item in concerns)]
        case Aborted(breach):
            title = "waits for somebody" if breach.reason == WAITING else f"ABORTED, {breach.reason}"
            green = ["The checks passed all the same."] if outcome.checks_passed else []
            lines = [breach.message, *green, used]
        case Failed(error):
            title, lines = "ERROR", [error, used]
        case _:
            assert_never(outcome)
    return title, "\n".join(lines)


def _cost(spend: Spend) -> str:
    """Unknown is not zero, and what a subscription pays for is no money spent."""
    if spend.unpriced and not spend.micro_usd:
        return "cost unknown"
    notional = f" ({dollars(spend.notional)} of it notional)" if spend.notional else ""
    return f"cost {'at least ' if spend.unpriced else ''}{dollars(spend.micro_usd)}{notional}"


def _clean(text: str) -> str:
    return "".join(letter for letter in _ESCAPES.sub("", text) if letter.isprintable() or letter == "\n")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
