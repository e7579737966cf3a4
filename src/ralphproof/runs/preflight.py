"""Pre-flight warnings and refusals."""

from __future__ import annotations

import os
import re

from ralphproof.agents.adapter import COST_COMPUTED, COST_UNKNOWN
from ralphproof.agents.selection import UNGUARDED, SelectedAgent, agent_traits
from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import enclosing_repository
from ralphproof.base.interpreter import installation_folders
from ralphproof.base.value import replace, value
from ralphproof.checks.check_plan import CLEAN_CHECKOUT
from ralphproof.runs import assembly
from ralphproof.runs.assembly import StagePlan
from ralphproof.runs.request import RunRequest
from ralphproof.settings.declarations import Settings
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


# Pre-flight warnings and refusals: agents, their cost, sandbox, git, risk of the task.


UNKNOWN_COST_ADVICE = "add --allow-unknown-cost, and limit the run with --max-iterations and --max-minutes"
COST_UNREPORTED = f"cannot report its cost, nor its tokens, so {{limit}} could not be held; {UNKNOWN_COST_ADVICE}"
TOKENS_UNREPORTED = f"tells no tokens, so maxTokens could not be held; {UNKNOWN_COST_ADVICE}"
TOKENS_UNPRICED = (
    "reports tokens alone, which have no known price, so {limit} could not be held; set --max-tokens as well, or add "
    "--allow-unknown-cost"
)
NO_COMMIT_MESSAGE = (
    "scm: a program without a prompt cannot be asked for a commit message; the work is saved, not committed"
)
MODEL_UNPRICED = (
    "reports tokens alone, and the price of its model is not known, so {limit} could not be held; name the model "
    "with --model, or its price in prices of your own settings, or set --max-tokens as well, or add "
    "--allow-unknown-cost"
)


def refuse_unknown_cost(settings: Settings, agents: tuple[SelectedAgent, ...], allowed: bool) -> None:
    """Raise Refused where the user set a limit on cost or tokens that cannot be enforced, because an agent does not
    report them.

    Caps alone only warn. A token limit is enough where an agent reports tokens.
    """
    limits = settings.limits
    cost_limits = (("maxCostUsd", limits.max_cost_usd), ("dailyCostUsd", limits.daily_cost_usd))
    limit = next((name for name, amount in cost_limits if amount is not None), None)
    for one in () if allowed else agents:
        if limit is not None and not one.agent.reports_cost and (limits.max_tokens is None or not one.reports_tokens):
            why = (
                COST_UNREPORTED
                if not one.reports_tokens
                else MODEL_UNPRICED
                if one.cost == COST_COMPUTED
                else TOKENS_UNPRICED
            )
            raise Refused(f"agent {one.agent.name} {why.format(limit=limit)}")
        if limits.max_tokens is not None and not one.reports_tokens:
            raise Refused(f"agent {one.agent.name} {TOKENS_UNREPORTED}")


def warn_about_agents(settings: Settings, agents: tuple[SelectedAgent, ...], cost_allowed: bool) -> list[str]:
    """Warnings about agents without restrictions or with unknown cost."""
    remarks = [_guard_warning(one) for one in agents if one.permissions == UNGUARDED]
    remarks += [
        f"agent {one.agent.name}: its own flags decide what it may do ({one.deciding_flag})"
        for one in agents
        if one.deciding_flag
    ]
    if not cost_allowed:
        has_own_limit = settings.limits.max_cost_usd is not None
        name = "limits.maxCostUsd" if has_own_limit else "caps.costUsd"
        limit = f"{name} ({settings.cost_limit_micro_usd / 1_000_000:g})"
        remarks += [warning for one in agents if (warning := _cost_warning(one, limit))]
    if settings.limits.max_tokens is not None:
        silent = (one.agent.name for one in agents if not one.reports_tokens)
        remarks += [f"agent {name} tells no tokens, so maxTokens cannot be held" for name in silent]
    return list(dict.fromkeys(remarks))


def warn_about_missing_sandbox(agents: tuple[SelectedAgent, ...], origin: str) -> list[str]:
    """Warnings where the preset has a sandbox and the settings turn it off: how each agent is restricted instead."""
    guarded = {one.agent.name: one.permissions for one in agents if one.permissions.startswith("guarded")}
    return [f"no sandbox, as {origin} says: {name} runs {permissions} instead" for name, permissions in guarded.items()]


def _guard_warning(one: SelectedAgent) -> str:
    """What restricts an agent without a sandbox."""
    name = one.agent.name
    if agent_traits(name).calls_guard:
        return f"agent {name} runs as --no-sandbox says: the command guard refuses accidents, but is no boundary"
    return f"agent {name} runs without a guard, as --no-sandbox says: it may do all that you may do"


def _cost_warning(one: SelectedAgent, limit: str) -> str:
    """Why the cost of an agent may stay unknown, as far as can be told without the price list, which loads slowly."""
    if one.cost == COST_UNKNOWN:
        return f"agent {one.agent.name} cannot report its cost, so {limit} cannot be held"
    if one.cost == COST_COMPUTED and one.model is None:
        return (
            f"agent {one.agent.name}: its model is not named, so its cost may stay unknown and {limit} could not be "
            "held; name one with --model"
        )
    return ""


def warn_about_install_location(root: str) -> list[str]:
    """A warning where this program is installed in the project: sandboxes mount that folder read-only."""
    inside = os.path.join(os.path.realpath(root), "")
    folder = next((installed for installed in installation_folders() if installed.startswith(inside)), "")
    if not folder:
        return []
    name = os.path.relpath(folder, inside)
    return [
        f"ralph is installed in the project ({name}), so agents and checks cannot write there in a sandbox; to let "
        "them, install it elsewhere: uv tool install ralphproof"
    ]


def warn_about_git(root: str, settings: Settings) -> list[str]:
    """A warning where snapshots cannot be kept in git; raises Refused where the user wants commits."""
    if assembly.is_git_missing(root, os.environ):
        return ["git was not found on PATH; what changes is seen by comparing files, and history is not watched"]
    repository = enclosing_repository(root)
    if repository is None:
        return []
    message = (
        f"{root} is a folder of the repository at {repository}: work is saved by comparing files, in the state folder, "
        "and not under refs; .ralph/ at the top of the repository changes that"
    )
    if settings.scm is not None and os.path.basename(settings.scm.command) == "git":
        raise Refused(f"scm git: {message}")
    return [message]


def refuse_unavailable_features(request: RunRequest, settings: Settings, stage_plan: StagePlan, root: str) -> None:
    """Raise Refused for settings that cannot work here."""
    if settings.must_fail_first and not any(leaf.required and not leaf.late for leaf in stage_plan.leaves.values()):
        raise Refused("mustFailFirst is set and there is no check that could fail first; add one with --check")
    if settings.verify_in == CLEAN_CHECKOUT and not os.path.lexists(os.path.join(root, ".git")):
        raise Refused("verifyIn is clean, and that needs a git repository at the project's top; run git init")
    if settings.setup and settings.verify_in != CLEAN_CHECKOUT and not request.in_worktree:
        raise Refused('setup prepares clean checkouts and worktrees, and there are none; set "verifyIn": "clean"')
    if settings.otel:
        from ralphproof.reports.otel import MISSING_OPENTELEMETRY, is_opentelemetry_installed

        if not is_opentelemetry_installed():
            raise Refused(MISSING_OPENTELEMETRY)


def refuse_unknown_risk_or_type(request: RunRequest) -> None:
    """Raise Refused for an unknown risk or type, which only callers from Python can pass."""
    if not (request.fitness.risk or request.fitness.task_type):
        return
    for name, word, known in (
        ("risk", request.fitness.risk, RISK_LEVELS),
        ("type", request.fitness.task_type, WORK_TYPES),
    ):
        if word and word not in known:
            raise Refused(f"the {name} of a task is one of {', '.join(known)}, not {word!r}")


def refuse_hosts_without_sandbox(request: RunRequest, settings: Settings) -> None:
    if request.allow_hosts and request.sandbox_kind(settings) is None:
        raise Refused("--allow-host says what may be reached from a sandbox, and there is none; add --sandbox")


def assess_request_fitness(request: RunRequest, prompt: str, settings: Settings, skill: Skill | None) -> Fitness | None:
    """Whether this is work for a loop; None where nobody asks, because guessing takes time."""
    if not (request.skill or request.fitness.risk or request.fitness.task_type or request.fitness.explain):
        return None
    checks = (*(guardrail.shown for guardrail in settings.guardrails), *(check.name for check in request.custom.checks))
    return assess_fitness(
        WorkIntent(prompt, request.fitness.task_type, request.fitness.risk, checks, settings.protected_paths), skill
    )


def refuse_risky_task(request: RunRequest, fitness: Fitness | None, remarks: list[str]) -> None:
    """Raise Refused for risky work, unless the user forces it."""
    if fitness is None or not fitness.risky:
        return
    reason = next(condition.reason for condition in fitness.conditions if condition.name == "risk")
    if not request.fitness.force:
        raise Refused(f"this is no work for a loop: {reason}; --explain says more, --force runs it all the same")
    remarks.append(f"run all the same, as --force says: {reason}")
