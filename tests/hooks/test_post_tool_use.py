"""The PostToolUse hook warns an agent about its context usage, once for each threshold."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralphproof.hooks import post_tool_use
from tests.hooks.session import CLAUDE, CODEX, RECORDED, Json, Session, module, verb
from tests.needs import require
from tests.stories.story_documents import story

NOTICE = (
    "Be mindful of remaining space. Plan to finish your current task within this session. If you discover follow-up "
    "work, add new stories to tasks.json — the next iteration will pick them up."
)
WARNING = (
    "Finish your current task and commit soon. Do not start additional tasks. If work remains, create new stories in "
    "tasks.json for the next iteration and capture any implementation details or insights in progress.txt so the next "
    "iteration has full context."
)
CRITICAL = (
    "Wrap up immediately. Do NOT start new work. Instead: (1) create tasks in tasks.json for any remaining work, (2) "
    "write implementation details, insights, and handoff notes to progress.txt, (3) commit all changes, (4) stop. The "
    "next iteration will continue from where you left off."
)
WINDOW = 200_000


def used(tokens: object, **more: Any) -> bytes:
    """A line of Claude Code's transcript after a call of the model that filled the context so far."""
    return json.dumps({"type": "assistant", "message": {"usage": {"input_tokens": tokens}}, **more}).encode() + b"\n"


def after(session: Session, transcript: bytes = b"", env: dict[str, str] | None = None, **fields: Any) -> str:
    """What the agent is told after a tool call that left this transcript."""
    if transcript:
        session.transcript.write_bytes(transcript)
    answer = session.call(module("post_tool_use"), session.event(CLAUDE, "PostToolUse", **fields), env)
    assert answer.err == ""
    return answer.told


def test_each_threshold_is_told_once_in_its_own_words(session: Session) -> None:
    said = [after(session, used(percent * WINDOW // 100)) for percent in (49, 50, 55, 61, 70, 79, 80, 90, 99)]
    assert said == [
        "",
        f"[NOTICE] Context usage: ~50% (over 50%). {NOTICE}",
        "",
        f"[NOTICE] Context usage: ~61% (over 60%). {NOTICE}",
        f"[WARNING] Context usage: ~70% (over 70%). {WARNING}",
        "",
        f"[WARNING] Context usage: ~80% (over 80%). {WARNING}",
        f"[CRITICAL] Context usage: ~90% (over 90%). {CRITICAL}",
        "",
    ]


def test_of_several_thresholds_at_once_the_gravest_is_told(session: Session) -> None:
    assert after(session, used(WINDOW * 3 // 4)).startswith("[WARNING] Context usage: ~75% (over 70%).")
    assert after(session, used(WINDOW * 2 // 3)) == ""
    assert after(session, used(WINDOW * 2)).startswith("[CRITICAL] Context usage: ~200% (over 90%).")
    (noted,) = session.tmp.iterdir()
    assert noted.name == f"claude-context-alerts-{session.event(CLAUDE, 'PostToolUse')['session_id']}"
    assert noted.read_text() == "50\n60\n70\n80\n90\n"


def test_another_session_is_told_for_itself(session: Session) -> None:
    assert after(session, used(WINDOW)) != ""
    assert after(session, session_id="another") != ""


@pytest.mark.parametrize("way", [module, verb])
@pytest.mark.parametrize(
    ("agent", "name", "hook"),
    [
        (CLAUDE, "PostToolUse", "post_tool_use"),
        (CLAUDE, "PostToolUseFailure", "post_tool_use"),
        (CODEX, "PostToolUse", "post_tool_use"),
    ],
)
def test_what_real_programs_say_is_understood(session: Session, agent: str, name: str, hook: str, way: Any) -> None:
    session.transcript.write_bytes(used(WINDOW))
    if way is verb and name == "PostToolUseFailure":
        hook = "post_tool_use_failure"
    answer = session.call(way(hook), session.event(agent, name))
    said = json.loads(answer.out)["hookSpecificOutput"]
    assert said["hookEventName"] == name
    assert said["additionalContext"].startswith("[CRITICAL]")
    assert answer.out.isascii()


# How full it is


def recorded(agent: str) -> list[bytes]:
    return (RECORDED / f"{agent}-transcript.jsonl").read_bytes().splitlines(keepends=True)


def test_the_figures_of_claude_code_are_read(session: Session) -> None:
    """The result of the tool is not written yet when the hook is called. Of its window it says nothing."""
    *written, _ = recorded(CLAUDE)
    assert "~55% (over 50%)" in after(session, b"".join(written))  # 90,000 + 10 + 20,000 + 500 of 200,000


@pytest.mark.parametrize("missing", [b'"token_count"', b'"token_usage_record"', b"nothing"])
def test_the_figures_of_codex_are_read_with_its_window(session: Session, missing: bytes) -> None:
    """When the hook is called, what a call used is written already, and the count of all calls is not.

    Older versions write the count alone.
    """
    transcript = b"".join(line for line in recorded(CODEX) if missing not in line)
    event, env = session.event(CODEX, "PostToolUse"), {"CLAUDE_CONTEXT_WINDOW": "100"}
    session.transcript.write_bytes(transcript)
    assert session.call(module("post_tool_use"), event, env).told == ""  # 110,510 of 258,400
    session.transcript.write_bytes(transcript.replace(b"258400", b"128000"))
    assert "~86% (over 80%)" in session.call(module("post_tool_use"), event, env).told


@pytest.mark.parametrize(
    ("transcript", "percent"),
    [
        (used(WINDOW) + used(100_000), 50),  # the last figures count
        (used(100_000) + used(WINDOW, isSidechain=True), 50),  # not a subagent's
        (used(100_000) + used(0), 50),  # not those of an error of the service
        (used(100_000) + used(-5) + used(True) + used("9999999") + used(10**12) + used(None), 50),
        (used(100_000) + b'{"type": "assistant", "message": {"usage": {"input_tokens": 19', 50),  # half-written
        (used(100_000) + b"not JSON input_tokens\n[]\n" + b"[" * 100_000 + b"_tokens\n", 50),
        (used(100_000) + json.dumps({"type": "user", "text": used(WINDOW).decode()}).encode(), 50),  # only quoted
        (used(100_000) + b"x" * (post_tool_use.TAIL_SIZES[0] + 1) + b"\n", 50),  # a picture
        (b"x" * 480_000, 60),  # no figures: 4 characters a token
        (b"", 0),
    ],
)
def test_the_context_is_as_full_as_the_last_figures_say(tmp_path: Path, transcript: bytes, percent: int) -> None:
    (tmp_path / "transcript").write_bytes(transcript)
    fill = post_tool_use.read_context_usage(str(tmp_path / "transcript"), post_tool_use.CHARS_PER_TOKEN)
    assert fill is not None
    assert 100 * fill.tokens / WINDOW == percent
    assert fill.window is None


@pytest.mark.parametrize(
    ("marker", "environment", "percent"),
    [
        ({"contextWindow": 150_000}, {"CLAUDE_CONTEXT_WINDOW": "120000"}, 80),
        ({}, {"CLAUDE_CONTEXT_WINDOW": "150000"}, 80),
        ({}, {}, 60),
        ({"contextWindow": "150000"}, {}, 60),
        ({"contextWindow": 0}, {"CLAUDE_CONTEXT_WINDOW": "0"}, 60),
        ({"contextWindow": True}, {"CLAUDE_CONTEXT_WINDOW": "-1"}, 60),
        ({"contextWindow": None}, {"CLAUDE_CONTEXT_WINDOW": "200k"}, 60),
        ({"contextWindow": -1}, {"CLAUDE_CONTEXT_WINDOW": "nan"}, 60),
        ({"contextWindow": 10**30}, {"CLAUDE_CONTEXT_WINDOW": "inf"}, 60),
        ({"contextWindow": 150_000, "run": "other"}, {"CLAUDE_CONTEXT_WINDOW": "240000"}, 50),  # not our run's
        ({"contextWindow": 150_000, "run": "r1"}, {"RALPH_RUN_ID": "r1"}, 80),
    ],
)
def test_the_window_is_what_the_agent_says_else_the_user_else_the_usual(
    session: Session, marker: Json, environment: dict[str, str], percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.mark(story(), **marker)
    session.transcript.write_bytes(used(120_000))
    monkeypatch.setenv("TMPDIR", str(session.tmp))
    monkeypatch.delenv("CLAUDE_CONTEXT_WINDOW", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert f"~{percent}%" in post_tool_use.usage_warning(session.event(CLAUDE, "PostToolUse"))


def test_the_window_reaches_the_hook_from_marker_and_environment(session: Session) -> None:
    environment = {"CLAUDE_CONTEXT_WINDOW": "150000", "RALPH_CHARS_PER_TOKEN": "3"}
    assert "~80%" in after(session, b"x" * 360_000, environment)
    session.mark(story(), contextWindow=130_000)
    assert "~92%" in after(session, env=environment)


@pytest.mark.parametrize(
    ("given", "divisor"),
    [("3", 3), ("4.5", 4.5), ("", 4), ("0", 4), ("-3", 4), ("x", 4), ("1e-300", 4), ("nan", 4), ("inf", 4)],
)
def test_how_many_characters_make_a_token_can_be_set(
    given: str, divisor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_CHARS_PER_TOKEN", given)
    assert post_tool_use.chars_per_token() == divisor


def test_a_malformed_marker_is_no_matter_here(session: Session) -> None:
    session.marker.write_text("{")
    assert "~50%" in after(session, used(100_000))


# Whatever comes


@pytest.mark.parametrize(
    "kind", ["missing", "unreadable", "folder", "pipe", "/dev/zero", "/dev/tty", "loop", "empty name"]
)
def test_a_transcript_that_cannot_be_read_says_nothing(session: Session, kind: str, tmp_path: Path) -> None:
    """HK-02."""
    path = session.transcript
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind.startswith("/"):
        path.symlink_to(kind)
    elif kind == "unreadable":
        path = tmp_path / "file" / "below a file"
        (tmp_path / "file").write_text("x")
    assert after(session, transcript_path="" if kind == "empty name" else str(path)) == ""


@pytest.mark.parametrize("name", [7, "nul\0", "\ud800", "x" * 5000])
def test_a_transcript_that_is_named_by_nothing_says_nothing(session: Session, name: Any) -> None:
    """HK-02."""
    assert after(session, transcript_path=name) == ""


def test_a_link_to_a_transcript_is_one(session: Session, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(used(WINDOW))
    session.transcript.symlink_to(tmp_path / "real")
    assert after(session) != ""


def test_a_transcript_of_two_gigabytes_is_not_read(session: Session) -> None:
    """HK-09."""
    with session.transcript.open("wb") as file:
        file.truncate(2 << 30)
    assert after(session).startswith("[CRITICAL] Context usage: ~268435% (over 90%).")


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b'{"tool_response": "' + b"y" * (50 << 20)], ids=len)
def test_an_event_that_cannot_be_understood_disturbs_nobody(session: Session, data: bytes) -> None:
    """HK-01."""
    answer = session.call(module("post_tool_use"), data)
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "ralph hook: no event on standard input that can be understood; nothing is done\n"


def test_a_monitor_that_fails_disturbs_nobody(session: Session) -> None:
    """HK-05."""
    session.transcript.write_bytes((b'{"_tokens":[' + b",".join([b"[]"] * 400_000) + b"]}\n") * 12)
    narrow = ["sh", "-c", 'ulimit -v 50000; exec "$@"', "sh", *module("post_tool_use")]
    answer = session.call(narrow, session.event(CLAUDE, "PostToolUse"))
    assert (answer.code, answer.out) == (0, "")
    assert answer.err == "ralph hook: the context monitor failed: MemoryError()\n"


@pytest.mark.parametrize("name", ["../../x", "\ud800", "nul\0", 7])
def test_a_session_may_have_any_name(session: Session, name: Any) -> None:
    session.transcript.write_bytes(used(WINDOW))
    before = {path for path in session.root.parent.rglob("*") if path.parent != session.tmp}
    plain = isinstance(name, str) and name.isprintable() and name != ""
    assert bool(after(session, session_id=name)) is plain
    assert {path for path in session.root.parent.rglob("*") if path.parent != session.tmp} == before


# What was told


def test_of_several_hooks_at_once_one_tells(session: Session) -> None:
    """HK-08."""
    session.transcript.write_bytes(used(WINDOW))
    event = json.dumps(session.event(CLAUDE, "PostToolUse")).encode()
    hooks = [
        subprocess.Popen(
            module("post_tool_use"), cwd=session.root, env=session.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(8)
    ]
    for hook in hooks:  # all of them wait for their input by now, or soon
        assert hook.stdin is not None
        hook.stdin.write(event)
        hook.stdin.close()
    said = []
    for hook in hooks:
        assert hook.stdout is not None
        said.append(hook.stdout.read())
        hook.stdout.close()
        assert hook.wait() == 0
    assert len([one for one in said if one]) == 1


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "folder", "foreign", "nowhere"])
def test_what_cannot_be_noted_is_not_told(session: Session, kind: str, tmp_path: Path) -> None:
    """It would be told after every tool call, and somebody else's file is not written to."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    place = session.tmp / f"claude-context-alerts-{session.event(CLAUDE, 'PostToolUse')['session_id']}"
    env: dict[str, str] = {}
    if kind == "symlink":
        place.symlink_to(victim)
    elif kind == "hard link":
        place.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    elif kind == "foreign":
        require(os.geteuid() == 0, "the right to give files away")
        place.write_text("")
        place.chmod(0o666)
        os.chown(place, 12345, 12345)
    else:
        env["TMPDIR"] = "/proc"
    assert after(session, used(WINDOW), env) == ""
    assert victim.read_text() == "mine"


def test_on_a_full_disk_nothing_is_told_again_and_again(session: Session) -> None:
    session.transcript.write_bytes(used(WINDOW))
    full = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *module("post_tool_use")]
    answer = session.call(full, session.event(CLAUDE, "PostToolUse"))
    assert (answer.code, answer.out, answer.err) == (0, "", "")


@pytest.mark.parametrize("noted", [b"\xff\xfe\n50\n", b"9" * 100_000])
def test_a_note_that_was_damaged_is_mended(session: Session, noted: bytes) -> None:
    place = session.tmp / f"claude-context-alerts-{session.event(CLAUDE, 'PostToolUse')['session_id']}"
    place.write_bytes(noted)
    assert "over 90%" in after(session, used(WINDOW))
    assert after(session, used(WINDOW)) == ""
    assert place.read_text() == "50\n60\n70\n80\n90\n"


def test_a_hook_that_was_stopped_while_it_noted_holds_up_nobody(session: Session) -> None:
    import fcntl

    place = session.tmp / f"claude-context-alerts-{session.event(CLAUDE, 'PostToolUse')['session_id']}"
    with place.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert after(session, used(WINDOW)) == ""
