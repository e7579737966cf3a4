"""Constraints of a run (budget, sandbox, protected paths), as saved and as inherited by child runs."""

from __future__ import annotations

import time

from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.budget import Budget, Spend
from ralphproof.runs.preflight import refuse_unknown_cost
from ralphproof.runs.request import CONSTRAINTS_NOTE
from ralphproof.runs.spec import prepare_spec
from ralphproof.settings.typed_settings import SandboxSettings
from ralphproof.store.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.engine.actions import RunRules
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project
    from ralphproof.store.spend import SpendStore
    from ralphproof.store.sqlite_ledger import SqliteLedger


@value
class RunConstraints:
    """The constraints of a run since it was last begun or resumed. They hold for its child runs too."""

    budget: Budget
    protected: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    force: bool = False
    cost_limited: bool = False  # the user set a cost limit that must be enforced
    sandbox: SandboxSettings | None = None  # with the kind that was chosen for `auto`


def save_constraints(folder: RunFolder, rules: RunRules, spec: RunSpec, sandbox_name: str) -> None:
    """Save the constraints of a run durably; `sandbox_name` is the kind of sandbox that it got."""
    request, settings, allow_unknown_cost = spec.request, spec.loaded.settings, spec.request.allow_unknown_cost
    kind = request.sandbox_kind(settings)
    sandbox = replace(settings.sandbox, backend=sandbox_name if kind == "auto" else kind) if kind else None
    constraints = RunConstraints(
        rules.limits.budget,
        settings.protected_paths,
        request.guarded,
        allow_unknown_cost,
        request.force,
        rules.warn_unknown_cost,
        sandbox,
    )
    folder.note(CONSTRAINTS_NOTE, pack(constraints))


def sandbox_as_settings(sandbox: SandboxSettings | None) -> dict[str, Any]:
    """The sandbox of a run as settings for a child run, or for resuming it."""
    if sandbox is None:
        return {"backend": None}
    return {
        "backend": sandbox.backend,
        "allowHosts": list(sandbox.allow_hosts),
        "allowLocalPorts": list(sandbox.allow_local_ports),
        "readPaths": list(sandbox.read_paths),
    }


def load_constraints(folder: RunFolder) -> RunConstraints | None:
    """The saved constraints of a run; None where there are none."""
    saved = folder.noted(CONSTRAINTS_NOTE)
    try:
        constraints = unpack(saved)
    except TypeError:
        return None
    return constraints if isinstance(constraints, RunConstraints) and isinstance(constraints.budget, Budget) else None


def load_budget(folder: RunFolder) -> Budget | None:
    """The saved budget of a run; None where there is none."""
    constraints = load_constraints(folder)
    return constraints.budget if constraints else None


# Child runs: never less constrained than their ancestors, and with no more than these have left.


UNKNOWN_CONSTRAINTS = RunConstraints(Budget())
MIN_TIME_LEFT_S = 0.1  # 0 would mean no limit


def apply_parent_constraints(spec: RunSpec, parent: str) -> RunSpec:
    """The spec as a child of this run: with its sandbox and protected paths, and without permissions that it lacks.

    Raises Refused where such a run may not begin.
    """
    ledger = spec.project.ledger()
    try:
        constraints = [one for _, one in _ancestor_constraints(parent, spec.project, ledger)]
    finally:
        ledger.close()
    tightened = _tighten_request(spec.request, constraints)
    if tightened != spec.request:
        denied = _describe_denied_flags(spec.request, tightened, parent)
        spec = prepare_spec(tightened)
        spec = replace(spec, remarks=(*denied, *spec.remarks))
    _refuse_unknown_cost_under_limit(spec, constraints)
    return spec


def _tighten_request(request: RunRequest, constraints: list[RunConstraints]) -> RunRequest:
    sandbox = next((one.sandbox for one in constraints if one.sandbox), None)
    return replace(
        request
        if sandbox is None
        else replace(request, allow_hosts=(), flags={**request.flags, "sandbox": sandbox_as_settings(sandbox)}),
        protect=tuple(dict.fromkeys((*request.protect, *(path for one in constraints for path in one.protected)))),
        guarded=request.guarded or any(one.guarded for one in constraints),
        allow_unknown_cost=request.allow_unknown_cost and all(one.allow_unknown_cost for one in constraints),
        force=request.force and all(one.force for one in constraints),
        may_change=(),
    )


def _describe_denied_flags(request: RunRequest, tightened: RunRequest, parent: str) -> list[str]:
    """A sentence for each flag that the parent does not permit."""
    flags = {
        "--no-sandbox": tightened.guarded != request.guarded,
        "--allow-unknown-cost": tightened.allow_unknown_cost != request.allow_unknown_cost,
        "--force": tightened.force != request.force,
        "--may-change": tightened.may_change != request.may_change,
        "--allow-host of its own": tightened.allow_hosts != request.allow_hosts,
    }
    parent_phrase = f"run {parent}, which this one is part of"
    return [f"{parent_phrase}, has no {flag}, so this one has none" for flag, denied in flags.items() if denied]


def _refuse_unknown_cost_under_limit(spec: RunSpec, constraints: list[RunConstraints]) -> None:
    """A cost limit of the user holds for child runs too: raise Refused where a child cannot report its cost."""
    cost_limit = next((one.budget.micro_usd for one in constraints if one.cost_limited), None)
    settings = spec.loaded.settings
    if cost_limit is not None and settings.limits.max_cost_micro_usd is None:
        settings = replace(settings, limits=replace(settings.limits, max_cost_micro_usd=cost_limit))
        refuse_unknown_cost(settings, spec.selected_agents, spec.allow_unknown_cost)


def cap_budget_by_ancestors(
    budget: Budget, run: str, project: Project, ledger: SqliteLedger, spend_store: SpendStore, parent: str
) -> Budget:
    """The budget of a run, capped by what each ancestor has left. What the run itself spent is not counted twice."""
    own = _total_spend(run, ledger, spend_store)
    for ancestor, constraints in _ancestor_constraints(parent, project, ledger):
        limits, spend = constraints.budget, _total_spend(ancestor, ledger, spend_store)
        seconds_left = None if limits.seconds is None else limits.seconds - _run_age_s(ancestor, project, ledger)
        budget = replace(
            budget,
            micro_usd=_tighter_limit(budget.micro_usd, limits.micro_usd, own.micro_usd - spend.micro_usd),
            tokens=_tighter_limit(budget.tokens, limits.tokens, own.tokens - spend.tokens),
            daily_micro_usd=_tighter_limit(budget.daily_micro_usd, limits.daily_micro_usd, 0),
        )
        if seconds_left is not None:
            left_s = _run_age_s(run, project, ledger) + max(MIN_TIME_LEFT_S, seconds_left)
            budget = replace(budget, seconds=left_s if budget.seconds is None else min(budget.seconds, left_s))
    return budget


def _tighter_limit(own: int | None, inherited: int | None, offset: int) -> int | None:
    if inherited is None:
        return own
    left = max(1, inherited + offset)
    return left if own is None else min(own, left)


def _total_spend(run: str, ledger: SqliteLedger, spend_store: SpendStore) -> Spend:
    return spend_store.spend_of((run, *(row.id for row in ledger.descendants(run))))


def _run_age_s(run: str, project: Project, ledger: SqliteLedger) -> float:
    from ralphproof.views.interrupted_run import active_seconds

    return active_seconds(project, run, ledger.timed_records(run), time.time())


def _ancestor_constraints(run: str, project: Project, ledger: SqliteLedger) -> Iterator[tuple[str, RunConstraints]]:
    """A run and its ancestors, each with its constraints; the strictest ones where they are lost."""
    seen = {""}
    while run not in seen:
        seen.add(run)
        yield run, load_constraints(RunFolder(project.root, run, project.store)) or UNKNOWN_CONSTRAINTS
        row = ledger.row(run)
        run = row.parent if row else ""
