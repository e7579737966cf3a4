"""Text in binary content, as a patch of git holds that."""

from __future__ import annotations

import re

from ralphproof.diff import BINARY, name_of, parts_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARS = 4 * 1024 * 1024  # of all binary content in a patch is looked at: it is slow to unpack
SHORTEST_TEXT = 12  # in content that is no text; any three letters stand in a large picture by chance
WIDE = (b"\xff\xfe", b"\xfe\xff")  # how a text in UTF-16 begins


def legible(diff: str) -> Iterator[tuple[str, str]]:
    """(file, line) of what can be read as text in binary content that is added, as far as the patch holds it."""
    left = MOST_CHARS
    for part in parts_of(diff):
        packed = part.partition(BINARY)[2]
        if packed and left > 0:
            new, old = _contents(packed[:left])
            known = frozenset(_texts(old))
            yield from ((name_of(part), line) for line in _texts(new) if line not in known)
            left -= len(packed)


def _contents(packed: str) -> tuple[bytes, bytes]:
    """The new content and the old one. Where both are only told by their difference, what the new one brings."""
    blocks = packed.split("\n\n")
    new, old = _unpacked(blocks[0]), _unpacked(blocks[1] if len(blocks) > 1 else "")
    new_is_whole, old_is_whole = blocks[0].startswith("literal "), packed.partition("\n\n")[2].startswith("literal ")
    if new_is_whole:
        return new, old if old_is_whole else _applied(old, new)
    return (_applied(new, old), old) if old_is_whole else (_applied(new, None), b"")


def _texts(data: bytes) -> list[str]:
    """The lines of some content. Where most of it is no text, only what is too long to stand there by chance."""
    text = data.decode("utf-16" if data.startswith(WIDE) else "utf-8", "replace")
    lines = re.split("[\x00-\x08\x0a\x0e-\x1f\x7f-\x9f\ufffd]", text)
    readable = sum(map(len, lines)) + text.count("\n")
    least = 1 if readable * 10 >= len(text) * 8 else SHORTEST_TEXT
    return [line for line in lines if len(line) >= least]


def _unpacked(block: str) -> bytes:
    """What a block holds, or the beginning of it; its first line says of which kind it is."""
    import zlib
    from base64 import b85decode

    whole = [line[1:] for line in block.split("\n")[1:] if line and len(line) % 5 == 1]  # the first letter is a length
    try:
        return zlib.decompressobj().decompress(b85decode("".join(whole)), MOST_CHARS)
    except (ValueError, zlib.error):
        return b""


def _applied(delta: bytes, base: bytes | None) -> bytes:
    """What a delta makes of its base. After two sizes come steps, which copy from it or bring new bytes."""
    at, made = 0, bytearray()
    for _ in range(2):
        while at < len(delta) and delta[at] & 0x80:
            at += 1
        at += 1
    while at < len(delta) and len(made) < MOST_CHARS:
        step, at = delta[at], at + 1
        if step & 0x80:
            start, size, at = _copied(delta, step, at)
            made += b"\n" if base is None else base[start : start + size]
        else:
            made += delta[at : at + step]
            at += step
    return bytes(made)


def _copied(delta: bytes, step: int, at: int) -> tuple[int, int, int]:
    """From where, how much, and where the next step is: four bits for bytes of the one, three of the other."""
    told = 0
    for bit in range(7):
        if step & (1 << bit):
            told |= (delta[at] if at < len(delta) else 0) << (8 * bit)
            at += 1
    return told & 0xFFFFFFFF, told >> 32 or 0x10000, at
