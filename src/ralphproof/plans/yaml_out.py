"""Tasks as YAML that reads like written by hand: block scalars for what has lines, letters as they are."""

from __future__ import annotations

import re

from ralphproof.plans.draft import data_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.plans.draft import Draft
    from ralphproof.value import Json

_ORDER = (
    "outcome", "acceptance_criteria", "coder", "reviewer", "tester", "qa",
    "promise", "name", "description", "verification_template", "template", "with", "verification_method", "method",
    "verification_config", "config", "max_iterations", "required", "depends_on",
    "command", "success_exit_code", "output_contains", "output_not_contains", "timeout", "working_dir",
    "check_for", "negative_patterns", "model", "agent", "max_cost_usd", "require_all", "parallel", "stages",
)  # fmt: skip
_RANK = {name: place for place, name in enumerate(_ORDER)}
# What some reader takes for something else than text.
_TAKEN = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan", "inf"))


def written(drafts: tuple[Draft, ...], shape: str) -> str:
    """The tasks as YAML: in the shape "task" each a document under `task:`, in the shape "list" one list."""
    tasks: list[Json] = [_ordered(draft) for draft in drafts]
    if shape == "list":
        return _entries(tasks, "") if tasks else "[]\n"
    return "---\n".join(_entries({"task": task}, "") for task in tasks)


def _ordered(draft: Draft) -> dict[str, Json]:
    data = data_of(draft)
    return {name: _sorted(inner) if name == "completion" else inner for name, inner in data.items()}


def _sorted(data: Json) -> Json:
    if isinstance(data, list):
        return [_sorted(inner) for inner in data]
    if isinstance(data, dict):
        return {name: _sorted(data[name]) for name in sorted(data, key=lambda name: _RANK.get(name, len(_RANK)))}
    return data


def _entries(data: dict[str, Json] | list[Json], pad: str) -> str:
    """The lines of a mapping or a list that is not empty, each behind `pad`."""
    if isinstance(data, dict):
        return "".join(f"{pad}{_word(name)}:{_behind(inner, pad)}" for name, inner in data.items())
    return "".join(f"{pad}-{_item(inner, pad)}" for inner in data)


def _behind(data: Json, pad: str) -> str:
    """What stands behind a key, with the end of its line."""
    if isinstance(data, dict | list) and data:
        return f"\n{_entries(data, f'{pad}  ')}"
    return f" {_scalar(data, pad)}\n"


def _item(data: Json, pad: str) -> str:
    """What stands behind a dash; the first entry of a mapping or a list stands on the dash's own line."""
    if isinstance(data, dict | list) and data:
        return f" {_entries(data, f'{pad}  ')[len(pad) + 2 :]}"
    return f" {_scalar(data, pad)}\n"


def _scalar(data: Json, pad: str) -> str:
    match data:
        case dict():
            return "{}"
        case list():
            return "[]"
        case str():
            return _block(data, pad) if _has_plain_lines(data) else _word(data)
        case float():
            # Without a dot some readers take a number for text.
            return repr(data) if "." in repr(data) else repr(data).replace("e", ".0e")
        case None:
            return "null"
        case _:
            return str(data).lower()


def _word(text: str) -> str:
    """A text on one line, bare where no reader could take it for something else."""
    import json

    if re.fullmatch(r"[A-Za-z_][\w.-]*", text, re.ASCII) and text.lower() not in _TAKEN and len(text) <= 80:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return re.sub("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]", lambda odd: f"\\u{ord(odd[0]):04x}", quoted)


def _has_plain_lines(text: str) -> bool:
    """Whether a text has several lines, and a block scalar gives back each of them as it is."""
    if "\n" not in text or re.search("[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        return False
    return text[0] not in " \n" and not re.search("[\u2028\u2029\ufeff]|(?m:^ +$)", text)


def _block(text: str, pad: str) -> str:
    body = text.rstrip("\n")
    sign = {0: "|-", 1: "|"}.get(len(text) - len(body), "|+")
    lines = (body if sign != "|+" else text[:-1]).split("\n")
    return "\n".join([sign, *(f"{pad}  {line}" if line else "" for line in lines)])
