"""The Stop hook under bad input, races and hostile files: it neither hangs nor crashes, and never loops for ever."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof.hooks import stop
from ralphproof.hooks.session import MalformedMarker, read_marker, session_file_path
from ralphproof.hooks.stop import MAX_REASON_CHARS, parse_turn_rules, should_refuse_stop
from ralphproof.stories.review import DEFAULT_REVIEW_CAP
from ralphproof.stories.schema import ID_CHARS, MAX_NAMED, serialize_stories
from tests.hooks.inotify import looked_at, wait
from tests.hooks.session import Session, module, verb
from tests.needs import require
from tests.stories.story_documents import A, approved, document, story, submitted

RUN = {"RALPH_RUN_ID": "r1"}
NO_EVENT = "ralph hook: no event on standard input that can be understood; nothing is done\n"


@pytest.fixture
def broken(session: Session) -> Session:
    """A turn that broke the rules."""
    session.mark(story())
    session.write(approved())
    return session


# Its input


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not JSON",
        b'{"session_id": "x", "cw',
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 200_000,
        b'{"tool_response": "' + b"y" * (50 << 20) + b'"}',
    ],
    ids=["empty", "no JSON", "half", "array", "null", "no text", "deep", "50 MB"],
)
def test_an_event_that_cannot_be_understood_traps_nobody(broken: Session, data: bytes) -> None:
    """HK-01: the loop looks again."""
    answer = broken.call(module("stop"), data)
    assert (answer.code, answer.out, answer.err) == (0, "", NO_EVENT)


def test_the_same_of_an_installed_plugin(broken: Session) -> None:
    """HK-01."""
    answer = broken.call(verb("stop"), b"not JSON")
    assert (answer.code, answer.out, answer.err) == (0, "", NO_EVENT)


def test_a_program_that_says_too_much_can_say_it_to_the_end(broken: Session) -> None:
    """HK-01: one whose pipe breaks might take that for a failure of its own."""
    with subprocess.Popen(
        module("stop"), cwd=broken.root, env=broken.env, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
    ) as hook:
        assert hook.stdin is not None
        for _ in range(50):
            hook.stdin.write(b"x" * (1 << 20))
    assert hook.returncode == 0


def test_without_any_input_nothing_is_done(broken: Session) -> None:
    """HK-01."""
    answer = broken.call(["sh", "-c", 'exec "$@" <&-', "sh", *module("stop")], b"")
    assert (answer.code, answer.out, answer.err) == (0, "", NO_EVENT)


@pytest.mark.parametrize("name", ["../../../x", "nul\0", "\ud800", ["x"]])
def test_a_session_may_have_any_name(broken: Session, name: Any) -> None:
    before = {path for path in broken.root.parent.rglob("*") if path.parent != broken.tmp}
    assert broken.call(module("stop"), broken.stop(session_id=name)).reason != ""
    assert {path for path in broken.root.parent.rglob("*") if path.parent != broken.tmp} == before
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in broken.tmp.iterdir())


@pytest.mark.parametrize("name", ["../x", "a/b", ".", "..", "x" * 10_000, "a\nb", "é", "-", "", "a b", "\ud800"])
def test_a_name_that_is_no_plain_word_is_no_part_of_a_path(name: str) -> None:
    path = session_file_path("kind", name)
    assert re.fullmatch("kind-[0-9a-f]{32}", Path(path).name)
    assert Path(session_file_path("kind", "e8fc757c-d328_X")).name == "kind-e8fc757c-d328_X"


# Its own faults


LARGE = b'{"x":[' + b",".join([b"[]"] * 1_000_000) + b"]}"


@pytest.mark.parametrize("way", [module, verb])
def test_a_hook_that_fails_refuses_once_and_says_why(session: Session, way: Any) -> None:
    """HK-05: only this exit code holds an agent back; and it must not be held back for ever."""
    session.mark(story())
    session.tasks.write_bytes(LARGE)
    narrow = ["sh", "-c", 'ulimit -v 60000; exec "$@"', "sh", *way("stop")]
    why = "the rules of this loop could not be checked (MemoryError()); look at them, and end your turn again"
    for again, code in ((False, 2), (True, 0)):
        answer = session.call(narrow, session.stop(again))
        assert (answer.code, answer.err) == (code, f"ralph hook: {why}\n")
        said = json.loads(answer.out) if answer.out else None  # for a shell in between that hides the exit code
        assert said == (None if again else {"decision": "block", "reason": why})


def test_an_answer_that_nobody_can_read_is_a_fault(broken: Session) -> None:
    """HK-05."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            module("stop"), input=json.dumps(broken.stop()).encode(), cwd=broken.root, env=broken.env, stdout=full,
            stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert b"could not be checked" in done.stderr


# The stories


def test_stories_that_stay_half_written_are_named(session: Session) -> None:
    """HK-10."""
    session.mark(story())
    session.tasks.write_bytes(serialize_stories(document(story()))[:60])
    assert session.stops().reason.startswith("ralph/tasks.json: it is not valid JSON: ")


def test_stories_that_are_being_written_are_read_a_moment_later(session: Session) -> None:
    """HK-10."""
    require(sys.platform == "linux", "inotify")
    whole = serialize_stories(document(submitted()))
    session.mark(story())
    session.tasks.write_bytes(whole[:60])
    with (
        looked_at(session.tasks) as watch,
        subprocess.Popen(
            module("stop"), cwd=session.root, env=session.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as hook,
    ):
        assert hook.stdin is not None
        hook.stdin.write(json.dumps(session.stop()).encode())
        hook.stdin.close()
        wait(watch)
        session.tasks.write_bytes(whole)
        assert hook.stdout is not None
        assert hook.stdout.read() == b""
    assert hook.returncode == 0


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "it cannot be read: it is no file"),
        ("folder", "it cannot be read: it is no file"),
        ("/dev/zero", "it cannot be read: it is no file"),
        ("huge", "it is larger than 16 MiB"),
        ("deep", "it is nested too deeply"),
    ],
)
def test_stories_that_are_no_plain_file_are_named(session: Session, kind: str, why: str) -> None:
    session.mark(story())
    lay(session.tasks, kind)
    assert session.stops().reason == f"ralph/tasks.json: {why}"


def lay(path: Path, kind: str) -> None:
    """Put something in a file's place that is none, or none of the usual kind."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind.startswith("/"):
        path.symlink_to(kind)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 31)
    else:
        path.write_text('{"x":' + "[" * 5000 + "]" * 5000 + "}")


def test_what_is_told_can_be_read(session: Session) -> None:
    session.mark(story())
    session.write(*(story(f"US-{number}", title="\x1b]0;x\x07", dependsOn=["\x1b[31m" * 50]) for number in range(30)))
    lines = session.stops().reason.splitlines()
    assert len(lines) == MAX_NAMED
    assert all(line.isprintable() and len(line) < 300 for line in lines)


def test_what_is_told_is_not_endless(session: Session) -> None:
    names = [f"US-{number}".ljust(ID_CHARS, "x") for number in range(MAX_NAMED)]
    before = [story(name) for name in names]
    session.mark(*before, pinned=document(*before))
    done = {"passes": True, "notes": "n", "reviewCount": 9, "acceptanceCriteria": ["x"]}
    session.write(*(one | done for one in before))
    reason = session.stops().reason
    assert len(reason) == MAX_REASON_CHARS + len(" ...")
    assert reason.endswith(" ...")


# The marker


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ".ralph-active is not valid JSON: Expecting value"),
        ('{"pid": 1', ".ralph-active is not valid JSON: Expecting ',' delimiter"),
        ("[]", ".ralph-active holds no JSON object"),
        ("pipe", ".ralph-active is no file"),
        ("folder", ".ralph-active is no file"),
        ("/dev/zero", ".ralph-active cannot be read: Too many levels of symbolic links"),
        ("loop", ".ralph-active cannot be read: Too many levels of symbolic links"),
        ("huge", ".ralph-active is larger than 32 MiB"),
        ("deep", ".ralph-active is not valid JSON: maximum recursion depth exceeded"),
    ],
)
def test_a_marker_that_says_nothing_is_malformed(session: Session, text: str, why: str) -> None:
    if text in ("pipe", "folder", "/dev/zero", "loop", "huge", "deep"):
        lay(session.marker, text)
    else:
        session.marker.write_text(text)
    with pytest.raises(MalformedMarker) as malformed:
        read_marker(str(session.root))
    assert str(malformed.value).startswith(why)


@pytest.mark.parametrize("text", ["{", "pipe"])
def test_a_malformed_marker_holds_the_sessions_of_a_run_and_no_others(session: Session, text: str) -> None:
    session.write(approved())
    if text == "pipe":
        lay(session.marker, text)
    else:
        session.marker.write_text(text)
    held, other = session.stops(env=RUN), session.stops()
    assert held.reason.startswith(".ralph-active is n")
    assert other.out == ""
    assert held.err == other.err == f"ralph hook: {held.reason}\n"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"reviewCap": "5"}, 'reviewCap is "5", and must be a positive integer'),
        ({"reviewCap": 0}, "reviewCap is 0, and must be a positive integer"),
        ({"reviewCap": True}, "reviewCap is true, and must be a positive integer"),
        ({"skipReview": "true"}, 'skipReview is "true", and must be true or false'),
        ({"skipReview": 1}, "skipReview is 1, and must be true or false"),
        (
            {"iterationMode": "Implement"},
            'iterationMode is "Implement", and must be one of implement, review, review-fix',
        ),
        (
            {"iterationMode": ["review"]},
            'iterationMode is ["review"], and must be one of implement, review, review-fix',
        ),
        ({"iterationMode": None}, "iterationMode is missing"),
        ({"story": 7}, "story is 7, and must be the id of a story"),
        ({"ralphDir": "/etc"}, 'ralphDir is "/etc", and must be a folder inside the project'),
        ({"ralphDir": "../x"}, 'ralphDir is "../x", and must be a folder inside the project'),
        ({"ralphDir": "a\nb"}, 'ralphDir is "a\\nb", and must be a folder inside the project'),
        ({"ralphDir": ""}, 'ralphDir is "", and must be a folder inside the project'),
        ({"dirtyBefore": "x"}, 'dirtyBefore is "x", and must be an array of paths'),
        ({"dirtyBefore": [1]}, "dirtyBefore is [1], and must be an array of paths"),
        ({"commits": "no"}, 'commits is "no", and must be true or false'),
        ({"pinned": []}, "pinned is [], and must be the verifyCommands and userStories that must stay"),
        ({"pinned": {}}, "pinned is {}, and must be"),
        ({"pinned": {"userStories": [{"id": A}]}}, 'pinned is {"userStories": [{"id": "US-001"}]}, and must be'),
        ({"pinned": {"userStories": [{"id": 1, "acceptanceCriteria": []}]}}, "pinned is "),
        ({"pinned": {"userStories": [], "verifyCommands": "x"}}, "pinned is "),
        ({"preIterationSnapshot": []}, "preIterationSnapshot is [], and must be passes, reviewStatus and reviewCount"),
        ({"preIterationSnapshot": {A: None}}, 'preIterationSnapshot is {"US-001": null}, and must be'),
        ({"preIterationSnapshot": {A: {"passes": False}}}, "preIterationSnapshot is "),
        (
            {"preIterationSnapshot": {A: {"passes": 0, "reviewStatus": None, "reviewCount": 0}}},
            "preIterationSnapshot is ",
        ),
        (
            {"preIterationSnapshot": {A: {"passes": False, "reviewStatus": "x", "reviewCount": 0}}},
            "preIterationSnapshot is ",
        ),
        (
            {"preIterationSnapshot": {A: {"passes": False, "reviewStatus": [], "reviewCount": 0}}},
            "preIterationSnapshot is ",
        ),
        (
            {"preIterationSnapshot": {A: {"passes": False, "reviewStatus": None, "reviewCount": "0"}}},
            "preIterationSnapshot is ",
        ),
    ],
)
def test_a_field_of_the_marker_that_is_malformed_is_named(fields: dict[str, Any], fault: str) -> None:
    before = {A: {"passes": False, "reviewStatus": None, "reviewCount": 0}}
    usual = {"iterationMode": "implement", "preIterationSnapshot": before}
    (found,) = parse_turn_rules(usual | fields).faults
    assert found.startswith(f".ralph-active: {fault}")
    assert found.endswith("That file is the loop's own.")


def test_what_is_malformed_in_the_marker_is_told_and_the_rest_holds(session: Session) -> None:
    session.mark(story(), reviewCap="5", pinned={}, dirtyBefore=7, preIterationSnapshot={A: {"passes": 0}})
    session.write(story(reviewCount=DEFAULT_REVIEW_CAP + 2))
    answer = session.stops()
    assert [line.split(" ")[:2] for line in answer.reason.splitlines()] == [
        [".ralph-active:", "preIterationSnapshot"], [".ralph-active:", "reviewCap"], [".ralph-active:", "pinned"],
        [".ralph-active:", "dirtyBefore"], ["Story", A],
    ]  # fmt: skip
    assert answer.err == ""


def test_a_marker_may_be_as_large_as_its_stories(session: Session) -> None:
    many = [story(f"US-{number}", acceptanceCriteria=["x" * 50_000]) for number in range(100)]
    session.mark(*many, pinned=document(*many), story="US-7")
    session.write(
        *(submitted(one["id"]) | {"acceptanceCriteria": ["y"]} if one["id"] == "US-7" else one for one in many)
    )
    assert session.marker.stat().st_size > 4 << 20
    assert session.stops().reason == "Story US-7: acceptance criteria may be added, never changed or removed."


def test_a_marker_of_another_user_in_a_folder_of_a_third_orders_nothing(broken: Session) -> None:
    require(os.geteuid() == 0, "the right to give files away")
    os.chown(broken.marker, 12345, 12345)
    answer = broken.stops()
    assert answer.out == ""
    assert "belongs to somebody else" in answer.err
    os.chown(broken.root, 12345, 12345)  # as in a sandbox, where the user is another one
    assert broken.stops().reason != ""


# How often


def stops(session: Session, *turns: dict[str, Any], **env: str) -> list[bool]:
    """Whether each of these ends was refused."""
    return [bool(session.call(module("stop"), session.stop(**turn), env).out) for turn in turns]


FIRST, AGAIN = {"again": False}, {"again": True}


def test_a_reason_that_cannot_be_mended_is_told_a_few_times(session: Session) -> None:
    """HK-06: a change that nobody can commit. The loop goes on then, and judges by itself."""
    session.mark(story())
    session.write(story())
    session.commit()
    (session.root / "stubborn.txt").write_text("x")
    assert stops(session, FIRST, AGAIN, AGAIN, AGAIN, AGAIN) == [True, True, True, False, False]
    assert stops(session, FIRST | {"prompt_id": "another"}) == [True]


@pytest.mark.parametrize(
    ("cap", "most"), [(None, 7), ("3", 2), ("1", 1), ("0", 7), ("-5", 7), ("many", 7), ("9", 8), ("١٠", 9)]
)
def test_ever_new_reasons_are_told_until_the_host_would_lose_patience(
    session: Session, cap: str | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK-06: after that many Claude Code loses the agent's last message."""
    monkeypatch.setenv("TMPDIR", str(session.tmp))
    monkeypatch.delenv("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", raising=False)
    if cap is not None:
        monkeypatch.setenv("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", cap)
    told = [should_refuse_stop(session.stop(number > 0), f"reason {number}") for number in range(most + 3)]
    assert told == [True] * most + [False] * 3


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"session_id": ""}, [True, False, False, False]),  # nothing to remember it by: once
        ({"prompt_id": "", "stop_hook_active": False}, [True] * 4),  # each time another turn
        ({"prompt_id": "", "stop_hook_active": None}, [True, True, True, False]),  # a host that does not tell
        ({"stop_hook_active": False}, [True, True, True, False]),  # a host that forgets
    ],
)
def test_no_host_is_trapped_whatever_it_tells(
    session: Session, event: dict[str, Any], told: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """HK-06."""
    monkeypatch.setenv("TMPDIR", str(session.tmp))
    assert [should_refuse_stop(session.stop(number > 0, **event), "the same") for number in range(4)] == told


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "folder", "foreign", "no file may be there"])
def test_a_memory_that_is_not_ours_is_not_touched(
    broken: Session, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then an end is refused once."""
    victim, place = tmp_path / "victim", broken.tmp / f"ralph-stop-blocks-{broken.stop()['session_id']}"
    victim.write_text("mine")
    plant(place, kind, victim)
    monkeypatch.setenv("TMPDIR", "/proc" if kind == "no file may be there" else str(broken.tmp))
    assert [should_refuse_stop(broken.stop(again), "why") for again in (False, True)] == [True, False]
    assert victim.read_text() == "mine"


def plant(place: Path, kind: str, victim: Path) -> None:
    """Somebody was there first."""
    if kind == "symlink":
        place.symlink_to(victim)
    elif kind == "hard link":
        place.hardlink_to(victim)
    elif kind == "foreign":
        require(os.geteuid() == 0, "the right to give files away")
        place.write_text("50\n60\n70\n80\n90\n")
        os.chown(place, 12345, 12345)
        place.chmod(0o666)
    elif kind != "no file may be there":
        lay(place, kind)


# git


def fake_git(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "git").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_git_that_does_not_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "GIT_TIMEOUT_S", 0.2)
    fake_git(tmp_path, "echo here; sleep 60", monkeypatch)
    assert stop._git_status("/nowhere") is None


def test_of_a_git_that_does_not_cease_enough_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_git(tmp_path, "yes '?? some/file' | tr '\\n' '\\0'", monkeypatch)
    said = stop._git_status("/nowhere")
    assert said is not None
    assert len(said) <= stop.MAX_GIT_OUTPUT_BYTES + (1 << 18)
    assert set(said.split(b"\0")) == {b"?? some/file"}
