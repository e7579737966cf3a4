"""Frozen value classes that are cheap to define, and their JSON form.

A frozen, slotted dataclass takes 0.8 ms to define (CPython 3.11); forty of them cost more than the rest of the start-up
together. `@value` gives what we use of it (equality, hash, repr, `match`, defaults, immutability) in 0.03 ms. For the
same reason nothing here imports `typing` at run time.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Never, TypeVar
    from typing import Protocol as Protocol
    from typing import dataclass_transform as dataclass_transform

    T = TypeVar("T")
else:
    Protocol = object

    def dataclass_transform(**_: object) -> Callable[[T], T]:
        return lambda function: function


Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

_KINDS: dict[str, Any] = {}
COMPILE_AFTER = 100  # made of one class before it is worth 0.1 ms to make the next ones four times as fast


@dataclass_transform(frozen_default=True)
def value(cls: type[T]) -> type[T]:
    """Make `cls` an immutable value of its annotated fields; a class attribute is that field's default."""
    names = tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063 (inspect costs 17 ms)
    hidden = {*names, "__dict__", "__weakref__"}
    body = {name: member for name, member in vars(cls).items() if name not in hidden}
    defaults = {name: vars(cls)[name] for name in names if name in vars(cls)}
    meta: Any = type(cls)
    made: Any = meta(cls.__name__, cls.__bases__, {
        **body, "__slots__": names, "__match_args__": names, "_defaults": defaults,
        "__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr,
        "__setattr__": _frozen, "__delattr__": _frozen, "__reduce__": _reduce,
    })  # fmt: skip
    made._made = 0
    if _KINDS.setdefault(cls.__name__, made).__module__ != cls.__module__:
        raise TypeError(f"two value classes are named {cls.__name__}: the name is their kind in JSON")
    _KINDS[cls.__name__] = made
    return made  # type: ignore[no-any-return]


def _init(self: Any, *args: object, **kwargs: object) -> None:
    cls = type(self)
    cls._made += 1
    if cls._made == COMPILE_AFTER:
        cls.__init__ = _compiled(cls)
    names, defaults = self.__slots__, self._defaults
    if len(args) > len(names):
        raise TypeError(f"{type(self).__name__} takes {len(names)} fields, {len(args)} given")
    put = object.__setattr__
    for name, given in zip(names, args, strict=False):
        if name in kwargs:
            raise TypeError(f"{type(self).__name__} got {name} twice")
        put(self, name, given)
    for name in names[len(args):]:  # fmt: skip
        if name in kwargs:
            put(self, name, kwargs.pop(name))
        elif name in defaults:
            put(self, name, defaults[name])
        else:
            raise TypeError(f"{type(self).__name__} needs {name}")
    if kwargs:
        raise TypeError(f"{type(self).__name__} has no field {', '.join(kwargs)}")


def _compiled(cls: Any) -> Any:
    """What `_init` does, for one class of which many are made, such as events. Names of the source alone go into it."""
    space = {f"_set_{name}": getattr(cls, name).__set__ for name in cls.__slots__}
    space |= {f"_default_{name}": given for name, given in cls._defaults.items()}
    wanted = [f"{name}=_default_{name}" if name in cls._defaults else name for name in cls.__slots__]
    body = [f" _set_{name}(self, {name})" for name in cls.__slots__] or [" pass"]
    exec("\n".join([f"def __init__(self, {', '.join(wanted)}):", *body]), space)  # noqa: S102
    return space["__init__"]


def _fields(self: Any) -> tuple[object, ...]:
    return tuple(getattr(self, name) for name in self.__slots__)


def _eq(self: object, other: object) -> bool:
    return type(self) is type(other) and _fields(self) == _fields(other)


def _hash(self: object) -> int:
    return hash((type(self), _fields(self)))


def _repr(self: Any) -> str:
    inner = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__name__}({inner})"


def _frozen(self: object, name: str, *_: object) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed; use replace()")


def _reduce(self: object) -> tuple[object, tuple[object, ...]]:
    return type(self), _fields(self)


def replace(old: T, **changes: object) -> T:
    """The same value with some fields changed."""
    fields: Any = old
    kept = [changes.pop(name) if name in changes else getattr(fields, name) for name in fields.__slots__]
    return type(old)(*kept, **changes)


def pack(thing: Any) -> Json:
    """The JSON form of a value, a tuple, or a scalar; `unpack` turns it back. Defaults are left out."""
    if thing is None or isinstance(thing, str | int | float | bool):
        return thing
    if isinstance(thing, tuple | list):
        return [pack(item) for item in thing]
    if isinstance(thing, dict):
        return {str(name): pack(item) for name, item in thing.items()}
    defaults = thing._defaults
    kept = (name for name in thing.__slots__ if not (name in defaults and getattr(thing, name) == defaults[name]))
    return {"is": type(thing).__name__, **{name: pack(getattr(thing, name)) for name in kept}}


def unpack(data: Json) -> Any:
    """The value behind its JSON form. Fields that this version does not know are dropped."""
    if isinstance(data, list):
        return tuple(unpack(item) for item in data)
    if not isinstance(data, dict):
        return data
    kind = _KINDS.get(str(data.get("is")))
    if kind is None:
        return {name: unpack(item) for name, item in data.items()}
    known = kind.__match_args__
    return kind(**{name: unpack(item) for name, item in data.items() if name in known})


def assert_never(thing: Never) -> Never:
    """For the end of a `match` that has named every case."""
    raise AssertionError(f"unexpected {thing!r}")
