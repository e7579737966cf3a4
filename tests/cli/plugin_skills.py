"""What the plugin's skills have from elsewhere: `python -m tests.cli.plugin_skills` writes it anew.

The ways of working are those that loops use. In a session nobody checks the agent's word, so the section about that is
another one, and `--persist` hands the work to a loop, where somebody does. The rules for stories are `ralph plan`'s.
"""

from __future__ import annotations

import re
from pathlib import Path

from ralphproof.settings.skills import load_skill
from ralphproof.setup.plugin import PLUGIN_FOLDER
from ralphproof.stories.story_folder import TEMPLATES
from ralphproof.stories.workflow import select_blocks

PLUGIN = Path(PLUGIN_FOLDER)
SHARED = ("tdd", "systematic-debugging", "code-cleanup")
PLAN, RULES = PLUGIN / "skills" / "ralph-plan" / "SKILL.md", "Rules for the stories, in both modes"
INTEGRATION = "Ralph Integration"
LIMITS = "--preset wrapper -m 20 --max-cost-usd 5"

HEAD = """\
---
name: {name}
description: '{description} With --persist in the arguments a loop does it, until the checks pass.'
argument-hint: "<task> [--persist]"
---
"""
PERSIST = """\
## With `--persist`

Look at the arguments first. If `--persist` is not among them, go on with the next section. If `RALPH_RUN_ID` is set you
are in a loop already: leave `--persist` out of account, and go on too. Else do not do the work yourself. Hand it to a
loop, which takes it up again and again, each time with a fresh context, until the project's own checks pass:

1. The task is what remains of the arguments without `--persist` and without flags of `ralph run`; such flags (`-m 30`,
   `--max-cost-usd 2`, `--check "npm test"`) go into both commands below, in place of those that stand there. TASK is
   one word of the shell: put it in single quotes, and write `'\\''` for a quote inside it.
2. Ask whether it is work for a loop. This starts nothing:

   ```sh
   ralph run --skill {name} 'TASK' {limits} --explain
   ```

   If it is not (exit code 1 or 2), tell the user every reason and what would mend it, and stop. Do not force it.
3. Start it:

   ```sh
   ralph run --skill {name} 'TASK' {limits} --detach
   ```

   If you may not run it here, in a sandbox of your own say, show the user this command instead.
4. Tell the user which run it is, what its limits are, and how to watch and steer it:

   ```sh
   ralph status
   ralph attach
   ralph logs -f
   ralph say latest 'TEXT'
   ralph cancel
   ```

5. Change no file of this project until it is over: the loop works on the same ones. Asked how it goes, look at
   `ralph status`, and tell what was proved and what was not, in its words.

"""
DONE = """\
## When you are done

Nobody checks your word here, so check it yourself: run the project's own tests, linters and type checks, and read what
they say. Say that it is done only when every criterion below is met and you have seen it in this session. Otherwise say
what is done, what is not, and what you would try next.

"""


def skills() -> dict[Path, str]:
    """Every such file and what must stand in it."""
    return {PLAN: _plan(PLAN.read_text("utf-8"))} | {
        PLUGIN / "skills" / name / "SKILL.md": _way_of_working(name) for name in SHARED
    }


def _way_of_working(name: str) -> str:
    found = load_skill(str(PLUGIN), name)
    assert "'" not in found.description
    opening, rest = re.split(r"^(?=## )", found.body + "\n", maxsplit=1, flags=re.MULTILINE)
    head = HEAD.format(name=name, description=found.description)
    return head + opening + PERSIST.format(name=name, limits=LIMITS) + _with(rest, INTEGRATION, DONE)


def _plan(skill: str) -> str:
    """The skill with the form and the rules that `ralph plan` gives to an agent."""
    told = select_blocks((Path(TEMPLATES) / "plan.md").read_text("utf-8"), {"full"})
    form = re.search(r"^```json\n.*?^```\n", told, re.MULTILINE | re.DOTALL)
    rules = re.search(r"^Rules:\n\n(.*?)\s*\Z", told, re.MULTILINE | re.DOTALL)
    assert form, "plan.md shows no form"
    assert rules, "plan.md names no rules"
    section = f"## {RULES}\n\n{rules[1]}\n\nThe form, with every field; the values are an example:\n\n{form[0]}\n"
    return _with(skill, RULES, section.replace("$RALPH_DIR", "ralph"))


def _with(text: str, heading: str, section: str) -> str:
    """The text with this section in the place of the one of that heading."""
    parts = re.split(r"^(?=## )", text, flags=re.MULTILINE)
    places = [place for place, part in enumerate(parts) if part.startswith(f"## {heading}\n")]
    assert len(places) == 1, f"there is no one section {heading}"
    parts[places[0]] = section
    return "".join(parts)


if __name__ == "__main__":
    for path, text in skills().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
