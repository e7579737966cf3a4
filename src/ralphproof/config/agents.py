"""Which agents a run has: those that are named, their programs found, or one that is found on PATH."""

from __future__ import annotations

import os

from ralphproof.agent import Brief
from ralphproof.agents.command import CommandAgent, templated, words
from ralphproof.agents.dialect import REPORTED, UNKNOWN, Call
from ralphproof.config.registry import TABLE, knows, resolve
from ralphproof.errors import AgentUnusable, Refused
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.agent import Agent
    from ralphproof.agents.dialect import Dialect
    from ralphproof.agents.price import PriceList
    from ralphproof.config.settings import AgentSettings, PriceSettings, Settings

KNOWN = tuple(TABLE["agents"])
UNGUARDED, AS_GIVEN, BOXED, NO_TOOLS = "unguarded", "as given", "in the sandbox", "no tools"
ANOTHER = "name another with --agent"
NO_GUARD = "has no mode that asks nothing and still limits what it does"
NOWHERE = Brief("", "", "/", (), "", "", "", 0.0)  # asked only for how a turn would be started
PARTS = (
    "name", "cost", "guard", "resumes", "login", "credentials", "updates_off", "arguments", "model", "environment",
    "reader",
)  # fmt: skip


@value
class Chosen:
    """An agent of a run, and what is known of it before it starts. `cost` is how its cost becomes known.

    `permissions` is `guarded (MODE)`, `in the sandbox`, `unguarded`, `no tools` for one that only answers questions, or
    `as given` where its own flags decide, or nobody knows; `decided` is the flag that does. `model` is the one that it
    will use, where that is known.
    """

    agent: Agent
    program: str
    permissions: str
    cost: str
    model: str | None = None
    decided: str = ""
    counts_tokens: bool | None = None  # where that does not follow from `cost`

    @property
    def tells_tokens(self) -> bool:
        """Whether a limit on tokens can be held."""
        return self.cost != UNKNOWN if self.counts_tokens is None else self.counts_tokens


@value
class Terms:
    """What holds for every agent of a run: where it is looked for, whether its guard stays on, the user's prices.

    One that is `boxed` runs in a sandbox, which holds it in its guard's place.
    """

    root: str
    path: str
    guarded: bool
    prices: tuple[tuple[str, PriceSettings], ...]
    boxed: bool = False


def find_agent(environ: Mapping[str, str], root: str) -> str | None:
    """The first known agent on PATH that works unasked within its own guard. The project may not bring its own."""
    path = environ.get("PATH", "")
    return next((name for name in KNOWN if find_program(name, path, outside=root) and dialect(name).guard), None)


def remark_on(command: str) -> str:
    """What to say of a command line that is written down as the agent; empty where there is nothing to say."""
    argv = words(command, ())
    name = os.path.basename(argv[0])
    if name not in KNOWN or templated(argv) or dialect(name).guard:
        return ""
    return f"agent {name} {NO_GUARD}: ralph run needs --sandbox or --no-sandbox for it"


@value
class Post:
    """A place in the crew: a command line, the model that it is asked to use, and the setting that says so."""

    command: str | None
    flags: tuple[str, ...] = ()
    model: str | None = None
    setting: str = ""


def agents_of(
    settings: Settings, root: str, environ: Mapping[str, str], guarded: bool = True, boxed: bool = False
) -> tuple[Chosen, ...]:
    """The whole crew in its order, all of them found; raises AgentUnusable naming the one that is not."""
    terms = Terms(root, environ.get("PATH", os.defpath), guarded, settings.prices, boxed)
    return tuple(filled(post, terms) for post in posts(settings.agent, root, terms.path))


def brought_agent(agent: Agent) -> Chosen:
    """An agent that the caller brings along."""
    return Chosen(agent, "", AS_GIVEN, REPORTED if agent.reports_cost else UNKNOWN)


def reader_of(name: str) -> Agent:
    """An agent of this name that only reads what a turn of it says; raises AgentUnusable where none has it."""
    if name == "scripted":
        return _scripted((name, os.devnull), "/").agent
    if not knows("agents", name):
        return CommandAgent((name,))
    return _speaker(dialect(name), (name,), None, Terms("/", "", guarded=False, prices=())).agent


def plain_agent(argv: tuple[str, ...], root: str, environ: Mapping[str, str]) -> Chosen:
    """A program that is started as it is given, whatever it is called; raises AgentUnusable where it is not found."""
    if argv[0] == "scripted":
        return _scripted(argv, root)
    found = resolve_program(argv, root, environ.get("PATH", os.defpath), "name another behind --")
    return Chosen(CommandAgent(found, wordless=True), found[0], AS_GIVEN, UNKNOWN)


def posts(own: AgentSettings, root: str, path: str) -> tuple[Post, ...]:
    """The usual agent, or the models of its ladder, or those that take turns; then the fallbacks."""
    usual = [Post(own.command, own.flags, own.model)]
    if own.ladder:
        usual = [Post(own.command, own.flags, model, f"agent.ladder[{n}]") for n, model in enumerate(own.ladder)]
    if own.rotate:
        usual = [
            Post(text, setting=setting) if _is_agent(text, root, path) else Post(own.command, own.flags, text, setting)
            for setting, text in ((f"agent.rotate[{n}]", text) for n, text in enumerate(own.rotate))
        ]
    return (*usual, *(Post(text, setting=f"agent.fallbacks[{n}]") for n, text in enumerate(own.fallbacks)))


def _is_agent(text: str, root: str, path: str) -> bool:
    """Whether a text names an agent; else it is the name of a model, which may have slashes and colons in it."""
    program = words(text, (), root)[0]
    if program == "scripted" or program.startswith((".", "/")) or ("." in program.partition(":")[0] and ":" in program):
        return True
    return knows("agents", program) or find_program(program, path) is not None


def doubts(settings: Settings, root: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Why agents that the settings name cannot be used, as far as can be told without loading what is not ours."""
    path = environ.get("PATH", os.defpath)
    found: list[str] = []
    for post in posts(settings.agent, root, path):
        try:
            if post.command is not None:
                _doubt(words(post.command, post.flags, root), post.model, root, path)
        except Refused as error:
            found.append(str(error))
    return tuple(found)


def _doubt(argv: tuple[str, ...], model: str | None, root: str, path: str) -> None:
    if argv[0] == "scripted" or _dotted(argv[0]):
        return
    resolve_program(argv, root, path)
    name = os.path.basename(argv[0])
    if name in KNOWN:
        dialect(name)
    elif not knows("agents", name):
        _refuse_model(name, model)


def _dotted(word: str) -> bool:
    return ":" in word and "/" not in word


def filled(post: Post, terms: Terms) -> Chosen:
    """The agent of this post, found; raises AgentUnusable naming the setting that says so."""
    if post.command is None:
        raise AgentUnusable("no agent is configured, and no known one with a guard is on PATH; name one: --agent")
    try:
        return _chosen(words(post.command, post.flags, terms.root), post.model, terms)
    except Refused as error:
        if not post.setting:
            raise
        raise AgentUnusable(f"{post.setting}: {error}") from error


def _chosen(argv: tuple[str, ...], model: str | None, terms: Terms) -> Chosen:
    if argv[0] == "scripted":
        return _scripted(argv, terms.root)
    if _dotted(argv[0]):
        spoken = dialect(argv[0])
        return _speaker(spoken, resolve_program((spoken.name, *argv[1:]), terms.root, terms.path), model, terms)
    found, name = resolve_program(argv, terms.root, terms.path), os.path.basename(argv[0])
    if knows("agents", name) and not templated(argv):
        return _speaker(dialect(name), found, model, terms)
    _refuse_model(name, model)
    return Chosen(CommandAgent(found), found[0], AS_GIVEN, UNKNOWN)


def _refuse_model(name: str, model: str | None) -> None:
    if model is not None:
        raise AgentUnusable(f"agent {name}: how to give it a model is not known; put its flag in agent.flags")


def _scripted(argv: tuple[str, ...], root: str) -> Chosen:
    from ralphproof.agents.scripted import Scripted

    if len(argv) != 2:
        raise Refused("the scripted agent needs one argument, its script: --agent 'scripted SCRIPT.json'")
    script = os.path.join(root, argv[1])
    return Chosen(Scripted(script), script, AS_GIVEN, REPORTED)


def _speaker(spoken: Dialect, argv: tuple[str, ...], model: str | None, terms: Terms) -> Chosen:
    from ralphproof.agents.speaker import Speaker

    program, flags = argv[0], argv[1:]
    guarded = terms.guarded and not terms.boxed
    if guarded and not spoken.guard:
        raise AgentUnusable(
            f"agent {spoken.name} {NO_GUARD}; --sandbox limits it, --no-sandbox lets it do all that you may"
        )
    agent = Speaker(spoken, program, flags, model=model, guarded=guarded, cost=price_list(terms.prices).cost)
    permissions = BOXED if terms.boxed else _permissions(spoken, flags, guarded)
    decided = _deciding(spoken, flags) if permissions == AS_GIVEN else ""
    counts = getattr(spoken, "counts_tokens", None)
    return Chosen(agent, program, permissions, spoken.cost, spoken.model(flags, model), decided, counts)


def price_list(prices: tuple[tuple[str, PriceSettings], ...]) -> PriceList:
    """What tokens cost: the user's own prices, then those that are known."""
    from ralphproof.agents.price import PriceList, Rates

    return PriceList({name: Rates.usd(one.input, one.output, one.cache_read, one.cache_write) for name, one in prices})


def _permissions(spoken: Dialect, flags: tuple[str, ...], guarded: bool) -> str:
    """What our own arguments make of its guard; the user's flags may have taken that out of our hands."""
    if _guarded_by_us(spoken, ()) and not _guarded_by_us(spoken, flags):
        return AS_GIVEN
    return f"guarded ({spoken.guard})" if guarded else UNGUARDED


def _deciding(spoken: Dialect, flags: tuple[str, ...]) -> str:
    """The first of the user's flags that takes the guard out of our hands, with its value. The others stay unsaid."""
    place = next(place for place in range(len(flags)) if not _guarded_by_us(spoken, flags[: place + 1]))
    flag, *after = flags[place:]
    own = after[:1] if "=" not in flag and after and not after[0].startswith("-") else []
    return " ".join((flag, *own))


def _guarded_by_us(spoken: Dialect, flags: tuple[str, ...]) -> bool:
    with_guard, without = (spoken.arguments(Call(NOWHERE, flags, None, guarded)) for guarded in (True, False))
    return with_guard != without


def dialect(name: str) -> Dialect:
    """The dialect of a known program, or of `package.module:Name`; raises AgentUnusable where it cannot be used."""
    try:
        spoken: Dialect = resolve("agents", name)()
    except Refused as error:
        raise AgentUnusable(str(error)) from error
    except TypeError as error:
        raise AgentUnusable(f"agents {name!r} is no dialect: {error}") from error
    lacking = [part for part in PARTS if not hasattr(spoken, part)]
    if lacking:
        raise AgentUnusable(f"agents {name!r} is no dialect: it has no {', '.join(lacking)}")
    return spoken


def resolve_program(argv: tuple[str, ...], root: str, path: str, remedy: str = ANOTHER) -> tuple[str, ...]:
    """The same with the program's full path: relative to the project where it has a slash, else looked up in PATH."""
    name = argv[0]
    if "/" in name:
        program = os.path.normpath(os.path.join(root, name))
        if lacking := _lacking(program):
            raise AgentUnusable(f"agent {name}: {program} {lacking}; {remedy}")
        return (program, *argv[1:])
    found = find_program(name, path)
    if found is None:
        raise AgentUnusable(f"agent {name} was not found on PATH; install it, or {remedy}")
    return (found, *argv[1:])


def _lacking(program: str) -> str:
    """Why a file cannot be started, as far as that can be told without starting it; empty where nothing speaks so."""
    if os.path.isdir(program):
        return "is a directory"
    if not os.path.exists(program):
        return "does not exist"
    return "" if os.access(program, os.X_OK) else "may not be executed"
