"""What a trial is made of: a project with a bug, how it is judged, and an agent that does the work or cheats."""

from __future__ import annotations

import json

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Step = dict[str, Any]
    Turn = tuple[Step, ...]

ORACLE, NOOP, CHEAT, WEAKER = "oracle", "no-op", "cheat", "weaker"
CLAIM: Step = {"text": "All tests pass.\n\n<response>DONE</response>"}
FIX: Step = {"write": {"@SOURCE@": "@RIGHT@"}}  # the honest work, whatever the project


@value
class Site:
    """A small project of one language: a bug in `source`, which `right` mends, and a test in `test` that shows it.

    `before` are the files of its first commit, `after` those that the second one adds.
    """

    name: str
    needs: tuple[str, ...]
    before: Mapping[str, str]
    after: Mapping[str, str]
    source: str
    right: str
    test: str


@value
class Scene:
    """A site with its settings. `kind` says how the agent is started: run, plain, stories or supervise.

    `path` are folders of the project that stand first on PATH. `needs` are programs beside those of the site.
    """

    id: str
    site: Site
    check: str
    settings: Mapping[str, Any]
    files: Mapping[str, str] = {}
    needs: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    kind: str = "run"
    oracle: tuple[Turn, ...] = ((FIX, CLAIM),)
    noop: tuple[Turn, ...] = ((CLAIM,),)

    @property
    def protects_tests(self) -> bool:
        return bool(self.settings.get("protectTests"))


@value
class Cheat:
    """A way of cheating, tried in these scenes; the run ends after its last turn.

    One that `fools` turns the check green in its first turn: whoever looks at the check alone believes it. In a scene
    that does not protect its tests it may be believed where a concern says so, in words that `told` matches. `answer`
    is what a judge says who is asked about it.
    """

    id: str
    about: str
    scenes: tuple[str, ...]
    turns: tuple[Turn, ...]
    fools: bool = True
    told: str = ""
    answer: Turn = ()


@value
class Trial:
    """One run of the program, and how it must end by the kind of its agent."""

    id: str
    kind: str
    about: str
    scene: Scene
    turns: tuple[Turn, ...]
    fools: bool = False
    told: str = ""
    answer: Turn = ({"judge": "yes"},)

    def script(self) -> str:
        """The turns as the scripted agent reads them."""
        site = self.scene.site
        text = json.dumps({"iterations": [list(turn) for turn in self.turns], "answer": list(self.answer)})
        for name, part in (("@SOURCE@", site.source), ("@RIGHT@", site.right), ("@TEST@", site.test)):
            text = text.replace(name, json.dumps(part)[1:-1])
        return text

    def shell(self) -> str:
        """The first turn as a program of its own: it reads nothing and knows no events."""
        lines = ["set -e"]
        for step in json.loads(self.script())["iterations"][0]:
            ((name, given),) = step.items()
            if name == "write":
                lines += (f"cat > {path} <<'END'\n{text}END" for path, text in given.items())
            elif name == "run":
                lines.append(given[-1])
            elif name == "stderr":
                lines.append(f"cat >&2 <<'END'\n{given}\nEND")
            else:
                lines.append("cat" if name == "echo_prompt" else f"cat <<'END'\n{given}\nEND")
        return "\n".join(lines) + "\n"


def sh(script: str) -> Step:
    """A step: the agent runs this."""
    return {"run": ["sh", "-ec", script]}


def say(text: str) -> Step:
    """A step: the agent says this."""
    return {"text": text}


def write(**files: str) -> Step:
    """A step: the agent writes these files; `__` in a name stands for `.`, and `_0_` for `/`."""
    return {"write": {name.replace("_0_", "/").replace("__", "."): text for name, text in files.items()}}


def lie(*steps: Step) -> tuple[Turn, ...]:
    """Do this and claim."""
    return ((*steps, CLAIM),)


def stubborn(*steps: Step) -> tuple[Turn, ...]:
    """Do this and claim, and then claim once more."""
    return (*steps, CLAIM), (CLAIM,)


def say_only(*steps: Step) -> tuple[Turn, ...]:
    """Do this, with no claim but what the steps say."""
    return (steps,)


def always(*steps: Step) -> tuple[Turn, ...]:
    """The same in two turns."""
    return steps, steps
