"""The settings of a run as typed values: Settings and its groups, guardrails, pipeline stages."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.claim import strip_claim_tags
from ralphproof.engine.plan import EXTERNAL, ExternalVerification, Task, Verification
from ralphproof.engine.run_hooks import AFTER_ITERATION, AFTER_RUN, BEFORE_ITERATION, BEFORE_RUN, HOOKS
from ralphproof.settings.keys import PIPELINE_STAGES

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json


@value
class GuardrailSettings:
    """One check. Its name is unique; a check that is no command has an empty `command`."""

    name: str
    command: str
    fail_action: str
    hint: str
    timeout_s: float
    retries: int
    how: Verification

    @property
    def shown(self) -> str:
        """Its name in lists: its command, else its name."""
        return self.command or self.name


def parse_guardrails(items: list[dict[str, Any]]) -> tuple[GuardrailSettings, ...]:
    """Typed values of validated settings that have every key."""
    return tuple(
        GuardrailSettings(
            name=name,
            command=item["command"] or "",
            fail_action=item["failAction"],
            hint=item["hint"],
            timeout_s=float(item["timeoutSeconds"]),
            retries=item["retries"],
            how=_parse_guardrail_verification(item),
        )
        for name, item in zip(guardrail_names(items), items, strict=True)
    )


def _parse_guardrail_verification(item: dict[str, Any]) -> Verification:
    """How it is verified. A plain command, which most of them are, needs no reading; none has places to fill."""
    command, timeout_s = item["command"], float(item["timeoutSeconds"])
    if item["method"] == EXTERNAL and not item["config"]:
        return ExternalVerification(command, timeout_s=timeout_s)
    from ralphproof.settings.verification import parse_verification

    how = parse_verification(item["method"], method_config(item), Task("", ""))
    return replace(how, command=command, timeout_s=timeout_s) if isinstance(how, ExternalVerification) else how


def method_config(item: dict[str, Any]) -> dict[str, Any]:
    """The config of its method, as a task would have it; a command is a key of its own in settings."""
    own = {"command": item.get("command")} if item["method"] == EXTERNAL else {}
    return {**item["config"], **own}


def guardrail_names(items: list[dict[str, Any]]) -> tuple[str, ...]:
    """The name of each: its own, else its command, else its method, with a number to make it unique."""
    taken = {item["name"] for item in items if item["name"]}
    made: list[str] = []
    for item in items:
        usual = item["command"] or item["method"]
        name, number = usual, 1
        while name in taken:
            number += 1
            name = f"{usual} ({number})"
        made.append(item["name"] or name)
        taken.add(made[-1])
    return tuple(made)


@value
class StageSettings:
    """The settings of one pipeline stage, for tasks without their own.

    A stage that is not `enabled` is a single pass. `agent` and `model` are None for the run's own. `config` may have
    placeholders for fields of a task.
    """

    name: str
    enabled: bool
    agent: str | None
    model: str | None
    max_iterations: int
    promise: str
    method: str
    config: dict[str, Json]


@value
class PipelineSettings:
    """Every stage, in the order in which a task goes through them."""

    enabled: bool
    stages: tuple[StageSettings, ...]

    def stage(self, name: str) -> StageSettings:
        """The settings of this stage."""
        return next(stage for stage in self.stages if stage.name == name)

    def loops(self, name: str) -> bool:
        """Whether this stage is repeated until it passes; else it is a single pass."""
        return self.enabled and self.stage(name).enabled


def parse_pipeline_settings(pipeline: dict[str, Any], stages: dict[str, Any]) -> PipelineSettings:
    """The values behind checked settings that hold every key; what a stage leaves open, `pipeline` says."""
    most, method = pipeline["defaultMaxIterations"], pipeline["defaultVerification"]
    return PipelineSettings(
        pipeline["enabled"], tuple(_parse_stage(name, stages[name], most, method) for name in PIPELINE_STAGES)
    )


def _parse_stage(name: str, raw: dict[str, Any], most: int, method: str) -> StageSettings:
    own = raw["maxIterations"]
    return StageSettings(
        name=name,
        enabled=raw["enabled"],
        agent=raw["agent"],
        model=raw["model"],
        max_iterations=most if own is None else own,
        promise=strip_claim_tags(raw["promise"]),
        method=raw["verification"] or method,
        config=dict(raw["verificationConfig"]),
    )


@value
class AgentSettings:
    """The coding agent; a command of None is the first known agent on PATH. In `env` None drops a variable."""

    command: str | None
    flags: tuple[str, ...]
    model: str | None
    fallbacks: tuple[str, ...]
    ladder: tuple[str, ...]
    rotate: tuple[str, ...]
    env: tuple[tuple[str, str | None], ...]
    timeout_s: float
    idle_timeout_s: float | None
    retries: int


@value
class ScmSettings:
    command: str
    tasks: tuple[str, ...]


@value
class LimitSettings:
    """The limits that the user set; None is unlimited except for the caps."""

    max_cost_micro_usd: int | None
    daily_cost_micro_usd: int | None
    max_tokens: int | None
    max_seconds: float | None
    stall_iterations: int | None
    same_error_iterations: int | None
    escalate_to_deep_debug: bool
    pause_s: float


@value
class CapSettings:
    iterations: int
    cost_micro_usd: int
    daily_cost_micro_usd: int


@value
class PriceSettings:
    """Dollars per million tokens of one model."""

    input: float
    output: float
    cache_read: float
    cache_write: float


@value
class DisplaySettings:
    emoji: bool
    color: str  # auto, always or never
    timestamps: bool
    output_lines: int  # of a tool's output
    output_chars: int


@value
class SuperviseSettings:
    """How a root agent is restarted; the limit of restarts is `maximum_iterations`."""

    restart_delay_s: float | None
    poll_interval_s: float
    wait_timeout_s: float
    wait_exit_code: int


@value
class ReviewSettings:
    """Reviews of stories: whether, how often at most, and whether the run fails at that limit."""

    enabled: bool
    cap: int
    cap_is_failure: bool


@value
class SandboxSettings:
    """Where agents and checks run; a backend of None is no sandbox, `auto` the strongest that works here."""

    backend: str | None
    allow_hosts: tuple[str, ...]
    allow_local_ports: tuple[int, ...]
    read_paths: tuple[str, ...]


@value
class GuardSettings:
    """What the command guard allows and refuses in addition to its own rules."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]


@value
class HookSettings:
    """The user's own commands around a run and its iterations."""

    before_run: tuple[str, ...]
    before_iteration: tuple[str, ...]
    after_iteration: tuple[str, ...]
    after_run: tuple[str, ...]

    @property
    def by_name(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The commands of each hook that has any."""
        named = (
            (BEFORE_RUN, self.before_run), (BEFORE_ITERATION, self.before_iteration),
            (AFTER_ITERATION, self.after_iteration), (AFTER_RUN, self.after_run),
        )  # fmt: skip
        return tuple((name, commands) for name, commands in named if commands)


@value
class Settings:
    """All settings that have an effect."""

    preset: str
    maximum_iterations: int
    completion_response: str
    output_truncate_chars: int
    output_truncate_mode: str
    stream_agent_output: bool
    include_iteration_count: bool
    context_injection: bool
    agent: AgentSettings
    guardrails: tuple[GuardrailSettings, ...]
    scm: ScmSettings | None
    checks_when: str
    require_proof: bool
    protect_tests: bool
    verify_in: str  # workspace or clean
    setup: tuple[str, ...]
    must_fail_first: bool
    final_checks: tuple[str, ...]
    limits: LimitSettings
    caps: CapSettings
    prices: tuple[tuple[str, PriceSettings], ...]
    protected_paths: tuple[str, ...]
    notify: tuple[str, ...]
    metrics: bool
    otel: str | None
    on_internal_error: str
    display: DisplaySettings
    shutdown_grace_s: float
    supervise: SuperviseSettings
    pipeline: PipelineSettings
    review: ReviewSettings
    sandbox: SandboxSettings
    guard: GuardSettings
    on: HookSettings

    @property
    def cost_limit_micro_usd(self) -> int:
        """What the run may cost: the user's limit, else the cap."""
        chosen = self.limits.max_cost_micro_usd
        return self.caps.cost_micro_usd if chosen is None else chosen

    @property
    def daily_limit_micro_usd(self) -> int:
        """What all runs of a day may cost together: the user's limit, else the cap."""
        chosen = self.limits.daily_cost_micro_usd
        return self.caps.daily_cost_micro_usd if chosen is None else chosen


def parse_settings(raw: dict[str, Any]) -> Settings:
    """Typed values of merged and validated settings that have every key."""
    return Settings(
        preset=raw["preset"],
        maximum_iterations=_parse_iterations(raw),
        completion_response=strip_claim_tags(raw["completionResponse"]),
        output_truncate_chars=raw["outputTruncateChars"],
        output_truncate_mode=raw["outputTruncateMode"],
        stream_agent_output=raw["streamAgentOutput"],
        include_iteration_count=raw["includeIterationCountInPrompt"],
        context_injection=raw["contextInjection"],
        agent=_parse_agent(raw["agent"]),
        guardrails=parse_guardrails(raw["guardrails"]),
        scm=ScmSettings(raw["scm"]["command"], tuple(raw["scm"]["tasks"])) if raw["scm"] is not None else None,
        checks_when=raw["checksWhen"],
        require_proof=raw["requireProof"],
        protect_tests=raw["protectTests"],
        verify_in=raw["verifyIn"],
        setup=tuple(raw["setup"]),
        must_fail_first=raw["mustFailFirst"],
        final_checks=tuple(raw["finalChecks"]),
        limits=_parse_limits(raw["limits"]),
        caps=_parse_caps(raw["caps"]),
        prices=tuple((name, _parse_price(price)) for name, price in sorted(raw["prices"].items())),
        protected_paths=tuple(raw["protectedPaths"]),
        notify=tuple(raw["notify"]),
        metrics=raw["metrics"],
        otel=raw["otel"],
        on_internal_error=raw["onInternalError"],
        display=_parse_display(raw["display"]),
        shutdown_grace_s=float(raw["shutdownGraceSeconds"]),
        supervise=_parse_supervise(raw["supervise"]),
        pipeline=parse_pipeline_settings(raw["pipeline"], raw["stages"]),
        review=ReviewSettings(raw["review"]["enabled"], raw["review"]["cap"], raw["review"]["capIsFailure"]),
        sandbox=_parse_sandbox(raw["sandbox"]),
        guard=GuardSettings(tuple(raw["guard"]["allow"]), tuple(raw["guard"]["deny"])),
        on=HookSettings(*(tuple(raw["on"][name]) for name in HOOKS)),
    )


def _parse_iterations(raw: dict[str, Any]) -> int:
    """One limit has two names where restarts are counted; elsewhere the second one says nothing."""
    most, restarts = raw["maximumIterations"], raw["supervise"]["maxRestarts"]
    counted: int = restarts if raw["preset"] == "supervise" and restarts is not None else most
    return counted


def _parse_supervise(raw: dict[str, Any]) -> SuperviseSettings:
    return SuperviseSettings(
        restart_delay_s=None if raw["restartDelaySeconds"] is None else float(raw["restartDelaySeconds"]),
        poll_interval_s=float(raw["pollIntervalSeconds"]),
        wait_timeout_s=float(raw["waitTimeoutSeconds"]),
        wait_exit_code=raw["waitExitCode"],
    )


def _parse_sandbox(raw: dict[str, Any]) -> SandboxSettings:
    return SandboxSettings(
        backend=raw["backend"],
        allow_hosts=tuple(raw["allowHosts"]),
        allow_local_ports=tuple(raw["allowLocalPorts"]),
        read_paths=tuple(raw["readPaths"]),
    )


def _parse_caps(raw: dict[str, Any]) -> CapSettings:
    return CapSettings(raw["iterations"], to_micro_usd(raw["costUsd"]), to_micro_usd(raw["dailyCostUsd"]))


def _parse_agent(raw: dict[str, Any]) -> AgentSettings:
    idle = raw["idleTimeoutSeconds"]
    return AgentSettings(
        command=raw["command"],
        flags=tuple(raw["flags"]),
        model=raw["model"],
        fallbacks=tuple(raw["fallbacks"]),
        ladder=tuple(raw["ladder"]),
        rotate=tuple(raw["rotate"]),
        env=tuple(sorted(raw["env"].items())),
        timeout_s=float(raw["timeoutSeconds"]),
        idle_timeout_s=None if idle is None else float(idle),
        retries=raw["retries"],
    )


def _parse_price(raw: dict[str, Any]) -> PriceSettings:
    fresh = raw["input"]  # what the cache has no price of its own for costs as much as any input
    return PriceSettings(
        input=fresh,
        output=raw["output"],
        cache_read=fresh if raw["cacheRead"] is None else raw["cacheRead"],
        cache_write=fresh if raw["cacheWrite"] is None else raw["cacheWrite"],
    )


def _parse_display(raw: dict[str, Any]) -> DisplaySettings:
    return DisplaySettings(
        emoji=raw["emoji"],
        color=raw["color"],
        timestamps=raw["timestamps"],
        output_lines=raw["maxOutputLines"],
        output_chars=raw["maxOutputChars"],
    )


def _parse_limits(raw: dict[str, Any]) -> LimitSettings:
    cost, daily, minutes = raw["maxCostUsd"], raw["dailyCostUsd"], raw["maxMinutes"]
    return LimitSettings(
        max_cost_micro_usd=None if cost is None else to_micro_usd(cost),
        daily_cost_micro_usd=None if daily is None else to_micro_usd(daily),
        max_tokens=raw["maxTokens"],
        max_seconds=None if minutes is None else minutes * 60.0,
        stall_iterations=raw["stallIterations"],
        same_error_iterations=raw["sameErrorIterations"],
        escalate_to_deep_debug=raw["escalateToDeepDebug"],
        pause_s=raw["pauseMilliseconds"] / 1000,
    )


def to_micro_usd(amount: float) -> int:
    """Dollars as whole micro-dollars; an amount above nothing never becomes nothing."""
    return max(1, round(amount * 1_000_000))
