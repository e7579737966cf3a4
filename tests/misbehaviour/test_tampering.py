"""Files that only the user and the harness change: settings, hooks, skills, the prompt. They are put back and told."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ralphproof.engine.records import Saved
from tests.misbehaviour.agents import case, facts, prompt
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded, there
from tests.misbehaviour.protected_project import (
    ASKED,
    CHECK,
    checked,
    files,
    guarded,
    meddled,
    notices,
    protect,
    sh,
    sprung,
    touched,
    turns,
    watched_copies,
)
from tests.misbehaviour.test_crashes import ABOVE_AGENT, ABOVE_KEEPER
from tests.ralph import Ended, Ralph, done, say, until, write

SETTINGS, LOCAL = ".ralph/settings.json", ".ralph/settings.local.json"
RULE = "the settings of ralph"
WEAK = '{"guardrails": [{"command": "true"}], "maximumIterations": 50, "limits": {"maxCostUsd": 10}}'
CANARY = "#!/bin/sh\ntouch ../canary\n"
KEPT_BY_GIT = {"command": "git", "tasks": ["commit"]}
SKILL = "---\nname: s\ndescription: d\n---\n{prompt}\n"


@pytest.mark.parametrize("path", [case("RH-05", SETTINGS), case("RH-06", LOCAL)])
def test_settings_that_an_agent_writes_are_put_back_and_never_count(ralph: Ralph, path: str) -> None:
    """RH-05, RH-06: it makes its check one that always passes, in every turn."""
    ralph.settings(guardrails=[{"command": "test -f never"}])
    before = files(ralph, ".ralph")
    agent = ralph.script([write(**{path: WEAK}), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "-m", "2")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], ralph.outcome()["iterations"]) == (1, "MAX_ITERATIONS", 2), ended
    assert files(ralph, SETTINGS, LOCAL) == before
    assert ended.err.count(f"{path} ({RULE}); put back") == 2, "once for each turn"
    assert "during the run" not in ended.err, "and not in two ways"
    assert f"leave them alone:\n- {path} ({RULE})" in prompt(ralph, 2)
    assert "- " + path not in prompt(ralph, 1)


@pytest.mark.parametrize("path", [case("RH-05", SETTINGS), case("RH-06", LOCAL)])
def test_good_work_of_an_agent_that_wrote_settings_passes_a_turn_later(ralph: Ralph, path: str) -> None:
    """RH-05, RH-06: green checks and a claim are not enough where a rule was broken."""
    ralph.settings(maximumIterations=4)
    ended = meddled(ralph, f"echo '{WEAK}' > {path}; echo 1 > work")
    assert (ended.code, ralph.outcome()["iterations"], checked(ralph)) == (0, 2, 2), ended
    assert touched(ralph) == [[(path, RULE)], []]
    assert recorded(ralph, Saved)[0].change.paths == ("work",), "what was put back is no work"
    status = ralph("status")
    assert f"iteration 1: not the agent's to change: {path} ({RULE}); put back" in status.out
    told = [one["findings"] for one in ralph("status", "--json").json["timeline"]]
    assert [[one["path"] for one in each] for each in told] == [[path], []]
    assert (ralph.run_folder() / "agent_001.patch").read_text().count("maximumIterations") >= 1, "the attempt is kept"
    assert sprung(ralph)[0].patch.endswith("agent_001.patch")


OWN = {  # what is there before, what an agent makes of it, and the rule that the next prompt names
    ".claude/settings.json": ("{}", '{"hooks": {}}', "the settings of Claude Code"),
    ".claude/settings.local.json": (None, "{}", "the settings of Claude Code"),
    ".claude/hooks/x": ("#!/bin/sh\n", CANARY, "the hooks of Claude Code"),
    ".claude/skills/s/SKILL.md": (SKILL, None, "skills"),
    ".git/hooks/pre-commit": (None, CANARY, "the hooks of git"),
    ".git/hooks/pre-push": ("#!/bin/sh\n", CANARY, "the hooks of git"),
    ".mcp.json": (None, "{}", "the servers that offer tools"),
    ".ralph/skills/s/SKILL.md": (None, SKILL, "skills"),
}
OPEN = ("CLAUDE.md", "AGENTS.md", "src/CLAUDE.md", ".claude/rules/style.md", ".claude/commands/c.md", ".git/info/mine")


@pytest.mark.parametrize("in_git", [True, False])
def test_files_that_steer_agents_and_git_are_put_back_and_notes_stay(ralph: Ralph, in_git: bool) -> None:
    """RH-05, RH-32"""
    own = {path: texts for path, texts in OWN.items() if in_git or not path.startswith(".git/")}
    guarded(ralph, in_git=in_git)
    ralph.settings(**({"scm": KEPT_BY_GIT} if in_git else {}))
    ralph.write({path: before for path, (before, _, _) in own.items() if before is not None})
    before = files(ralph, *own)
    made = write(**{path: after for path, (_, after, _) in own.items() if after is not None})
    gone = {"delete": [path for path, (_, after, _) in own.items() if after is None]}
    runs = {"chmod": {path: "755" for path in own if "hooks/" in path}}
    notes = write(**dict.fromkeys(OPEN, "learned"))
    agent = ralph.script([made, gone, runs, notes, done()], [done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, "-m", "3")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    assert files(ralph, *own) == before
    assert all((ralph.root / path).read_text() == "learned" for path in OPEN)
    assert touched(ralph) == [sorted((path, rule) for path, (_, _, rule) in own.items()), []]
    assert all(f"\n- {path} ({rule})" in prompt(ralph, 2) for path, (_, _, rule) in own.items())
    assert prompt(ralph, 2).startswith("make it so")
    assert not (ralph.folder / "canary").exists()
    assert not in_git or "CLAUDE.md" in ralph.git("show", "--format=", "--name-only"), "committed, by no foreign hook"


EXECUTING = {
    "core.hooksPath": "evil", "core.fsmonitor": "touch ../canary", "core.sshCommand": "touch ../canary;",
    "core.editor": "touch ../canary;", "core.pager": "touch ../canary;", "diff.external": "touch ../canary;",
    "filter.evil.clean": "touch ../canary; cat", "alias.st": "!touch ../canary", "include.path": "../evil/config",
    "credential.helper": "!touch ../canary", "gpg.program": "evil/pre-commit", "pager.log": "touch ../canary;",
}  # fmt: skip


def test_settings_of_git_that_execute_something_are_put_back_and_others_stay(ralph: Ralph) -> None:
    """RH-32: neither our commit nor the user's own git runs what the agent left."""
    guarded(ralph, "git config core.editor mine; git config --add remote.origin.url ../origin.git")
    ralph.settings(scm=KEPT_BY_GIT)
    evil = [{"git": ["config", key, text]} for key, text in EXECUTING.items()]
    evil_files = {"evil/pre-commit": CANARY, "evil/config": "[user]\n\tname = evil\n"}
    made = [write(**evil_files, __gitattributes="* filter=evil"), {"chmod": {"evil/pre-commit": "755"}}]
    steps = [*made, *evil, {"git": ["config", "pull.rebase", "true"]}, done()]
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script(steps, [done()]), "--check", CHECK, "-m", "3")
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 2), ended
    rules = [(".git/config", f"{key.lower()} executes a program") for key in sorted(EXECUTING, key=str.lower)]
    assert touched(ralph) == [rules, []]
    assert all(key.lower() in ended.err for key in list(EXECUTING)[:3])
    assert all(f"({rule})" in prompt(ralph, 2) for _, rule in rules)
    config = ralph.git("config", "--local", "--list")
    assert "core.editor=mine\n" in config
    assert "pull.rebase=true\n" in config
    assert "canary" not in config
    assert "evil" not in config
    ralph.git("status")
    ralph.git("log", "-p")
    assert ralph.git("log", "--format=%an").split() == ["user", "user"], "one commit, by the user"
    assert not (ralph.folder / "canary").exists()


def test_the_users_own_hooks_go_on_to_run(ralph: Ralph) -> None:
    """RH-32: a path for hooks that was set at the start is the user's."""
    guarded(ralph, "mkdir ../hooks; printf '#!/bin/sh\\ntouch ../mine\\n' > ../hooks/pre-commit;"
                   "chmod +x ../hooks/pre-commit; git config core.hooksPath ../hooks")  # fmt: skip
    ralph.settings(scm=KEPT_BY_GIT)
    evil = [write(**{"evil/pre-commit": CANARY}), sh("chmod +x evil/*; git config core.hooksPath evil"), done()]
    ended = ralph("run", "-p", "make it so", "--agent", ralph.script(evil, [done()]), "--check", CHECK, "-m", "3")
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert ralph.git("config", "core.hooksPath") == "../hooks\n"
    assert (ralph.folder / "mine").exists()
    assert not (ralph.folder / "canary").exists()


def test_variables_that_an_agent_writes_to_env_are_never_loaded(ralph: Ralph) -> None:
    """RH-39: neither by this run nor by the next."""
    guarded(ralph)
    names = ("RALPH_MAX_COST", "RALPH__LIMITS__MAX_COST_USD", "RALPH__MAXIMUM_ITERATIONS", "RALPH__COMPLETION_RESPONSE")
    text = "".join(f"{name}=9\n" for name in names) + "RALPH_STATE_DIR=/nowhere\nexport RALPH_CONFIG_DIR=/nowhere\n"
    steps = [ASKED, write(**{".env": text, ".envrc": text, "sub/.env": text}), say("written")]
    agent, check = ralph.script(steps), "env | grep -c '=9$' && exit 0; exit 1"
    for _ in range(2):
        ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", "2", "--max-cost-usd", "1",
                      "--allow-unknown-cost")  # fmt: skip
        hold(ralph, ended)
        assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
        assert (facts(ralph)["maximumIterations"], facts(ralph)["maxCostUsd"]) == (2, 1.0)
    assert len(ralph.runs()) == 2
    assert turns(ralph) == 4
    assert (ralph.root / ".env").read_text() == text, "it is the agent's to write, where nobody protects it"


def killed(ralph: Ralph, script: str, *flags: str) -> str:
    """A run whose agent does this and then kills the harness; its id, once its turn is over."""
    agent = ralph.script([sh(script), sh(f"{ABOVE_KEEPER}; kill -9 $2"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "true", *flags)
    assert ended.code == -signal.SIGKILL, ended
    until(lambda: not there(ralph.folder), "the keeper ends the turn")
    return ralph.runs()[0].id


def again(ralph: Ralph) -> Ended:
    return ralph("run", "-p", "make it so", "--agent", ralph.script([ASKED, done()], name="next"))


@pytest.mark.parametrize(
    "path",
    [
        case("RH-05-killed", SETTINGS),
        case("RH-06-killed", LOCAL),
        case("RH-05-skill", ".ralph/skills/s/SKILL.md"),
    ],
)
def test_an_agent_that_writes_settings_and_kills_the_harness_gains_nothing(ralph: Ralph, path: str) -> None:
    """RH-05, RH-06, RH-37: the next run closes the dead one, and reads what was put back."""
    guarded(ralph)
    ralph.settings(guardrails=[{"command": CHECK}], maximumIterations=3)
    before = files(ralph, ".ralph")
    dead = killed(ralph, f"mkdir -p $(dirname {path}); echo '{WEAK}' > {path}")
    assert files(ralph, path) == {path: WEAK + "\n"}
    ended = again(ralph)
    hold(ralph, ended)
    assert (ended.code, turns(ralph)) == (0, 1), ended
    (told,) = [notice for notice in notices(ralph) if f"run {dead} crashed and is closed" in notice]
    assert told.endswith(f"{path} had been changed by its agent, and was put back")
    assert files(ralph, SETTINGS, path) == {name: text for name, text in before.items() if name in (SETTINGS, path)}
    assert (*facts(ralph)["checks"], facts(ralph)["maximumIterations"]) == (CHECK, 3)
    assert not watched_copies(ralph)


def test_what_a_killed_runs_agent_touched_is_put_back_and_told_by_the_next(ralph: Ralph) -> None:
    """RH-37, RH-31: protected files too, with the way to branches that it deleted."""
    guarded(ralph, "git branch side; echo mine > new")
    tip = ralph.git("rev-parse", "side").strip()
    dead = killed(ralph, "echo STOLEN >> .env; git branch -qD side; rm new", *protect())
    ended = again(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (ralph.root / ".env").read_text() == "SECRET=1\n"
    (told,) = [notice for notice in notices(ralph) if f"run {dead} crashed and is closed" in notice]
    assert "put back, because no agent may change it: .env" in told
    patch = ralph.root / ".ralph" / "runs" / dead / "agent_001.patch"
    assert f"kept in {patch.relative_to(ralph.root)}" in told
    assert "+STOLEN" in patch.read_text()
    assert f"git branch side {tip[:12]}" in told
    assert f"git restore --source=refs/ralph/{dead}/0 -- new" in told
    assert not watched_copies(ralph)


def test_a_harness_that_dies_while_it_checks_leaves_no_copies_behind(ralph: Ralph) -> None:
    """RH-37: what was watched may hold secrets."""
    guarded(ralph)
    check = f"test -f work || exit 1; {ABOVE_AGENT}; kill -9 $2"  # a keeper is above a check, the harness above that
    agent = ralph.script([write(work="1"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, *protect())
    assert ended.code == -signal.SIGKILL, ended
    until(lambda: not there(ralph.folder), "the keeper ends the check")
    assert watched_copies(ralph)
    ended = again(ralph)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert not watched_copies(ralph)
    assert not [path for path in Path(ralph.state_dir).rglob("pack-*") if b"SECRET" in path.read_bytes()]


def test_a_list_of_protected_paths_that_an_agent_empties_holds(ralph: Ralph) -> None:
    """RH-05: in the turn after, too."""
    ralph.settings(protectedPaths=["src/"])
    ended = meddled(ralph, f"echo '{{}}' > {SETTINGS}", then=sh("mkdir src; echo x > src/x"))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "PROHIBITED_PATH"), ended
    assert touched(ralph) == [[(SETTINGS, RULE)], [("src/x", "protectedPaths: src/")]]
    assert files(ralph, "src") == {}
