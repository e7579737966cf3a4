"""The verbs of the fleet: what is wrong is said before anything is sent."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from ralphproof.fleet.dev_server import find_free_port
from tests.needs import require
from tests.ralph import Ralph
from tests.ralph import ralph as ralph

ORDER = ("fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "-p", "make it so")
TASK = {
    "id": "A", "title": "a", "completion": {
        "outcome": "it is there", "acceptance_criteria": ["it is there"], "coder": {"promise": "CODE_COMPLETE"},
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["fleet", "worke"], "did you mean worker?"),
        (["fleet", "submit", "-p", "x"], "--repo URL"),
        ([*ORDER[:6]], "no prompt; use"),
        ([*ORDER, "--tasks", "t.yaml"], "not both"),
        ([*ORDER, "--check", " "], "one of them is empty"),
        ([*ORDER, "--total-cost-usd", "-1"], "above zero"),
        ([*ORDER, "--land", "no branch"], "must be a branch"),
        ([*ORDER, "--submitter", " "], "is not a name"),
        ([*ORDER, "--artifacts", "nostore://x"], "not known: nostore"),
        ([*ORDER, "--check", "auto", "--max-cost-usd", "nan"], "above 0"),
        (["fleet", "submit", "--repo", "ext::sh -c x", "--ref", "main", "-p", "x"], "no address of a repository"),
        (["fleet", "submit", "--repo", "/nowhere.git", "-p", "x"], "cannot be reached"),
        (["fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "--tasks", "missing.yaml"], "missing.yaml"),
        (["fleet", "worker", "--name", "a b"], "is no name"),
        (["fleet", "cancel"], "--all"),
        (["fleet", "status", "--address", "nonsense"], "HOST:PORT"),
        (["fleet", "status", "--tls-cert", "x"], "needed both"),
        (["fleet", "dev", "--port", "99999"], "is no port"),
        (["fleet", "dev", "--db", "/no/such/folder/x.db", "--port", "0"], "no such folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_meant_is_refused_in_one_line(ralph: Ralph, argv: list[str], said: str) -> None:
    told = ralph(*argv)
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert len(told.err.splitlines()) == 1


def test_a_task_that_cannot_be_worked_on_is_named_before_anything_is_sent(ralph: Ralph) -> None:
    ralph.write({"tasks.json": json.dumps({"tasks": [TASK, {"id": "B", "title": "b", "dependencies": ["C"]}]})})
    argv = ("fleet", "submit", "--repo", "/nowhere.git", "--ref", "main", "--tasks", "tasks.json")
    told = ralph(*argv)
    assert told.code == 2
    assert "B" in told.err


def test_a_server_that_does_not_answer_is_one_line_and_exit_code_2(ralph: Ralph) -> None:
    require(find_spec("temporalio") is not None, "temporalio")
    told = ralph("fleet", "status", "--address", f"127.0.0.1:{find_free_port()}", via=["env"])
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert "no Temporal server answers" in told.err
    assert "ralph fleet dev" in told.err
