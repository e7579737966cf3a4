"""What the rules object to in a command: by the patterns of `rules.py`, and by checks that need more than a pattern."""

from __future__ import annotations

import re

from ralphproof.base.redaction import is_secret_name
from ralphproof.base.shell import INTERPRETERS, SHELLS, SOME, UNKNOWN, program_name
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.guard.command import (
    FILE,
    QUIET,
    SQL,
    SimpleCommand,
    describes,
    has,
    made_by,
    split,
    substitutions,
    value_of,
    variables,
)
from ralphproof.guard.line import CURL_TAKES, FETCHERS, downloads
from ralphproof.guard.nesting import GIT_SETTINGS_THAT_RUN, git_words, reads_code, script_of, sed_scripts
from ralphproof.guard.paths import (
    GIT_HOOKS,
    holds_secrets,
    is_below,
    locate,
    path_in_project,
    rule_against_deleting,
    rule_against_reading,
    rule_against_writing,
    zone,
)
from ralphproof.guard.rules import OF_THIS_MACHINE, RULES, TAKES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ralphproof.guard.verdict import Ground, Objection

    Check = Callable[[SimpleCommand, Ground], Iterator[str]]


ADDRESS = re.compile(r"(?:([a-zA-Z][\w+.-]*):/{1,3})?(?:[^@/\s]*@)?(\[[^\]]*\]|[^:/?#\s]*)", re.DOTALL)
METADATA_HOSTS = {
    "169.254.169.254", "169.254.170.2", "metadata.google.internal", "metadata", "100.100.100.200", "fd00:ec2::254",
    "instance-data",
}  # fmt: skip
LOCAL_HOSTS = r"localhost|.*\.localhost|127(\.\d+){1,3}|::1|0|0\.0\.0\.0|host\.docker\.internal|.*\.test"
PRIVATE_HOSTS = (
    r"10(\.\d+){3}|192\.168(\.\d+){2}|172\.(1[6-9]|2\d|3[01])(\.\d+){2}|169\.254(\.\d+){2}|f[cd][0-9a-f]{2}:.*|fe80:.*"
    r"|.*\.(internal|local|lan|corp|intranet)"
)


def split_address(address: str) -> tuple[str, str]:
    """(scheme, host) of an address as somebody wrote it."""
    found = ADDRESS.match(address.strip())
    scheme, host = (found[1] or "", found[2]) if found else ("", "")
    return scheme.lower(), _usual_form(host.strip("[]").lower().rstrip("."))


def _usual_form(host: str) -> str:
    """A host that is written as one number, or with hexadecimal or octal parts, as four decimal numbers."""
    if not re.fullmatch(r"(0x[0-9a-f]+|\d+)(\.(0x[0-9a-f]+|\d+)){0,3}", host) or len(host) > 60:
        return host.removeprefix("::ffff:")
    pieces = [
        int(one, 16) if one.startswith("0x") else int(one, 8) if re.fullmatch("0[0-7]+", one) else int(one)
        for one in host.split(".")
    ]
    if any(piece > 255 for piece in pieces[:-1]) or pieces[-1] >= 256 ** (5 - len(pieces)):
        return host
    whole = sum(piece << (8 * (3 - place)) for place, piece in enumerate(pieces[:-1])) + pieces[-1]
    return ".".join(str(whole >> shift & 255) for shift in (24, 16, 8, 0))


def is_local(address: str) -> bool:
    """Whether an address is this machine's own."""
    return bool(re.fullmatch(LOCAL_HOSTS, split_address(address)[1]))


def rule_against_fetching(address: str) -> str:
    """The rule against asking an address; empty where none is."""
    scheme, host = split_address(address)
    if host in METADATA_HOSTS:
        return "cloud-metadata"
    if scheme in ("file", "view-source", "data", "javascript"):
        return "file-address"
    if re.fullmatch(PRIVATE_HOSTS, host):
        return "private-address"
    return "secret-in-address" if holds_secret(address) or UNKNOWN in host else ""


def holds_secret(text: str) -> bool:
    """Whether a text has the shape of a known kind of secret in it."""
    from ralphproof.base.redaction import mask_text

    return mask_text(text, ()) != text


# What the rules object to in a command: by the patterns of `rules.py`, and by checks that need more than a pattern.


TEST_VARIABLES = ("RAILS_ENV", "NODE_ENV", "APP_ENV", "MIX_ENV", "DJANGO_ENV", "RACK_ENV", "FLASK_ENV")
_PATTERNS: dict[str, list[tuple[str, str]]] = {}  # program: what follows it in a pattern, and the rule
_CHECKS: dict[str, list[Check]] = {}  # program: its checks
OF_PATHS = {"secret-file", "read-home", "hook-write", "agent-settings", "protected-path", "device-write"}


def objections_to(one: SimpleCommand, at: Ground) -> Iterator[Objection]:
    """What all rules object to in one command."""
    for name in _rules_against(one, at):
        rule = RULES[name]
        if one.contained and (rule.category in OF_THIS_MACHINE or rule.id in OF_PATHS):
            continue
        yield rule.about(one.shown)


def _rules_against(one: SimpleCommand, at: Ground) -> Iterator[str]:
    if not _PATTERNS:
        _index()
    if one.name not in QUIET:
        yield from _unseen_code(one)
    meant = _meant(one)
    yield from _by_patterns(meant, at)
    for check in _CHECKS.get(one.name, ()):
        yield from check(one, at)
    if meant is not one:
        for check in _CHECKS.get(meant.name, ()):
            yield from check(meant, at)


def _index() -> None:
    for rule in RULES.values():
        for pattern in rule.commands:
            programs, _, rest = pattern.partition(" ")
            for program in programs.split("|"):
                _PATTERNS.setdefault(program, []).append((rest, rule.id))
    for programs, check in CHECKS:
        for program in programs.split():
            _CHECKS.setdefault(program, []).append(check)


def _meant(one: SimpleCommand) -> SimpleCommand:
    """`python -m pip` and `uv pip` are pip, `python manage.py x` and `php artisan x` commands of the script."""
    words = one.words
    if one.name == "python" and words[1:2] == ("-m",) and words[2:]:
        words = words[2:]
    elif (one.name == "uv" and words[1:2] == ("pip",)) or (
        one.name in ("python", "php") and words[1:] and program_name(words[1]) in ("manage.py", "artisan")
    ):
        words = words[1:]
    return replace(one, words=words) if words is not one.words else one


def _by_patterns(one: SimpleCommand, at: Ground) -> Iterator[str]:
    patterns = _PATTERNS.get("mkfs" if one.name.startswith("mkfs.") else one.name, ())
    if not patterns:
        return
    words = git_words(one) if one.name == "git" else one.words[1:]
    options, operands = split(words, TAKES.get(one.name, "").split())
    if "--help" in options:
        return
    testing = any(name in TEST_VARIABLES and "test" in text for name, text in one.given)
    nobodys = one.name == "git" and _is_in_temporary_repository(one, at)
    for pattern, rule in patterns:
        category = RULES[rule].category
        if (category == "database" and testing) or (category in ("git-history", "git-remote") and nobodys):
            continue
        if describes(pattern, options, operands):
            yield rule


def _is_in_temporary_repository(one: SimpleCommand, at: Ground) -> bool:
    """A repository in the temporary folder is nobody's work."""
    if not one.cwd or UNKNOWN in one.cwd or has(one.words[1:3], "-C"):
        return False
    return zone(locate(one.cwd, one.cwd, at), at) == "temporary"


# Code that has not been seen

AWAY = FETCHERS | {
    "ssh", "telnet", "ncat", "socat", "ftp", "sftp", "rsync", "openssl-s_client", "aws", "gsutil", "kubectl",
}  # fmt: skip
SET_UP_A_SHELL = {  # what these print is there to be evaluated
    "pyenv", "rbenv", "nodenv", "goenv", "jenv", "direnv", "starship", "zoxide", "fnm", "mise", "conda", "mamba",
    "dircolors", "opam", "asdf", "luarocks", "brew", "register-python-argcomplete", "thefuck", "atuin", "lesspipe",
    "sed", "resize", "tset", "keychain", "fzf", "uv", "pixi", "rustup", "ng", "kubectl", "helm", "gh",
}  # fmt: skip
VARIABLES_WITH_COMMANDS = (
    r"[A-Z_]*(PYTHON3?|PIP|NODE|NPM|YARN|PNPM|CC|CXX|LD|AR|MAKE|CMAKE|GO|CARGO|RUSTC|JAVA|MVN|GRADLE|RUBY|PHP|DOCKER"
    r"|COMPOSE|KUBECTL|HELM|EDITOR|PAGER|BROWSER|TEST_CMD|RUNNER|PYTEST|GIT|BIN)|@|\d"
)
PLAIN_READERS = {"<", "cat", "head", "tail", "tee", "sed", "grep"}
RUN_URLS = {"npx", "bunx", "pnpx", "deno", "uvx", "node", "bun", "tsx"}
CONNECT = {"nc", "ncat", "netcat", "telnet", "socat"}


def _unseen_code(one: SimpleCommand) -> Iterator[str]:
    if one.odd:
        yield "odd-spelling"
    elif one.fetched and one.name != "git":
        yield "fetched-script"
    elif UNKNOWN in one.name:
        if made_by(one.name, AWAY):
            yield "remote-pipe"
        elif list(substitutions(one.name)) or not all(
            re.fullmatch(VARIABLES_WITH_COMMANDS, name) for name in variables(one.name)
        ):
            yield "unknown-command"
    else:
        if one.name in RUN_URLS and any(re.match(r"https?://|git\+|github:", word) for word in one.operands()[:2]):
            yield "run-url"
        if one.name in SHELLS or one.name in INTERPRETERS or one.name in ("eval", "source", "."):
            yield from filter(None, [_unseen_argument(one) or (_unseen_input(one) if reads_code(one) else "")])


def _unseen_argument(one: SimpleCommand) -> str:
    """Code in an argument, or a file that is a process's output."""
    words = [word for word in one.words[1:] if UNKNOWN in word]
    runs_files = one.name in SHELLS or bool(script_of(one))
    made = [(kind, names) for word in words for kind, _, names in substitutions(word)]
    if any(AWAY & set(names) for kind, names in made if kind != FILE or runs_files):
        return "remote-pipe"
    if one.name == "eval":
        return "eval-unknown" if words and not all(map(_sets_up_a_shell, words)) else ""
    if one.name in ("source", "."):
        first = one.words[1] if len(one.words) > 1 else ""
        whole = first.startswith(UNKNOWN) and first.endswith(UNKNOWN)
        return "eval-unknown" if whole and not _sets_up_a_shell(first) else ""
    inline = one.name in SHELLS and any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*|--command", word) for word in one.words[1:])
    if inline and any(word.startswith(UNKNOWN) for word in one.operands()[:1]):
        return "remote-pipe" if any(source.name in AWAY for source in one.sources) else "eval-unknown"
    return ""


def _sets_up_a_shell(word: str) -> bool:
    ways = list(substitutions(word))
    return bool(ways) and not variables(word) and all(first[0] in SET_UP_A_SHELL for _, first, _ in ways)


def _unseen_input(one: SimpleCommand) -> str:
    """What flows in, for a command that takes it for code."""
    names = {source.name for source in one.sources}
    if one.text is not None:
        if any(re.search(r"\\(x[0-9a-fA-F]{2}|0?[0-7]{3})", word) for source in one.sources for word in source.words):
            return "decoded-code"
        if made_by(one.text, AWAY):
            return "remote-pipe"
        return "eval-unknown" if one.text.startswith(UNKNOWN) else ""
    if _is_connected(one):
        return ""  # a matter of tunnels
    if names & AWAY:
        return "remote-pipe"
    return "decoded-code" if names - PLAIN_READERS else ""


def _is_connected(one: SimpleCommand) -> bool:
    """A shell that is fed by a connection."""
    return any(
        source.name in CONNECT or (source.name == "openssl" and "s_client" in source.words) for source in one.sources
    )


def _sed_execute(one: SimpleCommand, _: Ground) -> Iterator[str]:
    """`s/a/b/e` runs what it makes."""
    substitute = r"(?s)(?:^|[;{}\n]|\d|/)\s*s(.)(?:\\.|(?!\1).)*\1(?:\\.|(?!\1).)*\1[gipmIM0-9]*e"
    if any(re.search(substitute, text) for text in sed_scripts(one)):
        yield "eval-unknown"


# Deleting, writing, and rights

RECURSIVE = {"rimraf", "del-cli", "del", "trash", "trash-put", "rip", "srm"}
DELETE_TAKES = {"shred": "-n -s --iterations --size", "truncate": "-s -r --size"}
RSYNC_DELETES = ("--delete", "--delete-after", "--delete-before", "--delete-excluded", "--remove-source-files")
INTO = ("-t", "--target-directory")
WRITE_TAKES = {
    "install": "-m -o -g -t --mode --owner --group", "cp": "-t --suffix", "mv": "-t --suffix", "ln": "-t --suffix",
    "rsync": "-e --rsh --exclude --include --filter -f", "truncate": "-s -r --size", "touch": "-d -t -r --date",
    "tar": "-C -f --directory --file --exclude -T", "unzip": "-d -x", "sort": "-o -k -t -S -T --output",
    "curl": " ".join((*CURL_TAKES, "-o", "--output")), "wget": "-O -P -o --output-document",
    "patch": "-d -i -o -p --input --output --directory",
}  # fmt: skip
WORLD_WRITABLE = r"0?[0-7][0-7][2367]|[0-7]{0,2}777|.*\b[ugo]*[oa][ugo]*[+=][rwxXst]*w.*|[+=]w.*"
SETUID = r"[2467][0-7]{3}|.*[ug+=]*[+=][rwxX]*s.*"
NO_RIGHTS = r"0+|[ugoa]*-rwx|a=|[ugoa]*="
MAX_MODE_CHARS = 64  # a longer one is none, and would take long to match


def _deletes(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], DELETE_TAKES.get(one.name, "").split())
    recursive = one.name in RECURSIVE or has(options, "-r", "-R", "--recursive")
    if one.name == "mv":
        recursive, words = True, words if value_of(options, *INTO) else words[:-1]
    elif one.name == "rsync":
        recursive, words = True, words[-1:] if has(options, *RSYNC_DELETES) else []
    for word in words:
        yield from filter(None, [rule_against_deleting(locate(word, one.cwd, at, follow=False), at, recursive)])


def _writes(one: SimpleCommand, at: Ground) -> Iterator[str]:
    for word in _written_by(one):
        yield from filter(None, [rule_against_writing(locate(word, one.cwd, at), at)])


def _written_by(one: SimpleCommand) -> list[str]:
    """The words of a command that name what it writes."""
    options, words = split(one.words[1:], WRITE_TAKES.get(one.name, "").split())
    match one.name:
        case "cp" | "mv" | "ln" | "install":
            into = value_of(options, *INTO)
            return [into] if into else words[-1:] if len(words) > 1 or one.name == "install" else []
        case "rsync":
            return [word for word in words[-1:] if len(words) > 1 and ":" not in word.partition("/")[0]]
        case "dd":
            return [word[3:] for word in words if word.startswith("of=")]
        case "sed" | "gsed" | "perl" | "ruby":
            options, words = split(one.words[1:], ("-e", "-f", "-E", "--expression", "--file"))
            scripted = any(option.startswith(("-e", "-f", "-E", "--expression", "--file")) for option in options)
            in_place = has(options, "-i", "--in-place", takes="efE")
            return (words if scripted else words[1:]) if in_place else []
        case "tar" | "bsdtar":
            old_style = words[0] if words and not one.words[1].startswith("-") else ""
            into = value_of([option for option in options if option.startswith(("-C", "--dir"))], "-C", "--directory")
            packed = value_of([option for option in options if option.startswith(("-f", "--file"))], "-f", "--file")
            target = into if has(options, "-x", "--extract", takes="fCT") or "x" in old_style else packed
            return [target] if target and target != "-" else []
        case "unzip" | "sort":
            return [into for into in [value_of(options, "-d" if one.name == "unzip" else "-o", "--output")] if into]
        case "curl" | "wget" | "aria2c":
            folder = value_of(options, "-P", "--directory-prefix") if one.name == "wget" else None
            return [word for word in (*downloads(one), folder) if word and word != "-"]
        case "patch":
            return [value_of(options, "-o", "--output") or "", value_of(options, "-d", "--directory") or "", *words[:1]]
        case _:
            return words


def _links(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], WRITE_TAKES["ln"].split())
    goal = locate(words[0], one.cwd, at) if words and has(options, "-s", "--symbolic") else None
    if goal is not None and goal.path in ("/", at.home, at.root.rpartition("/")[0]):
        yield "wide-link"


def _chmod(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options = [word for word in one.words[1:] if re.fullmatch(r"-[Rvcf]+|--[a-z-]+(=.*)?", word)]
    words = [word for word in one.words[1:] if word not in options]
    if not words or has(options, "--reference"):
        return
    mode, places = words[0][:MAX_MODE_CHARS], [locate(path, one.cwd, at) for path in words[1:]]
    if any(re.fullmatch(GIT_HOOKS, path_in_project(place, at)) for place in places):
        yield "hook-write"
    if re.fullmatch(SETUID, mode):
        yield "chmod-setuid"
    elif re.fullmatch(WORLD_WRITABLE, mode):
        yield "chmod-everybody"
    elif any(zone(place, at) == "outside" for place in places):
        yield "permissions-outside"
    elif has(options, "-R", "--recursive") and re.fullmatch(NO_RIGHTS, mode):
        yield "chmod-nothing"


def _chown(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], ("--from", "--reference"))
    if any(zone(locate(path, one.cwd, at), at) == "outside" for path in words[1:]):
        yield "permissions-outside"
    elif has(options, "-R", "--recursive") and words:
        yield "chown-tree"


def _sudo(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if one.words[1:] not in (("-V",), ("-l",), ("-k",), ("--version",), ("--help",)):
        yield "become-root"


# Secrets

# Programs that show or copy what is in files, with how many of their first operands are no file.
SHOW_FILES = (
    "cat head tail less more bat batcat most nl tac rev strings xxd od hexdump hd base64 base32 cut sort uniq diff cmp"
    " comm paste cp mv scp rsync tar zip 7z gzip dd vim vi nvim nano emacs view code column fold fmt pr iconv uuencode"
    " gpg age install ln < tee look split csplit expand pandoc glow open xdg-open"
)
SEARCHES = "grep egrep fgrep rg ag ack"
FILTER_FILES = f"{SEARCHES} zgrep sed gsed awk gawk mawk jq yq"
COPIES = {"cp", "tar", "zip", "rsync", "scp", "7z"}
READ_TAKES = {
    "grep": "-A -B -C -m -e -f --include --exclude --exclude-dir", "head": "-n -c", "tail": "-n -c",
    "cut": "-d -f -c -b", "sort": "-k -t -o", "awk": "-F -v -f", "sed": "-e -f", "jq": "--arg --argjson",
    "xxd": "-l -s -c", "rg": "-g -t -e -A -B -C -m --glob --type", "tar": "-C --exclude", "cp": "-t",
    "rsync": "-e --exclude --include", "od": "-A -t -N -j",
}  # fmt: skip
NO_CONTENT = (
    "-q", "-c", "-l", "-L", "--quiet", "--silent", "--count", "--files-with-matches", "--files",
    "--files-without-match",
)  # fmt: skip
SENSITIVE_VARIABLE = (
    r"(?i)(^|_)(KEY|APIKEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?|BEARER|JWT)(_|$)"
    r"|(TOKEN|SECRET|PASSWORD)$"
)


def _reads(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], READ_TAKES.get(one.name, "").split())
    searches = one.name in SEARCHES.split()
    if searches and has(options, *NO_CONTENT, takes="ABCmefgt"):
        return
    if one.name in FILTER_FILES.split():
        scripted = any(option.startswith(("-e", "-f", "--regexp", "--file", "--expression")) for option in options)
        words = words if scripted else words[1:]
    elif one.name == "dd":
        words = [word[3:] for word in words if word.startswith("if=")]
    elif one.name in ("cp", "mv", "install", "ln", "scp", "rsync") and len(words) > 1:
        words = words[:-1]
    whole = one.name in (*COPIES, "rg", "ag") or (searches and has(options, "-r", "-R", "--recursive"))
    for word in words:
        place = locate(word, one.cwd, at)
        if word.startswith(SOME):
            continue
        if rule := rule_against_reading(place, word, at):
            yield rule
        elif whole and place.tail != "some" and holds_secrets(place, at):
            yield "read-home"


def _environment(one: SimpleCommand, _: Ground) -> Iterator[str]:
    words = one.operands("-u", "-C", "-o")
    if one.name == "printenv" and words:
        if any(re.search(SENSITIVE_VARIABLE, name) for name in words):
            yield "print-secret"
    elif len(one.words) == 1 or (
        one.name == "env" and len(one.words) == 1 + len(words) and all("=" in word for word in words)
    ):
        yield "print-environment"


def is_only_searched(one: SimpleCommand, line: Sequence[SimpleCommand]) -> bool:
    """Whether what a command prints is searched for something that is no secret, as in `env | grep NODE`."""
    readers = [other for other in line if one in other.sources and other.name in SEARCHES.split()]
    return any(other.operands() and not re.search(SENSITIVE_VARIABLE, other.operands()[0]) for other in readers)


def _prints(one: SimpleCommand, _: Ground) -> Iterator[str]:
    names = [name for word in one.words[1:] for name in variables(word)]
    if any(re.search(SENSITIVE_VARIABLE, name) for name in names):
        yield "print-secret"


# Sending data away, and letting others in

BODY_OPTIONS = (
    "-d", "--data", "--data-binary", "--data-raw", "--data-urlencode", "--data-ascii", "-F", "--form", "-T",
    "--upload-file", "--json", "--form-string",
)  # fmt: skip
CURL_OPTIONS = (
    *CURL_TAKES, *BODY_OPTIONS, "-o", "--output", "-w", "--write-out", "--max-time", "--connect-timeout", "-x",
    "--proxy", "--url",
)  # fmt: skip
WGET_OPTIONS = (
    "-O", "-o", "-P", "--post-file", "--post-data", "--body-file", "--body-data", "--header", "--method", "-U",
)  # fmt: skip
SHOW_DATA = {
    "cat", "head", "tail", "base64", "xxd", "tar", "zip", "gzip", "env", "printenv", "git", "grep", "sed", "awk", "od",
    "jq", "find", "ls", "<", "mysqldump", "pg_dump",
}  # fmt: skip
RAW_SOCKET = r"/dev/(tcp|udp)/.*"


def _asks(words: Sequence[str], at: Ground) -> Iterator[str]:
    for word in words:
        rule = rule_against_fetching(word)
        if is_local(word):
            continue
        if made_by(word, SHOW_DATA):
            yield "data-in-query"
        elif rule == "file-address":
            path = re.sub(r"(?i)^file:/{1,3}", "/", word)
            yield from filter(None, [rule_against_reading(locate(path, at.cwd, at), path, at)])
        elif rule == "cloud-metadata" or (rule == "secret-in-address" and not word.startswith(UNKNOWN)):
            yield rule


def _curl(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], CURL_OPTIONS)
    yield from _asks(words, at)
    if words and all(map(is_local, words)):
        return
    for option in options:
        head, _, text = option.partition("=")
        if head in BODY_OPTIONS:
            form = head in ("-F", "--form") and ("@" in text or "<" in text)
            encoded = head == "--data-urlencode" and "@" in text[:40]
            if form or encoded or head in ("-T", "--upload-file") or text.startswith("@") or made_by(text, SHOW_DATA):
                yield "upload"
        elif re.match(r"-[a-zA-Z]*[dF]@|-T.", option):
            yield "upload"


def _wget(one: SimpleCommand, at: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], WGET_OPTIONS)
    yield from _asks(words, at)
    if has(options, "--post-file", "--body-file") and not all(map(is_local, words)):
        yield "upload"


def _httpie(one: SimpleCommand, at: Ground) -> Iterator[str]:
    words = one.operands()
    address = next((word for word in words if not word.isupper()), "")
    yield from _asks([address], at)
    if address and not is_local(address) and not address.startswith(":"):
        given = any(re.search(r"\w@|:=@|=@", word) for word in words[words.index(address) + 1 :])
        if given or one.sources or one.text is not None:
            yield "upload"


def _copies_away(one: SimpleCommand, _: Ground) -> Iterator[str]:
    words = one.operands("-e", "--rsh", "-i", "-P", "-p", "-o", "-F", "-l", "-c", "--exclude", "--include")
    away = bool(words) and re.match(r"[^/]+:|rsync://", words[-1]) is not None
    if (words and (one.text is None or "put" in one.text)) if one.name == "sftp" else away:
        yield "copy-away"


def _feeds_connection(one: SimpleCommand, _: Ground) -> Iterator[str]:
    words = one.operands("-p", "-w", "-i", "-l", "-o", "-F", "-L", "-R")
    if (
        words
        and not is_local(words[0])
        and not has(one.words[1:], "-z", "-l")
        and (one.sources or one.text is not None)
    ):
        yield "upload"


def _looks_up_name(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if any(made_by(word, SHOW_DATA) for word in one.words):
        yield "data-in-query"


def _raw_sockets(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if len(one.words) < 2 or not re.match(RAW_SOCKET, one.words[1]):
        return
    if any(source.name in SHELLS for source in one.sources):
        yield "reverse-shell"
    elif not one.sources or one.name == "<":
        yield "raw-connection"
    elif not any(source.name == "exec" for source in one.sources):
        yield "upload"


def _connected_shell(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if _is_connected(one):
        yield "reverse-shell"


def _netcat(one: SimpleCommand, _: Ground) -> Iterator[str]:
    options = one.options("-p", "-w", "-s", "-e", "-c", "--exec", "--sh-exec", "-i", "-q")
    runs = any(option.startswith(("-e", "-c", "--exec", "--sh-exec")) for option in options)
    if runs or any(source.name in SHELLS for source in one.sources):
        yield "reverse-shell"
    elif has(options, "-l", "--listen", takes="pwse"):
        yield "listener"


def _socat(one: SimpleCommand, _: Ground) -> Iterator[str]:
    text = " ".join(one.words[1:]).lower()
    if re.search(r"\b(exec|system|shell)\b", text):
        yield "reverse-shell"
    elif "listen" in text and "bind=127" not in text:
        yield "listener"


def _ssh_tunnel(one: SimpleCommand, _: Ground) -> Iterator[str]:
    options = one.options(*(f"-{letter}" for letter in "bcDEeFIiJLlMmOopQRSWw"))
    if any(re.match(r"-(?![oiFl])[a-zA-Z]*[RDLWw](=|$)", option) for option in options):
        yield "tunnel"


def _http_server(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if "http.server" in one.words:
        options = one.options("-b", "--bind", "-m", "-d")
        if value_of(options, "-b", "--bind") in ("0.0.0.0", "::"):  # noqa: S104 (what it looks for)
            yield "listener"


# Git, forges, checks that are gone round

WHOLE_TREE = (".", ":/", "*", "./", ":/*", "*.*")
VERIFYING = {"commit", "push", "merge", "am", "rebase", "cherry-pick", "revert", "pull"}
SETTINGS_GIT_EXECUTES = (
    r"(?i)core\.(hookspath|fsmonitor|sshcommand|editor|pager|askpass|alternaterefscommand|gitproxy)|alias\..*"
    r"|diff\.external|includeif\..*\.path|url\..*\.insteadof"
    r"|(credential|gpg|sequence|include|uploadpack|protocol)(\..*)?\.(helper|program|editor|path|packobjectshook|allow)"
    r"|(filter|diff|merge|difftool|mergetool)\..*\.(clean|smudge|process|textconv|command|driver|cmd|path)"
)
# Variables in front of git that keep hooks from running: their values, or None for any.
HOOKS_OFF = {
    "HUSKY": ("0",), "HUSKY_SKIP_HOOKS": ("1", "true"), "SKIP": None, "PRE_COMMIT_ALLOW_NO_CONFIG": ("1",),
    "LEFTHOOK": ("0", "false"),
}  # fmt: skip
VARIABLES_GIT_EXECUTES = {
    "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_CONFIG_PARAMETERS", "GIT_CONFIG_COUNT", "GIT_HOOKS_PATH",
    "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR",
}  # fmt: skip


def _git(one: SimpleCommand, at: Ground) -> Iterator[str]:
    words = git_words(one)
    command = words[0] if words else ""
    options, rest = split(words[1:], TAKES["git"].split())
    if not _is_in_temporary_repository(one, at):
        yield from _git_loses(command, options, rest, words)
    yield from _git_settings(one, command, options, rest)
    match command:
        case "rm" if has(options, "-r") and not has(options, "--cached", "-n", "--dry-run"):
            for path in rest:
                place = locate(path, one.cwd, at)
                if path == ":/" or (place.path == at.root and place.tail != "some"):
                    yield "git-rm-all"
        case "show" | "cat-file" | "log" | "archive":
            named = [word.rpartition(":")[2].rsplit("/", 1)[-1] for word in words[1:] if ":" in word]
            yield from ("secret-in-git" for name in named if is_secret_name(name))
        case "diff" if has(options, "--no-index"):
            yield from (rule for word in rest if (rule := rule_against_reading(locate(word, one.cwd, at), word, at)))
        case "push" if rest and (re.match(r"\w+://|[\w.-]+@[\w.-]+:", rest[0]) or one.fetched):
            yield "push-elsewhere"
        case "add" if has(options, "-f", "--force"):
            yield from ("commit-secret" for word in rest if is_secret_name(word.rsplit("/", 1)[-1]))


def _git_loses(command: str, options: list[str], rest: list[str], words: list[str]) -> Iterator[str]:
    if command == "push":
        if any(word.startswith("+") for word in rest[1:]):
            yield "git-push-force"
        elif any(word.startswith(":") and len(word) > 1 for word in rest[1:]):
            yield "git-push-delete"
    staged_only = has(options, "--staged", "-S") and not has(options, "--worktree", "-W")
    if command == "checkout" or (command == "restore" and not staged_only):
        paths = words[words.index("--") + 1 :] if "--" in words else rest
        forced = command == "checkout" and has(options, "-f", "--force", takes="bB")
        if forced or any(path in WHOLE_TREE for path in paths):
            yield "git-discard"


def _git_settings(one: SimpleCommand, command: str, options: list[str], rest: list[str]) -> Iterator[str]:
    for before, word in zip(one.words, one.words[1:], strict=False):
        name = word.partition("=")[0]
        if before in ("-c", "--config-env") and re.fullmatch(SETTINGS_GIT_EXECUTES, name) and word != "core.pager=cat":
            yield "git-setting-runs"
    for name, text in one.given:
        wanted = HOOKS_OFF.get(name, ())
        if wanted is None or text in wanted:
            yield "no-verify"
        elif name in VARIABLES_GIT_EXECUTES:
            yield "git-setting-runs"
    if command in VERIFYING:
        short = command == "commit" and has(options, "-n", takes="mFCct")
        if short or any(len(option) > 6 and "--no-verify".startswith(option) for option in options):
            yield "no-verify"
    elif command == "config":
        if rest[:1] and rest[0] in ("set", "unset", "get", "list"):
            options, rest = [*options, f"--{rest[0]}"], rest[1:]
        reads = has(options, "--get", "--list", "-l", "--get-all", "--get-regexp", "--show-origin")
        changes = len(rest) > 1 or (rest and has(options, "--unset", "--unset-all"))
        runs = rest and (re.fullmatch(SETTINGS_GIT_EXECUTES, rest[0]) or rest[0].lower() in GIT_SETTINGS_THAT_RUN)
        if changes and runs and not reads:
            yield "git-setting-runs"


def _forge_api(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if one.words[1:2] == ("api",):
        options = one.options("-X", "--method", "-f", "-F", "-H")
        if (value_of(options, "-X", "--method") or "").upper() in ("DELETE", "PATCH", "PUT"):
            yield "forge-api"


def _search_path(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if one.words[1:2] == ("PATH",) and {"", "."} & set(re.sub("(?<=.):$", "", one.words[2]).split(":")):
        yield "search-path"


# The machine, databases, containers, packages

FIND_PROCESSES = {"pgrep", "pidof", "ps", "lsof", "fuser"}
SPEAK_SQL = (
    "psql mysql mariadb sqlite3 sqlcmd clickhouse-client clickhouse cqlsh duckdb sqlplus usql pgcli mycli bq snowsql"
    " cockroach"
)
SQL_DROPS = (
    r"(?i)\b(drop\s+(database|schema|table|keyspace|view|materialized|role|user|owned|collection|index\s+concurrently)"
    r"|truncate\s+(table\s+)?\w|alter\s+table\s+\S+\s+drop)\b|\btruncate\b\s+\w"
)
SQL_ROWS, SQL_WHERE = r"(?i)\b(delete\s+from|update\s+\S+\s+set)\b", r"(?i)\b(where|limit)\b"
MONGO_DROPS = r"dropDatabase|\.drop\s*\(|deleteMany\s*\(\s*\{\s*\}|remove\s*\(\s*\{\s*\}"
DESTRUCTIVE_NAME = r"(?i)(^|[/_-])(drop|truncate|wipe|nuke|destroy|purge)"
CONTAINER_TAKES = (
    "-v", "--volume", "--mount", "-e", "--env", "-w", "--workdir", "-p", "--publish", "--name", "-u", "--user",
    "--network", "--net", "--pid", "--ipc", "--cap-add", "--device", "--entrypoint", "--env-file", "--security-opt",
    "--userns", "--uts", "-l", "--label", "-m", "--memory", "--cpus", "--platform", "--add-host", "-h", "--hostname",
)  # fmt: skip
RIGHTS_OF_THE_MACHINE = (
    r"--privileged(=true)?|--(pid|ipc|uts|userns)=host|--cap-add=(ALL|SYS_\w+|all)|--security-opt=\w+[=:]unconfined"
    r"|--device=/dev/(sd|nvme|mem|kmsg).*"
)
ENGINE_SOCKETS = r".*/(docker|podman|containerd|crio)\.sock"
SYSTEM_FOLDERS = ("/etc", "/proc", "/sys", "/dev", "/boot", "/root", "/var/lib", "/var/run", "/run", "/usr")
INDEX_OPTIONS = (
    "-i", *(f"--{kind}-url" for kind in ("index", "extra-index")), "--trusted-host", "-f", "--find-links", "--index",
    "--default-index",
)  # fmt: skip
INSTALL = {"install", "i", "add", "ci", "download", "wheel", "sync"}


def _kill(one: SimpleCommand, _: Ground) -> Iterator[str]:
    words = [word for word in one.words[1:] if word != "--"]
    if words[:1] and words[0] in ("-l", "-L", "--list", "-0"):
        return
    if words[:1] and words[0] in ("-s", "--signal", "-n"):
        words = words[2:]
    elif len(words) > 1 and words[0].startswith("-"):
        words = words[1:]
    if any(word in ("-1", "1", "0") or "PPID" in variables(word) for word in words):
        yield "kill-everything"
    elif any(made_by(word, FIND_PROCESSES) for word in words) or FIND_PROCESSES & {one.name for one in one.sources}:
        yield "kill-by-name"


def _sql(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if ":memory:" in one.words:
        return
    options = one.options("-f", "--file")
    if re.search(DESTRUCTIVE_NAME, value_of(options, "-f", "--file") or ""):
        yield "sql-file-drop"
    for text in (*one.words[1:], one.text or ""):
        first, *rest = text.replace('"', " ").split("/*")
        plain = re.sub(r"'[^']*'", " '' ", first + " ".join(part.partition("*/")[2] for part in rest))
        for statement in re.sub(r"--[^\n]*", " ", plain).split(";"):
            if re.search(SQL_DROPS, statement):
                yield "sql-drop"
            elif re.search(SQL_ROWS, statement) and not re.search(SQL_WHERE, statement):
                yield "sql-all-rows"


def _mongo(one: SimpleCommand, _: Ground) -> Iterator[str]:
    if any(re.search(MONGO_DROPS, text) for text in (*one.words[1:], one.text or "")):
        yield "store-flush"


def _containers(one: SimpleCommand, at: Ground) -> Iterator[str]:
    if one.words[1:2] in (("rm",), ("kill",), ("stop",), ("rmi",)) and any(UNKNOWN in word for word in one.words):
        yield "container-data"
    if one.words[1:2] not in (("run",), ("create",)) and one.words[1:3] not in (
        ("container", "run"),
        ("compose", "run"),
    ):
        return
    for option in one.options(*CONTAINER_TAKES):
        head, text = option.partition("=")[::2]
        mounted = re.search(r"(?:^|,)(?:source|src)=([^,]*)", text) if head == "--mount" else None
        source = mounted[1] if mounted else text.partition(":")[0] if head in ("-v", "--volume") else ""
        if re.fullmatch(RIGHTS_OF_THE_MACHINE, option) or re.fullmatch(ENGINE_SOCKETS, source):
            yield "container-breakout"
        elif source.startswith(("/", "~", "..")):
            place = locate(source, one.cwd, at)
            own = is_below(at.home, place.path) or any(is_below(place.path, folder) for folder in SYSTEM_FOLDERS)
            if (own or rule_against_reading(place, source, at)) and not is_below(place.path, at.root):
                yield "container-mount"


def _package_source(one: SimpleCommand, _: Ground) -> Iterator[str]:
    options, words = split(one.words[1:], (*INDEX_OPTIONS, "-r", "-c", "--registry"))
    if not set(words[:2]) & INSTALL:
        return
    if one.name == "pip":
        indexes = [option for option in options if has([option], *INDEX_OPTIONS) and not option.startswith("-f=")]
        elsewhere = any(not is_local(value_of([option], *INDEX_OPTIONS) or "x") for option in indexes)
        from_url = any(re.match(r"https?://", word) for word in words)
    else:
        registry = value_of(options, "--registry")
        elsewhere = bool(registry) and not is_local(registry or "")
        from_url = any(word.startswith("http://") for word in words)
    if elsewhere or from_url:
        yield "package-source"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("del del-cli mv rimraf rip rm rmdir rsync shred srm trash trash-put truncate unlink", _deletes),
    ("> aria2c bsdtar cp curl dd gsed install ln mv patch perl rsync ruby sed sort sponge tar tee", _writes),
    ("touch truncate unzip wget", _writes),
    ("ln", _links),
    ("sed gsed", _sed_execute),
    ("chmod", _chmod),
    ("chown chgrp", _chown),
    ("sudo", _sudo),
    (f"{SHOW_FILES} {FILTER_FILES}", _reads),
    ("env printenv set export", _environment),
    ("echo printf", _prints),
    (" ".join(SHELLS), _connected_shell),
    ("nc ncat netcat", _netcat),
    ("socat", _socat),
    ("ssh autossh", _ssh_tunnel),
    ("> <", _raw_sockets),
    ("python", _http_server),
    ("curl", _curl),
    ("wget", _wget),
    ("http https xh", _httpie),
    ("scp rsync sftp", _copies_away),
    ("nc ncat netcat telnet socat ssh", _feeds_connection),
    ("dig nslookup host ping", _looks_up_name),
    ("git", _git),
    ("gh glab hub tea", _forge_api),
    ("=", _search_path),
    ("kill", _kill),
    (f"{SPEAK_SQL} {SQL}", _sql),
    ("mongosh mongo", _mongo),
    ("docker podman nerdctl", _containers),
    ("pip npm pnpm yarn bun", _package_source),
)
