"""What must never be written down: values of secret-looking variables, and texts shaped like well-known keys.

The keeper imports this for every run and feeds it every byte of output, so there is no `re` here: `bytes.find` skips,
a pattern of alternatives does not.
"""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

MASK = "***"
HELD = "-held"  # how the name of a log ends that is never put where an agent could read it
SHORTEST = 8  # a shorter value is too likely to be a common word

_WORDS = frozenset((
    "KEY", "APIKEY", "TOKEN", "SECRET", "SECRETS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "PWD", "PAT",
    "CREDENTIAL", "CREDENTIALS", "AUTH", "BEARER", "JWT",
))  # fmt: skip
_ENDINGS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "APIKEY")

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_ALNUM = _UPPER + b"abcdefghijklmnopqrstuvwxyz"
_KEY = _ALNUM + b"-_"
_IS_KEY = bytes(120 if byte in _KEY else 32 for byte in range(256))

# Long keys are looked for only in long runs of key characters: one search for all of them. The run is longer than a
# UUID, which agents' events are full of.
_LONG = 37
_LONG_RUN = b"x" * _LONG
_LONG_WORDS = (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"npm_", b"hf_")  # letters and digits follow
_LONG_NAMES = (b"github_pat_", b"xoxb-", b"xoxp-", b"xoxa-", b"xoxr-", b"xapp-", b"AIza", b"pypi-AgE")
_LONG_PREFIXES = _LONG_WORDS + _LONG_NAMES
# Keys that may be short: what to search for, the prefix, how many characters must follow, of which kind.
_SHORT = (
    (b"sk-", b"sk-ant-", 16, _KEY),
    (b"sk-", b"sk-proj-", 16, _KEY),
    (b"sk-", b"sk-svcacct-", 16, _KEY),
    (b"sk-", b"sk-or-v1-", 16, _KEY),
    (b"glpat-", b"glpat-", 20, _KEY),
    (b"AKIA", b"AKIA", 16, _UPPER),
)
_SHAPES = (
    *((prefix, _LONG - len(prefix), _ALNUM) for prefix in _LONG_WORDS),
    *((prefix, _LONG - len(prefix), _KEY) for prefix in _LONG_NAMES),
    *(shape[1:] for shape in _SHORT),
)
_SHORTEST_KEY = min(len(prefix) + more for prefix, more, _ in _SHAPES)
_ANCHORS = tuple(sorted({shape[0] for shape in _SHORT}))
_FIRST = frozenset(shape[0][0] for shape in _SHAPES)
_ESCAPED = b"nrtbf"


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must be masked, longest first: those of secret-looking names, and passwords inside URLs."""
    found = set()
    for name, given in environ.items():
        text = given.strip()
        if _looks_secret(name) and not text.startswith("/") and not text.isdigit():
            found.add(text)
        found.update(_passwords(text))
    return tuple(sorted((text for text in found if len(text) >= SHORTEST), key=lambda text: (-len(text), text)))


def _looks_secret(name: str) -> bool:
    return any(part in _WORDS or part.endswith(_ENDINGS) for part in name.upper().split("_"))


def _passwords(text: str) -> Iterator[str]:
    """The passwords of `scheme://user:password@host`; one that equals its user is a development default."""
    for rest in text.split("://")[1:]:
        user, colon, password = rest.split("/", 1)[0].rpartition("@")[0].partition(":")
        if colon and password != user:
            yield password


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret, and everything shaped like a key, replaced by `***`."""
    secrets = tuple(filter(None, secrets))
    if len(text) < min([_SHORTEST_KEY, *map(len, secrets)]):  # most texts of a record are a word or two
        return text
    masker = Masker(secret.encode("utf-8", "surrogatepass") for secret in secrets)
    return masker.flush(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def places(data: bytes, secrets: Iterable[str], *, last: bool) -> tuple[list[tuple[int, int]], int]:
    """Where secrets begin and end in these bytes, and from where on more bytes may yet make one."""
    masker = Masker(secret.encode("utf-8", "surrogatepass") for secret in secrets)
    found: list[tuple[int, int]] = []
    at, hold = 0, len(data) if last else masker._undecided(data, 0)
    for begin, _, end, alphabet in masker._found(data, 0):
        if begin >= hold:
            break
        if begin >= at:
            at = _run_end(data, end, alphabet)
            found.append((begin, at))
        if hold < at:
            hold = masker._undecided(data, at)
    return found, hold


class Masker:
    """Masks a stream; however it is cut into chunks, the output is the same.

    Only an ending that may be the beginning of a secret is held back until the next chunk or `flush`.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        forms = {form for secret in secrets if secret for form in (secret, _in_json(secret))}
        self._secrets = sorted(forms, key=lambda form: (-len(form), form))
        self._endings = frozenset(b"".join(form[:-1] for form in self._secrets) + _KEY)
        self._held = b""
        self._before = b""  # two bytes before the held ones: what a prefix follows decides whether it is one
        self._inside = b""  # a key was masked; more characters of this kind belong to it

    def feed(self, chunk: bytes) -> bytes:
        """What can be said of the stream after this chunk."""
        return self._advance(self._held + chunk if self._held else chunk, last=False)

    def flush(self, last: bytes = b"") -> bytes:
        """The rest, at the end of the stream, after a last chunk."""
        return self._advance(self._held + last, last=True)

    def _advance(self, raw: bytes, *, last: bool) -> bytes:
        if self._inside:
            rest = raw.lstrip(self._inside)
            self._before = (self._before + raw[: len(raw) - len(rest)])[-2:]
            raw, self._inside = rest, self._inside if not rest else b""
        if not raw:
            return b""
        buffer, start = self._before + raw, len(self._before)
        out, at = self._mask(buffer, start, last=last)
        self._before, self._held = buffer[:at][-2:], buffer[at:]
        return out

    def _mask(self, buffer: bytes, at: int, *, last: bool) -> tuple[bytes, int]:
        """The masked bytes, and the position from which on nothing is decided yet."""
        size = len(buffer)
        hold = size if last else self._undecided(buffer, at)
        done: list[bytes] = []
        for begin, _, end, alphabet in self._found(buffer, at):
            if begin < at:
                continue
            if hold < at:
                hold = self._undecided(buffer, at)
            if begin >= hold:
                break
            done += (buffer[at:begin], b"***")
            at = _run_end(buffer, end, alphabet)
            if alphabet and at == size:
                self._inside = alphabet
        if hold < at:
            hold = self._undecided(buffer, at)
        return (b"".join((*done, buffer[at:hold])) if done else buffer[at:hold]), hold

    def _found(self, buffer: bytes, at: int) -> list[tuple[int, int, int, bytes]]:
        """Every complete match: begin, rank among those that begin there, end, characters that may follow."""
        here = (secret for secret in self._secrets if secret in buffer)
        found = [(begin, -len(it), begin + len(it), b"") for it in here for begin in _all(buffer, it, at)]
        for begin in _anchored(buffer, at) + _in_long_runs(buffer, at):
            for prefix, more, alphabet in _SHAPES:
                end = begin + len(prefix) + more
                body = buffer[begin + len(prefix) : end]
                if buffer.startswith(prefix, begin) and len(body) == more and not body.strip(alphabet):
                    found.append((begin, 0, end, alphabet))
        found.sort()
        return found

    def _undecided(self, buffer: bytes, at: int) -> int:
        """The first position whose bytes up to the end may yet become a secret; the size if there is none."""
        size = len(buffer)
        if at >= size or buffer[-1] not in self._endings:
            return size
        return min(_pending_shape(buffer, at), *(_pending(buffer, secret, at) for secret in self._secrets), size)


def _in_json(secret: bytes) -> bytes:
    """The secret as it stands inside a JSON string."""
    escaped = secret.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return escaped.replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\t", b"\\t")


def _all(buffer: bytes, needle: bytes, at: int) -> Iterator[int]:
    at = buffer.find(needle, at)
    while at >= 0:
        yield at
        at = buffer.find(needle, at + 1)


def _run_end(buffer: bytes, at: int, alphabet: bytes) -> int:
    """Where a run of such characters ends; looks no further than it must."""
    while alphabet and (window := buffer[at : at + 256]):
        rest = len(window.lstrip(alphabet))
        at += len(window) - rest
        if rest:
            break
    return at


def _begins(buffer: bytes, at: int) -> bool:
    """A key begins here, not in the middle of a word. The n of a line break in JSON is no word."""
    if at == 0 or buffer[at - 1] not in _ALNUM:
        return True
    return at > 1 and buffer[at - 2] == 0x5C and buffer[at - 1] in _ESCAPED


def _anchored(buffer: bytes, at: int) -> list[int]:
    return [begin for anchor in _ANCHORS for begin in _all(buffer, anchor, at) if _begins(buffer, begin)]


def _in_long_runs(buffer: bytes, at: int) -> list[int]:
    """Where a long key may begin: at the beginning of a long run, or after one of its separators."""
    starts: list[int] = []
    kinds = buffer.translate(_IS_KEY)
    begin = kinds.find(_LONG_RUN, at)
    while begin >= 0:
        end = kinds.find(b" ", begin + _LONG)
        if end < 0:
            end = len(kinds)
        if buffer[begin] in _FIRST or buffer[begin - 1] == 0x5C:
            starts += (begin, begin + 1)
        for separator in (b"-", b"_"):
            after = buffer.find(separator, begin, end - _LONG) + 1
            while after:
                if buffer[after] in _FIRST:
                    starts.append(after)
                after = buffer.find(separator, after, end - _LONG) + 1
        begin = kinds.find(_LONG_RUN, end)
    return [start for start in starts if buffer.startswith(_LONG_PREFIXES, start) and _begins(buffer, start)]


def _pending(buffer: bytes, secret: bytes, at: int) -> int:
    """The first position from which on the buffer is a beginning of the secret; the size if none."""
    size = len(buffer)
    first = secret[:1]
    at = buffer.find(first, max(at, size - len(secret) + 1))
    while at >= 0:
        if secret.startswith(buffer[at:]):
            return at
        at = buffer.find(first, at + 1)
    return size


def _pending_shape(buffer: bytes, at: int) -> int:
    size = len(buffer)
    window = buffer[max(at, size - _LONG + 1) :]
    for begin in range(size - len(window) + len(window.rstrip(_KEY)), size):
        if buffer[begin] in _FIRST and _begins(buffer, begin) and _may_become_key(buffer[begin:]):
            return begin
    return size


def _may_become_key(text: bytes) -> bool:
    for prefix, more, alphabet in _SHAPES:
        if prefix.startswith(text):
            return True
        if text.startswith(prefix) and len(text) < len(prefix) + more:
            return not text[len(prefix) :].strip(alphabet)
    return False
