"""One noun has one shape: every output of a run tells the same, and is what its schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ralphproof.views.published_json import NOUNS, describe_type, find_faults, json_schema, ref
from ralphproof.views.read_model import ReadModel
from tests.ralph import Ralph, done, say, write

TOOL = {"tool": {"name": "Bash", "summary": "ls", "output": "a", "ok": True}}
TIMES = ("startedAt", "endedAt", "updatedAt", "timedFrom", "durationSeconds")  # lines are stamped when they are written


def objects(data: Any) -> Iterator[dict[str, Any]]:
    """Every published object in an output."""
    if isinstance(data, dict):
        if "v" in data and data.get("type") in NOUNS:
            yield data
        for item in data.values():
            yield from objects(item)
    elif isinstance(data, list):
        for item in data:
            yield from objects(item)


def without_times(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: without_times(item) for name, item in data.items() if name not in TIMES}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def without_start(check: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in check.items() if name != "startedAt"}  # no record of a proof has it


def validate(output: Any) -> None:
    """Every object is exactly what the table says, and what its published schema says."""
    found = [*objects(output)]
    assert found
    for one in found:
        assert [*find_faults(one, ref(one["type"]), one["type"])] == []
        Draft202012Validator(json_schema(one["type"])).validate(one)


@pytest.fixture
def outputs(ralph: Ralph) -> dict[str, Any]:
    """All outputs of one run with a refused claim, a failing test and a commit."""
    ralph.write({"check.sh": "test -f done"})
    ralph.commit()
    agent = ralph.script(
        [{"cost": 0.25}, done()],
        [write(done="yes"), say("working"), TOOL, done()],
        message=[say("a message")],
    )  # fmt: skip
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "sh check.sh", "--json", "-V")
    assert ended.code == 0, ended
    run = ralph.runs()[0].id
    model = ReadModel(ralph.project)
    return {
        "lines": ended.lines, "status": ralph("status", "--json").json, "runs": ralph("runs", "--json").json,
        "tree": ralph("runs", "--tree", "--json").json, "watch": ralph("watch", "--json").json,
        "watched": ralph("watch", run, "--json").json, "attach": ralph("attach", run, "--json").lines,
        "outcome": ralph.outcome(),
        "proof": ralph("proof", "show", "--json").json,
        "verified": ralph("verify", run, "--json").json, "report": ralph("report", "--json").json,
        "logs": ralph("logs", "--json").json, "diff": ralph("diff", "--json").json,
        "api": [
            model.runs(), model.run(run), model.logs(run), model.log(run, "agent_001"), model.diff(run),
            model.activity(run, "agent_001"), model.tasks(), model.stories(run),
        ],
    }  # fmt: skip


def test_every_output_of_a_run_is_what_its_schema_says(outputs: dict[str, Any]) -> None:
    for output in outputs.values():
        validate(output)
    for line in (*outputs["lines"], *outputs["attach"]):
        assert [*find_faults(line, ref("event"), line["type"])] == []
        Draft202012Validator(json_schema("event")).validate(line)


def test_a_noun_is_the_same_in_every_output(outputs: dict[str, Any]) -> None:
    status, lines = outputs["status"], outputs["lines"]
    assert outputs["watched"].keys() == status.keys() == outputs["api"][1].keys() == outputs["attach"][0]["data"].keys()
    for name in ("timeline", "outcome", "cost", "sandbox", "baseline", "children", "stories", "hooks"):
        assert outputs["watched"][name] == outputs["api"][1][name] == status[name], name
        assert outputs["attach"][0]["data"][name] == status[name], name
    assert outputs["outcome"] == status["outcome"] == lines[-1]["data"] == outputs["attach"][-1]["data"]
    proof = outputs["proof"]
    assert {name: status["outcome"][name] for name in proof["outcome"]} == proof["outcome"]
    (check,) = proof["checks"]
    (seen,) = status["timeline"][-1]["checks"]
    assert {name: check[name] for name in seen if name != "startedAt"} == without_start(seen)
    (line,) = outputs["runs"]["runs"]
    assert outputs["watch"]["runs"] == outputs["api"][0]["runs"] == [line]
    assert {name: item for name, item in outputs["tree"]["runs"][0].items() if name != "runs"} == line
    assert {name: status[name] for name in line} == line
    told = [without_times(one["data"]) for one in lines if one["type"] == "iteration.ended"]
    assert told == without_times(status["timeline"])
    checks = [without_times(one["data"]) for one in lines if one["type"] == "check.ended"]
    assert checks == without_times([*status["baseline"], *(one for it in status["timeline"] for one in it["checks"])])
    turns = [without_times(one["data"]) for one in lines if one["type"] == "turn.ended"]
    assert turns == without_times([one for it in status["timeline"] for one in it["turns"]])


def test_a_task_of_a_pipeline_is_the_same_in_every_output(ralph: Ralph) -> None:
    made = ralph(
        "task", "create", "T-1", "S-1", "a title", "--outcome", "it works", "--acceptance", "it does", "--json"
    )
    assert made.code == 0, made
    validate(made.json)
    model = ReadModel(ralph.project)
    (listed,) = ralph("task", "list", "--json").json["tasks"]
    (card,) = [task for lane in model.tasks()["lanes"] for task in lane["tasks"]]  # type: ignore[union-attr,index,call-overload]
    assert {name: item for name, item in card.items() if name != "lane"} == listed  # type: ignore[union-attr]
    shown = ralph("task", "show", "T-1", "--json").json
    assert {name: shown[name] for name in listed} == listed
    assert shown == model.task("T-1")
    validate([model.tasks(), shown, listed])


def test_messages_are_what_their_schema_says(ralph: Ralph) -> None:
    validate(ralph("bus", "post", "--to", "project", "a message", "--json").json)
    read = ralph("bus", "read", "--json").json
    assert len([*objects(read)]) == 2
    validate(read)


def test_a_name_has_one_type_wherever_it_occurs() -> None:
    types: dict[str, set[str]] = {}
    for noun in NOUNS.values():
        for field in noun.fields:
            types.setdefault(field.name, set()).add(describe_type(field.schema).removesuffix(" or null"))
    assert {name: kinds for name, kinds in types.items() if len(kinds) > 1} == {}


@pytest.mark.parametrize("noun", NOUNS)
def test_every_noun_has_a_schema_that_is_complete_in_itself(ralph: Ralph, noun: str) -> None:
    schema = ralph("schema", noun).json
    Draft202012Validator.check_schema(schema)
    for reference in {part.split('"')[0] for part in json.dumps(schema).split('"#/$defs/')[1:]}:
        assert reference in schema["$defs"]


def test_the_nouns_are_listed_and_another_is_refused_with_the_nearest(ralph: Ralph) -> None:
    assert [line.split()[0] for line in ralph("schema").out.splitlines()] == [*NOUNS]
    assert [noun["name"] for noun in ralph("schema", "--json").json["nouns"]] == [*NOUNS]
    ended = ralph("schema", "iterration")
    assert ended.code == 2
    assert "did you mean iteration?" in ended.err
