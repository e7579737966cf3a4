"""Every setting of a run, once: type, bounds, default, sentence and flags.

JSON Schema, validation, environment variables, flags, the typed settings and the reference page follow from these
classes. Settings hold their values in the units of the file.
"""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.settings.schema import (
    SettingFlag,
    SettingKey,
    amount,
    boolean,
    camel_case,
    choice,
    free,
    group,
    group_key,
    inner,
    integer,
    leaf_keys,
    list_of,
    map_of,
    price,
    read_value,
    seconds,
    text,
    texts,
    word,
)

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json


PRESETS = ("harness", "pipeline", "stories", "supervise", "wrapper")
PIPELINE_STAGES = ("coder", "reviewer", "tester", "qa")

# The verbs that a flag belongs to.
RUN, SUPERVISE = ("run",), ("supervise",)
RUN_OR_SUBMIT = ("run", "fleet submit")
LOOPS = ("run", "work", "fleet submit", "race")
AGENT_VERBS = ("run", "work", "fleet submit", "plan", "task generate")
ALL_LOOPS = (*LOOPS, "supervise")
ALL_VERBS = (*ALL_LOOPS, "plan", "task generate")


@group("The coding agent.")
class AgentSettings:
    """The coding agent; a command of None is the first known agent on PATH. In `env` None drops a variable."""

    command: str | None = text(
        None, "The agent's command; where nobody sets it, the first known agent on PATH is taken.",
        SettingFlag(
            ("--agent",), "CMD",
            "agent command (default: the first known one on PATH); a path is relative to the project", AGENT_VERBS,
        ),
    )  # fmt: skip
    flags: tuple[str, ...] = texts(
        "Arguments for the agent; one that begins with `-` and holds a space is split.", blank=True
    )
    model: str | None = text(
        None, "The model that the agent is asked to use; null leaves it to the agent.",
        SettingFlag(("--model",), "M", "model to request from the agent", AGENT_VERBS), nullable=True,
    )  # fmt: skip
    fallbacks: tuple[str, ...] = texts(
        "Agents to go on with when the service of the first is unavailable, each with its own flags in it; `flags` and "
        "`model` are the first one's."
    )
    ladder: tuple[str, ...] = texts(
        "Models of the agent, the cheapest first: a run begins with the first one and climbs to the next at each stall "
        "or repeated error."
    )
    rotate: tuple[str, ...] = texts("Agents, or models of the agent, that take turns, one an iteration.")
    env: tuple[tuple[str, str | None], ...] = map_of(
        text(None, "", nullable=True, blank=True),
        "Environment variables for the agent; null drops one, such as an `ANTHROPIC_API_KEY` that would be billed "
        "where a subscription should be.",
    )
    timeout_seconds: float = seconds(
        3600, "A turn is ended after so long.",
        SettingFlag(("--timeout",), "S", "end the command after S seconds; counts as a failure", SUPERVISE),
    )  # fmt: skip
    idle_timeout_seconds: float | None = seconds(
        900, "A turn is ended after so long a silence; null waits.", nullable=True
    )
    retries: int = integer(3, "An empty reply is taken again so often in a row.", least=0)


@group("A check that must pass.", any_of=("command", "method"))
class GuardrailSettings:
    """One check. Its name is unique; a check that is no command has an empty `command`."""

    command: str = text(None, "The shell command of method `external`; exit code 0 passes.")
    fail_action: str = choice(("APPEND", "PREPEND", "REPLACE"), "How a failure enters the next prompt.", any_case=True)
    hint: str = text("", "Advice that goes with the failure, never cut.", blank=True)
    name: str = text(
        None, "A name for displays and records; null makes one from the command, or the method.", nullable=True
    )
    timeout_seconds: float = seconds(600, "The command is ended, and has failed, after so long.")
    retries: int = integer(0, "A failing command is run so many times more before it counts as failed.", least=0)
    method: str = text("external", "How it is verified: external, semantic, multi_stage or a plug-in's method.")
    config: dict[str, Json] = free("What the method needs to know, with the keys of a task's `verification_config`.")

    @property
    def shown(self) -> str:
        """Its name in lists: its command, else its name."""
        return self.command or self.name


@group("What is done with work that passed its checks; null does nothing.")
class ScmSettings:
    command: str = text(
        None, "The source control command, such as `git`; a path is relative to the project.", required=True
    )
    tasks: tuple[str, ...] = list_of(text(None, ""), "Its tasks in order.", least=1, required=True)


@group("What a run may use up, and which patterns end it.")
class LimitSettings:
    """The limits that the user set; None is unlimited except for the caps."""

    max_cost_usd: float | None = amount(
        None, "The run ends when so much is spent; null leaves `caps.costUsd`.",
        SettingFlag(("--max-cost-usd",), "USD", "stop when the run has spent this much", ALL_VERBS),
    )  # fmt: skip
    daily_cost_usd: float | None = amount(
        None, "No run goes on when all of the UTC day have spent so much; null leaves the cap."
    )
    max_tokens: int | None = integer(
        None, "The run ends when so many are used.",
        SettingFlag(("--max-tokens",), "N", "stop when the run has used N tokens", ALL_LOOPS), most=10**15,
    )  # fmt: skip
    max_minutes: float | None = amount(
        None, "The run ends after so long.",
        SettingFlag(("--max-minutes",), "M", "stop after M minutes", ALL_VERBS),
    )  # fmt: skip
    stall_iterations: int | None = integer(
        5, "So many idle iterations in a row end the run; null: never.", nullable=True
    )
    same_error_iterations: int | None = integer(
        5, "The same failure so often in a row ends the run; null: never.", nullable=True
    )
    escalate_to_deep_debug: bool = boolean(False, "Whether the first stall is answered with a debugging prompt.")
    pause_milliseconds: int = integer(500, "The pause between iterations.", least=0)


@group("What no project's settings may exceed.")
class CapSettings:
    iterations: int = integer(50, "The most iterations of a run; does not hold in `supervise`.")
    cost_usd: float = amount(10, "The most that one run may cost.")
    daily_cost_usd: float = amount(50, "The most that all runs of a day may cost.")


@group("Dollars per million tokens.")
class PriceSettings:
    input: float = price("For tokens read.", required=True)
    output: float = price("For tokens written.", required=True)
    cache_read: float | None = price("For tokens read from the cache; null: as `input`.")
    cache_write: float | None = price("For tokens written to the cache; null: as `input`.")


@group("Exceptions to the command guard.")
class GuardSettings:
    allow: tuple[str, ...] = texts(
        "Rules that do not hold, or commands that it lets pass (`npm publish --dry-run *`).",
        validator="ralphproof.guard.rules:allow_entry_problem",
    )
    deny: tuple[str, ...] = texts(
        "Commands that it refuses as well (`git push *`).", validator="ralphproof.guard.rules:deny_entry_problem"
    )


@group("Tasks that go through stages.")
class PipelineSettings:
    enabled: bool = boolean(True, "Whether stages are repeated until they pass; false: each is a single pass.")
    default_max_iterations: int = integer(10, "How often a stage may be tried that sets no number of its own.")
    default_verification: str = text(
        "string_match",
        "How a stage is verified that says nothing of it: string_match, semantic, external, multi_stage or a plug-in's "
        "method.",
    )


@group("A stage of a task.")
class StageSettings:
    """One pipeline stage, for tasks without their own criteria. `agent` and `model` are None for the run's own.

    What the files leave open, `pipeline` has filled in. `verification_config` may have placeholders for fields of a
    task.
    """

    enabled: bool = boolean(
        True, "Whether it is repeated until it passes; false: a single pass, which needs no promise."
    )
    agent: str | None = text(None, "The agent of this stage; null is `agent.command`.", nullable=True)
    model: str | None = text(None, "The model of this stage; null is `agent.model`.", nullable=True)
    max_iterations: int = integer(
        None, "How often this stage of a task may be tried; null is `pipeline.defaultMaxIterations`."
    )
    promise: str = word("DONE", "The word that claims this stage is done.")
    verification: str = text(
        None,
        "How the claim is verified (null is `pipeline.defaultVerification`): string_match, semantic, external, "
        "multi_stage or a plug-in's method.",
        nullable=True,
    )
    verification_config: dict[str, Json] = free(
        "What the verification needs to know; where it is empty, `external` asks the guardrails, `semantic` judges the "
        "task's acceptance criteria, and `multi_stage` does both."
    )


def _stage(iterations: int, promise: str, verification: str) -> Any:
    doc = f"The stage that claims {promise}."
    return inner(StageSettings, doc, maxIterations=iterations, promise=promise, verification=verification)


@group("The stages of a task.")
class StagesSettings:
    """Every stage, in the order in which a task goes through them."""

    coder: StageSettings = _stage(15, "IMPLEMENTATION_COMPLETE", "external")
    reviewer: StageSettings = _stage(5, "REVIEW_PASSED", "semantic")
    tester: StageSettings = _stage(10, "TESTS_PASSED", "external")
    qa: StageSettings = _stage(5, "QA_PASSED", "multi_stage")

    @property
    def by_name(self) -> dict[str, StageSettings]:
        return {name: getattr(self, name) for name in PIPELINE_STAGES}


@group("Reviews of stories.")
class ReviewSettings:
    """Reviews of stories: whether, how often at most, and whether the run fails at that limit."""

    enabled: bool = boolean(
        True, "Whether each story is reviewed with a fresh context.",
        SettingFlag(("--skip-review",), "", "with stories: skip reviews", RUN, constant=False),
    )  # fmt: skip
    cap: int = integer(
        5, "How often a story is reviewed at most.",
        SettingFlag(("--review-cap",), "N", "with stories: most reviews per story (default {default})", RUN),
    )  # fmt: skip
    cap_is_failure: bool = boolean(False, "Whether the cap stops the run instead of approving what is green.")


@group("The restart manager, `ralph supervise`.")
class SuperviseSettings:
    """How a root agent is restarted; the limit of restarts is `maximum_iterations`."""

    max_restarts: int | None = integer(
        None, "The agent is started at most so often; the same limit as `maximumIterations`, by another name.",
        SettingFlag(("-m", "--max-restarts"), "N", "maximum number of starts", SUPERVISE),
    )  # fmt: skip
    restart_delay_seconds: float | None = seconds(
        None,
        "The pause before a restart; null is a second, which doubles, up to a minute, while the agent dies within "
        "seconds.",
        SettingFlag(("--restart-delay",), "S", "seconds before a restart (default 1, growing)", SUPERVISE),
        least=0,
    )
    poll_interval_seconds: float = seconds(
        1, "How often one looks whether the agent's own runs are over.",
        SettingFlag(("--poll-interval",), "S", "check for their end every S seconds", SUPERVISE), least=0.01,
    )  # fmt: skip
    wait_timeout_seconds: float = seconds(
        300, "So long runs that the agent began are waited for once it says it is done.",
        SettingFlag(("--wait-timeout",), "S", "wait up to S seconds for unfinished runs that it started", SUPERVISE),
    )  # fmt: skip
    wait_exit_code: int = integer(
        42, "The exit code of an agent that waits for somebody.",
        SettingFlag(("--wait-exit-code",), "N", "exit code that means: waiting for a person", SUPERVISE), most=255,
    )  # fmt: skip


@group(
    "Where agents and checks run. Lists in `.ralph/settings.json` open only a sandbox that it asks for itself: not one "
    "that a flag, a variable or your own settings ask for."
)
class SandboxSettings:
    """Where agents and checks run; a backend of None is no sandbox, `auto` the strongest that works here."""

    backend: str | None = text(
        None, "The kind of sandbox; `auto` takes the strongest that holds here, null none.",
        SettingFlag(
            ("--sandbox",), "[=KIND]", "run agents and checks in a sandbox: the strongest available, or {sandboxes}",
            ALL_VERBS,
        ),
        nullable=True, validator="ralphproof.sandbox.selection:backend_name_problem",
    )  # fmt: skip
    allow_hosts: tuple[str, ...] = texts(
        "Hosts that agents and checks may reach: `name`, `*.name`, either with `:port`, `private:name` in a private "
        "network, or the name of an ecosystem (`pypi`, `npm`, ...) for its registries.",
        SettingFlag(("--allow-host",), "HOST", "host that the sandbox may reach; repeatable", ALL_VERBS, adds=True),
        validator="ralphproof.sandbox.egress_rules:host_entry_problem",
    )
    allow_local_ports: tuple[int, ...] = list_of(
        integer(1, "", most=65535), "Ports of this machine that agents and checks may reach."
    )
    read_paths: tuple[str, ...] = texts(
        "Files and folders outside the project that agents and checks may read.",
        validator="ralphproof.sandbox.host_mounts:read_path_problem",
    )


@group("What the terminal shows.")
class DisplaySettings:
    emoji: bool = boolean(True, "Whether emoji mark the lines.")
    color: str = choice(("auto", "always", "never"), "When colours are used.")
    timestamps: bool = boolean(False, "Whether each line begins with the time.")
    max_output_lines: int = integer(10, "So many lines of a tool's output are shown.")
    max_output_chars: int = integer(1000, "So many characters of a tool's output are shown.")


@group(
    "Your own commands around a run and its iterations, each run as a check is: see "
    "[how-it-works.md](how-it-works.md#your-own-commands)."
)
class HookSettings:
    before_run: tuple[str, ...] = texts(
        "Run before the first look of the checks; one that fails ends the run, BLOCKED.", single=True
    )
    before_iteration: tuple[str, ...] = texts(
        "Run before each iteration's agent; one that fails ends the run, BLOCKED.", single=True
    )
    after_iteration: tuple[str, ...] = texts(
        "Run after each iteration was judged and committed; a failure is only told.", single=True
    )
    after_run: tuple[str, ...] = texts(
        "Run when the run ends, however it ends, unless a tripwire ended it; a failure is told.", single=True
    )

    @property
    def by_name(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The commands of each hook that has any."""
        names = ("before_run", "before_iteration", "after_iteration", "after_run")
        return tuple((camel_case(name), getattr(self, name)) for name in names if getattr(self, name))


@group("The settings of a run.")
class Settings:
    """All settings that have an effect."""

    preset: str = choice(
        PRESETS, "The style of loop that gives all other settings their defaults.",
        SettingFlag(("--preset",), "P", "loop style (default {default})", RUN),
    )  # fmt: skip
    maximum_iterations: int = integer(
        10, "The run ends after so many iterations.",
        SettingFlag(
            ("-m", "--maximum-iterations", "-n", "--max-iterations"), "N", "stop a run after N iterations", LOOPS
        ),
    )  # fmt: skip
    completion_response: str = word(
        "DONE", "The word in `<response>` or `<promise>` that claims the work is done.",
        SettingFlag(
            ("-c", "--completion-response"), "WORD", "word by which the agent claims completion (default {default})",
            RUN_OR_SUBMIT,
        ),
        SettingFlag(("--promise",), "WORD", "same as --completion-response", RUN_OR_SUBMIT),
    )  # fmt: skip
    output_truncate_chars: int = integer(5000, "So many characters of a failing check's output enter the prompt.")
    output_truncate_mode: str = choice(("ends", "head"), "Whether a cut output keeps both ends, or its head alone.")
    stream_agent_output: bool = boolean(
        True, "Whether the agent's work is shown while it goes on.",
        SettingFlag(
            ("--stream-agent-output",), "", "show the agent's output as it is printed", ("run", "work", "supervise"),
            constant=True,
        ),
        SettingFlag(
            ("--no-stream-agent-output",), "", "do not show the agent's output", ("run", "work", "supervise"),
            constant=False,
        ),
    )  # fmt: skip
    include_iteration_count_in_prompt: bool = boolean(
        False, "Whether the prompt begins with `Iteration X of Y, Z remaining.`"
    )
    context_injection: bool = boolean(
        False, "Whether prompts carry the changes and test output of the iteration before."
    )
    agent: AgentSettings = inner(AgentSettings)
    guardrails: tuple[GuardrailSettings, ...] = list_of(
        group_key(GuardrailSettings),
        "The checks, in order; all run first and after every iteration. Left out, a run takes those that it finds; an "
        "empty list is none.",
    )
    scm: ScmSettings | None = inner(ScmSettings, nullable=True)
    checks_when: str = choice(("always", "claim"), "Whether checks run after every iteration, or only on a claim.")
    require_proof: bool = boolean(False, "Whether a run without any check is refused.")
    protect_tests: bool = boolean(
        False, "Whether changed, skipped or deleted tests stop the run; new ones may be added."
    )
    verify_in: str = choice(
        ("workspace", "clean"),
        "Where the work is verified: in the project's folder, or there and then in a clean checkout of what would be "
        "committed.",
    )
    setup: tuple[str, ...] = texts(
        "Commands that prepare a clean checkout for checks, such as `npm ci`; dependencies that they install are kept "
        "while these commands and all manifests and lock files stay the same, all else for the same tree alone."
    )
    must_fail_first: bool = boolean(False, "Whether a run is refused whose checks all pass before its first turn.")
    final_checks: tuple[str, ...] = texts(
        "Held-out checks: commands that are run only when everything else has passed, and that no agent is told of."
    )
    limits: LimitSettings = inner(LimitSettings)
    caps: CapSettings = inner(CapSettings, user_only=True)
    prices: tuple[tuple[str, PriceSettings], ...] = map_of(
        group_key(PriceSettings),
        "Prices by a model's name, or by how it begins, for agents that report tokens alone.",
        user_only=True,
    )
    guard: GuardSettings = inner(GuardSettings)
    protected_paths: tuple[str, ...] = texts(
        "Files and folders that no agent may change, from the project's root; `*`, `?` and `**` stand for names.",
        SettingFlag(
            ("--protect",), "PATH", "file or folder that no agent may change; repeatable", ALL_LOOPS, adds=True
        ),
        validator="ralphproof.base.path_patterns:explain_bad_pattern",
    )
    pipeline: PipelineSettings = inner(PipelineSettings)
    stages: StagesSettings = inner(StagesSettings)
    review: ReviewSettings = inner(ReviewSettings)
    supervise: SuperviseSettings = inner(SuperviseSettings)
    sandbox: SandboxSettings = inner(SandboxSettings)
    display: DisplaySettings = inner(DisplaySettings)
    notify: tuple[str, ...] = texts(
        "Who is told that a run ended, waits, or comes near a limit: `desktop`, an `https://` address, an apprise "
        "address, or a command.",
        validator="ralphproof.reports.addresses:notify_target_problem",
        redact="ralphproof.reports.addresses:redact_notify_target",
    )
    metrics: bool = boolean(True, "Whether each run adds a line to `.ralph/metrics/loops.jsonl`.")
    otel: str | None = text(
        None, "Where spans of runs are sent to: the address of an OTLP/HTTP receiver, such as `http://127.0.0.1:4318`.",
        nullable=True, validator="ralphproof.reports.addresses:otel_endpoint_problem",
        redact="ralphproof.reports.addresses:redact_otel_endpoint",
    )  # fmt: skip
    shutdown_grace_seconds: float = seconds(
        10, "An agent or check may go on for so long after the first signal.", least=0
    )
    on_internal_error: str = choice(
        ("stop", "single-pass"), "What follows when the loop itself fails before its first turn."
    )
    on: HookSettings = inner(HookSettings)

    @property
    def cost_limit_micro_usd(self) -> int:
        """What the run may cost: the user's limit, else the cap."""
        return to_micro_usd(self.caps.cost_usd if self.limits.max_cost_usd is None else self.limits.max_cost_usd)

    @property
    def daily_limit_micro_usd(self) -> int:
        """What all runs of a day may cost together: the user's limit, else the cap."""
        chosen = self.limits.daily_cost_usd
        return to_micro_usd(self.caps.daily_cost_usd if chosen is None else chosen)


SETTINGS_SCHEMA: SettingKey = group_key(Settings)
GUARDRAIL_SCHEMA: SettingKey = group_key(GuardrailSettings)


def parse_settings(raw: dict[str, Any]) -> Settings:
    """Typed values of merged and validated settings that have every key.

    One limit has two names where restarts are counted; elsewhere the second one says nothing.
    """
    settings: Settings = read_value(raw, SETTINGS_SCHEMA)
    restarts = settings.supervise.max_restarts if settings.preset == "supervise" else None
    return replace(
        settings,
        maximum_iterations=settings.maximum_iterations if restarts is None else restarts,
        guardrails=_name_guardrails(settings.guardrails),
        stages=StagesSettings(*(_complete_stage(one, settings) for one in settings.stages.by_name.values())),
    )


def flags_of(verb: str) -> list[tuple[str, SettingKey, SettingFlag]]:
    """The flags of a verb that give settings, each with the path and the key of its setting."""
    return [(path, key, flag) for path, key in leaf_keys(SETTINGS_SCHEMA) for flag in key.flags if verb in flag.verbs]


def parse_guardrails(items: list[dict[str, Any]]) -> tuple[GuardrailSettings, ...]:
    """Typed values of validated guardrails that have every key."""
    return _name_guardrails(tuple(read_value(item, GUARDRAIL_SCHEMA) for item in items))


def _name_guardrails(guardrails: tuple[GuardrailSettings, ...]) -> tuple[GuardrailSettings, ...]:
    """The name of each: its own, else its command, else its method, with a number to make it unique."""
    taken = {one.name for one in guardrails if one.name}
    named: list[GuardrailSettings] = []
    for one in guardrails:
        usual = one.command or one.method
        name, number = usual, 1
        while name in taken:
            number += 1
            name = f"{usual} ({number})"
        named.append(replace(one, name=one.name or name, command=one.command or ""))
        taken.add(named[-1].name)
    return tuple(named)


def _complete_stage(stage: StageSettings, settings: Settings) -> StageSettings:
    return replace(
        stage,
        max_iterations=stage.max_iterations or settings.pipeline.default_max_iterations,
        verification=stage.verification or settings.pipeline.default_verification,
    )


def to_micro_usd(usd: float) -> int:
    """Dollars as whole micro-dollars; an amount above nothing never becomes nothing."""
    return max(1, round(usd * 1_000_000))
