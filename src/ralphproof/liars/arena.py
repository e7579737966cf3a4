"""Many trials at once: each a run of the program in a folder of its own, and none outlives whoever asked for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

from ralphproof.liars.stand import Ground
from ralphproof.liars.upshot import BROKEN, Upshot, upshot
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from ralphproof.liars.cheat import Trial
    from ralphproof.liars.stand import Stand

TRIAL_S = 180.0  # far beyond what any of them takes
AGAIN_S, PATIENCE_S = 1.0, 20.0  # until a run is told again that it is over, and until it is killed


class Arena:
    """Holds trials of a program in a folder, so many at a time."""

    def __init__(self, program: tuple[str, ...], folder: str) -> None:
        self._program, self._folder = program, folder
        self._ground = Ground(os.path.join(folder, "scenes"))
        self._live: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def hold(self, trials: tuple[Trial, ...], jobs: int) -> Generator[Upshot, None, None]:
        """The upshots as they come. Whoever stops asking ends what is under way."""
        with ThreadPoolExecutor(jobs) as pool:
            try:
                coming = [pool.submit(self._held, number, trial) for number, trial in enumerate(trials)]
                for one in as_completed(coming):
                    yield one.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()

    def _held(self, number: int, trial: Trial) -> Upshot:
        folder = os.path.join(self._folder, f"trial-{number}")
        try:
            stand = self._ground.stand(trial, folder)
            process = self._begun(stand)
            if process is None:
                return Upshot(trial, BROKEN, "it was ended before it began")
            try:
                out, err = process.communicate(timeout=TRIAL_S)
            except subprocess.TimeoutExpired:
                end([process])
                process.communicate()
                return Upshot(trial, BROKEN, f"it was not over after {TRIAL_S:g} s")
            finally:
                with self._lock:
                    self._live.discard(process)
            return upshot(trial, process.returncode, out, err)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _begun(self, stand: Stand) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._over:
                return None
            process = subprocess.Popen(
                [*self._program, *stand.argv], cwd=stand.cwd, env=dict(stand.env), text=True,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._live.add(process)
        return process

    def _end(self) -> None:
        """End what is under way."""
        with self._lock:
            self._over, live = True, tuple(self._live)
        end(live)


def end(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End these runs: one that is told twice ends its whole tree at once, and one that does not hear is killed."""
    alive = [process for process in processes if process.poll() is None]
    for pause_s in (AGAIN_S, PATIENCE_S):
        for process in alive:
            process.terminate()
        until = time.monotonic() + pause_s
        alive = [process for process in alive if not _over(process, until - time.monotonic())]
    for process in alive:
        process.kill()


def _over(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return False
    return True
