"""One setting, or a group of them, as a value."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.value import Json


@value
class Key:
    """One setting, or a group of them: what it may hold, and what holds where nobody sets it.

    Kinds: object, list, map (any names, one kind of item), free (any object), text, word (text that may stand in its
    tags), choice, integer, number, boolean. `least` is the smallest number, or the fewest items of a list. An item of a
    list has at least one of the keys in `any_of`. Where `single` is set, one item may stand for a list of it.
    """

    kind: str
    doc: str
    default: Json = None
    nullable: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    blank: bool = False
    item: Key | None = None
    keys: dict[str, Key] | None = None
    required: bool = False
    user_only: bool = False
    any_of: tuple[str, ...] = ()
    single: bool = False
