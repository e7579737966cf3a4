"""What stands above a markdown text, in all the ways in which people write it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.yaml_text import parse_front_matter

WANTED = ("text", "list")

# what is written, what `text` is
TEXTS = [
    ("text: plain", "plain"),
    ("text:    wide   ", "wide"),
    ("text: two  spaces", "two  spaces"),
    ("text: Use it when: always", "Use it when: always"),
    ("text: https://a.b/c#d", "https://a.b/c#d"),
    ("text: plain # a remark", "plain"),
    ("text: # a remark", ""),
    ("text:", ""),
    ("text: ~", ""),
    ("text: null", ""),
    ("text: true", "true"),
    ("text: -5 degrees", "-5 degrees"),
    ("text: goes\n  on\n  and on", "goes on and on"),
    ("text:\n  below\n  its key", "below its key"),
    ("text: 'it''s # quoted'", "it's # quoted"),
    ('text: "say \\"hi\\"\\t\\u00e9\\\\" # a remark', 'say "hi"\té\\'),
    ('text: "a lone \\ud800"', "a lone ?"),
    ('text: "over\n  two lines"', "over two lines"),
    ("text: >\n  folded\n  text\n\n  and more\n", "folded text\nand more"),
    ("text: >-\n  folded\n  text\n", "folded text"),
    ("text: |\n  as\n    it\n  is\n\n", "as\n  it\nis"),
    ("text: |2\n   one\n  two\n", " one\ntwo"),
    ("text: | # a remark\n  # no remark\n", "# no remark"),
    ("'text': x", "x"),
    ('"text" : x', "x"),
    ("# a remark\n\ntext: x\n", "x"),
    ("other:\n  text: no\n  deep:\n    - {a: b}\n    - *alias\ntext: x", "x"),
    ("other: {text: [no,\n  yes]\n}\ntext: x", "x"),
    ("other: &anchor !tag\ntext: x", "x"),
    ("globs: *.ts\ntext: `cmd` it: all", "`cmd` it: all"),
]
LISTS = [
    ("list: [a, 'b, c', \"d\"]", ("a", "b, c", "d")),
    ("list: []", ()),
    ("list: [a, b,]  # a remark", ("a", "b")),
    ("list: [\n  a,\n  b c\n]", ("a", "b c")),
    ("list:\n  [a,\n   b]", ("a", "b")),
    ("list:\n- a\n- b", ("a", "b")),
    ("list:\n  - a\n\n  # a remark\n  - 'b'  # another\n", ("a", "b")),
    ("list:\n  - Coverage: 80 %\n  - goes\n    on\n", ("Coverage: 80 %", "goes on")),
    ("list:\n  - >\n    folded\n    item\n  -\n  - last", ("folded item", "", "last")),
]
FAULTS = [
    ("text: x\ntext: y", "3: the key text is given twice"),
    ("other: x\nother: y", "3: the key other is given twice"),
    ("- x", "2: this is no key"),
    ("text: x\nnonsense", "3: is not YAML"),
    ("text:x", "2: this is no key"),
    ("text:\n  key: value", "2: text must be a text or a list of texts"),
    ("text: {a: b}", "2: text must be a text or a list of texts"),
    ('text: "open', "2: is not YAML"),
    ("text: 'a' b", "2: is not YAML"),
    ("list: [a, [b]]", "2: list must be a text or a list of texts"),
    ("list: [a", "2: is not YAML"),
    ("list: [a] b", "2: is not YAML"),
    ("list:\n  - [ ] box", "3: is not YAML"),
]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize(("written", "text"), TEXTS)
def test_a_text_is_read_however_it_is_written(written: str, text: str, ends: str) -> None:
    matter = parse_front_matter(f"---\n{written}\n---\nbody\n".replace("\n", ends), WANTED)
    assert (matter.fault, matter.values, matter.body) == ("", {"text": text}, "body\n")


@pytest.mark.parametrize(("written", "items"), LISTS)
def test_a_list_is_read_however_it_is_written(written: str, items: tuple[str, ...]) -> None:
    matter = parse_front_matter(f"---\n{written}\n---\n", WANTED)
    assert (matter.fault, matter.values) == ("", {"list": items})


@pytest.mark.parametrize(("written", "fault"), FAULTS)
def test_what_cannot_be_read_is_one_line_with_its_place(written: str, fault: str) -> None:
    matter = parse_front_matter(f"---\n{written}\n---\nbody", WANTED)
    assert matter.fault.startswith(fault)
    assert "\n" not in matter.fault
    assert matter.values == {}


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("# Title\n\ntext: x\n", "# Title\n\ntext: x\n"),
        ("", ""),
        (" ---\ntext: x\n---\n", " ---\ntext: x\n---\n"),
        ("----\n", "----\n"),
    ],
)
def test_a_text_without_front_matter_is_all_body(text: str, body: str) -> None:
    matter = parse_front_matter(text, WANTED)
    assert (matter.fault, matter.values, matter.body) == ("", {}, body)


def test_a_rule_in_the_body_is_not_its_end() -> None:
    assert parse_front_matter("\n---\ntext: x\n...\na\n---\nb", WANTED).body == "a\n---\nb"


def test_front_matter_without_an_end_is_a_fault() -> None:
    assert parse_front_matter("---\ntext: x\n", WANTED).fault.startswith("1: the front matter has no end")


@given(st.text(alphabet=" \n\t-:#[]{}\"'\\,|>&*~ab", max_size=60))
def test_nothing_makes_it_fail(written: str) -> None:
    matter = parse_front_matter(f"---\ntext: {written}\n---\n", WANTED)
    assert isinstance(matter.fault, str)


SIZE = 100_000


@pytest.mark.parametrize(
    "written",
    ["a" + " " * SIZE, 'text: "' + "\\" * SIZE, "text: '" + "'" * SIZE, "list: [a" + " " * SIZE, "list: " + "[" * SIZE,
     "list: [" + "," * SIZE + "]", "text: " + "# " * SIZE, "text: |\n" + " \n" * SIZE, '"' + " " * SIZE, ":" * SIZE],
    ids=lambda written: written[:8],
)  # fmt: skip
def test_hostile_front_matter_takes_no_time(written: str) -> None:
    began = time.process_time()
    parse_front_matter(f"---\n{written}\n---\n", WANTED)
    assert time.process_time() - began < 2
