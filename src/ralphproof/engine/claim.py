"""Completion claims: parsing them from an agent's message, and the rule of a stage."""

from __future__ import annotations

import re

from ralphproof.base.text import quote_excerpt, strip_escapes
from ralphproof.base.value import value

# A claim only asks for verification; it proves nothing.


# Compiled when the first message is read, and cached by `re`, to keep start-up fast. A tag begins at the last opening
# before its end, so that an opening mentioned in prose hides no claim.
_TAG = r"(?is)<(promise|response)>((?:(?!<\1>).)*?)</\1>"
# Whatever the indentation, for fences inside lists. Three backticks with more of them behind are inline code.
_FENCE = r"(?m)^[ \t]*(```+(?=[^`\n]*$)|~~~+)([^\n]*)"

_QUOTATION = r"^(?:\s|[>|#*]|[A-Za-z]{1,12}:\s|\d+[.:)]?\s)+"  # also a speaker's name or a line number
MAX_ECHO_STARTS = 20  # prompt positions that a line is compared with: bounds the time for a prompt of equal lines


@value
class Claim:
    """The agent's statement about its own work."""

    word: str
    waiting: bool = False
    source: str = "tag"  # tag, marker (a file), bus (a message) or exit (its exit code)
    stamp: str = ""  # identifies a marker file, to tell it from an earlier one


@value
class ParsedClaim:
    """The claim in a message, and why other tags in it did not count."""

    claim: Claim | None = None
    uncounted: tuple[str, ...] = ()


@value
class ClaimRule:
    """The claim that a stage requires. Without a word none is needed: passing checks suffice.

    `element` is how prompts show the tag; both elements are always understood. Where `marker` names a file, only that
    file claims, and no word does; `made` describes how, where it is not by existing. `refusal` is the word by which a
    stage reports faults.
    """

    word: str | None = None
    element: str = "response"
    marker: str | None = None
    refusal: str | None = None
    made: str = ""

    def accepts(self, claim: Claim | None) -> bool:
        """Whether this claim is the required one: the whole word, ignoring case."""
        if self.word is None:
            return True
        if self.marker is not None and (claim is None or claim.source != "marker"):
            return False
        return claim is not None and not claim.waiting and is_same_word(claim.word, self.word)

    def refuses(self, claim: Claim | None) -> bool:
        """Whether this claim reports faults."""
        if self.refusal is None or claim is None or (self.marker is not None and claim.source != "marker"):
            return False
        return is_same_word(claim.word, self.refusal)

    @property
    def description(self) -> str:
        """How to claim, for messages."""
        file = self.made or f"the file {self.marker} in the folder that $TASK_FOLDER names"
        return self.tag if self.marker is None else file

    @property
    def tag(self) -> str:
        """The tag as a prompt shows it."""
        return f"<{self.element}>{self.word}</{self.element}>"

    @property
    def refusal_tag(self) -> str:
        """The tag that reports faults, as a prompt shows it; empty where a stage has none."""
        return f"<{self.element}>{self.refusal}</{self.element}>" if self.refusal else ""


def is_same_word(word: str, other: str) -> bool:
    return word.strip().casefold() == other.strip().casefold()


def strip_claim_tags(word: str) -> str:
    """The word without the tags that a user may have written around it."""
    whole = re.fullmatch(_TAG, word.strip())
    return (whole[2] if whole else word).strip()


def parse_claim(message: str, prompt: str = "") -> ParsedClaim:
    """The first tag that is alone on its lines or ends the message, outside code fences and echoes of the prompt."""
    whole = strip_escapes(message)
    text = remove_prompt_echo(whole, strip_escapes(prompt))
    fences = _fence_spans(text)
    uncounted: list[str] = []
    for tag in re.finditer(_TAG, text):
        if any(start <= tag.start() < end for start, end in fences):
            uncounted.append(f"{quote_excerpt(tag[0])} stands inside a code fence")
        elif not _is_alone(text, tag):
            uncounted.append(f"{quote_excerpt(tag[0])} is neither alone on its line nor the end of the message")
        else:
            return ParsedClaim(Claim(tag[2].strip()), tuple(uncounted[:3]))
    if not uncounted and (echo := re.search(_TAG, whole)):
        uncounted.append(f"{quote_excerpt(echo[0])} stands in an echo of the prompt")
    return ParsedClaim(None, tuple(uncounted[:3]))


def find_claim_tags(text: str) -> list[str]:
    """The contents of all claim tags outside code fences."""
    fences = _fence_spans(text)
    return [
        tag[2].strip()
        for tag in re.finditer(_TAG, text)
        if not any(start <= tag.start() < end for start, end in fences)
    ]


def _is_alone(text: str, tag: re.Match[str]) -> bool:
    before = text[text.rfind("\n", 0, tag.start()) + 1 : tag.start()]
    after, _, rest = text[tag.end() :].partition("\n")
    return not after.strip() and (not before.strip() or not rest.strip())


def _fence_spans(text: str) -> list[tuple[int, int]]:
    """The spans of code fences; one that is never closed reaches to the end."""
    spans: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    for mark in re.finditer(_FENCE, text):
        if opened is None:
            opened = mark
        elif mark[1].startswith(opened[1]) and not mark[2].strip():
            spans.append((opened.start(), mark.end()))
            opened = None
    if opened is not None:
        spans.append((opened.start(), len(text)))
    return spans


def remove_prompt_echo(text: str, prompt: str) -> str:
    """The text without passages that repeat the prompt: all of it, three lines in a row, or a tag and the line above.

    Empty lines, indentation and quotation marks are ignored.
    """
    prompt_lines = [bare for line in prompt.split("\n") if (bare := _strip_quotation(line))]
    if not prompt_lines:
        return text
    positions: dict[str, list[int]] = {}
    for position, line in enumerate(prompt_lines):
        positions.setdefault(line, []).append(position)
    lines = text.split("\n")
    text_lines = [(number, bare) for number, line in enumerate(lines) if (bare := _strip_quotation(line))]
    echoed: set[int] = set()
    index = 0
    while index < len(text_lines):
        starts = positions.get(text_lines[index][1], ())[:MAX_ECHO_STARTS]
        length = max((_echo_length(text_lines, index, prompt_lines, start) for start in starts), default=0)
        if _is_echo([line for _, line in text_lines[index : index + length]], len(prompt_lines)):
            echoed.update(range(text_lines[index][0], text_lines[index + length - 1][0] + 1))
            index += length
        else:
            index += 1
    return "\n".join(line for number, line in enumerate(lines) if number not in echoed)


def _strip_quotation(line: str) -> str:
    return re.sub(_QUOTATION, "", line).strip()


def _is_echo(lines: list[str], prompt_length: int) -> bool:
    """A prompt that consists only of its tag cannot be distinguished from the claim: then the claim counts."""
    if len(lines) == 1 and re.fullmatch(_TAG, lines[0]):
        return False
    return len(lines) >= min(3, prompt_length) or (len(lines) == 2 and re.search(_TAG, lines[1]) is not None)


def _echo_length(text_lines: list[tuple[int, str]], index: int, prompt_lines: list[str], start: int) -> int:
    """The number of equal lines of text and prompt from these positions on."""
    length, most = 0, min(len(text_lines) - index, len(prompt_lines) - start)
    while length < most and text_lines[index + length][1] == prompt_lines[start + length]:
        length += 1
    return length
