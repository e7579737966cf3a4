"""What a run's work is asked: every check of its course, made with what the run holds."""

from __future__ import annotations

from ralphproof.config.stage_checks import NO_TASK, Means, checks_from
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.check import Check
    from ralphproof.checks.clean import Room
    from ralphproof.checks.command import Question
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.sandbox import Sandbox
    from ralphproof.workspace import Workspace


def checks_of(
    order: Order, folder: RunFolder, sandbox: Sandbox, workspace: Workspace, room: Room | None = None
) -> dict[str, Check]:
    """Every check of the run's course, by its name; those that want a clean checkout get it in the `room`."""
    if order.course is None:
        return {}
    settings, task = order.loaded.settings, order.course.task or NO_TASK
    means = Means(
        order.project.root, order.check_env, folder, sandbox, workspace.diff, order.env,
        {name: one.agent for name, one in order.course.judges.items()}, task,
        settings.output_truncate_chars, settings.output_truncate_mode,
        clean=None if room is None else lambda question: _clean(question, room, order, folder),
    )  # fmt: skip
    return checks_from(order.course.leaves.values(), means)


def _clean(question: Question, room: Room, order: Order, folder: RunFolder) -> Check:
    from ralphproof.checks.clean import CleanCheck

    env = dict(order.check_env)
    if order.course and order.course.task and order.course.task.id:
        from ralphproof.plans.fields import exports

        env |= exports(order.course.task)
    return CleanCheck(question, room, folder, order.project.root, tuple(env.items()))
