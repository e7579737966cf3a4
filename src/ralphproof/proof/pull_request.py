"""Pull requests: the branch and its target, title and body from the proof, and gh or glab that create them."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import MarkdownMarkup, to_single_line
from ralphproof.base.programs import ProgramResult, find_program, run_in_terminal
from ralphproof.base.value import value
from ralphproof.display.phrases import format_count, format_duration
from ralphproof.engine.limits import format_usd
from ralphproof.engine.records import Record, RunBegan, ScmEnded
from ralphproof.engine.workspace import Snapshot
from ralphproof.proof.builder import redact_held_out
from ralphproof.proof.page import check_details, checks_table, integrity_lines, review_lines, verdict_sentence
from ralphproof.proof.schema import Proof
from ralphproof.workspace.commits import CommitBuilder, CommitPlan, create_branch
from ralphproof.workspace.git_command import UserGit

# Forges, by their programs gh and glab.


TIMEOUT_S = 600.0
MAX_OUTPUT_CHARS = 500
GITHUB, GITLAB = "GitHub", "GitLab"
PROGRAMS = {GITHUB: "gh", GITLAB: "glab"}
BRANCH_ARGUMENT, OPEN_STATES = "BRANCH", ("open", "opened")
# How each is asked for the request of a branch, and the field with its address.
VIEW_COMMANDS = {
    GITHUB: (("pr", "view", BRANCH_ARGUMENT, "--json", "url,state"), "url"),
    GITLAB: (("mr", "view", BRANCH_ARGUMENT, "--output", "json"), "web_url"),
}
# Variables that point git at a repository; a hook that starts us has them set for another one.
GIT_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
)
URL = re.compile(r"https?://[^\s\"'<>]+")


@value
class Forge:
    """A forge, and the program that creates pull requests there."""

    kind: str
    program: str


def find_forge(git: UserGit, remote: str, environ: Mapping[str, str]) -> Forge | None:
    """The forge of a remote; None where its host is unknown, or the program is missing."""
    written = [git.run_line("config", f"remote.{remote}.{key}") for key in ("pushurl", "url")]
    hosts = {host_of_url(url) for url in (*written, git.run_line("remote", "get-url", "--push", remote))} - {""}
    kind = next((kind for host in sorted(hosts) if (kind := forge_kind(host, environ))), "")
    program = find_program(PROGRAMS[kind], environ.get("PATH", os.defpath), outside=git.root) if kind else None
    return Forge(kind, program) if program else None


def host_of_url(url: str) -> str:
    """The host in the address of a remote; empty for a path."""
    found = re.match(r"[a-z][a-z0-9+.-]*://(?:[^/@]*@)?(\[[^]]*\]|[^/:]+)|(?:[^/@:]+@)?([^/:@\\]+):(?!//)", url, re.I)
    return (found[1] or found[2]).lower() if found else ""


def forge_kind(host: str, environ: Mapping[str, str]) -> str:
    """The kind of forge of a host, by its name or the user's variables; empty where it is unknown."""
    named = {environ.get("GH_HOST", "").lower(): GITHUB, host_of_variable(environ.get("GITLAB_HOST", "")): GITLAB}
    if host and host in named:
        return named[host]
    if host in ("github.com", "ssh.github.com") or host.endswith((".github.com", ".ghe.com")):
        return GITHUB
    return GITLAB if host == "gitlab.com" or host.split(".")[0] == "gitlab" else ""


def host_of_variable(text: str) -> str:
    """GITLAB_HOST may hold a host, or an address."""
    return host_of_url(text) or text.lower()


def push_branch(git: UserGit, remote: str, branch: str, commit: str, environ: Mapping[str, str]) -> tuple[bool, str]:
    """Push exactly this branch, with the user's hooks and credentials and without force, unless the remote has it.

    Returns whether anything was pushed, and the error.
    """
    ref = f"refs/heads/{branch}"
    listed = run_forge_program((git.git, "ls-remote", remote, ref), git.root, environ)
    if listed.code == 0 and listed.text.split("\t")[0] == commit:
        return False, ""
    done = run_forge_program((git.git, "push", remote, f"{ref}:{ref}"), git.root, environ)
    return done.code == 0, "" if done.code == 0 else done.said or f"git push ended with {done.code}"


def find_open_pull_request(desk: Forge, branch: str, root: str, environ: Mapping[str, str]) -> str:
    """The address of a pull request of this branch that is open already; empty where none is known."""
    asked, key = VIEW_COMMANDS[desk.kind]
    answer = run_forge_program(
        (desk.program, *(branch if word == BRANCH_ARGUMENT else word for word in asked)), root, environ
    )
    try:
        found = json.loads(answer.out) if answer.code == 0 else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict) or str(found.get("state")).lower() not in OPEN_STATES:
        return ""
    return str(found.get(key) or "")


def create_command(desk: Forge, texts: tuple[str, str, str], branch: str, base: str, draft: bool) -> tuple[str, ...]:
    """The command that hands it in. `texts` are the title, the body, and the file that has the body."""
    title, body, file = texts
    more = ("--draft",) if draft else ()
    if desk.kind == GITHUB:
        aim = ("--head", branch, "--base", base)
        return (desk.program, "pr", "create", "--title", title, "--body-file", file, *aim, *more)
    aim = ("--source-branch", branch, "--target-branch", base)
    return (desk.program, "mr", "create", "--title", title, "--description", body, *aim, "--yes", *more)


def url_in_output(answer: ProgramResult) -> str:
    """The address that a program printed last."""
    found = URL.findall(answer.text) or URL.findall(answer.err.decode("utf-8", "replace"))
    return found[-1] if found else ""


def run_forge_program(argv: Sequence[str], root: str, environ: Mapping[str, str]) -> ProgramResult:
    """Run a program in the project. It may ask at the terminal, never on standard input."""
    env = {name: text for name, text in environ.items() if name not in GIT_VARIABLES}
    env |= {"NO_COLOR": "1", "GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1"}
    return run_in_terminal(argv, env, root, capture=True, timeout_s=TIMEOUT_S)


# Branch and target.


DEFAULT_BASES = ("main", "master")
MAX_NAMED = 5


@value
class PullRequestTarget:
    """The target of a pull request: a remote (empty where there is none), the base branch, and its commit here."""

    remote: str
    base: str
    tip: str


@value
class PullRequestBranch:
    """The branch of a pull request. `commit` is empty where it must be created from `landing`.

    `there` says that the branch exists with this commit. `theirs` are paths that the user had not committed when the
    run began, and that are part of it.
    """

    branch: str
    commit: str
    tree: str
    changes: tuple[tuple[str, str], ...]
    there: bool = False
    landing: CommitPlan | None = None
    theirs: tuple[str, ...] = ()


def find_target(git: UserGit, wanted: str) -> PullRequestTarget:
    """The remote of the current branch, and the wanted base, else the remote's default branch."""
    here = git.run_line("symbolic-ref", "-q", "--short", "HEAD")
    remotes = git.run_line("remote").splitlines()
    chosen = (git.run_line("config", f"branch.{here}.remote") if here else "", "origin", *remotes[: len(remotes) == 1])
    remote = next((one for one in chosen if one in remotes), "")
    base = wanted or _default_base(git, remote, here)
    tip = git.resolve_commit(f"refs/remotes/{remote}/{base}") if remote else ""
    tip = tip or git.branch_commit(base)
    if not tip:
        raise Refused(f"there is no branch {base!r} here to be the base; say another one with --base")
    return PullRequestTarget(remote, base, tip)


def _default_base(git: UserGit, remote: str, here: str) -> str:
    head = git.run_line("symbolic-ref", "-q", f"refs/remotes/{remote}/HEAD") if remote else ""
    if head:
        return head.removeprefix(f"refs/remotes/{remote}/")
    known = (name for name in DEFAULT_BASES if remote and git.resolve_commit(f"refs/remotes/{remote}/{name}"))
    found = next(known, "") or next((name for name in DEFAULT_BASES if git.branch_commit(name)), "") or here
    if not found:
        raise Refused("no branch could be found that this is for; say it with --base")
    return found


def find_pull_request_branch(
    landable: CommitBuilder, run: str, snapshot: Snapshot, records: Sequence[Record], way: PullRequestTarget
) -> PullRequestBranch:
    """The branch for this work; raises Refused where nothing is to be pulled, or commits hold secrets."""
    commits = [one.committed.commit for one in records if isinstance(one, ScmEnded) and one.committed.commit]
    commit = landable.user_git.resolve_commit(commits[-1]) if commits else ""
    landing = None if commit else landable.plan(snapshot)
    if landing is not None and landing.empty:
        commit = landing.parent or ""
    found = (
        _branch_of_commit(landable, commit, run, way) if commit else _branch_of_landing(landable, landing, run, records)
    )
    _refuse_secrets(landable, commit or (landing.parent if landing else None) or "", records, way)
    return found


def _branch_of_commit(landable: CommitBuilder, commit: str, run: str, way: PullRequestTarget) -> PullRequestBranch:
    git = landable.user_git
    if git.run("merge-base", "--is-ancestor", commit, way.tip, good=(0, 1)).code == 0:
        raise Refused(f"{way.base} has the work of run {run} already, so there is nothing to pull")
    tree = landable.commits.header(commit, b"tree ")[0]
    changes = landable.changed_paths(git.run_line("merge-base", commit, way.tip) or None, commit)
    name = _branch_at(git, commit, way.base)
    own = f"ralph/{run}"
    if not name and (other := git.branch_commit(own)) not in ("", commit):
        raise Refused(f"branch {own} has other work ({other[:12]}); rename or remove it: git branch -m {own} NAME")
    return PullRequestBranch(name or own, commit, tree, changes, there=bool(name))


def _branch_at(git: UserGit, commit: str, base: str) -> str:
    """A branch at this commit, the checked-out one first; never the base."""
    here = git.run_line("symbolic-ref", "-q", "--short", "HEAD")
    asked = ("for-each-ref", "--format=%(refname:lstrip=2)", f"--points-at={commit}", "refs/heads")
    names = [name for name in git.run_line(*asked).splitlines() if name != base]
    return here if here in names else next(iter(names), "")


def _branch_of_landing(
    landable: CommitBuilder, landing: CommitPlan | None, run: str, records: Sequence[Record]
) -> PullRequestBranch:
    assert landing is not None
    name, git = f"ralph/{run}", landable.user_git
    there = git.branch_commit(name)
    if there:
        parents, trees = (landable.commits.header(there, field) for field in (b"parent ", b"tree "))
        if trees != [landing.tree] or parents != [one for one in (landing.parent,) if one]:
            raise Refused(
                f"branch {name} has other work ({there[:12]}); rename or remove it: git branch -m {name} NAME"
            )
    began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
    before = landable.plan(began).changes if began and began.tree else ()
    changed = {path for _, path in landing.changes}
    theirs = tuple(path for _, path in before if path in changed)
    return PullRequestBranch(name, there, landing.tree, landing.changes, bool(there), landing, theirs)


def _refuse_secrets(landable: CommitBuilder, tip: str, records: Sequence[Record], way: PullRequestTarget) -> None:
    """Refuse to push existing commits with a secret, even if a later commit removes it."""
    if not tip:
        return
    began = next((one.snapshot.head for one in records if isinstance(one, RunBegan)), None)
    asked = ("for-each-ref", "--format=%(objectname)", f"refs/remotes/{way.remote}/")
    known = {*landable.user_git.run_line(*asked).split(), way.tip, *([began] if began else [])}
    if found := landable.excluded_in_commits(tip, sorted(known)):
        named = ", ".join(f"{one.path} ({one.reason})" for one in found[:MAX_NAMED])
        raise Refused(f"nothing is pushed, because commits hold what looks secret: {named}; take it out of them first")


def create_pull_request_branch(git: UserGit, offer: PullRequestBranch, message: str) -> str:
    """Create commit and branch where they are missing; the commit."""
    if offer.there:
        return offer.commit
    if offer.commit:
        if git.branch_commit(offer.branch) != offer.commit:
            git.set_branch(offer.branch, offer.commit, force=False)
        return offer.commit
    assert offer.landing is not None
    return create_branch(git, offer.landing, message, offer.branch, force=False)


# Title and body. Nothing in them that an agent wrote has an effect on the forge.


TITLE_CHARS = 72
MAX_BODY_CHARS = 60_000  # GitHub takes 65,536
MAX_SPAN_CHARS, MAX_LINES, MAX_FILES = 300, 40, 60
PLAIN_TEXT = re.compile(r"[\w ,;()'\"-]*[.]?")  # no sign by which a forge links, closes, mentions or obeys anything
ISSUE_NUMBER = re.compile(r"\w-\d")  # such words name something too, on most forges
CHANGE_WORDS = {"A": "new", "M": "changed", "D": "removed"}


class ForgeMarkdown:
    """Markdown for a page where `@name`, `fixes #1` or `/close` have effects: all but plain words are code."""

    def __init__(self) -> None:
        self._markdown = MarkdownMarkup()

    def text(self, words: str) -> str:
        line = to_single_line(words)
        if PLAIN_TEXT.fullmatch(line) and not ISSUE_NUMBER.search(line):
            return self._markdown.text(_clipped(line))
        return self.code(line)

    def code(self, words: str) -> str:
        """Clipped before it becomes a span: cutting a span open would expose its content."""
        return self._markdown.code(_clipped(to_single_line(words)))

    def strong(self, words: str) -> str:
        return self._markdown.strong(words)


def _clipped(line: str) -> str:
    return line if len(line) <= MAX_SPAN_CHARS else f"{line[: MAX_SPAN_CHARS - 1]}…"


@value
class PullRequestFacts:
    """The content of a pull request: the commit (empty where it is not created yet), and its tree.

    `tree` may differ from the checked one, in files that were `left_out` or are stored differently than on disk.
    `changes` are letters and paths. `differs` names the paths that differ, without our own; None where they are
    unknown.
    """

    branch: str
    base: str
    commit: str
    tree: str
    changes: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...] = ()
    differs: tuple[str, ...] | None = None


def pull_request_title(proof: Proof, title: str) -> str:
    """The given title, else the task's; one line."""
    line = to_single_line(title) or to_single_line(str(proof["title"])) or f"Work of run {proof['run']}"
    return line if len(line) <= TITLE_CHARS else f"{line[: TITLE_CHARS - 1].rstrip()}…"


def pull_request_body(proof: Proof, pulled: PullRequestFacts) -> str:
    """The body, without the content of held-out checks. Sections that do not fit are replaced by a note."""
    markup, body = ForgeMarkdown(), ""
    # The digest stays that of the whole proof: this is the one that its author exports.
    open_part: Proof = {**redact_held_out(proof), "digest": proof["digest"]}
    for heading, lines in _sections(open_part, pulled, markup):
        section = "\n".join((f"## {heading}", "", *lines)) + "\n\n"
        if len(body) + len(section) > MAX_BODY_CHARS:
            section = f"## {heading}\n\nToo long for this page; the proof has it.\n\n"
        body += section
    return body.rstrip("\n") + "\n"


def _sections(proof: Proof, pulled: PullRequestFacts, markup: ForgeMarkdown) -> Iterator[tuple[str, list[str]]]:
    checks = proof["checks"][:MAX_LINES]
    outcome = proof["outcome"]
    yield "What was wanted", [markup.text(str(proof["title"])) or "The task has no title."]
    yield "What changed", [*_changes(pulled, markup)]
    table = [*checks_table(checks, markup), ""] if checks else ["No check was asked.", ""]
    yield "Evidence", [verdict_sentence(proof, markup), "", *table, *_list([*check_details(checks, markup)])]
    yield "Concerns", _list([*map(markup.text, outcome["concerns"])]) or ["None."]
    if reviews := [*review_lines(proof["reviews"][:MAX_LINES], markup)]:
        yield "Reviews", _list(reviews)
    yield "Integrity of the checks", _list([*integrity_lines(proof, markup)])
    yield "Who could have tampered", _list([*map(markup.text, proof["caveats"])])
    yield "What it took", _list([*_price(proof, outcome, markup)])
    yield "Check it again", [*_how_to_verify(proof, pulled, markup)]


def _list(lines: Sequence[str]) -> list[str]:
    more = [f"- … and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else []
    return [*(f"- {line}" for line in lines[:MAX_LINES]), *more]


def _changes(pulled: PullRequestFacts, markup: ForgeMarkdown) -> Iterator[str]:
    yield f"{format_count(len(pulled.changes), 'file')}:"
    yield ""
    yield from (f"- {CHANGE_WORDS[letter]} {markup.code(path)}" for letter, path in pulled.changes[:MAX_FILES])
    if len(pulled.changes) > MAX_FILES:
        yield f"- … and {len(pulled.changes) - MAX_FILES} more"
    if pulled.left_out:
        yield ""
        yield "Not in this branch, although the run left it in its files:"
        yield ""
        yield from _list([f"{markup.code(path)}: {why}" for path, why in pulled.left_out])


def _price(proof: Proof, outcome: Proof, markup: ForgeMarkdown) -> Iterator[str]:
    cost, took = outcome["costUSD"], format_duration(outcome["durationSeconds"])
    price = "an unknown price" if cost is None else format_usd(round(cost * 1_000_000))
    yield f"{format_count(outcome['iterations'], 'iteration')}, {took}, {price}"
    versions, sandbox = proof["versions"], proof["sandbox"]
    agent = f"{versions.get('agent') or 'an agent'} {versions.get('agentVersion') or ''}".strip()
    strength = markup.text(str(sandbox["strength"]))
    yield f"agent {markup.code(agent)}, sandbox {markup.code(str(sandbox['name']))} ({strength})"


def _how_to_verify(proof: Proof, pulled: PullRequestFacts, markup: ForgeMarkdown) -> Iterator[str]:
    subject, run = proof["subject"], str(proof["run"])
    checked = str(subject["checked"] or subject["tree"] or "unknown")
    commit = f"commit {markup.code(pulled.commit)}" if pulled.commit else "commit"
    same = not pulled.left_out and (pulled.tree == checked or pulled.differs == ())
    seen = f"where the checks saw {markup.code(checked)}"
    if same:
        seen = "the very tree that the checks saw" if pulled.tree == checked else f"{seen} without ralph's own folder"
    yield f"Branch {markup.code(pulled.branch)}, its {commit} with the tree {markup.code(pulled.tree)}: {seen}."
    yield ""
    if not same:
        yield "This branch differs from what was checked, in:"
        yield ""
        yield from _list([*map(markup.code, _differing(pulled))] or ["nobody knows which files"])
        yield ""
    # Verifying looks for the tree that the proof speaks of, with or without our own folder beside it.
    here = same or pulled.tree == subject["tree"]
    where = "in any clone, on this branch," if here else "where the work of the run is still saved, not by this branch,"
    yield (
        f"The proof of run {markup.code(run)} has the digest {markup.code(str(proof['digest']))}. "
        f"Its author gets the file with {markup.code(f'ralph proof export {run}')}; {where} "
        f"{markup.code('ralph verify FILE')} checks that tree out anew, runs the checks again, "
        "and says whether it holds."
    )


def _differing(pulled: PullRequestFacts) -> list[str]:
    """The known paths in which a branch differs from what was checked."""
    return sorted({*(pulled.differs or ()), *(path for path, _ in pulled.left_out)})


# Submission.


@value
class PullRequest:
    """A pull request to be created."""

    target: PullRequestTarget
    branch: PullRequestBranch
    title: str
    body: str


@value
class PullRequestResult:
    """The result. `address` is empty if the user has to create the request; `trouble` is the error, if any."""

    commit: str = ""
    address: str = ""
    file: str = ""
    pushed: bool = False
    trouble: str = ""


def describe_pull_request(
    builder: CommitBuilder, proof: Proof, target: PullRequestTarget, branch: PullRequestBranch, commit: str,
    title: str, mask: Callable[[str], str],
) -> PullRequest:  # fmt: skip
    """The request for a branch, with title and body from the proof; an empty `title` is the task's."""
    subject = proof["subject"]
    checked = str(subject["checked"] or subject["tree"] or "")
    differs = builder.differing_paths(checked, branch.tree) if checked else None
    out = tuple((one.path, one.reason) for one in branch.landing.excluded) if branch.landing else ()
    facts = PullRequestFacts(branch.branch, target.base, commit, branch.tree, branch.changes, out, differs)
    return PullRequest(
        target, branch, mask(pull_request_title(proof, title)), mask(pull_request_body(proof, facts))
    )  # fmt: skip


def submit_pull_request(
    git: UserGit, request: PullRequest, commit: str, draft: bool, file: str, always_write: bool,
    environ: Mapping[str, str],
) -> PullRequestResult:  # fmt: skip
    """Push the branch and create the request, if there is a forge; else, or `always_write`, write the texts to a
    file.
    """
    remote = request.target.remote
    forge = find_forge(git, remote, environ) if remote else None
    written = _write_texts(file, request) if forge is None or always_write else ""
    if forge is None:
        return PullRequestResult(commit, file=written)
    branch = request.branch.branch
    pushed, trouble = push_branch(git, remote, branch, commit, environ)
    if trouble:
        return PullRequestResult(commit, file=written, trouble=f"git push was refused: {trouble}")
    if known := find_open_pull_request(forge, branch, git.root, environ):
        return PullRequestResult(commit, known, written, pushed)
    with tempfile.TemporaryDirectory(prefix="ralph-pr-") as folder:
        body = os.path.join(folder, "body.md")
        with open(body, "w", encoding="utf-8") as out:
            out.write(request.body)
        argv = create_command(forge, (request.title, request.body, body), branch, request.target.base, draft)
        answer = run_forge_program(argv, git.root, environ)
    if answer.code != 0:
        failed = f"the branch is pushed, and {os.path.basename(forge.program)} created no request: {answer.said}"
        return PullRequestResult(commit, file=written, pushed=pushed, trouble=failed)
    return PullRequestResult(commit, url_in_output(answer), written, pushed)


def _write_texts(path: str, request: PullRequest) -> str:
    """Write title and body to a file; raises Refused instead of overwriting a different one."""
    text = f"{request.title}\n\n{request.body}".encode()
    try:
        if os.path.lexists(path):
            with open(path, "rb") as there:
                if there.read(len(text) + 1) == text:
                    return path
            raise Refused(f"{path} exists; name another file with -o")
        with open(path, "xb") as out:
            out.write(text)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}; name another file with -o") from error
    return path
