"""The bare mirror through which a worker reads and writes the git remote.

Fetches and pushes use the git settings and credentials of the worker's user. They run in the mirror, so that what an
agent writes into the settings of its own clone has no effect; the clone's objects are borrowed as alternates. No hook
runs.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Mapping

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.fleet.loop_spec import without_password
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment

FETCH_TIMEOUT_S, LS_REMOTE_TIMEOUT_S, LOCAL_TIMEOUT_S = 900.0, 60.0, 120.0
PATIENCE_S = 90.0  # an unreachable remote is retried for this long
FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0  # pause between two attempts
MAX_REFS_BYTES, MAX_BLOB_BYTES = 1 << 26, 1 << 26
REF_BATCH = 200  # refs per argument list
ISOLATED_OPTIONS = ("-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false",
                    "-c", "push.recurseSubmodules=no", "-c", "fetch.recurseSubmodules=false",
                    "-c", "push.followTags=false", "-c", "push.gpgSign=false")  # fmt: skip


class RemoteUnreachable(Exception):
    """The remote did not answer for the whole retry period.

    Not a RalphError: Loop would end the run over it. The next step continues from the local records.
    """


class Mirror:
    """A bare clone of one repository that also sees the objects of one loop's clone."""

    def __init__(self, path: str, url: str, environ: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        """Create the mirror if it is missing. Raises Refused if git is missing."""
        git = find_program("git", environ.get("PATH", os.defpath))
        if git is None:
            raise Refused("there is no git on PATH; install it")
        self.path, self.url, self.git, self._patience_s = path, url, git, patience_s
        self.env = user_git_environment(environ)
        self._objects = ""
        if not os.path.isdir(os.path.join(path, "objects")):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self.run_checked("init", "-q", "--bare", path)

    def add_objects_of(self, clone: str) -> None:
        """Make a clone's objects available for pushes. Fetches never depend on them: the clone may be deleted."""
        folder = os.path.join(clone, ".git", "objects")
        self._objects = f'"{folder}"' if ":" in folder or folder.startswith('"') else folder

    def run(
        self, *args: str, stdin: bytes = b"", timeout_s: float = LOCAL_TIMEOUT_S, most: int = 1 << 28
    ) -> ProgramResult:
        """Result of a git command in the mirror."""
        argv = [self.git, "--git-dir", self.path, *NO_HOOKS_OPTIONS, *ISOLATED_OPTIONS, *args]
        lent = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": self._objects} if self._objects and args[0] == "push" else {}
        return run_program(argv, self.env | lent, stdin, timeout_s=timeout_s, most_bytes=most)

    def run_checked(self, *args: str, stdin: bytes = b"", most: int = 1 << 28) -> bytes:
        """Output of a git command that only touches the mirror; raises HarnessFailed if it fails."""
        reply = self.run(*args, stdin=stdin, most=most)
        if reply.code:
            raise HarnessFailed(f"git {args[0]}: {reply.said or reply.code}")
        return reply.out

    def refs(self, *patterns: str) -> dict[str, str]:
        """The remote's refs that match the patterns, with their commits; retried while the remote is unreachable."""
        for _ in self.attempts():
            refs = self.refs_once(*patterns)
            if refs is not None:
                return refs
        raise RemoteUnreachable(self._last_error)

    def refs_once(self, *patterns: str) -> dict[str, str] | None:
        """Like `refs`, with one attempt; None if there was no answer."""
        reply = self.run("ls-remote", "--refs", self.url, *patterns, timeout_s=LS_REMOTE_TIMEOUT_S, most=MAX_REFS_BYTES)
        if reply.code:
            self._last_error = self._describe_error(reply)
            return None
        lines = (line.split(None, 1) for line in reply.out.decode("utf-8", "surrogateescape").splitlines())
        return {words[1]: words[0] for words in lines if len(words) == 2 and is_object_id(words[0])}

    def fetch(self, specs: Iterable[str]) -> None:
        """Fetch SOURCE:REF refspecs; retried while the remote is unreachable."""
        wanted = list(specs)
        while wanted:
            some, wanted = wanted[:REF_BATCH], wanted[REF_BATCH:]
            words = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", self.url, *some)
            for _ in self.attempts():
                with _FetchLock(self.path):
                    reply = self.run(*words, timeout_s=FETCH_TIMEOUT_S)
                if not reply.code:
                    break
                self._last_error = self._describe_error(reply)
            else:
                raise RemoteUnreachable(self._last_error)

    def push(self, updates: Iterable[tuple[str, str]], expected: Mapping[str, str]) -> bool:
        """Push refs atomically, with one attempt. `expected` is what each ref must name before, "" for a missing ref.

        False means that the push did not succeed as far as this call can tell; the caller finds out why.
        """
        leases = [f"--force-with-lease={ref}:{commit}" for ref, commit in expected.items()]
        specs = [f"{commit}:{ref}" if ref in expected else f"+{commit}:{ref}" for commit, ref in updates]
        words = ("push", "-q", "--porcelain", "--atomic", "--no-verify", "--no-signed", *leases, self.url, *specs)
        reply = self.run(*words, timeout_s=FETCH_TIMEOUT_S)
        if reply.code:
            self._last_error = self._describe_error(reply)
        return reply.code == 0

    _last_error = ""

    def unreachable_error(self) -> RemoteUnreachable:
        """The error to raise when retries are exhausted."""
        return RemoteUnreachable(self._last_error)

    def attempts(self) -> Iterable[int]:
        """Numbers of attempts until `patience_s` is over, with growing pauses in between."""
        pause_s, number, deadline = FIRST_RETRY_S, 0, time.monotonic() + self._patience_s
        while True:
            yield number
            if time.monotonic() + pause_s > deadline:
                return
            time.sleep(pause_s)
            pause_s, number = min(pause_s * 2, MAX_RETRY_S), number + 1

    def _describe_error(self, reply: ProgramResult) -> str:
        place = without_password(self.url)
        return f"{place} did not answer: {reply.said.replace(self.url, place) or reply.code}"

    def resolve_commit(self, name: str) -> str:
        """The commit that a name means in the mirror; empty if there is none."""
        reply = self.run("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
        commit = reply.out.strip().decode("ascii", "replace")
        return commit if reply.code == 0 and is_object_id(commit) else ""

    def read_files(self, commit: str) -> dict[str, bytes]:
        """Files of a commit, which is untrusted input; raises Refused if they are too many or too large."""
        rows = self.run_checked("ls-tree", "-r", "-z", "--long", commit).split(b"\0")
        names: dict[str, int] = {}
        for row in filter(None, rows):
            facts, _, path = row.partition(b"\t")
            mode, kind, blob, length = facts.split()
            sound = mode == b"100644" and kind == b"blob" and length.isdigit()
            names[f"{os.fsdecode(path)}\0{blob.decode()}"] = int(length) if sound else MAX_BLOB_BYTES + 1
        if sum(names.values()) > MAX_BLOB_BYTES:
            raise Refused(f"the record of the loop on {without_password(self.url)} is not one that ralph wrote")
        ids = "".join(f"{name.partition(chr(0))[2]}\n" for name in names)
        out = self.run_checked("cat-file", "--batch", stdin=ids.encode())
        files: dict[str, bytes] = {}
        for name, size in names.items():
            start = out.index(b"\n") + 1
            files[name.partition("\0")[0]], out = out[start : start + size], out[start + size + 1 :]
        return files

    def create_commit(self, ref: str, parent: str, files: Mapping[str, bytes], message: str) -> str:
        """Create a commit with these files on top of its parent's, in ralph's name; `ref` keeps it in the mirror."""
        who = b"committer ralph <ralph@localhost> %d +0000\n" % time.time()
        text = message.encode("utf-8", "replace")
        head = b"commit %s\nmark :1\n%sdata %d\n%s\n" % (ref.encode(), who, len(text), text)
        head += b"from %s\n" % parent.encode() if parent else b""
        body = b"".join(b"M 100644 inline %s\ndata %d\n%s\n" % (os.fsencode(path), len(data), data)
                        for path, data in files.items())  # fmt: skip
        reset = b"" if parent else b"reset %s\n\n" % ref.encode()
        out = self.run_checked("fast-import", "--quiet", "--force", stdin=reset + head + body + b"\nget-mark :1\n")
        commit = out.strip().decode("ascii", "replace")
        if not is_object_id(commit):
            raise HarnessFailed(f"git fast-import: {commit[:200]}")
        return commit


class _FetchLock:
    """Serializes fetches into a mirror: concurrent ones would interfere."""

    def __init__(self, path: str) -> None:
        self._file = os.path.join(path, "ralph-fetch.lock")

    def __enter__(self) -> None:
        self._held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._held)
