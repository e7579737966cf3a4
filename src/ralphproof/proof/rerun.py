"""Re-running checks in disposable checkouts.

Also a program, which cleans up after a verifier that died.
"""

from __future__ import annotations

import os
import signal
import sys

from ralphproof.agents.environment import check_environment
from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed
from ralphproof.base.text import unique_slugs
from ralphproof.base.value import TYPE_CHECKING, Protocol
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.sandbox import CONTINUE
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock
from ralphproof.process.tree import LINUX, child_pids, is_alive, kill_until_gone, start_time, with_descendants
from ralphproof.sandbox.plan import remove_temp_folder
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder
from ralphproof.workspace.checkouts import (
    CheckoutRepository,
    DependencyCache,
    SourceRepository,
    check_out,
    object_folders,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from ralphproof.engine.sandbox import Command, Sandbox
    from ralphproof.store.landings import AttestedCheck

SETUP_TIMEOUT_S = 3600.0


class StopRequests(Protocol):
    """Requests to stop. A byte on `wake_fd`, where there is one, means: ask now."""

    @property
    def wake_fd(self) -> int | None: ...

    def stop_reason(self) -> str:
        """Why it should stop; empty without a request."""

    def stop_level(self) -> int:
        """As `Watch.tick`."""


class DisposableCheckout:
    """A temporary folder for checkouts. On exit everything in it is removed, and nothing runs in it.

    A signal ends what runs and raises KeyboardInterrupt; in a process with other work, or another thread than the main
    one, stop requests are asked instead. `commit` may be changed between two checks.
    """

    def __init__(
        self, root: str, commit: str, environ: Mapping[str, str], secrets: tuple[str, ...] = (),
        kind: str | None = None, wishes: StopRequests | None = None, within: str | None = None, keeps: bool = False,
    ) -> None:  # fmt: skip
        """`kind` is the kind of sandbox; None is none. The folder is created `within` another one.

        With `keeps`, what setup commands install is cached by the manifests it follows from, and copied into later
        checkouts.
        """
        self.commit = commit
        self._root, self._environ, self._secrets, self._kind = root, environ, secrets, kind
        self._wishes, self._within, self._keeps, self._asked = wishes, within, keeps, 0

    def __enter__(self) -> Self:
        import tempfile

        self._present = self._wishes or _listen_for_signals()
        self._folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-verify-", dir=self._within))
        self._files = os.path.join(self._folder, "files")  # beside the tree: runners look upwards
        try:
            os.mkdir(self._files, 0o700)
            self._keeper = KeeperClient(self._secrets, wake_fd=self._present.wake_fd)
            self._keeper.options.stand_in = self._stand_in
        except BaseException:
            remove_temp_folder(self._folder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._keeper.close()
        finally:
            remove_temp_folder(self._folder)

    def ask(self, check: AttestedCheck, setup: tuple[str, ...], on_command: Callable[[str], None]) -> Finding:
        """Run a check in a fresh checkout after the setup commands. A setup command that fails is the result."""
        tree = self._fresh()
        if (failed := self._prepare(tree, setup, on_command)) is not None:
            return failed
        rule, command = check.rule, check.command or ""
        on_command(command)
        slug = f"{unique_slugs((command,))[0]}_{self._next()}"
        spec = CommandCheckSpec(
            command, slug, check.name, timeout_s=rule.timeout_s, success_code=rule.success_code,
            contains=rule.contains, lacks=rule.lacks, folder=rule.folder,
        )  # fmt: skip
        return self._run(spec, tree)

    def _prepare(self, tree: str, setup: tuple[str, ...], on_command: Callable[[str], None]) -> Finding | None:
        """The failed setup command; None where the checkout is ready."""
        if not setup:
            return None
        cache = DependencyCache(self._folder, setup, self._environ)
        checkout = CheckoutRepository(SourceRepository(self._root, self._environ), tree, self._environ)
        names = cache.entry_names(checkout, self.commit) if self._keeps else ()
        if self._keeps and cache.restore(checkout, names):
            return None
        for command in setup:
            on_command(command)
            prepared = self._run(CommandCheckSpec(command, f"setup_{self._next()}", timeout_s=SETUP_TIMEOUT_S), tree)
            if not prepared.passed:
                return prepared
        if self._keeps:
            try:
                cache.save(checkout, names)
            except HarnessFailed:
                pass  # it saves time, and is no part of what is asked
        return None

    def _next(self) -> int:
        self._asked += 1
        return self._asked

    def _fresh(self) -> str:
        """A new checkout at the same path: files of an earlier one could change the result."""
        tree = os.path.join(self._folder, "tree")
        remove_temp_folder(tree)
        self._heed()
        check_out(self._root, self.commit, tree, self._environ)
        self._heed()
        return tree

    def _run(self, spec: CommandCheckSpec, tree: str) -> Finding:
        files = RunFolder(self._files, os.path.basename(self._folder), self._files)
        env = check_environment(self._environ)
        check = CommandCheck(spec, self._sandbox(tree, env), files, tree, env)
        nothing = Snapshot(None, None)
        finding = check.run(Inspection(0, 1, "", nothing, Change()), self)
        self._heed()
        return finding

    def _sandbox(self, tree: str, env: tuple[tuple[str, str], ...]) -> Sandbox:
        if self._kind is None:
            return DirectRunner(self._keeper)
        from ralphproof.sandbox.planner import SandboxConfig
        from ralphproof.sandbox.selection import choose_backend, wrap_in_sandbox

        borrowed = object_folders(SourceRepository(self._root, self._environ).folders)
        config = SandboxConfig(tree, self._files, "", env, read_paths=borrowed)
        return wrap_in_sandbox(self._keeper, choose_backend(self._kind, self._environ, tree), config)

    def _stand_in(self, _: Command) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The program that cleans up if we die while a command runs."""
        arguments = self._folder, str(self._keeper.pid)
        return interpreter.module_command("ralphproof.proof.rerun", *arguments), self._environ

    def _heed(self) -> None:
        if self._present.stop_reason():
            raise KeyboardInterrupt

    def output(self, chunk: bytes) -> None:
        """Not used: the log has it."""

    def events(self, events: list[object]) -> None:
        """Not used: no agent runs."""

    def tick(self) -> int:
        """Pass a stop request on."""
        return max(CONTINUE, self._present.stop_level())


def _listen_for_signals() -> RunClock:
    present = RunClock(grace_s=0.0)
    present.listen()
    return present


def end_abandoned(folder: str, keeper: int) -> None:
    """End what a keeper runs for a dead client, remove the folder, and end the keeper, which must be our parent.

    The keeper is stopped first: it would end us with its command, and while it exists every orphan is below it.
    """
    if os.getppid() != keeper:  # it is gone, and whoever has us now, init say, is nobody to end
        return
    if not LINUX:  # nobody knows there who is below it: it ends what it can itself
        os.kill(keeper, signal.SIGQUIT)
        return
    os.kill(keeper, signal.SIGSTOP)
    others = (os.getpid(), keeper)
    kill_until_gone(
        lambda: [
            pid for pid in with_descendants(child_pids(keeper)) if pid not in others and is_alive(pid, start_time(pid))
        ]
    )
    remove_temp_folder(folder)
    os.kill(keeper, signal.SIGKILL)


def main() -> None:
    """The clean-up program; arguments: `FOLDER KEEPER`."""
    end_abandoned(sys.argv[1], int(sys.argv[2]))
