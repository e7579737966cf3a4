"""The settings of a run as values: Python names, units in the names, nothing left to check."""

from __future__ import annotations

from ralphproof.claim import without_tags
from ralphproof.config.guardrails import GuardrailSettings as GuardrailSettings
from ralphproof.config.guardrails import guardrails_of
from ralphproof.config.stage_settings import PipelineSettings as PipelineSettings
from ralphproof.config.stage_settings import StageSettings as StageSettings
from ralphproof.config.stage_settings import pipeline_settings
from ralphproof.run_hook import AFTER_ITERATION, AFTER_RUN, BEFORE_ITERATION, BEFORE_RUN, HOOKS
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import Any

AVAILABLE_PRESETS = ("harness", "pipeline", "stories", "supervise", "wrapper")


@value
class AgentSettings:
    """The coding agent; a command of None is whichever known agent is found. In `env` None drops a variable."""

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
    """What the user chose to limit; None is not limited, caps aside."""

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
    """How a root agent is kept alive; the most restarts are `maximum_iterations`."""

    restart_delay_s: float | None
    poll_interval_s: float
    wait_timeout_s: float
    wait_exit_code: int


@value
class ReviewSettings:
    """How stories are reviewed: whether, how often at most, and whether the run ends where that was not enough."""

    enabled: bool
    cap: int
    cap_is_failure: bool


@value
class SandboxSettings:
    """Where agents and checks run; a backend of None is no sandbox, `auto` the strongest that holds here."""

    backend: str | None
    allow_hosts: tuple[str, ...]
    allow_local_ports: tuple[int, ...]
    read_paths: tuple[str, ...]


@value
class GuardSettings:
    """What the command guard lets pass, and refuses, beside its own rules."""

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


def settings_of(raw: dict[str, Any]) -> Settings:
    """The values behind merged and checked settings that hold every key."""
    return Settings(
        preset=raw["preset"],
        maximum_iterations=_iterations(raw),
        completion_response=without_tags(raw["completionResponse"]),
        output_truncate_chars=raw["outputTruncateChars"],
        output_truncate_mode=raw["outputTruncateMode"],
        stream_agent_output=raw["streamAgentOutput"],
        include_iteration_count=raw["includeIterationCountInPrompt"],
        context_injection=raw["contextInjection"],
        agent=_agent(raw["agent"]),
        guardrails=guardrails_of(raw["guardrails"]),
        scm=ScmSettings(raw["scm"]["command"], tuple(raw["scm"]["tasks"])) if raw["scm"] is not None else None,
        checks_when=raw["checksWhen"],
        require_proof=raw["requireProof"],
        protect_tests=raw["protectTests"],
        verify_in=raw["verifyIn"],
        setup=tuple(raw["setup"]),
        must_fail_first=raw["mustFailFirst"],
        final_checks=tuple(raw["finalChecks"]),
        limits=_limits(raw["limits"]),
        caps=_caps(raw["caps"]),
        prices=tuple((name, _price(price)) for name, price in sorted(raw["prices"].items())),
        protected_paths=tuple(raw["protectedPaths"]),
        notify=tuple(raw["notify"]),
        metrics=raw["metrics"],
        otel=raw["otel"],
        on_internal_error=raw["onInternalError"],
        display=_display(raw["display"]),
        shutdown_grace_s=float(raw["shutdownGraceSeconds"]),
        supervise=_supervise(raw["supervise"]),
        pipeline=pipeline_settings(raw["pipeline"], raw["stages"]),
        review=ReviewSettings(raw["review"]["enabled"], raw["review"]["cap"], raw["review"]["capIsFailure"]),
        sandbox=_sandbox(raw["sandbox"]),
        guard=GuardSettings(tuple(raw["guard"]["allow"]), tuple(raw["guard"]["deny"])),
        on=HookSettings(*(tuple(raw["on"][name]) for name in HOOKS)),
    )


def _iterations(raw: dict[str, Any]) -> int:
    """One limit has two names where restarts are counted; elsewhere the second one says nothing."""
    most, restarts = raw["maximumIterations"], raw["supervise"]["maxRestarts"]
    counted: int = restarts if raw["preset"] == "supervise" and restarts is not None else most
    return counted


def _supervise(raw: dict[str, Any]) -> SuperviseSettings:
    return SuperviseSettings(
        restart_delay_s=None if raw["restartDelaySeconds"] is None else float(raw["restartDelaySeconds"]),
        poll_interval_s=float(raw["pollIntervalSeconds"]),
        wait_timeout_s=float(raw["waitTimeoutSeconds"]),
        wait_exit_code=raw["waitExitCode"],
    )


def _sandbox(raw: dict[str, Any]) -> SandboxSettings:
    return SandboxSettings(
        backend=raw["backend"],
        allow_hosts=tuple(raw["allowHosts"]),
        allow_local_ports=tuple(raw["allowLocalPorts"]),
        read_paths=tuple(raw["readPaths"]),
    )


def _caps(raw: dict[str, Any]) -> CapSettings:
    return CapSettings(raw["iterations"], micro_usd(raw["costUsd"]), micro_usd(raw["dailyCostUsd"]))


def _agent(raw: dict[str, Any]) -> AgentSettings:
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


def _price(raw: dict[str, Any]) -> PriceSettings:
    fresh = raw["input"]  # what the cache has no price of its own for costs as much as any input
    return PriceSettings(
        input=fresh,
        output=raw["output"],
        cache_read=fresh if raw["cacheRead"] is None else raw["cacheRead"],
        cache_write=fresh if raw["cacheWrite"] is None else raw["cacheWrite"],
    )


def _display(raw: dict[str, Any]) -> DisplaySettings:
    return DisplaySettings(
        emoji=raw["emoji"],
        color=raw["color"],
        timestamps=raw["timestamps"],
        output_lines=raw["maxOutputLines"],
        output_chars=raw["maxOutputChars"],
    )


def _limits(raw: dict[str, Any]) -> LimitSettings:
    cost, daily, minutes = raw["maxCostUsd"], raw["dailyCostUsd"], raw["maxMinutes"]
    return LimitSettings(
        max_cost_micro_usd=None if cost is None else micro_usd(cost),
        daily_cost_micro_usd=None if daily is None else micro_usd(daily),
        max_tokens=raw["maxTokens"],
        max_seconds=None if minutes is None else minutes * 60.0,
        stall_iterations=raw["stallIterations"],
        same_error_iterations=raw["sameErrorIterations"],
        escalate_to_deep_debug=raw["escalateToDeepDebug"],
        pause_s=raw["pauseMilliseconds"] / 1000,
    )


def micro_usd(amount: float) -> int:
    """Dollars as whole micro-dollars; an amount above nothing never becomes nothing."""
    return max(1, round(amount * 1_000_000))
