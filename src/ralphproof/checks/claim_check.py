"""The agent's completion claim as a check."""

from __future__ import annotations

from ralphproof.base.text import quote_excerpt
from ralphproof.engine.check import CheckWatcher, Finding, Inspection
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.failure_fingerprint import failure_fingerprint


class ClaimCheck:
    """Passes where the claim is the one that the rule requires: exactly that word in its tag.

    A promise proves nothing, so its finding is required only where it is missing: it verifies no run.
    """

    def __init__(self, name: str, rule: ClaimRule, required: bool = True) -> None:
        if rule.word is None:
            raise ValueError(f"{name}: a rule that asks for no word has no promise to look for")
        self.name, self.required, self._rule = name, required, rule

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """Whether the claim of this iteration is the promise."""
        if self._rule.accepts(inspection.claim):
            return Finding(self.name, True, required=False)
        why = f"{_describe_claim(inspection.claim)}, expected {self._rule.description}"
        mark = failure_fingerprint(self.name, None, why)
        return Finding(self.name, False, why=why, fingerprint=mark, required=self.required)


def _describe_claim(claim: Claim | None) -> str:
    """What the agent claimed instead."""
    if claim is None:
        return "no promise"
    if claim.waiting:
        return f"the word that it waits ({quote_excerpt(claim.word)})"
    where = {"tag": "in a tag", "marker": "by a file", "bus": "in a message", "exit": "by its exit code"}
    return f"the word {quote_excerpt(claim.word)} {where.get(claim.source, '')}".rstrip()
