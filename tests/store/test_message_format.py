"""A message in words and back, and what is no message."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ralphproof.base.errors import Refused
from ralphproof.base.value import replace
from ralphproof.store.message_bus import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    MAX_PARENTS,
    MAX_TAG_CHARS,
    TYPES,
    Message,
    MessageParser,
    draft_message,
    format_message,
    is_message_id,
    make_legible,
    new_message_id,
    parse_message_type,
    sanitize_tag,
)

ID = "20261115-210507-048213-k3f9x2ab"
OTHER = "20261115-210508-000000-00000000"
WHOLE = Message(ID, "QUESTION", "Which parser?\n\nThe old one.", "run-1", 3, "my calc", "ünï/1", (OTHER, ID))
TEXT = """\
### QUESTION 20261115-210507-048213-k3f9x2ab <!-- lines=3 bytes=27 run=run-1 iteration=3 project=my%20calc \
task=ünï/1 parents=20261115-210508-000000-00000000,20261115-210507-048213-k3f9x2ab -->
> Which parser?
>
> The old one.

"""


def read(text: str | bytes) -> tuple[list[Message], int]:
    """The messages of a whole file, and how many lines belong to none."""
    raw = text if isinstance(text, bytes) else text.encode()
    assembly = MessageParser()
    *lines, last = raw.split(b"\n")
    found = [message for line in lines if (message := assembly.feed(line))]
    assembly.end()
    return found, assembly.skipped + bool(last)


def test_a_message_is_markdown_that_can_be_read_back() -> None:
    assert format_message(WHOLE) == TEXT
    assert read(TEXT) == ([WHOLE], 0)


def test_a_message_for_programs_says_when_it_was_posted() -> None:
    assert WHOLE.published() == {
        "id": ID, "kind": "QUESTION", "at": "2026-11-15T21:05:07.048213Z", "run": "run-1", "iteration": 3,
        "project": "my calc", "task": "ünï/1", "parents": [OTHER, ID], "body": "Which parser?\n\nThe old one.",
    }  # fmt: skip
    bare = Message(ID, "INFO", "x").published()
    assert (bare["run"], bare["iteration"], bare["project"], bare["task"], bare["parents"]) == (
        None, None, None, None, [],
    )  # fmt: skip


def test_an_id_sorts_by_its_time() -> None:
    ids = [new_message_id("20261115-210507", 48213, b"\xff" * 5), new_message_id("20261115-210507", 48214, b"\0" * 5)]
    assert ids == ["20261115-210507-048213-zzzzzzzz", "20261115-210507-048214-00000000"]
    assert ids == sorted(ids)
    assert all(map(is_message_id, ids))


@pytest.mark.parametrize("text", ["", "x", ID[:-1], ID + "0", ID.upper(), f"{ID}\n", "２" + ID[1:], f"../{ID}"])
def test_what_is_no_id(text: str) -> None:
    assert not is_message_id(text)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *((name, name) for name in TYPES),
        ("info", "INFO"),
        ("Decision", "DECISION"),
        ("wait_without_restart", "WAIT"),
        ("WAIT_WITHOUT_RESTART", "WAIT"),
        ("Wait_Without_Restart", "WAIT"),
        ("wait without restart", None),
        ("NOTE", None),
        ("", None),
    ],
)
def test_a_type_is_understood_in_any_case(word: str, meant: str | None) -> None:
    assert parse_message_type(word) == meant


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Refused, match=f"'NOTE' is no type of message; there are: {', '.join(TYPES)}"):
        draft_message("NOTE", "x")


@pytest.mark.parametrize("body", ["", "\n", " \t\n ", "\x1b[31m\x1b[0m"])
def test_a_message_without_a_text_is_refused(body: str) -> None:
    with pytest.raises(Refused, match="a message needs a text"):
        draft_message("INFO", body)


def test_a_body_has_a_bound_in_bytes() -> None:
    assert len(draft_message("INFO", "ü" * (MAX_BODY_BYTES // 2)).body) == MAX_BODY_BYTES // 2
    with pytest.raises(Refused, match="holds at most 65536 bytes, and this has 65537") as refused:
        draft_message("INFO", "ü" * (MAX_BODY_BYTES // 2) + "x")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]0;never ended\ntext", "0;never ended\ntext"),
        ("\x1b\x1b[31m[31mred", "␛[31mred"),
        ("nul \0 bell \x07 delete \x7f", "nul ␀ bell ␇ delete ␡"),
        ("c1 \x9b31m, half \udcff", "c1 \ufffd31m, half \ufffd"),
        ("form\x0cfeed\x0b\x1c\x85", "form␌feed␋␜\ufffd"),
        ("snowman ☃", "snowman ☃"),
    ],
)
def test_a_body_is_text_that_no_terminal_obeys(given: str, kept: str) -> None:
    assert make_legible(given) == kept


def test_a_secret_with_an_escape_sequence_in_it_is_masked() -> None:
    mask = lambda text: text.replace("hunter22", "***")  # noqa: E731
    assert draft_message("INFO", "it is hun\x1b[0mter22", mask).body == "it is ***"


def test_a_name_is_one_short_line() -> None:
    assert sanitize_tag(" a \n b\x1b[31m\0 ") == "a b␀"
    assert len(sanitize_tag("x" * 999)) == MAX_TAG_CHARS


@given(
    body=st.text(min_size=1), names=st.tuples(st.text(), st.text(), st.text()),
    iteration=st.none() | st.integers(0, 10**9 - 1), kind=st.sampled_from(TYPES),
)  # fmt: skip
@example(body="\n\n> x\n", names=("a=b", "-->", "a,b"), iteration=0, kind="INFO")
@example(body=TEXT, names=("%41", "é%", "<!--"), iteration=None, kind="WAIT")
def test_whatever_is_said_is_read_as_it_was_said(
    body: str, names: tuple[str, str, str], iteration: int | None, kind: str
) -> None:
    try:
        draft = draft_message(kind, body)
    except Refused:
        return
    run, project, task = map(sanitize_tag, names)
    message = replace(draft, id=ID, run=run, project=project, task=task, iteration=iteration)
    assert read(format_message(message)) == ([message], 0)


def test_a_body_cannot_pass_for_another_message() -> None:
    forged = replace(draft_message("INFO", f"\n{TEXT}\r{TEXT}\n\n# x"), id=OTHER)
    found, skipped = read(format_message(forged) + format_message(WHOLE))
    assert (found, skipped) == ([forged, WHOLE], 0)


@pytest.mark.parametrize("ended", [False, True])
def test_a_message_that_is_cut_off_anywhere_is_none(ended: bool) -> None:
    """Whether or not a later writer ended its last line: only breaks at its very end may be missing."""
    raw = TEXT.encode()
    for end in range(len(raw)):
        found, skipped = read(raw[:end] + (b"\n" if ended else b"") + (TEXT.encode() if ended else b""))
        complete = [WHOLE] if end >= len(raw) - (2 if ended else 1) else []
        assert found == complete + ([WHOLE] if ended else []), raw[:end]
        assert bool(skipped) == (end > 0 and not complete)


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("", 0),
        ("\n\n  \n", 0),
        ("# The bus\n\nsomebody's notes\n", 2),
        ("> a quotation\n>\n", 2),
        (TEXT.replace("> The", "The"), 4),
        (TEXT.replace("old", "new and longer"), 4),
        (TEXT.replace("old", "o"), 4),
        (TEXT.replace("\n>\n", "\n"), 3),
        (TEXT.replace("\n>\n", "\n\n"), 3),
        (TEXT.replace("QUESTION", "SHOUT"), 4),
        (TEXT.replace("### ", "## "), 4),
        (TEXT.replace(ID + " <!--", "x <!--"), 4),
        (TEXT.replace("lines=3", "lines=0"), 4),
        (TEXT.replace("lines=3 ", ""), 4),
        (TEXT.replace("bytes=27", "bytes=-1"), 4),
        (TEXT.replace("bytes=27", "bytes=99999999999999999999"), 4),
        (TEXT.replace("bytes=27", f"bytes={MAX_BODY_BYTES + 1}"), 4),
        (TEXT.replace("lines=3", "lines=³"), 4),
        (TEXT.replace(OTHER, "../../x"), 4),
        (TEXT.replace("run-1", "x" * MAX_HEAD_BYTES), 4),
        (TEXT.replace(" -->", " --> "), 4),
        (TEXT.replace("\n", "\r\n"), 4),
        ("\0\n", 1),
    ],
)
def test_what_is_no_message_is_skipped_and_counted(text: str, skipped: int) -> None:
    assert read(text) == ([], skipped)
    assert read(text.rstrip("\n") + "\n" + TEXT)[0] == [WHOLE]


def test_what_a_stranger_wrote_into_the_head_is_bounded_too() -> None:
    many = ",".join([ID] * (MAX_PARENTS + 1))
    head = f"### wait_without_restart {ID} <!-- lines=1 bytes=1 run={'r' * 999} iteration=x new=1 parents={many} -->"
    found, skipped = read(f"{head}\n> x\n")
    assert (found, skipped) == ([Message(ID, "WAIT", "x", "r" * MAX_TAG_CHARS, parents=(ID,) * MAX_PARENTS)], 0)


@pytest.mark.parametrize(("size", "read_back"), [(MAX_BODY_BYTES, True), (MAX_BODY_BYTES + 1, False)])
def test_a_body_that_could_not_have_been_posted_is_none(size: int, read_back: bool) -> None:
    found, _ = read(f"### INFO {ID} <!-- lines=1 bytes={size} -->\n> {'x' * size}\n")
    assert bool(found) is read_back


def test_a_body_that_never_ends_is_not_kept() -> None:
    assembly = MessageParser()
    assembly.feed(f"### INFO {ID} <!-- lines={MAX_BODY_BYTES} bytes={MAX_BODY_BYTES} -->".encode())
    for _ in range(3):
        assembly.feed(b"> " + b"x" * (MAX_BODY_BYTES // 2))
    assert (assembly._body, assembly.skipped) == ([], 4)


@given(st.lists(st.binary() | st.sampled_from(TEXT.encode().split(b"\n"))))
def test_no_line_whatever_is_an_error(lines: list[bytes]) -> None:
    assembly = MessageParser()
    for line in lines:
        assembly.feed(line)
