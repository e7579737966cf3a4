"""Ready-made verifications by name, such as pytest or http, and how they are filled in."""

from __future__ import annotations

import re

from ralphproof.base.errors import Refused
from ralphproof.base.shell import DOUBLE_QUOTED, SINGLE_QUOTED, UNKNOWN_QUOTING, UNQUOTED, find_quoted_matches
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.plan import EXTERNAL, SEMANTIC
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
    from collections.abc import Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.plan import Task
    from ralphproof.settings.field_rules import Rule


# Places such as {{title}} in what a task asks for, and the variables that a command reads them from.
#
# What stands in a field is never taken for a place. A command never holds the text of a field, only the name of a
# variable, quoted as the place where it stands needs it: no shell parses the text.


TASK_VARIABLES = {
    "id": "RALPH_TASK_ID", "spec_id": "RALPH_TASK_SPEC", "title": "RALPH_TASK_TITLE",
    "description": "RALPH_TASK_DESCRIPTION", "outcome": "RALPH_TASK_OUTCOME",
    "acceptance_criteria": "RALPH_TASK_ACCEPTANCE",
}  # fmt: skip
ACCEPTANCE = "acceptance_criteria"
MAX_VARIABLE_BYTES = 100 * 1024  # of one variable: Linux starts no program with one of more than 128 KiB
_QUOTED = {UNQUOTED: '"{}"', DOUBLE_QUOTED: "{}", SINGLE_QUOTED: "'\"{}\"'"}
PLACEHOLDER = r"\{\{[ \t]*([A-Za-z_]\w*)[ \t]*\}\}"


def field_values(task: Task) -> dict[str, str]:
    """The text of every field; the acceptance criteria one a line."""
    return {
        "id": task.id, "spec_id": task.spec, "title": task.title, "description": task.prompt, "outcome": task.outcome,
        ACCEPTANCE: "\n".join(" ".join(criterion.split("\n")) for criterion in task.acceptance),
    }  # fmt: skip


def task_environment(task: Task) -> dict[str, str]:
    """The variables that a task's commands may read. A text that no program can be started with is left out."""
    return {TASK_VARIABLES[field]: text for field, text in field_values(task).items() if _fits(text)}


def _fits(text: str) -> bool:
    return not unsafe_characters(text) and len(text.encode()) <= MAX_VARIABLE_BYTES


def omitted_fields(task: Task, command: str) -> tuple[str, ...]:
    """The fields that a command reads and `exports` leaves out."""
    text, given = substitute_in_command(command), task_environment(task)
    return tuple(
        field for field, name in TASK_VARIABLES.items() if name not in given and re.search(rf"\b{name}\b", text)
    )


def substitute_in_command(command: str) -> str:
    """The command with variables where fields are, each a part of the word that it stands in, whatever its text is.

    Other places stay: docker and helm have their own. So do those of `unclear`.
    """
    made, end = "", 0
    for place in find_quoted_matches(command, PLACEHOLDER):
        if place.name in TASK_VARIABLES and place.how in _QUOTED:
            made += command[end : place.start] + _QUOTED[place.how].format(f"${{{TASK_VARIABLES[place.name]}}}")
            end = place.end
    return made + command[end:]


def ambiguous_fields(command: str) -> tuple[str, ...]:
    """The fields that stand where nobody can tell what a shell would make of them."""
    found = (
        place.name
        for place in find_quoted_matches(command, PLACEHOLDER)
        if place.how == UNKNOWN_QUOTING and place.name in TASK_VARIABLES
    )
    return tuple(dict.fromkeys(found))


def judge_criteria(check_for: object, task: Task) -> tuple[str, ...]:
    """What a judge is asked, one criterion each: a place of the acceptance criteria alone is all of them."""
    texts = check_for if isinstance(check_for, list) else [check_for]
    return tuple(
        question for text in texts if isinstance(text, str) for question in _criteria_of_text(text.strip(), task)
    )


def _criteria_of_text(text: str, task: Task) -> tuple[str, ...]:
    whole = re.fullmatch(PLACEHOLDER, text)
    if whole and whole[1] == ACCEPTANCE:
        return task.acceptance
    known = field_values(task)
    return (re.sub(PLACEHOLDER, lambda found: known.get(found[1], found[0]), text),)


def unknown_placeholders(text: str) -> Iterator[str]:
    """What is wrong with the places of a text."""
    for name in dict.fromkeys(re.findall(PLACEHOLDER, text)):
        if name not in TASK_VARIABLES:
            yield f" has no field {{{{{name}}}}} to put in{suggest_name(name, TASK_VARIABLES)}"


# Ready-made verifications for common needs, by name. What is filled into a command is quoted for the shell.


@value
class TemplateParameter:
    """What a template may be told. Without a default it must be."""

    name: str
    kind: str
    about: str
    default: Json = None


@value
class VerificationTemplate:
    """A verification to be filled in: `{path}` in its config is the parameter `path`."""

    name: str
    purpose: str
    method: str
    config: dict[str, Json]
    parameters: tuple[TemplateParameter, ...] = ()


def list_templates() -> tuple[VerificationTemplate, ...]:
    """All templates, by language and then by name."""

    return TEMPLATES


def validate_template_use(name: object, given: object, path: str, key: str) -> Iterator[str]:
    """What is wrong with the use of a template at `path`, where `key` names it and `with` tells it things."""
    known = {template.name: template for template in list_templates()}
    if not isinstance(name, str) or name not in known:
        near = suggest_name(name, known) if isinstance(name, str) else ""
        yield f"{path}.{key} must be one of {', '.join(known)}, not {show_value(name)}{near}"
        return
    if given is not None and not isinstance(given, dict):
        yield from (f"{path}.with{fault}" for fault in mapping(given))
        return
    wanted = {parameter.name: parameter for parameter in known[name].parameters}
    for told in given or {}:
        if told not in wanted:
            yield f"unknown key {path}.with.{show_value(told)[1:-1]}{suggest_name(told, wanted)}"
    for parameter in wanted.values():
        found = _parameter_value(parameter, given)
        if found is None:
            yield f"{path}.with.{parameter.name} is missing: {parameter.about}"
        else:
            yield from (f"{path}.with.{parameter.name}{fault}" for fault in _parameter_rules()[parameter.kind](found))


def expand_template(name: str, given: dict[str, Json] | None = None) -> tuple[str, dict[str, Json]]:
    """The method and the config that a template stands for; raises Refused with all that is wrong with its use."""
    if wrong := list(validate_template_use(name, given, "verification", "template")):
        raise Refused("\n".join(wrong))
    template = next(template for template in list_templates() if template.name == name)
    told = {parameter.name: _parameter_value(parameter, given) for parameter in template.parameters}
    return template.method, {key: _fill(inner, told, key == "command") for key, inner in template.config.items()}


def _parameter_value(parameter: TemplateParameter, given: object) -> Json:
    found: Json = given.get(parameter.name) if isinstance(given, dict) else None
    return parameter.default if found is None else found


def _fill(inner: Json, told: dict[str, Json], shell: bool) -> Json:
    if not isinstance(inner, str):
        return inner
    whole_place = re.fullmatch(r"\{(\w+)\}", inner)
    if whole_place and whole_place[1] in told and not shell:
        return told[whole_place[1]]
    return re.sub(r"\{(\w+)\}", lambda found: _shell_words(told[found[1]]) if found[1] in told else found[0], inner)


def _shell_words(told: Json) -> str:
    """A parameter as the shell reads it: one word, or several of a list."""
    if isinstance(told, list):
        return " ".join(_shell_words(one) for one in told)
    return _shell_quote(told) if isinstance(told, str) else f"{told:g}" if isinstance(told, float) else str(told)


def _shell_quote(told: str) -> str:
    """One word of a shell, in which fields of the task can still be put."""
    import shlex

    pieces = re.split(rf"(\{{\{{[ \t]*(?:{'|'.join(TASK_VARIABLES)})[ \t]*\}}\}})", told)  # every second one is a field
    return "".join(f'"{piece}"' if place % 2 else shlex.quote(piece) for place, piece in enumerate(pieces) if piece)


def _path(data: object) -> Iterator[str]:
    yield from text(4096)(data)
    if isinstance(data, str) and data.startswith("-"):
        yield f" would be taken for an option; write ./{show_value(data)[1:-1]}"


def _paths(data: object) -> Iterator[str]:
    yield from list_of(_path, 100, least=1)(data) if isinstance(data, list) else _path(data)


def _url(data: object) -> Iterator[str]:
    wrong = list(text(2000)(data))
    yield from wrong
    if not wrong and isinstance(data, str) and not re.match(r"(?i)https?://[^\s/]", data):
        yield f" must be an address that begins with http:// or https://, not {show_value(data)}"


def _parameter_rules() -> dict[str, Rule]:
    """What each kind of parameter may hold."""
    return {
        "path": _path, "paths": _paths, "url": _url, "folder": project_folder, "word": _path,
        "percent": number(100, least=0), "status": integer(100, 599), "seconds": number(3600),
        "texts": list_of(text(200), 100, least=1),
    }  # fmt: skip


# The templates themselves. A command says on its own output why it fails.


_FOLDER = TemplateParameter("folder", "folder", "the folder to run in, from the project's root", ".")
_TESTS = TemplateParameter("path", "path", "the tests", "tests")
_SOURCE = TemplateParameter("path", "path", "the file or folder to look at", ".")
_PACKAGES = TemplateParameter("path", "path", "the packages", "./...")
# No file of the user's changes what is asked, no proxy stands before this machine, and no redirect is followed.
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
        # Python 3.11 succeeds with no tests.
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
