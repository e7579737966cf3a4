"""`ralph completion`: a script that completes commands and flags in your shell."""

from __future__ import annotations

from ralphproof.cli.out import put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.run import SUPPRESS
from ralphproof.cli.verbs import VERBS
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = (
    "source <(ralph completion bash)",
    "ralph completion zsh > ~/.zfunc/_ralph",
    "ralph completion fish > ~/.config/fish/completions/ralph.fish",
)
EVERYWHERE = ("--help", "--version")
PROGRAMS = ("ralph", "ralphproof")

BASH = """\
# bash completion for ralph; use it with: source <(ralph completion bash)
_ralph() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{verbs}"
    else
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _ralph {programs}
"""
ZSH = """\
#compdef {programs}
# zsh completion for ralph; put it into a folder of $fpath under the name _ralph
_ralph() {{
    local -a verbs
    if (( CURRENT == 2 )); then
        verbs=(
{verbs}
        )
        _describe command verbs
        return
    fi
    case "${{words[2]}}" in
{cases}
    esac
    _files
}}
if [ "$funcstack[1]" = _ralph ]; then _ralph "$@"; else compdef _ralph {programs}; fi
"""


@value
class Flag:
    """One flag with all its spellings. `takes` says that a word follows it."""

    spellings: tuple[str, ...]
    about: str
    takes: bool


@value
class Verb:
    """A verb, its flags, and the words that may stand after it."""

    name: str
    about: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]

    @property
    def all_words(self) -> str:
        return " ".join([*self.words, *(spelling for flag in self.flags for spelling in flag.spellings)])


def parser() -> Parser:
    made = Parser("completion", __doc__.split(": ", 1)[1], EXAMPLES)
    made.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell that you use")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    write: dict[str, Callable[[list[Verb]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    script = write[args.shell](known_verbs())
    if args.json:
        put_json("completion", {"shell": args.shell, "script": script})
    else:
        print(script, end="")
    return 0


def known_verbs() -> list[Verb]:
    """Every verb as its own parser describes it."""
    from importlib import import_module

    return [_verb(name, about, import_module(f"ralphproof.cli.{name}").parser()) for name, about in VERBS.items()]


def _verb(name: str, about: str, parser: Parser) -> Verb:
    flags, words = [], tuple[str, ...]()
    for action in parser._actions:
        if action.help == SUPPRESS:
            continue
        if action.option_strings:
            flags.append(Flag(tuple(action.option_strings), action.help or "", action.nargs != 0))
        elif action.choices:
            words += tuple(action.choices)
    return Verb(name, about, tuple(flags), words)


def bash(verbs: list[Verb]) -> str:
    """For bash 4 and later."""
    cases = "\n".join(f'            {verb.name}) words="{verb.all_words}" ;;' for verb in verbs)
    names = " ".join([*(verb.name for verb in verbs), *EVERYWHERE])
    return BASH.format(verbs=names, cases=cases, programs=" ".join(PROGRAMS))


def zsh(verbs: list[Verb]) -> str:
    """For zsh with its completion system."""
    names = "\n".join(f"            {_quoted(f'{verb.name}:{verb.about}')}" for verb in verbs)
    cases = "\n".join(f"        {verb.name}) compadd -- {verb.all_words} ;;" for verb in verbs)
    return ZSH.format(verbs=names, cases=cases, programs=" ".join(PROGRAMS))


def fish(verbs: list[Verb]) -> str:
    """For fish 3 and later."""
    lines = ["# fish completion for ralph"]
    for program in PROGRAMS:
        for verb in verbs:
            about = verb.about.replace("\\", "\\\\").replace("'", "\\'")
            lines.append(f"complete -c {program} -f -n __fish_use_subcommand -a {verb.name} -d '{about}'")
            seen = f"complete -c {program} -n '__fish_seen_subcommand_from {verb.name}'"
            lines += [f"{seen} -f -a {word}" for word in verb.words]
            lines += [f"{seen} {_fish_flag(flag)}" for flag in verb.flags]
    return "\n".join(lines) + "\n"


def _fish_flag(flag: Flag) -> str:
    named = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in flag.spellings]
    about = flag.about.replace("\\", "\\\\").replace("'", "\\'")
    return " ".join([*named, *(["-r"] if flag.takes else []), f"-d '{about}'"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
