"""Settings written by `ralph init`: proposals, questions, presets."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ralphproof.agents.command import split_command
from ralphproof.agents.selection import find_installed_agent, warn_about_command
from ralphproof.base.errors import AgentUnusable, Refused, SettingsWrong
from ralphproof.base.files import create_file, explain_os_error, open_subfolder, read_file_start, write_atomically
from ralphproof.base.value import Json
from ralphproof.checks.discovery import discover_checks
from ralphproof.display.output import ask_user, confirm, print_lines
from ralphproof.runs.open_project import ProjectLock, open_project, view_project
from ralphproof.sandbox.plan import Backend
from ralphproof.sandbox.selection import AUTO, choose_backend
from ralphproof.settings.declarations import Settings
from ralphproof.settings.layers import SettingsLayer, merge_layers
from ralphproof.settings.loader import json_lines, mask_settings, read_preset, read_settings_files
from ralphproof.settings.validation import validate_layer
from ralphproof.store.run_folder import GITIGNORE_TEXT
from ralphproof.store.statistics import RunEstimate, describe_estimate, estimate_run
from ralphproof.stories import story_folder
from ralphproof.stories.files import MARKER
from ralphproof.stories.story_folder import (
    FILES,
    TASKS,
    folder_flags,
    gitignore_with_marker,
    open_folder,
    stat_name,
    stories_folder,
    write_gitignore,
)

MAX_FILE_BYTES = 1 << 24  # read of an existing file


class StoriesFolderLayout:
    """The files of a stories folder to be created; an impossible one is refused at once, before anything is written.

    `found` has the checks that the project's files name: they become the verify commands.
    """

    def __init__(
        self, root: str, name: str | None, folder: str | None, force: bool, environ: Mapping[str, str]
    ) -> None:
        self._root, self._force, self._environ = root, force, environ
        self._folder = stories_folder(root, folder)
        self._refuse_irregular_files()
        self._refuse_unused_name(name)
        self.found = discover_checks(root, environ)
        self._rule = gitignore_with_marker(root, environ)
        verify = [proposal.command for proposal in self.found.proposals]
        branch = story_folder.branch_name(name) if name is not None else ""
        project = story_folder.project_name(root, name)
        self._texts = story_folder.scaffold_files(project, verify, time.strftime("%Y-%m-%d"), branch)
        self._written: list[str] = []
        self._kept: list[str] = []
        self._asides: dict[str, str] = {}

    def write(self, before: Callable[[], None], refuse: str = "") -> None:
        """Write missing files; with force also existing ones, whose old content is kept under another name.

        `before` is called first; if it fails, nothing is written. If there is nothing to write, a non-empty `refuse`
        is raised as the reason.
        """
        here = [name for name in FILES if os.path.lexists(os.path.join(self._root, self._folder, name))]
        if refuse and len(here) == len(FILES) and self._rule is None:
            raise Refused(f"{refuse}; overwrite them with --force")
        if here and self._force:
            self._write_locked(before)
        else:
            before()
            self._write_files()

    def _write_locked(self, before: Callable[[], None]) -> None:
        """Overwrite stories only while no loop works on them."""
        with ProjectLock(open_project(self._root, self._environ), "init"):
            before()
            self._write_files()

    def _write_files(self) -> None:
        try:
            folder = open_folder(self._root, self._folder, make=True)
            try:
                for name, data in self._texts.items():
                    self._write_file(folder, name, data)
            finally:
                os.close(folder)
        except OSError as error:
            raise explain_os_error(error, os.path.join(self._root, self._folder), story_folder.REMEDY) from error
        if self._rule is not None:
            write_gitignore(self._root, self._rule)

    def _write_file(self, folder: int, name: str, data: bytes) -> None:
        if self._force:
            self._set_aside(folder, name)
            write_atomically(folder, name, data, private=False)
        elif not create_file(folder, name, data):
            self._kept.append(self._path(name))
            return
        self._written.append(self._path(name))

    def _set_aside(self, folder: int, name: str) -> None:
        """Rename an edited file to NAME.before-init."""
        if not stat_name(folder, name) or story_folder.is_unedited_template(
            name, read_file_start(folder, name, MAX_FILE_BYTES) or b""
        ):
            return
        aside, number = f"{name}.before-init", 1
        while stat_name(folder, aside):
            number += 1
            aside = f"{name}.before-init-{number}"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        self._asides[self._path(name)] = self._path(aside)

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _refuse_irregular_files(self) -> None:
        """Refuse anything but regular files, or without force links inside the project, at these paths."""
        for name in FILES:
            path = os.path.join(self._root, self._folder, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            except NotADirectoryError as error:
                raise Refused(f"{self._folder} is no folder; {story_folder.REMEDY}. Nothing was changed") from error
            if stat.S_ISREG(mode):
                continue
            inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(self._root), ""))
            if not stat.S_ISLNK(mode) or self._force or not inside:
                raise Refused(f"{self._path(name)} is no file of its own; move it away. Nothing was changed")

    def _refuse_unused_name(self, name: str | None) -> None:
        """Refuse --name if tasks.json exists: nothing else would contain it."""
        if name is not None and not self._force and os.path.lexists(os.path.join(self._root, self._path(TASKS))):
            raise Refused(f"{self._path(TASKS)} exists; --name changes nothing there")

    def as_json(self) -> dict[str, Json]:
        return {
            "folder": self._folder,
            "written": [*self._written],
            "kept": [*self._kept],
            "setAside": {**self._asides},
            "ignored": self._rule is not None,
            "verifyCommands": [proposal.command for proposal in self.found.proposals],
        }

    def lines(self, preset: str) -> Iterator[str]:
        """Lines for the user: what was written, and the next commands for the configured preset."""
        if self._written:
            yield f"Stories created: {', '.join(self._written)}"
        yield from (f"Set aside: {path} is now {aside}" for path, aside in self._asides.items())
        yield from (f"Kept existing {path}" for path in self._kept)
        if self._rule is not None:
            yield f"{MARKER} was added to .gitignore"
        flags = folder_flags(self._folder)
        preset_flag = "" if preset == "stories" else " --preset stories"
        if preset_flag:
            yield f'Note: the settings name the preset {preset}; "preset": "stories" there makes it the usual one'
        yield "Next:"
        by_hand = f"or write {self._path(story_folder.PRD)} and {self._path(story_folder.TASKS)} yourself"
        yield f"  ralph plan{flags}    (with an agent; {by_hand})"
        yield f"  ralph run{preset_flag}{flags}"


# Settings written by `ralph init`: proposals, questions, presets.


AGENT_QUESTION = "Agent command (e.g., claude, codex, amp, or other LLM CLI)"
FLAGS_QUESTION = "Agent flags (comma-separated, optional)"
ITERATIONS_QUESTION = "Maximum iterations"
RESPONSE_QUESTION = "Completion response"
GUARDRAIL_QUESTION = "Add guardrail command (leave blank to finish)"
ACTION_QUESTION = "  Fail action (APPEND|PREPEND|REPLACE)"
HINT_QUESTION = "  Hint (optional, guidance for agent on failure)"
SCM_COMMAND_QUESTION = "  SCM command (e.g., git)"
SCM_TASKS_QUESTION = "  SCM tasks (comma-separated, e.g., commit,push)"
FAIL_ACTIONS = ("APPEND", "PREPEND", "REPLACE")


def build_settings(
    agent: dict[str, Any], iterations: int, response: str, guardrails: list[dict[str, str]], declined: bool = False
) -> Any:
    """The content of a settings file without optional keys.

    An empty list of guardrails is written only if the user `declined` the offered ones: without the key a run detects
    its checks.
    """
    settings = {
        "maximumIterations": iterations,
        "completionResponse": response,
        "outputTruncateChars": 5000,
        "streamAgentOutput": True,
        "includeIterationCountInPrompt": False,
        "agent": agent,
    }
    return settings | ({"guardrails": guardrails} if guardrails or declined else {})


def ask_all_settings(agent: str | None, checks: Sequence[str], default_response: str, default_iterations: int) -> Any:
    """Ask for all settings; a given `agent` is not asked for, and detected `checks` are listed before the guardrails.

    Raises KeyboardInterrupt at the end of input.
    """
    command = agent or _ask_agent()
    flags = _split_commas(ask_user(FLAGS_QUESTION))
    iterations = _ask_iterations(default_iterations)
    response = ask_user(f"{RESPONSE_QUESTION} [{default_response}]") or default_response
    if checks:
        print_lines(f"Checks this project names: {', '.join(checks)}")
    settings = build_settings(
        {"command": command, "flags": flags}, iterations, response, list(_ask_guardrails()), bool(checks)
    )
    if confirm("Configure SCM?"):
        settings["scm"] = {"command": _ask_required(SCM_COMMAND_QUESTION), "tasks": _ask_scm_tasks()}
    return settings


def _ask_required(question: str) -> str:
    while not (answer := ask_user(question)):
        pass
    return answer


def _ask_agent() -> str:
    while True:
        answer = _ask_required(AGENT_QUESTION)
        try:
            split_command(answer, ())
        except (ValueError, AgentUnusable):
            print_lines("A quote in it is not closed.")
        else:
            return answer


def _ask_iterations(default: int) -> int:
    while answer := ask_user(f"{ITERATIONS_QUESTION} [{default}]"):
        if answer.isascii() and answer.isdigit() and len(answer) < 10 and int(answer) > 0:
            return int(answer)
        print_lines("A whole number above zero, please.")
    return default


def _ask_guardrails() -> Iterator[dict[str, str]]:
    while command := ask_user(GUARDRAIL_QUESTION):
        guardrail = {"command": command, "failAction": _ask_fail_action()}
        hint = ask_user(HINT_QUESTION)
        yield guardrail | ({"hint": hint} if hint else {})


def _ask_fail_action() -> str:
    while (answer := ask_user(ACTION_QUESTION).upper()) not in FAIL_ACTIONS:
        print_lines("  One of APPEND, PREPEND and REPLACE, please.")
    return answer


def _ask_scm_tasks() -> list[str]:
    while not (tasks := _split_commas(ask_user(SCM_TASKS_QUESTION))):
        pass
    return tasks


def _split_commas(answer: str) -> list[str]:
    return [part.strip() for part in answer.split(",") if part.strip()]


SETTINGS_FILE = ".ralph/settings.json"
STORIES_PRESET = "stories"
WRAPPER_COST_USD = 5.0  # cost limit without past runs to estimate from


def configured_preset(root: str) -> str:
    """The preset in the settings, even if they are invalid otherwise."""
    layers = [
        SettingsLayer(file.name, file.data)
        for file in read_settings_files(root, os.environ)
        if isinstance(file.data, dict)
    ]
    return str(merge_layers((), layers).raw.get("preset", "harness"))


def agent_notes(command: str) -> Iterator[str]:
    """Notes about an agent command before its first run."""
    try:
        remark = warn_about_command(command)
    except AgentUnusable as error:
        remark = str(error)
    if remark:
        yield f"Note: {remark}"


def propose_settings(
    root: str, agent: str | None, preset: str | None, silent: bool, stories: StoriesFolderLayout | None
) -> Any:
    """Settings from the detected agent and checks, which are printed. Checks of stories go into tasks.json instead."""
    chosen = agent or find_installed_agent(os.environ, root)
    if chosen is None:
        raise Refused("no known agent with a guard is on PATH; name yours with --agent")
    found = stories.found if stories is not None else discover_checks(root)
    if not silent:
        _print_project_root(root)
        print_lines(f"Agent: {chosen}" + ("" if agent else " (found on PATH)"))
        print_lines(*(f"Check: {item.command} ({item.source})" for item in found.proposals), *found.notes)
        if not found.proposals:
            hint = "each run looks again" if stories is None else "name them in verifyCommands of tasks.json"
            print_lines(f"Checks: none found; {hint}; without one the agent's word alone ends it")

        print_sandbox_hint(root, needed=stories is not None)
    guardrails = (
        [] if stories is not None else [{"command": one.command, "failAction": "APPEND"} for one in found.proposals]
    )
    response, iterations = _preset_defaults(preset)
    settings = build_settings({"command": chosen, "flags": []}, iterations, response, guardrails)
    return _add_preset(settings, preset, silent, root)


def _preset_defaults(preset: str | None) -> tuple[str, int]:
    """The completion word and the number of iterations of a preset."""
    usual = Settings()
    own = read_preset(preset or usual.preset)["settings"]
    return (
        own.get("completionResponse") or usual.completion_response,
        own.get("maximumIterations") or usual.maximum_iterations,
    )


def ask_settings(root: str, agent: str | None, preset: str | None, stories: StoriesFolderLayout | None) -> Any:
    _print_project_root(root)
    if not agent and (found := find_installed_agent(os.environ, root)):
        print_lines(f"Found on PATH: {found}")
    if stories is not None and (names := [one.command for one in stories.found.proposals]):
        print_lines(f"Checks this project names, for the stories: {', '.join(names)}")
    print_lines("")
    checks = [] if stories is not None else [item.command for item in discover_checks(root).proposals]
    response, iterations = _preset_defaults(preset)
    settings = _add_preset(ask_all_settings(agent, checks, response, iterations), preset, False, root)

    return ask_sandbox(settings, root)


def _print_project_root(root: str) -> None:
    """Print the project root if the current folder is below it."""
    if root != os.path.realpath(os.getcwd()):
        print_lines(f"Project: {root}")


def _add_preset(settings: Any, preset: str | None, silent: bool, root: str) -> Any:
    """Add the preset, and for the wrapper a cost limit estimated from past runs."""
    estimate = _load_expectation(root)
    if estimate is not None and not silent:
        print_lines(describe_estimate(estimate))
    if preset is None:
        return settings
    with_preset = {"preset": preset, **settings}
    if preset == "wrapper":  # it requires a cost limit
        cost = (
            estimate.cost.limit / 1_000_000 if estimate is not None and estimate.cost is not None else WRAPPER_COST_USD
        )
        with_preset["limits"] = {"maxCostUsd": cost}
    return with_preset


def _load_expectation(root: str) -> RunEstimate | None:
    ledger = view_project(root, os.environ).ledger()
    try:
        return estimate_run(ledger.past_runs())
    finally:
        ledger.close()


def confirm_overwrite(root: str) -> bool:
    """Show the current settings, and ask whether to overwrite them."""
    files = [file for file in read_settings_files(root, os.environ)[1:] if file.digest]
    layers = [SettingsLayer(file.name, file.data) for file in files if isinstance(file.data, dict)]
    print_lines(*json_lines(mask_settings(merge_layers((), layers).raw)))
    print_lines(*(str(fault) for file in files for fault in file.faults))
    overlay = " (with local overlay from settings.local.json)" if len(files) > 1 else ""
    print_lines(f"Loaded from {SETTINGS_FILE}{overlay}")
    return confirm("Overwrite?")


def validate_settings(settings: Any) -> None:
    if problems := validate_layer(settings, "these answers"):
        raise SettingsWrong([f"{problem}; nothing was written" for problem in problems])


def write_settings(root: str, settings: Any) -> None:
    """Write the settings atomically, and .ralph/.gitignore if it is missing."""
    data = json.dumps(settings, indent=2, ensure_ascii=False).encode() + b"\n"
    if os.path.isdir(os.path.join(root, SETTINGS_FILE)):
        raise Refused(f"{os.path.join(root, SETTINGS_FILE)} is a directory; move it away. Nothing was changed")
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            folder, _ = open_subfolder(top, ".ralph")
        finally:
            os.close(top)
        try:
            if not os.path.lexists(os.path.join(root, ".ralph", ".gitignore")):
                write_atomically(folder, ".gitignore", GITIGNORE_TEXT.encode(), private=False)
            write_atomically(folder, "settings.json", data, private=False)
        finally:
            os.close(folder)
    except OSError as error:
        raise Refused(
            f"cannot write {os.path.join(root, SETTINGS_FILE)}: {error.strerror}; nothing was changed"
        ) from error


SANDBOX_QUESTION = "Run agents and checks in a sandbox ({}, strong)?"
SANDBOX_HINT = "Sandbox: {} ({}) holds here; ralph run --sandbox uses it"
NO_SANDBOX_NOTE = "Sandbox: none holds here (ralph doctor says why); a run by stories asks for one, or for --no-sandbox"


def strongest_backend(root: str) -> Backend | None:
    """The backend that `--sandbox` would choose here; None if none works."""
    try:
        return choose_backend(AUTO, os.environ, root)
    except Refused:
        return None


def ask_sandbox(settings: Any, root: str) -> Any:
    """Ask whether to use a sandbox, if a strong one works here, and add the answer."""
    backend = strongest_backend(root)
    if backend is None or backend.strength != "strong":
        return settings
    return {**settings, "sandbox": {"backend": "auto" if confirm(SANDBOX_QUESTION.format(backend.name)) else None}}


def print_sandbox_hint(root: str, needed: bool) -> None:
    """Print which sandbox works here; if none does, only if runs need one."""
    backend = strongest_backend(root)
    if backend is not None:
        print_lines(SANDBOX_HINT.format(backend.name, backend.strength))
    elif needed:
        print_lines(NO_SANDBOX_NOTE)
