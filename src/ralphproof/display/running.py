"""Which tools of an agent run, and since when."""

from __future__ import annotations

MOST = 256  # an agent that never tells how its tools ended must not fill the memory
ID_CHARS = 128

Call = tuple[str, str, float]  # the tool's name, the name with its argument, when it began


class Running:
    """The calls that have not ended, by their ids; of too many the oldest are forgotten."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, id: str, call: Call) -> None:
        """A call of that id began, whatever became of an earlier one."""
        key = id[:ID_CHARS]
        self._calls.pop(key, None)
        if len(self._calls) >= MOST:
            del self._calls[next(iter(self._calls))]
        self._calls[key] = call

    def end(self, id: str) -> Call | None:
        """The call of that id, which is over now."""
        return self._calls.pop(id[:ID_CHARS], None)

    def longest(self) -> Call | None:
        """The call that has run for longest."""
        return next(iter(self._calls.values()), None)

    def clear(self) -> None:
        """The turn is over, and with it every call."""
        self._calls.clear()
