"""Secrets: values of the environment and files that are secret, masking in texts and streams, references in records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from re import Pattern

    from ralphproof.base.value import Json


# What must never be written down: values of secret-looking variables, and texts shaped like well-known keys.
#
# The keeper imports this for every run and feeds it every byte of output, so secrets are found without `re`:
# `bytes.find` skips, a pattern of alternatives does not. One pattern tells escape codes, and is compiled when the first
# one comes.


MASK = "***"
PRIVATE_LOG_SUFFIX = "-held"  # how the name of a log ends that is never put where an agent could read it
MIN_SECRET_LENGTH = 8  # a shorter value is too likely to be a common word

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

_CONTROL = bytes((*range(9), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F))
_MOST_CODE = 4096  # bytes of one escape code
_PIECE = 32 * 1024  # bytes with escape codes that are looked at together: each code takes memory
_MOST_HELD = 16 * 1024  # bytes that are waited for beyond a secret's own
_compiled: tuple[Pattern[bytes], Pattern[bytes]] | None = None


def find_environment_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values that must be masked, longest first: those of secret-looking names, and passwords inside URLs."""
    found = set()
    for name, given in environ.items():
        text = given.strip()
        if _looks_secret(name) and not text.startswith("/") and not text.isdigit():
            found.add(text)
        found.update(_passwords(text))
    return tuple(
        sorted((text for text in found if len(text) >= MIN_SECRET_LENGTH), key=lambda text: (-len(text), text))
    )


def _looks_secret(name: str) -> bool:
    return any(part in _WORDS or part.endswith(_ENDINGS) for part in name.upper().split("_"))


def _passwords(text: str) -> Iterator[str]:
    """The passwords of `scheme://user:password@host`; one that equals its user is a development default."""
    for rest in text.split("://")[1:]:
        user, colon, password = rest.split("/", 1)[0].rpartition("@")[0].partition(":")
        if colon and password != user:
            yield password


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret, and everything shaped like a key, replaced by `***`."""
    secrets = tuple(filter(None, secrets))
    if len(text) < min([_SHORTEST_KEY, *map(len, secrets)]):  # most texts of a record are a word or two
        return text
    masker = StreamMasker(secret.encode("utf-8", "surrogatepass") for secret in secrets)
    return masker.flush(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


def find_secret_spans(data: bytes, secrets: Iterable[str], *, last: bool) -> tuple[list[tuple[int, int]], int]:
    """Where secrets begin and end in these bytes, and from where on more bytes may yet make one."""
    masker = StreamMasker(secret.encode("utf-8", "surrogatepass") for secret in secrets)
    spans, hold = masker._spans(masker._views(data, last=last), 0, len(data), last=last)
    return [(span.begin, span.end) for span in spans], hold


class StreamMasker:
    """Masks a stream; however it is cut into chunks, the output is the same.

    A secret is also found where escape codes stand between its characters, raw (`grep --color`) or as JSON writes them;
    codes inside it follow the mask, so that a colour still ends. Only an ending that may be the beginning of a secret,
    or of an escape code, is held back until the next chunk or `flush`.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        forms = {form for secret in secrets if secret for form in (secret, _json_escaped(secret))}
        self._secrets = sorted(forms, key=lambda form: (-len(form), form))
        self._endings = frozenset(b"".join(form[:-1] for form in self._secrets) + _KEY)
        self._most_held = _MOST_HELD + max(map(len, forms), default=0)
        self._held = b""
        # Two bytes before the held ones, as they are seen and as they are: what precedes a prefix decides about it.
        self._before = (b"", b"")
        self._inside: tuple[bytes, bool] | None = None  # a key was masked; such characters, seen or raw, belong to it

    def feed(self, chunk: bytes) -> bytes:
        """What can be said of the stream after this chunk."""
        if len(chunk) > _PIECE and _may_hide(chunk):
            return b"".join(self.feed(chunk[at : at + _PIECE]) for at in range(0, len(chunk), _PIECE))
        return self._advance(self._held + chunk if self._held else chunk, last=False)

    def flush(self, last: bytes = b"") -> bytes:
        """The rest, at the end of the stream, after a last chunk."""
        if len(last) > _PIECE:
            return self.feed(last) + self._advance(self._held, last=True)
        return self._advance(self._held + last, last=True)

    def _advance(self, raw: bytes, *, last: bool) -> bytes:
        if not raw:
            return b""
        views, at, done = self._views(raw, last=last), 0, []
        if self._inside:
            alphabet, seen = self._inside
            view = views[0] if seen else views[-1]
            stop = _run_end(view.text, view.start, alphabet)
            at = view.raw_end(stop)
            done += self._codes(view, 0, at)
            if stop < len(view.text):
                self._inside = None
        spans, hold = self._spans(views, at, len(raw), last=last)
        for span in spans:
            done += (raw[at : span.begin], b"***", *span.codes)
            at = span.end
            self._inside = self._inside or span.inside
        self._before, self._held = (views[0].before(hold), views[-1].before(hold)), raw[hold:]
        return b"".join((*done, raw[at:hold])) if done else raw[at:hold]

    def _views(self, raw: bytes, *, last: bool) -> tuple[_View, ...]:
        """The bytes as a terminal would show them, and as they are where that differs.

        The first comes first: there a key goes on after a code.
        """
        as_is = _View(self._before[1], raw)
        if not _may_hide(raw) and self._before[0] == self._before[1]:
            return (as_is,)
        return _make_view(self._before[0], raw, last=last), as_is

    def _spans(self, views: tuple[_View, ...], at: int, size: int, *, last: bool) -> tuple[list[_Span], int]:
        """What to mask, and the position from which on nothing is decided yet."""
        hold = size if last else self._undecided(views, at, size)
        spans: list[_Span] = []
        for begin, _, number, end, alphabet in self._found(views, at):
            if begin < at:
                continue
            if hold < at:
                hold = self._undecided(views, at, size)
            if begin >= hold:
                break
            view = views[number]
            stop = _run_end(view.text, end, alphabet)
            at = view.raw_end(stop)
            inside = (alphabet, view is views[0]) if alphabet and stop == len(view.text) else None
            spans.append(_Span(begin, at, self._codes(view, begin, at), inside))
        return spans, self._undecided(views, at, size) if hold < at else hold

    def _found(self, views: tuple[_View, ...], at: int) -> list[tuple[int, int, int, int, bytes]]:
        """Every complete match: begin, rank among those that begin there, view, end in it, what may follow."""
        found: list[tuple[int, int, int, int, bytes]] = []
        for number, view in enumerate(views):
            text, start = view.text, view.at(at)
            for secret in self._secrets:
                if secret in text:
                    size = len(secret)
                    found += [
                        (view.raw(begin), -size, number, begin + size, b"") for begin in _find_all(text, secret, start)
                    ]
            for begin in _short_key_starts(text, start) + _long_key_starts(text, start):
                for prefix, more, alphabet in _SHAPES:
                    end = begin + len(prefix) + more
                    body = text[begin + len(prefix) : end]
                    if text.startswith(prefix, begin) and len(body) == more and not body.strip(alphabet):
                        found.append((view.raw(begin), 0, number, end, alphabet))
        found.sort()
        return found

    def _codes(self, view: _View, begin: int, end: int) -> list[bytes]:
        """The escape codes between two places of the stream; one that carries a text is masked as others are."""
        codes: list[bytes] = []
        for code in view.codes(begin, end):
            at, masked = 0, list[bytes]()
            for span in (
                self._spans((_View(b"", code),), 0, len(code), last=True)[0] if len(code) >= MIN_SECRET_LENGTH else ()
            ):
                masked += (code[at : span.begin], b"***")
                at = span.end
            codes += (*masked, code[at:])
        return codes

    def _undecided(self, views: tuple[_View, ...], at: int, size: int) -> int:
        """The first position whose bytes up to the end may yet become a secret; the size if there is none."""
        hold = size
        for view in views:
            text, start = view.text, view.at(at)
            if start < len(text) and text[-1] in self._endings:
                first = min((_pending(text, secret, start) for secret in self._secrets), default=len(text))
                first = min(first, _pending_shape(text, start))
                hold = min(hold, view.raw(first)) if first < len(text) else hold
            hold = min(hold, max(view.size, at))
        hold = max(at, views[0].whole(hold))
        return hold if size - hold <= self._most_held else size  # a flood of codes inside a secret is not waited for


class _Span:
    """A secret: where it begins and ends, the codes inside it, and how it goes on where it reaches the end."""

    __slots__ = ("begin", "codes", "end", "inside")

    def __init__(self, begin: int, end: int, codes: list[bytes], inside: tuple[bytes, bool] | None) -> None:
        self.begin, self.end, self.codes, self.inside = begin, end, codes, inside


class _View:
    """Bytes in which secrets are looked for, after a little context, and where each of them stands in the stream."""

    __slots__ = ("_gaps", "_raw", "_taken", "size", "start", "text")

    def __init__(self, before: bytes, raw: bytes, gaps: list[tuple[int, int]] | None = None, size: int = -1) -> None:
        self.size = len(raw) if size < 0 else size  # from there on an escape code is unfinished
        self.start = len(before)
        self._raw, self._gaps = raw, gaps or []
        self._taken: list[tuple[int, int]] = []  # a place in `text`, and how many bytes were taken out before it
        if not gaps:
            self.text = before + raw[: self.size]
            return
        kept, at, taken = [before], 0, 0
        for begin, end in gaps:
            kept.append(raw[at:begin])
            at, taken = end, taken + end - begin
            self._taken.append((self.start + end - taken, taken))
        self.text = b"".join((*kept, raw[at : self.size]))

    def raw(self, place: int) -> int:
        """Where a byte of the text stands in the stream."""
        number = bisect_right(self._taken, (place, self.size))
        return place - self.start + (self._taken[number - 1][1] if number else 0)

    def raw_end(self, place: int) -> int:
        """Where a piece of the text that ends there ends in the stream."""
        return self.raw(place - 1) + 1 if place > self.start else 0

    def at(self, place: int) -> int:
        """The first byte of the text from this place of the stream on."""
        number = bisect_left(self._gaps, (place, place))
        if number and self._gaps[number - 1][1] > place:  # inside of a code
            place = self._gaps[number - 1][1]
        return min(place, self.size) - (self._taken[number - 1][1] if number else 0) + self.start

    def whole(self, place: int) -> int:
        """The same place of the stream, or where the code begins that it would cut in two."""
        number = bisect_left(self._gaps, (place, place))
        return self._gaps[number - 1][0] if number and self._gaps[number - 1][1] > place else place

    def before(self, place: int) -> bytes:
        """The last two bytes that are seen before this place of the stream."""
        at = self.at(place)
        return self.text[max(0, at - 2) : at]

    def codes(self, begin: int, end: int) -> list[bytes]:
        """The escape codes between two places of the stream."""
        first, after = bisect_left(self._gaps, (begin, begin)), bisect_left(self._gaps, (end, end))
        return [self._raw[begin:end] for begin, end in self._gaps[first:after]]


def _may_hide(raw: bytes) -> bool:
    """Whether there may be an escape code in these bytes, or the beginning of one at their end."""
    return (
        len(raw.translate(None, _CONTROL)) < len(raw) or b"\\u00" in raw or b"\xc2\x9b" in raw
        or b"\\" in raw[-5:] or raw[-1:] == b"\xc2"
    )  # fmt: skip


def _make_view(before: bytes, raw: bytes, *, last: bool) -> _View:
    finished, growing = _patterns()
    gaps, size = [], len(raw)
    for found in (finished if last else growing).finditer(raw):
        if found.lastgroup:
            size = found.start()
            break
        gaps.append(found.span())
    return _View(before, raw, gaps, size)


def _patterns() -> tuple[Pattern[bytes], Pattern[bytes]]:
    """What a terminal does not show; the same with the beginning of a code at the end of a chunk, as a group.

    Compiled when the first code comes: most streams have none, and then `re` need not be there. Every repetition is
    bounded, so that no flood makes the search slow.
    """
    global _compiled
    if _compiled is None:
        import re

        control = rb"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
        # A set of bytes comes first, which `re` skips to; what follows depends on the byte before.
        escape, csi = rb"(?:(?<=\x1b)|(?<=\\)\\{0,3}u001[bB])", rb"(?:(?<=\xc2)\x9b|(?<=\\)\\{0,3}u009[bB])"
        numbers = rb"(?:%b\[|%b)[0-?]{0,64}[ -/]{0,8}" % (escape, csi)
        string = rb"%b[\]PX^_][^\x07\x1b\n\\\xc2]{0,%d}" % (escape, _MOST_CODE)
        string_end = rb"(?:\x07|\\{1,4}u0007|\x1b\\|\\{1,4}u001[bB]\\\\|\xc2\x9c)"
        sequences = rb"%b[@-~]|%b%b|%b[ -/]{1,8}[0-~]" % (numbers, string, string_end, escape)
        begun = rb"(?:u(?:0(?:0[01789]?)?)?)?"  # of a character as JSON writes it
        string_goes_on = rb"(?:\x1b|\xc2|\\{1,4}(?:u001[bB]\\?|%b))?" % begun
        unfinished = rb"(?P<open>(?:%b|%b%b|%b[ -/]{0,8}|(?<=\\)\\{0,3}%b|(?<=\xc2))\Z)" % (
            numbers, string, string_goes_on, escape, begun,
        )  # fmt: skip
        characters = (
            rb"(?<=[%b])[\x00-\x08]*|(?<=\\)\\{0,3}u00(?:0[0-8bBcCeEfF]|1[0-9a-fA-F]|7[fF]|[89][0-9a-fA-F])" % control
        )
        finished = rb"[%b\\\xc2](?:%b|%b)" % (control, sequences, characters)
        growing = rb"[%b\\\xc2](?:%b|%b|%b)" % (control, sequences, unfinished, characters)
        _compiled = re.compile(finished), re.compile(growing)
    return _compiled


def _json_escaped(secret: bytes) -> bytes:
    """The secret as it stands inside a JSON string."""
    escaped = secret.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
    return escaped.replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\t", b"\\t")


def _find_all(buffer: bytes, needle: bytes, at: int) -> Iterator[int]:
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


def _is_key_start(buffer: bytes, at: int) -> bool:
    """A key begins here, not in the middle of a word. The n of a line break in JSON is no word."""
    if at == 0 or buffer[at - 1] not in _ALNUM:
        return True
    return at > 1 and buffer[at - 2] == 0x5C and buffer[at - 1] in _ESCAPED


def _short_key_starts(buffer: bytes, at: int) -> list[int]:
    return [begin for anchor in _ANCHORS for begin in _find_all(buffer, anchor, at) if _is_key_start(buffer, begin)]


def _long_key_starts(buffer: bytes, at: int) -> list[int]:
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
    return [start for start in starts if buffer.startswith(_LONG_PREFIXES, start) and _is_key_start(buffer, start)]


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
        if buffer[begin] in _FIRST and _is_key_start(buffer, begin) and _may_become_key(buffer[begin:]):
            return begin
    return size


def _may_become_key(text: bytes) -> bool:
    for prefix, more, alphabet in _SHAPES:
        if prefix.startswith(text):
            return True
        if text.startswith(prefix) and len(text) < len(prefix) + more:
            return not text[len(prefix) :].strip(alphabet)
    return False


# Secrets in stored texts are replaced by references to environment variables.


REFERENCE_DELIMITER = "\x1a"  # no command line and no prompt holds it


def replace_secrets(data: Json, environ: Mapping[str, str], mask: Callable[[str], str]) -> Json:
    """The value without secrets: those of the environment become references that can be resolved, others are masked."""
    names = {
        secret: reference
        for secret in find_environment_secrets(environ)
        if (reference := _make_reference(secret, environ))
    }

    def hide(text: str) -> str:
        for secret, reference in names.items():
            text = text.replace(secret, reference)
        return mask(text)

    return map_strings(data, hide)


def resolve_secrets(data: Json, environ: Mapping[str, str]) -> Json:
    """The value with references resolved from the present environment; raises Refused where a variable is missing."""

    def reveal(text: str) -> str:
        pieces = text.split(REFERENCE_DELIMITER)
        return "".join(_resolve_reference(piece, environ) if place % 2 else piece for place, piece in enumerate(pieces))

    return map_strings(data, reveal)


def _make_reference(secret: str, environ: Mapping[str, str]) -> str:
    """A reference to the variable whose value is the secret or contains it."""
    for name, text in environ.items():
        if text.strip() == secret:
            return f"{REFERENCE_DELIMITER}{name}{REFERENCE_DELIMITER}"
    for name, text in environ.items():
        if (at := text.find(secret)) >= 0:
            return f"{REFERENCE_DELIMITER}{name}:{at}:{len(secret)}{REFERENCE_DELIMITER}"
    return ""


def _resolve_reference(reference: str, environ: Mapping[str, str]) -> str:
    name, _, part = reference.partition(":")
    if name not in environ:
        from ralphproof.base.errors import Refused

        raise Refused(f"this run was begun with the value of {name}, which is not set now; set it")
    at, _, length = part.partition(":")
    if not (at.isdigit() and length.isdigit()):
        return environ[name].strip()
    return environ[name][int(at) : int(at) + int(length)]


def map_strings(data: Json, change: Callable[[str], str]) -> Json:
    """The value with every string in it mapped; keys stay."""
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [map_strings(item, change) for item in data]
    return {name: map_strings(item, change) for name, item in data.items()} if isinstance(data, dict) else data


SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".envrc", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_ed25519", ".netrc",
    ".pgpass", ".git-credentials", ".htpasswd", "master.key", "credentials.key", "*.kdbx", "*.p12", "*.pfx",
    "*.keystore",
    "*-key.pem", "*_key.pem", "*.ppk", "private*.pem", "private*.key", "service-account*.json", "terraform.tfstate",
    "*.tfvars.secret", "credentials.json", "client_secret*.json", "secrets.yml", "secrets.yaml", "secrets.json",
    "secrets.toml", ".pypirc", ".dockercfg",
)  # fmt: skip
_HARMLESS_NAMES = r".*\.(pub|example|sample|template|tmpl|dist|defaults?|schema|md|d\.ts)|known_hosts.*|example\.env"


def is_secret_name(name: str) -> bool:
    """Whether a file of this name holds secrets, in any folder."""
    import fnmatch

    return not is_harmless_name(name) and any(fnmatch.fnmatchcase(name, one) for one in SECRET_NAMES)


def is_harmless_name(name: str) -> bool:
    """Whether a file of this name is for everybody, though it may be named after a secret one."""
    import re

    return re.fullmatch(_HARMLESS_NAMES, name) is not None
