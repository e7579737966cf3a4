"""Every settings key once: type, bounds, default and documentation."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.base.value import Json


@value
class SettingKey:
    """One setting, or a group of them: what it may hold, and what holds where nobody sets it.

    Kinds: object, list, map (any names, one kind of item), free (any object), text, word (text that may stand in its
    tags), choice, integer, number, boolean. `least` is the smallest number, or the fewest items of a list. An item of a
    list has at least one of the keys in `any_of`. Where `single` is set, one item may stand for a list of it.
    """

    kind: str
    doc: str
    default: Json = None
    nullable: bool = False
    least: float | None = None
    above: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    any_case: bool = False
    blank: bool = False
    item: SettingKey | None = None
    keys: dict[str, SettingKey] | None = None
    required: bool = False
    user_only: bool = False
    any_of: tuple[str, ...] = ()
    single: bool = False


# Every setting, once: validation, defaults, JSON Schema, environment names and documentation read this table.


PRESETS = ("harness", "pipeline", "stories", "supervise", "wrapper")
FAIL_ACTIONS = ("APPEND", "PREPEND", "REPLACE")
VERIFICATION_METHODS = ("string_match", "semantic", "external", "multi_stage")
PIPELINE_STAGES = ("coder", "reviewer", "tester", "qa")
MAX_NUMBER = 1_000_000_000  # no count, second or dollar here means anything beyond it, and floats stay exact below it


def _boolean(doc: str, default: bool) -> SettingKey:
    return SettingKey("boolean", doc, default)


def _integer(
    doc: str, default: int | None, least: int = 1, nullable: bool = False, most: int = MAX_NUMBER
) -> SettingKey:
    return SettingKey("integer", doc, default, nullable, least=least, most=most)


def _seconds(doc: str, default: float | None, least: float = 1, nullable: bool = False) -> SettingKey:
    return SettingKey("number", doc, default, nullable, least=least, most=MAX_NUMBER)


def _usd(doc: str, default: float | None) -> SettingKey:
    return SettingKey("number", doc, default, nullable=default is None, above=0, most=MAX_NUMBER)


def _choice(doc: str, *choices: str) -> SettingKey:
    return SettingKey("choice", doc, choices[0], choices=choices)


def _optional_text(doc: str) -> SettingKey:
    return SettingKey("text", doc, nullable=True)


def _text_list(doc: str, blank: bool = False) -> SettingKey:
    return SettingKey("list", doc, [], item=SettingKey("text", "", blank=blank))


def _command_list(doc: str) -> SettingKey:
    return SettingKey("list", doc, [], item=SettingKey("text", ""), single=True)


def _group(doc: str, **keys: SettingKey) -> SettingKey:
    return SettingKey("object", doc, keys=keys)


def _method(doc: str, default: str, nullable: bool = False) -> SettingKey:
    return SettingKey("text", f"{doc}: {', '.join(VERIFICATION_METHODS)} or a plug-in's method.", default, nullable)


def _stage(iterations: int, promise: str, verification: str) -> SettingKey:
    return _group(
        f"The stage that claims {promise}.",
        enabled=_boolean("Whether it is repeated until it passes; false: a single pass, which needs no promise.", True),
        agent=_optional_text("The agent of this stage; null is `agent.command`."),
        model=_optional_text("The model of this stage; null is `agent.model`."),
        maxIterations=_integer(
            "How often this stage of a task may be tried; null is `pipeline.defaultMaxIterations`.",
            iterations,
            nullable=True,
        ),
        promise=SettingKey("word", "The word that claims this stage is done.", promise),
        verification=_method(
            "How the claim is verified (null is `pipeline.defaultVerification`)", verification, nullable=True
        ),
        verificationConfig=SettingKey(
            "free",
            "What the verification needs to know; where it is empty, `external` asks the guardrails, `semantic` judges "
            "the task's acceptance criteria, and `multi_stage` does both.",
            {},
        ),
    )


_GUARDRAIL = SettingKey(
    "object",
    "A check that must pass.",
    any_of=("command", "method"),
    keys={
        "command": SettingKey("text", "The shell command of method `external`; exit code 0 passes."),
        "failAction": SettingKey(
            "choice", "How a failure enters the next prompt.", "APPEND", choices=FAIL_ACTIONS, any_case=True
        ),
        "hint": SettingKey("text", "Advice that goes with the failure, never cut.", "", blank=True),
        "name": _optional_text("A name for displays and records; null makes one from the command, or the method."),
        "timeoutSeconds": _seconds("The command is ended, and has failed, after so long.", 600),
        "retries": _integer("A failing command is run so many times more before it counts as failed.", 0, least=0),
        "method": SettingKey(
            "text", "How it is verified: external, semantic, multi_stage or a plug-in's method.", "external"
        ),
        "config": SettingKey(
            "free", "What the method needs to know, with the keys of a task's `verification_config`.", {}
        ),
    },
)

_PRICE = _group(
    "Dollars per million tokens.",
    input=SettingKey("number", "For tokens read.", least=0, most=MAX_NUMBER, required=True),
    output=SettingKey("number", "For tokens written.", least=0, most=MAX_NUMBER, required=True),
    cacheRead=SettingKey(
        "number", "For tokens read from the cache; null: as `input`.", nullable=True, least=0, most=MAX_NUMBER
    ),
    cacheWrite=SettingKey(
        "number", "For tokens written to the cache; null: as `input`.", nullable=True, least=0, most=MAX_NUMBER
    ),
)

SETTINGS_SCHEMA = _group(
    "The settings of a run.",
    preset=_choice("The style of loop that gives all other settings their defaults.", *PRESETS),
    maximumIterations=_integer("The run ends after so many iterations.", 10),
    completionResponse=SettingKey(
        "word", "The word in `<response>` or `<promise>` that claims the work is done.", "DONE"
    ),
    outputTruncateChars=_integer("So many characters of a failing check's output enter the prompt.", 5000),
    outputTruncateMode=_choice("Whether a cut output keeps both ends, or its head alone.", "ends", "head"),
    streamAgentOutput=_boolean("Whether the agent's work is shown while it goes on.", True),
    includeIterationCountInPrompt=_boolean("Whether the prompt begins with `Iteration X of Y, Z remaining.`", False),
    contextInjection=_boolean("Whether prompts carry the changes and test output of the iteration before.", False),
    agent=_group(
        "The coding agent.",
        command=SettingKey(
            "text", "The agent's command; where nobody sets it, the first known agent on PATH is taken."
        ),
        flags=_text_list("Arguments for the agent; one that begins with `-` and holds a space is split.", blank=True),
        model=_optional_text("The model that the agent is asked to use; null leaves it to the agent."),
        fallbacks=_text_list(
            "Agents to go on with when the service of the first is unavailable, each with its own flags in it; "
            "`flags` and `model` are the first one's."
        ),
        ladder=_text_list(
            "Models of the agent, the cheapest first: a run begins with the first one and climbs to the next at each "
            "stall or repeated error."
        ),
        rotate=_text_list("Agents, or models of the agent, that take turns, one an iteration."),
        env=SettingKey(
            "map",
            "Environment variables for the agent; null drops one, such as an `ANTHROPIC_API_KEY` that would be billed "
            "where a subscription should be.",
            {},
            item=SettingKey("text", "", nullable=True, blank=True),
        ),
        timeoutSeconds=_seconds("A turn is ended after so long.", 3600),
        idleTimeoutSeconds=_seconds("A turn is ended after so long a silence; null waits.", 900, nullable=True),
        retries=_integer("An empty reply is taken again so often in a row.", 3, least=0),
    ),
    guardrails=SettingKey(
        "list",
        "The checks, in order; all run first and after every iteration. Left out, a run takes those that it finds; "
        "an empty list is none.",
        [],
        item=_GUARDRAIL,
    ),
    scm=SettingKey(
        "object",
        "What is done with work that passed its checks; null does nothing.",
        nullable=True,
        keys={
            "command": SettingKey(
                "text", "The source control command, such as `git`; a path is relative to the project.", required=True
            ),
            "tasks": SettingKey("list", "Its tasks in order.", least=1, item=SettingKey("text", ""), required=True),
        },
    ),
    checksWhen=_choice("Whether checks run after every iteration, or only on a claim.", "always", "claim"),
    requireProof=_boolean("Whether a run without any check is refused.", False),
    protectTests=_boolean("Whether changed, skipped or deleted tests stop the run; new ones may be added.", False),
    verifyIn=_choice(
        "Where the work is verified: in the project's folder, or there and then in a clean checkout of what would be "
        "committed.",
        "workspace",
        "clean",
    ),
    setup=_text_list(
        "Commands that prepare a clean checkout for checks, such as `npm ci`; dependencies that they install are kept "
        "while these commands and all manifests and lock files stay the same, all else for the same tree alone."
    ),
    mustFailFirst=_boolean("Whether a run is refused whose checks all pass before its first turn.", False),
    finalChecks=_text_list(
        "Held-out checks: commands that are run only when everything else has passed, and that no agent is told of."
    ),
    limits=_group(
        "What a run may use up, and which patterns end it.",
        maxCostUsd=_usd("The run ends when so much is spent; null leaves `caps.costUsd`.", None),
        dailyCostUsd=_usd("No run goes on when all of the UTC day have spent so much; null leaves the cap.", None),
        maxTokens=_integer("The run ends when so many are used.", None, nullable=True, most=10**15),
        maxMinutes=SettingKey("number", "The run ends after so long.", nullable=True, above=0, most=MAX_NUMBER),
        stallIterations=_integer("So many idle iterations in a row end the run; null: never.", 5, nullable=True),
        sameErrorIterations=_integer("The same failure so often in a row ends the run; null: never.", 5, nullable=True),
        escalateToDeepDebug=_boolean("Whether the first stall is answered with a debugging prompt.", False),
        pauseMilliseconds=_integer("The pause between iterations.", 500, least=0),
    ),
    caps=SettingKey(
        "object",
        "What no project's settings may exceed.",
        user_only=True,
        keys={
            "iterations": _integer("The most iterations of a run; does not hold in `supervise`.", 50),
            "costUsd": _usd("The most that one run may cost.", 10),
            "dailyCostUsd": _usd("The most that all runs of a day may cost.", 50),
        },
    ),
    prices=SettingKey(
        "map",
        "Prices by a model's name, or by how it begins, for agents that report tokens alone.",
        {},
        item=_PRICE,
        user_only=True,
    ),
    guard=_group(
        "Exceptions to the command guard.",
        allow=_text_list("Rules that do not hold, or commands that it lets pass (`npm publish --dry-run *`)."),
        deny=_text_list("Commands that it refuses as well (`git push *`)."),
    ),
    protectedPaths=_text_list(
        "Files and folders that no agent may change, from the project's root; `*`, `?` and `**` stand for names."
    ),
    pipeline=_group(
        "Tasks that go through stages.",
        enabled=_boolean("Whether stages are repeated until they pass; false: each is a single pass.", True),
        defaultMaxIterations=_integer("How often a stage may be tried that sets no number of its own.", 10),
        defaultVerification=_method("How a stage is verified that says nothing of it", VERIFICATION_METHODS[0]),
    ),
    stages=_group(
        "The stages of a task.",
        coder=_stage(15, "IMPLEMENTATION_COMPLETE", "external"),
        reviewer=_stage(5, "REVIEW_PASSED", "semantic"),
        tester=_stage(10, "TESTS_PASSED", "external"),
        qa=_stage(5, "QA_PASSED", "multi_stage"),
    ),
    review=_group(
        "Reviews of stories.",
        enabled=_boolean("Whether each story is reviewed with a fresh context.", True),
        cap=_integer("How often a story is reviewed at most.", 5),
        capIsFailure=_boolean("Whether the cap stops the run instead of approving what is green.", False),
    ),
    supervise=_group(
        "The restart manager, `ralph supervise`.",
        maxRestarts=_integer(
            "The agent is started at most so often; the same limit as `maximumIterations`, by another name.",
            None,
            nullable=True,
        ),
        restartDelaySeconds=_seconds(
            "The pause before a restart; null is a second, which doubles, up to a minute, while the agent dies within "
            "seconds.",
            None,
            least=0,
            nullable=True,
        ),
        pollIntervalSeconds=_seconds("How often one looks whether the agent's own runs are over.", 1, least=0.01),
        waitTimeoutSeconds=_seconds("So long runs that the agent began are waited for once it says it is done.", 300),
        waitExitCode=_integer("The exit code of an agent that waits for somebody.", 42, most=255),
    ),
    sandbox=_group(
        "Where agents and checks run. Lists in `.ralph/settings.json` open only a sandbox that it asks for itself: not "
        "one that a flag, a variable or your own settings ask for.",
        backend=_optional_text("The kind of sandbox; `auto` takes the strongest that holds here, null none."),
        allowHosts=_text_list(
            "Hosts that agents and checks may reach: `name`, `*.name`, either with `:port`, `private:name` in a "
            "private network, or the name of an ecosystem (`pypi`, `npm`, ...) for its registries."
        ),
        allowLocalPorts=SettingKey(
            "list", "Ports of this machine that agents and checks may reach.", [], item=_integer("", 1, most=65535)
        ),
        readPaths=_text_list("Files and folders outside the project that agents and checks may read."),
    ),
    display=_group(
        "What the terminal shows.",
        emoji=_boolean("Whether emoji mark the lines.", True),
        color=_choice("When colours are used.", "auto", "always", "never"),
        timestamps=_boolean("Whether each line begins with the time.", False),
        maxOutputLines=_integer("So many lines of a tool's output are shown.", 10),
        maxOutputChars=_integer("So many characters of a tool's output are shown.", 1000),
    ),
    notify=_text_list(
        "Who is told that a run ended, waits, or comes near a limit: `desktop`, an `https://` address, an apprise "
        "address, or a command."
    ),
    metrics=_boolean("Whether each run adds a line to `.ralph/metrics/loops.jsonl`.", True),
    otel=_optional_text(
        "Where spans of runs are sent to: the address of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`."
    ),
    shutdownGraceSeconds=_seconds("An agent or check may go on for so long after the first signal.", 10, least=0),
    onInternalError=_choice("What follows when the loop itself fails before its first turn.", "stop", "single-pass"),
    on=_group(
        "Your own commands around a run and its iterations, each run as a check is: see "
        "[how-it-works.md](how-it-works.md#your-own-commands).",
        beforeRun=_command_list("Run before the first look of the checks; one that fails ends the run, BLOCKED."),
        beforeIteration=_command_list("Run before each iteration's agent; one that fails ends the run, BLOCKED."),
        afterIteration=_command_list("Run after each iteration was judged and committed; a failure is only told."),
        afterRun=_command_list(
            "Run when the run ends, however it ends, unless a tripwire ended it; a failure is told."
        ),
    ),
)  # fmt: skip


def default_values(key: SettingKey = SETTINGS_SCHEMA) -> Json:
    """A fresh copy of what holds where nobody sets anything."""
    if key.kind == "object" and not key.nullable:
        return {name: default_values(inner) for name, inner in (key.keys or {}).items()}
    if isinstance(key.default, list):
        return list(key.default)
    return dict(key.default) if isinstance(key.default, dict) else key.default


def leaf_keys(key: SettingKey = SETTINGS_SCHEMA, path: str = "") -> list[tuple[str, SettingKey]]:
    """Every key that holds a value, by its path; keys of a list's items stand as `guardrails[].command`."""
    if key.keys is not None:
        dot = f"{path}." if path else ""
        return [leaf for name, inner in key.keys.items() for leaf in leaf_keys(inner, dot + name)]
    if key.item is not None and key.item.keys is not None:
        return leaf_keys(key.item, f"{path}[]" if key.kind == "list" else f"{path}.*")
    return [(path, key)]
