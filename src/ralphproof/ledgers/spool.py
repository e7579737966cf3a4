"""Messages for the project's bus from where only a task's folder may be written: kept there, passed on by the loop."""

from __future__ import annotations

import errno
import os
import time

from ralphproof.errors import RalphError, Refused, from_system
from ralphproof.ledgers.bus import Bus
from ralphproof.ledgers.bus_file import Tail, open_file, open_folder, take
from ralphproof.message import Assembly
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from ralphproof.message import Message

SPOOL = "PROJECT-MESSAGE-BUS.spool.md"
TAKEN = "PROJECT-MESSAGE-BUS.spool.taken.md"
SPOOL_BYTES = 8 << 20  # that are passed on at a time
PATIENCE_S = 1.0
_REFUSED = (errno.EACCES, errno.EROFS, errno.EPERM)


@value
class Drained:
    """How many messages were passed on, how much else there was (lines, useless messages), and what went wrong."""

    posted: int = 0
    skipped: int = 0
    problem: str = ""


def post_or_spool(bus: Bus, draft: Message, task_folder: str) -> tuple[Message, str]:
    """Post durably; where the bus may not be written, into the spool of a task. The message, and the file it is in."""
    try:
        return bus.put([draft], durable=True)[0], bus.path
    except OSError as error:
        if error.errno not in _REFUSED or not task_folder:
            raise bus.explained(error) from error
    spool = Bus(task_folder, SPOOL)
    try:
        return spool.put([draft], durable=True)[0], spool.path
    except OSError as error:
        raise spool.explained(error) from error


def drain_spool(task_folder: str, bus: Bus, run: str = "") -> Drained:
    """Move what a task's spool holds to the project's bus, each message once; never raises what an agent could cause.

    A spool is taken away first and removed when all of it is on the bus. One that was taken before a crash is taken up,
    and what of it is on the bus is not posted again. `run` is the run that all of it is said to come from.
    """
    try:
        folder = open_folder(os.path.abspath(task_folder), make=False)
    except OSError:
        return Drained()
    try:
        earlier = _pass_on(folder, task_folder, bus, run)
        if earlier.problem or not _is_there(folder):
            return earlier
        os.rename(SPOOL, TAKEN, src_dir_fd=folder, dst_dir_fd=folder)
        now = _pass_on(folder, task_folder, bus, run)
        return Drained(earlier.posted + now.posted, earlier.skipped + now.skipped, now.problem)
    except OSError as error:
        return Drained(problem=f"{os.path.join(task_folder, SPOOL)}: {from_system(error)}")
    except RalphError as error:
        return Drained(problem=str(error))
    finally:
        os.close(folder)


def _is_there(folder: int) -> bool:
    try:
        os.close(open_file(folder, SPOOL, SPOOL, write=False))
    except FileNotFoundError:
        return False
    return True


def _pass_on(folder: int, task_folder: str, bus: Bus, run: str) -> Drained:
    path = os.path.join(task_folder, TAKEN)
    try:
        file = open_file(folder, TAKEN, path, write=False)
    except FileNotFoundError:
        return Drained()
    try:
        take(file, path, time.monotonic() + PATIENCE_S)  # whoever was about to write to it has done so
        found, skipped = _messages(file)
        wanted, refused = _fit(found, bus, run)
        known = {message.id for message in bus.messages() if message.id in wanted} if wanted else set()
        new = [message for id, message in wanted.items() if id not in known]
        if new:
            bus.put(new, durable=True)
        os.unlink(TAKEN, dir_fd=folder)
        large = os.fstat(file).st_size > SPOOL_BYTES
        left_out = f"{path} was larger than {SPOOL_BYTES >> 20} MiB; the rest of it was left out" if large else ""
        return Drained(len(new), skipped + refused, left_out)
    finally:
        os.close(file)


def _messages(file: int) -> tuple[list[Message], int]:
    """The whole messages of a file, and how many lines belong to none."""
    tail, assembly = Tail(file), Assembly()
    end = min(SPOOL_BYTES, os.fstat(file).st_size)
    found = [message for line in tail.lines(end) if (message := assembly.feed(line))]
    assembly.end()
    return found, assembly.skipped + tail.torn


def _fit(found: list[Message], bus: Bus, run: str) -> tuple[dict[str, Message], int]:
    """What can be posted, by its id, cleaned and masked as anything is; and how many cannot."""
    fit: dict[str, Message] = {}
    for message in found:
        try:
            draft = bus.draft(
                message.kind, message.body, run=run or message.run, iteration=message.iteration,
                project=message.project, task=message.task, parents=message.parents,
            )  # fmt: skip
            fit.setdefault(message.id, replace(draft, id=message.id))
        except Refused:
            continue
    return fit, len(found) - len(fit)
