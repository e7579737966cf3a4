"""Check plans: a verification split into single checks, with guardrails and final checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest

from ralphproof.base.errors import Refused
from ralphproof.base.value import assert_never, replace, value
from ralphproof.checks.methods import guardrail_verification
from ralphproof.engine.claim import ClaimRule
from ralphproof.engine.plan import (
    EXTERNAL,
    MULTI_STAGE,
    SEMANTIC,
    STRING_MATCH,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    SemanticVerification,
    StringMatchVerification,
    Verification,
    VerificationPart,
)
from ralphproof.settings.declarations import GuardrailSettings, Settings

SingleVerification = StringMatchVerification | ExternalVerification | SemanticVerification | CustomVerification


@value
class CheckSpec:
    """One check of a run: its name, its verification, and whether it must pass.

    `stage` is empty for a guardrail. `late` checks run last, on work that is claimed to be done: judges, promises, and
    checks that wait for those. `claim_rule` is for promises. `log_name` replaces the name in the name of the log.
    `action`, `hint` and `retries` are settings of guardrails. A `hidden` check is not shown to agents. A `clean` check
    runs in a clean checkout.
    """

    name: str
    verification: SingleVerification
    required: bool = True
    stage: str = ""
    late: bool = False
    claim_rule: ClaimRule = ClaimRule()
    log_name: str = ""
    action: str = "APPEND"
    hint: str = ""
    retries: int = 0
    hidden: bool = False
    clean: bool = False

    @property
    def is_mechanical(self) -> bool:
        """Whether the result depends neither on a model nor on the agent's own words."""
        return isinstance(self.verification, ExternalVerification | CustomVerification)


@value
class CheckPlan:
    """All checks of a verification: the groups run one after the other, the checks of a group in parallel; late ones
    last.
    """

    groups: tuple[tuple[CheckSpec, ...], ...] = ()
    stops_early: bool = False

    @property
    def specs(self) -> tuple[CheckSpec, ...]:
        return tuple(spec for group in self.groups for spec in group)

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the checks of every iteration, in order."""
        return tuple(spec.name for spec in self.specs if not spec.late)

    @property
    def judges(self) -> tuple[str, ...]:
        """The names of the late checks, which run one by one on work that is claimed to be done."""
        return tuple(spec.name for spec in self.specs if spec.late)

    @property
    def parallel_groups(self) -> tuple[tuple[str, ...], ...]:
        """The names of checks that run in parallel."""
        groups = (tuple(spec.name for spec in group if not spec.late) for group in self.groups)
        return tuple(names for names in groups if len(names) > 1)

    @property
    def has_mechanical(self) -> bool:
        return any(spec.is_mechanical for spec in self.specs)

    def then(self, other: CheckPlan) -> CheckPlan:
        """This plan, then the other one, whose `stops_early` holds."""
        return CheckPlan((*self.groups, *other.groups), other.stops_early)

    def keep_only(self, specs: Iterable[CheckSpec]) -> CheckPlan:
        """Without the checks that are not among these."""
        wanted = {spec.name for spec in specs}
        groups = (tuple(spec for spec in group if spec.name in wanted) for group in self.groups)
        return replace(self, groups=tuple(group for group in groups if group))

    def map(self, change: Callable[[CheckSpec], CheckSpec]) -> CheckPlan:
        """The same plan with every check replaced."""
        return replace(self, groups=tuple(tuple(map(change, group)) for group in self.groups))

    def with_unique_names(self, taken: set[str], rename: Callable[[str], str] = str) -> CheckPlan:
        """The same plan with unique names, made by `rename` from the present ones; they are added to `taken`."""

        return self.map(lambda spec: replace(spec, name=_free_name(rename(spec.name), taken)))


EMPTY_CHECK_PLAN = CheckPlan()


def plan_checks(name: str, verification: Verification, under: str = "") -> CheckPlan:
    """The checks of a verification. A single one has this name; those of several stages have their own, nested
    `outer/inner`.

    Several stages are nested below `under`, where it is given.
    """
    if not isinstance(verification, MultiStageVerification):
        return CheckPlan(tuple(_flatten(VerificationPart(name, verification), name, True, False)))
    return CheckPlan(
        tuple(_flatten(VerificationPart(under, verification), under, True, False)), verification.require_all
    )


def verification_method(verification: Verification) -> str:
    """The method name of a verification."""
    match verification:
        case StringMatchVerification():
            return STRING_MATCH
        case ExternalVerification():
            return EXTERNAL
        case SemanticVerification():
            return SEMANTIC
        case MultiStageVerification():
            return MULTI_STAGE
        case CustomVerification(method):
            return method
        case _:
            assert_never(verification)


def _flatten(part: VerificationPart, path: str, required: bool, late: bool) -> list[tuple[CheckSpec, ...]]:
    """The groups of a part, in order. What waits for a late part is late too."""
    verification = part.how
    if not isinstance(verification, MultiStageVerification):
        return [
            (
                CheckSpec(
                    path,
                    verification,
                    required,
                    late=late or isinstance(verification, SemanticVerification | StringMatchVerification),
                ),
            )
        ]
    groups_in_order: list[tuple[CheckSpec, ...]] = []
    late_parts: set[str] = set()  # parts with a late check
    for layer in _dependency_layers(verification.parts, path):
        part_groups = []
        for inner in layer:
            inner_late = late or not late_parts.isdisjoint(inner.after)
            groups = _flatten(
                inner, f"{path}/{inner.name}" if path else inner.name, required and inner.required, inner_late
            )
            if any(spec.late for group in groups for spec in group):
                late_parts.add(inner.name)
            part_groups.append(groups)
        groups_in_order += (
            _merge_parallel(part_groups)
            if verification.parallel
            else [group for groups in part_groups for group in groups]
        )
    return groups_in_order


def _merge_parallel(several: list[list[tuple[CheckSpec, ...]]]) -> list[tuple[CheckSpec, ...]]:
    """Several lists of groups as one: all first groups in parallel, then all second ones."""
    return [tuple(spec for group in groups for spec in group) for groups in zip_longest(*several, fillvalue=())]


def _dependency_layers(parts: tuple[VerificationPart, ...], path: str) -> list[list[VerificationPart]]:
    """The parts in layers, each part after all that it waits for."""
    layers: list[list[VerificationPart]] = []
    placed: set[str] = set()
    left = list(parts)
    while left:
        ready = [part for part in left if placed.issuperset(part.after)]
        if not ready:
            where = f" of {path}" if path else ""
            raise Refused(f"these stages{where} wait for each other: {', '.join(part.name for part in left)}")
        layers.append(ready)
        placed |= {part.name for part in ready}
        left = [part for part in left if part not in ready]
    return layers


# Final checks: every command once more in a clean checkout, and the hidden checks.


CLEAN_CHECKOUT = "clean"


def plan_final_checks(settings: Settings, specs: Iterable[CheckSpec]) -> tuple[CheckSpec, ...]:
    """The final checks of a run with these checks. Those that only warn are not run twice."""
    known, clean = tuple(specs), settings.verify_in == CLEAN_CHECKOUT
    taken = {spec.name for spec in known}
    repeated = [
        replace(
            spec,
            name=_free_name(f"{spec.name} (clean)", taken),
            clean=True,
            late=True,
            log_name=f"clean_{spec.log_name or spec.name}",
        )
        for spec in known
        if clean and spec.required and isinstance(spec.verification, ExternalVerification)
    ]
    hidden = [
        CheckSpec(
            _free_name(f"final: {command}", taken), ExternalVerification(command), late=True, hidden=True, clean=clean
        )
        for command in settings.final_checks
    ]
    return (*repeated, *hidden)


def _free_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is added to `taken`."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    taken.add(free)
    return free


def plan_guardrails(settings: Settings) -> CheckPlan:
    """The checks of all guardrails: one after the other, all of them, whichever fails."""
    taken = {guardrail.name for guardrail in settings.guardrails}
    plan = EMPTY_CHECK_PLAN
    for guardrail in settings.guardrails:
        taken.discard(guardrail.name)
        plan = plan.then(_plan_guardrail(guardrail).with_unique_names(taken))
    return replace(plan, stops_early=False)


def _plan_guardrail(guardrail: GuardrailSettings) -> CheckPlan:
    """The checks of one guardrail; those of several stages have its name before their own."""

    def configure(spec: CheckSpec) -> CheckSpec:
        configured = replace(spec, action=guardrail.fail_action, hint=guardrail.hint)
        if spec.name != guardrail.name or not isinstance(spec.verification, ExternalVerification):
            return configured
        return replace(configured, log_name=guardrail.command, retries=guardrail.retries)

    return plan_checks(guardrail.name, guardrail_verification(guardrail), guardrail.name).map(configure)
