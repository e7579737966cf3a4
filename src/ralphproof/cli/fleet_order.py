"""From flags to the orders of loops: read, checked as far as one can without the repository, and written as text."""

from __future__ import annotations

import json
import os

from ralphproof.cli.run import check_flags, flags_of, given, guarded, prompt_of
from ralphproof.errors import Refused
from ralphproof.plans.draft import STAGES
from ralphproof.value import TYPE_CHECKING, pack, replace

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any

    from ralphproof.cli.order import Wish
    from ralphproof.config.settings import Settings
    from ralphproof.fleet.order import LoopOrder
    from ralphproof.fleet.submission import Submitted
    from ralphproof.plans.draft import Draft

ASK_S = 30.0
PRIVATE = ("notify", "otel")  # of the user's settings, what stays on their machine: addresses that hold tokens


def submitter_of(args: Namespace) -> str:
    """Who hands this in."""
    name: str | None = args.submitter
    if name is None:
        import getpass

        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = f"uid {os.getuid()}"
    if not name.strip() or not name.isprintable() or len(name) > 100:
        raise Refused(f"--submitter {name!r} is no name")
    return name


def orders_of(args: Namespace, id: str, submitter: str) -> tuple[Submitted, ...]:
    """Every loop that is asked for."""
    from ralphproof.fleet.submission import Submitted

    if args.tasks and any(text is not None for text in (args.prompt, args.prompt_file)):
        raise Refused("give a prompt or --tasks, not both")
    if args.skip and (not args.tasks or set(args.skip) == set(STAGES)):
        raise Refused("--skip leaves no stage; keep one" if args.tasks else "--skip is for --tasks")
    if args.tasks:
        return _of_tasks(args, id, submitter)
    wish = _wish(args)
    settings, user = _settings(wish)
    order = _order(args, f"{id}-1", submitter, wish, settings, user)
    title = (wish.prompt[0] or "").strip().splitlines()
    return (Submitted(order, title[0] if title else "", (), settings.cost_limit_micro_usd),)


def _of_tasks(args: Namespace, id: str, submitter: str) -> tuple[Submitted, ...]:
    from ralphproof.backlog import CANCELLED, DONE
    from ralphproof.cli.task_files import entries, sorted_out
    from ralphproof.fleet.submission import Submitted

    sieve = sorted_out(entries(args.tasks), {}, update=False)
    if sieve.problems:
        raise Refused("\n".join(sieve.problems))
    drafts = [draft for draft in sieve.good if draft.status not in (DONE, CANCELLED)]
    if not drafts:
        raise Refused(f"there is no open task in {', '.join(args.tasks)}")
    names = {draft.id: f"{id}-{number}" for number, draft in enumerate(drafts, 1)}
    found = []
    for draft in drafts:
        wish = _task_wish(args, draft)
        settings, user = _settings(wish)
        before = tuple(names[one] for one in draft.dependencies if one in names)
        if len(before) > 1 and not args.land:
            raise Refused(f"{draft.id} depends on several tasks; say with --land BRANCH where their work joins")
        order = _order(args, names[draft.id], submitter, wish, settings, user, draft)
        title = f"{draft.id}: {draft.title}"
        found.append(Submitted(order, title, before, settings.cost_limit_micro_usd))
    return tuple(found)


def _wish(args: Namespace) -> Wish:
    from ralphproof.cli.order import Wish

    text, file = prompt_of(args)
    if file is not None:
        text = _read(file)
    if not (text or "").strip():
        raise Refused("say what should become true: -p TEXT, -f FILE or --tasks FILE")
    return replace(_bounded(args, Wish((text, None), flags_of(args))), checks=_checks(args))


def _task_wish(args: Namespace, draft: Draft) -> Wish:
    from ralphproof.cli.order import Wish

    flags: dict[str, Any] = {**flags_of(args), "preset": "pipeline"}
    wish = Wish(("", None), given(flags), task=draft.id, work=draft.id, skip=tuple(args.skip or ()))
    return replace(_bounded(args, wish), checks=_checks(args))


def _bounded(args: Namespace, wish: Wish) -> Wish:
    return replace(
        wish, flags=wish.flags | check_flags(args), protect=tuple(args.protect or ()), guarded=guarded(args),
        find_checks=True, allow_missing_check=args.allow_missing_check, allow_unknown_cost=args.allow_unknown_cost,
        judge=tuple(args.judge or ()), hosts=tuple(args.allow_host or ()), may_change=tuple(args.may_change or ()),
    )  # fmt: skip


def _checks(args: Namespace) -> tuple[str, ...]:
    checks = tuple(args.check or ())
    if any(not check.strip() for check in checks):
        raise Refused("--check needs a command, and one of them is empty")
    return checks


def _read(file: str) -> str:
    try:
        with open(file, "rb") as opened:
            return opened.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except OSError as error:
        raise Refused(f"the prompt file {file} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise Refused(f"the prompt file {file} is no text") from None


def _settings(wish: Wish) -> tuple[Settings, dict[str, Any]]:
    """The settings as they hold without the repository's, and the user's own as they are sent along."""
    import tempfile

    from ralphproof.config.load import load, read_files

    with tempfile.TemporaryDirectory(prefix="ralph-fleet-") as nowhere:
        flags = dict(wish.flags)
        if checks := [check for check in wish.checks if check != "auto"]:
            flags["guardrails"] = [{"command": check} for check in checks]
        loaded = load(nowhere, os.environ, flags)
        found = read_files(nowhere, os.environ)[0].data
    own = dict(found) if isinstance(found, dict) else {}
    user = {name: item for name, item in own.items() if name not in PRIVATE}
    if isinstance(agent := user.get("agent"), dict):
        user["agent"] = {name: item for name, item in agent.items() if name != "env"}
    return loaded.settings, user


def _order(
    args: Namespace, loop: str, submitter: str, wish: Wish, settings: Settings, user: dict[str, Any],
    draft: Draft | None = None,
) -> LoopOrder:  # fmt: skip
    from ralphproof.cli.notes import wish_text
    from ralphproof.fleet.order import order_of

    if args.artifacts:
        from ralphproof.fleet.artifacts import refuse_unknown

        refuse_unknown(args.artifacts)
    if not args.ref:
        args.ref = _usual_branch(address_of(args.repo))
    agent = (settings.agent.command or "").split()
    task: Any = pack(draft) if draft else None
    return order_of(
        {
            "loop": loop, "repo": address_of(args.repo), "base": args.ref, "submitter": submitter, "user": user,
            "wish": json.loads(wish_text(wish, lambda text: text)), "artifacts": args.artifacts, "target": args.land,
            "task": {name: item for name, item in task.items() if name != "is"} if task else None,
            "agent": os.path.basename(agent[0]) if agent else "",
        }
    )  # fmt: skip


def address_of(repo: str) -> str:
    """The repository's address; a folder of this machine by its whole path."""
    return os.path.abspath(repo) if os.path.isdir(repo) else repo


def _usual_branch(repo: str) -> str:
    """The branch that a repository calls its own; raises Refused where it cannot be asked."""
    from ralphproof.fleet.order import without_password
    from ralphproof.workspaces.gitcall import NOTHING_RUNS, call, find_program, plain_environment

    shown = without_password(repo)
    if repo.startswith("-") or "::" in repo.partition("/")[0]:
        raise Refused(f"{shown[:200]!r} is no address of a repository; file, git, ssh and https are known")
    git = find_program("git", os.environ.get("PATH", os.defpath))
    if git is None:
        raise Refused("git is not installed; give --ref, so that the repository need not be asked")
    words = [git, *NOTHING_RUNS, "ls-remote", "--symref", "--", repo, "HEAD"]
    reply = call(words, plain_environment(os.environ), timeout_s=ASK_S)
    if reply.code:
        said = reply.said.replace(repo, shown)
        raise Refused(f"the repository {shown} cannot be asked for its branch ({said}); give --ref, or another --repo")
    for line in reply.out.decode("utf-8", "replace").splitlines():
        if line.startswith("ref: refs/heads/"):
            return line.removeprefix("ref: refs/heads/").split("\t")[0]
    raise Refused(f"the repository {shown} has no branch of its own; give --ref")
