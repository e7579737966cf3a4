"""The message bus: files that loops, agents and people append to and follow, each message whole or not at all."""

from __future__ import annotations

import os
import time

from ralphproof.errors import Refused
from ralphproof.ledgers.bus_file import Tail, append, is_at, open_file, open_folder, take
from ralphproof.ledgers.files import explain, sync
from ralphproof.message import MOST_PARENTS, WAIT, Assembly, drafted, is_id, legible, new_id, tag, written
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ralphproof.errors import RalphError
    from ralphproof.message import Message

PROJECT_BUS = "PROJECT-MESSAGE-BUS.md"
TASK_BUS = "TASK-MESSAGE-BUS.md"
PATIENCE_S = 5.0  # with somebody who holds the lock
POLL_S = 0.2
REMEDY = "make it a directory that you may write to"
WAITS_BYTES = 8 << 20  # of the end of a bus, in which a wish to wait is looked for
REASON_CHARS = 500


def project_bus(root: str, mask: Callable[[str], str] = str) -> Bus:
    """The bus of all runs of a project; its folder is made when it is first posted to."""
    return Bus(os.path.join(root, ".ralph", "bus"), PROJECT_BUS, mask, make=True)


def task_bus(task_folder: str, mask: Callable[[str], str] = str) -> Bus:
    """The bus of one task. Its folder is that of the task, and must be there."""
    return Bus(task_folder, TASK_BUS, mask)


class Bus:
    """One file of messages. Any number of processes may post and read at a time.

    `skipped` counts the lines that the last reading found to belong to no whole message.
    """

    def __init__(self, folder: str, name: str, mask: Callable[[str], str] = str, make: bool = False) -> None:
        self._folder, self._name, self._mask, self._make = os.path.abspath(folder), name, mask, make
        self.path = os.path.join(self._folder, name)
        self._assembly = Assembly()
        self._last_us = 0

    @property
    def skipped(self) -> int:
        return self._assembly.skipped

    def post(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        parents: Iterable[str] = (), durable: bool = False, patience_s: float = PATIENCE_S,
    ) -> Message:  # fmt: skip
        """Say something; the message as it now stands on the bus. `durable` survives a loss of power."""
        draft = self.draft(kind, body, run=run, iteration=iteration, project=project, task=task, parents=parents)
        try:
            return self.put([draft], durable, patience_s)[0]
        except OSError as error:
            raise self.explained(error) from error

    def draft(
        self, kind: str, body: str, *, run: str = "", iteration: int | None = None, project: str = "", task: str = "",
        parents: Iterable[str] = (),
    ) -> Message:  # fmt: skip
        """A message, clean and masked, that `put` gives an id."""
        answered = tuple(parents)
        if wrong := next((parent for parent in answered if not is_id(parent)), None):
            raise Refused(f"{wrong!r} is no message's id; ralph bus read shows them")
        if len(answered) > MOST_PARENTS:
            raise Refused(f"a message answers at most {MOST_PARENTS} others")
        named = {name: self._mask(tag(text)) for name, text in (("run", run), ("project", project), ("task", task))}
        return replace(drafted(kind, body, self._mask), iteration=iteration, parents=answered, **named)

    def put(self, drafts: Iterable[Message], durable: bool = False, patience_s: float = PATIENCE_S) -> list[Message]:
        """Append messages in one piece; one that has an id keeps it. What the system refuses is raised as it is."""
        until = time.monotonic() + patience_s
        folder = open_folder(self._folder, self._make)
        try:
            while True:
                file = open_file(folder, self._name, self.path, write=True)
                try:
                    take(file, self.path, until)
                    if is_at(file, folder, self._name):
                        return self._append(file, folder, drafts, durable)
                finally:
                    os.close(file)
                if time.monotonic() >= until:
                    raise Refused(f"{self.path} is replaced again and again; try again")
        finally:
            os.close(folder)

    def _append(self, file: int, folder: int, drafts: Iterable[Message], durable: bool) -> list[Message]:
        made = [draft if draft.id else replace(draft, id=self._new_id()) for draft in drafts]
        new = os.fstat(file).st_size == 0
        append(file, "".join(written(message) for message in made).encode())
        if durable:
            sync(file)
            if new:
                sync(folder)
        return made

    def _new_id(self) -> str:
        """Made with the lock held: ids stand in the file as they sort, a writer's own even if the clock is set back."""
        self._last_us = max(time.time_ns() // 1000, self._last_us + 1)
        second, part = divmod(self._last_us, 1_000_000)
        return new_id(time.strftime("%Y%m%d-%H%M%S", time.gmtime(second)), part, os.urandom(5))

    def explained(self, error: OSError) -> RalphError:
        """What could not be written, in one line."""
        if isinstance(error, FileNotFoundError):
            return Refused(f"{self._folder} is not there")
        return explain(error, self._folder, REMEDY)

    def messages(self, since_id: str = "", last_bytes: int | None = None) -> Iterator[Message]:
        """What is on the bus now, in the order in which it came: all, or what came after a message.

        `last_bytes` looks only at the end of the file.
        """
        self._assembly = Assembly()
        file = self._opened()
        if file < 0:
            if since_id:
                raise self._unknown(since_id)
            return
        try:
            start = _behind(file, since_id) if since_id else 0
            if start is None:
                raise self._unknown(since_id)
            late = 0 if last_bytes is None else os.fstat(file).st_size - last_bytes
            tail = Tail(file, max(start, late), inside=late > start)
            yield from self._read(tail)
            self._assembly.end()
            self._assembly.skipped += tail.torn
        finally:
            os.close(file)

    def follow(self, stop: Callable[[], bool], since_id: str = "", poll_s: float = POLL_S) -> Iterator[Message]:
        """The same, and what comes from then on until somebody says stop; what is there by then is told first.

        A file that is not there yet is waited for. One that was replaced or shortened is read on behind the last
        message that was told; from its beginning, where it does not have that.
        """
        self._assembly, file, last = Assembly(), -1, since_id
        tail = Tail(file)
        try:
            while True:
                over = stop()
                if file < 0 and (file := self._opened()) >= 0:
                    tail = Tail(file, _behind(file, last) or 0)
                if file >= 0:
                    anew = not self._is_there(file)  # asked first: what was still written to it is read now
                    for message in () if tail.lost else self._read(tail):
                        last = message.id
                        yield message
                    if anew or tail.lost:
                        self._assembly.end()
                        os.close(file)
                        file = -1
                if over:
                    return
                time.sleep(poll_s)
        finally:
            if file >= 0:
                os.close(file)

    def _read(self, tail: Tail) -> Iterator[Message]:
        for line in tail.lines():
            if message := self._assembly.feed(line):
                yield message

    def _opened(self) -> int:
        """A descriptor to read with; -1 where there is no bus yet."""
        try:
            folder = open_folder(self._folder, make=False)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise Refused(f"cannot read {self.path}: {os.strerror(error.errno or 0)}") from error
        try:
            return open_file(folder, self._name, self.path, write=False)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise Refused(f"cannot read {self.path}: {os.strerror(error.errno or 0)}") from error
        finally:
            os.close(folder)

    def _is_there(self, file: int) -> bool:
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(file))
        except OSError:
            return False

    def _unknown(self, id: str) -> Refused:
        return Refused(f"no message on {self.path} has the id {id!r}")


def _behind(file: int, id: str) -> int | None:
    """The place behind a message in a file; None where it is not there."""
    tail, assembly = Tail(file), Assembly()
    for line in tail.lines() if id else ():
        message = assembly.feed(line)
        if message is not None and message.id == id:
            return tail.place
    return None


def waits(bus: Bus, run: str, iteration: int) -> str | None:
    """Why the agent of an iteration wants to wait, by the last message in which it says so; None where it does not.

    Whatever an agent put in the place of the bus says nothing.
    """
    why = None
    try:
        for message in bus.messages(last_bytes=WAITS_BYTES):
            if (message.kind, message.run, message.iteration) == (WAIT, run, iteration):
                why = legible(message.body).strip().partition("\n")[0][:REASON_CHARS]
    except (Refused, OSError):
        return why
    return why
