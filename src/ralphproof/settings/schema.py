"""Declaration of settings: kinds of values, groups as classes, validation, defaults and typed reading.

A group of settings is a class with the decorator `group`; each field is declared with one of the functions below. The
name of a key in files is the field's name in camel case.
"""

from __future__ import annotations

import math
import re

from ralphproof.base.value import TYPE_CHECKING, dataclass_transform, replace, value
from ralphproof.engine.claim import strip_claim_tags
from ralphproof.settings.field_rules import show_value, suggest_name, unsafe_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    from ralphproof.base.value import Json

    T = TypeVar("T")


MAX_NUMBER = 1_000_000_000  # no count, second or dollar here means anything beyond it, and floats stay exact below it


@value
class SettingFlag:
    """A flag that gives a setting, and the verbs that have it.

    `{default}` in its help is the setting's default, `{sandboxes}` the names of sandboxes. A flag that takes no value
    stands for `constant`. Where it `adds`, it is repeatable, and its values are added to the list that the files give.
    """

    names: tuple[str, ...]
    metavar: str
    help: str
    verbs: tuple[str, ...]
    constant: Json = None
    adds: bool = False

    @property
    def dest(self) -> str:
        """The name of its value in a parsed command line."""
        return next(name for name in self.names if name.startswith("--"))[2:].replace("-", "_")


@value
class SettingKey:
    """One setting, or a group of them: what it may hold, and what holds where nobody sets it.

    Kinds: object, list, map (any names, one kind of item), free (any object), text, word (text that may stand in its
    tags), choice, integer, number, boolean. `least` is the smallest number, or the fewest items of a list. An item of a
    list has at least one of the keys in `any_of`. Where `single` is set, one item may stand for a list of it.
    `validator` is a function, as `package.module:name`, that says what is wrong with a text; `redact`
    one that gives the text without secrets, for a key at the top. `typed` is the class of a group.
    """

    kind: str
    doc: str = ""
    default: Json = None
    nullable: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    blank: bool = False
    item: SettingKey | None = None
    keys: dict[str, SettingKey] = {}  # noqa: RUF012 (never changed)
    required: bool = False
    user_only: bool = False
    any_of: tuple[str, ...] = ()
    single: bool = False
    validator: str = ""
    redact: str = ""
    flags: tuple[SettingFlag, ...] = ()
    typed: Any = None


# Declaring functions. Each returns the key of a field; `group` replaces it by the field's default.


def boolean(default: bool, doc: str, *flags: SettingFlag) -> Any:
    return SettingKey("boolean", doc, default, flags=flags)


def integer(
    default: int | None, doc: str, *flags: SettingFlag, least: int = 1, most: int = MAX_NUMBER, nullable: bool = False
) -> Any:
    return SettingKey("integer", doc, default, nullable or default is None, least=least, most=most, flags=flags)


def seconds(default: float | None, doc: str, *flags: SettingFlag, least: float = 1, nullable: bool = False) -> Any:
    return SettingKey("number", doc, default, nullable or default is None, least=least, most=MAX_NUMBER, flags=flags)


def amount(default: float | None, doc: str, *flags: SettingFlag) -> Any:
    """A number above zero; no default: it may be null."""
    return SettingKey("number", doc, default, nullable=default is None, above=0, most=MAX_NUMBER, flags=flags)


def price(doc: str, required: bool = False) -> Any:
    return SettingKey("number", doc, nullable=not required, least=0, most=MAX_NUMBER, required=required)


def choice(choices: tuple[str, ...], doc: str, *flags: SettingFlag, any_case: bool = False) -> Any:
    """One of these, by default the first."""
    return SettingKey("choice", doc, choices[0], choices=choices, any_case=any_case, flags=flags)


def text(
    default: str | None, doc: str, *flags: SettingFlag,
    nullable: bool = False, blank: bool = False, required: bool = False, validator: str = "", redact: str = "",
) -> Any:  # fmt: skip
    return SettingKey(
        "text", doc, default, nullable, blank=blank, required=required, validator=validator, redact=redact, flags=flags
    )


def word(default: str, doc: str, *flags: SettingFlag) -> Any:
    return SettingKey("word", doc, default, flags=flags)


def texts(
    doc: str, *flags: SettingFlag, blank: bool = False, single: bool = False, validator: str = "", redact: str = ""
) -> Any:
    """A list of texts, by default empty."""
    item = SettingKey("text", blank=blank)
    return SettingKey("list", doc, [], item=item, single=single, validator=validator, redact=redact, flags=flags)


def list_of(item: SettingKey, doc: str, least: int | None = None, required: bool = False) -> Any:
    return SettingKey("list", doc, None if required else [], item=item, least=least, required=required)


def map_of(item: SettingKey, doc: str, user_only: bool = False) -> Any:
    return SettingKey("map", doc, {}, item=item, user_only=user_only)


def free(doc: str) -> Any:
    return SettingKey("free", doc, {})


def inner(typed: type, doc: str = "", nullable: bool = False, user_only: bool = False, **defaults: Json) -> Any:
    """A group within a group; `defaults` are those of its keys that differ from the class's own."""
    key = group_key(typed)
    keys = {name: replace(one, default=defaults.get(name, one.default)) for name, one in key.keys.items()}
    return replace(key, doc=doc or key.doc, nullable=nullable, user_only=user_only, keys=keys)


@dataclass_transform(frozen_default=True)
def group(doc: str, any_of: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Make a class a group of settings: an immutable value with the defaults of its keys."""

    def declare(cls: type[T]) -> type[T]:
        declared: Any = cls
        keys: dict[str, SettingKey] = {}
        for name in declared.__annotations__:
            keys[camel_case(name)] = key = vars(declared)[name]
            setattr(declared, name, read_value(default_values(key), key))
        made: Any = value(declared)
        made._group = SettingKey("object", doc, keys=keys, any_of=any_of, typed=made)
        return made  # type: ignore[no-any-return]

    return declare


def group_key(typed: Any) -> SettingKey:
    """The key of a group of settings."""
    key: SettingKey = typed._group
    return key


def camel_case(name: str) -> str:
    """The key of a field: `max_cost_usd` is `maxCostUsd`."""
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


# Defaults, typed values, and all keys.


def default_values(key: SettingKey) -> Json:
    """A fresh copy of what holds where nobody sets anything."""
    if key.kind == "object" and not key.nullable:
        return {name: default_values(one) for name, one in key.keys.items()}
    if isinstance(key.default, list):
        return list(key.default)
    return dict(key.default) if isinstance(key.default, dict) else key.default


def read_value(data: Any, key: SettingKey) -> Any:
    """The typed value of merged and validated settings that have every key."""
    if data is None:
        return None
    match key.kind, key.item:
        case "object", _:
            return key.typed(*(read_value(data[name], one) for name, one in key.keys.items()))
        case "list", SettingKey() as item:
            return tuple(read_value(one, item) for one in data)
        case "map", SettingKey() as item:
            return tuple((name, read_value(one, item)) for name, one in sorted(data.items()))
        case "free", _:
            return dict(data)
        case "word", _:
            return strip_claim_tags(data)
        case "number", _:
            return float(data)
        case _:
            return data


def leaf_keys(key: SettingKey, path: str = "") -> list[tuple[str, SettingKey]]:
    """Every key that holds a value, by its path; keys of a list's items stand as `guardrails[].command`."""
    if key.kind == "object":
        dot = f"{path}." if path else ""
        return [leaf for name, one in key.keys.items() for leaf in leaf_keys(one, dot + name)]
    if key.item is not None and key.item.kind == "object":
        return leaf_keys(key.item, f"{path}[]" if key.kind == "list" else f"{path}.*")
    return [(path, key)]


def normalize(data: object, key: SettingKey) -> object:
    """Valid settings in canonical form; objects in lists and maps get the defaults of their missing keys."""
    if isinstance(data, dict) and key.kind == "object":
        return {name: normalize(one, key.keys.get(name) or key) for name, one in data.items()}
    if isinstance(data, dict) and key.item is not None:
        return {name: _with_defaults(normalize(one, key.item), key.item) for name, one in data.items()}
    if key.single and isinstance(data, str):
        return [data]
    if isinstance(data, list) and key.item is not None:
        return [_with_defaults(normalize(one, key.item), key.item) for one in data]
    return data.upper() if key.any_case and isinstance(data, str) else data


def _with_defaults(data: object, key: SettingKey) -> object:
    defaults = default_values(key) if isinstance(data, dict) else None
    return {**defaults, **data} if isinstance(defaults, dict) and isinstance(data, dict) else data


# Validation of values.


_PLURALS = {
    "text": "texts", "integer": "whole numbers", "number": "numbers", "boolean": "booleans",
    "object": "objects", "choice": "choices", "word": "words",
}  # fmt: skip


def describe_expected(key: SettingKey) -> str:
    """Description of the values that a key accepts."""
    words = {
        "object": "an object", "free": "an object", "map": "an object", "boolean": "true or false",
        "choice": f"one of {', '.join(key.choices)}", "integer": f"a whole number{_bounds(key)}",
        "number": f"a number{_bounds(key)}", "list": "a list",
        "text": "text" if key.blank else "text that is not blank", "word": "a word that is not blank",
    }[key.kind]  # fmt: skip
    if key.kind == "list" and key.item is not None:
        words = f"a list of {_PLURALS[key.item.kind]}" + (" that is not empty" if key.least else "")
        words = f"{describe_expected(key.item)}, or {words}" if key.single else words
    return f"{words} or null" if key.nullable else words


def _bounds(key: SettingKey) -> str:
    if key.above is not None:
        return f" above {key.above:g}"
    return f" of {key.least:g} or more" if key.least is not None else ""


def validate(data: object, key: SettingKey, path: str = "", whole: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every problem with the path of its setting. `whole`: no other layer can add to this object, so its required
    keys must be present.
    """
    if data is None and key.nullable:
        return
    if data is None and path:
        yield path, f"{path} may not be null; leave the key out, or give {describe_expected(key)}"
    elif key.kind in ("object", "map"):
        yield from _validate_object(data, key, path, whole)
    elif key.single and key.item and isinstance(data, str):
        yield from validate(data, key.item, path)
    elif key.kind == "list" and isinstance(data, list):
        if key.least is not None and len(data) < key.least:
            yield path, f"{path} must be {describe_expected(key)}"
        for place, one in enumerate(data):
            yield from validate(one, key.item or key, f"{path}[{place}]", whole=True)
    elif problem := scalar_problem(data, key):
        yield path, f"{path} {problem}"


def _validate_object(data: object, key: SettingKey, path: str, whole: bool) -> Iterator[tuple[str, str]]:
    if not isinstance(data, dict):
        yield path, f"{path or 'settings'} must be an object, not {show_value(data)}"
        return
    dot = f"{path}." if path else ""
    for name, one in data.items():
        if key.kind == "map":
            yield from _validate_named(name, one, key.item or key, path)
        elif name in key.keys:
            yield from validate(one, key.keys[name], dot + name, whole)
        elif path or name != "$schema":
            known = [dot + item for item in key.keys]
            yield dot + name, f"unknown key {dot}{name}{suggest_name(dot + name, known)}"
    for name, one_key in key.keys.items():
        if whole and one_key.required and name not in data:
            yield dot + name, f"{dot}{name} is missing"
    if whole and key.any_of and not any(name in data for name in key.any_of):
        yield dot + key.any_of[0], f"{dot}{key.any_of[0]} is missing"


def _validate_named(name: str, data: object, item: SettingKey, path: str) -> Iterator[tuple[str, str]]:
    if not name.strip() or "=" in name or unsafe_characters(name):
        yield path, f"{path} has {show_value(name)} as a name; names are not blank and hold no ="
    else:
        yield from validate(data, item, f"{path}.{name}", whole=True)


def scalar_problem(data: object, key: SettingKey) -> str:
    """Why a scalar is invalid, worded to follow its name; empty if it is valid."""
    if not _has_kind(data, key):
        return f"must be {describe_expected(key)}, not {show_value(data)}"
    if isinstance(data, str) and (why := unsafe_characters(data)):
        return f"holds {why}"
    if isinstance(data, int | float) and key.most is not None and data > key.most:
        return f"must be at most {key.most:.0f}, not {show_value(data)}"
    return ""


def _has_kind(data: object, key: SettingKey) -> bool:
    match key.kind:
        case "boolean":
            return isinstance(data, bool)
        case "integer":
            return isinstance(data, int) and not isinstance(data, bool) and _is_in_bounds(data, key)
        case "number":
            return isinstance(data, int | float) and not isinstance(data, bool) and _is_in_bounds(data, key)
        case "choice":
            return isinstance(data, str) and (data.upper() if key.any_case else data) in key.choices
        case "text":
            return isinstance(data, str) and (key.blank or bool(data.strip()))
        case "word":
            return isinstance(data, str) and bool(strip_claim_tags(data))
        case "free":
            return isinstance(data, dict)
        case _:
            return False


def _is_in_bounds(number: float, key: SettingKey) -> bool:
    return (isinstance(number, int) or math.isfinite(number)) and not (
        (key.least is not None and number < key.least) or (key.above is not None and number <= key.above)
    )


# Settings that flags give.


def parse_number(given: str, key: SettingKey) -> int | float:
    """The number that a text on a command line stands for; raises ValueError where the setting does not take it."""
    data: Any = given
    if re.fullmatch(r"-?[0-9]+", given):
        data = int(given)
    elif key.kind == "number" and re.fullmatch(r"-?[0-9]*\.?[0-9]+(e-?[0-9]+)?", given, re.IGNORECASE):
        data = float(given)
    if problem := scalar_problem(data, replace(key, nullable=False)):
        raise ValueError(problem)
    number: int | float = data
    return number
