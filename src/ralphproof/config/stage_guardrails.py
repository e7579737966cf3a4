"""The repository's guardrails, taken to pieces as any other way to verify is."""

from __future__ import annotations

from ralphproof.config.stage_leaves import NOTHING_ASKED, Inquiry, Leaf, inquiry
from ralphproof.plan import External
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from ralphproof.config.settings import GuardrailSettings, Settings


def guardrail_inquiry(settings: Settings) -> Inquiry:
    """What all guardrails ask: one after the other, and all of them, whichever fails."""
    taken = {guardrail.name for guardrail in settings.guardrails}
    made = NOTHING_ASKED
    for guardrail in settings.guardrails:
        taken.discard(guardrail.name)
        made = made.plus(_asked(guardrail).told_apart(taken))
    return replace(made, stops_early=False)


def _asked(guardrail: GuardrailSettings) -> Inquiry:
    """What one of them asks; those of several ways have its name before their own."""

    def told(leaf: Leaf) -> Leaf:
        placed = replace(leaf, action=guardrail.fail_action, hint=guardrail.hint)
        if leaf.name != guardrail.name or not isinstance(leaf.how, External):
            return placed
        return replace(placed, log=guardrail.command, retries=guardrail.retries)

    return inquiry(guardrail.name, guardrail.how, guardrail.name).each(told)
