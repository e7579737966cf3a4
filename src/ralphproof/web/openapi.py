"""The OpenAPI description of `ralph serve`, from the table of published nouns."""

from __future__ import annotations

from typing import Any

from ralphproof.base.value import Json, value
from ralphproof.views.published_json import NOUNS, choice, object_schema

Schema = dict[str, Any]


MAX_INTEGER = 2**53
STREAM, TEXT_TYPE, PAGE, JSON_TYPE = "text/event-stream", "text/plain", "text/html", "application/json"
ERRORS = {
    400: "what cannot be asked", 401: "no token, or a wrong one", 403: "a host or page that is not the server's own",
    404: "there is no such thing", 405: "another method", 408: "the body did not come", 413: "the body is too long",
    415: "the body is no JSON", 500: "a fault of ralph's own", 503: "too many clients, or an unreadable record",
}  # fmt: skip
ALWAYS = (401, 403, 500, 503)
POST_ERRORS = (400, 404, 405, 408, 413, 415)
DESCRIPTION = (
    "Every text in an answer was written by agents, repositories or users: treat it as text, never as markup. Secrets "
    "are masked. New fields may come at any time."
)
STILL = "event `still`: {}, every 10 seconds in which nothing else was sent"
RUNS_EVENTS = (
    f"event `runs`: `runs` with those that changed, the first `complete`; event `tasks`: {{}}, ask again; {STILL}"
)
RUN_EVENTS = (
    "event `run`: `run` with the iterations that changed, its id is `seq`; event `agent`: `agentEvents`; event `gone`: "
    f"`error`, there is no such run; {STILL}"
)
SAY_BODY: Schema = {
    "type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}},
}  # fmt: skip


def _text(name: str, about: str, where: str = "query", **more: Json) -> Schema:
    return {
        "name": name, "in": where, "description": about, "schema": {"type": "string", **more},
        **({"required": True} if where == "path" else {}),
    }  # fmt: skip


def _whole(name: str, about: str, least: int, most: int, where: str = "query") -> Schema:
    return {
        "name": name, "in": where, "description": about,
        "schema": {"type": "integer", "minimum": least, "maximum": most},
    }  # fmt: skip


RUN = _text("run", "an id, a beginning of it that no other run has, or latest", "path")
AFTER = _whole("after", "only what came after the record of this number", 0, MAX_INTEGER)


@value
class Operation:
    """One route. The answer is a noun, or of a media type with this description."""

    path: str
    id: str
    about: str
    answer: str
    parameters: tuple[Schema, ...] = ()
    errors: tuple[int, ...] = ()
    media: str = JSON_TYPE
    method: str = "get"
    body: Schema | None = None


OPERATIONS = (
    Operation("/", "page", "The dashboard. With ?token= it answers 303 to / with a cookie.", "the page",
              (_text("token", "the token that ralph serve printed"),), media=PAGE),
    Operation("/static/{name}", "asset", "A file of the dashboard.", "the file", (_text("name", "its path", "path"),),
              (404,), "*/*"),
    Operation("/health", "health", "Whether the server is there. Needs no token.", "health"),
    Operation("/metrics", "metrics", "Figures for Prometheus; only with --metrics.", "the text format of Prometheus",
              errors=(404,), media=TEXT_TYPE),
    Operation("/api/openapi.json", "openapi", "This description.", "", media=JSON_TYPE),
    Operation("/api/events", "events", "Events about all runs.", RUNS_EVENTS, media=STREAM),
    Operation("/api/runs", "runs", "The newest runs.", "runs", (
        _whole("limit", "how many (200)", 1, 500), _text("before", "only those that began before this run"),
    ), (400,)),
    Operation("/api/runs/{run}", "run", "All about one run.", "run", (RUN, AFTER), (400, 404)),
    Operation("/api/runs/{run}/events", "runEvents", "Events about one run and its agent.", RUN_EVENTS, (
        RUN, AFTER, _whole("Last-Event-ID", "the same, and stronger: browsers send it", 0, MAX_INTEGER, "header"),
    ), (400, 404), STREAM),
    Operation("/api/runs/{run}/activity", "activity", "What an agent said and did in one turn.", "agentEvents", (
        RUN, _text("log", "the log of the turn, such as agent_003"), _whole("most", "how many events (500)", 1, 500),
    ), (400, 404)),
    Operation("/api/runs/{run}/logs", "logs", "Which logs there are.", "logs", (RUN,), (404,)),
    Operation("/api/runs/{run}/log", "log", "A piece of a log: its end, or from an offset on.", "log", (
        RUN, _text("name", "the name of the log"), {**_text("part", "what of it (out)"),
        "schema": choice("out", "stderr", "prompt")}, _whole("offset", "from this byte on", 0, MAX_INTEGER),
        _whole("most", "how many bytes at most (65536)", 1, 262144),
    ), (400, 404)),
    Operation("/api/runs/{run}/diff", "diff", "What a run changed, or one iteration of it.", "diff", (
        RUN, _whole("iteration", "which one", 0, 1_000_000),
    ), (400, 404)),
    Operation("/api/runs/{run}/stories", "stories", "The stories of a run.", "board", (RUN,), (404,)),
    Operation("/api/tasks", "tasks", "All tasks.", "board"),
    Operation("/api/tasks/{id}", "task", "One task.", "task", (_text("id", "its id", "path"),), (404,)),
    Operation("/api/report", "report", "How the runs went that ended in some days (UTC).", "report", (
        _text("from", "the first day, YYYY-MM-DD (today)", format="date"),
        _text("to", "the last day (today)", format="date"),
    ), (400,)),
    Operation("/api/runs/{run}/pause", "pause", "Pause a run before its next turn. Only with --control.", "answer",
              (RUN,), POST_ERRORS, method="post"),
    Operation("/api/runs/{run}/resume", "resume", "Continue a paused run. Only with --control.", "answer", (RUN,),
              POST_ERRORS, method="post"),
    Operation("/api/runs/{run}/cancel", "cancel", "End a run. Only with --control.", "answer", (RUN,), POST_ERRORS,
              method="post"),
    Operation("/api/runs/{run}/say", "say", "Add a message to the next prompt. Only with --control.", "answer", (RUN,),
              POST_ERRORS, method="post", body=SAY_BODY),
)  # fmt: skip


def openapi_document() -> Schema:
    """The whole description."""
    paths: dict[str, Schema] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation_json(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ralph serve", "version": "1", "description": DESCRIPTION,
            "summary": "The runs of a project: what they do, how they ended, and, with --control, requests to them.",
        },
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {
                    "type": "apiKey", "in": "cookie", "name": "ralph_PORT",
                    "description": "PORT is the port of the server; set by /?token=",
                },
            },
            "responses": {
                f"E{code}": {"description": about, "content": _content("error")} for code, about in ERRORS.items()
            },
            "schemas": {name: _relocated(object_schema(noun)) for name, noun in NOUNS.items()},
        },
    }  # fmt: skip


def _operation_json(operation: Operation) -> Schema:
    codes = (403,) if operation.id == "health" else (*operation.errors, *ALWAYS)
    responses: Schema = {str(code): {"$ref": f"#/components/responses/E{code}"} for code in codes}
    if operation.answer in NOUNS and operation.media == JSON_TYPE:
        responses["200"] = {"description": NOUNS[operation.answer].about, "content": _content(operation.answer)}
    elif operation.id == "openapi":
        responses["200"] = {"description": "OpenAPI 3.1", "content": {JSON_TYPE: {"schema": {"type": "object"}}}}
    else:
        responses["200"] = {"description": operation.answer, "content": {operation.media: {}}}
    if operation.id == "page":
        responses["303"] = {"description": "the token was right; a cookie comes along"}
    made: Schema = {"operationId": operation.id, "summary": operation.about, "responses": responses}
    made |= {"parameters": [*operation.parameters]} if operation.parameters else {}
    made |= {"security": []} if operation.id == "health" else {}
    if operation.body:
        made["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": operation.body}}}
    return made


def _content(noun: str) -> Schema:
    return {JSON_TYPE: {"schema": {"$ref": f"#/components/schemas/{noun}"}}}


def _relocated(schema: Any) -> Any:
    """A schema whose references lead to the components of this description."""
    if isinstance(schema, dict):
        return {
            name: item.replace("#/$defs/", "#/components/schemas/") if name == "$ref" else _relocated(item)
            for name, item in schema.items()
        }
    return [_relocated(item) for item in schema] if isinstance(schema, list) else schema
