"""Planning with somebody at the terminal: the agent asks, the user answers, and what is written is checked.

What such a session costs is not known here: the agent's own program tells its user.
"""

from __future__ import annotations

import os
import sys

from ralphproof.agent import Brief
from ralphproof.cli.alone import Alone
from ralphproof.cli.out import ask
from ralphproof.cli.planning_prompt import prompt_of
from ralphproof.cli.planning_result import SENT_BACK, Planned, first_of, outside
from ralphproof.cli.planning_terminal import Terminal, interrupted
from ralphproof.config import build
from ralphproof.errors import AgentUnusable, RalphError
from ralphproof.keeper.tree import MARK
from ralphproof.ledgers.files import private_folder
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.kept import trees_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.cli.order import Order
    from ralphproof.cli.planning_desk import Desk
    from ralphproof.sandbox import Exit
    from ralphproof.views.project import Project

    Started = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]  # arguments and environment

UNKNOWN_WAY = (
    "agent {0}: how it takes a first prompt at a terminal is not known; say where that goes, as in "
    "--agent '{0} {{prompt_file}}' or '{0} {{prompt}}', or give the requirements: --from FILE"
)
UNTOUCHED = "Nothing was written in {}/. Start the agent again? (Y/n)"


class Talk:
    """One planning at the terminal, from the directory's lock to its end."""

    def __init__(self, order: Order, desk: Desk, say: Callable[[str], None]) -> None:
        self._order, self._desk, self._say = order, desk, say
        self._agent, self._remarks = order.crew[0].agent, list[str]()
        self._terminal = Terminal(order.loaded.settings.shutdown_grace_s)
        self._conversation, self._sent = "", 0
        self._started("", "", again=False)  # whether anybody knows how

    def hold(self) -> Planned:
        """Talk until the plan is valid, it was sent back too often, or somebody leaves."""
        project, desk = self._order.project, self._desk
        with Alone(project, desk.id) as alone:
            desk.refuse_others()
            for line in filter(None, (*alone.remarks, desk.keep())):
                self._say(line)
            with Surroundings(project, desk) as around:
                try:
                    planned = self._talked()
                except KeyboardInterrupt:  # at our own question, or between two sessions
                    planned = self._interrupted()
                told = dict.fromkeys((*self._remarks, *around.changed(), *planned.remarks))
        return replace(planned, remarks=tuple(told))

    def _talked(self) -> Planned:
        desk, again = self._desk, False
        wrong: tuple[str, ...] = ()
        while True:
            before = desk.signature()
            left = self._session(wrong, again)
            if interrupted(left):
                return self._interrupted()
            self._note(desk.hold())
            if not (wrong := desk.faults()):
                return Planned(0, self._sent, remarks=desk.remarks())
            untouched = desk.signature() == before
            if self._sent == SENT_BACK or (untouched and not self._goes_on(left, again)):
                return Planned(1, self._sent, wrong)
            self._sent += 1
            again = left.clean or not untouched  # a conversation that cannot be opened is left alone
            self._say(f"the plan is not valid yet, and is sent back ({self._sent} of {SENT_BACK}): {first_of(wrong)}")

    def _interrupted(self) -> Planned:
        """What the agent wrote stays, but nothing half-written."""
        self._note(self._desk.hold())
        self._note(self._desk.mend())
        return Planned(130, self._sent, self._desk.faults())

    def _goes_on(self, left: Exit, again: bool) -> bool:
        """Whether an agent that wrote nothing is started once more."""
        if left.clean:
            return _yes(UNTOUCHED.format(self._desk.folder))
        how = f"by signal {left.signal}" if left.signal else f"with exit code {left.code}"
        self._say(f"the agent ended {how}, and wrote nothing")
        return again

    def _note(self, told: str) -> None:
        if told:
            self._remarks.append(told)

    def _session(self, wrong: tuple[str, ...], again: bool) -> Exit:
        """One session of the agent in the user's terminal."""
        desk, project = self._desk, self._order.project
        prompt = project.mask(prompt_of(desk, attended=True, wrong=wrong))
        name = f"{self._sent + 1:03d}"
        file = desk.write(f"prompt_{name}.txt", prompt.encode("utf-8", "replace"))
        argv, env = self._started(prompt, file, again)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        marked = dict(env) | {MARK: f"{desk.id}/agent_{name}"}
        left = self._terminal.play(argv, project.root, marked)
        if left.why == "unstartable":
            raise AgentUnusable(f"agent {self._agent.name}: {left.error}; name another with --agent")
        return left

    def _started(self, prompt: str, file: str, again: bool) -> Started:
        """How the agent is started with this prompt; raises AgentUnusable where nobody knows how."""
        import uuid

        self._conversation = self._conversation if again else str(uuid.uuid4())
        root, env, base = self._order.project.root, self._order.env, os.path.join(self._desk.place, "agent")
        brief = Brief(prompt, file, root, env, base, "", self._desk.id, 0.0, session=self._conversation)
        attended: Callable[[Brief, bool], Started | None] | None = getattr(self._agent, "attended", None)
        started = attended(brief, again) if attended else None
        if started is None:
            raise AgentUnusable(UNKNOWN_WAY.format(self._agent.name))
        return started


def _yes(question: str) -> bool:
    """Ask at the terminal; what was typed for somebody else is no answer."""
    import termios

    termios.tcflush(0, termios.TCIFLUSH)
    return ask(question).lower() in ("", "y", "yes")


class Surroundings:
    """The project around the plan, saved as it was at the beginning."""

    def __init__(self, project: Project, desk: Desk) -> None:
        private = trees_folder(project, DirectoryLock(project.state_dir, project.root, desk.id).path)
        private_folder(private)
        self._desk, self._workspace = desk, build.workspace_of(project.root, private, os.environ)

    def __enter__(self) -> Self:
        self._before = self._workspace.begin(self._desk.id)
        self._workspace.mark()
        return self

    def __exit__(self, *_: object) -> None:
        self._workspace.close()

    def changed(self) -> list[str]:
        """What was changed since, beside the plan."""
        try:
            now = self._workspace.save(self._desk.id, "1")
            return outside(self._workspace.change(self._before, now), self._desk.folder)
        except RalphError as error:
            return [f"whether anything was changed outside {self._desk.folder}/ cannot be told: {error}"]
