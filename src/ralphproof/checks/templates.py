"""Verification templates such as `pytest` or `http_health`, and placeholders for task fields such as `{{title}}`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from ralphproof.base.errors import Refused
from ralphproof.base.shell import DOUBLE_QUOTED, SINGLE_QUOTED, UNKNOWN_QUOTING, UNQUOTED, find_quoted_matches
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.engine.plan import EXTERNAL, SEMANTIC, Task
from ralphproof.settings.field_rules import (
    integer,
    list_of,
    mapping,
    number,
    project_folder,
    show_value,
    suggest_name,
    text,
    unsafe_characters,
)

if TYPE_CHECKING:
    from ralphproof.settings.field_rules import Rule


# Placeholders for task fields, and the variables that commands read them from.
#
# Substituted text is not scanned for placeholders again. A command never contains the text of a field, only the name of
# a variable, quoted for its position, so no shell parses the text.


TASK_VARIABLES = {
    "id": "RALPH_TASK_ID", "spec_id": "RALPH_TASK_SPEC", "title": "RALPH_TASK_TITLE",
    "description": "RALPH_TASK_DESCRIPTION", "outcome": "RALPH_TASK_OUTCOME",
    "acceptance_criteria": "RALPH_TASK_ACCEPTANCE",
}  # fmt: skip
ACCEPTANCE = "acceptance_criteria"
MAX_VARIABLE_BYTES = 100 * 1024  # Linux starts no program with a variable of more than 128 KiB
_QUOTED = {UNQUOTED: '"{}"', DOUBLE_QUOTED: "{}", SINGLE_QUOTED: "'\"{}\"'"}
PLACEHOLDER = r"\{\{[ \t]*([A-Za-z_]\w*)[ \t]*\}\}"


def field_values(task: Task) -> dict[str, str]:
    """The task's fields as text; acceptance criteria one per line."""
    return {
        "id": task.id, "spec_id": task.spec, "title": task.title, "description": task.prompt, "outcome": task.outcome,
        ACCEPTANCE: "\n".join(" ".join(criterion.split("\n")) for criterion in task.acceptance),
    }  # fmt: skip


def task_environment(task: Task) -> dict[str, str]:
    """Environment variables for a task's commands. Leaves out a value that no program can be started with."""
    return {TASK_VARIABLES[field]: text for field, text in field_values(task).items() if _fits(text)}


def _fits(text: str) -> bool:
    return not unsafe_characters(text) and len(text.encode()) <= MAX_VARIABLE_BYTES


def omitted_fields(task: Task, command: str) -> tuple[str, ...]:
    """The fields that a command reads and `task_environment` leaves out."""
    text, available = substitute_in_command(command), task_environment(task)
    return tuple(
        field for field, name in TASK_VARIABLES.items() if name not in available and re.search(rf"\b{name}\b", text)
    )


def substitute_in_command(command: str) -> str:
    """Replace task placeholders in a command by variables, quoted so that each stays within its shell word.

    Unknown placeholders stay as they are (docker and helm use the same syntax), and so do `ambiguous_fields`.
    """
    result, end = "", 0
    for match in find_quoted_matches(command, PLACEHOLDER):
        if match.name in TASK_VARIABLES and match.how in _QUOTED:
            result += command[end : match.start] + _QUOTED[match.how].format(f"${{{TASK_VARIABLES[match.name]}}}")
            end = match.end
    return result + command[end:]


def ambiguous_fields(command: str) -> tuple[str, ...]:
    """The fields at positions where the shell's quoting cannot be determined."""
    names = (
        match.name
        for match in find_quoted_matches(command, PLACEHOLDER)
        if match.how == UNKNOWN_QUOTING and match.name in TASK_VARIABLES
    )
    return tuple(dict.fromkeys(names))


def judge_criteria(check_for: object, task: Task) -> tuple[str, ...]:
    """The judge's criteria. The text `{{acceptance_criteria}}` alone becomes one criterion for each of the task's."""
    texts = check_for if isinstance(check_for, list) else [check_for]
    return tuple(
        question for text in texts if isinstance(text, str) for question in _criteria_of_text(text.strip(), task)
    )


def _criteria_of_text(text: str, task: Task) -> tuple[str, ...]:
    placeholder = re.fullmatch(PLACEHOLDER, text)
    if placeholder and placeholder[1] == ACCEPTANCE:
        return task.acceptance
    values = field_values(task)
    return (re.sub(PLACEHOLDER, lambda match: values.get(match[1], match[0]), text),)


def unknown_placeholders(text: str) -> Iterator[str]:
    """Yield a problem for each placeholder that names no task field."""
    for name in dict.fromkeys(re.findall(PLACEHOLDER, text)):
        if name not in TASK_VARIABLES:
            yield f" has no field {{{{{name}}}}} to put in{suggest_name(name, TASK_VARIABLES)}"


# Templates: validation and expansion. Arguments in a command are quoted for the shell.


@value
class TemplateParameter:
    """A parameter of a template; required if it has no default."""

    name: str
    kind: str
    about: str
    default: Json = None


@value
class VerificationTemplate:
    """A verification with parameters: `{path}` in its config is the parameter `path`."""

    name: str
    purpose: str
    method: str
    config: dict[str, Json]
    parameters: tuple[TemplateParameter, ...] = ()


def list_templates() -> tuple[VerificationTemplate, ...]:
    """All templates, grouped by language."""
    return TEMPLATES


def validate_template_use(name: object, arguments: object, path: str, key: str) -> Iterator[str]:
    """Yield problems of a template reference below `path`: `key` holds its name, `with` its arguments."""
    known = {template.name: template for template in list_templates()}
    if not isinstance(name, str) or name not in known:
        near = suggest_name(name, known) if isinstance(name, str) else ""
        yield f"{path}.{key} must be one of {', '.join(known)}, not {show_value(name)}{near}"
        return
    if arguments is not None and not isinstance(arguments, dict):
        yield from (f"{path}.with{fault}" for fault in mapping(arguments))
        return
    parameters = {parameter.name: parameter for parameter in known[name].parameters}
    for argument in arguments or {}:
        if argument not in parameters:
            yield f"unknown key {path}.with.{show_value(argument)[1:-1]}{suggest_name(argument, parameters)}"
    for parameter in parameters.values():
        given = _parameter_value(parameter, arguments)
        if given is None:
            yield f"{path}.with.{parameter.name} is missing: {parameter.about}"
        else:
            yield from (f"{path}.with.{parameter.name}{fault}" for fault in _parameter_rules()[parameter.kind](given))


def expand_template(name: str, arguments: dict[str, Json] | None = None) -> tuple[str, dict[str, Json]]:
    """The method and config of a template with these arguments; raises Refused with every problem."""
    if problems := list(validate_template_use(name, arguments, "verification", "template")):
        raise Refused("\n".join(problems))
    template = next(template for template in list_templates() if template.name == name)
    values = {parameter.name: _parameter_value(parameter, arguments) for parameter in template.parameters}
    return template.method, {key: _fill(inner, values, key == "command") for key, inner in template.config.items()}


def _parameter_value(parameter: TemplateParameter, arguments: object) -> Json:
    given: Json = arguments.get(parameter.name) if isinstance(arguments, dict) else None
    return parameter.default if given is None else given


def _fill(inner: Json, values: dict[str, Json], shell: bool) -> Json:
    if not isinstance(inner, str):
        return inner
    placeholder = re.fullmatch(r"\{(\w+)\}", inner)
    if placeholder and placeholder[1] in values and not shell:
        return values[placeholder[1]]
    return re.sub(r"\{(\w+)\}", lambda match: _shell_words(values[match[1]]) if match[1] in values else match[0], inner)


def _shell_words(argument: Json) -> str:
    """An argument quoted for the shell: one word, or one for each item of a list."""
    if isinstance(argument, list):
        return " ".join(_shell_words(item) for item in argument)
    if isinstance(argument, str):
        return _shell_quote(argument)
    return f"{argument:g}" if isinstance(argument, float) else str(argument)


def _shell_quote(word: str) -> str:
    """One quoted shell word in which task placeholders can still be substituted."""
    pieces = re.split(rf"(\{{\{{[ \t]*(?:{'|'.join(TASK_VARIABLES)})[ \t]*\}}\}})", word)  # every second one is a field
    return "".join(f'"{piece}"' if index % 2 else shlex.quote(piece) for index, piece in enumerate(pieces) if piece)


def _path(data: object) -> Iterator[str]:
    yield from text(4096)(data)
    if isinstance(data, str) and data.startswith("-"):
        yield f" would be taken for an option; write ./{show_value(data)[1:-1]}"


def _paths(data: object) -> Iterator[str]:
    yield from list_of(_path, 100, least=1)(data) if isinstance(data, list) else _path(data)


def _url(data: object) -> Iterator[str]:
    problems = list(text(2000)(data))
    yield from problems
    if not problems and isinstance(data, str) and not re.match(r"(?i)https?://[^\s/]", data):
        yield f" must be an address that begins with http:// or https://, not {show_value(data)}"


def _parameter_rules() -> dict[str, Rule]:
    """Validation rule of each parameter kind."""
    return {
        "path": _path, "paths": _paths, "url": _url, "folder": project_folder, "word": _path,
        "percent": number(100, least=0), "status": integer(100, 599), "seconds": number(3600),
        "texts": list_of(text(200), 100, least=1),
    }  # fmt: skip


# Built-in templates. Each command prints why it fails.


_FOLDER = TemplateParameter("folder", "folder", "the folder to run in, from the project's root", ".")
_TESTS = TemplateParameter("path", "path", "the tests", "tests")
_SOURCE = TemplateParameter("path", "path", "the file or folder to look at", ".")
_PACKAGES = TemplateParameter("path", "path", "the packages", "./...")
# -q: ignore the user's .curlrc; --noproxy: reach this machine directly. Redirects are not followed.
_CURL = (
    "curl -q --silent --show-error --globoff --noproxy localhost,127.0.0.1,::1 --proto =http,https"
    " --max-time {seconds} --output /dev/null --write-out '%{http_code}'"
)

TEMPLATES = (
    VerificationTemplate(
        "pytest", "the tests pass, by pytest; none at all is a failure", EXTERNAL,
        {"command": "pytest {path}"}, (_TESTS,),
    ),
    VerificationTemplate(
        "pytest_coverage", "the tests pass and cover enough, by pytest with pytest-cov", EXTERNAL,
        {"command": "pytest {path} --cov={source} --cov-report=term-missing --cov-fail-under={minimum}"},
        (
            _TESTS,
            TemplateParameter("source", "path", "the folder or package that is to be covered", "src"),
            TemplateParameter("minimum", "percent", "the least coverage, in percent", 80),
        ),
    ),
    VerificationTemplate(
        "unittest", "the tests pass, by unittest; none at all is a failure", EXTERNAL,
        # Python 3.11 exits with 0 if there are no tests.
        {"command": "python3 -m unittest discover -s {path} -p {pattern}", "output_not_contains": "Ran 0 tests"},
        (_TESTS, TemplateParameter("pattern", "word", "the names of the files with tests", "test*.py")),
    ),
    VerificationTemplate("ruff", "ruff finds nothing", EXTERNAL, {"command": "ruff check {path}"}, (_SOURCE,)),
    VerificationTemplate(
        "mypy", "mypy finds nothing", EXTERNAL, {"command": "mypy {path}"},
        (TemplateParameter("path", "path", "the file or folder to look at", "src"),),
    ),
    VerificationTemplate(
        "bandit", "bandit finds no security issue", EXTERNAL, {"command": "bandit -q -r {path}"},
        (TemplateParameter("path", "path", "the folder to look at", "src"),),
    ),
    VerificationTemplate(
        "npm_test", "npm test passes", EXTERNAL, {"command": "npm test", "working_dir": "{folder}"}, (_FOLDER,)
    ),
    VerificationTemplate(
        "npm_lint", "the script lint of package.json passes", EXTERNAL,
        {"command": "npm run lint", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    VerificationTemplate(
        "npm_build", "the script build of package.json passes", EXTERNAL,
        {"command": "npm run build", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    VerificationTemplate(
        "go_test", "go test passes", EXTERNAL,
        {"command": "go test {path}", "working_dir": "{folder}"}, (_PACKAGES, _FOLDER),
    ),
    VerificationTemplate(
        "go_vet", "go vet finds nothing", EXTERNAL,
        {"command": "go vet {path}", "working_dir": "{folder}"}, (_PACKAGES, _FOLDER),
    ),
    VerificationTemplate(
        "cargo_test", "cargo test passes", EXTERNAL, {"command": "cargo test", "working_dir": "{folder}"}, (_FOLDER,)
    ),
    VerificationTemplate(
        "cargo_clippy", "clippy warns of nothing", EXTERNAL,
        {"command": "cargo clippy --all-targets -- -D warnings", "working_dir": "{folder}"}, (_FOLDER,),
    ),
    VerificationTemplate(
        "http_health", "an address answers with 200, or with another status that is asked for", EXTERNAL,
        {"command": f'got=$({_CURL} {{url}}); echo "status $got, wanted "{{status}}; test "$got" = {{status}}'},
        (
            TemplateParameter("url", "url", "the address"),
            TemplateParameter("status", "status", "the HTTP status", 200),
            TemplateParameter("seconds", "seconds", "how long it may take to answer", 10),
        ),
    ),
    VerificationTemplate(
        "file_exists", "files are there", EXTERNAL,
        {"command": 'no=0; for it in {paths}; do test -f "$it" || { echo "missing: $it"; no=1; }; done; exit $no'},
        (TemplateParameter("paths", "paths", "a path, or a list of them"),),
    ),
    VerificationTemplate(
        "no_todos", "the work holds no marker of something left undone", SEMANTIC, {"negative_patterns": "{patterns}"},
        (TemplateParameter("patterns", "texts", "the markers", ["TODO", "FIXME", "XXX"]),),
    ),
)  # fmt: skip
