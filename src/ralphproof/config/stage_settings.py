"""The settings of tasks that go through stages, as values."""

from __future__ import annotations

from ralphproof.claim import without_tags
from ralphproof.config.keys import STAGES
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json


@value
class StageSettings:
    """What holds for one stage of every task that says nothing of its own.

    One that is not `enabled` is a single pass. `agent` and `model` are None where the run's own are meant. `config` is
    as the settings have it: it may name fields of a task, which are filled in when the task is known.
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


def pipeline_settings(pipeline: dict[str, Any], stages: dict[str, Any]) -> PipelineSettings:
    """The values behind checked settings that hold every key; what a stage leaves open, `pipeline` says."""
    most, method = pipeline["defaultMaxIterations"], pipeline["defaultVerification"]
    return PipelineSettings(pipeline["enabled"], tuple(_stage(name, stages[name], most, method) for name in STAGES))


def _stage(name: str, raw: dict[str, Any], most: int, method: str) -> StageSettings:
    own = raw["maxIterations"]
    return StageSettings(
        name=name,
        enabled=raw["enabled"],
        agent=raw["agent"],
        model=raw["model"],
        max_iterations=most if own is None else own,
        promise=without_tags(raw["promise"]),
        method=raw["verification"] or method,
        config=dict(raw["verificationConfig"]),
    )
