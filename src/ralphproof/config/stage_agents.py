"""Which agents the stages of a task have, and which one judges for them."""

from __future__ import annotations

import os

from ralphproof.agents.command import words
from ralphproof.agents.dialect import COMPUTED
from ralphproof.config.agents import AS_GIVEN, NO_TOOLS, UNGUARDED, Chosen, Post, Terms, filled, price_list
from ralphproof.plan import Semantic
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.config.settings import Settings

PROVIDER = "pydantic-ai"  # as an agent's name: the provider of the model itself is asked


def stage_crew(
    settings: Settings, root: str, environ: Mapping[str, str], guarded: bool, boxed: bool = False
) -> tuple[tuple[str, Chosen], ...]:
    """Every stage that has an agent or a model of its own, with that."""
    terms = Terms(root, environ.get("PATH", os.defpath), guarded, settings.prices, boxed)
    posts = [
        (stage.name, _post(settings, stage.name)) for stage in settings.pipeline.stages if stage.agent or stage.model
    ]
    return tuple((name, filled(post, terms)) for name, post in posts)


def _post(settings: Settings, name: str) -> Post:
    """What a stage's own turn is started with; only the run's own agent has the run's own flags."""
    stage, usual = settings.pipeline.stage(name), settings.agent
    if stage.agent:
        return Post(stage.agent, (), stage.model, f"stages.{name}.agent")
    return Post(usual.command, usual.flags, stage.model or usual.model, f"stages.{name}.model")


def judge_of(semantic: Semantic, stage: str, settings: Settings, root: str, environ: Mapping[str, str]) -> Chosen:
    """Who is asked for a judgement: the named one, else the stage's own agent, with a small model unless one is named.

    A question has no tools, so no guard is needed. Raises AgentUnusable where the judge cannot be used.
    """
    from ralphproof.agents.question import small_model

    if semantic.agent == PROVIDER:
        from ralphproof.agents.provider import Provider

        provider = Provider(semantic.model, price_list(settings.prices).cost)
        return Chosen(provider, "", AS_GIVEN, COMPUTED, semantic.model)
    post = _post(settings, stage) if stage in {one.name for one in settings.pipeline.stages} else _usual(settings)
    command, flags = (semantic.agent, ()) if semantic.agent else (post.command, post.flags)
    name = os.path.basename(words(command, (), root)[0]) if command else ""
    terms = Terms(root, environ.get("PATH", os.defpath), guarded=False, prices=settings.prices)
    found = filled(Post(command, flags, semantic.model or small_model(name) or None, "the judge"), terms)
    return replace(found, permissions=NO_TOOLS) if found.permissions == UNGUARDED else found


def _usual(settings: Settings) -> Post:
    return Post(settings.agent.command, settings.agent.flags)
