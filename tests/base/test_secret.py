"""What is a secret, and that it never comes through, however the stream is cut."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.redaction import StreamMasker, find_environment_secrets, mask_text


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("ANTHROPIC_API_KEY", "abcd-1234", ["abcd-1234"]),
        ("OPENAI_APIKEY", "abcd-1234", ["abcd-1234"]),
        ("GITHUB_TOKEN", "abcd-1234", ["abcd-1234"]),
        ("githubtoken", "abcd-1234", ["abcd-1234"]),
        ("CLIENT_SECRET", "abcd-1234", ["abcd-1234"]),
        ("DB_PASSWORD", "abcd-1234", ["abcd-1234"]),
        ("PGPASSWORD", "abcd-1234", ["abcd-1234"]),
        ("DB_PASS", " abcd-1234\n", ["abcd-1234"]),
        ("GITLAB_PAT", "abcd-1234", ["abcd-1234"]),
        ("AWS_CREDENTIALS", "abcd-1234", ["abcd-1234"]),
        ("GITHUB_TOKEN", "short", []),
        ("GITHUB_TOKEN", "1234567890", []),
        ("SSH_KEY", "/home/user/.ssh/id", []),
        ("HISTORY_PATH", "abcd-1234", []),
        ("KEYBOARD_LAYOUT", "abcd-1234", []),
        ("MAX_TOKENS", "abcd-1234", []),
        ("DATABASE_URL", "postgres://me:s3cr3t-pw@db/x", ["s3cr3t-pw"]),
        ("DATABASE_URL", "postgres://me:p@ss-word@db/x", ["p@ss-word"]),
        ("PROXIES", "http://a:first-password@p http://b:second-password@q", ["second-password", "first-password"]),
        ("DATABASE_URL", "postgres://postgres:postgres@db/x", []),
        ("HOMEPAGE", "https://example.org:8080/path/of@user", []),
    ],
)
def test_secrets_are_told_by_name_and_shape(name: str, text: str, found: list[str]) -> None:
    assert sorted(find_environment_secrets({name: text})) == sorted(found)


def test_secrets_come_longest_first_and_once() -> None:
    environ = {"A_KEY": "12345678x", "B_KEY": "12345678xyz", "C_KEY": "12345678x"}
    assert find_environment_secrets(environ) == ("12345678xyz", "12345678x")


TAIL = "".join(string.ascii_letters[index % 52] + str(index % 10) for index in range(50))
KEYS = [
    "sk-ant-api03-" + TAIL[:20],
    "sk-proj-" + TAIL[:16],
    "sk-svcacct-" + TAIL[:16],
    "sk-or-v1-" + TAIL[:64],
    "ghp_" + TAIL[:36],
    "gho_" + TAIL[:36],
    "ghu_" + TAIL[:36],
    "ghs_" + TAIL[:36],
    "ghr_" + TAIL[:36],
    "github_pat_" + TAIL[:82],
    "glpat-" + TAIL[:20],
    "xoxb-123456789012-123456789012-" + TAIL[:24],
    "xoxp-123456789012-" + TAIL[:24],
    "xoxa-2-" + TAIL[:40],
    "xapp-1-" + TAIL[:60],
    "AKIA" + "ABCDEFGH12345678",
    "AIza" + TAIL[:35],
    "npm_" + TAIL[:36],
    "pypi-AgEIcHlwaS5vcmc" + TAIL,
    "hf_" + TAIL[:34],
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "key={} end", '"{}"', "\\n{}\\n", "x_{}.", "-{}\n", "ü{}ü", "https://u:{}@h"])
def test_known_keys_are_masked_wherever_they_stand(key: str, around: str) -> None:
    assert mask_text(around.format(key), ()) == around.format("***")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_in_the_middle_of_a_word_is_none(key: str) -> None:
    assert mask_text("a" + key, ()) == "a" + key


@pytest.mark.parametrize(
    "text",
    [
        "task-ant-is-not-a-key-at-all-really", "sk-ant-", "sk-ant-short", "a risk-proj-0123456789abcdefgh", "ghp_short",
        "AKIA and more", "AKIAabcdefgh12345678", "123e4567-e89b-12d3-a456-426614174000", "hf_dataset",
        "npm_config_cache", "test_that_npm_config_and_others_are_not_taken_for_keys", "", "ordinary text\n",
    ],
)  # fmt: skip
def test_what_only_looks_a_little_like_a_key_is_left_alone(text: str) -> None:
    assert mask_text(text, ("another-secret",)) == text


def test_a_secret_is_masked_inside_json_too() -> None:
    secret = 'line one\n"quoted"\\end\ttab'
    assert mask_text(json.dumps({"text": f"before {secret} after"}), (secret,)) == '{"text": "before *** after"}'


def test_the_longest_secret_wins_and_a_secret_beats_a_shape() -> None:
    assert mask_text("abcdefghij abcdefgh", ("abcdefgh", "abcdefghij")) == "*** ***"
    assert mask_text("sk-ant-0123456789abcdef.tail.of.it!", ("sk-ant-0123456789abcdef.tail.of.it",)) == "***!"


def test_texts_that_are_not_valid_unicode_pass() -> None:
    assert mask_text("\ud800 secret-secret", ("secret-secret",)) == "\ud800 ***"


@pytest.mark.parametrize("chunk", [b"a line\n", b"{}", b"no break", b"sk", b"ends in ghp", b"\xff\xfe"])
def test_only_what_may_begin_a_secret_is_held_back(chunk: bytes) -> None:
    masker = StreamMasker([b"hunter2-hunter2"])
    said = masker.feed(chunk)
    assert len(chunk) - len(said) <= 4
    assert said + masker.flush() == chunk


def test_a_key_without_end_is_not_held_back() -> None:
    masker = StreamMasker([])
    assert masker.feed(b"x sk-ant-" + b"a" * 1000) == b"x ***"
    assert masker.feed(b"a" * 1000) == b""
    assert masker.feed(b"b c") + masker.flush() == b" c"


SECRETS = (b"hunter2-hunter2", b"hunter2-hunter2-longer", b"aabaabaab", b"aabaabaabaaab\ncd", b"ghp_AAAAAAAA.secret")
PIECES = [
    *SECRETS, *(secret[:-1] for secret in SECRETS), *(secret[1:] for secret in SECRETS),
    *(key.encode() for key in KEYS), *(key[:-1].encode() for key in KEYS),
    b"sk-", b"gh", b"aab", b"hunter2-", b"\\n", b"\\", b"n", b"_", b"-", b" ", b"\n", b"x",
]  # fmt: skip
CODES = [
    b"\x1b[01;31m\x1b[K", b"\x1b[m\x1b[K", b"\x1b(B\x1b[m", b"\x1b[?25l", b"\xc2\x9b1m", b"\x1b]0;a title\x07",
    b"\x1b]8;;\x1b\\", b"\x08", b"\0", b"\\u001b[31m", b"\\u001B[0m", b"\\\\u001b[K", b"\\u001b]0;t\\u0007", b"\\u0000",
]  # fmt: skip
BROKEN = [
    *(b"hunter2" + code + b"-hunter2" for code in CODES),
    *(b"sk-ant-0123" + code + b"4567abcdefghij" for code in CODES),
    *CODES, *(code[:-1] for code in CODES), b"\x1b", b"\x1b[", b"\x1b]", b"\xc2", b"\\u00", b"\x1b[hunter2-hunter2",
    b"\x1b]8;;https://h/?k=hunter2-hunter2\x07", b"\x1b]8;;https://h/?k=" + KEYS[0].encode() + b"\x07",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES + BROKEN), max_size=12), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_however_a_stream_is_cut_the_same_comes_out_and_no_secret(pieces: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pieces)
    whole = StreamMasker(SECRETS)
    expected = whole.feed(stream) + whole.flush()
    masker, said, at, turn = StreamMasker(SECRETS), b"", 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        said += masker.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    said += masker.flush()
    assert said == expected
    assert not [secret for secret in SECRETS if secret in said]


@pytest.mark.parametrize("code", CODES)
def test_escape_codes_inside_a_secret_do_not_hide_it(code: bytes) -> None:
    """Every byte of the secret goes; a colour that ends inside of it still ends, whatever else is there stays."""
    for secret in (b"hunter2-hunter2", KEYS[0].encode(), KEYS[4].encode()):
        for cut in range(1, len(secret)):
            text = code + b"\x1b[1mkey=" + secret[:cut] + code + secret[cut:] + code + b"\n"
            expected = code + b"\x1b[1mkey=***" + code + code + b"\n"
            assert StreamMasker(SECRETS).flush(text) == expected, text
    every = code.join(bytes((letter,)) for letter in b"hunter2-hunter2")
    assert StreamMasker(SECRETS).flush(every) == b"***" + code * 14


def test_a_flood_of_codes_inside_a_secret_is_not_held_back() -> None:
    masker = StreamMasker(SECRETS)
    said = sum(len(masker.feed(b"hunter2" + b"\x1b[m" * 1000)) for _ in range(100))
    assert 100 * 3007 - said < 32 * 1024


def test_every_single_cut_of_a_key_is_the_same() -> None:
    for key in (*KEYS, "hunter2-hunter2"):
        text = f"before {key} after".encode()
        for cut in range(len(text)):
            masker = StreamMasker(SECRETS)
            assert masker.feed(text[:cut]) + masker.feed(text[cut:]) + masker.flush() == b"before *** after"
