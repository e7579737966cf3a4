"""What should become true, and how a machine can tell. A plan is read anew before every iteration."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from ralphproof.value import Json

STRING_MATCH, EXTERNAL, SEMANTIC, MULTI_STAGE = "string_match", "external", "semantic", "multi_stage"
REFUSAL = "CHANGES_REQUESTED"  # the word by which a stage sends a task back
JUDGE_MICRO_USD = 500_000  # what one judgement may cost where nobody says otherwise
JUDGE_S, COMMAND_S = 300.0, 300.0


@value
class StringMatch:
    """The promise alone: the agent's word, which nothing verifies."""


@value
class External:
    """A command. It passes with this exit code, where its output also holds the one text and lacks the other.

    `folder` is where it runs, from the project's root, and never outside of it. An empty text is not looked for.
    """

    command: str
    success_exit_code: int = 0
    output_contains: str = ""
    output_not_contains: str = ""
    timeout_s: float = COMMAND_S
    folder: str = "."


@value
class Semantic:
    """A model's judgement of the work, criterion by criterion. One of the patterns in it refuses it without a model.

    `agent` is the command that is asked, `model` the model; empty: the stage's own agent, and a small one.
    """

    check_for: tuple[str, ...] = ()
    negative_patterns: tuple[str, ...] = ()
    model: str = ""
    agent: str = ""
    most_micro_usd: int = JUDGE_MICRO_USD
    timeout_s: float = JUDGE_S


@value
class Part:
    """One of several ways. One that is not `required` only warns; it is asked when those of `after` have ended."""

    name: str
    how: Verification
    required: bool = True
    after: tuple[str, ...] = ()


@value
class MultiStage:
    """Several ways together. With `require_all` the first required one that fails ends it, else all are asked."""

    parts: tuple[Part, ...]
    require_all: bool = True
    parallel: bool = True


@value
class Custom:
    """A way that an installed package brings, by the name of its entry point, and what it is told."""

    method: str
    config: dict[str, Json] = {}  # noqa: RUF012 (never changed)


Verification = StringMatch | External | Semantic | MultiStage | Custom


@value
class Criteria:
    """What "done" means for one stage of a task: the word that claims it and the way that it is verified.

    Where `how` is None, the settings and the repository's guardrails say how.
    """

    promise: str
    description: str = ""
    how: Verification | None = None
    max_iterations: int | None = None


@value
class Task:
    """One thing to be made true.

    `done` and `stage` are what the plan's source says of it; a source that does not track stages leaves `stage` None,
    and the history of passed stages decides.
    """

    id: str
    prompt: str
    title: str = ""
    priority: int = 0
    depends_on: tuple[str, ...] = ()
    done: bool = False
    stage: str | None = None
    outcome: str = ""
    acceptance: tuple[str, ...] = ()
    criteria: tuple[tuple[str, Criteria], ...] = ()
    spec: str = ""

    def criteria_of(self, stage: str) -> Criteria | None:
        """What this task asks of a stage, where it says so."""
        return dict(self.criteria).get(stage)


@value
class Plan:
    """All tasks, in the order in which their source lists them.

    `stuck` are tasks that nobody may go on with, and `why`; `concerns` what somebody should look at when all is done.
    `digest` is that of the prompt file as it was read; empty where there is none.
    """

    tasks: tuple[Task, ...]
    stuck: tuple[str, ...] = ()
    why: str = ""
    concerns: tuple[str, ...] = ()
    digest: str = ""


class PlanSource(Protocol):
    """Where the plan comes from."""

    def read(self) -> Plan:
        """The plan as it now stands; raises Refused where there is none to go on with."""
