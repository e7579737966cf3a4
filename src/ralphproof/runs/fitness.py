"""Whether work is fit for an unattended loop: four conditions, each with its reason.

What the user did not say is guessed from English words of the prompt. A guess names these words, and the flag that
overrides it.
"""

from __future__ import annotations

import re

from ralphproof.base.value import replace, value
from ralphproof.settings.skills import Skill, missing_skill_parts

FEATURE, BUG, REFACTOR, OTHER = "feature", "bug", "refactor", "other"
WORK_TYPES = (FEATURE, BUG, REFACTOR, OTHER)
RISK_LEVELS = ("low", "medium", "high", "critical")
SUITABLE, ACCEPTABLE = WORK_TYPES[:3], RISK_LEVELS[:2]
MAX_SHOWN = 3  # commands, or words, in one sentence

# The first match in the text decides the type; all are whole words.
_TYPE = (
    r"\b(?:(?P<other>(?:re)?design(?:s|ing)?|architect(?:ure|ural|ing)?|ux|user experience|look and feel|brainstorm"
    r"|(?:investigat|debug|diagnos)[a-z]*(?: [a-z]+){0,4} production|production (?:incident|outage|problem|issue)s?)"
    r"|(?P<bug>(?:bug)?fix(?:es|ed|ing)?|bugs?|crash(?:es|ed|ing)?|regressions?|broken|fail(?:s|ed|ing|ures?)?|flaky"
    r"|errors?|tests? (?=pass|succeed|green))"
    r"|(?P<refactor>refactor(?:s|ed|ing)?|renam(?:e|es|ed|ing)|extract(?:s|ed|ing)?|clean(?:s|ed|ing)?[- ]?up"
    r"|lint(?:s|ed|ing|er|ers)?|simplif(?:y|ies|ied|ying)|deduplicat(?:e|es|ed|ing)|restructur(?:e|es|ed|ing))"
    r"|(?P<feature>add(?:s|ed|ing)?|implement(?:s|ed|ing)?|support(?:s|ed|ing)?|creat(?:e|es|ed|ing)))\b"
)
# Used where none of these matches: other words for a change.
_CHANGE = (
    r"\b(?:write|build|make|let|allow|enable|provide|extend|expose|introduce|accept|show|handle|improve|update|upgrade"
    r"|change|replace|convert|port|edit|move|remove|migrate)\b"
)
_RISKY = (
    r"\b(?:o?auth[0-9]*|auth[nz]|authenticat[a-z]+|authori[sz](?:e|es|ed|ing|ation)|sso|log-?ins?|sign[- ]?in"
    r"|passwords?|passphrases?|payments?|billing|migrations?|deploy(?:s|ed|ing|ments?)?|secrets?|credentials?"
    r"|(?P<live>production|prod)(?![- ](?:ready|grade|quality))"
    r"|migrat(?:e|es|ed|ing)(?: [a-z]+){0,3} (?:data|databases?|schemas?|tables?)"
    r"|(?:(?:delet|eras|purg|wip)(?:e|es|ed|ing)|drop(?:s|ped|ping)?|destroy(?:s|ed|ing)?)(?: [a-z]+){0,3}"
    r" (?:data|databases?|tables?|records|rows|accounts?|backups?))\b"
)
# A prompt is specific if it mentions what checks define, or has a word besides orders and these general words.
_DEFINED = r"\b(?:tests?|lint(?:s|ed|ing|er|ers)?|warnings?)\b"
_EVERYTHING = """
    a about all also an and any anything app application architecture as at be best better big build can change
    clean cleaner code codebase completely do don entire every everything existing faster feature features finish
    first for from functionality general get give go good great had handle has have help i improve improved
    improvement improvements improving in into is it its just let ll logic make makes making me more most much my
    need new nice nicer now of on optimise optimize or other our overall performance please possible problem
    problems production program project quality re ready really repo repository robust s should so software some
    something speed structure stuff system t than that the their them there these they thing things this to up
    update upgrade us use user ux ve version very want way we whole will with work works write you your
"""


@value
class WorkIntent:
    """The work to be assessed. Empty `type` or `risk`: the user did not say. `checks` are all commands that decide."""

    prompt: str
    type: str = ""
    risk: str = ""
    checks: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()


@value
class FitnessCondition:
    """A condition, whether it is met, and why."""

    name: str
    met: bool
    reason: str


@value
class WorkEstimate:
    """The type or risk of the work, and how it was determined."""

    word: str
    reason: str
    guessed: bool = False


@value
class Fitness:
    """The conditions in order, with the type and risk of the work."""

    conditions: tuple[FitnessCondition, ...]
    type: str
    risk: str

    @property
    def fit(self) -> bool:
        """Whether a loop may do this work."""
        return all(condition.met for condition in self.conditions)

    @property
    def risky(self) -> bool:
        """Whether a person should watch, whatever else is true."""
        return self.risk not in ACCEPTABLE


def assess_fitness(intent: WorkIntent, skill: Skill | None) -> Fitness:
    """Assess whether this work may be left to a loop."""
    text, named = _normalize_prompt(intent.prompt), _protected(intent)
    kind, risk = _type(intent.type, text), _risk(intent.risk, text, bool(named))
    conditions = (
        _verification(intent.checks),
        _scope(kind, text),
        _risk_condition(risk, named),
        _readiness(skill, intent),
    )
    return Fitness(conditions, kind.word, risk.word)


def _normalize_prompt(prompt: str) -> str:
    """The prompt in lower case, with single spaces and split identifiers."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", prompt)
    return " ".join(apart.replace("_", " ").lower().split())


def _verification(checks: tuple[str, ...]) -> FitnessCondition:
    if not checks:
        return FitnessCondition("verification", False, "no check is known, so nothing could show that the work is done")
    return FitnessCondition("verification", True, f"decided by {_first_few(checks)}")


def _type(given: str, text: str) -> WorkEstimate:
    if named := given.strip().lower():
        return WorkEstimate(named, f"{named}, as you say")
    if match := re.search(_TYPE, text) or re.search(_CHANGE, text):
        kind = match.lastgroup or FEATURE
        return WorkEstimate(kind, f'{kind}, guessed from "{match[0].strip()}"', True)
    return WorkEstimate(OTHER, "no word of the prompt tells which type of work it is", True)


def _scope(kind: WorkEstimate, text: str) -> FitnessCondition:
    reasons = [kind.reason]
    if kind.word not in SUITABLE:
        reasons.append(f"a loop is for a {', '.join(SUITABLE)}; anything else needs a person's judgement")
    if vague := not _specific(text):
        reasons.append("the prompt names nothing to work on: say which file, function or behaviour")
    if kind.guessed:
        reasons.append("--type says it for sure")
    return FitnessCondition("scope", kind.word in SUITABLE and not vague, "; ".join(reasons))


def _specific(text: str) -> bool:
    rest = set(re.findall(r"\w+", re.sub(_TYPE, " ", text)))
    return bool(re.search(_DEFINED, text)) or not rest <= set(_EVERYTHING.split())


def _risk(given: str, text: str, protected: bool) -> WorkEstimate:
    if named := given.strip().lower():
        return WorkEstimate(named, f"{named}, as you say")
    risky_words = {match[0]: bool(match["live"]) for match in re.finditer(_RISKY, text)}
    if not risky_words and not protected:
        return WorkEstimate("low", "low, since the prompt has no risky word", True)
    risk = "critical" if any(risky_words.values()) and (protected or len(risky_words) > 1) else "high"
    words = _first_few(tuple(f'"{word}"' for word in risky_words))
    return WorkEstimate(risk, f"{risk}, guessed{words and f' from {words}'}", True)


def _risk_condition(risk: WorkEstimate, named: tuple[str, ...]) -> FitnessCondition:
    reasons = [risk.reason]
    if named:
        reasons.append(f"the prompt names {_first_few(named)}, and a change to what is protected ends the run")
    if risk.word not in ACCEPTABLE:
        reasons.append(f"a loop is for work of {' or '.join(ACCEPTABLE)} risk; anything else needs a person beside it")
    if risk.guessed:
        reasons.append("--risk says it for sure")
    return FitnessCondition("risk", risk.word in ACCEPTABLE, "; ".join(reasons))


def _protected(intent: WorkIntent) -> tuple[str, ...]:
    """The protected paths that the prompt mentions."""
    mentioned = [word.removeprefix("./").rstrip("./") for word in re.findall(r"[\w./-]+", intent.prompt)]
    return tuple(
        path
        for path in intent.protected
        if (plain := path.rstrip("*").strip("/"))
        and any(word == plain or word.startswith(f"{plain}/") for word in mentioned)
    )


def _readiness(skill: Skill | None, intent: WorkIntent) -> FitnessCondition:
    """A skill without verification of its own uses the configured checks."""
    if skill is None:
        return FitnessCondition("skill", True, "no skill: the loop runs the prompt as it is")
    lacks = missing_skill_parts(skill if skill.verification else replace(skill, verification=intent.checks))
    if lacks:
        return FitnessCondition("skill", False, f"{skill.name} is not ready for a loop: {'; '.join(lacks)}")
    return FitnessCondition("skill", True, f"{skill.name} is ready for a loop")


def _first_few(items: tuple[str, ...]) -> str:
    rest = f" and {len(items) - MAX_SHOWN} more" if len(items) > MAX_SHOWN else ""
    return ", ".join(items[:MAX_SHOWN]) + rest
