"""What a run's work is asked: every check of its course, made with what the run holds."""

from __future__ import annotations

from ralphproof.config.stage_checks import NO_TASK, Means, checks_from
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.check import Check
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.sandbox import Sandbox
    from ralphproof.workspace import Workspace


def checks_of(order: Order, folder: RunFolder, sandbox: Sandbox, workspace: Workspace) -> dict[str, Check]:
    """Every check of the run's course, by its name."""
    if order.course is None:
        return {}
    settings = order.loaded.settings
    means = Means(
        order.project.root, order.check_env, folder, sandbox, workspace.diff, order.env,
        {name: one.agent for name, one in order.course.judges.items()}, order.course.task or NO_TASK,
        settings.output_truncate_chars, settings.output_truncate_mode,
    )  # fmt: skip
    return checks_from(order.course.leaves.values(), means)
