"""Fingerprints by which repeated failures are recognized."""

from __future__ import annotations

import re

from ralphproof.base.text import strip_terminal_codes
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.engine.check import SuiteResult


_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)*"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_UNIT = "(?:[nuµμm]s|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)"
_ALONE = r"\d(?<![\w.-]\d)(?<!\w\[\d)\d*"  # no part of a name, such as test_waits[5s]
_SOURCES = (
    " asm bash c cc cfg cjs clj cmake conf cpp cs css cts cxx d dart ex exs erl f90 fs go gradle groovy h hh hpp hs"
    " html ini java jl js json jsx kt kts less lua m md mjs mk ml mli mm mts nim php pl pm proto ps1 py pyi pyx r rb"
    " rs rst s scala scss sh sql svelte swift tex tf toml ts tsx txt v vb vue xml yaml yml zig "
)


def _normal_line_number(found: re.Match[str]) -> str:
    """Replace a number behind a file name; behind anything else it may be a port, and stays."""
    before = found.string[max(0, found.start() - 120) : found.start()]
    place = before[max(before.rfind(end) for end in " \n\t'\"`([),;=<|/\\") + 1 :]
    if "." in place:
        named = f" {place.rpartition('.')[2].lower()} " in _SOURCES
    else:
        named = place.endswith(("Makefile", "Dockerfile", "Rakefile", "Jenkinsfile", "makefile"))
    beside = before.endswith(("/" + place, "\\" + place)) and not before.endswith("//" + place)
    column = ":" in found[0][1:] and not before[-1:].isdigit()
    return ":<line>" if named or beside or column or place.endswith(">") else found[0]


# (a text that must occur for the row to apply, a pattern, its replacement). The order matters: an earlier row replaces
# as a whole what a later one would replace in parts.
_NORMAL = (
    ("", r"(?i)\b(pid|tid|goroutine|seed|test\.shuffle)[ =:]+-?\d+\b", r"\1 <n>"),
    (":", rf"\b\d{{4}}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?{_ZONE}(?: m=[+-]\d+\.\d+)?", "<time>"),
    (":", rf"{_MONTH} [ \d]\d {_CLOCK}(?: [A-Z]{{3,4}})?(?: \d{{4}})?\b", "<time>"),
    (":", rf"\b\d\d?[ /-]{_MONTH}[ /-]\d{{4}}[ :]{_CLOCK}{_ZONE}", "<time>"),
    ("<time>", rf"{_DAY},? <time>", "<time>"),
    (":", rf"\b\d\d?/\d\d?/\d{{2,4}},? {_CLOCK}(?: [AP]M)?", "<time>"),
    (":", rf"\b(?:\d+ days?, )?{_CLOCK}\b(?: [AP]M\b)?", "<time>"),
    ("", r"\b\d{8}T\d{6}Z?\b|\b(?:1[4-9]|20)\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b", "<time>"),
    ("-", r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    ("+0x", r"\+0x[0-9a-fA-F]+\b", "<address>"),
    ("0x", r"0x(?<!\w0x)[0-9a-fA-F]{6,}\b\??", "<address>"),
    ("@", r"@(?<=[\w$\]]@)[0-9a-f]{6,8}\b", "<address>"),
    ("tmp/", r"(?<![\w.~-])(?:/private)?(?:/var)?/tmp/[^\s:'\"`()<>,;]+", "<temporary>"),
    ("/folders/", r"(?<![\w.~-])(?:/private)?/var/folders/[^\s:'\"`()<>,;]+", "<temporary>"),
    (":\\", r"(?i)\b[a-z]:\\(?:[^\n:'\"`<>|\\]+\\){0,9}te?mp\\[^\s:'\"`()<>,;]+", "<temporary>"),
    ("pytest-of-", r"pytest-of-\w+[/\\]pytest-\d+", "<temporary>"),
    ("", r"(?i)\b((?:duration|elapsed|took|time)(?:_?(?:ms|s|seconds))?[\"']?[=:] ?[\"']?)\d+(?:\.\d+)?\b", r"\1<n>"),
    ("duration_ms ", r"duration_ms \d+(?:\.\d+)?", "<duration>"),
    ("s", rf"{_ALONE}(?:h ?\d+)?m ?\d+(?:\.\d+)?s\b", "<duration>"),
    ("", rf"{_ALONE}(?:[.,]\d+)?(?:e-?\d+)? ?{_UNIT}\b", "<duration>"),
    ("thread '", r"(thread '[^'\n]*') \(\d+\)", r"\1"),
    ("==", r"(?m)^==\d+==", "<process>"),
    ("(node:", r"\(node:\d+\)", "<process>"),
    ("[gw", r"\[gw\d+\]", "<process>"),
    ("|", r"(?m)^[ >]*\d* ?\|", "|"),
    (":", r"(?m)^ +\d+:\d+(?= +(?:error|warning)\b)", " <line>"),
    (":", r":(?<=[\w)>\]]:)\d+(?:[:-]\d+)?(?=[:\s,)\]'\"`;|]|\.\s|\.?$)", _normal_line_number),
    ("):", r"(\.(?:[cm]?tsx?|jsx?|vue|cs|fs|vb|c|cc|cpp|cxx|h|hpp))\(\d+(?:,\d+){0,3}\)(?=:)", r"\1(<line>)"),
    (":", r"\(\d+:\d+\)", "(<line>)"),
    ("#L", r"#L\d+(?:-L\d+)?\b", "#<line>"),
    ("sh: ", r"(?<=\bsh: )\d+(?=: )", "<line>"),
    ("", r"(?i)\b(lines?|col|column)(?:[=:] ?| )\d+(?:-\d+)?\b", r"\1 <n>"),
)


def failure_fingerprint(name: str, code: int | None, output: str, tests: SuiteResult | None = None) -> str:
    """Equal for two occurrences of the same failure.

    Where the failing tests are known, they identify the failure. Otherwise its text does, without times, durations,
    addresses, temporary paths and line numbers; ports, names and counts of failures count.
    """
    import hashlib

    if tests is not None and tests.failing:
        text = "\0".join([name, "failing", *(_normal_test_name(test) for test in tests.failing)])
    else:
        text = f"{name}\0{code}\0{_normalize(output)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _normalize(output: str) -> str:
    """The text without what varies from run to run."""
    text = strip_terminal_codes(output)
    for must, pattern, instead in _NORMAL:
        if must in text:
            text = re.sub(pattern, instead, text)
    return text


def _normal_test_name(test: str) -> str:
    """A test's name; parametrized names may contain values with memory addresses or paths."""
    return re.sub(r" at 0x[0-9a-fA-F]+|(?<![\w.~-])(?:/private)?(?:/var)?/(?:tmp|folders)/[^\s'\")\]]+", "<here>", test)
