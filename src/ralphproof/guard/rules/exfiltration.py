"""Rules on sending data away."""

from __future__ import annotations

import re

from ralphproof.base.secret_references import is_secret_name
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.effects import CURL_TAKES
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nest import git_words
from ralphproof.guard.simple import UNKNOWN, Simple, has, operands, split, substitutions
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.web import CARRIES, METADATA, is_local, to_fetch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

UPLOAD = Rule(
    "upload", "exfiltration", "sends files or their contents to another machine",
    "leave them here, and say what should be sent where",
)  # fmt: skip
QUERY = Rule("data-in-query", "exfiltration", "puts contents of files into an address that is asked", "leave them out")
COPY = Rule("copy-away", "exfiltration", "copies files to another machine or a store", "leave them here")
NEW_REMOTE = Rule(
    "push-elsewhere", "exfiltration", "pushes the project to a remote that it did not have",
    "push to the project's own remote",
)  # fmt: skip
ADD_SECRET = Rule("commit-secret", "exfiltration", "puts a file of secrets under version control", "leave it ignored")
MAIL = Rule("send-mail", "exfiltration", "sends a message away", "write it to a file of the project")
RULES = (UPLOAD, QUERY, COPY, NEW_REMOTE, ADD_SECRET, MAIL)
BODIES = (
    "-d", "--data", "--data-binary", "--data-raw", "--data-urlencode", "--data-ascii", "-F", "--form", "-T",
    "--upload-file", "--json", "--form-string",
)  # fmt: skip
CURL = (
    *CURL_TAKES,
    *BODIES,
    "-o",
    "--output",
    "-w",
    "--write-out",
    "--max-time",
    "--connect-timeout",
    "-x",
    "--proxy",
    "--url",
)
WGET = ("-O", "-o", "-P", "--post-file", "--post-data", "--body-file", "--body-data", "--header", "--method", "-U")
TABLE: Table = {
    "aws": (("s3 sync|mv", COPY), ("s3api put-object", COPY)), "gsutil": (("cp|rsync|mv", COPY),),
    "az": (("storage blob|file upload*", COPY),), "rclone": (("copy|sync|move|copyto|moveto|rcat", COPY),),
    "gh": (("gist create", UPLOAD),), "croc": (("send", COPY),), "wormhole": (("send|tx", COPY),),
    "mc": (("cp|mirror", COPY),),
    "s3cmd": (("put|sync", COPY),), "b2": (("upload*|sync", COPY),), "transfer": (("*", COPY),),
    "magic-wormhole": (("send", COPY),),
    **dict.fromkeys(("mail", "mailx", "sendmail", "mutt", "msmtp", "swaks", "ssmtp"), (("", MAIL),)),
    "lftp": (("", COPY),), "ftp": (("", COPY),), "tftp": (("", COPY),), "ncftpput": (("", COPY),),
    "glab": (("snippet create", UPLOAD),), "dropbox_uploader": (("upload", COPY),), "gdrive": (("upload|files", COPY),),
}  # fmt: skip
TAKES = {"aws": "--profile --region", "az": "-f -c -n --account-name", "gsutil": "-o -h"}
SHOWS = {
    "cat", "head", "tail", "base64", "xxd", "tar", "zip", "gzip", "env", "printenv", "git", "grep", "sed", "awk", "od",
    "jq", "find", "ls", "<", "mysqldump", "pg_dump",
}  # fmt: skip


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command sends away."""
    yield from told(one, TABLE, TAKES)
    match one.name:
        case "curl":
            yield from _curl(one)
        case "wget":
            yield from _wget(one)
        case "http" | "https" | "xh":
            yield from _httpie(one)
        case "scp" | "rsync" | "sftp":
            yield from _copied(one)
        case "aws" if one.words[1:3] == ("s3", "cp") and any(w.startswith("s3://") for w in operands(one)[3:]):
            yield COPY.about(shown(one))
        case "nc" | "ncat" | "netcat" | "telnet" | "socat" | "ssh":
            yield from _fed(one)
        case "dig" | "nslookup" | "host" | "ping":
            if any(SHOWS & set(names) for word in one.words for _, _, names in substitutions(word)):
                yield QUERY.about(shown(one))
        case "git":
            yield from _git(one)
        case ">" if re.match("/dev/(tcp|udp)/", one.words[1] if len(one.words) > 1 else "") and one.sources:
            if not any(source.name in ("bash", "sh", "zsh", "exec") for source in one.sources):
                yield UPLOAD.about(shown(one))


def _addresses(one: Simple, words: list[str]) -> Iterator[Objection]:
    for word in words:
        rule = to_fetch(word)
        if is_local(word):
            continue
        if any(SHOWS & set(names) for _, _, names in substitutions(word)):
            yield QUERY.about(shown(one))
        elif rule in (METADATA, CARRIES) and not (rule is CARRIES and word.startswith(UNKNOWN)):
            yield rule.about(shown(one))


def _curl(one: Simple) -> Iterator[Objection]:
    options, words = split(one.words[1:], CURL)
    yield from _addresses(one, words)
    if words and all(map(is_local, words)):
        return
    for option in options:
        head, _, text = option.partition("=")
        if head in BODIES:
            sends = head in ("-T", "--upload-file", "-F", "--form") and (
                head[-1] not in "Fm" or "@" in text or "<" in text
            )
            carries = any(SHOWS & set(names) for _, _, names in substitutions(text))
            if sends or text.startswith("@") or carries or ("@" in text[:40] and head == "--data-urlencode"):
                yield UPLOAD.about(shown(one))
        elif re.match(r"-[a-zA-Z]*[dF]@|-T.", option):
            yield UPLOAD.about(shown(one))


def _wget(one: Simple) -> Iterator[Objection]:
    options, words = split(one.words[1:], WGET)
    yield from _addresses(one, words)
    if any(option.startswith(("--post-file", "--body-file")) for option in options) and not all(map(is_local, words)):
        yield UPLOAD.about(shown(one))


def _httpie(one: Simple) -> Iterator[Objection]:
    words = operands(one)
    address = next((word for word in words if not word.isupper()), "")
    yield from _addresses(one, [address])
    if not is_local(address) and not address.startswith(":"):
        flows = one.sources or one.text is not None
        if flows or any(re.search(r"\w@|:=@|=@", word) for word in words[words.index(address) + 1 :] if address):
            yield UPLOAD.about(shown(one))


def _copied(one: Simple) -> Iterator[Objection]:
    _, words = split(one.words[1:], ("-e", "--rsh", "-i", "-P", "-p", "-o", "-F", "-l", "-c", "--exclude", "--include"))
    goal = words[-1] if words else ""
    away = re.match(r"[^/]+:|rsync://", goal) is not None
    if (one.name == "sftp" and words and (one.text is None or "put" in one.text)) or (one.name != "sftp" and away):
        yield COPY.about(shown(one))


def _fed(one: Simple) -> Iterator[Objection]:
    """Something flows into a connection."""
    _, words = split(one.words[1:], ("-p", "-w", "-i", "-l", "-o", "-F", "-L", "-R"))
    if not words or all(map(is_local, words[:1])) or has(one.words[1:], "-z", "-l"):
        return
    if one.sources or one.text is not None:
        yield UPLOAD.about(shown(one))


def _git(one: Simple) -> Iterator[Objection]:
    words = git_words(one)
    options, rest = split(words[1:], ("-o", "--push-option", "--repo"))
    if words[:1] == ["push"]:
        elsewhere = rest[:1] and (re.match(r"\w+://|[\w.-]+@[\w.-]+:", rest[0]) or one.fetched)
        if elsewhere:
            yield NEW_REMOTE.about(shown(one))
    if (
        words[:1] == ["add"]
        and has(options, "-f", "--force")
        and any(is_secret_name(word.rsplit("/", 1)[-1]) for word in rest)
    ):
        yield ADD_SECRET.about(shown(one))
