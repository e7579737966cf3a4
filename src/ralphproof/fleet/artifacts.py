"""Copies of a loop's logs in a folder named by an fsspec URL.

Each file is replaced atomically: readers see the new version or the previous one. Failures are reported and never stop
the loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from ralphproof.base.errors import NotThere, Refused
from ralphproof.fleet.messages import is_plain_name, without_password
from ralphproof.store.run_folder import PRIVATE_SUFFIXES

MAX_LOG_BYTES = 64 << 20  # of one file; logs are cut at the same size
CHUNK_BYTES = 1 << 20
GROWING_SUFFIX = ".ndjson"
WHOLE_FILE_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "memory")  # object stores
MISSING_FSSPEC = "artifacts need fsspec; install it with: pip install 'ralphproof[fleet]'"


class ArtifactFolder:
    """The folder of one loop below the URL. Not thread-safe."""

    def __init__(self, url: str, loop: str) -> None:
        """Raises Refused for a malformed URL, or when the fsspec package for its protocol is not installed."""
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError as error:
            raise Refused(MISSING_FSSPEC) from error
        self.display_url = without_password(url)
        try:
            self._files, place = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, TypeError) as error:
            raise Refused(f"{self.display_url} is no folder for artifacts: {str(error)[:200]}") from error
        self._folder = f"{str(place).rstrip('/')}/{loop}"
        self._sizes: dict[str, tuple[int, int]] = {}

    def copy_changed(self, sources: Iterable[tuple[str, str]]) -> str:
        """Copy the (name, path) files that changed since their last copy. Returns the errors in one line."""
        trouble = ""
        for name, path in sources:
            try:
                status = os.stat(path, follow_symlinks=False)
                mark = status.st_size, status.st_mtime_ns
                if self._sizes.get(name) != mark:
                    self._copy(name, path)
                    self._sizes[name] = mark
            except FileNotFoundError:
                continue  # renamed meanwhile
            except Exception as error:  # noqa: BLE001 (every kind of store brings exceptions of its own)
                trouble = trouble or f"{self.display_url} does not take {name}: {' '.join(str(error).split())[:200]}"
        return trouble

    def _copy(self, name: str, path: str) -> None:
        """Copy to a temporary file and rename it, except in stores that show a file only when it is complete."""
        goal, protocol = f"{self._folder}/{name}", self._files.protocol
        whole = not {*WHOLE_FILE_PROTOCOLS}.isdisjoint((protocol,) if isinstance(protocol, str) else protocol)
        if not whole:
            self._files.makedirs(goal.rpartition("/")[0], exist_ok=True)
        copy = goal if whole else f"{goal}.tmp"
        with open(path, "rb", opener=_open_no_follow) as source, self._files.open(copy, "wb") as target:
            left = MAX_LOG_BYTES
            while left > 0 and (piece := source.read(min(CHUNK_BYTES, left))):
                target.write(piece)
                left -= len(piece)
        if not whole:
            self._files.mv(copy, goal)

    def names(self) -> tuple[str, ...]:
        """Names of the loop's files. Raises NotThere if the folder cannot be read."""
        try:
            paths = self._files.find(self._folder)
        except Exception as error:
            raise NotThere(f"{self.display_url} cannot be read: {' '.join(str(error).split())[:200]}") from error
        start = f"{self._folder.lstrip('/')}/"
        named = (str(path).lstrip("/").removeprefix(start) for path in paths)
        return tuple(sorted(name for name in named if not name.endswith(".tmp")))

    def read(self, name: str, start: int = 0, most: int = MAX_LOG_BYTES) -> bytes:
        """A file or a part of it. Raises NotThere if it does not exist."""
        if not all(is_plain_name(part) for part in name.split("/")):
            raise NotThere(f"{name!r} is no log of the loop")
        try:
            with self._files.open(f"{self._folder}/{name}", "rb") as file:
                file.seek(start)
                return bytes(file.read(most))
        except Exception as error:
            raise NotThere(f"{self.display_url} has no {name}: {' '.join(str(error).split())[:200]}") from error


def _open_no_follow(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def list_logs(log_folder: str, run_folder: str) -> list[tuple[str, str]]:
    """Files to copy after a step: the logs in the store, the outcome and the proof, as (name, path)."""
    logs = [
        (name, os.path.join(log_folder, name))
        for name in _list_folder(log_folder)
        if not name.endswith(PRIVATE_SUFFIXES)
    ]
    outcome, proof = os.path.join(run_folder, "outcome.json"), os.path.join(run_folder, "proof")
    if _is_unlinked_folder(run_folder):  # an agent may have put a link there to files that it cannot read itself
        logs += [("outcome.json", outcome)]
    if _is_unlinked_folder(run_folder) and _is_unlinked_folder(proof):
        logs += [(f"proof/{name}", os.path.join(proof, name)) for name in _list_folder(proof)]
    return [(name, path) for name, path in logs if os.path.isfile(path) and not os.path.islink(path)]


def _is_unlinked_folder(folder: str) -> bool:
    """Whether neither the folder nor its two parents are symbolic links; the agent can write to all three."""
    return not any(os.path.islink(os.path.normpath(os.path.join(folder, up))) for up in (".", "..", "../.."))


def list_growing_logs(log_folder: str) -> list[tuple[str, str]]:
    """Logs that grow during a turn, as (name, path)."""
    return [
        (name, os.path.join(log_folder, name)) for name in _list_folder(log_folder) if name.endswith(GROWING_SUFFIX)
    ]


def _list_folder(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
