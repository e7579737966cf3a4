"""The record at the end of an archive's summary page, by which it is found and restored."""

from __future__ import annotations

import os
import re

from ralphproof.base.errors import Refused
from ralphproof.base.files import read_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.planning.archive_files import MOVED, digest
from ralphproof.stories.story_folder import ARCHIVE_SUMMARY, ARCHIVES, list_archives

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_COMMENT = re.compile(rb"^<!-- ralph-archive (\{.*\}) -->\s*\Z", re.MULTILINE)
_UNSAFE = re.compile(r"[^\w.-]+")
LONGEST = 100  # bytes of a label


@value
class Archived:
    """One archive. `fresh` are digests of what lay in `folder` when it was made; `page_is_ours`: nobody wrote in it.

    One that another program made has no `folder`.
    """

    name: str
    label: str
    at: float
    folder: str = ""
    fresh: tuple[str, ...] = ()
    page_is_ours: bool = False


def safe_label(text: str) -> str:
    """As much of a text as a folder can be called; empty where that is nothing."""
    import unicodedata

    plain = _UNSAFE.sub("-", unicodedata.normalize("NFC", text)).strip(".-")
    return plain.encode("utf-8", "replace")[:LONGEST].decode(errors="ignore").strip(".-")


def with_record(page: str, label: str, folder: str, fresh: Mapping[str, bytes], at: float) -> bytes:
    """The page with its comment."""
    import json

    text = page.rstrip("\n").encode("utf-8", "replace") + b"\n\n"
    said: dict[str, Any] = {"v": 1, "at": at, "label": label, "folder": folder, "page": digest(text)}
    said |= {"fresh": {name: digest(data) for name, data in fresh.items()}}
    comment = json.dumps(said).replace(">", "\\u003e")  # nothing in it ends the comment
    return text + f"<!-- ralph-archive {comment} -->\n".encode()


def every_archive(root: str) -> list[Archived]:
    """All archives that have something to bring back, the oldest first."""
    found = [
        record_of(root, name)
        for name in list_archives(root)
        if any(os.path.lexists(os.path.join(root, ARCHIVES, name, file)) for file in MOVED)
    ]
    return sorted(found, key=lambda one: (one.at, len(one.name), one.name))


def record_of(root: str, name: str) -> Archived:
    """What an archive says of itself; else what its name tells."""
    import json

    data = read_file(os.path.join(root, ARCHIVES, name, ARCHIVE_SUMMARY)) or b""
    found = _COMMENT.search(data.replace(b"\r\n", b"\n"))
    try:
        said = json.loads(found[1]) if found else {}
        ours = found is not None and digest(data.replace(b"\r\n", b"\n")[: found.start()]) == said["page"]
        fresh = tuple(str(one) for one in said["fresh"].values())
        return Archived(name, str(said["label"]), float(said["at"]), str(said["folder"]), fresh, ours)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return Archived(name, name[11:], _day(name))


def _day(name: str) -> float:
    import time

    try:
        return time.mktime(time.strptime(name[:10], "%Y-%m-%d"))
    except (ValueError, OverflowError):
        return 0.0


def means(wanted: str, name: str, label: str) -> bool:
    """Whether somebody who says this may mean the archive of this name and label."""
    said = os.path.basename(wanted.rstrip("/"))
    return not wanted or said == name or label in (wanted, safe_label(wanted)) or name.endswith(f"-{said}")


def archive_named(root: str, wanted: str) -> Archived:
    """The archive that somebody means by its name, its label or the end of its name; the newest of several, or of all.

    Raises Refused where there is none.
    """
    every = every_archive(root)
    if not every:
        raise Refused(f"there is no archive in {ARCHIVES}")
    name = os.path.basename(wanted.rstrip("/"))
    for fits in (
        [one for one in every if not wanted or one.name == name],
        [one for one in every if means(wanted, one.name, one.label)],
    ):
        if fits:
            return fits[-1]
    raise Refused(f"there is no archive {wanted}; there are: {', '.join(one.name for one in every[-10:])}")
