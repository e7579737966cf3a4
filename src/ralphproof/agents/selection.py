"""Selection of the agents of a run, of its stages and of its judges, and lookup of their programs."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    COST_REPORTED,
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    AgentTraits,
)
from ralphproof.agents.cli_agent import CliAgent
from ralphproof.agents.command import CommandAgent, ScriptedAgent, has_prompt_placeholder, split_command
from ralphproof.agents.cost import build_price_list
from ralphproof.agents.provider import ProviderAgent
from ralphproof.base.errors import AgentUnusable, Refused
from ralphproof.base.programs import find_program
from ralphproof.base.value import replace, value
from ralphproof.engine.agent import Agent, TurnInput
from ralphproof.engine.plan import SemanticVerification
from ralphproof.settings.declarations import AgentSettings, PriceSettings, Settings
from ralphproof.settings.implementations import BUILTIN, is_registered, resolve_implementation

KNOWN_AGENTS = tuple(BUILTIN["agents"])
UNGUARDED, AS_GIVEN, IN_SANDBOX, NO_TOOLS = "unguarded", "as given", "in the sandbox", "no tools"
NAME_ANOTHER_AGENT = "name another with --agent"
NO_GUARD_MODE = "has no mode that asks nothing and still limits what it does"
EMPTY_TURN = TurnInput("", "", "/", (), "", "", "", 0.0)  # for the arguments of a turn that is not taken


@value
class SelectedAgent:
    """An agent of a run, and what is known of it before it starts. `cost` is one of the COST constants.

    `permissions` is `guarded (MODE)`, `in the sandbox`, `unguarded`, `no tools` for one that only answers questions, or
    `as given` where the user's flags decide or nothing is known; `deciding_flag` is the flag that decides. `model` is
    the one that it will use, where that is known.
    """

    agent: Agent
    program: str
    permissions: str
    cost: str
    model: str | None = None
    deciding_flag: str = ""
    counts_tokens: bool | None = None  # where that does not follow from `cost`

    @property
    def reports_tokens(self) -> bool:
        """Whether a token limit can be enforced."""
        return self.cost != COST_UNKNOWN if self.counts_tokens is None else self.counts_tokens


@value
class SelectionTerms:
    """What applies to every agent of a run: where programs are looked up, whether guards stay on, the user's prices.

    With `sandboxed` the sandbox replaces the agent's own guard.
    """

    root: str
    path: str
    guarded: bool
    prices: tuple[tuple[str, PriceSettings], ...]
    sandboxed: bool = False


def find_installed_agent(environ: Mapping[str, str], root: str) -> str | None:
    """The first known agent on PATH that has a guard. Programs inside the project do not count."""
    path = environ.get("PATH", "")
    return next(
        (name for name in KNOWN_AGENTS if find_program(name, path, outside=root) and load_adapter(name).guard), None
    )


def warn_about_command(command: str) -> str:
    """A warning about a command line that is configured as the agent; empty without one."""
    argv = split_command(command, ())
    name = os.path.basename(argv[0])
    if name not in KNOWN_AGENTS or has_prompt_placeholder(argv) or load_adapter(name).guard:
        return ""
    return f"agent {name} {NO_GUARD_MODE}: ralph run needs --sandbox or --no-sandbox for it"


@value
class AgentSlot:
    """One entry of the agent settings: a command line, its flags and model, and the setting that names it."""

    command: str | None
    flags: tuple[str, ...] = ()
    model: str | None = None
    setting: str = ""


def select_agents(
    settings: Settings, root: str, environ: Mapping[str, str], guarded: bool = True, sandboxed: bool = False
) -> tuple[SelectedAgent, ...]:
    """All agents of a run in order, with their programs; raises AgentUnusable naming one that cannot be used."""
    terms = SelectionTerms(root, environ.get("PATH", os.defpath), guarded, settings.prices, sandboxed)
    return tuple(fill_slot(slot, terms) for slot in agent_slots(settings.agent, root, terms.path))


def select_custom_agent(agent: Agent) -> SelectedAgent:
    """An agent object that the caller provides."""
    return SelectedAgent(agent, "", AS_GIVEN, COST_REPORTED if agent.reports_cost else COST_UNKNOWN)


def transcript_reader(name: str) -> Agent:
    """An agent of this name that only parses transcripts; raises AgentUnusable where there is none."""
    if name == "scripted":
        return _select_scripted((name, os.devnull), "/").agent
    if not is_registered("agents", name):
        return CommandAgent((name,))
    return _select_cli_agent(load_adapter(name), (name,), None, SelectionTerms("/", "", guarded=False, prices=())).agent


def select_program(argv: tuple[str, ...], root: str, environ: Mapping[str, str]) -> SelectedAgent:
    """A program that is started as given, whatever its name; raises AgentUnusable where it is not found."""
    if argv[0] == "scripted":
        return _select_scripted(argv, root)
    found = resolve_program(argv, root, environ.get("PATH", os.defpath), "name another behind --")
    return SelectedAgent(CommandAgent(found, takes_prompt=False), found[0], AS_GIVEN, COST_UNKNOWN)


def agent_slots(own: AgentSettings, root: str, path: str) -> tuple[AgentSlot, ...]:
    """The agent, or the models of its ladder, or its rotation; then the fallbacks."""
    slots = [AgentSlot(own.command, own.flags, own.model)]
    if own.ladder:
        slots = [AgentSlot(own.command, own.flags, model, f"agent.ladder[{n}]") for n, model in enumerate(own.ladder)]
    if own.rotate:
        slots = [
            AgentSlot(text, setting=setting)
            if _is_agent(text, root, path)
            else AgentSlot(own.command, own.flags, text, setting)
            for setting, text in ((f"agent.rotate[{n}]", text) for n, text in enumerate(own.rotate))
        ]
    return (*slots, *(AgentSlot(text, setting=f"agent.fallbacks[{n}]") for n, text in enumerate(own.fallbacks)))


def _is_agent(text: str, root: str, path: str) -> bool:
    """Whether a text names an agent; otherwise it is a model name, which may contain slashes and colons."""
    program = split_command(text, (), root)[0]
    if program == "scripted" or program.startswith((".", "/")) or ("." in program.partition(":")[0] and ":" in program):
        return True
    return is_registered("agents", program) or find_program(program, path) is not None


def find_agent_problems(settings: Settings, root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Why configured agents cannot be used, as far as can be known without importing foreign code."""
    path = environ.get("PATH", os.defpath)
    problems: list[str] = []
    for slot in agent_slots(settings.agent, root, path):
        try:
            if slot.command is not None:
                _check_agent(split_command(slot.command, slot.flags, root), slot.model, root, path)
        except Refused as error:
            problems.append(str(error))
    return tuple(problems)


def _check_agent(argv: tuple[str, ...], model: str | None, root: str, path: str) -> None:
    if argv[0] == "scripted" or _is_import_path(argv[0]):
        return
    resolve_program(argv, root, path)
    name = os.path.basename(argv[0])
    if name in KNOWN_AGENTS:
        load_adapter(name)
    elif not is_registered("agents", name):
        _refuse_model(name, model)


def _is_import_path(word: str) -> bool:
    return ":" in word and "/" not in word


def fill_slot(slot: AgentSlot, terms: SelectionTerms) -> SelectedAgent:
    """The agent of this slot with its program; raises AgentUnusable naming the setting."""
    if slot.command is None:
        raise AgentUnusable("no agent is configured, and no known one with a guard is on PATH; name one: --agent")
    try:
        return _select_agent(split_command(slot.command, slot.flags, terms.root), slot.model, terms)
    except Refused as error:
        if not slot.setting:
            raise
        raise AgentUnusable(f"{slot.setting}: {error}") from error


def _select_agent(argv: tuple[str, ...], model: str | None, terms: SelectionTerms) -> SelectedAgent:
    if argv[0] == "scripted":
        return _select_scripted(argv, terms.root)
    if _is_import_path(argv[0]):
        adapter = load_adapter(argv[0])
        return _select_cli_agent(
            adapter, resolve_program((adapter.name, *argv[1:]), terms.root, terms.path), model, terms
        )
    found, name = resolve_program(argv, terms.root, terms.path), os.path.basename(argv[0])
    if is_registered("agents", name) and not has_prompt_placeholder(argv):
        return _select_cli_agent(load_adapter(name), found, model, terms)
    _refuse_model(name, model)
    return SelectedAgent(CommandAgent(found), found[0], AS_GIVEN, COST_UNKNOWN)


def _refuse_model(name: str, model: str | None) -> None:
    if model is not None:
        raise AgentUnusable(f"agent {name}: how to give it a model is not known; put its flag in agent.flags")


def _select_scripted(argv: tuple[str, ...], root: str) -> SelectedAgent:
    if len(argv) != 2:
        raise Refused("the scripted agent needs one argument, its script: --agent 'scripted SCRIPT.json'")
    script = os.path.join(root, argv[1])
    return SelectedAgent(ScriptedAgent(script), script, AS_GIVEN, COST_REPORTED)


def _select_cli_agent(
    adapter: AgentAdapter, argv: tuple[str, ...], model: str | None, terms: SelectionTerms
) -> SelectedAgent:
    program, flags = argv[0], argv[1:]
    guarded = terms.guarded and not terms.sandboxed
    if guarded and not adapter.guard:
        raise AgentUnusable(
            f"agent {adapter.name} {NO_GUARD_MODE}; --sandbox limits it, --no-sandbox lets it do all that you may"
        )
    agent = CliAgent(adapter, program, flags, model=model, guarded=guarded, cost=build_price_list(terms.prices).cost)
    permissions = IN_SANDBOX if terms.sandboxed else _permissions(adapter, flags, guarded)
    deciding_flag = _find_deciding_flag(adapter, flags) if permissions == AS_GIVEN else ""
    return SelectedAgent(
        agent, program, permissions, adapter.cost, adapter.model(flags, model), deciding_flag, adapter.counts_tokens
    )


def _permissions(adapter: AgentAdapter, flags: tuple[str, ...], guarded: bool) -> str:
    """The permissions of an agent: by our arguments, unless the user's flags override them."""
    if _controls_guard(adapter, ()) and not _controls_guard(adapter, flags):
        return AS_GIVEN
    return f"guarded ({adapter.guard})" if guarded else UNGUARDED


def _find_deciding_flag(adapter: AgentAdapter, flags: tuple[str, ...]) -> str:
    """The first of the user's flags that overrides our guard arguments, with its value."""
    index = next(index for index in range(len(flags)) if not _controls_guard(adapter, flags[: index + 1]))
    flag, *after = flags[index:]
    text = after[:1] if "=" not in flag and after and not after[0].startswith("-") else []
    return " ".join((flag, *text))


def _controls_guard(adapter: AgentAdapter, flags: tuple[str, ...]) -> bool:
    """Whether `guarded` makes a difference with these flags of the user."""
    with_guard, without = (
        adapter.arguments(AgentInvocation(EMPTY_TURN, flags, None, guarded)) for guarded in (True, False)
    )
    return with_guard != without


def load_adapter(name: str) -> AgentAdapter:
    """The adapter of a known program, or of `package.module:Name`; raises AgentUnusable where it cannot be used."""
    try:
        adapter = resolve_implementation("agents", name)()
    except Refused as error:
        raise AgentUnusable(str(error)) from error
    except TypeError as error:
        raise AgentUnusable(f"agents {name!r} is no agent adapter: {error}") from error
    if not isinstance(adapter, AgentAdapter):
        raise AgentUnusable(f"agents {name!r} is no agent adapter: it is no ralphproof.agents.adapter.AgentAdapter")
    return adapter


def agent_traits(name: str) -> AgentTraits:
    """What the adapter of an agent declares; the defaults where none is registered."""
    return load_adapter(name).traits if is_registered("agents", name) else AgentTraits()


def resolve_program(argv: tuple[str, ...], root: str, path: str, remedy: str = NAME_ANOTHER_AGENT) -> tuple[str, ...]:
    """The same arguments with the program's full path: relative to the project where it has a slash, else from PATH."""
    name = argv[0]
    if "/" in name:
        program = os.path.normpath(os.path.join(root, name))
        if problem := _why_not_executable(program):
            raise AgentUnusable(f"agent {name}: {program} {problem}; {remedy}")
        return (program, *argv[1:])
    found = find_program(name, path)
    if found is None:
        raise AgentUnusable(f"agent {name} was not found on PATH; install it, or {remedy}")
    return (found, *argv[1:])


def _why_not_executable(program: str) -> str:
    """Why a file cannot be started, as far as can be known without starting it; empty where nothing is wrong."""
    if os.path.isdir(program):
        return "is a directory"
    if not os.path.exists(program):
        return "does not exist"
    return "" if os.access(program, os.X_OK) else "may not be executed"


MAX_PARENT_FOLDERS = 8  # folders above a program that are searched for its package.json
MANIFEST_BYTES = 1 << 20
VERSION = re.compile(r"v?\d[\w.+-]{0,49}")


def installed_version(program: str) -> str | None:
    """The version in the program's npm package, or its file name in a folder `versions`; None where neither exists.

    The program is not started.
    """
    real = os.path.realpath(program)
    folder, name = os.path.split(real)
    if os.path.basename(folder) == "versions":  # ~/.local/share/claude/versions/2.1.325
        return name if VERSION.fullmatch(name) else None
    return next((version for folder in _parent_folders(real) if (version := _package_version(folder, real))), None)


def _parent_folders(path: str) -> Iterator[str]:
    """The folders that may hold the program's package.json, up to node_modules."""
    for _ in range(MAX_PARENT_FOLDERS):
        path, name = os.path.dirname(path), os.path.basename(path)
        if name == "node_modules" or path == os.path.dirname(path):
            return
        yield path


def _package_version(folder: str, program: str) -> str | None:
    """The version in a folder's package.json, if that names the program as one of its own."""
    path = os.path.join(folder, "package.json")
    if not os.path.isfile(path):  # opening a pipe would block
        return None
    try:
        with open(path, "rb") as file:
            manifest = json.loads(file.read(MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict):
        return None
    named, version = manifest.get("bin"), manifest.get("version")
    files = named.values() if isinstance(named, dict) else (named,)
    is_own = any(isinstance(file, str) and os.path.realpath(os.path.join(folder, file)) == program for file in files)
    return version if is_own and isinstance(version, str) and VERSION.fullmatch(version) else None


PROVIDER_AGENT = "pydantic-ai"  # the agent name for calls of a model provider without an agent program


def select_stage_agents(
    settings: Settings, root: str, environ: Mapping[str, str], guarded: bool, sandboxed: bool = False
) -> tuple[tuple[str, SelectedAgent], ...]:
    """The agents of stages that name an agent or a model of their own."""
    terms = SelectionTerms(root, environ.get("PATH", os.defpath), guarded, settings.prices, sandboxed)
    slots = [
        (name, _stage_slot(settings, name))
        for name, stage in settings.stages.by_name.items()
        if stage.agent or stage.model
    ]
    return tuple((name, fill_slot(slot, terms)) for name, slot in slots)


def _stage_slot(settings: Settings, name: str) -> AgentSlot:
    """The slot of a stage. Only the run's own agent gets the run's own flags."""
    stage, default = settings.stages.by_name[name], settings.agent
    if stage.agent:
        return AgentSlot(stage.agent, (), stage.model, f"stages.{name}.agent")
    return AgentSlot(default.command, default.flags, stage.model or default.model, f"stages.{name}.model")


def select_judge(
    semantic: SemanticVerification, stage: str, settings: Settings, root: str, environ: Mapping[str, str]
) -> SelectedAgent:
    """The agent for judge questions: the configured one, else the stage's agent; with a small model unless one is set.

    Judge questions have no tools, so no guard is needed. Raises AgentUnusable where the judge cannot be used.
    """
    if semantic.agent == PROVIDER_AGENT:
        provider = ProviderAgent(semantic.model, build_price_list(settings.prices).cost)
        return SelectedAgent(provider, "", AS_GIVEN, COST_COMPUTED, semantic.model)
    slot = _stage_slot(settings, stage) if stage in settings.stages.by_name else _default_slot(settings)
    command, flags = (semantic.agent, ()) if semantic.agent else (slot.command, slot.flags)
    name = os.path.basename(split_command(command, (), root)[0]) if command else ""
    terms = SelectionTerms(root, environ.get("PATH", os.defpath), guarded=False, prices=settings.prices)
    found = fill_slot(
        AgentSlot(command, flags, semantic.model or agent_traits(name).small_model or None, "the judge"), terms
    )
    return replace(found, permissions=NO_TOOLS) if found.permissions == UNGUARDED else found


def _default_slot(settings: Settings) -> AgentSlot:
    return AgentSlot(settings.agent.command, settings.agent.flags)
