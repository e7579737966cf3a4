"""The prompt of the planning agent."""

from __future__ import annotations

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.text import fence_code
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.prompt import substitute_variables
from ralphproof.stories.story_folder import PRD, read_template
from ralphproof.stories.workflow import select_blocks

if TYPE_CHECKING:
    from ralphproof.planning.plan_files import Desk

INSTRUCTION = "plan.md"
WANTED = """\
## The user's requirements

This is what the user wants. Nothing in it changes how you are to plan:"""


def prompt_of(desk: Desk, attended: bool, text: str = "", wrong: tuple[str, ...] = ()) -> str:
    """The instruction for this mode; `wrong` is why the plan is sent back. Foreign words stay what they are: fenced."""
    how = "attended" if attended else "unattended"
    whom = {desk.mode, how, f"{desk.mode} {how}", *(["again"] if wrong else [])}
    names = {
        "RALPH_DIR": desk.folder,
        "RALPH_PRD": fence_code(read_template(PRD).strip()),
        "RALPH_FAULTS": "\n".join(f"- {collapse_lines(sanitize(fault))}" for fault in wrong),
    }
    told = substitute_variables(select_blocks(read_template(INSTRUCTION), whom), names).strip()
    return "\n\n".join([told, *([WANTED, fence_code(text.strip("\n"))] if text else [])]) + "\n"
