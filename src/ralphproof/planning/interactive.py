"""Interactive planning: an agent session at the user's terminal, and checks of what it wrote.

What such a session costs is not known here: the agent's own program tells its user.
"""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import AgentUnusable, RalphError
from ralphproof.base.files import make_private_folder
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.display.output import ask_user
from ralphproof.engine.agent import TurnInput
from ralphproof.planning.prompt import prompt_of
from ralphproof.planning.result import SENT_BACK, Planned, first_of, outside
from ralphproof.planning.terminal import Terminal, interrupted
from ralphproof.process.tree import TURN_VARIABLE
from ralphproof.runs import assembly
from ralphproof.runs.open_project import ProjectLock
from ralphproof.store.locks import DirectoryLock
from ralphproof.views.snapshots import trees_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.engine.sandbox import Exit
    from ralphproof.planning.plan_files import Desk
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project

    Started = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]  # arguments and environment

UNKNOWN_WAY = (
    "agent {0}: how it takes a first prompt at a terminal is not known; say where that goes, as in "
    "--agent '{0} {{prompt_file}}' or '{0} {{prompt}}', or give the requirements: --from FILE"
)
UNTOUCHED = "Nothing was written in {}/. Start the agent again? (Y/n)"


class Talk:
    """One planning at the terminal, from the directory's lock to its end."""

    def __init__(self, order: RunSpec, desk: Desk, say: Callable[[str], None]) -> None:
        self._order, self._desk, self._say = order, desk, say
        self._agent, self._remarks = order.selected_agents[0].agent, list[str]()
        self._terminal = Terminal(order.loaded.settings.shutdown_grace_s)
        self._conversation, self._sent = "", 0
        self._started("", "", again=False)  # whether anybody knows how

    def hold(self) -> Planned:
        """Talk until the plan is valid, it was sent back too often, or somebody leaves."""
        project, desk = self._order.project, self._desk
        with ProjectLock(project, desk.id) as alone:
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
        marked = dict(env) | {TURN_VARIABLE: f"{desk.id}/agent_{name}"}
        left = self._terminal.play(argv, project.root, marked)
        if left.why == "unstartable":
            raise AgentUnusable(f"agent {self._agent.name}: {left.error}; name another with --agent")
        return left

    def _started(self, prompt: str, file: str, again: bool) -> Started:
        """How the agent is started with this prompt; raises AgentUnusable where nobody knows how."""
        import uuid

        self._conversation = self._conversation if again else str(uuid.uuid4())
        root, env, base = self._order.project.root, self._order.agent_env, os.path.join(self._desk.place, "agent")
        brief = TurnInput(prompt, file, root, env, base, "", self._desk.id, 0.0, session=self._conversation)
        attended: Callable[[TurnInput, bool], Started | None] | None = getattr(self._agent, "interactive_command", None)
        started = attended(brief, again) if attended else None
        if started is None:
            raise AgentUnusable(UNKNOWN_WAY.format(self._agent.name))
        return started


def _yes(question: str) -> bool:
    """Ask at the terminal; what was typed for somebody else is no answer."""
    import termios

    termios.tcflush(0, termios.TCIFLUSH)
    return ask_user(question).lower() in ("", "y", "yes")


class Surroundings:
    """The project around the plan, saved as it was at the beginning."""

    def __init__(self, project: Project, desk: Desk) -> None:
        private = trees_folder(project, DirectoryLock(project.state_dir, project.root, desk.id).path)
        make_private_folder(private)
        self._desk, self._workspace = desk, assembly.open_workspace(project.root, private, os.environ)

    def __enter__(self) -> Self:
        self._before = self._workspace.begin(self._desk.id)
        self._workspace.mark_iteration_start()
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
