"""Whole loops by stories with real agents: the cycle, what refuses to let a turn end, and what agents may run."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from pathlib import Path

import pytest

from ralphproof.engine.outcome import Passed, Retry
from ralphproof.engine.records import Judged
from ralphproof.hooks.stop import HOST_REFUSAL_CAP, MAX_SAME_REASON
from tests.agents import isolated_network
from tests.agents.model_server import shown
from tests.misbehaviour.stories import (
    TASKS,
    US1,
    approved,
    course,
    fields,
    illegal,
    known,
    requested,
    story,
    subjects,
    submitted,
)
from tests.ralph import Ralph
from tests.real_agents.conftest import Json, Real, says
from tests.real_agents.story_cycle import (
    APPROVED,
    FEAT,
    FIX,
    LOOKS,
    MAKES,
    REQUESTED,
    STOPPED,
    VERIFY,
    commits,
    does,
    edits,
    loop,
    marker,
    project,
    request,
    results,
    tells,
)

pytestmark = pytest.mark.thorough

STEPS = {
    "implement": "## Step 3: Implement", "review": "## Step 3: Review with fresh eyes",
    "review-fix": "## Step 3: Address the review's feedback",
}  # fmt: skip
ITSELF = approved()  # what an implementer makes of its story who approves itself
CANNOT = "Implement iterations cannot set passes=true or approve stories. Only review iterations may approve."
RULES = (
    f"{CANNOT} Story US-001 had illegal transition: passes false → true.",
    f'{CANNOT} Story US-001 had illegal transition: reviewStatus null → "approved".',
    f"{CANNOT} Story US-001 had illegal transition: reviewCount 0 → 1.",
)
UNBOXED = {"RALPH__SANDBOX__BACKEND": "null"}  # then it is in its own guarded mode
IMPLEMENTS = does(MAKES, *tells(submitted()), commits(FEAT))


def test_a_story_is_implemented_reviewed_fixed_and_approved(ralph: Ralph) -> None:
    real = project(ralph, "claude", story())
    turns = [
        does(LOOKS, MAKES, *tells(submitted()), commits(FEAT)), says("It is made."),
        does(LOOKS, *tells(requested()), commits(REQUESTED)), says("It is too quiet."),
        does(LOOKS, *tells(submitted(count=1)), {"shell": "cp check.sh louder.txt"}, commits(FIX)), says("Louder now."),
        does(
            LOOKS, {"read": TASKS}, edits('"passes": false', '"passes": true'), edits("needs_review", "approved"),
            edits('"reviewCount": 1', '"reviewCount": 2'), commits(APPROVED),
        ),
        says("<promise>COMPLETE</promise>"),
    ]  # fmt: skip
    ended = loop(real, turns, "-m", "5", "--review-cap", "3")
    assert (ended.code, ralph.outcome()["proof"], ralph.outcome()["concerns"]) == (0, "verified", []), ended
    assert real.answered() == list(range(len(turns))), "no end was refused"
    modes = ["implement", "review", "review-fix", "review"]
    assert course(ralph) == [
        (US1, mode, verdict) for mode, verdict in zip(modes, ("Passed", "SentBack", "Passed", "Passed"), strict=True)
    ]
    assert fields(known(ralph)[US1]) == (True, "approved", 2)
    assert subjects(ralph) == ["a state of the project", FEAT, REQUESTED, FIX, APPROVED]
    assert ralph.git("status", "--porcelain") == ""
    for number, mode in enumerate(modes, 1):
        prompt = real.shown(2 * number - 2)
        assert f"iteration {number} of 5\n\nMode: **{mode}**\nStory: **{US1}**: Make {US1}\n" in prompt
        assert [step for step in STEPS.values() if step in prompt] == [STEPS[mode]]
        assert ("say it louder" in prompt) is (mode == "review-fix")
    seen_from_inside(real, modes)


def seen_from_inside(real: Real, modes: list[str]) -> None:
    """Every turn could see what is asked of it, and from the second one on how much goes into its context."""
    (run,) = real.ralph.runs()
    (used,) = real.printed()[-1]["modelUsage"].values()
    assert used["contextWindow"] >= 100_000
    found = [(None, 0), ("needs_review", 0), ("changes_requested", 1), ("needs_review", 1)]
    for number, (mode, (status, count)) in enumerate(zip(modes, found, strict=True), 1):
        seen = marker(real, 2 * number - 1)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", seen["timestamp"])
        wanted = {
            "pid": run.pid, "max_iterations": 5, "mode": "sandbox", "skipReview": False, "reviewCap": 3,
            "iterationMode": mode, "run": run.id, "iteration": number, "story": US1, "ralphDir": "ralph",
            "contextWindow": used["contextWindow"] if number > 1 else None,
        }  # fmt: skip
        assert {name: seen[name] for name in wanted} == wanted
        assert seen["preIterationSnapshot"] == {US1: {"passes": False, "reviewStatus": status, "reviewCount": count}}


def test_an_implementer_that_approves_itself_may_not_stop_before_that_is_mended(ralph: Ralph) -> None:
    real = project(ralph, "claude", story())
    turns = [
        does(MAKES, *tells(ITSELF), commits(FEAT)), says("<promise>COMPLETE</promise>"),
        does(*tells(submitted()), commits(FEAT)), says("It is for somebody else to approve."),
    ]  # fmt: skip
    loop(real, turns, "-m", "1")
    assert real.answered() == [0, 1, 2, 3]
    assert STOPPED["claude"] not in real.shown(1)
    assert STOPPED["claude"] + "\n".join(RULES) in real.shown(2)
    assert (course(ralph), illegal(ralph)) == ([(US1, "implement", "Passed")], [()])
    assert fields(known(ralph)[US1]) == (False, "needs_review", 0)


def test_without_hooks_the_loop_itself_puts_it_back(ralph: Ralph) -> None:
    real = project(ralph, "claude", story())
    wishes(ralph, disableAllHooks=True)
    turns = [does(MAKES, *tells(ITSELF), commits(FEAT)), says("<promise>COMPLETE</promise>")]
    loop(real, [*turns, does(*tells(submitted()), commits(FEAT)), says("I see.")], "-m", "2")
    assert real.answered() == [0, 1, 2, 3]
    assert not any(STOPPED["claude"] in shown(one) for one in isolated_network.requests_in(real.asked))
    assert course(ralph) == [(US1, "implement", "Retry"), (US1, "implement", "Passed")]
    assert illegal(ralph)[0][:3] == RULES
    for rule in RULES:
        assert rule in real.shown(2)
    assert '"reviewStatus": null' in results(real, 3)[0], "it found the stories as they were"
    assert fields(known(ralph)[US1]) == (False, "needs_review", 0)


def wishes(ralph: Ralph, **settings: object) -> Path:
    """Settings of the user's own, in their home."""
    path = ralph.home / ".claude" / "settings.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings), encoding="utf-8")
    return path


def test_at_the_cap_the_harness_approves_with_concerns(ralph: Ralph) -> None:
    real = project(ralph, "claude", submitted(), done__txt="x\n")
    ended = loop(real, [does(*tells(requested()), commits(REQUESTED)), says("Too quiet.")], "--review-cap", "1")
    assert ended.code == 0, ended
    assert real.answered() == [0, 1]
    assert "`reviewCount` has reached 1" in real.shown(0)
    one = known(ralph)[US1]
    assert (fields(one), one["reviewFeedback"]) == ((True, "approved", 1), "[AUTO-APPROVED AT CAP] say it louder")
    (concern,) = ralph.outcome()["concerns"]
    assert "say it louder" in concern
    assert subjects(ralph)[:2] == ["a state of the project", REQUESTED]
    assert ralph.git("status", "--porcelain") == "", "what the harness wrote is committed too"


def test_without_reviews_a_story_is_done_when_its_checks_pass(ralph: Ralph) -> None:
    real = project(ralph, "claude", story())
    done = story(passes=True, notes="made")
    turns = [does(LOOKS, MAKES, *tells(done), commits(FEAT)), says("<promise>COMPLETE</promise>")]
    ended = loop(real, turns, "--skip-review")
    assert (ended.code, ralph.outcome()["proof"]) == (0, "verified"), ended
    assert real.answered() == [0, 1]
    assert marker(real, 1)["skipReview"] is True
    assert course(ralph) == [(US1, "implement", "Passed")]
    assert fields(known(ralph)[US1]) == (True, None, 0)
    assert subjects(ralph) == ["a state of the project", FEAT]


ALERT = re.compile(r"(PostToolUse\w*):Bash hook additional context: \[(\w+)\] Context usage: ~(\d+)% \(over (\d+)%\)")


def test_an_agent_is_told_once_for_each_threshold_how_full_its_context_is(ralph: Ralph) -> None:
    """Claude Code writes its figures down a moment later: they may be seen only after the next tool."""
    real = project(ralph, "claude", story())
    real.env["CLAUDE_CONTEXT_WINDOW"] = "100000"  # a transcript that has no figures yet is not half as large
    used = [40_000, 52_000, 53_000, 73_000, 74_000, 75_000, 92_000, 93_000, 94_000]
    # Claude Code writes its transcript behind a timer: a tool that takes a moment lets it catch up.
    commands = ["sleep 0.5; ls"] * 3 + ["sleep 0.5; cat nothing"] * 2 + ["sleep 0.5; ls"] * 4
    turns = [
        does({"shell": command}, usage={"input": tokens - 860})  # beside what comes from the cache, and the output
        for command, tokens in zip(commands, used, strict=True)
    ]
    loop(real, [*turns, IMPLEMENTS, says("Made.")], "-m", "1")
    alerts = [ALERT.findall(shown(request(real, turn))) for turn in range(len(turns) + 2)]
    assert [(event, kind, over) for event, kind, _, over in alerts[-1]] == [
        ("PostToolUse", "NOTICE", "50"), ("PostToolUseFailure", "WARNING", "70"), ("PostToolUse", "CRITICAL", "90"),
    ]  # fmt: skip
    told = [len(seen) for seen in alerts]
    assert told[:2] == [0, 0]
    assert (told[3], told[5], told[8]) == (1, 2, 3)
    assert "Wrap up immediately. Do NOT start new work." in real.shown(8)


def test_a_guarded_agent_may_commit_and_verify_and_what_the_user_allows(ralph: Ralph) -> None:
    verify = (VERIFY, "sh chec*.sh", "sh -c '(exit 0)'")
    scripts = dict.fromkeys(("mine__sh", "other__sh", "checkmate__sh"), "echo ran >> ran\n")
    real = project(ralph, "claude", story(), verify=verify, secret__txt="", **scripts)
    real.env |= UNBOXED
    ours = wishes(ralph, permissions={"deny": ["Bash(git add secret.txt)"]})
    own = ralph.folder / "own.json"
    started = {"hooks": [{"type": "command", "command": f"touch {ralph.folder}/hooked"}]}
    rules = {"allow": ["Bash(sh mine.sh)"], "deny": ["Edit(locked.txt)"]}
    own.write_text(json.dumps({"permissions": rules, "hooks": {"SessionStart": [started]}}), encoding="utf-8")
    before = ours.read_bytes(), own.read_bytes()
    heredoc = f"git add -A && git commit -q -m \"$(cat <<'EOF'\n{FEAT}\n\nIt is (really) made; `all` of it.\nEOF\n)\""
    allowed = [{"shell": command} for command in (*verify, "sh mine.sh", "git status", heredoc)]
    denied: list[Json] = [
        *({"shell": f"sh {name}.sh"} for name in ("other", "checkmate", "check.sh && sh other")),
        {"shell": "git push"}, {"shell": "git add secret.txt"}, {"write": ["locked.txt", "x"]},
    ]  # fmt: skip
    calls = [*denied, *allowed]
    turns = [does(MAKES, *tells(submitted(), verify=verify)), *map(does, calls), says("Made.")]
    loop(real, turns, "-m", "1", command=f"claude --settings {own}")
    answers = [results(real, place)[0] for place in range(2, len(calls) + 2)]
    refusal = re.compile(r"requires? approval|has been denied|denied by your permission settings")
    refused = [bool(refusal.search(answer)) for answer in answers]
    assert refused == [True] * len(denied) + [False] * len(allowed), answers
    assert (ralph.root / "ran").read_text("utf-8") == "ran\n", "that was mine.sh"
    assert real.answered() == list(range(len(turns)))
    assert subjects(ralph) == ["a state of the project", FEAT]
    assert (ralph.folder / "hooked").exists()
    assert (ours.read_bytes(), own.read_bytes()) == before
    assert [path.name for path in ours.parent.glob("settings*")] == ["settings.json"]
    assert not (ralph.root / ".claude").exists()


def test_settings_that_are_not_there_are_not_passed_over(ralph: Ralph) -> None:
    real = project(ralph, "claude", story())
    ended = loop(real, [], command="claude --settings nowhere.json")
    assert (ended.code, ralph.outcome()["iterations"]) == (2, 1), ended
    assert "Settings file not found" in ended.out
    assert real.answered() == []


def test_an_end_that_is_refused_until_the_host_gives_up_does_not_lose_the_run(ralph: Ralph) -> None:
    """Of the first iteration somebody else's hook is never content, of the second its agent never reviews."""
    real = project(ralph, "claude", story())
    never = """test "$RALPH_ITERATION" != 1 || echo '{"decision": "block", "reason": "never"}'"""
    wishes(ralph, hooks={"Stop": [{"hooks": [{"type": "command", "command": never}]}]})
    turns = [
        IMPLEMENTS, says("Made.", times=HOST_REFUSAL_CAP + 1),
        says("I would rather not.", times=MAX_SAME_REASON + 1),
        does(*tells(approved()), commits(APPROVED)), says("<promise>COMPLETE</promise>"),
    ]  # fmt: skip
    ended = loop(real, turns, "-m", "4")
    assert ended.code == 0, ended
    assert real.answered() == [0, *[1] * (HOST_REFUSAL_CAP + 1), *[2] * (MAX_SAME_REASON + 1), 3, 4]
    verdicts = [type(one.verdict) for one in real.recorded(Judged)]
    assert verdicts == [Passed, Retry, Passed]
    assert real.printed()[-1]["result"] == "", "Claude Code loses its last message then (2.1.325)"
    assert "review must increment reviewCount by 1" in real.shown(3)
    assert fields(known(ralph)[US1]) == (True, "approved", 1)


def test_codex_is_held_to_the_same_rules_and_runs_nobody_elses_hooks(ralph: Ralph) -> None:
    """It may not write to .git, and is not asked to. Whatever hooks it has of its own run if they were trusted."""
    mine, theirs = ralph.folder / "mine", ralph.folder / "theirs"
    real = project(ralph, "codex", story(), **{".codex/hooks.json": hooks_file(theirs)})
    real.env |= UNBOXED
    home = ralph.home / ".codex"
    home.mkdir()
    (home / "hooks.json").write_text(hooks_file(mine), encoding="utf-8")
    place = f"{home}/hooks.json:session_start:0:0"
    trust = f"hooks.state={{{json.dumps(place)}={{trusted_hash={json.dumps(digest(session_start(mine)))}}}}}"
    turns = [
        does(LOOKS, usage={"input": 200_000}),
        does({"shell": "git add -A && git commit -qm mine || touch done.txt"}),
        does(tells(ITSELF)[1]), says("<promise>COMPLETE</promise>"),
        does(tells(submitted())[1]), says("It is for somebody else to approve."),
        does(tells(approved())[1]), says("<promise>COMPLETE</promise>"),
    ]  # fmt: skip
    ended = loop(real, turns, command=f"codex -c {shlex.quote(trust)}")
    assert (ended.code, ralph.outcome()["proof"]) == (0, "verified"), ended
    assert real.answered() == list(range(len(turns))), "one end was refused, and none for what was not committed"
    assert marker(real, 1)["commits"] is False
    assert "[WARNING] Context usage: ~7" in real.shown(2)
    assert STOPPED["codex"] not in real.shown(3)
    assert RULES[0] in real.shown(4).rpartition(STOPPED["codex"])[2]
    assert course(ralph) == [(US1, "implement", "Passed"), (US1, "review", "Passed")]
    assert subjects(ralph) == ["a state of the project", FEAT, APPROVED]
    assert (mine.exists(), theirs.exists()) == (True, False)
    assert "hook" not in (home / "config.toml").read_text("utf-8")
    assert (home / "hooks.json").read_text("utf-8") == hooks_file(mine)


def session_start(touches: Path) -> Json:
    return {"hooks": [{"type": "command", "command": f"touch {touches}", "timeout": 5}]}


def hooks_file(touches: Path) -> str:
    return json.dumps({"hooks": {"SessionStart": [session_start(touches)]}})


def digest(group: Json) -> str:
    """What Codex knows a hook for the beginning of a session by."""
    handlers = [{**handler, "async": False} for handler in group["hooks"]]
    known_by = {"event_name": "session_start", "hooks": handlers}
    written = json.dumps(known_by, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(written.encode()).hexdigest()}"
