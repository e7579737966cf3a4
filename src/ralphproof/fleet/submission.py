"""Submissions: loops that are submitted together, their dependencies, and what they may cost."""

from __future__ import annotations

import getpass
import json
import os
import tempfile
import time
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import pack, replace, value
from ralphproof.fleet.artifacts import ArtifactFolder
from ralphproof.fleet.governor import Allowance
from ralphproof.fleet.messages import (
    FleetTiming,
    LoopSpec,
    bad_address_message,
    is_repository_address,
    loop_spec_json,
    parse_loop_spec,
    without_password,
)
from ralphproof.runs.request import RunRequest, serialize_request
from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import load_settings, read_settings_files
from ralphproof.store.run_folder import new_run_id
from ralphproof.store.tasks import CANCELLED, DONE
from ralphproof.tasks.draft import TaskDraft
from ralphproof.tasks.files import read_task_files, validate_entries
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment

MAX_SUBMISSION_BYTES = 1 << 20  # a server accepts twice that in one call, and a history holds each spec twice
MAX_TITLE_CHARS, MAX_SUBMITTER_CHARS = 80, 100
LS_REMOTE_TIMEOUT_S = 30.0
PRIVATE_SETTINGS = ("notify", "otel")  # user settings that are not sent: their addresses contain tokens


@value
class SubmittedLoop:
    """One loop of a submission. It starts when the loops named in `after` have completed.

    `budget` is the most it may cost, in micro-dollars.
    """

    spec: LoopSpec
    title: str = ""
    after: tuple[str, ...] = ()
    budget: int | None = None


@value
class FleetSubmission:
    """Loops submitted together. Only their submitter sets the `allowance`."""

    id: str
    submitter: str
    loops: tuple[SubmittedLoop, ...]
    allowance: Allowance = Allowance()
    timing: FleetTiming = FleetTiming()


def submission_json(submission: FleetSubmission) -> dict[str, Any]:
    """JSON form for the server; raises Refused if it is too large for one message."""
    packed = {
        "submission": submission.id,
        "submitter": submission.submitter,
        "allowance": pack(submission.allowance),
        "timing": pack(submission.timing),
        "loops": [
            {
                "spec": loop_spec_json(one.spec),
                "after": list(one.after),
                "budget": one.budget,
                "memo": {
                    "title": one.title[:MAX_TITLE_CHARS],
                    "submitter": submission.submitter,
                    "artifacts": one.spec.artifacts,
                },
            }
            for one in submission.loops
        ],
    }
    if (size := len(json.dumps(packed))) > MAX_SUBMISSION_BYTES:
        message = f"{len(submission.loops)} loops are {size >> 10} KiB as JSON, and a server takes"
        raise Refused(f"{message} {MAX_SUBMISSION_BYTES >> 10}; submit them in several parts")
    return packed


# Building a submission


@value
class SubmitOptions:
    """Where loops of a submission work, and for whom. Empty `ref`: the repository's default branch.

    Empty `submitter`: the login name. `tasks` are task files, one loop per open task.
    """

    repo: str
    ref: str = ""
    target: str = ""
    artifacts: str = ""
    submitter: str = ""
    tasks: tuple[str, ...] = ()
    allowance: Allowance = Allowance()
    timing: FleetTiming = FleetTiming()


def build_submission(options: SubmitOptions, request: RunRequest) -> FleetSubmission:
    """The submission of one request, or of one for each task; raises Refused for what can be refused now."""
    if options.artifacts:
        ArtifactFolder(options.artifacts, "")
    submitter = _submitter_name(options.submitter)
    drafts = _open_tasks(options.tasks) if options.tasks else [None]
    settings, user = _load_settings(request)
    repo = os.path.abspath(options.repo) if os.path.isdir(options.repo) else options.repo
    base = options.ref or _default_branch(repo)
    id = new_run_id(time.time(), os.urandom(3))
    names = {draft.id if draft else "": f"{id}-{number}" for number, draft in enumerate(drafts, 1)}
    loops = []
    for draft in drafts:
        key = draft.id if draft else ""
        dependencies = tuple(names[one] for one in draft.dependencies if one in names) if draft else ()
        if len(dependencies) > 1 and not options.target:
            raise Refused(f"{key} depends on several tasks; name the branch that joins their work: --land BRANCH")
        own = replace(request, task=replace(request.task, id=key, name=key))
        task: Any = pack(draft) if draft else None
        spec = {
            "loop": names[key], "repo": repo, "base": base, "submitter": submitter, "user": user,
            "request": json.loads(serialize_request(own, lambda text: text)), "artifacts": options.artifacts,
            "target": options.target,
            "task": {name: item for name, item in task.items() if name != "is"} if task else None,
        }  # fmt: skip
        title = f"{draft.id}: {draft.title}" if draft else (request.prompt[0] or "").strip().partition("\n")[0]
        loops.append(SubmittedLoop(parse_loop_spec(spec), title, dependencies, settings.cost_limit_micro_usd))
    submission = FleetSubmission(id, submitter, tuple(loops), options.allowance, options.timing)
    submission_json(submission)  # raises Refused if it is too large
    return submission


def _submitter_name(name: str) -> str:
    if not name:
        try:
            name = getpass.getuser()
        except (KeyError, OSError):
            name = f"uid {os.getuid()}"
    if not name.strip() or not name.isprintable() or len(name) > MAX_SUBMITTER_CHARS:
        raise Refused(f"--submitter {name!r} is not a name")
    return name


def _open_tasks(files: tuple[str, ...]) -> list[TaskDraft]:
    validated = validate_entries(read_task_files(list(files)), {}, update=False)
    if validated.problems:
        raise Refused("\n".join(validated.problems))
    drafts = [draft for draft in validated.good if draft.status not in (DONE, CANCELLED)]
    if not drafts:
        raise Refused(f"no open task in {', '.join(files)}")
    return drafts


def _load_settings(request: RunRequest) -> tuple[Settings, dict[str, Any]]:
    """The settings without those of the repository, and the user's own settings that are sent along."""
    flags = dict(request.flags)
    if checks := [check for check in request.checks.commands if check != "auto"]:
        flags["guardrails"] = [{"command": check} for check in checks]
    with tempfile.TemporaryDirectory(prefix="ralph-fleet-") as nowhere:
        settings = load_settings(nowhere, os.environ, flags).settings
        own = read_settings_files(nowhere, os.environ)[0].data
    user = {name: item for name, item in own.items() if name not in PRIVATE_SETTINGS} if isinstance(own, dict) else {}
    if isinstance(agent := user.get("agent"), dict):
        user["agent"] = {name: item for name, item in agent.items() if name != "env"}
    return settings, user


def _default_branch(repo: str) -> str:
    """The default branch of a repository; raises Refused if it cannot be reached."""
    if not is_repository_address(repo):
        raise Refused(bad_address_message(repo))
    shown, git = without_password(repo), find_program("git", os.environ.get("PATH", os.defpath))
    if git is None:
        raise Refused("git is not installed; give --ref")
    argv = [git, *NO_HOOKS_OPTIONS, "ls-remote", "--symref", "--", repo, "HEAD"]
    reply = run_program(argv, user_git_environment(os.environ), timeout_s=LS_REMOTE_TIMEOUT_S)
    if reply.code:
        error = reply.said.replace(repo, shown)
        raise Refused(f"the repository {shown} cannot be reached ({error}); give --ref, or another --repo")
    for line in reply.out.decode("utf-8", "replace").splitlines():
        if line.startswith("ref: refs/heads/"):
            return line.removeprefix("ref: refs/heads/").split("\t")[0]
    raise Refused(f"the repository {shown} has no default branch; give --ref")
