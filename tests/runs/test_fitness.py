"""Which work may be left to a loop, and why."""

from __future__ import annotations

import pytest

from ralphproof.runs.preflight import BUG, FEATURE, OTHER, REFACTOR, Fitness, WorkIntent, assess_fitness
from ralphproof.settings.skills import Skill

GOOD = "Fix the crash in parse_line() when the line is empty"
READY = Skill("tdd", "", "COMPLETE", ("npm test",), ("All pass",), "## Self-Correction\n\nTry again.")


def of(prompt: str, type: str = "", risk: str = "", protected: tuple[str, ...] = ()) -> Fitness:
    return assess_fitness(WorkIntent(prompt, type, risk, ("make test",), protected), None)


def met(found: Fitness) -> dict[str, bool]:
    return {condition.name: condition.met for condition in found.conditions}


def reason(found: Fitness, name: str) -> str:
    return next(condition.reason for condition in found.conditions if condition.name == name)


def test_all_four_conditions_in_order() -> None:
    found = assess_fitness(WorkIntent(GOOD, checks=("make test",)), READY)
    assert [condition.name for condition in found.conditions] == ["verification", "scope", "risk", "skill"]
    assert (found.fit, found.risky, found.type, found.risk) == (True, False, BUG, "low")


@pytest.mark.parametrize(
    ("intent", "skill", "unmet"),
    [
        (WorkIntent(GOOD), None, "verification"),
        (WorkIntent("improve architecture", checks=("make",)), None, "scope"),
        (WorkIntent(GOOD, risk="high", checks=("make",)), None, "risk"),
        (WorkIntent(GOOD, checks=("make",)), Skill("x"), "skill"),
    ],
)
def test_one_condition_that_is_not_met_suffices(intent: WorkIntent, skill: Skill | None, unmet: str) -> None:
    found = assess_fitness(intent, skill)
    assert [name for name, held in met(found).items() if not held] == [unmet]
    assert not found.fit


# Verification and skill


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        (("make test",), "decided by make test"),
        (("a", "b", "c"), "decided by a, b, c"),
        (("a", "b", "c", "d", "e"), "decided by a, b, c and 2 more"),
    ],
)
def test_the_commands_that_decide_are_named(checks: tuple[str, ...], told: str) -> None:
    assert reason(assess_fitness(WorkIntent(GOOD, checks=checks), None), "verification") == told


def test_without_a_skill_the_prompt_is_run_as_it_is() -> None:
    assert reason(of(GOOD), "skill") == "no skill: the loop runs the prompt as it is"


def test_a_skill_that_is_not_ready_says_what_it_lacks() -> None:
    told = reason(assess_fitness(WorkIntent(GOOD, checks=("make",)), Skill("mine", promise="OK")), "skill")
    assert told.startswith("mine is not ready for a loop: no success criteria")


def test_a_skill_without_verification_makes_do_with_the_checks_that_there_are() -> None:
    bare = Skill("tdd", "", "COMPLETE", (), READY.criteria, READY.body)
    assert met(assess_fitness(WorkIntent(GOOD, checks=("make",)), bare))["skill"]
    assert not met(assess_fitness(WorkIntent(GOOD), bare))["skill"]


# Type


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        (GOOD, BUG),
        ("Make the tests pass", BUG),
        ("The importer crashes on empty files", BUG),
        ("There is a regression in sorting", BUG),
        ("Repair the flaky test of the clock", BUG),
        ("FIX the off-by-one in Range", BUG),
        ("Refactor the reader into two functions", REFACTOR),
        ("Rename Foo to Bar", REFACTOR),
        ("Extract a function from main()", REFACTOR),
        ("Clean up src/lib", REFACTOR),
        ("cleanup of src/lib", REFACTOR),
        ("Remove all lint warnings", REFACTOR),
        ("Add --json to status", FEATURE),
        ("Implement the protocol of docs/wire.md", FEATURE),
        ("Support Windows paths", FEATURE),
        ("Create a parser for TOML", FEATURE),
        ("Let users sort the table", FEATURE),
        ("Implement the design in docs/design.md", FEATURE),
        ("Design a new start page", OTHER),
        ("Improve the architecture", OTHER),
        ("UX of the settings dialog", OTHER),
        ("Investigate the slow production server", OTHER),
        ("Investigate and fix the slow start", BUG),
        ("prefix the address", OTHER),
        ("Füge eine Funktion hinzu", OTHER),
        ("", OTHER),
    ],
)
def test_the_type_is_guessed_from_the_first_word_that_tells_it(prompt: str, kind: str) -> None:
    found = of(prompt)
    assert found.type == kind
    assert "--type" in reason(found, "scope")
    assert not (kind == OTHER and met(found)["scope"])


def test_a_guess_names_its_word() -> None:
    assert reason(of(GOOD), "scope") == 'bug, guessed from "fix"; --type says it for sure'


@pytest.mark.parametrize(("said", "held"), [("Refactor", True), (" bug ", True), ("other", False), ("poem", False)])
def test_a_type_that_was_said_is_not_guessed(said: str, held: bool) -> None:
    found = of("Design a parser", type=said)
    assert (found.type, met(found)["scope"]) == (said.strip().lower(), held)
    assert "guessed" not in reason(found, "scope")


# Scope


@pytest.mark.parametrize(
    "prompt",
    ["", "   ", "improve architecture", "make it better", "Fix bugs", "fix all the errors", "Refactor the code",
     "add new features", "Let's make it great!", "improve performance", "implement it", "Clean up everything, please"],
)  # fmt: skip
def test_a_prompt_that_names_nothing_is_not_specific(prompt: str) -> None:
    found = of(prompt, type="bug")
    assert not met(found)["scope"]
    assert "names nothing to work on" in reason(found, "scope")


@pytest.mark.parametrize(
    "prompt",
    [GOOD, "make the tests pass", "fix the lint errors", "improve the performance of parse()", "implement TOML",
     "Behebe den Absturz", "修复解析器", "make the build pass", "refactor main.py"],
)  # fmt: skip
def test_a_prompt_that_names_something_is_specific(prompt: str) -> None:
    assert met(of(prompt, type="bug"))["scope"]


# Risk


@pytest.mark.parametrize(
    ("prompt", "risk", "words"),
    [
        ("Fix the login form", "high", ["login"]),
        ("Fix authentication", "high", ["authentication"]),
        ("Change src/auth/token.py", "high", ["auth"]),
        ("Rename user_auth", "high", ["auth"]),
        ("Rename the AuthService", "high", ["auth"]),
        ("Rename HTTPAuthCheck", "high", ["auth"]),
        ("Let OAuth2 refresh", "high", ["auth2"]),
        ("Let oauth refresh", "high", ["oauth"]),
        ("Reset PASSWORDS weekly", "high", ["passwords"]),
        ("Add a Payment method", "high", ["payment"]),
        ("Fix billing of teams", "high", ["billing"]),
        ("Write a migration for users", "high", ["migration"]),
        ("Migrate the old schema", "high", ["migrate the old schema"]),
        ("Fix the deployment script", "high", ["deployment"]),
        ("Rotate secrets and credentials", "high", ["secrets", "credentials"]),
        ("Delete all old data", "high", ["delete all old data"]),
        ("Fix it in production", "high", ["production"]),
        ("Deploy it to production", "critical", ["deploy", "production"]),
        ("Fix the prod database migration", "critical", ["prod", "migration"]),
        ("Credit the author and the coauthors", "low", []),
        ("Write production-ready code for parse()", "low", []),
        ("Migrate the tests to pytest", "low", []),
        ("Fill the dropdown with data", "low", []),
        ("Log into a file", "low", []),
        (GOOD, "low", []),
    ],
)
def test_risk_is_guessed_from_whole_words(prompt: str, risk: str, words: list[str]) -> None:
    found = of(prompt)
    assert (found.risk, found.risky) == (risk, risk != "low")
    assert met(found)["risk"] is (risk == "low")
    told = reason(found, "risk")
    assert told.endswith("--risk says it for sure")
    assert all(f'"{word}"' in told for word in words)


@pytest.mark.parametrize(
    ("said", "held"), [("low", True), ("Medium", True), ("high", False), ("critical", False), ("tiny", False)]
)
def test_a_risk_that_was_said_is_not_guessed(said: str, held: bool) -> None:
    found = of("Fix the login form", risk=said)
    assert (found.risk, met(found)["risk"], found.risky) == (said.lower(), held, not held)
    assert "guessed" not in reason(found, "risk")


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ("Fix ./lib/keys/a.py", True),
        ("Fix lib/keys.", True),
        ("Fix `lib/keys/`", True),
        ("Fix lib/keyserver.py", False),
        ("Fix lib/", False),
        ("Fix .env", True),
        ("Fix .environment", False),
        ("Fix gen/x", True),
    ],
)
def test_work_on_what_is_protected_is_risky(prompt: str, named: bool) -> None:
    found = of(prompt, protected=("lib/keys/", ".env", "gen/**", "**/*.pem"))
    assert found.risky is named
    assert ("ends the run" in reason(found, "risk")) is named


def test_what_is_protected_is_told_even_where_the_risk_was_said() -> None:
    found = of("Fix lib/keys", risk="low", protected=("lib/keys/",))
    assert not found.risky
    assert "the prompt names lib/keys/" in reason(found, "risk")


def test_a_prompt_of_any_size_is_judged_in_time() -> None:
    for part in ("investigate a ", "delete the ", ". ", "aA", "a/", "\n "):
        assert of(part * 20_000).type
