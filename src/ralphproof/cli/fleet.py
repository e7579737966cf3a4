"""`ralph fleet`: many loops on many machines: submitted, worked on, watched and cancelled."""

from __future__ import annotations

from ralphproof.cli.subverbs import Subverbs

ABOUT = """many loops on many machines, which share a git remote and nothing else. A Temporal server drives them, or
with --engine local one file on this machine.

{verbs}

ralph fleet VERB --help says more. RALPH_FLEET_ENGINE, _ADDRESS, _NAMESPACE, _TLS_CERT, _TLS_KEY and _TLS_CA stand for
the flags of the same names, TEMPORAL_API_KEY for an API key."""
EXAMPLES = (
    "ralph fleet dev",
    "ralph fleet worker --slots 4",
    'ralph fleet submit --repo https://git.example/app.git -p "make the tests pass" --check "make test" --wait',
    "ralph fleet submit --repo /srv/git/app.git --tasks tasks.yaml --land main --total-cost-usd 50",
    "ralph fleet status",
)
VERBS = {
    "worker": "take steps of loops on this machine",
    "submit": "hand in loops",
    "status": "where loops stand, and what they cost",
    "cancel": "end loops",
    "logs": "what the agent and the checks of a loop printed",
    "dev": "a Temporal server for this machine alone",
}

OWN = Subverbs("fleet", ABOUT, EXAMPLES, VERBS, "status")
parser, parsers, main = OWN.parser, OWN.parsers, OWN.main
