"""What the agent is told, and in which order."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.check import Finding
from ralphproof.engine.claim import ClaimRule, parse_claim
from ralphproof.engine.plan import Job, Stage, Task
from ralphproof.engine.prompt import (
    COMMIT_MESSAGE_PROMPT,
    Feedback,
    IterationCount,
    compose_prompt,
    format_failure,
    parse_commit_message,
)

SILENT = Stage("work", ClaimRule())
JOB = Job(Task("t", "BASE"), SILENT)


def red(name: str, action: str) -> Finding:
    return Finding(name, False, name, 1, log=f"{name}.log", output=f"{name} output", action=action)


def text(name: str) -> str:
    return f'Guardrail "{name}" failed with exit code 1.\nOutput file: {name}.log\nOutput (truncated):\n{name} output'


A, B, C = text("a"), text("b"), text("c")


@pytest.mark.parametrize(
    ("findings", "notes", "count", "parts"),
    [
        pytest.param("", (), None, ["BASE"], id="the task alone"),
        pytest.param(
            "", (), IterationCount(2, 5), ["Iteration 2 of 5, 3 remaining.", "BASE"], id="the count before it"
        ),
        pytest.param("A", (), None, ["BASE", A], id="append"),
        pytest.param("P", (), None, [A, "BASE"], id="prepend"),
        pytest.param("R", (), None, [A], id="replace drops the task"),
        pytest.param("AA", (), None, ["BASE", A, B], id="two appended in the order of the settings"),
        pytest.param("PP", (), None, [A, B, "BASE"], id="two prepended in the order of the settings"),
        pytest.param("RR", (), None, [A, B], id="two replacing in the order of the settings"),
        pytest.param("APA", (), None, [B, "BASE", A, C], id="prepended before, appended after"),
        pytest.param("ARP", (), None, [C, A, B], id="all three"),
        pytest.param("RAP", (), None, [C, A, B], id="all three the other way round"),
        pytest.param(
            "PRA", (), IterationCount(1, 1), ["Iteration 1 of 1, 0 remaining.", A, B, C], id="the count is outermost"
        ),
        pytest.param("A", ("note",), None, ["BASE", A, "note"], id="notes come last"),
    ],
)
def test_the_parts_stand_in_order_two_newlines_apart(
    findings: str, notes: tuple[str, ...], count: IterationCount | None, parts: list[str]
) -> None:
    actions = {"A": "APPEND", "P": "PREPEND", "R": "REPLACE"}
    made = tuple(red(name, actions[letter]) for name, letter in zip("abc", findings, strict=False))
    assert compose_prompt(JOB, Feedback(made, notes), count) == "\n\n".join(parts)


@pytest.mark.parametrize(
    ("finding", "message"),
    [
        pytest.param(
            Finding("c", False, "make test", 2, log="x.log", output="out"),
            'Guardrail "make test" failed with exit code 2.\nOutput file: x.log\nOutput (truncated):\nout',
            id="without a hint",
        ),
        pytest.param(
            Finding("c", False, "make test", 2, log="x.log", output="out", hint="try {harder}"),
            'Guardrail "make test" failed with exit code 2.\nHint: try {harder}\nOutput file: x.log\n'
            "Output (truncated):\nout",
            id="with a hint",
        ),
        pytest.param(
            Finding("c", False, "make test", None, "timeout", log="x.log", output="out"),
            'Guardrail "make test" failed with timeout.\nOutput file: x.log\nOutput (truncated):\nout',
            id="ended by the clock",
        ),
        pytest.param(
            Finding("clean tree", False, code=1, log="x.log"),
            'Guardrail "clean tree" failed with exit code 1.\nOutput file: x.log\nOutput (truncated):\n',
            id="a check that is no command has its name",
        ),
    ],
)
def test_a_failure_is_told_literally(finding: Finding, message: str) -> None:
    assert format_failure(finding) == message


def test_a_hint_is_never_cut() -> None:
    hint = "h" * 100_000
    assert f"Hint: {hint}\n" in compose_prompt(JOB, Feedback((replace(red("a", "APPEND"), hint=hint),)))


def test_nothing_in_a_task_or_a_failure_is_a_template() -> None:
    job = Job(Task("t", "keep {prompt} and {x}"), Stage("s", template="Do: {prompt}!"))
    output = replace(red("a", "APPEND"), output="{prompt} {0} %s")
    assert compose_prompt(job, Feedback((output,))).startswith("Do: keep {prompt} and {x}!\n\nGuardrail")
    assert compose_prompt(job, Feedback((output,))).endswith("{prompt} {0} %s")


@pytest.mark.parametrize(
    ("count", "line"),
    [
        (IterationCount(1, 10), "Iteration 1 of 10, 9 remaining."),
        (IterationCount(10, 10), "Iteration 10 of 10, 0 remaining."),
        (IterationCount(7, None), "Iteration 7."),
    ],
)
def test_the_count_line(count: IterationCount, line: str) -> None:
    assert str(count) == line


DONE = ClaimRule("DONE")
FOOTER = "When the work is complete, end your reply with this line:"


@pytest.mark.parametrize(
    ("prompt", "rule", "shown"),
    [
        pytest.param("Fix it.", DONE, True, id="a task that is silent about it"),
        pytest.param("Fix it. Then say DONE.", DONE, True, id="the bare word is no tag"),
        pytest.param("Fix it, then <response>DONE</response>", DONE, False, id="a task that shows the tag"),
        pytest.param("Fix it, then <PROMISE>done</promise>", DONE, False, id="either element, any case"),
        pytest.param("Fix it, then <promise>OTHER</promise>", DONE, True, id="another word"),
        pytest.param("Fix it.", ClaimRule(), False, id="no word is asked for"),
        pytest.param("Fix it.", ClaimRule("DONE", marker="DONE"), False, id="a file is asked for"),
    ],
)
def test_how_to_claim_is_told_only_where_the_task_does_not_show_it(prompt: str, rule: ClaimRule, shown: bool) -> None:
    made = compose_prompt(Job(Task("t", prompt), Stage("s", rule)), Feedback())
    assert made.startswith(prompt)
    assert (FOOTER in made) is shown


def test_a_replacing_failure_takes_the_task_away_but_not_how_to_claim() -> None:
    job = Job(Task("t", "Fix it, then\n<response>DONE</response>"), Stage("s", DONE))
    made = compose_prompt(job, Feedback((red("a", "REPLACE"),)))
    assert "Fix it" not in made
    assert made.startswith(f"{A}\n\n{FOOTER}")
    assert "\n<response>DONE</response>" in made


@pytest.mark.parametrize("element", ["promise", "response"])
def test_the_tag_that_a_prompt_shows_is_alone_on_its_line_and_its_echo_is_no_claim(element: str) -> None:
    rule = ClaimRule("DONE", element)
    made = compose_prompt(Job(Task("t", "Fix it."), Stage("s", rule)), Feedback((red("a", "APPEND"),)))
    assert f"<{element}>DONE</{element}>" in made.split("\n")
    assert rule.accepts(parse_claim(made).claim)
    assert parse_claim(made, made).claim is None


def test_a_claim_rule_comes_after_notes() -> None:
    made = compose_prompt(Job(Task("t", "Fix it."), Stage("s", DONE)), Feedback(notes=("a note",)))
    assert made.index("a note") < made.index(FOOTER)


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("Fix the parser", "Fix the parser"),
        ("\n\n  Fix the parser  \n\nBecause.", "Fix the parser"),
        ("Sure:\n<response>Fix the parser</response>\n", "Fix the parser"),
        ("<response>Fix it\n\nA body.</response>", "Fix it\n\nA body."),
        ("\x1b[1mFix it\x1b[0m\r\n", "Fix it"),
        ("Here: <response>Fix foo</response> ok?", "Fix foo"),
        ("Like `<response>` so:\n```\n<response>An example</response>\n```\n<promise>Fix foo</promise>", "Fix foo"),
        ("<response>Fix foo</response> or <response>Mend bar</response>", "Fix foo"),
        ("```text\nFix the parser\n```", "Fix the parser"),
        (COMMIT_MESSAGE_PROMPT, ""),
        (f"{COMMIT_MESSAGE_PROMPT}\n\nFix the parser", "Fix the parser"),
        (f"> {COMMIT_MESSAGE_PROMPT}\r\n<response>Fix the parser</response>", "Fix the parser"),
        ("", ""),
        (" \n\t\n", ""),
        ("<response> </response>", ""),
    ],
)
def test_a_commit_message_is_the_tags_content_or_the_first_line(reply: str, message: str) -> None:
    assert parse_commit_message(reply) == message


def test_the_agent_is_asked_for_a_commit_message_in_these_words() -> None:
    assert COMMIT_MESSAGE_PROMPT == (
        "Provide a short imperative commit message for the changes. Output only the message, no explanation."
    )
