"""Ready-made verifications for common needs, by name. What is filled into a command is quoted for the shell."""

from __future__ import annotations

import re

from ralphproof.errors import Refused
from ralphproof.plans.fields import VARIABLES
from ralphproof.plans.rules import inside, mapping, nearest, number, shown, text, texts, whole
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.plans.rules import Rule
    from ralphproof.value import Json


@value
class Parameter:
    """What a template may be told. Without a default it must be."""

    name: str
    kind: str
    about: str
    default: Json = None


@value
class Template:
    """A verification to be filled in: `{path}` in its config is the parameter `path`."""

    name: str
    purpose: str
    method: str
    config: dict[str, Json]
    parameters: tuple[Parameter, ...] = ()


def templates() -> tuple[Template, ...]:
    """All templates, by language and then by name."""
    from ralphproof.plans.template_table import TEMPLATES

    return TEMPLATES


def faults(name: object, given: object, path: str, key: str) -> Iterator[str]:
    """What is wrong with the use of a template at `path`, where `key` names it and `with` tells it things."""
    known = {template.name: template for template in templates()}
    if not isinstance(name, str) or name not in known:
        near = nearest(name, known) if isinstance(name, str) else ""
        yield f"{path}.{key} must be one of {', '.join(known)}, not {shown(name)}{near}"
        return
    if given is not None and not isinstance(given, dict):
        yield from (f"{path}.with{fault}" for fault in mapping(given))
        return
    wanted = {parameter.name: parameter for parameter in known[name].parameters}
    for told in given or {}:
        if told not in wanted:
            yield f"unknown key {path}.with.{shown(told)[1:-1]}{nearest(told, wanted)}"
    for parameter in wanted.values():
        found = _told(parameter, given)
        if found is None:
            yield f"{path}.with.{parameter.name} is missing: {parameter.about}"
        else:
            yield from (f"{path}.with.{parameter.name}{fault}" for fault in _kinds()[parameter.kind](found))


def expanded(name: str, given: dict[str, Json] | None = None) -> tuple[str, dict[str, Json]]:
    """The method and the config that a template stands for; raises Refused with all that is wrong with its use."""
    if wrong := list(faults(name, given, "verification", "template")):
        raise Refused("\n".join(wrong))
    template = next(template for template in templates() if template.name == name)
    told = {parameter.name: _told(parameter, given) for parameter in template.parameters}
    return template.method, {key: _filled(inner, told, key == "command") for key, inner in template.config.items()}


def _told(parameter: Parameter, given: object) -> Json:
    found: Json = given.get(parameter.name) if isinstance(given, dict) else None
    return parameter.default if found is None else found


def _filled(inner: Json, told: dict[str, Json], shell: bool) -> Json:
    if not isinstance(inner, str):
        return inner
    whole_place = re.fullmatch(r"\{(\w+)\}", inner)
    if whole_place and whole_place[1] in told and not shell:
        return told[whole_place[1]]
    return re.sub(r"\{(\w+)\}", lambda found: _word(told[found[1]]) if found[1] in told else found[0], inner)


def _word(told: Json) -> str:
    """A parameter as the shell reads it: one word, or several of a list."""
    if isinstance(told, list):
        return " ".join(_word(one) for one in told)
    return _quoted(told) if isinstance(told, str) else f"{told:g}" if isinstance(told, float) else str(told)


def _quoted(told: str) -> str:
    """One word of a shell, in which fields of the task can still be put."""
    import shlex

    pieces = re.split(rf"(\{{\{{[ \t]*(?:{'|'.join(VARIABLES)})[ \t]*\}}\}})", told)  # every second one is a field
    return "".join(f'"{piece}"' if place % 2 else shlex.quote(piece) for place, piece in enumerate(pieces) if piece)


def _path(data: object) -> Iterator[str]:
    yield from text(4096)(data)
    if isinstance(data, str) and data.startswith("-"):
        yield f" would be taken for an option; write ./{shown(data)[1:-1]}"


def _paths(data: object) -> Iterator[str]:
    yield from texts(_path, 100, least=1)(data) if isinstance(data, list) else _path(data)


def _url(data: object) -> Iterator[str]:
    wrong = list(text(2000)(data))
    yield from wrong
    if not wrong and isinstance(data, str) and not re.match(r"(?i)https?://[^\s/]", data):
        yield f" must be an address that begins with http:// or https://, not {shown(data)}"


def _kinds() -> dict[str, Rule]:
    """What each kind of parameter may hold."""
    return {
        "path": _path, "paths": _paths, "url": _url, "folder": inside, "word": _path,
        "percent": number(100, least=0), "status": whole(100, 599), "seconds": number(3600),
        "texts": texts(text(200), 100, least=1),
    }  # fmt: skip
