"""What `ralph run` says and does at its beginning."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ralphproof.engine.records import RunBegan
from tests.cli.missing_packages import without
from tests.ralph import Ended, Ralph, Step, done, say, write


def in_a_repository(ralph: Ralph) -> None:
    """The project becomes a folder of a repository that begins above it."""
    ralph.write({"file": "x\n"})
    ralph.git("init", "-q", "..")


def test_a_project_that_is_a_folder_of_a_repository_is_told_so(ralph: Ralph) -> None:
    in_a_repository(ralph)
    ralph.settings(agent={"command": ralph.script([write(file="y"), done()])})
    told = ralph("run", "-p", "x")
    assert told.code == 0
    assert f"note: {ralph.root} is a folder of the repository at {ralph.folder}: " in told.err
    assert "not under refs" in told.err


def test_such_a_project_cannot_have_its_work_committed_by_git(ralph: Ralph) -> None:
    in_a_repository(ralph)
    agent = ralph.script([write(file="y"), done()])
    ralph.settings(agent={"command": agent}, scm={"command": "git", "tasks": ["commit"]})
    told = ralph("run", "-p", "x")
    assert (told.code, told.out) == (2, "")
    assert f"ralph: scm git: {ralph.root} is a folder of the repository at {ralph.folder}: " in told.err
    assert ralph.runs() == ()


@pytest.mark.parametrize("git", [True, False])
def test_other_projects_are_told_nothing_of_the_kind(ralph: Ralph, git: bool) -> None:
    if git:
        ralph.commit()
    assert "a folder of the repository" not in ralph("run", "-p", "x", "--agent", ralph.script([done()])).err


def test_the_runs_of_a_project_that_becomes_a_repository_stay_its_own(ralph: Ralph) -> None:
    ralph.write({"file": "x\n"})
    assert ralph("run", "-p", "x", "--agent", ralph.script([write(file="y\n"), done()])).code == 0
    ralph.commit()
    assert ralph("status", "--json").json["state"] == "ended"
    assert "+y" in ralph("diff").out
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    assert len(ralph.runs()) == 2


RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "session_id": "s", "total_cost_usd": 0.25,
    "result": "<response>DONE</response>", "usage": {"input_tokens": 3, "output_tokens": 4},
}  # fmt: skip


def install_claude(ralph: Ralph, version: str = "") -> None:
    """A program that speaks as Claude Code does, and notes its arguments and its keys."""
    script = f"""cat > /dev/null
echo "$@" > {ralph.folder}/arguments
echo "$ANTHROPIC_API_KEY" > {ralph.folder}/key
echo '{json.dumps(RESULT)}'"""
    if not version:
        ralph.program("claude", script)
        return
    folder = ralph.folder / "node_modules/claude-code"
    folder.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps({"version": version, "bin": {"claude": "claude"}}))
    ralph.program("claude", script).rename(folder / "claude")
    (ralph.bin / "claude").symlink_to(folder / "claude")


def facts(ralph: Ralph) -> dict[str, Any]:
    (began,) = (record for record in ralph.records() if isinstance(record, RunBegan))
    return began.facts


def test_a_known_agent_is_started_in_its_guarded_mode_and_its_version_is_recorded(ralph: Ralph) -> None:
    install_claude(ralph, "2.1.325")
    told = ralph(
        "run", "-p", "x", "--agent", "claude --effort high", "--model", "opus", "--max-cost-usd", "1", "--no-check"
    )
    assert (told.code, "note: " in told.err) == (0, False)
    assert (ralph.folder / "arguments").read_text() == (
        "-p --effort high --permission-mode acceptEdits --model opus --output-format stream-json --verbose\n"
    )
    said = facts(ralph)
    assert (said["agent"], said["agentVersion"]) == ("claude", "2.1.325")
    assert (said["permissions"], said["fallbacks"]) == ("guarded (acceptEdits)", ())


def test_no_sandbox_takes_the_guard_off_and_says_so(ralph: Ralph) -> None:
    install_claude(ralph)
    told = ralph("run", "-p", "x", "--agent", "claude", "--no-sandbox")
    assert told.code == 0
    assert "agent claude runs as --no-sandbox says: the command guard refuses accidents, but is no boundary" in told.err
    assert "--dangerously-skip-permissions" in (ralph.folder / "arguments").read_text()
    assert (facts(ralph)["permissions"], facts(ralph)["agentVersion"]) == ("unguarded", None)


def test_a_judge_without_tools_is_no_unguarded_agent(ralph: Ralph) -> None:
    ralph.program("claude", "exit 1")
    told = ralph("run", "-p", "x", "--agent", "claude", "--check", "true", "--judge", "it is neat", "--dry-run")
    assert told.code == 0, told
    assert "--no-sandbox" not in told.err + told.out
    direct = ralph("run", "-p", "x", "--agent", "claude", "--judge", "it is neat", "--no-sandbox", "--dry-run")
    assert direct.err.count("agent claude runs as --no-sandbox says") == 1


@pytest.mark.parametrize("where", ["usual", "fallback"])
def test_an_agent_without_a_guard_needs_the_users_word(ralph: Ralph, where: str) -> None:
    ralph.program("pi", "touch started")
    flags = ("--agent", "pi") if where == "usual" else ("--agent", ralph.script([done()]))
    if where == "fallback":
        ralph.settings(agent={"fallbacks": ["pi"]})
    told = ralph("run", "-p", "x", *flags)
    assert (told.code, told.out, ralph.runs()) == (2, "", ())
    assert "agent pi has no mode that asks nothing and still limits what it does; --sandbox limits it" in told.err
    assert len(told.err.splitlines()) == 1
    assert ralph("run", "-p", "x", *flags, "--no-sandbox", "--dry-run").code == 0
    assert not (ralph.root / "started").exists()


def test_an_agent_without_a_guard_is_never_taken_unasked(ralph: Ralph) -> None:
    for name in ("amp", "pi"):
        ralph.program(name, "touch started")
    told = ralph("run", "-p", "x", "--no-sandbox", env={"PATH": f"{ralph.bin}:/usr/bin:/bin"})
    assert (told.code, (ralph.root / "started").exists()) == (2, False)
    assert "--agent" in told.err


def test_a_plain_command_runs_as_given_and_its_unknown_cost_is_told(ralph: Ralph) -> None:
    ralph.program("mine", "echo $# > ../count; echo '<response>DONE</response>'")
    told = ralph("run", "-p", "x", "--agent", "mine", "--no-sandbox")
    assert told.code == 0
    assert "note: agent mine cannot report its cost, so caps.costUsd (10) cannot be held" in told.err
    assert "guard" not in told.err
    assert (ralph.folder / "count").read_text() == "0\n"
    assert facts(ralph)["permissions"] == "as given"
    assert "caps" not in ralph("run", "-p", "x", "--agent", "mine", "--allow-unknown-cost").err


def test_every_fallback_must_be_there_before_anything_starts(ralph: Ralph) -> None:
    ralph.settings(agent={"command": ralph.script([done()]), "fallbacks": [ralph.script([done()]), "not-there -x"]})
    told = ralph("run", "-p", "x")
    assert (told.code, told.out, ralph.runs()) == (2, "", ())
    assert told.err.startswith("ralph: agent.fallbacks[1]: agent not-there was not found on PATH")


def test_fallbacks_are_recorded(ralph: Ralph) -> None:
    install_claude(ralph)
    ralph.settings(agent={"command": ralph.script([done()]), "fallbacks": ["claude --model haiku"]})
    assert ralph("run", "-p", "x").code == 0
    assert facts(ralph)["fallbacks"] == (
        {"agent": "claude", "agentVersion": None, "permissions": "guarded (acceptEdits)"},
    )


def test_a_cost_limit_must_be_held_by_every_agent(ralph: Ralph) -> None:
    ralph.program("mine", "exit 1")
    ralph.settings(agent={"command": ralph.script([done()]), "fallbacks": ["mine"]})
    told = ralph("run", "-p", "x", "--max-cost-usd", "1")
    assert (told.code, ralph.runs()) == (2, ())
    assert "agent mine cannot report its cost, nor its tokens, so maxCostUsd could not be held" in told.err
    assert ralph("run", "-p", "x", "--max-cost-usd", "1", "--allow-unknown-cost").code == 0


@pytest.mark.parametrize(
    ("agent", "limits", "advice"),
    [
        ("mine", ["--max-cost-usd", "1"], ["--allow-unknown-cost"]),
        ("mine", ["--max-cost-usd", "1", "--max-tokens", "9"], ["--allow-unknown-cost"]),
        ("mine", ["--max-tokens", "9"], ["--allow-unknown-cost"]),
        ("copilot", ["--max-tokens", "9"], ["--allow-unknown-cost"]),
        ("amp --no-sandbox", ["--max-cost-usd", "1"], ["--max-tokens 9", "--allow-unknown-cost"]),
        ("codex --model house-model", ["--max-cost-usd", "1"], ["--max-tokens 9", "--allow-unknown-cost"]),
    ],
)
def test_what_is_advised_against_an_unknown_cost_helps(
    ralph: Ralph, agent: str, limits: list[str], advice: list[str]
) -> None:
    name, *flags = agent.split()
    ralph.program(name, "exit 1")
    argv = ["run", "-p", "x", "--preset", "wrapper", "-m", "2", "--agent", name, *flags, *limits, "--dry-run"]
    if "--max-cost-usd" not in limits:
        argv[3:5] = []
    told = ralph(*argv)
    assert told.code == 2, told
    for flag in advice:
        assert flag.split()[0] in told.err
        assert ralph(*argv, *flag.split()).code == 0, flag
    assert ("--max-tokens" in told.err) == ("--max-tokens 9" in advice)


def test_a_cost_limit_needs_the_price_of_the_model_where_tokens_alone_are_reported(ralph: Ralph) -> None:
    ralph.program("codex", "exit 1")
    argv = ("run", "-p", "x", "--agent", "codex", "--model", "house-model-3", "--max-cost-usd", "1", "--dry-run")
    told = ralph(*argv)
    assert told.code == 2
    assert "the price of its model is not known" in told.err
    (ralph.folder / "config").mkdir()
    prices = {"prices": {"house-model": {"input": 1, "output": 2}}}
    (ralph.folder / "config/settings.json").write_text(json.dumps(prices))
    assert ralph(*argv).code == 0


def test_a_stray_key_is_kept_from_the_agent(ralph: Ralph) -> None:
    install_claude(ralph)
    ralph.settings(agent={"command": "claude", "env": {"ANTHROPIC_API_KEY": None}})
    stray = {"ANTHROPIC_API_KEY": "sk-ant-stray-key-of-somebody"}
    assert ralph("run", "-p", "x", env=stray).code == 0
    assert (ralph.folder / "key").read_text() == "\n"


def test_what_is_set_for_the_agent_is_not_set_for_checks(ralph: Ralph) -> None:
    look = "echo ${KEY-none} ${ADDED-none}"
    ralph.program("mine", f"{look} > ../agent; echo '<response>DONE</response>'")
    ralph.settings(agent={"command": "mine", "env": {"KEY": None, "ADDED": "yes"}})
    assert ralph("run", "-p", "x", "--check", f"{look} > ../check", env={"KEY": "outer"}).code == 0
    assert (ralph.folder / "agent").read_text() == "none yes\n"
    assert (ralph.folder / "check").read_text() == "outer none\n"


UNNAMED = (
    "agent codex: its model is not named, so its cost may stay unknown and caps.costUsd (10) could not be held; "
    "name one with --model"
)


@pytest.mark.parametrize(
    ("agents", "flags", "warned"),
    [
        (["codex"], (), True), (["codex"], ("--model", "gpt-5"), False), (["codex -m gpt-5"], (), False),
        (["codex"], ("--allow-unknown-cost",), False), (["claude"], (), False), (["claude", "codex"], (), True),
        (["claude", "codex"], ("--model", "opus"), True), (["claude", "codex -m gpt-5"], (), False),
    ],
)  # fmt: skip
def test_an_agent_whose_tokens_have_no_model_yet_may_break_the_cap(
    ralph: Ralph, agents: list[str], flags: tuple[str, ...], warned: bool
) -> None:
    for name in ("codex", "claude"):
        ralph.program(name, "exit 1")
    ralph.settings(agent={"command": agents[0], "fallbacks": agents[1:]})
    told = ralph("run", "-p", "x", "--dry-run", *flags)
    assert (told.code, UNNAMED in told.err.splitlines()) == (0, warned)


@pytest.mark.parametrize(
    ("command", "flags", "decides"),
    [
        ("claude --effort high --permission-mode bypassPermissions", [], "--permission-mode bypassPermissions"),
        ("claude", ["--dangerously-skip-permissions", "--effort=low"], "--dangerously-skip-permissions"),
        ("codex -c sandbox_mode=danger-full-access -m gpt-5", [], "sandbox_mode=danger-full-access"),
        ("claude --effort high", [], ""),
    ],
)  # fmt: skip
def test_flags_that_take_a_known_agents_guard_off_are_told(
    ralph: Ralph, command: str, flags: list[str], decides: str
) -> None:
    for name in ("codex", "claude"):
        ralph.program(name, "exit 1")
    ralph.settings(agent={"command": command, "flags": flags})
    told = ralph("run", "-p", "x", "--dry-run", "--no-check")
    expected = [f"agent {command.split()[0]}: its own flags decide what it may do ({decides})"] if decides else []
    assert (told.code, told.err.splitlines()) == (0, expected)


def test_a_dry_run_lists_the_fallbacks(ralph: Ralph) -> None:
    for name in ("mine", "other", "third"):
        ralph.program(name, "touch started")
    dry = ("run", "-p", "x", "--dry-run")
    ralph.settings(agent={"command": "mine -x", "fallbacks": ["other 'a b'", "third {prompt}"]})
    shown = ralph(*dry).out
    agents = f"Agent: {ralph.bin}/mine -x\nFallbacks:\n  {ralph.bin}/other 'a b'\n  {ralph.bin}/third "
    assert agents in shown
    data = ralph(*dry, "--json").json
    assert data["argv"] == [f"{ralph.bin}/mine", "-x"]
    assert data["fallbacks"] == [[f"{ralph.bin}/other", "a b"], [f"{ralph.bin}/third", data["prompt"]]]
    ralph.settings(agent={"command": "mine -x"})
    assert "Fallbacks" not in ralph(*dry).out
    assert ralph(*dry, "--json").json["fallbacks"] == []
    assert not (ralph.root / "started").exists()


def test_without_msgspec_a_known_agent_is_refused_in_one_line_and_others_run(ralph: Ralph) -> None:
    install_claude(ralph)
    lacks = without(ralph, "msgspec")
    for flags in (["--agent", "claude"], []):
        told = ralph("run", "-p", "x", *flags, env=lacks)
        assert (told.code, told.out, ralph.runs()) == (2, "", ())
        assert told.err == (
            "ralph: agents 'claude' cannot be loaded: msgspec is not installed (pip install ralphproof)\n"
        )
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()]), env=lacks).code == 0


def verbose_lines(told: Ended) -> list[str]:
    return [line.removeprefix("[ralph] ") for line in told.err.splitlines() if line.startswith("[ralph] ")]


def test_verbose_tells_what_is_read_what_holds_and_what_is_done(ralph: Ralph) -> None:
    """SC-15: the prompt is cut, and secrets are masked."""
    agent = ralph.script([done("MAYBE")], [done()])
    ralph.settings(guardrails=[{"command": "test -n x", "name": "fine"}], agent={"env": {"API_TOKEN": "sesame-open"}})
    ralph.write({".ralph/settings.local.json": '{"maximumIterations": 3}'})
    told = ralph("run", "-V", "-p", "make it so\nsesame-open " + "x" * 300, "--agent", agent)
    lines = verbose_lines(told)
    assert told.code == 0
    assert lines[:2] == [
        "Loading settings from .ralph/settings.json", "Loading settings from .ralph/settings.local.json",
    ]  # fmt: skip
    merged = next(line for line in lines if line.startswith("Settings: "))
    assert '"maximumIterations": 3' in merged
    assert "sesame-open" not in told.err
    prompt = next(line for line in lines if line.startswith("Prompt (first 200 characters): "))
    assert prompt.partition(": ")[2].startswith("make it so *** xxx")
    assert len(prompt.partition(": ")[2]) == 200
    assert next(line for line in lines if line.startswith("Agent command: ")).endswith("script.json")
    assert "Iteration 1/3 starting" in lines
    asked, first = lines.index("Running guardrail: test -n x"), lines.index("Iteration 1/3 starting")
    assert asked < first < lines.index("Running guardrail: test -n x", first), "before the first iteration, and in it"
    exited = [line for line in lines if re.fullmatch(r"Guardrail exited with code 0 \(\d+\.\ds\)", line)]
    assert len(exited) == lines.count("Running guardrail: test -n x") == 3
    assert "Completion detection: looked for DONE, found MAYBE" in lines
    assert "Completion detection: looked for DONE, found DONE" in lines
    assert any(re.match(r"Agent ended \(exit, code 0, \d+\.\ds, ", line) for line in lines)
    assert any(line.startswith("Run ended: COMPLETED, verified by its checks: 2 iterations, ") for line in lines)


def test_verbose_names_the_files_even_where_they_cannot_be_used(ralph: Ralph) -> None:
    ralph.write({".ralph/settings.json": "{"})
    told = ralph("run", "-V", "-p", "x")
    assert told.code == 2
    assert verbose_lines(told) == ["Loading settings from .ralph/settings.json"]


def test_verbose_tells_of_a_commit_with_its_time(ralph: Ralph) -> None:
    ralph.commit()
    ralph.git("config", "user.name", "u")
    ralph.git("config", "user.email", "u@localhost")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    agent = ralph.script([write(file="x"), done()], message=[{"text": "Write it"}])
    told = ralph("run", "-V", "-p", "x", "--agent", agent, "--check", "true")
    assert told.code == 0
    scm = next(line for line in verbose_lines(told) if line.startswith("SCM: "))
    assert re.fullmatch(r"SCM: kept in commit .*: Write it \(message: \d+\.\ds\)", scm)


def test_without_verbose_nothing_of_the_kind_is_said(ralph: Ralph) -> None:
    assert verbose_lines(ralph("run", "-p", "x", "--agent", ralph.script([done()]))) == []


@pytest.mark.parametrize("flags", [["--json"], ["--json", "-V"]])
def test_events_are_streamed_to_programs_that_want_everything(ralph: Ralph, flags: list[str]) -> None:
    told = ralph("run", *flags, "-p", "x", "--agent", ralph.script([{"text": "hello"}, done()]))
    said = [line["data"]["text"] for line in told.lines if line["type"] == "agent.said"]
    assert said == (["hello", "<response>DONE</response>"] if "-V" in flags else [])


def test_a_letter_that_comes_in_two_pieces_is_shown_as_one(ralph: Ralph) -> None:
    ralph.program("slow", r"printf 'gr\303'; sleep 0.3; printf '\274n\n<response>DONE</response>\n\303'")
    told = ralph("run", "-p", "x", "--agent", "slow")
    assert told.code == 0
    assert "grün\n" in told.err
    assert told.err.count("\ufffd") == 1


def test_a_lock_that_was_never_given_back_is_told(ralph: Ralph) -> None:
    agent = ralph.script([done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    (lock,) = (ralph.state_dir / "locks").glob("*.lock")
    lock.write_text(json.dumps({"pid": 999_999_999, "run": "lost", "boot": "", "start": "1"}) + "\n")
    told = ralph("run", "-p", "x", "--agent", agent)
    assert told.code == 0
    assert "note: run lost (pid 999999999) did not end properly; its lock was taken over" in told.err


@pytest.mark.parametrize(
    ("steps", "flags", "reason", "green"),
    [
        ([[write(yes="1")]], ("-m", "1"), "MAX_ITERATIONS", True),
        ([[write(yes="1")], [{"delete": ["yes"]}]], ("-m", "2"), "MAX_ITERATIONS", False),
        ([[write(yes="1")]], ("--step",), "STEP", True),
        ([[write(yes="1")], [say("-")]], ("-m", "9"), "STALL", True),
    ],
)
def test_every_end_without_completion_says_whether_the_work_is_green(
    ralph: Ralph, steps: list[list[Step]], flags: tuple[str, ...], reason: str, green: bool
) -> None:
    ralph.settings(limits={"stallIterations": 1}, on={"afterIteration": "true"})
    checks = ("--check", "test -f yes", "--check", "date +%N > written")
    ended = ralph("run", "-p", "x", "--agent", ralph.script(*steps), *checks, *flags)
    outcome = ralph.outcome()
    assert (outcome["reason"], outcome["details"]["checksPassed"]) == (reason, green)
    assert ("the work is green" in ended.out) is green
