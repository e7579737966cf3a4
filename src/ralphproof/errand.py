"""Programs that the harness runs for itself: git, a notification, a question to a sandbox. No turn left them behind.

What a dead keeper left comes to us as our children. Whoever cleans up among those must know which ones we started.
"""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_pids: set[int] = set()
_starting: list[None] = []


class Starting:
    """Surrounds the start of an errand; its process id is handed to what this gives, and is known from then on."""

    def __enter__(self) -> Callable[[int], None]:
        _starting.append(None)
        return _pids.add

    def __exit__(self, *_: object) -> None:
        _starting.pop()


def over(pid: int) -> None:
    """It was waited for: the number may be given to another process."""
    _pids.discard(pid)


def all_known() -> bool:
    """Whether no errand is between its start and the moment when it is known."""
    return not _starting


def is_errand(pid: int) -> bool:
    """Whether this is the process of one."""
    return pid in _pids


def errands() -> tuple[int, ...]:
    """The processes of all of them; each leads a group of its own."""
    return tuple(_pids)
