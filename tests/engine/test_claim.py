"""Which words of an agent are a claim, and which are only words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.text import strip_escapes
from ralphproof.engine.claim import (
    Claim,
    ClaimRule,
    ParsedClaim,
    is_same_word,
    parse_claim,
    remove_prompt_echo,
    strip_claim_tags,
)

TAG = "<promise>DONE</promise>"
PROMPT = f"Fix the parser.\n\nRun the tests.\n\nWhen you are done, say\n\n{TAG}"

# id, message, the word that is heard (None: no claim)
MESSAGES = [
    ("the promise element", TAG, "DONE"),
    ("the response element", "<response>DONE</response>", "DONE"),
    ("any case of the element", "<PROMISE>done</Promise>", "done"),
    ("spaces around the word", "<PROMISE>  complete </promise>", "complete"),
    ("content over several lines", "<promise>\n  All of\n  it\n</promise>", "All of\n  it"),
    ("alone on a line in the middle", f"Done.\n  {TAG}  \nI also ran the linter.", "DONE"),
    ("ending the message after prose", f"All is done. {TAG}\n\n", "DONE"),
    ("in the middle of a sentence", f"I will not output {TAG} yet", None),
    ("at the beginning of a sentence", f"{TAG} is what I will say later.", None),
    ("ending a line that is not the last", f"I shall say {TAG}\nbut first the tests.", None),
    ("a sentence's full stop after it", f"I say {TAG}.", None),
    ("a bare word", "DONE", None),
    ("a tag that is not closed", "<promise>DONE", None),
    ("elements that do not match", "<promise>DONE</response>", None),
    ("an empty tag", "<promise></promise>", ""),
    ("inside a backtick fence", f"```\n{TAG}\n```\nMore to do.", None),
    ("inside a fence with a language", f"```text\n{TAG}\n```", None),
    ("inside a tilde fence", f"~~~\n{TAG}\n~~~\nMore to do.", None),
    ("inside a fence that is never closed", f"Look:\n```\n{TAG}", None),
    ("inside an unclosed tilde fence", f"~~~\n{TAG}\n```\n", None),
    ("inside a longer fence around a shorter one", f"````\n```\n{TAG}\n```\n````\n", None),
    ("inside a fence that is indented as in a list", f"1. Say:\n\n    ```\n    {TAG}\n    ```\nMore to do.", None),
    ("after a line that only looks like a fence's end", f"```\n```python\n{TAG}\n```\nMore to do.", None),
    ("after a fence", f"```\nmake\n```\n{TAG}", "DONE"),
    ("after inline code of three backticks", f"```make test``` is green.\n{TAG}", "DONE"),
    ("a fenced tag, then a real one", f"```\n<promise>NO</promise>\n```\n{TAG}", "DONE"),
    ("the first of two", "<response>CONTINUE</response>\n<response>DONE</response>", "CONTINUE"),
    ("the first that counts, whatever the element", f"<response>CONTINUE</response> comes first.\n{TAG}", "DONE"),
    ("after an opening tag in prose", f"I end with a <promise> tag.\n\n{TAG}", "DONE"),
    ("after an opening tag in a fence", f"```\n<promise>\n```\n{TAG}", "DONE"),
    ("entities", "&lt;promise&gt;DONE&lt;/promise&gt;", None),
    ("a zero-width space in the element", "<pro\u200bmise>DONE</promise>", None),
    ("colours around the tag", f"\x1b[1;32m{TAG}\x1b[0m", "DONE"),
    ("colours within the word", "<promise>\x1b[32mDONE\x1b[0m</promise>", "DONE"),
    ("a hyperlink around the tag", f"\x1b]8;;http://x\x07{TAG}\x1b]8;;\x07", "DONE"),
    ("a window title before the tag", f"\x1b]0;agent\x1b\\{TAG}", "DONE"),
    ("a tag in the window title", f"\x1b]0;{TAG}\x07", None),
    ("an eight-bit colour", f"\x9b32m{TAG}\x9b0m", "DONE"),
    ("line ends of Windows", f"Done.\r\n{TAG}\r\nBye.\r\n", "DONE"),
    ("a bare carriage return", f"50 %\r{TAG}", "DONE"),
    ("nothing at all", "", None),
]


@pytest.mark.parametrize(("message", "word"), [pytest.param(*row[1:], id=row[0]) for row in MESSAGES])
def test_a_tag_is_a_claim_only_where_it_stands_for_itself(message: str, word: str | None) -> None:
    assert parse_claim(message).claim == (None if word is None else Claim(word))


ECHOES = [
    ("the whole prompt", PROMPT, None),
    ("the whole prompt, then work", f"{PROMPT}\n\nworking", None),
    ("the whole prompt indented", "\n".join(f"    {line}" for line in PROMPT.split("\n")), None),
    ("the prompt's last three lines", "\n".join(PROMPT.split("\n")[-3:]), None),
    ("the prompt in colours and with Windows line ends", f"\x1b[2m{PROMPT}\x1b[0m".replace("\n", "\r\n"), None),
    ("the prompt quoted", "\n".join(f"> {line}" for line in PROMPT.split("\n")), None),
    ("the prompt with a speaker's name", "\n".join(f"user: {line}" for line in PROMPT.split("\n")), None),
    ("the prompt with numbered lines", "\n".join(f"  {n}\t{line}" for n, line in enumerate(PROMPT.split("\n"))), None),
    ("the prompt without its empty lines", PROMPT.replace("\n\n", "\n"), None),
    ("how to claim, and the tag", "\n".join(PROMPT.split("\n")[-3:]).replace("\n\n", "\n"), None),
    ("the prompt twice", f"{PROMPT}\n{PROMPT}", None),
    ("the whole prompt, then a claim", f"{PROMPT}\n\nI fixed it.\n\n{TAG}", "DONE"),
    ("the whole prompt, directly a claim", f"{PROMPT}\n{TAG}", "DONE"),
    ("a claim after one line of the prompt", f"Run the tests.\n{TAG}", "DONE"),
    ("a claim after an empty line", f"\n\n{TAG}", "DONE"),
    ("only the claim", TAG, "DONE"),
]


@pytest.mark.parametrize(("message", "word"), [pytest.param(*row[1:], id=row[0]) for row in ECHOES])
def test_an_echo_of_the_prompt_is_no_claim(message: str, word: str | None) -> None:
    assert parse_claim(message, PROMPT).claim == (None if word is None else Claim(word))


SHORT_PROMPTS = [
    ("a prompt that is only the tag hears the claim", TAG, TAG, "DONE"),
    ("a prompt of one line is removed", f"Fix it, then {TAG}", f"Fix it, then {TAG}", None),
    ("a prompt of one line leaves the claim", f"Fix it, then {TAG}", f"Fix it, then {TAG}\n{TAG}", "DONE"),
    ("a prompt of two lines is removed", f"Fix it.\n{TAG}", f"Fix it.\n{TAG}", None),
    ("a prompt of two lines leaves its tag alone", f"Fix it.\n{TAG}", TAG, "DONE"),
    ("an empty prompt removes nothing", "", TAG, "DONE"),
    ("a blank prompt removes nothing", " \n ", f"\n{TAG}\n", "DONE"),
]


@pytest.mark.parametrize(("prompt", "message", "word"), [pytest.param(*row[1:], id=row[0]) for row in SHORT_PROMPTS])
def test_short_prompts(prompt: str, message: str, word: str | None) -> None:
    assert parse_claim(message, prompt).claim == (None if word is None else Claim(word))


@given(st.lists(st.text(st.sampled_from("ab <>/\t"), max_size=6), min_size=3, max_size=8), st.integers(0, 6))
def test_an_echoed_prompt_of_three_lines_leaves_nothing_but_blanks(lines: list[str], indent: int) -> None:
    prompt = "\n".join(["first line", *lines, TAG])
    echo = "\n".join(" " * indent + line for line in prompt.split("\n"))
    assert remove_prompt_echo(echo, prompt).strip() == ""


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        ("all is well", ()),
        (f"Not {TAG} yet", (f"{TAG!r} is neither alone on its line nor the end of the message",)),
        (f"```\n{TAG}\n```", (f"{TAG!r} stands inside a code fence",)),
        (f"no {TAG} x\n" * 5, (f"{TAG!r} is neither alone on its line nor the end of the message",) * 3),
    ],
)
def test_a_tag_that_does_not_count_is_named_with_its_reason(message: str, reasons: tuple[str, ...]) -> None:
    assert parse_claim(message) == ParsedClaim(None, reasons)


def test_a_tag_before_the_claim_that_does_not_count_is_named_beside_it() -> None:
    heard = parse_claim(f"```\n<promise>NO</promise>\n```\n{TAG}")
    assert heard.claim == Claim("DONE")
    assert heard.uncounted == ("'<promise>NO</promise>' stands inside a code fence",)


def test_an_uncounted_tag_with_a_novel_inside_is_named_in_short() -> None:
    (reason,) = parse_claim(f"so <promise>{'x' * 50_000}</promise> no").uncounted
    assert len(reason) < 500
    assert reason.startswith("'<promise>xxx")


def test_a_message_full_of_opening_tags_is_read_in_linear_time() -> None:
    began = time.process_time()
    assert parse_claim("<promise>" * 25_000).claim is None
    assert time.process_time() - began < 5.0


# id, the word asked for, the claim heard, whether it is the one
ACCEPTS = [
    ("the word itself", "DONE", Claim("DONE"), True),
    ("whatever its case", "DONE", Claim("done"), True),
    ("spaces of the setting", " DONE ", Claim("DONE"), True),
    ("no claim", "DONE", None, False),
    ("a claim of waiting", "DONE", Claim("DONE", waiting=True), False),
    ("only a part of it", "AUTH_IMPLEMENTED", Claim("AUTH_IMPLEMENTED_PARTIALLY"), False),
    ("the word with a not", "DONE", Claim("NOT DONE"), False),
    ("another stage's word", "AUTH_IMPLEMENTED", Claim("AUTH_TESTS_PASS"), False),
    ("an empty claim", "DONE", Claim(""), False),
    ("a word full of pattern signs, literally", "C++ (DONE)?", Claim("c++ (done)?"), True),
    ("what that pattern would match", "C++ (DONE)?", Claim("CCC DONE"), False),
    ("a zero-width space in the word", "DONE", Claim("DO\u200bNE"), False),
    ("a look-alike letter", "DONE", Claim("D\u041eNE"), False),
    ("a marker where a word is asked for", "DONE", Claim("DONE", source="marker"), True),
    ("no word asked for, none said", None, None, True),
    ("no word asked for, one said", None, Claim("x"), True),
]


@pytest.mark.parametrize(("word", "claim", "accepted"), [pytest.param(*row[1:], id=row[0]) for row in ACCEPTS])
def test_a_claim_is_accepted_whole_or_not_at_all(word: str | None, claim: Claim | None, accepted: bool) -> None:
    assert ClaimRule(word).accepts(claim) is accepted


@pytest.mark.parametrize(
    ("claim", "accepted"),
    [
        (Claim("DONE", source="marker"), True),
        (Claim("DONE"), False),
        (Claim("DONE", waiting=True, source="marker"), False),
        (None, False),
    ],
)
def test_where_a_file_claims_no_word_does(claim: Claim | None, accepted: bool) -> None:
    assert ClaimRule("DONE", marker="DONE").accepts(claim) is accepted


@pytest.mark.parametrize("element", ["promise", "response"])
def test_what_a_prompt_shows_is_what_is_accepted(element: str) -> None:
    rule = ClaimRule("C++ (DONE)?", element)
    assert rule.tag == f"<{element}>C++ (DONE)?</{element}>"
    assert rule.accepts(parse_claim(f"x\n{rule.tag}\ny").claim)


@pytest.mark.parametrize(
    ("given_word", "word"),
    [
        ("DONE", "DONE"),
        (" DONE\n", "DONE"),
        ("<promise>DONE</promise>", "DONE"),
        (" <RESPONSE> ALL DONE </response> ", "ALL DONE"),
        ("<promise>DONE</response>", "<promise>DONE</response>"),
        ("x <promise>DONE</promise>", "x <promise>DONE</promise>"),
        ("<promise></promise>", ""),
    ],
)
def test_tags_that_a_user_wrote_around_the_word_are_stripped(given_word: str, word: str) -> None:
    assert strip_claim_tags(given_word) == word


@given(st.text(max_size=20))
def test_a_word_is_the_same_as_itself_in_any_case(word: str) -> None:
    assert is_same_word(word, word)
    assert is_same_word(f" {word}\n", word)


@given(st.text(st.characters(exclude_characters="\x1b\x9b\r"), max_size=40))
def test_text_without_escapes_is_plain_already(text: str) -> None:
    assert strip_escapes(text) == text


@given(st.text(st.sampled_from("\x1b[]0m;\x07ab\r\n\x9b\\P"), max_size=30))
def test_plain_text_holds_no_escape_and_no_carriage_return(text: str) -> None:
    assert not set(strip_escapes(text)) & {"\r"}
    assert "\x1b[" not in strip_escapes(text)
