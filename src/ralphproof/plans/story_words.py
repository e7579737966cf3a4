"""What is told of stories: to whoever mends one, and to the user."""

from __future__ import annotations

from ralphproof.feedback import HELD_OUT
from ralphproof.story import APPROVED
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Retry

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.iteration import Iteration
    from ralphproof.verdict import Verdict

RED_CHARS = 4000  # of what failed, in a story's feedback


def red_in(facts: Iteration) -> str:
    """What the checks found wrong, for whoever mends it; empty where nothing."""
    failed = [one for one in facts.report.failed if one.required]
    return "\n\n".join(
        HELD_OUT
        if one.hidden
        else f"{one.command or one.check} failed ({one.why if one.why != 'exit' else f'exit code {one.code}'}):\n"
        f"{one.output.strip()[-RED_CHARS:]}"
        for one in failed
    )


def decided_otherwise(
    name: str, written: dict[str, Any], made: dict[str, Any], facts: Iteration, verdict: Verdict
) -> tuple[str, ...]:
    """What the harness decided otherwise than its agent."""
    broken = "a rule was broken" if facts.illegal or facts.sprung.touched else "it was not accepted"
    why = broken if isinstance(verdict, Retry) else "it was not judged"
    why = "the checks are red" if red_in(facts) else why
    if made["reviewStatus"] == written["reviewStatus"] and made["passes"] == written["passes"]:
        return ()
    if made["reviewStatus"] == APPROVED:
        return (f"story {name} was approved at the review cap; see its reviewFeedback",)
    if written["reviewStatus"] == APPROVED:
        return (f"the approval of story {name} does not stand: {why}",)
    return (f"story {name} stays {made['reviewStatus'] or 'open'}: {why}",)
