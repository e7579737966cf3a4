"""Parcels landed on a branch of this repository as every verb does it: after what the user committed meanwhile."""

from __future__ import annotations

from ralphproof.cli.landing_drive import Lander
from ralphproof.cli.landing_examine import Examiner
from ralphproof.landing import VERIFIED
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.landing_branch import current_branch, target_for
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.attested import Attested
    from ralphproof.cli.verify_room import Wishes
    from ralphproof.landing import LandingEnd, Parcel, Target
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project


def land_parcels(
    project: Project, ledger: Sqlite, parcels: tuple[Parcel, ...], wishes: Wishes, told: Callable[[str], None], *,
    environ: Mapping[str, str], onto: str = "", rebase: bool = False, unverified: bool = False,
    sandbox: str | None = None,
) -> tuple[LandingEnd, ...]:  # fmt: skip
    """Land these on `onto`, else on the branch of its own that the current one has; what became of each.

    What the user committed meanwhile lands first, and is told like the rest, without a run. The ledger must be
    writable, and opened by this thread. Where `wishes` tell that it should end, KeyboardInterrupt is raised, nothing
    moved. Checks run in the kind of sandbox that the runs had, or in the one that is named.
    """
    users = UsersGit(project.root, environ)
    target, theirs = target_for(users, onto)
    base = "" if onto else users.branch(current_branch(users))
    box = sandbox or next((one.sandbox for one in parcels if one.sandbox), None)
    with Examiner(project, environ, wishes, told, sandbox=box) as examine:
        lander = Lander(
            project, ledger, target, examine, told, environ=environ, base=base, rebase=rebase, unverified=unverified,
            heed=examine.heed, standing=project_checks(project, target, parcels, environ),
        )  # fmt: skip
        return lander.land((*((theirs,) if theirs else ()), *parcels))


def project_checks(
    project: Project, target: Target, parcels: tuple[Parcel, ...], environ: Mapping[str, str]
) -> tuple[Attested, ...]:
    """The checks of the project's settings on the target, where something lands that no check verified."""
    from ralphproof.attested import Attested
    from ralphproof.check import PassRule
    from ralphproof.cli.verify_consent import sanction_of

    if all(one.proof == VERIFIED for one in parcels):
        return ()
    ways = sanction_of(project.root, target.tip(), environ).ways
    rules = [(command, PassRule(folder, code, has, lacks)) for command, folder, code, has, lacks in ways]
    return tuple(
        Attested(command, command, "", rule, True, False, True, 0, "exit", None, "") for command, rule in rules
    )
