"""`ralph verify`: run a finished run's checks again on a clean checkout, and say whether its proof holds."""

from __future__ import annotations

import os
import sys

from ralphproof.attested import Attested, checks_in, setup_in, subject_in
from ralphproof.cli.parser import Parser
from ralphproof.cli.verify_told import Progress, tell
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verification import (
    DIFFERS,
    EXIT_CODES,
    UNCHECKED,
    AskedAgain,
    ProofAnswer,
    compared,
    contradictions,
    remarks,
    unfit,
    unshown,
    verdict_of,
)

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.check import Finding
    from ralphproof.cli.verify_consent import Sanction
    from ralphproof.cli.verify_source import ProofCase
    from ralphproof.cli.verify_subject import ProofPlace

ABOUT = """run a finished run's checks again on a clean checkout: does its proof hold?

RUN is a run of this repository: an id, its beginning, or latest. FILE is a proof that ralph proof export wrote; it
needs a clone of the repository, and no record of the run. First nothing may be altered: the file, its page, the
records that it rests on, for a run also the logs. Then the recorded tree is checked out into a throw-away folder, and
every required check runs there again, each in a fresh checkout, after the setup commands. Nothing is written here.

From a file only commands run that stand in the settings of that very commit (.ralph/settings.json, and verifyCommands
of ralph/tasks.json); others are shown, and run with --yes. What a model judged is not asked again.

Exit codes: 0 it holds, 1 it does not, 2 it cannot be checked (it says why)."""
EXAMPLES = (
    "ralph verify latest",
    "ralph verify 20261115-21 --json",
    "ralph verify proof.md",
    "ralph verify proof.md --yes",
    "git clone URL work && ralph verify -d work ralph-proof.md   # in CI: the repository and the file are enough",
)
NOT_RUN = {"judge": "a model's word", "warns": "only a warning", "other": "no command that could be run"}
OTHER_SETTINGS = "the settings file of that commit"
NO_YES = "these commands are not in the settings of that commit; look at them, and run them with --yes"


def parser() -> Parser:
    made = Parser("verify", ABOUT, EXAMPLES)
    made.add_argument("what", metavar="RUN|FILE", help="a run, or an exported proof")
    made.add_argument("--yes", action="store_true", help="run a file's commands also where no settings name them")
    kinds = "bubblewrap, container, landlock, sandbox-exec"
    made.add_argument("--sandbox", metavar="[=KIND]", help=f"run them in a sandbox: the strongest, or {kinds}")
    return made


def main(argv: list[str]) -> int:
    from ralphproof.cli.verify_source import case_of_file, case_of_run, is_file

    args = parser().parse(argv)
    if not args.what:
        raise Refused("say what to verify: a run, latest, or the file of a proof")
    file, environ = is_file(args.what), os.environ
    case = case_of_file(args.what, args.project_dir, environ) if file else case_of_run(args, environ)
    answer = _answer(case, args)
    tell(case, replace(answer, told=(*case.told, *answer.told)), args.json)
    return EXIT_CODES[answer.verdict]


def _answer(case: ProofCase, args: Namespace) -> ProofAnswer:
    """First match wins: no proof, an altered one, nothing to ask, no tree here; else what the checks say."""
    if case.why:
        return ProofAnswer(UNCHECKED, (case.why,))
    if case.faults:
        return ProofAnswer(DIFFERS, case.faults)
    try:
        checks, setup, subject = checks_in(case.proof), setup_in(case.proof), subject_in(case.proof)
        if why := unfit(case.proof, checks):
            return ProofAnswer(UNCHECKED, (why,))
    except Refused as error:
        return ProofAnswer(UNCHECKED, (str(error),))
    if wrong := contradictions(case.proof, checks):
        return ProofAnswer(DIFFERS, wrong)
    from ralphproof.cli.verify_subject import place_of

    found = place_of(case.root, subject, str(case.proof.get("run", "")), os.environ)
    if isinstance(found, ProofAnswer):
        return found
    try:
        answer = _allowed(case, args, found, checks, setup)
    except HarnessFailed as error:  # a full disk, objects that this clone does not have: nothing is said of the work
        answer = ProofAnswer(UNCHECKED, (str(error),))
    return replace(answer, commit=found.commit, told=(*found.told, *remarks(case.proof), *answer.told))


def _allowed(
    case: ProofCase, args: Namespace, place: ProofPlace, checks: tuple[Attested, ...], setup: tuple[str, ...]
) -> ProofAnswer:
    """What the checks say, where all that they run may be run."""
    from ralphproof.cli.verify_consent import sanction_of

    sanction = sanction_of(case.root, place.settings, os.environ)
    settings = case.proof.get("settings")
    other = isinstance(settings, dict) and settings.get("file") != sanction.settings
    if other and not place.told:
        return ProofAnswer(DIFFERS, (f"{OTHER_SETTINGS}: it is not the one that the proof was made with",))
    checks = tuple(map(sanction.found, checks))
    left = _unasked(sanction, checks)
    told = (*left, *([f"{OTHER_SETTINGS} is another one than the run's"] if other else []))
    strange = () if case.ours else _strange(sanction, checks, setup)
    if strange and not _agreed(strange, args):
        return ProofAnswer(UNCHECKED, (NO_YES, *strange), tuple(map(AskedAgain, checks)), told)
    again = _again(case, place.commit, checks, setup, args)
    return replace(verdict_of(again, "" if case.ours else unshown(case.proof) or "; ".join(left)), told=told)


def _strange(sanction: Sanction, checks: tuple[Attested, ...], setup: tuple[str, ...]) -> tuple[str, ...]:
    """Every command that the settings do not have, each with what is special in its rule."""
    preparing = [f"setup: {command}" for command in setup if command not in sanction.setup]
    asked = [check for check in checks if check.runs_again and not sanction.covers(check)]
    return tuple(dict.fromkeys([*preparing, *map(_shown, asked)]))


def _shown(check: Attested) -> str:
    rule = check.rule
    folder = f" (in {rule.folder})" if rule.folder != "." else ""
    code = f" (passes with exit code {rule.success_code})" if rule.success_code else ""
    return f"{check.command}{folder}{code}"


def _agreed(strange: tuple[str, ...], args: Namespace) -> bool:
    """Whether somebody wants them run all the same."""
    from ralphproof.cli.out import answered_yes, put

    if args.yes or args.json or sys.stdin is None or not sys.stdin.isatty():
        return bool(args.yes)
    put("Not in the settings of that commit:", *(f"  {line}" for line in strange))
    return answered_yes("Run these commands?")


def _unasked(sanction: Sanction, checks: tuple[Attested, ...]) -> tuple[str, ...]:
    """Checks of the settings that the proof does not have: others may have been asked for by flags."""
    known = {check.command for check in checks if check.required}
    left = dict.fromkeys(command for command in sanction.asked if command not in known)
    return tuple(f"a check of that commit's settings is no part of the proof: {command}" for command in left)


def _again(
    case: ProofCase, commit: str, checks: tuple[Attested, ...], setup: tuple[str, ...], args: Namespace
) -> tuple[AskedAgain, ...]:
    """Every required command once more; one that two checks have in common is run once."""
    from ralphproof.cli.verify_room import ThrowAway

    if not any(check.runs_again for check in checks):
        return tuple(AskedAgain(check, why=_not_run(check)) for check in checks)
    made: list[AskedAgain] = []
    known: dict[object, Finding] = {}
    progress = Progress(args.quiet)
    with ThrowAway(case.root, commit, os.environ, case.secrets, args.sandbox) as room:
        for check in checks:
            if not check.runs_again:
                made.append(AskedAgain(check, why=_not_run(check)))
                continue
            key = (check.command, replace(check.rule, clean=False))
            if key not in known:
                known[key] = room.ask(check, setup, progress.begins)
                progress.ended(check, known[key])
            made.append(compared(check, known[key]))
    return tuple(made)


def _not_run(check: Attested) -> str:
    from ralphproof.cli.verify_consent import WITHHELD

    if check.judged:
        return NOT_RUN["judge"]
    if not check.required:
        return NOT_RUN["warns"]
    return WITHHELD if check.command is None else NOT_RUN["other"]
