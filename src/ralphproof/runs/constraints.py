"""Constraints of a run (budget, sandbox, protected paths), as saved and as inherited by child runs."""

from __future__ import annotations

import time

from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.budget import Budget, Spend
from ralphproof.runs.preflight import refuse_unknown_cost
from ralphproof.runs.request import CONSTRAINTS_NOTE
from ralphproof.runs.spec import prepare_spec
from ralphproof.settings.model import SandboxSettings
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
    """What a run is held to since it was last begun or taken up. Those that its agent begins are held no less."""

    budget: Budget
    protected: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    force: bool = False
    cost_matters: bool = False  # the user set a limit on cost, and wants it to hold
    sandbox: SandboxSettings | None = None  # with the kind that it really has


def save_constraints(folder: RunFolder, rules: RunRules, spec: RunSpec, held_by: str) -> None:
    """Write down, durably, what a run may use, all told, and what else holds for it; `held_by` names its sandbox."""
    request, settings, lax = spec.request, spec.loaded.settings, spec.request.allow_unknown_cost
    kind = request.sandbox_kind(settings)
    box = replace(settings.sandbox, backend=held_by if kind == "auto" else kind) if kind else None
    bounds = RunConstraints(
        rules.limits.budget, settings.protected_paths, request.guarded, lax, request.force, rules.warn_unknown_cost, box
    )
    folder.note(CONSTRAINTS_NOTE, pack(bounds))


def sandbox_as_settings(box: SandboxSettings | None) -> dict[str, Any]:
    """The sandbox of a run as settings for another one, or for itself later."""
    if box is None:
        return {"backend": None}
    return {
        "backend": box.backend,
        "allowHosts": list(box.allow_hosts),
        "allowLocalPorts": list(box.allow_local_ports),
        "readPaths": list(box.read_paths),
    }


def load_constraints(folder: RunFolder) -> RunConstraints | None:
    """What a run is held to; None where that is not written down."""
    noted = folder.noted(CONSTRAINTS_NOTE)
    try:
        bounds = unpack(noted)
    except TypeError:
        return None
    return bounds if isinstance(bounds, RunConstraints) and isinstance(bounds.budget, Budget) else None


def load_budget(folder: RunFolder) -> Budget | None:
    """What a run may use, all told; None where that is not written down."""
    bounds = load_constraints(folder)
    return bounds.budget if bounds else None


# How a run is held that is part of another one: no looser than that, and with no more than that has left.


UNKNOWN_CONSTRAINTS = RunConstraints(Budget())
MIN_TIME_LEFT_S = 0.1  # no time left at all would read as no limit


def apply_parent_constraints(spec: RunSpec, parent: str) -> RunSpec:
    """The same order as a part of this run: guarded as that is, with its protected paths, without what it lacked.

    Raises Refused where nothing that may begin is left of it.
    """
    ledger = spec.project.ledger()
    try:
        bounds = [one for _, one in _ancestor_constraints(parent, spec.project, ledger)]
    finally:
        ledger.close()
    tight = _tighten_request(spec.request, bounds)
    if tight != spec.request:
        denied = _describe_denied_flags(spec.request, tight, parent)
        spec = prepare_spec(tight)
        spec = replace(spec, remarks=(*denied, *spec.remarks))
    _refuse_unknown_cost_under_limit(spec, bounds)
    return spec


def _tighten_request(request: RunRequest, bounds: list[RunConstraints]) -> RunRequest:
    box = next((one.sandbox for one in bounds if one.sandbox), None)
    return replace(
        request
        if box is None
        else replace(request, allow_hosts=(), flags={**request.flags, "sandbox": sandbox_as_settings(box)}),
        protect=tuple(dict.fromkeys((*request.protect, *(path for one in bounds for path in one.protected)))),
        guarded=request.guarded or any(one.guarded for one in bounds),
        allow_unknown_cost=request.allow_unknown_cost and all(one.allow_unknown_cost for one in bounds),
        force=request.force and all(one.force for one in bounds),
        may_change=(),
    )


def _describe_denied_flags(request: RunRequest, tight: RunRequest, parent: str) -> list[str]:
    """What is not granted, in sentences."""
    flags = {
        "--no-sandbox": tight.guarded != request.guarded,
        "--allow-unknown-cost": tight.allow_unknown_cost != request.allow_unknown_cost,
        "--force": tight.force != request.force,
        "--may-change": tight.may_change != request.may_change,
        "--allow-host of its own": tight.allow_hosts != request.allow_hosts,
    }
    part = f"run {parent}, which this one is part of"
    return [f"{part}, has no {flag}, so this one has none" for flag, denied in flags.items() if denied]


def _refuse_unknown_cost_under_limit(spec: RunSpec, bounds: list[RunConstraints]) -> None:
    """A limit on cost that the user set for a run holds for its parts: they must be able to tell theirs."""
    most = next((one.budget.micro_usd for one in bounds if one.cost_matters), None)
    settings = spec.loaded.settings
    if most is not None and settings.limits.max_cost_micro_usd is None:
        settings = replace(settings, limits=replace(settings.limits, max_cost_micro_usd=most))
        refuse_unknown_cost(settings, spec.selected_agents, spec.allow_unknown_cost)


def cap_budget_by_ancestors(
    budget: Budget, run: str, project: Project, ledger: SqliteLedger, spend_store: SpendStore, parent: str
) -> Budget:
    """The budget of a run, with no more than each run above it has left. What the run has used itself is its own."""
    own = _total_spend(run, ledger, spend_store)
    for name, bounds in _ancestor_constraints(parent, project, ledger):
        most, spend = bounds.budget, _total_spend(name, ledger, spend_store)
        seconds = None if most.seconds is None else most.seconds - _run_age_s(name, project, ledger)
        budget = replace(
            budget,
            micro_usd=_tighter_limit(budget.micro_usd, most.micro_usd, own.micro_usd - spend.micro_usd),
            tokens=_tighter_limit(budget.tokens, most.tokens, own.tokens - spend.tokens),
            daily_micro_usd=_tighter_limit(budget.daily_micro_usd, most.daily_micro_usd, 0),
        )
        if seconds is not None:
            left_s = _run_age_s(run, project, ledger) + max(MIN_TIME_LEFT_S, seconds)
            budget = replace(budget, seconds=left_s if budget.seconds is None else min(budget.seconds, left_s))
    return budget


def _tighter_limit(own: int | None, most: int | None, change: int) -> int | None:
    if most is None:
        return own
    left = max(1, most + change)
    return left if own is None else min(own, left)


def _total_spend(run: str, ledger: SqliteLedger, spend_store: SpendStore) -> Spend:
    return spend_store.spend_of((run, *(row.id for row in ledger.descendants(run))))


def _run_age_s(run: str, project: Project, ledger: SqliteLedger) -> float:
    from ralphproof.views.interrupted_run import active_seconds

    return active_seconds(project, run, ledger.timed_records(run), time.time())


def _ancestor_constraints(run: str, project: Project, ledger: SqliteLedger) -> Iterator[tuple[str, RunConstraints]]:
    """A run and those that it is part of, each with what it is held to; where that is lost, it is held tightly."""
    passed = {""}
    while run not in passed:
        passed.add(run)
        yield run, load_constraints(RunFolder(project.root, run, project.store)) or UNKNOWN_CONSTRAINTS
        row = ledger.row(run)
        run = row.parent if row else ""
