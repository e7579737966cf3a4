"""What is sent to other machines is checked before anything is done with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.fleet.loop_folder import LoopFolder
from ralphproof.fleet.messages import LoopSpec, loop_spec_json, parse_loop_spec, without_password
from ralphproof.fleet.step import parse_step_request

REQUEST: dict[str, Any] = {
    "request": {"is": "RunRequest", "prompt": ["make it so", None]},
    "flags": {},
    "custom": False,
}
ORDER = LoopSpec("20270101-120000-abcd", "https://host/repo.git", "main", REQUEST, {"caps": {"costUsd": 1}}, "somebody")


def test_an_order_is_the_same_after_the_way() -> None:
    assert parse_loop_spec(json.loads(json.dumps(loop_spec_json(ORDER)))) == ORDER


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"loop": "../../etc"}, "cannot be the id of a loop"),
        ({"loop": ""}, "cannot be the id of a loop"),
        ({"loop": 7}, "loop of the loop spec must be a text, not '7'"),
        ({"repo": "--upload-pack=sh"}, "is no address of a repository"),
        ({"repo": "ext::sh -c true"}, "is no address of a repository"),
        ({"repo": "https://user:hunter2@host/\n"}, "'https://host/\\n' is no address"),
        ({"repo": "https://user:hunter2@host/a.git"}, "write https://host/a.git, and let workers have it"),
        ({"repo": "https://hunter2@host/a.git"}, "repo of the loop spec holds a password"),
        ({"artifacts": "sftp://me:hunter2@host/logs"}, "artifacts of the loop spec holds a password"),
        ({"base": "-x"}, "base of the loop spec must be a branch or a commit"),
        ({"base": "a..b"}, "base of the loop spec must be a branch or a commit"),
        ({"target": "x y"}, "target of the loop spec must be a branch or a commit"),
        ({"request": {}}, "must hold a request and its flags"),
        (
            {"request": {**REQUEST, "request": {"prompt": [None, "/a/file"]}}},
            "a file is on the submitter's machine alone",
        ),
        ({"request": {**REQUEST, "custom": True}}, "cannot be sent to another machine"),
        (
            {"request": {**REQUEST, "request": {"prompt": ["x", None], "task_id": "t1"}}},
            "is for task 't1', and does not hold it",
        ),
        ({"user": []}, "user of the loop spec must be an object, not a list"),
        ({"submitter": "a\x1b[2J"}, "characters that cannot be printed"),
        ({"worker": "x"}, "a loop spec has no field 'worker'"),
    ],
)
def test_a_bad_order_is_refused_in_one_line(change: dict[str, object], words: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_loop_spec({**loop_spec_json(ORDER), **change})
    assert words in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["loop", "repo", "base", "request"])
def test_an_order_without_what_it_needs_is_refused(name: str) -> None:
    data = loop_spec_json(ORDER)
    del data[name]
    with pytest.raises(Refused, match=f"the loop spec has no {name}"):
        parse_loop_spec(data)


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"", "must be one JSON object"),
        (b"[1]", "must be one JSON object"),
        (b"[" * 100_000, "must be one JSON object"),
        ({"epoch": -1}, "epoch must be a whole number"),
        ({"epoch": True}, "epoch must be a whole number"),
        ({"epoch": 1, "spent": 0.5}, "spent must be a whole number"),
        ({"epoch": 1, "allot": "1"}, "allot must be a whole number"),
        ({"epoch": 1, "worker": "a\nb"}, "worker must be a name"),
        ({"epoch": 1}, "a loop spec is an object"),
    ],
)
def test_a_first_line_that_cannot_be_meant_is_refused(first: bytes | dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=words):
        parse_step_request(first if isinstance(first, bytes) else json.dumps(first).encode())


@pytest.mark.parametrize("repo", ["ssh://git@host/a.git", "git@host:a.git", "https://host/a@b:c.git", "/srv/a.git"])
def test_an_address_without_a_password_is_fine(repo: str) -> None:
    assert parse_loop_spec({**loop_spec_json(ORDER), "repo": repo}).repo == repo


def test_what_opens_the_server_is_not_the_agent_s(tmp_path: Path) -> None:
    given = {"TEMPORAL_API_KEY": "k", "RALPH_FLEET_TLS_KEY": "f", "RALPH__AGENT__MODEL": "m", "AGENT_KEY": "a"}
    kept = LoopFolder(str(tmp_path), ORDER).step_environment(given)
    assert sorted(kept) == ["AGENT_KEY", "RALPH_CONFIG_DIR", "RALPH_STATE_DIR"]


def test_a_password_is_not_shown() -> None:
    assert without_password("https://me:secret@host:8080/a@b.git") == "https://host:8080/a@b.git"
    assert without_password("git@host:repo.git") == "git@host:repo.git"
