"""The description of the API is true: every route is in it, and answers are what it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ralphproof.web.openapi import openapi_document
from tests.ralph import Ralph
from tests.web.routes import ROUTES, at, described
from tests.web.served import Served

DESCRIPTION: dict[str, Any] = openapi_document()
PATHS: dict[str, Any] = DESCRIPTION["paths"]
VALIDATOR = Draft202012Validator(DESCRIPTION)


RUN = {"$ref": "#/components/schemas/run"}


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to."""
    found: Any = DESCRIPTION
    for name in part["$ref"].removeprefix("#/").split("/") if "$ref" in part else ():
        found = found[name]
    return found if "$ref" in part else part


def faults(data: Any, schema: dict[str, Any]) -> Iterator[str]:
    """Where data is not what a schema of the description says."""
    return (error.message for error in VALIDATOR.evolve(schema={**DESCRIPTION, **schema}).iter_errors(data))


def test_every_route_is_described_and_nothing_else() -> None:
    there = {(method.upper(), path) for path, item in PATHS.items() for method in item}
    assert there == {(method, described(path)) for method, path in ROUTES}


def test_it_is_whole_in_itself() -> None:
    assert DESCRIPTION["openapi"] == "3.1.0"
    text = json.dumps(DESCRIPTION)
    for reference in set(re.findall(r'"\$ref": "([^"]+)"', text)):
        assert resolved({"$ref": reference}), reference
    used = set(re.findall(r"#/components/(?:schemas|responses|parameters)/(\w+)", text))
    there = {name for kind in ("schemas", "responses") for name in DESCRIPTION["components"][kind]}
    assert used <= there
    operations = [operation for item in PATHS.values() for operation in item.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] and one["responses"] for one in operations)


@pytest.mark.parametrize("path", PATHS)
def test_the_parameters_of_a_path_are_described(path: str) -> None:
    for operation in PATHS[path].values():
        given = [resolved(one) for one in operation.get("parameters", ())]
        assert {one["name"] for one in given if one["in"] == "path"} == set(re.findall(r"\{(\w+)\}", path))
        assert all(one["required"] for one in given if one["in"] == "path")
        assert all(one["description"] and one["schema"] for one in given)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_described_route_answers_as_described(served: Served, method: str, path: str) -> None:
    operation = PATHS[described(path)][method.lower()]
    for known, headers in ((True, {"Content-Type": "application/json"}), (False, {}), (True, {"Origin": "http://x"})):
        answer = served.ask(at(path), method, headers, b"" if method == "POST" else None, known)
        kinds = resolved(operation["responses"][str(answer.status)])["content"]
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in kinds or "*/*" in kinds
        if kind == "application/json" and kind in kinds:
            assert [*faults(answer.json, kinds[kind]["schema"])] == []


def test_what_is_sent_as_events_is_described_too(served: Served) -> None:
    lines = served.look_on("/api/events").until(lambda told: told.event == "runs")[-1]
    assert lines.data["runs"]
    assert [fault for line in lines.data["runs"] for fault in faults(line, RUN)] == []
    page = served.look_on("/api/runs/latest/events").until(lambda told: told.event == "run")[-1]
    assert [*faults(page.data, RUN)] == []


def test_a_described_task_is_one(served: Served, place: Ralph) -> None:
    made = place("task", "create", "T-1", "S-1", "a title", "--outcome", "it works", "--acceptance", "it does")
    assert made.code == 0, made
    schema = PATHS["/api/tasks/{id}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert [*faults(served.ask("/api/tasks/T-1").json, schema)] == []
    far = place("task", "create", "auth/login 1", "S-1", "another", "--outcome", "it works", "--acceptance", "it does")
    assert far.code == 0, far
    assert served.ask("/api/tasks/auth%2Flogin%201").json["id"] == "auth/login 1"
    tasks = served.ask("/api/tasks").json
    assert [task["id"] for lane in tasks["lanes"] for task in lane["tasks"]] == ["T-1", "auth/login 1"]


@pytest.mark.parametrize(("data", "right"), [
    ({"v": 1, "type": "error", "error": "x"}, True), ({"v": 1, "type": "error", "error": 1}, False), ({}, False),
    ([], False),
])  # fmt: skip
def test_the_schemas_are_held_to(data: Any, right: bool) -> None:
    assert ([*faults(data, {"$ref": "#/components/schemas/error"})] == []) is right
