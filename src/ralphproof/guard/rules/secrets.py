"""Rules on reading secrets: files, environment, secret stores."""

from __future__ import annotations

import re

from ralphproof.base.secret_references import is_secret_name
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.files import to_read
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nest import git_words
from ralphproof.guard.place import spot
from ralphproof.guard.secret_paths import holds_secrets
from ralphproof.guard.simple import SOME, Simple, has, operands, split, variables
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

ENVIRONMENT = Rule(
    "print-environment", "secrets", "prints the environment, in which secrets stand",
    "ask for one variable that is no secret",
)  # fmt: skip
VARIABLE = Rule(
    "print-secret", "secrets", "prints a variable that holds a secret",
    "test whether it is set: [ -n \"$NAME\" ]",
)  # fmt: skip
KEEPER = Rule(
    "secret-store", "secrets", "asks a store of secrets for one",
    "name the setting that is needed in your answer",
)  # fmt: skip
WHOLE_HOME = Rule(
    "read-home", "secrets", "reads a whole folder in which the user's secrets lie", "read the file that is needed",
)  # fmt: skip
IN_GIT = Rule("secret-in-git", "secrets", "shows a file of secrets out of git", "read an example file instead")
RULES = (ENVIRONMENT, VARIABLE, KEEPER, WHOLE_HOME, IN_GIT)

# Programs that show or copy what is in files: how many of their first operands are no file.
SHOWS = (
    "cat", "head", "tail", "less", "more", "bat", "batcat", "most", "nl", "tac", "rev", "strings", "xxd", "od",
    "hexdump", "hd", "base64", "base32", "cut", "sort", "uniq", "diff", "cmp", "comm", "paste", "cp", "mv", "scp",
    "rsync", "tar", "zip", "7z", "gzip", "dd", "vim", "vi", "nvim", "nano", "emacs", "view", "code", "column", "fold",
    "fmt", "pr", "iconv", "uuencode", "gpg", "age", "install", "ln", "<", "tee", "look", "split", "csplit", "expand",
    "pandoc", "glow", "open", "xdg-open",
)  # fmt: skip
FILTERS = (
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "zgrep", "sed", "gsed", "awk", "gawk", "mawk", "jq", "yq",
)  # fmt: skip
READERS = dict.fromkeys(SHOWS, 0) | dict.fromkeys(FILTERS, 1)
TAKES = {
    "grep": "-A -B -C -m -e -f --include --exclude --exclude-dir", "head": "-n -c", "tail": "-n -c",
    "cut": "-d -f -c -b",
    "sort": "-k -t -o", "awk": "-F -v -f", "sed": "-e -f", "jq": "--arg --argjson", "xxd": "-l -s -c",
    "od": "-A -t -N -j",
    "rg": "-g -t -e -A -B -C -m --glob --type", "tar": "-C --exclude", "cp": "-t", "rsync": "-e --exclude --include",
}  # fmt: skip
QUIET = (
    "-q",
    "-c",
    "-l",
    "-L",
    "--quiet",
    "--silent",
    "--count",
    "--files-with-matches",
    "--files",
    "--files-without-match",
)
SEARCHES = {"grep", "egrep", "fgrep", "rg", "ag", "ack"}
COPIES = {"cp", "tar", "zip", "rsync", "scp", "7z"}
SECRET_WORDS = re.compile(
    r"(^|_)(KEY|APIKEY|TOKEN|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?|BEARER|JWT)(_|$)"
    r"|(TOKEN|SECRET|PASSWORD)$",
    re.IGNORECASE,
)
TABLE: Table = {
    "gpg": (("+--export-secret-keys|--export-secret-subkeys", KEEPER),), "gpg2": (("+--export-secret-keys", KEEPER),),
    "gh": (("auth token", KEEPER), ("auth status +-t|--show-token", KEEPER)),
    "glab": (("auth status +-t|--show-token", KEEPER),),
    "aws": (
        ("secretsmanager get-secret-value|batch-get-secret-value", KEEPER),
        ("ssm get-parameter* +--with-decryption", KEEPER),
        ("sts get-session-token|assume-role", KEEPER), ("configure get|export-credentials", KEEPER),
        ("ecr get-login-password", KEEPER),
    ),
    "gcloud": (("secrets versions access", KEEPER), ("auth print-access-token|print-identity-token", KEEPER)),
    "az": (("keyvault secret show|download", KEEPER), ("account get-access-token", KEEPER)),
    "kubectl": (("get|describe secret|secrets|secret/*", KEEPER), ("config view +--raw", KEEPER)),
    "vault": (("kv get", KEEPER), ("read", KEEPER), ("print token", KEEPER)), "op": (("read|item|document", KEEPER),),
    "pass": (("show", KEEPER),), "bw": (("get", KEEPER),), "lpass": (("show", KEEPER),),
    "doppler": (("secrets", KEEPER),),
    "security": (("find-*|dump-keychain|export", KEEPER),), "secret-tool": (("lookup|search", KEEPER),),
    "heroku": (("config*", KEEPER),), "fly": (("secrets", KEEPER),), "vercel": (("env pull", KEEPER),),
    "docker": (("compose config !-q|--quiet|--services|--env-file", KEEPER),), "sops": (("+-d|--decrypt", KEEPER),),
    "docker-compose": (("config !-q|--quiet|--services", KEEPER),), "ansible-vault": (("view|decrypt", KEEPER),),
    "export": (("+-p", ENVIRONMENT),), "declare": (("+-p !-f", ENVIRONMENT), ("+-x", ENVIRONMENT)),
    "npm": (("token list", KEEPER),),
    "terraform": (("output +-json|-raw", KEEPER), ("state show|pull", KEEPER)), "chezmoi": (("secret", KEEPER),),
}  # fmt: skip
TABLE_TAKES = {
    "kubectl": "-n --namespace --context -o --output", "aws": "--profile --region --output", "docker": "-f --context",
    "gcloud": "--project", "gh": "-h --hostname", "docker-compose": "-f",
}  # fmt: skip


def found(one: Simple, at: Ground) -> Iterator[Objection]:
    """Which secrets a command would show."""
    yield from told(one, TABLE, TABLE_TAKES)
    if one.name in ("env", "printenv", "set", "export"):
        yield from _environment(one)
    elif one.name in ("echo", "printf"):
        names = [name for word in one.words[1:] for name in variables(word)]
        if any(SECRET_WORDS.search(name) for name in names):
            yield VARIABLE.about(shown(one))
    elif one.name == "git":
        yield from _git(one)
    if one.name in READERS and not is_contained(one):
        yield from _files(one, at)


def _environment(one: Simple) -> Iterator[Objection]:
    words = operands(one, ("-u", "-C", "-o"))
    if one.name == "printenv" and words:
        if any(SECRET_WORDS.search(name) for name in words):
            yield VARIABLE.about(shown(one))
    elif len(one.words) == 1 or (
        one.name == "env" and len(one.words) == 1 + len(words) and all("=" in word for word in words)
    ):
        yield ENVIRONMENT.about(shown(one))


def only_searched(one: Simple, line: Sequence[Simple]) -> bool:
    """Whether what a command prints is searched for something that is no secret, as in `env | grep NODE`."""
    readers = [other for other in line if one in other.sources and other.name in SEARCHES]
    return any(operands(other) and not SECRET_WORDS.search(operands(other)[0]) for other in readers)


def _git(one: Simple) -> Iterator[Objection]:
    words = git_words(one)
    if words[:2] in (["credential", "fill"], ["credential-store", "get"], ["credential-cache", "get"]):
        yield KEEPER.about(shown(one))
    if words[:1] in (["show"], ["cat-file"], ["log"], ["archive"]):
        for word in words[1:]:
            if ":" in word and is_secret_name(word.rpartition(":")[2].rsplit("/", 1)[-1]):
                yield IN_GIT.about(shown(one))


def _files(one: Simple, at: Ground) -> Iterator[Objection]:
    options, words = split(one.words[1:], TAKES.get(one.name, "").split())
    if one.name in SEARCHES and has(options, *QUIET, takes="ABCmefgt"):
        return
    given = any(option.startswith(("-e", "-f", "--regexp", "--file", "--expression")) for option in options)
    skipped = 0 if given else READERS[one.name]
    words = [word.partition("=")[2] if one.name == "dd" else word for word in words[skipped:]]
    sources = words[:-1] if one.name in ("cp", "mv", "install", "ln", "scp", "rsync") and len(words) > 1 else words
    for word in sources:
        place = spot(word, one.cwd, at)
        rule = to_read(place, word, at) if one.name != "dd" or f"if={word}" in one.words else None
        whole = one.name in COPIES or (one.name in SEARCHES and has(options, "-r", "-R", "--recursive"))
        if rule is None and (whole or one.name in ("rg", "ag")) and place.tail != "some" and holds_secrets(place, at):
            rule = WHOLE_HOME
        if rule is not None and not word.startswith(SOME):
            yield rule.about(shown(one))
