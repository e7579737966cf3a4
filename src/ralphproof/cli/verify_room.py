"""A throw-away place in which the checks of a proof are asked again, each in a checkout of its own."""

from __future__ import annotations

import os
import signal
import sys

from ralphproof import interpreter
from ralphproof.check import Finding, Inspection, slugs
from ralphproof.checks.command import CommandCheck, Question
from ralphproof.cli.signals import Present
from ralphproof.config.build import check_environment
from ralphproof.errors import HarnessFailed
from ralphproof.keeper.client import Keeper
from ralphproof.keeper.tree import LINUX, alive, below, children, end_all, start_time
from ralphproof.ledgers.folder import RunFolder
from ralphproof.sandbox import GO_ON
from ralphproof.sandboxes.direct import Direct
from ralphproof.sandboxes.load import clear
from ralphproof.value import TYPE_CHECKING, Protocol
from ralphproof.workspace import Change, Snapshot
from ralphproof.workspaces.checkout import Fresh, Source, check_out, object_folders
from ralphproof.workspaces.clean_kept import Kept

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from ralphproof.attested import Attested
    from ralphproof.sandbox import Command, Sandbox

SETUP_S = 3600.0


class Wishes(Protocol):
    """Tells whether somebody wants all of it to end. A byte on `wake_fd`, where there is one, says: ask now."""

    @property
    def wake_fd(self) -> int | None: ...

    def wish(self) -> str:
        """Why it should end; empty where nobody wants that."""

    def urgency(self) -> int:
        """As `Watch.tick`."""


class ThrowAway:
    """A folder for its owner alone. When it is left, however, nothing of it is there and nothing runs in it.

    A signal ends what runs and raises KeyboardInterrupt. In a process with other work, or another thread than the
    first one, `wishes` tell that instead. `commit` may be changed between two questions.
    """

    def __init__(
        self, root: str, commit: str, environ: Mapping[str, str], secrets: tuple[str, ...] = (),
        kind: str | None = None, wishes: Wishes | None = None, within: str | None = None, keeps: bool = False,
    ) -> None:  # fmt: skip
        """`kind` is that of the sandbox that commands run in; None is none. The folder is made `within` another one.

        One that `keeps` prepares what follows from the same manifests once, and lays copies of that into others.
        """
        self.commit = commit
        self._root, self._environ, self._secrets, self._kind = root, environ, secrets, kind
        self._wishes, self._within, self._keeps, self._asked = wishes, within, keeps, 0

    def __enter__(self) -> Self:
        import tempfile

        self._present = self._wishes or _listening()
        self._folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-verify-", dir=self._within))
        self._files = os.path.join(self._folder, "files")  # beside the tree: runners look upwards
        try:
            os.mkdir(self._files, 0o700)
            self._keeper = Keeper(self._secrets, wake_fd=self._present.wake_fd)
            self._keeper.stand_in = self._stand_in
        except BaseException:
            clear(self._folder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._keeper.close()
        finally:
            clear(self._folder)

    def ask(self, check: Attested, setup: tuple[str, ...], told: Callable[[str], None]) -> Finding:
        """What the check answers in a fresh checkout that was prepared so. A preparation that fails is the answer."""
        tree = self._fresh()
        if (failed := self._prepare(tree, setup, told)) is not None:
            return failed
        rule, command = check.rule, check.command or ""
        told(command)
        slug = f"{slugs((command,))[0]}_{self._next()}"
        question = Question(
            command, slug, check.name, timeout_s=rule.timeout_s, success_code=rule.success_code,
            contains=rule.contains, lacks=rule.lacks, folder=rule.folder,
        )  # fmt: skip
        return self._run(question, tree)

    def _prepare(self, tree: str, setup: tuple[str, ...], told: Callable[[str], None]) -> Finding | None:
        """What failed; nothing where the checkout is ready."""
        if not setup:
            return None
        kept = Kept(self._folder, setup, self._environ)
        fresh = Fresh(Source(self._root, self._environ), tree, self._environ)
        names = kept.names(fresh, self.commit) if self._keeps else ()
        if self._keeps and kept.put_back(fresh, names):
            return None
        for command in setup:
            told(command)
            prepared = self._run(Question(command, f"setup_{self._next()}", timeout_s=SETUP_S), tree)
            if not prepared.passed:
                return prepared
        if self._keeps:
            try:
                kept.keep(fresh, names)
            except HarnessFailed:
                pass  # it saves time, and is no part of what is asked
        return None

    def _next(self) -> int:
        self._asked += 1
        return self._asked

    def _fresh(self) -> str:
        """A new checkout at the same path: what an earlier one left would carry a pass, or spoil one."""
        tree = os.path.join(self._folder, "tree")
        clear(tree)
        self._heed()
        check_out(self._root, self.commit, tree, self._environ)
        self._heed()
        return tree

    def _run(self, question: Question, tree: str) -> Finding:
        files = RunFolder(self._files, os.path.basename(self._folder), self._files)
        env = check_environment(self._environ)
        check = CommandCheck(question, self._sandbox(tree, env), files, tree, env)
        nothing = Snapshot(None, None)
        finding = check.ask(Inspection(0, 1, "", nothing, Change()), self)
        self._heed()
        return finding

    def _sandbox(self, tree: str, env: tuple[tuple[str, str], ...]) -> Sandbox:
        if self._kind is None:
            return Direct(self._keeper)
        from ralphproof.cli.boxing import boxed
        from ralphproof.config.backends import chosen
        from ralphproof.config.boxes import Terrain

        borrowed = object_folders(Source(self._root, self._environ).folders)
        terrain = Terrain(tree, self._files, "", env, read_paths=borrowed)
        return boxed(self._keeper, chosen(self._kind, self._environ, tree), terrain)

    def _stand_in(self, _: Command) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """What is started if we die while a command runs: nobody wants its answer any more."""
        told = self._folder, str(self._keeper.pid)
        return interpreter.module("ralphproof.cli.verify_room", *told), self._environ

    def _heed(self) -> None:
        if self._present.wish():
            raise KeyboardInterrupt

    def output(self, chunk: bytes) -> None:
        """It is in the log."""

    def events(self, events: list[object]) -> None:
        """No model is asked."""

    def tick(self) -> int:
        """What somebody at the terminal wants."""
        return max(GO_ON, self._present.urgency())


def _listening() -> Present:
    present = Present(grace_s=0.0)
    present.listen()
    return present


def abandon(folder: str, keeper: int) -> None:
    """End what a keeper runs for a client that died, remove the folder, and end the keeper. It must be our parent.

    It is stopped first: it would end us with its command, and while it is there every orphan is below it.
    """
    if os.getppid() != keeper:  # it is gone, and whoever has us now, init say, is nobody to end
        return
    if not LINUX:  # nobody knows there who is below it: it ends what it can itself
        os.kill(keeper, signal.SIGQUIT)
        return
    os.kill(keeper, signal.SIGSTOP)
    others = (os.getpid(), keeper)
    end_all(lambda: [pid for pid in below(children(keeper)) if pid not in others and alive(pid, start_time(pid))])
    clear(folder)
    os.kill(keeper, signal.SIGKILL)


def main() -> None:
    """The stand-in's program: `FOLDER KEEPER`."""
    abandon(sys.argv[1], int(sys.argv[2]))
