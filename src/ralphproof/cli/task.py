"""`ralph task`: tasks with what done means for each: made, read from files, shown, and changed."""

from __future__ import annotations

from ralphproof.cli.subverbs import Subverbs

ABOUT = """tasks with what done means for each: made, read from files, shown, and changed. ralph work works on them.

{verbs}

ralph task VERB --help says more."""
EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Invalid tokens return 401" --tester-verify-cmd "pytest tests/test_auth.py"',
    "ralph task import tasks.yaml",
    "ralph task list",
    "ralph task show TASK-001",
)
VERBS = {
    "create": "make a task",
    "followup": "make a task that comes after another one",
    "generate": "let an agent break a wish or a document into tasks",
    "import": "make tasks from files",
    "export": "write tasks as a file that can be imported",
    "validate": "say what is wrong with tasks, in files or in the record",
    "list": "every task, one line each",
    "show": "all about one task, with every verification of it",
    "edit": "change a task",
    "templates": "ready-made ways to verify a stage",
}

OWN = Subverbs("task", ABOUT, EXAMPLES, VERBS, "list")
parser, parsers, main = OWN.parser, OWN.parsers, OWN.main
